# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs of GLUE tasks, Hub data sets and local files, with checks of every row."""

import math
import re
from collections.abc import Callable, Collection, Iterable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import ClassLabel, Dataset, DatasetDict, concatenate_datasets, load_dataset
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.common.options import check_arguments
from hf_dse.data.arguments import DataArguments
from hf_dse.data.tables import READERS, missing_column, parse_json, read_columns, table_remedy
from hf_dse.data.tasks import EMBEDDED, GLUE, PAIR_TASKS, PairTask


logger = logging.get_logger(__name__)

EMBEDDED_FOLDER = Path(__file__).parent / "embedded"

SPLITS = ("train", "validation", "test")


def resolve_task(data_args: DataArguments, dataset: Dataset | Mapping[str, Dataset] | None = None) -> PairTask:
    """
    Returns a known task with the overrides of the arguments.

    Args:
        data_args (`DataArguments`):
            The arguments. Without `task_name` and `num_labels`, the labels tell the number of labels.
        dataset (`Dataset` or `Mapping[str, Dataset]`, *optional*):
            Pairs in memory, instead of those that the arguments name.

    Returns:
        `PairTask`: the task with the columns and the symmetry of the arguments.

    Raises:
        `ValueError`: for an unknown task, or if the number of labels is unknown or contradicts the task.
    """
    name = data_args.task_name
    if name is None and data_args.dataset_name == EMBEDDED and data_args.num_labels is None:
        name = "stsb"
    if name is not None:
        if name not in PAIR_TASKS:
            raise ValueError(
                f"Unknown task {name!r}: the known tasks are {', '.join(PAIR_TASKS)}. For other data omit "
                "`task_name` and pass `num_labels` together with `dataset_name` or `train_file`."
            )
        task = PAIR_TASKS[name]
        if data_args.num_labels not in (None, task.num_labels):
            raise ValueError(
                f"num_labels={data_args.num_labels} contradicts task {name!r}, which has {task.num_labels}: omit "
                "one of the two."
            )
    else:
        num_labels = data_args.num_labels or _infer_num_labels(data_args, dataset)
        metric = {1: "pearson", 2: "f1"}.get(num_labels, "accuracy")
        task = PairTask("pairs", num_labels=num_labels, metric_for_best_model=metric)
    return PairTask(
        name=task.name,
        sentence1=data_args.sentence1_column or task.sentence1,
        sentence2=data_args.sentence2_column or task.sentence2,
        num_labels=task.num_labels,
        symmetric=task.symmetric if data_args.symmetric is None else data_args.symmetric,
        metric_for_best_model=task.metric_for_best_model,
        glue_name=task.glue_name,
    )


# So many whole numbers from 0 on are classes; more of them may also be grades, such as those from 0 to 5.
MOST_INFERRED = 3


def _infer_num_labels(data_args: DataArguments, dataset: Dataset | Mapping[str, Dataset] | None) -> int:
    """The number of labels, by the labels themselves, or else by the teacher's scores."""
    advice = "(1 for a regression, 2 or more for classes)"
    if dataset is not None:
        parts = list(dataset.values()) if isinstance(dataset, Mapping) else [dataset]
    elif any((data_args.dataset_name, data_args.train_file, data_args.validation_file, data_args.test_file)):
        parts = [read() for read in _sources(data_args, PairTask("pairs"), None).values()]
    else:
        raise ValueError(
            f"The number of labels is unknown: pass `task_name` (one of {', '.join(PAIR_TASKS)}) or `num_labels` "
            f"{advice}."
        )
    labels: list = []
    num_logits = set()
    for columns in parts:
        names = columns.column_names if isinstance(columns, Dataset) else list(columns)
        if data_args.label_column in names:
            feature = columns.features[data_args.label_column] if isinstance(columns, Dataset) else None
            if isinstance(feature, ClassLabel):
                return max(2, feature.num_classes)
            labels += [label for label in columns[data_args.label_column] if label is not None]
        elif "teacher_logits" in names:
            num_logits |= {len(logits) for logits in _check_logits(columns["teacher_logits"], "The data")}
    values = ", ".join(sorted({str(label)[:30] for label in labels})[:5])
    if None in map(_to_float, labels):
        raise ValueError(f"The labels are {values}: convert names of classes to numbers, from 0 on.")
    # Numbers of a csv file are text.
    is_whole = [isinstance(label, int) or re.fullmatch(r"-?\d+", str(label).strip()) for label in labels]
    if not all(is_whole):
        return 1
    # The labels of hidden test sets are -1.
    known = {int(label) for label in labels} - {-1}
    if known == set(range(len(known))) and 2 <= len(known) <= MOST_INFERRED:
        return len(known)
    if not labels and len(num_logits) == 1:
        return num_logits.pop()
    shown = f"the labels are {values}" if labels else "there are none"
    raise ValueError(f"The number of labels is unknown, as {shown}: pass `num_labels` {advice} or `task_name`.")


