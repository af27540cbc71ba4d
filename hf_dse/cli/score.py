# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score`."""

import shlex

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args
from hf_dse.data.arguments import DataArguments
from hf_dse.inference.arguments import EngineArguments
from hf_dse.teacher.arguments import ScoreArguments


def score(argv: list[str]) -> None:
    """Adds a teacher's logits to the pairs or candidates of a split and writes them to a file."""
    args, data_args, engine_args = parse_args(
        argv,
        ScoreArguments,
        DataArguments,
        EngineArguments,
        prog="hf-dse score",
        description="Add a teacher's scores to sentence pairs, or to queries with candidates. Both orders of a pair "
        "are scored if the task is symmetric; `--symmetric true` or `--symmetric false` overrides the setting of the "
        "task. A query always comes first, and only the document is cut.",
    )
    from hf_dse.teacher.score_files import score_files

    what = score_files(args, data_args, engine_args)
    print(f"{what} written to {args.output_file}")
    stage = "--stage ranking " if "queries" in what else ""
    say_next(distill=f"{stage}--train_file {shlex.quote(args.output_file)}")
