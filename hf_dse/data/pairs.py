# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs of GLUE tasks, Hub data sets and local files, with checks of every row."""

import json
import os
from collections.abc import Mapping, Sequence
from dataclasses import replace

from datasets import ClassLabel, Dataset, DatasetDict, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.arguments import DataArguments, to_arguments
from hf_dse.data.sources import Source, find_sources, read_source, wanted_splits
from hf_dse.data.tables import Columns, check_rows, column_names, find_column, is_filled, to_number
from hf_dse.data.tasks import EMBEDDED, GLUE, PAIR_TASKS, PairTask


logger = logging.get_logger(__name__)


def resolve_task(data_args: DataArguments, dataset: Dataset | Mapping[str, Dataset] | None = None) -> PairTask:
    """
    Returns a known task with the columns and the symmetry of the arguments. Without `task_name` and `num_labels`, the
    labels of `dataset`, by default of the data that the arguments name, tell the number of labels if they can.
    """
    name = data_args.task_name
    if name is None and data_args.dataset_name == EMBEDDED and data_args.num_labels is None:
        name = "stsb"
    if name is None:
        num_labels = data_args.num_labels or _find_num_labels(data_args, dataset)
        metric = {1: "pearson", 2: "f1"}.get(num_labels, "accuracy")
        task = PairTask("pairs", num_labels=num_labels, metric_for_best_model=metric)
    elif name not in PAIR_TASKS:
        raise ValueError(
            f"Unknown task {name!r}: the known tasks are {', '.join(PAIR_TASKS)}. For other data omit `task_name` and "
            "pass `num_labels` together with `dataset_name` or `train_file`."
        )
    else:
        task = PAIR_TASKS[name]
    if data_args.num_labels not in (None, task.num_labels):
        raise ValueError(f"num_labels={data_args.num_labels} contradicts task {name!r}, which has {task.num_labels}.")
    return replace(
        task,
        sentence1=data_args.sentence1_column or task.sentence1,
        sentence2=data_args.sentence2_column or task.sentence2,
        symmetric=task.symmetric if data_args.symmetric is None else data_args.symmetric,
    )


def _find_num_labels(data_args: DataArguments, dataset: Dataset | Mapping[str, Dataset] | None) -> int:
    """Returns the number of classes of a column of classes, or 1 for labels with fractions."""
    parts: list[Columns] = [dataset] if isinstance(dataset, Dataset) else list((dataset or {}).values())
    if dataset is None:
        parts = [read_source(source) for source in _pair_sources(data_args, PairTask("pairs"), None).values()]
    name = data_args.label_column
    for columns in parts:
        if name in column_names(columns):
            feature = columns.features[name] if isinstance(columns, Dataset) else None
            if isinstance(feature, ClassLabel):
                return max(2, feature.num_classes)
            if any((number := to_number(label)) is not None and number % 1 for label in columns[name][:]):
                return 1
    raise ValueError(
        "The number of labels is unknown: pass `num_labels` (1 for a regression, 2 or more for classes) or "
        f"`task_name` ({', '.join(PAIR_TASKS)})."
    )


def _pair_sources(data_args: DataArguments, task: PairTask, splits: Sequence[str] | None) -> dict[str, Source]:
    """Returns the wanted splits; those of GLUE by default."""
    found = find_sources(data_args, config=task.glue_name if data_args.dataset_name == GLUE else None)
    if not found and data_args.dataset_name is None:
        if task.glue_name is None:
            raise ValueError("No data: pass `dataset_name`, `train_file`, `validation_file` or `test_file`.")
        found = find_sources(replace(data_args, dataset_name=GLUE), config=task.glue_name)
    # MNLI calls its validation and test splits "matched" and "mismatched": the first is the usual one.
    found = {split.removesuffix("_matched"): source for split, source in found.items()}
    return {split: found[split] for split in wanted_splits(found, splits, data_args.dataset_name or "The data")}


def _read_labels(values: Sequence, num_labels: int, where: str) -> list:
    if num_labels == 1:
        check_rows(values, lambda value: to_number(value) is not None, where, "the label {} is not a finite number")
        return [float(value) for value in values]
    problem = f"the label {{}} is not a class from 0 to {num_labels - 1}: correct it, or `num_labels`"
    check_rows(values, lambda value: to_number(value) in range(num_labels), where, problem)
    return [int(float(value)) for value in values]


