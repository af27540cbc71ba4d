"""
Distil a teacher's scores into a student with DseTrainer, on the embedded pairs: about 2 minutes on 2 CPU cores.

    python examples/02_distill.py outputs/example

For your own pairs and teacher replace two lines:

    pairs = load_pairs(DataArguments(task_name="stsb"))
    train = score("cross-encoder/stsb-roberta-base", pairs["train"], symmetric=True, cache_dir="scores")
"""

import sys

from transformers import AutoTokenizer

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    convert_encoder,
    default_encoder,
    evaluate,
    export,
    load_pairs,
    make_pair_model,
)


output_dir = sys.argv[1] if len(sys.argv) > 1 else "outputs/example"
max_train_samples = int(sys.argv[2]) if len(sys.argv) > 2 else None

# The embedded pairs already have the teacher's scores, in the column `teacher_logits`.
pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=max_train_samples))
train = pairs["train"]

source = default_encoder()
tokenizer = AutoTokenizer.from_pretrained(source)
student = make_pair_model(convert_encoder(source, linformer_length=64), num_labels=1, problem_type="regression")
trainer = DseTrainer(
    model=student,
    args=DseTrainingArguments(
        output_dir,
        distillation_alpha=0.5,
        learning_rate=5e-5,
        num_train_epochs=1,
        per_device_train_batch_size=16,
        save_strategy="no",
        report_to="none",
        max_length=256,
    ),
    train_dataset=train,
    processing_class=tokenizer,
)
trainer.train()
# The tokenizer of the trainer reads as many tokens as the training did, and so does everything that loads the folder.
tokenizer = trainer.processing_class
metrics = evaluate(student, pairs["test"], tokenizer, task_name="stsb")
print({name: round(100 * value, 2) for name, value in metrics.items()})
print(export(student, f"{output_dir}/model", tokenizer, base_model=source, overwrite_output_dir=True))