def folder_files(folder: Path) -> dict[str, list[Path]]:
    """Groups the readable files of a folder by split; `train-00000-of-00002.parquet` belongs to `train`."""
    files: dict[str, list[Path]] = {}
    for path in sorted(folder.iterdir()):
        split = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
        if path.suffix.lower() in READERS:
            files.setdefault(split, []).append(path)
        elif split in SPLITS and path.is_file():
            raise ValueError(f"{path}: unsupported ending {path.suffix!r}; supported are {', '.join(READERS)}.")
    for split, paths in files.items():
        if len(paths) > 1 and any(path.stem == split for path in paths):
            raise ValueError(f"Several files for split {split!r}: {', '.join(map(str, paths))}; keep one.")
    return files


def _sources(data_args: DataArguments, task: PairTask, splits: Sequence[str] | None) -> dict[str, Callable[[], Any]]:
    """Maps each split to a function that reads its columns."""
    named = {split: getattr(data_args, f"{split}_file") for split in SPLITS}
    found: dict[str, Callable[[], Any]] = {}
    name = data_args.dataset_name
    local = EMBEDDED_FOLDER if name == EMBEDDED else to_path(name) if name is not None else None
    if local is not None and local.is_dir():
        for split, paths in folder_files(local).items():
            found[split] = partial(concatenate_files, paths)
    elif local is not None and local.is_file():
        found["train"] = partial(read_columns, local)
    elif name == EMBEDDED:
        raise FileNotFoundError(f"{EMBEDDED_FOLDER}: the embedded pairs are missing; reinstall hf-dse.")
    elif local is not None and (local.is_absolute() or str(name).startswith((".", "~"))):
        raise FileNotFoundError(f"{name}: there is no such folder.")
    elif name is not None or not any(named.values()):
        if name is None and task.glue_name is None:
            raise ValueError("No data: pass `dataset_name`, `train_file`, `validation_file` or `test_file`.")
        config = data_args.dataset_config_name or (task.glue_name if name in (None, GLUE) else None)
        logger.info(f"Loading the dataset {name or GLUE} of the Hub")
        hub = load_dataset(name or GLUE, config)
        for split in hub:
            # MNLI calls its validation and test splits "matched" and "mismatched": the first is the usual one.
            found[str(split).removesuffix("_matched")] = partial(hub.__getitem__, split)
    for split, path in named.items():
        if path is not None:
            found[split] = partial(read_columns, path)
    return {split: found[split] for split in wanted_splits(found, splits, name or "The data")}


def wanted_splits(found: Collection[str], splits: Sequence[str] | None, where: str) -> list[str]:
    """The splits to read: those that were asked for, or the usual ones that there are. Missing ones are an error."""
    wanted = [split for split in SPLITS if split in found] if splits is None else list(splits)
    missing = [split for split in wanted if split not in found]
    if missing or not wanted:
        raise FileNotFoundError(
            f"{where} has no split {' or '.join(missing or SPLITS)}; the splits are {', '.join(found) or 'none'}."
        )
    return wanted


def concatenate_files(paths: list[Path]) -> dict[str, list]:
    """The columns of several files, which have the same ones."""
    columns = read_columns(paths[0])
    for path in paths[1:]:
        more = read_columns(path)
        if set(more) != set(columns):
            raise ValueError(f"{path}: its columns are {', '.join(more)}, those of {paths[0]} {', '.join(columns)}.")
        columns = {name: values + more[name] for name, values in columns.items()}
    return columns


def _to_float(value: Any) -> float | None:
    try:
        return float(value)
    except (TypeError, ValueError):
        return None


def _first_bad(values: Sequence, is_bad: Callable[[Any], bool]) -> tuple[int, int]:
    """Returns how many values are bad and the row of the first."""
    rows = [row for row, value in enumerate(values) if is_bad(value)]
    return len(rows), rows[0] if rows else -1


