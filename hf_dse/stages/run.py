# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The stages of a recipe, one after the other."""

from dataclasses import asdict
from pathlib import Path
from typing import Any

from transformers.utils import logging

from hf_dse.convert.options import LATER_OPTIONS, ConvertOptions
from hf_dse.stages.general_stage import run_general
from hf_dse.stages.pairs_stage import run_pairs
from hf_dse.stages.ranking_stage import run_ranking
from hf_dse.stages.shared import MODEL_FOLDER, DistillationResult, Stage
from hf_dse.training.base import RESULTS_FILE, check_output_dir, complete_checkpoints, lock_output_dir


logger = logging.get_logger(__name__)

RUN = {"general": run_general, "pairs": run_pairs, "ranking": run_ranking}


def run_stages(stages: list[tuple[Any, ...]]) -> DistillationResult | None:
    """
    Runs stages one after the other, each in its own subfolder, from the model of the one before. Finished stages are
    skipped when resuming. Returns the result of the last stage, or `None` if all were finished.
    """
    _check_later_stages(stages)
    (first_args, *_, first_training), *_ = stages
    result, student = None, None
    for *_, training_args in stages:
        resume = str(training_args.resume_from_checkpoint or "false").lower()
        if resume not in ("false", "true", "last"):
            raise ValueError(f"resume_from_checkpoint={resume}: each stage of a recipe goes on from its `last` one.")
        training_args.resume_from_checkpoint = None if resume == "false" else "last"
    with lock_output_dir(first_training):
        folders = [Path(args.output_dir) / f"{n}-{own.stage}" for n, (own, *_, args) in enumerate(stages, start=1)]
        if not first_training.resume_from_checkpoint:
            # All of them now: results of an earlier recipe must not look like those of this one if it is resumed.
            for folder, (args, *_) in zip(folders, stages, strict=True):
                check_output_dir(str(folder), None, args.overwrite_output_dir)
        for number, (folder, stage) in enumerate(zip(folders, stages, strict=True), start=1):
            args, convert_args, data_args, training_args = stage
            if student is not None:
                # The model of the previous stage takes no other options.
                taken = {name: getattr(convert_args, name) for name in LATER_OPTIONS}
                args.model_name_or_path, convert_args = str(student), ConvertOptions(**taken)
            training_args.output_dir, student = str(folder), folder / MODEL_FOLDER
            title = f"Stage {number} of {len(stages)} ({args.stage})"
            if training_args.resume_from_checkpoint:
                if (folder / RESULTS_FILE).is_file():
                    logger.info(f"{title} is already finished: {student}")
                    continue
                is_begun = bool(complete_checkpoints(folder))
                training_args.resume_from_checkpoint = "last" if is_begun else None
                args.overwrite_output_dir = not is_begun
            logger.info(f"{title}: {args.model_name_or_path} to {student}")
            result = run_stage(args, convert_args, data_args, training_args, base_model=first_args.model_name_or_path)
    return result


def _check_later_stages(stages: list[tuple[Any, ...]]) -> None:
    """Raises a `ValueError` for an option of a later stage that its model, which is there, cannot follow."""
    defaults, first = asdict(ConvertOptions()), asdict(stages[0][1])
    for number, (args, convert_args, *_) in enumerate(stages[1:], start=2):
        allowed = {name: (value, first[name]) for name, value in defaults.items() if name not in LATER_OPTIONS}
        wrong = [name for name, values in allowed.items() if getattr(convert_args, name) not in values]
        if args.model_name_or_path != stages[0][0].model_name_or_path:
            wrong.append("model_name_or_path")
        if wrong:
            raise ValueError(f"Stage {number} names `{wrong[0]}`, but it goes on with the model of the stage before.")


def run_stage(*options: Any, **given: Any) -> DistillationResult:
    """Runs one stage with options of the classes that [`STAGES`] names for it, and what is `given` instead."""
    stage = Stage(*options, **given)
    args, training_args = stage.args, stage.training_args
    stage.base_model = stage.base_model or args.model_name_or_path
    with lock_output_dir(training_args):
        training_args.resume_from_checkpoint = check_output_dir(
            str(training_args.output_dir), training_args.resume_from_checkpoint, args.overwrite_output_dir
        )
        return RUN[args.stage](stage)
