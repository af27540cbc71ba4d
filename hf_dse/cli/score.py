# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score`."""

import shlex

from hf_dse.cli.output import say_next
from hf_dse.data.arguments import DataArguments
from hf_dse.teacher.arguments import EngineArguments, ScoreArguments


def score(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> None:
    """
    Add a teacher's scores to sentence pairs, or to queries with candidates. Both orders of a pair are scored if the
    task is symmetric: `--symmetric` overrides the setting of the task. A query always comes first, and only the
    document is cut.

    hf-dse score --model_name_or_path teacher --task_name stsb --split train --output_file scored.parquet
    """
    from hf_dse.teacher.score_files import score_files

    what = score_files(args, data_args, engine_args)
    print(f"{what} written to {args.output_file}")
    stage = "--stage ranking " if "queries" in what else ""
    say_next(distill=f"{stage}--train_file {shlex.quote(args.output_file)}")