def _read_logits(values: Sequence, where: str) -> list[list[float | None]]:
    rows = []
    for value in values:
        # Lists of a csv file are text.
        value = json.loads(value) if isinstance(value, str) and value.startswith("[") else value
        rows.append([to_number(number) for number in (value if isinstance(value, list) else [value])])
    size = len(rows[0])
    problem = f"teacher_logits are {{}}, not {size} finite numbers, as in row 0"
    check_rows(rows, lambda row: row and len(row) == size and None not in row, where, problem)
    return rows


def _check_pairs(
    columns: Columns,
    split: str,
    data_args: DataArguments,
    task: PairTask,
    require_labels: bool,
    keep_columns: bool = False,
) -> Dataset:
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
    kept = list(range(len(found["sentence1"])))
    if data_args.drop_empty_sentences:
        texts = zip(found["sentence1"], found["sentence2"], strict=True)
        kept = [row for row, pair in enumerate(texts) if all(text is not None and str(text).strip() for text in pair)]
        if len(kept) < len(found["sentence1"]):
            logger.warning(f"{where}: dropped {len(found['sentence1']) - len(kept)} pairs with an empty sentence.")
        found = {key: [values[row] for row in kept] for key, values in found.items()}
    if not kept:
        raise ValueError(f"{where} has no rows.")
    for key in ("sentence1", "sentence2"):
        problem = f"{key} is {{}}, not a text: correct it, or drop empty sentences with `drop_empty_sentences`"
        check_rows(found[key], is_filled, where, problem)
    if "label" in found and split != "train" and all(to_number(label) == -1 for label in found["label"]):
        logger.warning(f"{where}: every label is -1, as in the GLUE test sets; the split is read without labels.")
        del found["label"]
    if "label" in found:
        found["label"] = _read_labels(found["label"], task.num_labels, where)
    if "teacher_logits" in found:
        found["teacher_logits"] = _read_logits(found["teacher_logits"], where)
    pairs = Dataset.from_dict(found)
    others = [name for name in names if name not in {*sources.values(), *sources}]
    if not keep_columns or not others:
        return pairs
    if not isinstance(columns, Dataset):
        columns = Dataset.from_dict({name: columns[name] for name in others})
    # As they are: Python lacks types such as nanoseconds.
    return concatenate_datasets([pairs, columns.select_columns(others).select(kept)], axis=1)


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
            The source of the pairs, or only its name: a data set of the Hub, a folder, a file, or `"embedded"`.
        splits (`Sequence[str]`, *optional*):
            The splits to read, such as the name of a file in a folder. Defaults to train, validation and test.
        require_labels (`bool`, *optional*, defaults to `True`):
            Whether a missing label column is an error.
        keep_columns (`bool`, *optional*, defaults to `False`):
            Whether to keep other columns, such as ids, as they are.

    Returns:
        `DatasetDict`: per split the columns `sentence1`, `sentence2`, `label` (a float for a regression, otherwise an
        integer; missing if the labels are hidden) and, if the source has them, `teacher_logits` (a list of floats).

    Example:

    ```python
    >>> from hf_dse import load_pairs

    >>> load_pairs("embedded")["train"].column_names
    ['sentence1', 'sentence2', 'label', 'teacher_logits']
    ```
    """
    data_args = to_arguments(data_args)
    task = resolve_task(data_args)
    return DatasetDict(
        {
            split: _check_pairs(read_source(source), split, data_args, task, require_labels, keep_columns)
            for split, source in _pair_sources(data_args, task, splits).items()
        }
    )


def check_pairs(
    dataset: Dataset | Mapping[str, Dataset], data_args: DataArguments, *, require_labels: bool = True
) -> DatasetDict:
    """
    Returns sentence pairs in memory, checked as [`load_pairs`] checks those of files. A single data set is the train
    split. Names of files in `data_args` are not used.
    """
    parts = dict(dataset) if isinstance(dataset, Mapping) else {"train": dataset}
    for part in parts.values():
        if not isinstance(part, Dataset):
            raise TypeError(f"Pairs have to be a `datasets.Dataset` in memory, not a {type(part).__name__}.")
    task = resolve_task(data_args, parts)
    return DatasetDict(
        {split: _check_pairs(part, str(split), data_args, task, require_labels) for split, part in parts.items()}
    )


def mix_pairs(labelled: Dataset, unlabelled: Dataset) -> Dataset:
    """
    Combines labelled pairs and pairs with teacher scores only, whose labels are ignored, to one training set. Unknown
    `label` or `teacher_logits` are `None`.
    """
    names = ["sentence1", "sentence2", "teacher_logits"]
    wanted = [name for name in (*names, "label") if name in labelled.column_names]
    return concatenate_datasets([labelled.select_columns(wanted), unlabelled.select_columns(names)])
