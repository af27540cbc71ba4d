# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse teacher`."""

from hf_dse.cli.parsing import parse_args
from hf_dse.data.arguments import DataArguments
from hf_dse.teacher.arguments import TeacherArguments
from hf_dse.training.options import PairOptions


def teacher(argv: list[str]) -> None:
    """Fine-tunes a cross-encoder; prints its metrics."""
    teacher_args, data_args, training_args = parse_args(
        argv,
        TeacherArguments,
        DataArguments,
        PairOptions,
        prog="hf-dse teacher",
        description="Fine-tune an encoder as a cross-encoder on a sentence-pair task, or as a reranker on queries "
        "with relevant documents and negatives, such as `hf-dse mine` writes. Documents need a larger `--max_length`, "
        "such as 256 or 512.",
    )
    from hf_dse.common.devices import end_process_group
    from hf_dse.data.ranking_files import is_ranking_data
    from hf_dse.teacher.fine_tune import train_teacher
    from hf_dse.teacher.fine_tune_ranking import train_reranker

    train = train_reranker if is_ranking_data(data_args) else train_teacher
    metrics = train(teacher_args, data_args, training_args)
    if training_args.process_index == 0:
        for name, value in metrics.items():
            if name.startswith(("eval_", "test_")) and not name.endswith(("_runtime", "_second")):
                print(f"{name:<16}{value:.4f}")
        print(f"Saved to {training_args.output_dir}")
    end_process_group()
