# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse distill`: one stage, or the stages of a recipe."""

import argparse
import dataclasses
import shlex
from typing import Any

from transformers.utils import logging

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args, read_config, split_config
from hf_dse.common.display import CAPTION, format_table
from hf_dse.pipeline.arguments import STAGES
from hf_dse.student.options import LATER_OPTIONS, ConvertOptions


logger = logging.get_logger(__name__)


def distill(argv: list[str]) -> None:
    """`hf-dse distill`: one stage, or the `stages` of a recipe one after the other."""
    path, argv = split_config(argv)
    config = {} if path is None else read_config(path)
    # All stages are parsed before the first one runs, so that errors are raised early.
    stages = parse_stages(argv, config)
    from hf_dse.common.devices import end_process_group
    from hf_dse.pipeline.results import DistillationResult
    from hf_dse.pipeline.stages import run_stage, run_stages

    if config.get("stages") is None:
        result: DistillationResult | None = run_stage(*stages[0])
    else:
        result = run_stages(stages, config.get("stage_cache_dir"))
    *_, (args, _, _, training_args) = stages
    if result is not None and training_args.process_index == 0:
        if args.stage != "general" and result.metrics:
            print(format_table(result.metrics))
            logger.info(CAPTION)
        print(f"Saved to {result.path}")
        model = f"--model_name_or_path {shlex.quote(str(result.path))}"
        say_next(evaluate=model, search=model, export=f"{model} --format onnx")
    end_process_group()


def parse_stages(argv: list[str], config: dict[str, Any]) -> list[tuple[Any, ...]]:
    """
    Parses the options of all stages of a recipe, or of the one stage where there are no `stages`.

    Args:
        argv (`list[str]`):
            Options of the command line, which take precedence over those of the recipe.
        config (`dict[str, Any]`):
            The recipe.

    Returns:
        `list[tuple]`: the output of [`parse_stage`] for each stage.

    Raises:
        `ValueError`: if an option or its value is invalid.
    """
    shared = dict(config)
    stages, cache_dir = shared.pop("stages", None), shared.pop("stage_cache_dir", None)
    if stages is None and cache_dir is not None:
        raise ValueError("--config: `stage_cache_dir` is only for recipes with `stages`: leave it out.")
    if stages is None:
        return [parse_stage(argv, shared)]
    if not isinstance(stages, list) or not stages or not all(isinstance(stage, dict) for stage in stages):
        raise ValueError("--config: `stages` has to be a list of stages, each with its own `name: value` lines.")
    of_start = {entry.name for entry in dataclasses.fields(ConvertOptions)} - {*LATER_OPTIONS} | {"model_name_or_path"}
    for number, stage in enumerate(stages[1:], start=2):
        for name in sorted(of_start & stage.keys()):
            raise ValueError(
                f"--config: stage {number} names `{name}`, but it goes on with the model of the stage before it: name "
                "it for the first stage, or outside of `stages`."
            )
    return [parse_stage(argv, {**shared, **stage}) for stage in stages]


def parse_stage(argv: list[str], config: dict[str, Any]) -> tuple[Any, ...]:
    """Parses the options of the stage that the command line or the config names."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--stage", default=config.get("stage", "pairs"))
    stage = parser.parse_known_args(argv)[0].stage
    # For an unknown stage, the parser of the pairs stage lists the allowed ones.
    kinds = STAGES.get(str(stage), STAGES["pairs"])
    given = {*config, *(word.lstrip("-").partition("=")[0].replace("-", "_") for word in argv if word[:2] == "--")}
    for name in sorted(given & {"matryoshka_dims", "matryoshka_weights"}):
        if not any(name in [entry.name for entry in dataclasses.fields(kind)] for kind in kinds):
            raise ValueError(
                f"`--{name}` is for the stages whose loss compares sentence vectors, pairs and ranking, and this one "
                f"is {stage}: leave it out, or name it for those stages alone."
            )
    return parse_args(
        argv,
        *kinds,
        prog="hf-dse distill",
        description="Train a student on labels and teacher scores, of pairs or of queries with candidates, on text "
        "and the layers of its source, or on text and the vectors of a larger bi-encoder.",
        config=config,
    )
