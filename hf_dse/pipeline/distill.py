# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill`: distillation in one call."""

import os
from collections.abc import Mapping
from dataclasses import fields, replace
from typing import TYPE_CHECKING, Any

import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.options import complete, did_you_mean
from hf_dse.data.rankings import Rankings
from hf_dse.pipeline.arguments import STAGES
from hf_dse.pipeline.inputs import Given
from hf_dse.pipeline.results import DistillationResult
from hf_dse.pipeline.stages import run_stage
from hf_dse.training.arguments import StudentTrainingArguments


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer


def distill(
    model: str | os.PathLike | PreTrainedModel,
    teacher: "str | os.PathLike | CrossEncoder | SentenceTransformer | None" = None,
    dataset: str | os.PathLike | Dataset | Rankings | Mapping[str, Dataset | Rankings] | None = None,
    output_dir: str | os.PathLike = "student",
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    args: StudentTrainingArguments | None = None,
    stage: str | None = None,
    **options: Any,
) -> DistillationResult:
    """
    Distils a teacher into a student in one call, like `hf-dse distill`: scores the pairs with the teacher, converts
    an encoder to a student with linear attention, trains it on labels and scores, evaluates it, and writes a complete
    model folder. With `stage="ranking"` the data are queries and a corpus: the call mines hard negatives, and the
    student learns to search. With `stage="general"` the data are unlabelled texts: the student learns the layers of
    its source.

    Args:
        model (`str`, `os.PathLike` or `PreTrainedModel`):
            The student: a DSE model, or an encoder that is converted first. A Hub id, a folder or a loaded DSE model.
        teacher (`str`, `os.PathLike`, `CrossEncoder` or `SentenceTransformer`, *optional*):
            The cross-encoder: a Hub id, a folder or a loaded one. The scores of a loaded `SentenceTransformer` are its
            cosines. Not needed if the data have the column `teacher_logits`, or with `distillation_alpha=0`. With
            `stage="general"` the name of the encoder to learn from, which is by default the source of the student.
        dataset (`str`, `os.PathLike`, `datasets.Dataset`, [`Rankings`] or a `Mapping` of these, *optional*):
            The pairs: a Hub id, a folder of files (train, validation, test), `"embedded"` for the small one of this
            package, or loaded datasets by split; a single one is the train split. Alternatively, pass files with the
            options `train_file`, `validation_file` and `test_file`. For rankings: what [`load_rankings`] reads or
            returns. With `stage="general"`: a file of texts, or loaded ones with the column `text`.
        output_dir (`str` or `os.PathLike`, *optional*, defaults to `"student"`):
            Folder for checkpoints, `results.json` and the finished model (in the subfolder `model`).
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the student; required with a loaded model.
        args ([`DseTrainingArguments`], [`RankingTrainingArguments`] or [`GeneralTrainingArguments`], *optional*):
            Training arguments, instead of passing them as options; their `output_dir` is ignored.
        stage (`str`, *optional*):
            `"pairs"`, `"ranking"` or `"general"`. Defaults to `"ranking"` for loaded rankings, else to `"pairs"`.
        options:
            Any option of `hf-dse distill` by its name, such as `linformer_length=128`, `task_name="stsb"`,
            `num_train_epochs=2`, `max_length=256` or `overwrite_output_dir=True`.

    Returns:
        `DistillationResult`: the student (`model`, `processing_class`), its `metrics` by split, and the `path` of
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
    model, teacher, dataset = map(_as_name, (model, teacher, dataset))
    if not isinstance(model, str | PreTrainedModel):
        raise TypeError(
            f"`model` is a `{type(model).__name__}`: pass a Hub id, a folder, or a DSE model with its tokenizer."
        )
    if isinstance(model, PreTrainedModel) and processing_class is None:
        raise TypeError("A loaded `model` needs its tokenizer: pass `processing_class`.")
    parts = dataset.values() if isinstance(dataset, Mapping) else [dataset]
    if stage is None:
        stage = "ranking" if any(isinstance(part, Rankings) for part in parts) else "pairs"
    if stage not in STAGES:
        raise ValueError(f"`stage` is {stage!r}: it has to be one of {', '.join(STAGES)}.")
    if not isinstance(teacher, str | torch.nn.Module | None):
        raise TypeError(f"`teacher` is a `{type(teacher).__name__}`: pass a Hub id, a folder, or a loaded model.")
    if stage == "general" and not isinstance(teacher, str | None):
        raise TypeError("The general stage converts its teacher itself: pass the folder or Hub id of an encoder.")
    own = {
        "model_name_or_path": _name_of(model),
        "teacher_name_or_path": _name_of(teacher),
        "train_file" if stage == "general" else "dataset_name": dataset if isinstance(dataset, str) else None,
        "output_dir": os.fspath(output_dir),
    }
    if dataset is None:
        # The texts of the general stage are in an option.
        own.pop("train_file", None)
    twice = sorted(own.keys() & options.keys())
    if twice:
        raise TypeError(f"Passed twice: {', '.join(twice)}. Use `model`, `teacher`, `dataset` and `output_dir`.")
    kinds = tuple(map(complete, STAGES[stage]))
    student_class, convert_class, data_class, training_class = kinds
    known = {entry.name: (kind, entry) for kind in kinds for entry in fields(kind) if entry.init}
    values: dict[type, dict[str, Any]] = {kind: {} for kind in kinds}
    for name, value in {**options, **own, "stage": stage}.items():
        if name not in known:
            hint = did_you_mean(name, known)
            raise ValueError(f"There is no option `{name}`{hint}; `hf-dse distill --help all` lists them.")
        kind, entry = known[name]
        value = _as_name(value)
        # As on the command line, a single value is a list of one: `linformer_length=64`.
        is_single = "list[" in str(entry.type) and value is not None and not isinstance(value, list)
        values[kind][name] = [value] if is_single else value
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
    return run_stage(
        student_class(**values[student_class]),
        convert_class(**values[convert_class]),
        data_class(**values[data_class]),
        training_args,
        given=Given(
            model=model if isinstance(model, PreTrainedModel) else None,
            processing_class=processing_class,
            teacher=None if isinstance(teacher, str) else teacher,
            dataset=None if isinstance(dataset, str) else dataset,
        ),
    )


def _as_name(value: Any) -> Any:
    """Returns a path as a string, also in a list, and anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_as_name(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _name_of(model: Any) -> str | None:
    """Returns the name of a model; for a loaded model, the name that it was loaded from."""
    return model if isinstance(model, str | None) else getattr(model.config, "name_or_path", None)
