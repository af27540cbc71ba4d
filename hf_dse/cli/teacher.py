# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse teacher`."""

from hf_dse.cli.parsing import parse_args
from hf_dse.common.devices import end_process_group
from hf_dse.data.pairs import DataArguments
from hf_dse.teacher.fine_tune import TeacherArguments, train_teacher
from hf_dse.training.arguments import PairTrainingArguments


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
    end_process_group()
