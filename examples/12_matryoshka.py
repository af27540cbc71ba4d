"""
Train vectors that can be cut (Matryoshka representations, https://huggingface.co/papers/2205.13147), with losses of
sentence-transformers (`pip install hf-dse[st,train]`). Less than 3 minutes on 2 CPU cores.

    python examples/12_matryoshka.py outputs/matryoshka

prints, besides the progress of the training:

    before 384 dimensions: Spearman 71.93
    before 128 dimensions: Spearman 70.77
    before  32 dimensions: Spearman 66.96
    after  384 dimensions: Spearman 74.13
    after  128 dimensions: Spearman 72.67
    after   32 dimensions: Spearman 69.20

Any loss fits into MatryoshkaLoss, such as CosineSimilarityLoss or MultipleNegativesRankingLoss.
"""

import sys

from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import CoSENTLoss, MatryoshkaLoss
from transformers import AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs


output_dir = sys.argv[1] if len(sys.argv) > 1 else "outputs/matryoshka"
max_steps = int(sys.argv[2]) if len(sys.argv) > 2 else -1
DIMS = [384, 128, 32]

source = default_encoder()
encoder, tokenizer = convert_encoder(source, linformer_length=64), AutoTokenizer.from_pretrained(source)
folder = export(encoder, f"{output_dir}/converted", tokenizer, max_length=128, overwrite_output_dir=True)
model = SentenceTransformer(str(folder))

pairs = load_pairs(DataArguments(dataset_name="embedded")).select_columns(["sentence1", "sentence2", "label"])
test = pairs["test"]
texts = test["sentence1"][:], test["sentence2"][:], test["label"][:]


def report(when: str) -> None:
    for dim in DIMS:
        metrics = EmbeddingSimilarityEvaluator(*texts, truncate_dim=dim)(model)
        print(f"{when:<6} {dim:>3} dimensions: Spearman {100 * metrics['spearman_cosine']:.2f}")


report("before")
trainer = SentenceTransformerTrainer(
    model=model,
    args=SentenceTransformerTrainingArguments(
        output_dir,
        max_steps=max_steps,
        num_train_epochs=1,
        per_device_train_batch_size=16,
        learning_rate=5e-5,
        warmup_steps=0.1,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=pairs["train"],
    loss=MatryoshkaLoss(model, CoSENTLoss(model), matryoshka_dims=DIMS),
)
trainer.train()
report("after")
# Whoever loads the model chooses the size: `SentenceTransformer(folder, truncate_dim=128)`.
model.save_pretrained(f"{output_dir}/model")
