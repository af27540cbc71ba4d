# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill`: distillation in one call."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.options import complete, did_you_mean
from hf_dse.data.rankings import Rankings
from hf_dse.pipeline.arguments import STAGES
from hf_dse.pipeline.inputs import Given
from hf_dse.pipeline.results import DistillationResult
from hf_dse.pipeline.stages import RUN
from hf_dse.training.arguments import AlignTrainingArguments, DseTrainingArguments, RankingTrainingArguments


def distill(
    model: str | os.PathLike | PreTrainedModel,
    teacher: str | os.PathLike | PreTrainedModel | None = None,
    dataset: str | os.PathLike | Dataset | Rankings | Mapping[str, Dataset | Rankings] | None = None,
    output_dir: str | os.PathLike = "student",
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    teacher_processing_class: PreTrainedTokenizerBase | None = None,
    args: DseTrainingArguments | RankingTrainingArguments | AlignTrainingArguments | None = None,
    **options: Any,
) -> DistillationResult:
    """
    Distils a teacher into a student in one call, like `hf-dse distill`: scores the pairs with the teacher, converts
    an encoder to a student with linear attention, trains it on labels and scores, evaluates it, and writes a complete
    model folder. With `stage="ranking"` the data are queries and a corpus: it mines hard negatives, and the student
    learns to search. With `stage="align"` the data are texts, and the student learns the vectors of a larger
    bi-encoder.

    Args:
        model (`str`, `os.PathLike` or `PreTrainedModel`):
            The student: a DSE model, or an encoder that is converted first. A Hub id, a folder or a loaded DSE model.
        teacher (`str`, `os.PathLike` or `PreTrainedModel`, *optional*):
            The cross-encoder: a Hub id, a folder or a loaded model; with `stage="align"` the bi-encoder, a Hub id or a
            folder. Not needed if the pairs have the column `teacher_logits`, or with `distillation_alpha=0`.
        dataset (`str`, `os.PathLike`, `datasets.Dataset`, [`Rankings`] or a `Mapping` of these, *optional*):
            The pairs: a Hub id, a folder of files (train, validation, test), `"embedded"` for the small one of this
            package, or loaded datasets by split; a single one is the train split. Alternatively, pass files with the
            options `train_file`, `validation_file` and `test_file`. For rankings: what [`load_rankings`] reads or
            returns; with loaded ones, the stage is known. With `stage="align"`: a file of texts, or loaded ones with
            the column `text`.
        output_dir (`str` or `os.PathLike`, *optional*, defaults to `"student"`):
            Folder for checkpoints, `results.json` and the finished model (in the subfolder `model`).
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the student; required with a loaded model.
        teacher_processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the teacher; required with a loaded teacher.
        args ([`DseTrainingArguments`], [`RankingTrainingArguments`] or [`AlignTrainingArguments`], *optional*):
            Training arguments, instead of passing them as options; their `output_dir` is ignored.
        options:
            Any option of `hf-dse distill` by its name, such as `stage="ranking"`, `linformer_length=128`,
            `task_name="stsb"`, `num_train_epochs=2`, `max_length=256` or `overwrite_output_dir=True`.

    Returns:
        [`DistillationResult`]: the student (`model`, `processing_class`), its `metrics` by split, and the `path` of
        the model folder.

    Raises:
        `FileExistsError`: if the output folder is not empty; pass `overwrite_output_dir=True` to use it.
        `TypeError`: if a model is of an unknown kind or has no tokenizer, or an option is passed twice.
        `ValueError`: if an option is unknown, or data, models or values are invalid or do not match.

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
    model, teacher, dataset = _as_name(model), _as_name(teacher), _as_name(dataset)
    options = {name: _as_name(value) for name, value in options.items()}
    for name, value, tokenizer in (
        ("model", model, processing_class),
        ("teacher", teacher, teacher_processing_class),
    ):
        if not isinstance(value, str | PreTrainedModel | None):
            raise TypeError(
                f"`{name}` is a `{type(value).__name__}`: pass a Hub id, a folder, or a model of transformers with "
                "its tokenizer."
            )
        if isinstance(value, PreTrainedModel) and tokenizer is None:
            prefix = "" if name == "model" else "teacher_"
            raise TypeError(f"A loaded `{name}` needs its tokenizer: pass `{prefix}processing_class`.")
    own = {
        "model_name_or_path": _name_of(model),
        "teacher_name_or_path": _name_of(teacher),
        "dataset_name": dataset if isinstance(dataset, str) else None,
        "output_dir": os.fspath(output_dir),
    }
    twice = sorted(own.keys() & options.keys())
    if twice:
        raise TypeError(f"Passed twice: {', '.join(twice)}. Use `model`, `teacher`, `dataset` and `output_dir`.")
    parts = dataset.values() if isinstance(dataset, Mapping) else [dataset]
    if any(isinstance(part, Rankings) for part in parts):
        options.setdefault("stage", "ranking")
    stage = options.get("stage", "pairs")
    if stage not in ("pairs", "ranking", "align"):
        raise ValueError(
            f"`stage` is {stage!r}: `distill` runs `pairs`, `ranking` and `align`; for the general stage call "
            "`train_general`."
        )
    if stage == "align":
        own["train_file"] = own.pop("dataset_name") or options.pop("train_file", None)
        if isinstance(teacher, PreTrainedModel):
            raise TypeError("The align stage loads its teacher itself: pass its folder or Hub id.")
    kinds = tuple(map(complete, STAGES[stage]))
    student_class, convert_class, data_class, training_class = kinds
    known = {name: kind for kind in kinds for name in (entry.name for entry in fields(kind) if entry.init)}
    for name in options:
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"There is no option `{name}`{hint}; `hf-dse distill --help all` lists them.")
    options = _as_lists(kinds, options)
    values = {kind: {name: value for name, value in options.items() if known[name] is kind} for kind in kinds}
    for name, value in own.items():
        values[known[name]][name] = value
    if args is None:
        training_args = training_class(**values[training_class])
    elif not isinstance(args, training_class):
        raise TypeError(
            f"`args` is a `{type(args).__name__}`, and the stage {stage!r} needs `{training_class.__name__}`."
        )
    else:
        given_twice = sorted(values[training_class].keys() - {"output_dir"})
        if given_twice:
            raise TypeError(f"{', '.join(given_twice)}: set them in `args`, or leave `args` out.")
        training_args = replace(args, output_dir=os.fspath(output_dir))
    return RUN[stage](
        student_class(**values[student_class]),
        convert_class(**values[convert_class]),
        data_class(**values[data_class]),
        training_args,
        given=Given(
            model=model if isinstance(model, PreTrainedModel) else None,
            processing_class=processing_class,
            teacher=teacher if isinstance(teacher, PreTrainedModel) else None,
            teacher_processing_class=teacher_processing_class,
            dataset=None if isinstance(dataset, str | os.PathLike) else dataset,
        ),
    )


def _as_name(value: Any) -> Any:
    """Returns a path as a string, also in a list, and anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_as_name(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _name_of(model: Any) -> Any:
    """Returns the name of a model; for a loaded model, the name that it was loaded from."""
    return model if isinstance(model, str | None) else model.config.name_or_path or None


def _as_lists(kinds: tuple[type, ...], options: dict[str, Any]) -> dict[str, Any]:
    """Wraps single values of list options in a list, as on the command line: `linformer_length=64`."""
    several = {entry.name for kind in kinds for entry in fields(kind) if "list[" in str(entry.type)}
    return {
        name: [value] if name in several and value is not None and not isinstance(value, list | tuple) else value
        for name, value in options.items()
    }
