# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse teacher`."""

import shlex

from transformers.utils import logging

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import format_table
from hf_dse.data.arguments import DataArguments
from hf_dse.teacher.arguments import TeacherArguments
from hf_dse.training.options import PairOptions


logger = logging.get_logger(__name__)

# How a Trainer calls the metrics of the splits.
SPLITS = {"eval": "validation", "test": "test"}


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
        results: dict[str, dict[str, float]] = {}
        for name, value in metrics.items():
            prefix, _, metric = name.partition("_")
            if prefix in SPLITS and not metric.endswith(("loss", "runtime", "_second")):
                results.setdefault(SPLITS[prefix], {})[metric] = value
        if results:
            print(format_table(results))
            logger.info("Values are times 100.")
        print(f"Saved to {training_args.output_dir}")
        folder = shlex.quote(str(training_args.output_dir))
        say_next(score=f"--model_name_or_path {folder}", distill=f"--teacher_name_or_path {folder}")
    end_process_group()
