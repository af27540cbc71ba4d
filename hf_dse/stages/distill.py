# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill`: distillation in one call, of one stage, and the stages of a recipe one after the other."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.options import complete, fill
from hf_dse.convert.options import LATER_OPTIONS, ConvertOptions
from hf_dse.data.rankings import Rankings
from hf_dse.stages.general_stage import run_general
from hf_dse.stages.options import STAGES
from hf_dse.stages.pairs_stage import run_pairs
from hf_dse.stages.ranking_stage import run_ranking
from hf_dse.stages.shared import MODEL_FOLDER, DistillationResult, Stage
from hf_dse.training.base import (
    RESULTS_FILE,
    check_output_dir,
    check_plan,
    complete_checkpoints,
    lock_output_dir,
    plan_of,
)


if TYPE_CHECKING:
    from hf_dse.retrieval.rerankers import Teacher

logger = logging.get_logger(__name__)

RUN = {"general": run_general, "pairs": run_pairs, "ranking": run_ranking}


def distill(
    model: str | os.PathLike | PreTrainedModel,
    teacher: "Teacher | Sequence[Teacher] | None" = None,
    dataset: str | os.PathLike | Dataset | Rankings | Mapping[str, Dataset | Rankings] | None = None,
    output_dir: str | os.PathLike = "student",
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    stage: str | None = None,
    **options: Any,
) -> DistillationResult:
    """
    Distils a teacher into a student in one call, like `hf-dse distill`: scores the data with the teacher, converts an
    encoder to a student with linear attention, trains and evaluates it, and writes a complete model folder.

    Args:
        model (`str`, `os.PathLike` or `PreTrainedModel`):
            A DSE model, or an encoder that is converted first: a Hub id, a folder or a loaded DSE model.
        teacher (`str`, `os.PathLike`, `CrossEncoder` or a list of these, *optional*):
            The cross-encoder, by its name or loaded; for rankings also several teachers, such as a reranker and an
            encoder, whose scores [`blend`] puts on one scale. With `stage="general"` the name of the encoder to learn
            from, by default the source of the student.
        dataset (`str`, `os.PathLike`, `datasets.Dataset`, [`Rankings`] or a `Mapping` of these, *optional*):
            What [`load_pairs`] or [`load_rankings`] reads or returns; a single dataset is the train split. With
            `stage="general"` a file of texts, or loaded ones with the column `text`.
        output_dir (`str` or `os.PathLike`, *optional*, defaults to `"student"`):
            Folder for checkpoints, `results.json` and the finished model (in the subfolder `model`).
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the student; required with a loaded model.
        stage (`str`, *optional*):
            `"pairs"`, `"ranking"` or `"general"`. Defaults to `"ranking"` for loaded rankings, else to `"pairs"`.
        options:
            Any option of `hf-dse distill` by its name, such as `linformer_length=128` or `num_train_epochs=2`.

    Returns:
        `DistillationResult`: the student (`model`, `processing_class`), its `metrics` by split, and the `path` of
        the model folder.

    Example:

    ```python
    >>> from hf_dse import distill

    >>> # A few of the embedded pairs, which have the scores of a teacher; others need `teacher`.
    >>> result = distill(
    ...     "sentence-transformers/all-MiniLM-L6-v2",
    ...     dataset="embedded",
    ...     output_dir="student",
    ...     linformer_length=64,
    ...     num_train_epochs=1,
    ...     max_train_samples=16,
    ...     max_eval_samples=16,
    ... )
    >>> sorted(result.metrics), result.path
    (['test', 'validation'], PosixPath('student/model'))
    ```
    """
    model, teacher, dataset = map(_as_name, (model, teacher, dataset))
    is_adapted = getattr(model, "_hf_peft_config_loaded", False)
    if is_adapted or not isinstance(model, str | PreTrainedModel):
        raise TypeError(
            f"`model` is a {type(model).__name__}{' with an adapter' if is_adapted else ''}, and has to be a DSE "
            "model or a name: pass the name or folder of a `SentenceTransformer`, merge an adapter first "
            "(`model.merge_and_unload()`), or pass it to `DseTrainer`."
        )
    if isinstance(dataset, list | tuple):
        raise TypeError("`dataset` is a list: pass `datasets.Dataset.from_list(rows)`.")
    if isinstance(model, PreTrainedModel) and processing_class is None:
        raise TypeError("A loaded `model` needs its tokenizer: pass `processing_class`.")
    if not isinstance(dataset, str | Mapping | None):
        dataset = {"train": dataset}
    if stage is None:
        parts = dataset.values() if isinstance(dataset, Mapping) else ()
        stage = "ranking" if any(isinstance(part, Rankings) for part in parts) else "pairs"
    if stage not in STAGES:
        raise ValueError(f"stage={stage!r}: it has to be one of {', '.join(STAGES)}.")
    if stage == "pairs" and isinstance(teacher, list):
        raise TypeError("Several teachers are for rankings: add their scores to pairs with `score(teachers, pairs)`.")
    if stage == "general" and not isinstance(teacher, str | None):
        raise TypeError("The general stage converts its teacher itself: pass the folder or Hub id of an encoder.")
    values: dict[str, Any] = {
        "stage": stage,
        "model_name_or_path": _name_of(model),
        "teacher_name_or_path": list(map(_name_of, teacher)) if isinstance(teacher, list) else _name_of(teacher),
        "output_dir": os.fspath(output_dir),
    }
    if isinstance(dataset, str):
        values["train_file" if stage == "general" else "dataset_name"] = dataset
    elif dataset is not None and stage == "general":
        values["train_file"] = ""
    # An option that is passed twice is an error.
    values = dict(**values, **options)
    kinds = [complete(kind) for kind in STAGES[stage]]
    return run_stage(
        *fill(kinds, {name: _as_name(value) for name, value in values.items()}),
        model=model if isinstance(model, PreTrainedModel) else None,
        processing_class=processing_class,
        teacher=None if isinstance(teacher, str | None) else teacher,
        dataset=None if isinstance(dataset, str) else dataset,
    )


def _as_name(value: Any) -> Any:
    """Returns a path as a string, also in a list, and anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_as_name(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _name_of(model: Any) -> str | None:
    """Returns the name of a model; for a loaded model, the name that it was loaded from."""
    model = getattr(model, "transformers_model", model)
    return model if isinstance(model, str | None) else getattr(model.config, "name_or_path", None)


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
    stage.check_options()
    stage.base_model = stage.base_model or args.model_name_or_path
    with lock_output_dir(training_args):
        training_args.resume_from_checkpoint = check_output_dir(
            str(training_args.output_dir), training_args.resume_from_checkpoint, args.overwrite_output_dir
        )
        if training_args.resume_from_checkpoint is not None:
            check_plan(training_args.resume_from_checkpoint, plan_of(training_args))
        return RUN[args.stage](stage)
