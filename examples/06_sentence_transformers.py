"""
Use and train a model folder with sentence-transformers (`pip install hf-dse[st,train]`). Less than 2 minutes on 2 CPU
cores.

    python examples/06_sentence_transformers.py outputs/sentence_transformers

prints, besides the progress of the training:

    embeddings (2, 384), cosine 0.6997
    before Spearman 71.86
    after  Spearman 73.44
"""

import sys

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CoSENTLoss
from transformers import AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs


output_dir = sys.argv[1] if len(sys.argv) > 1 else "outputs/sentence_transformers"
max_steps = int(sys.argv[2]) if len(sys.argv) > 2 else 50

source = default_encoder()
encoder = convert_encoder(source, linformer_length=64)
folder = export(encoder, f"{output_dir}/converted", AutoTokenizer.from_pretrained(source), overwrite_output_dir=True)

# Without `import hf_dse`, pass `trust_remote_code=True`: the code is in the folder.
model = SentenceTransformer(str(folder))
embeddings = model.encode(["A plane is taking off.", "An aircraft leaves the runway."])
print(f"embeddings {embeddings.shape}, cosine {model.similarity(*embeddings).item():.4f}")

pairs = load_pairs(DataArguments(dataset_name="embedded")).select_columns(["sentence1", "sentence2", "label"])
test = pairs["test"]
evaluator = EmbeddingSimilarityEvaluator(test["sentence1"][:], test["sentence2"][:], test["label"][:])
before = evaluator(model)
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir, max_steps=max_steps, learning_rate=5e-5, save_strategy="no", report_to="none"
    ),
    train_dataset=pairs["train"],
    loss=CoSENTLoss(model),
)
trainer.train()
for name, metrics in (("before", before), ("after", evaluator(model))):
    print(f"{name:<6} Spearman {100 * metrics['spearman_cosine']:.2f}")
model.save_pretrained(f"{output_dir}/model")
