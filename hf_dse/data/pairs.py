# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs of GLUE tasks, Hub data sets and local files, with checks of every row."""

import os
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, Features, Value, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.options import (
    EMBEDDED,
    GLUE,
    PAIR_TASKS,
    DataArguments,
    PairTask,
    check_pair_options,
    to_arguments,
)
from hf_dse.data.rankings import is_ranking
from hf_dse.data.report import Report, are_numbers, class_names, report_pairs
from hf_dse.data.sources import find_sources, wanted_splits
from hf_dse.data.tables import (
    Columns,
    Source,
    check_rows,
    column_names,
    find_column,
    is_filled,
    open_table,
    to_number,
    to_table,
)


logger = logging.get_logger(__name__)

TEXTS = ("sentence1", "sentence2")


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
    problem = f"teacher_logits are {{}}, not {size} finite numbers, as in row 0"
    check_rows(rows, lambda row: row and len(row) == size and None not in row, where, problem)
    return rows


def read_pairs(
    parts: Mapping[str, Columns], data_args: DataArguments, require_labels: bool = True, keep_columns: bool = False
) -> tuple[DatasetDict, dict[str, Report]]:
    """Splits as the pairs of [`load_pairs`], each row checked, and what was read of each, which is logged."""
    found = {name: _read_split(part, name, data_args, require_labels, keep_columns) for name, part in parts.items()}
    pairs = DatasetDict({name: part for name, (part, _) in found.items()})
    reports = {name: report for name, (_, report) in found.items()}
    classes = {name: class_names(part) for name, part in pairs.items()}
    first, names = next(((name, names) for name, names in classes.items() if names), ("", None))
    sides = {name: [part[key][:] for key in TEXTS] for name, part in pairs.items()}
    texts = {name: list(map(frozenset, zip(*side, strict=True))) for name, side in sides.items()}
    seen = set(texts.get("train", ()))
    for split, part in pairs.items():
        if classes[split] not in (None, names):
            raise ValueError(
                f"Split {split!r} has the classes {', '.join(classes[split] or ())}, and split {first!r} "
                f"{', '.join(names or ())}: give them one order, with `dataset.align_labels_with_mapping`."
            )
        again = sum(pair in seen for pair in texts[split])
        if split != "train" and again:
            reports[split].warnings.append(f"{again:,} of {len(part):,} pairs are in the train split too.")
        reports[split].log(f"Split {split!r}")
    return pairs, reports


def _read_split(
    columns: Columns, split: str, data_args: DataArguments, require_labels: bool, keep_columns: bool
) -> tuple[Dataset, Report]:
    task = resolve_task(data_args)
    where = f"Split {split!r}"
    limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
    names = column_names(columns)
    # A column named in the arguments must exist; a column of the task may have the default name instead.
    first = [data_args.sentence1_column] if data_args.sentence1_column else [task.sentence1, "sentence1"]
    second = [data_args.sentence2_column] if data_args.sentence2_column else [task.sentence2, "sentence2"]
    wanted = {"sentence1": first, "sentence2": second}
    is_named = split == "train" and data_args.label_column != DataArguments.label_column
    if require_labels or is_named or data_args.label_column in names:
        wanted["label"] = [data_args.label_column]
    advice = "Choose a column with `sentence1_column`, `sentence2_column` or `label_column`."
    sources = {key: find_column(columns, where, options, advice) for key, options in wanted.items()}
    if "teacher_logits" in names:
        sources["teacher_logits"] = "teacher_logits"
    classes = _read_classes(columns, sources.get("label"), task, where)
    # Whole columns: reading a column of a data set for each row takes minutes.
    whole = {key: list(columns[name][:]) for key, name in sources.items()}
    if classes and "label" in whole:
        numbers: dict[Any, int] = {name: number for number, name in enumerate(classes)}
        whole["label"] = [numbers.get(label, label) for label in whole["label"]]
    found = {key: values[:limit] for key, values in whole.items()}
    texts = list(zip(found["sentence1"], found["sentence2"], strict=True))
    kept = [row for row, pair in enumerate(texts) if all(pair) or not task.skip_empty]
    if len(kept) < len(texts):
        logger.warning(f"{where}: left out {len(texts) - len(kept)} pairs with an empty question.")
        found = {key: [values[row] for row in kept] for key, values in found.items()}
    if not kept:
        raise ValueError(f"{where} has no rows.")
    for key in TEXTS:
        check_rows(found[key], is_filled, where, f"{key} is {{}}, not a text: correct or remove the row")
    warnings = []
    if "label" in found and split != "train" and all(to_number(label) == -1 for label in found["label"]):
        logger.warning(f"{where}: every label is -1, as in the GLUE test sets; the split is read without labels.")
        del found["label"]
    elif "label" in found:
        # A cell of a csv file cannot be `None`.
        unknown = (None, "") if split == "train" and not require_labels else ()
        found["label"] = _read_labels(found["label"], task.num_labels, where, unknown)
        warnings = _compare_start(found["label"], whole["label"], task.num_labels)
    if "teacher_logits" in found:
        found["teacher_logits"] = _read_logits(found["teacher_logits"], where)
    label = Value("float64") if task.num_labels == 1 else ClassLabel(names=classes) if classes else Value("int64")
    kinds = {"label": label, "teacher_logits": [Value("float64")]}
    pairs = Dataset.from_dict(found, features=Features({key: kinds.get(key, Value("string")) for key in found}))
    others = [name for name in names if name not in {*sources.values(), *sources}]
    report = report_pairs(pairs, task.num_labels, {key: sources[key] for key in found}, others)
    report.warnings.extend(warnings)
    if not keep_columns or not others:
        return pairs, report
    if not isinstance(columns, Dataset):
        columns = Dataset(to_table({name: columns[name] for name in others}, where))
    # As they are: Python lacks types such as nanoseconds.
    return concatenate_datasets([pairs, columns.select_columns(others).select(kept)], axis=1), report


