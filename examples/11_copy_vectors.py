"""
Copy the vectors of a larger embedding model into a smaller and faster one, on texts without labels, as LEAF does
(https://huggingface.co/papers/2509.12539), with a loss of sentence-transformers (`pip install hf-dse[st,train]`). Here
the teacher is all-MiniLM-L6-v2 and the student has three of its six layers. Less than 3 minutes on 2 CPU cores.

    python examples/11_copy_vectors.py outputs/copied

prints, after the progress of the training:

    before:  cosine to the teacher's vectors 0.533, Spearman 61.03
    after:   cosine to the teacher's vectors 0.822, Spearman 70.17
    teacher: cosine to the teacher's vectors 1.000, Spearman 72.17

A larger teacher is another name, such as sentence-transformers/all-mpnet-base-v2. For vectors of another size, such as
768 dimensions, pass `projection_dim=768` to the loss: a linear layer, which is not part of the student, then maps the
student's vectors to the teacher's.
"""

import sys

from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer.evaluation import EmbeddingSimilarityEvaluator
from sentence_transformers.sentence_transformer.losses import EmbedDistillLoss
from transformers import AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs


output_dir = sys.argv[1] if len(sys.argv) > 1 else "outputs/copied"
max_steps = int(sys.argv[2]) if len(sys.argv) > 2 else -1

source = default_encoder()
encoder = convert_encoder(source, linformer_length=64, num_hidden_layers=3)
tokenizer = AutoTokenizer.from_pretrained(source)
folder = export(encoder, f"{output_dir}/converted", tokenizer, max_length=128, overwrite_output_dir=True)
student = SentenceTransformer(str(folder))
teacher = SentenceTransformer(source)
teacher.max_seq_length = 128

pairs = load_pairs(DataArguments(dataset_name="embedded"))
texts = {split: [*part["sentence1"], *part["sentence2"]] for split, part in pairs.items()}
# The teacher reads each text once; its vectors are the labels.
train = Dataset.from_dict({"text": texts["train"], "label": teacher.encode(texts["train"])})
held_out = teacher.encode(texts["validation"], convert_to_tensor=True)
test = pairs["test"]
evaluator = EmbeddingSimilarityEvaluator(test["sentence1"][:], test["sentence2"][:], test["label"][:])


def report(when: str, model: SentenceTransformer) -> None:
    cosines = model.similarity_pairwise(model.encode(texts["validation"], convert_to_tensor=True), held_out)
    spearman = 100 * evaluator(model)["spearman_cosine"]
    print(f"{when:<8} cosine to the teacher's vectors {cosines.mean().item():.3f}, Spearman {spearman:.2f}")


report("before:", student)
trainer = SentenceTransformerTrainer(
    model=student,
    args=SentenceTransformerTrainingArguments(
        output_dir,
        max_steps=max_steps,
        num_train_epochs=2,
        per_device_train_batch_size=32,
        learning_rate=2e-4,
        warmup_steps=0.1,
        save_strategy="no",
        report_to="none",
    ),
    train_dataset=train,
    loss=EmbedDistillLoss(student, distance_metric="cosine"),
)
trainer.train()
report("after:", student)
report("teacher:", teacher)
student.save_pretrained(f"{output_dir}/model")