def _check_labels(values: Sequence, num_labels: int, where: str) -> list:
    numbers = [_to_float(value) for value in values]
    count, row = _first_bad(numbers, lambda number: number is None)
    if count:
        raise ValueError(
            f"{where}, row {row}: the label {values[row]!r} is not a number ({count} such rows). Labels of a "
            "regression are numbers, classes are 0 to num_labels - 1: convert names to numbers first."
        )
    count, row = _first_bad(numbers, lambda number: not math.isfinite(number))
    if count:
        raise ValueError(
            f"{where}, row {row}: the label is {values[row]!r} ({count} such rows): remove or correct them."
        )
    if num_labels == 1:
        return numbers
    count, row = _first_bad(numbers, lambda number: number != int(number) or not 0 <= number < num_labels)
    if count:
        raise ValueError(
            f"{where}, row {row}: the label {values[row]!r} is outside 0..{num_labels - 1} ({count} such rows). With "
            f"num_labels={num_labels} the classes are integers from 0; pass the `num_labels` of the data."
        )
    return [int(number) for number in numbers if number is not None]


def _check_logits(values: Sequence, where: str) -> list[list[float]]:
    logits: list[list[float]] = []
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                value = parse_json(value)
            except ValueError:
                value = None
        cells = value if isinstance(value, list | tuple) else [value]
        numbers = [number for number in map(_to_float, cells) if number is not None and math.isfinite(number)]
        if not numbers or len(numbers) < len(cells):
            raise ValueError(f"{where}, row {row}: teacher_logits {values[row]!r} are not finite numbers.")
        if logits and len(numbers) != len(logits[0]):
            raise ValueError(f"{where}, row {row}: {len(numbers)} teacher_logits, but {len(logits[0])} in row 0.")
        logits.append(numbers)
    return logits


def _column(columns: Iterable[str], wanted: Sequence[str], where: str) -> str:
    names = list(columns)
    for name in wanted:
        if name in names:
            return name
    advice = "Choose a column with `sentence1_column`, `sentence2_column` or `label_column`."
    raise missing_column(where, wanted[0], names, advice)


def _normalize(
    columns: Mapping[str, Any] | Dataset,
    split: str,
    data_args: DataArguments,
    task: PairTask,
    require_labels: bool,
    keep_columns: bool = False,
) -> Dataset:
    where = f"Split {split!r}"
    limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
    names = columns.column_names if isinstance(columns, Dataset) else list(columns)

    def take(name: str) -> list:
        return list(columns[name][:limit])

    sentences: dict[str, list] = {}
    read = {"teacher_logits", data_args.label_column}
    for key, column, explicit in (
        ("sentence1", task.sentence1, data_args.sentence1_column),
        ("sentence2", task.sentence2, data_args.sentence2_column),
    ):
        # A column named in the arguments must exist; a column of the task may have the default name instead.
        name = _column(names, [column] if explicit else [column, key], where)
        sentences[key] = take(name)
        read.add(name)
    if not sentences["sentence1"]:
        raise ValueError(f"{where} has no rows.")

    keep = range(len(sentences["sentence1"]))
    if data_args.drop_empty_sentences:
        pairs = zip(sentences["sentence1"], sentences["sentence2"], strict=True)
        kept = [row for row, pair in enumerate(pairs) if all(text is not None and str(text).strip() for text in pair)]
        if len(kept) < len(keep):
            logger.warning(f"{where}: dropped {len(keep) - len(kept)} pairs with an empty sentence.")
        sentences = {key: [texts[row] for row in kept] for key, texts in sentences.items()}
    else:
        kept = list(keep)
    for key, texts in sentences.items():
        count, row = _first_bad(texts, lambda text: text is None or (isinstance(text, str) and not text.strip()))
        if count:
            raise ValueError(
                f"{where}, row {row}: {key} is empty ({count} such rows). Correct the data, or drop such pairs "
                "with `drop_empty_sentences`."
            )
        count, row = _first_bad(texts, lambda text: not isinstance(text, str))
        if count:
            raise ValueError(f"{where}, row {row}: {key} is {texts[row]!r}, not a string ({count} such rows).")

    result: dict[str, list] = dict(sentences)
    if require_labels or data_args.label_column in names:
        name = _column(names, [data_args.label_column], where)
        labels = take(name)
        labels = [labels[row] for row in kept]
        if all(_to_float(label) == -1 for label in labels) and split != "train":
            logger.warning(f"{where}: every label is -1, as in the GLUE test sets; the split is read without labels.")
        else:
            result["label"] = _check_labels(labels, task.num_labels, where)
    if "teacher_logits" in names:
        logits = take("teacher_logits")
        result["teacher_logits"] = _check_logits([logits[row] for row in kept], where)
    if keep_columns:
        for name in [name for name in names if name not in {*read, *result}]:
            values = take(name)
            result[name] = [values[row] for row in kept]
    return Dataset.from_dict(result)


