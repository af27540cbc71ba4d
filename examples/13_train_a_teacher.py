"""
Train a teacher with the CrossEncoderTrainer of sentence-transformers (`pip install hf-dse[st,train]`): a cross-encoder
of labelled pairs, or a reranker of labelled queries. Less than 3 minutes on 2 CPU cores with the embedded pairs.

    python examples/13_train_a_teacher.py --dataset_name embedded --symmetric true --output_dir outputs/teacher

prints, after the progress of the training:

    validation: pearson 0.735, spearman 0.710
    test: pearson 0.725, spearman 0.694

Good teachers have more pairs, and start from a larger encoder, `--model_name_or_path
sentence-transformers/all-mpnet-base-v2`, with a learning rate of 3e-5 for pairs. `--max_length` has to fit both texts.
For symmetric tasks every other pair is swapped, so that both orders are learned. A reranker learns from rows of
`hf-dse mine`, not from the hardest negatives, because a new head has to learn the task first:

    python examples/13_train_a_teacher.py --train_file mined.jsonl --num_negatives 3 --num_train_epochs 1 \\
        --max_length 80 --output_dir outputs/reranker
"""

from dataclasses import dataclass, field

import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, CrossEncoderTrainer, CrossEncoderTrainingArguments
from sentence_transformers.cross_encoder import evaluation, losses
from transformers import HfArgumentParser, set_seed

from hf_dse import DataArguments, default_encoder, load_pairs, load_rankings


@dataclass
class TeacherArguments:
    model_name_or_path: str | None = field(default=None, metadata={"help": "Default: the encoder of the demo."})
    max_length: int = field(default=128, metadata={"help": "Tokens of both texts together."})
    num_negatives: int = field(default=0, metadata={"help": "Of a query: learn from rankings, not from pairs."})


parser = HfArgumentParser([TeacherArguments, DataArguments, CrossEncoderTrainingArguments])
parser.set_defaults(learning_rate=5e-5, warmup_steps=0.1, per_device_train_batch_size=16, num_train_epochs=3)
parser.set_defaults(output_dir="outputs/teacher", save_strategy="no", report_to="none")
teacher_args, data_args, args = parser.parse_args_into_dataclasses()
set_seed(args.seed)
num, is_ranking = teacher_args.num_negatives, teacher_args.num_negatives > 0
pairs = {} if is_ranking else load_pairs(data_args)
labels = [] if is_ranking else pairs["train"]["label"][:]
num_labels = max(labels) + 1 if labels and isinstance(labels[0], int) else 1
encoder = teacher_args.model_name_or_path or default_encoder()
model = CrossEncoder(encoder, num_labels=num_labels, max_length=teacher_args.max_length)
# Scores are raw logits, from which students learn.
model.activation_fn = torch.nn.Identity()
if is_ranking:
    rankings, rows = load_rankings(data_args)["train"], []
    for query in rankings.queries:
        known = list(zip(query["documents"], query["labels"], strict=True))
        others = [row for row, label in known if label == 0][:num]
        for relevant in [row for row, label in known if rankings.is_relevant(label) and others]:
            # The softmax of the labels is 1 for the relevant document.
            rows.append((query["query"], rankings.corpus[[relevant, *others]]["text"], [100.0] + [0.0] * len(others)))
    train = Dataset.from_dict(dict(zip(("query", "documents", "label"), zip(*rows, strict=True), strict=True)))
    loss = losses.ListNetLoss(model)
else:
    columns = {name: pairs["train"][name][:] for name in ("sentence1", "sentence2")}
    if data_args.symmetric:
        first, second = columns.values()
        first[::2], second[::2] = second[::2], first[::2]
    train = Dataset.from_dict({**columns, "label": labels})
    loss = losses.MSELoss(model) if num_labels == 1 else losses.CrossEntropyLoss(model)
    for name, parameter in model.named_parameters():
        # The bias of a new head, 0. Otherwise the first epoch is spent on learning the mean label.
        if name.endswith("bias") and parameter.shape == (1,) and not parameter.any():
            torch.nn.init.constant_(parameter, sum(labels) / len(labels))
trainer = CrossEncoderTrainer(model=model, args=args, train_dataset=train, loss=loss)
# The option is a text, `true` or a folder.
trainer.train(resume_from_checkpoint=args.resume_from_checkpoint in ("true", "True") or args.resume_from_checkpoint)
model.save_pretrained(args.output_dir)
kind = "Correlation" if num_labels == 1 else "Classification"
for split, part in pairs.items():
    texts = list(zip(part["sentence1"], part["sentence2"], strict=True))
    if split != "train":
        metrics = getattr(evaluation, f"CrossEncoder{kind}Evaluator")(texts, part["label"][:])(model)
        print(f"{split}: {', '.join(f'{name} {value:.3f}' for name, value in metrics.items())}")
