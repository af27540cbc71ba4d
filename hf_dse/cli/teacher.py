# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse teacher` and `hf-dse score`."""

import json
from dataclasses import dataclass, field
from pathlib import Path

from datasets import Dataset

from hf_dse.cli import parse_args
from hf_dse.cli.evaluate import output_path, write_atomically
from hf_dse.data import DataArguments, load_pairs, resolve_task
from hf_dse.teacher import (
    TeacherArguments,
    check_num_labels,
    default_device,
    load_teacher,
    score_pairs,
    train_teacher,
)
from hf_dse.training_args import PairTrainingArguments


OUTPUT_ENDINGS = (".jsonl", ".parquet")


@dataclass
class ScoreArguments:
    """Which teacher scores which split, and where the result goes."""

    model_name_or_path: str = field(metadata={"help": "The cross-encoder: a folder or a Hub name."})
    output_file: str = field(metadata={"help": "File for the pairs with their scores: .jsonl or .parquet."})
    split: str = field(default="train", metadata={"help": "The split to score; in a folder the name of any file."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Number format of the teacher's weights; bfloat16 is faster where the hardware has it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    batch_size: int = field(default=64, metadata={"help": "Pairs in a batch; fewer above 512 tokens a pair."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of known scores, from which a run that was stopped goes on. Defaults to `.hf-dse-scores` "
            "beside the output file."
        },
    )


def teacher(argv: list[str]) -> None:
    """Fine-tunes a cross-encoder; prints its metrics."""
    teacher_args, data_args, training_args = parse_args(
        argv,
        TeacherArguments,
        DataArguments,
        PairTrainingArguments,
        prog="hf-dse teacher",
        description="Fine-tune an encoder as a cross-encoder on a sentence-pair task.",
    )
    metrics = train_teacher(teacher_args, data_args, training_args)
    if training_args.process_index == 0:
        for name, value in metrics.items():
            if name.startswith(("eval_", "test_")) and not name.endswith(("_runtime", "_second")):
                print(f"{name:<16}{value:.4f}")
        print(f"Saved to {training_args.output_dir}")


def score(argv: list[str]) -> None:
    """Adds a teacher's logits to the pairs of a split and writes them to a file."""
    args, data_args = parse_args(
        argv,
        ScoreArguments,
        DataArguments,
        prog="hf-dse score",
        description="Add a teacher's scores to sentence pairs. Both orders of a pair are scored where the task is "
        "symmetric; `--symmetric true` or `--symmetric false` overrides what the task says.",
    )
    output = output_path(args.output_file, OUTPUT_ENDINGS)
    known = data_args.task_name is not None or data_args.num_labels is not None
    if known:
        resolve_task(data_args)
    model, tokenizer = load_teacher(
        args.model_name_or_path,
        revision=args.model_revision,
        trust_remote_code=args.trust_remote_code,
        dtype=args.dtype,
    )
    if not known:
        data_args.num_labels = model.config.num_labels
    task = resolve_task(data_args)
    check_num_labels(model.config.num_labels, task)
    pairs = load_pairs(data_args, [args.split], require_labels=False)[args.split]
    scored = score_pairs(
        model,
        pairs,
        processing_class=tokenizer,
        batch_size=args.batch_size,
        max_length=data_args.max_seq_length,
        symmetric=task.symmetric,
        cache_dir=args.cache_dir or output.parent / ".hf-dse-scores",
        device=args.device or default_device(),
    )
    write_pairs(scored, output)
    print(f"{len(scored)} scored pairs written to {output}")


def write_pairs(pairs: Dataset, path: Path) -> None:
    """Writes pairs as JSON lines or parquet, by the ending of the file, whole or not at all."""
    if path.suffix == ".parquet":
        write_atomically(path, pairs.to_parquet)
    else:
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in pairs)
        write_atomically(path, lambda file: file.writelines(line.encode() for line in lines))
