# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse distill`: one stage, or the stages of a recipe."""

import argparse
import inspect
import logging
import shlex
from collections.abc import Callable
from functools import partial
from typing import Any

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_options, read_config
from hf_dse.retrieval.options import BM25_WEIGHT
from hf_dse.stages.options import STAGES


logger = logging.getLogger(__name__)


def parse(argv: list[str]) -> Callable[[], None]:
    """Reads the options of all stages before the first one runs, so that errors are raised early."""
    config, argv = read_config(argv)
    return partial(distill, parse_stages(argv, config), "stages" in config)


def distill(stages: list[tuple[Any, ...]], is_recipe: bool) -> None:
    """
    Train a student on labels and teacher scores, of pairs or of queries with candidates, or on text and the layers of
    its source. Every option of transformers.TrainingArguments works too: `hf-dse distill --help all` lists them.

    hf-dse distill --model sentence-transformers/all-MiniLM-L6-v2 --teacher teacher \\
        --task_name stsb --output_dir student
    """
    from accelerate import PartialState

    from hf_dse.common.display import CAPTION, format_table
    from hf_dse.stages.distill import run_stage, run_stages

    result = run_stages(stages) if is_recipe else run_stage(*stages[0])
    *_, training_args = stages[-1]
    if result is not None and training_args.process_index == 0:
        if result.metrics:
            print(format_table(result.metrics))
            logger.info(CAPTION)
        print(f"Saved to {result.path}")
        model, corpus = f"--model {shlex.quote(str(result.path))}", getattr(stages[-1][2], "corpus_file", None)
        search = f"{model} --corpus {shlex.quote(corpus or 'FOLDER')} --bm25_weight {BM25_WEIGHT} --query '...'"
        say_next(search=search, export=f"{model} --format onnx")
    # A process that exits within the group of a distributed run may abort.
    PartialState().wait_for_everyone()
    PartialState().destroy_process_group()


def parse_stages(argv: list[str], config: dict[str, Any]) -> list[tuple[Any, ...]]:
    """The options of each stage of a recipe, or of the one stage where there are no `stages`."""
    if "stages" not in config:
        return [_parse_stage(argv, config)]
    shared = {name: value for name, value in config.items() if name != "stages"}
    stages = config["stages"]
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("--config: `stages` has to be a list of stages, each with its own `name: value` lines.")
    return [_parse_stage(argv, {**shared, **stage}) for stage in stages]


def _parse_stage(argv: list[str], config: dict[str, Any]) -> tuple[Any, ...]:
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--stage", default=config.get("stage", "pairs"))
    stage = parser.parse_known_args(argv)[0].stage
    # For an unknown stage, the parser of the pairs stage lists the allowed ones.
    kinds = STAGES.get(str(stage), STAGES["pairs"])
    return parse_options(argv, *kinds, prog="hf-dse distill", help=inspect.getdoc(distill) or "", config=config)