def _read_classes(columns: Columns, label: str | None, task: PairTask, where: str) -> list[str] | None:
    """The names of the classes: those of the data, or else of the task; `None` for numbers."""
    feature = columns.features[label] if label and isinstance(columns, Dataset) else None
    names = feature.names if isinstance(feature, ClassLabel) else ()
    if task.num_labels == 1 and names:
        logger.warning(f"{where}: the labels are the classes {', '.join(names)}, and are read as scores, 0, 1, ...")
    if task.num_labels == 1 or not names or are_numbers(names):
        return list(task.class_names) or None
    if len(names) != task.num_labels:
        raise ValueError(
            f"{where} has {len(names)} classes, {', '.join(names)}, and {task.num_labels} labels are expected: pass "
            f"`num_labels={len(names)}`."
        )
    return list(names)


def _compare_start(kept: Sequence, whole: Sequence, num_labels: int) -> list[str]:
    """A warning if the first rows have other labels than the rest, as in a sorted file."""
    start = {label for label in kept if label is not None}
    if len(kept) == len(whole) or not start:
        return []
    rest = {number for label in whole if (number := to_number(label)) is not None}
    if num_labels > 1:
        is_part = len(start) < len(rest & set(range(num_labels)))
        first, last = (", ".join(f"{label:g}" for label in sorted(labels)) for labels in (start, rest))
    else:
        is_part = max(start) - min(start) < (max(rest) - min(rest)) / 2
        first, last = (f"{min(labels):g} to {max(labels):g}" for labels in (start, rest))
    return [f"the first {len(kept):,} rows have the labels {first}, and all rows {last}: shuffle them."] * is_part


def to_pairs(data: Any, data_args: DataArguments, split: str, **options: Any) -> Dataset:
    """Sentence pairs, or a split of those that a name stands for, checked. `options` are of [`load_pairs`]."""
    if not isinstance(data, Dataset):
        return load_pairs(data_args, [split], **options)[split]
    if is_ranking(data.column_names):
        raise ValueError(
            f"The data have the columns {', '.join(data.column_names)}, and sentence pairs need sentence1 and "
            "sentence2: make `Rankings` of queries with documents (`make_rankings`)."
        )
    return read_pairs({split: data}, data_args, **options)[0][split]


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
        integer, with the names of the classes if there are any; `None` where it is unknown, missing if the labels are
        hidden) and, if the source has them, `teacher_logits` (a list of floats).

    Example:

    ```python
    >>> from hf_dse import load_pairs

    >>> load_pairs("embedded")["train"].column_names
    ['sentence1', 'sentence2', 'label', 'teacher_logits']
    ```
    """
    data_args = to_arguments(data_args)
    return read_pairs(find_pairs(data_args, splits), data_args, require_labels, keep_columns)[0]


def find_pairs(data_args: DataArguments, splits: Sequence[str] | None = None) -> dict[str, Columns]:
    """The tables of the wanted splits."""
    found: dict[str, Source] = find_sources(data_args)
    if not found and data_args.dataset_name is None:
        if data_args.task_name is None:
            raise ValueError("No data: pass `dataset_name`, `train_file`, `validation_file` or `test_file`.")
        name = resolve_task(data_args).name
        found = find_sources(replace(data_args, dataset_name=GLUE, dataset_config_name=name))
    # MNLI calls its validation and test splits "matched" and "mismatched": the first is the usual one.
    found = {split.removesuffix("_matched"): source for split, source in found.items()}
    wanted = wanted_splits(found, splits, data_args.dataset_name or "The data")
    return {name: open_table(found[name]) for name in wanted}