def load_pairs(
    data_args: DataArguments,
    splits: Sequence[str] | None = None,
    require_labels: bool = True,
    keep_columns: bool = False,
) -> DatasetDict:
    """
    Reads sentence pairs and checks every row.

    Args:
        data_args (`DataArguments`):
            The source of the pairs.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to those of train, validation and test that exist. In a local folder every
            readable file is a split named after the file.
        require_labels (`bool`, *optional*, defaults to `True`):
            Whether a missing label column is an error.
        keep_columns (`bool`, *optional*, defaults to `False`):
            Whether to keep all other columns, such as ids.

    Returns:
        `DatasetDict`: per split the columns `sentence1`, `sentence2`, `label` (a float for a regression, otherwise an
        integer; missing if the labels are hidden) and, if the source has them, `teacher_logits` (a list of
        floats).

    Raises:
        `TypeError`: if `data_args` is something else, such as a name.
        `ValueError`: for an unknown task, a missing column, an empty sentence, or a label that is no finite number or
        no class of the task.
        `FileNotFoundError`: if a file, a folder or a split does not exist.
    """
    check_arguments(data_args, DataArguments, 'dataset_name="folder"')
    task = resolve_task(data_args)
    sources = _sources(data_args, task, splits)
    return DatasetDict(
        {
            split: _normalize(read(), split, data_args, task, require_labels, keep_columns)
            for split, read in sources.items()
        }
    )


def check_pairs(
    dataset: Dataset | Mapping[str, Dataset], data_args: DataArguments, require_labels: bool = True
) -> DatasetDict:
    """
    Checks sentence pairs that are in memory, as [`load_pairs`] does those of files.

    Args:
        dataset (`Dataset` or `Mapping[str, Dataset]`):
            Pairs by split; a single data set is the train split.
        data_args (`DataArguments`):
            Columns, labels and limits; what names files is not used.
        require_labels (`bool`, *optional*, defaults to `True`):
            Whether a missing label column is an error.

    Returns:
        `DatasetDict`: what [`load_pairs`] returns.

    Raises:
        `TypeError`: for a streaming data set, or anything else than data sets.
        `ValueError`: as [`load_pairs`].
    """
    parts = {"train": dataset} if not isinstance(dataset, Mapping) else dict(dataset)
    for split, part in parts.items():
        if not isinstance(part, Dataset):
            raise TypeError(
                f"Split {split!r} is a {type(part).__name__}, and pairs have to be a `datasets.Dataset`, for every "
                f"row is checked before the training: {table_remedy(part)}."
            )
    task = resolve_task(data_args, parts)
    return DatasetDict(
        {split: _normalize(part, str(split), data_args, task, require_labels) for split, part in parts.items()}
    )


def mix_pairs(
    labelled: Dataset, unlabelled: Dataset, labelled_weight: float = 1.0, unlabelled_weight: float = 1.0
) -> Dataset:
    """
    Combines labelled pairs and pairs with teacher scores only to one training set.

    Args:
        labelled (`Dataset`):
            Pairs of [`load_pairs`], with `label` and optionally `teacher_logits`.
        unlabelled (`Dataset`):
            Pairs with `teacher_logits`. Their labels are ignored.
        labelled_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of a labelled pair.
        unlabelled_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of any other pair.

    Returns:
        `Dataset`: the rows of both with a column `weight`; unknown `label` or `teacher_logits` are `None`.

    Raises:
        `ValueError`: if the unlabelled pairs have no scores, or a weight is negative.
    """
    if "teacher_logits" not in unlabelled.column_names:
        raise ValueError(
            f"The unlabelled pairs have no column 'teacher_logits', only {', '.join(unlabelled.column_names)}: score "
            "them with `score_pairs` or `hf-dse score`."
        )
    if not all(0 <= weight < math.inf for weight in (labelled_weight, unlabelled_weight)):
        raise ValueError(
            f"Weights must be finite numbers of at least 0, got {labelled_weight} and {unlabelled_weight}."
        )
    parts = []
    names = ("sentence1", "sentence2", "label", "teacher_logits")
    for part, weight in ((labelled, labelled_weight), (unlabelled, unlabelled_weight)):
        wanted = [name for name in names if name in part.column_names and (name != "label" or part is labelled)]
        parts.append(part.select_columns(wanted).add_column("weight", [weight] * len(part)))
    return concatenate_datasets(parts)
