# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs of GLUE tasks, Hub data sets and local files, with checks of every row."""

import os
from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from datasets import Dataset, DatasetDict, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.options import EMBEDDED, GLUE, PAIR_TASKS, DataArguments, PairTask, to_arguments
from hf_dse.data.sources import find_sources, wanted_splits
from hf_dse.data.tables import (
    Columns,
    check_rows,
    column_names,
    find_column,
    is_filled,
    open_table,
    to_number,
    to_table,
)


logger = logging.get_logger(__name__)


def check_pair_options(data_args: DataArguments) -> None:
    """Raises a `ValueError` for an option of rankings."""
    for name in ("chunk_size", "relevance_threshold"):
        if (value := getattr(data_args, name)) is not None:
            raise ValueError(f"{name}={value} is for the search in a corpus, and the data are sentence pairs.")


def resolve_task(data_args: DataArguments) -> PairTask:
    """Returns a known task, or one of `num_labels`, with the symmetry of the arguments."""
    check_pair_options(data_args)
    name, num_labels = data_args.task_name, data_args.num_labels
    if name is None and num_labels is None and data_args.dataset_name == EMBEDDED:
        name = "stsb"
    known = ", ".join(PAIR_TASKS)
    if name in PAIR_TASKS:
        task = PAIR_TASKS[name]
        if num_labels not in (None, task.num_labels):
            raise ValueError(f"num_labels={num_labels} contradicts task {name!r}, which has {task.num_labels}.")
    elif name is not None:
        raise ValueError(
            f"Unknown task {name!r}: the known tasks are {known}. For other data omit `task_name` and pass "
            "`num_labels` together with `dataset_name` or `train_file`."
        )
    elif num_labels is not None:
        metric = {1: "pearson", 2: "f1"}.get(num_labels, "accuracy")
        task = PairTask("pairs", num_labels=num_labels, metric_for_best_model=metric)
    else:
        raise ValueError(
            "The number of labels is unknown: pass `num_labels` (1 for a regression, 2 or more for classes) or "
            f"`task_name` ({known}). Queries with documents, which need neither, have columns such as `query` and "
            "`positive`; these data are read as pairs of sentences."
        )
    return task if data_args.symmetric is None else replace(task, symmetric=data_args.symmetric)


def _read_labels(values: Sequence, num_labels: int, where: str, unknown: Sequence) -> list:
    """Labels as numbers, and `None` for what stands for an unknown one."""
    if num_labels == 1:
        problem = "the label {} is not a finite number"
        check_rows(values, lambda value: value in unknown or to_number(value) is not None, where, problem)
        return [None if value in unknown else float(value) for value in values]
    problem = f"the label {{}} is not a class from 0 to {num_labels - 1}: correct it, or `num_labels`"
    check_rows(values, lambda value: value in unknown or to_number(value) in range(num_labels), where, problem)
    return [None if value in unknown else int(float(value)) for value in values]


def _read_logits(values: Sequence, where: str) -> list[list[float | None]]:
    rows = [[to_number(number) for number in (row if isinstance(row, list) else [row])] for row in values]
    size = len(rows[0])
    problem = f"teacher_logits are {{}}, not {size} finite numbers, as in row 0 (lists: in jsonl or parquet)"
    check_rows(rows, lambda row: row and len(row) == size and None not in row, where, problem)
    return rows


