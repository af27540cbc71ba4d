# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill`: distillation in one call."""

import os
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.options import complete, fill
from hf_dse.data.rankings import Rankings
from hf_dse.stages.options import STAGES
from hf_dse.stages.run import run_stage
from hf_dse.stages.shared import DistillationResult


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder


def distill(
    model: str | os.PathLike | PreTrainedModel,
    teacher: "str | os.PathLike | CrossEncoder | None" = None,
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
        teacher (`str`, `os.PathLike` or `CrossEncoder`, *optional*):
            The cross-encoder, by its name or loaded. With `stage="general"` the name of the encoder to learn from, by
            default the source of the student.
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
            "model or a name: merge an adapter first (`model.merge_and_unload()`), or pass it to `DseTrainer`."
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
    if stage == "general" and not isinstance(teacher, str | None):
        raise TypeError("The general stage converts its teacher itself: pass the folder or Hub id of an encoder.")
    values: dict[str, Any] = {
        "stage": stage,
        "model_name_or_path": _name_of(model),
        "teacher_name_or_path": _name_of(teacher),
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
        teacher=None if isinstance(teacher, str) else teacher,
        dataset=None if isinstance(dataset, str) else dataset,
    )


def _as_name(value: Any) -> Any:
    """Returns a path as a string, also in a list, and anything else unchanged."""
    if isinstance(value, list | tuple):
        return [_as_name(part) for part in value]
    return os.fspath(value) if isinstance(value, os.PathLike) else value


def _name_of(model: Any) -> str | None:
    """Returns the name of a model; for a loaded model, the name that it was loaded from."""
    return model if isinstance(model, str | None) else getattr(model.config, "name_or_path", None)