def check_pairs(
    columns: Columns, split: str, data_args: DataArguments, require_labels: bool = True, keep_columns: bool = False
) -> Dataset:
    """Returns the columns of a split as the pairs of [`load_pairs`], each row checked."""
    task = resolve_task(data_args)
    where = f"Split {split!r}"
    limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
    names = column_names(columns)
    # A column named in the arguments must exist; a column of the task may have the default name instead.
    first = [data_args.sentence1_column] if data_args.sentence1_column else [task.sentence1, "sentence1"]
    second = [data_args.sentence2_column] if data_args.sentence2_column else [task.sentence2, "sentence2"]
    wanted = {"sentence1": first, "sentence2": second}
    if require_labels or data_args.label_column in names:
        wanted["label"] = [data_args.label_column]
    advice = "Choose a column with `sentence1_column`, `sentence2_column` or `label_column`."
    sources = {key: find_column(columns, where, options, advice) for key, options in wanted.items()}
    if "teacher_logits" in names:
        sources["teacher_logits"] = "teacher_logits"
    # Whole columns: reading a column of a data set for each row takes minutes.
    found = {key: list(columns[name][:limit]) for key, name in sources.items()}
    texts = list(zip(found["sentence1"], found["sentence2"], strict=True))
    kept = [row for row, pair in enumerate(texts) if all(pair) or not task.skip_empty]
    if len(kept) < len(texts):
        logger.warning(f"{where}: left out {len(texts) - len(kept)} pairs with an empty question.")
        found = {key: [values[row] for row in kept] for key, values in found.items()}
    if not kept:
        raise ValueError(f"{where} has no rows.")
    for key in ("sentence1", "sentence2"):
        check_rows(found[key], is_filled, where, f"{key} is {{}}, not a text: correct or remove the row")
    if "label" in found and split != "train" and all(to_number(label) == -1 for label in found["label"]):
        logger.warning(f"{where}: every label is -1, as in the GLUE test sets; the split is read without labels.")
        del found["label"]
    elif "label" in found:
        # A cell of a csv file cannot be `None`.
        unknown = (None, "") if split == "train" and not require_labels else ()
        found["label"] = _read_labels(found["label"], task.num_labels, where, unknown)
    if "teacher_logits" in found:
        found["teacher_logits"] = _read_logits(found["teacher_logits"], where)
    pairs = Dataset.from_dict(found)
    others = [name for name in names if name not in {*sources.values(), *sources}]
    if not keep_columns or not others:
        return pairs
    if not isinstance(columns, Dataset):
        columns = Dataset(to_table({name: columns[name] for name in others}, where))
    # As they are: Python lacks types such as nanoseconds.
    return concatenate_datasets([pairs, columns.select_columns(others).select(kept)], axis=1)


def to_pairs(data: Any, data_args: DataArguments, split: str, **options: Any) -> Dataset:
    """Sentence pairs themselves, or a split of those that a name stands for. `options` are of [`load_pairs`]."""
    if not isinstance(data, Dataset):
        return load_pairs(data_args, [split], **options)[split]
    if not {"sentence1", "sentence2"}.issubset(data.column_names):
        raise ValueError(
            f"The data have the columns {', '.join(data.column_names)}, and sentence pairs need sentence1 and "
            "sentence2: rename them, or make `Rankings` of queries with documents (`make_rankings`)."
        )
    return data


def load_pairs(
    data_args: DataArguments | str | os.PathLike,
    splits: Sequence[str] | None = None,
    *,
    require_labels: bool = True,
    keep_columns: bool = False,
) -> DatasetDict:
    """
    Reads sentence pairs and checks every row.

    Args:
        data_args (`DataArguments` or `str`):
            The source of the pairs, or its name if that is `"embedded"`.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to train, validation and test.
        require_labels (`bool`, *optional*, defaults to `True`):
            Whether a missing label is an error. Otherwise splits may have no label column, and training pairs may
            have labels that are `None`, or empty cells of csv files.
        keep_columns (`bool`, *optional*, defaults to `False`):
            Whether to keep other columns, such as ids, as they are.

    Returns:
        `DatasetDict`: per split the columns `sentence1`, `sentence2`, `label` (a float for a regression, otherwise an
        integer; `None` where it is unknown, missing if the labels are hidden) and, if the source has them,
        `teacher_logits` (a list of floats).

    Example:

    ```python
    >>> from hf_dse import load_pairs

    >>> load_pairs("embedded")["train"].column_names
    ['sentence1', 'sentence2', 'label', 'teacher_logits']
    ```
    """
    data_args = to_arguments(data_args)
    task, found = resolve_task(data_args), find_sources(data_args)
    if not found and data_args.dataset_name is None:
        if data_args.task_name is None:
            raise ValueError("No data: pass `dataset_name`, `train_file`, `validation_file` or `test_file`.")
        found = find_sources(replace(data_args, dataset_name=GLUE, dataset_config_name=task.name))
    # MNLI calls its validation and test splits "matched" and "mismatched": the first is the usual one.
    found = {split.removesuffix("_matched"): source for split, source in found.items()}
    wanted = wanted_splits(found, splits, data_args.dataset_name or "The data")
    return DatasetDict(
        {name: check_pairs(open_table(found[name]), name, data_args, require_labels, keep_columns) for name in wanted}
    )
