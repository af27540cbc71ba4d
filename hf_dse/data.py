# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence-pair data: the GLUE pair tasks, local files, and the collators that tokenize batches."""

import csv
import json
import math
import os
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import torch
from datasets import Dataset, DatasetDict, concatenate_datasets, load_dataset
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from .encoding import pad, tokenize


logger = logging.get_logger(__name__)

GLUE = "nyu-mll/glue"
EMBEDDED = "embedded"
EMBEDDED_FOLDER = Path(__file__).parent / "pairs"
SPLITS = ("train", "validation", "test")


@dataclass(frozen=True)
class PairTask:
    """
    What a model has to know about a sentence-pair task.

    Args:
        name (`str`):
            Name of the task.
        sentence1 (`str`):
            Column of the first sentence.
        sentence2 (`str`):
            Column of the second sentence.
        num_labels (`int`):
            1 for a regression, otherwise the number of classes.
        symmetric (`bool`):
            Whether the label stays the same when the two sentences change places.
        metric_for_best_model (`str`):
            The metric by which checkpoints are compared.
        glue_name (`str`, *optional*):
            Configuration of the task in the GLUE dataset.
    """

    name: str
    sentence1: str = "sentence1"
    sentence2: str = "sentence2"
    num_labels: int = 1
    symmetric: bool = False
    metric_for_best_model: str = "pearson"
    glue_name: str | None = None

    @property
    def problem_type(self) -> str:
        """`"regression"` or `"single_label_classification"`, as in `config.problem_type`."""
        return "regression" if self.num_labels == 1 else "single_label_classification"


PAIR_TASKS: dict[str, PairTask] = {
    task.name: task
    for task in (
        PairTask("stsb", "sentence1", "sentence2", 1, True, "pearson", "stsb"),
        PairTask("mrpc", "sentence1", "sentence2", 2, True, "f1", "mrpc"),
        PairTask("qqp", "question1", "question2", 2, True, "f1", "qqp"),
        PairTask("qnli", "question", "sentence", 2, False, "accuracy", "qnli"),
        PairTask("mnli", "premise", "hypothesis", 3, False, "accuracy", "mnli"),
    )
}


@dataclass
class DataArguments:
    """Which sentence pairs to read, and how. Every field is a command-line flag."""

    task_name: str | None = field(
        default=None,
        metadata={"help": f"A known pair task: {', '.join(PAIR_TASKS)}. Sets columns, labels and metric."},
    )
    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "A dataset of the Hub, a local folder with `train.*`, `validation.*`, `test.*` (csv, jsonl, json, "
            f"parquet), or `{EMBEDDED}`, the small set shipped with the package. Defaults to GLUE's `task_name`."
        },
    )
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of the Hub dataset."})
    train_file: str | None = field(
        default=None, metadata={"help": "Training pairs: a csv, jsonl, json or parquet file."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Validation pairs, in the same formats."})
    test_file: str | None = field(default=None, metadata={"help": "Test pairs, in the same formats."})
    sentence1_column: str | None = field(
        default=None, metadata={"help": "Column of the first sentence. Defaults to the task's, then `sentence1`."}
    )
    sentence2_column: str | None = field(
        default=None, metadata={"help": "Column of the second sentence. Defaults to the task's, then `sentence2`."}
    )
    label_column: str = field(default="label", metadata={"help": "Column of the gold label."})
    num_labels: int | None = field(
        default=None, metadata={"help": "1 for a regression, 2 or more for classes. Only without `task_name`."}
    )
    symmetric: bool | None = field(
        default=None,
        metadata={"help": "Whether the order of the two sentences is meaningless. Defaults to what the task says."},
    )
    max_seq_length: int = field(
        default=128, metadata={"help": "Maximum tokens of a sentence (student) or of a pair (cross-encoder)."}
    )
    max_train_samples: int | None = field(default=None, metadata={"help": "Keep only the first training pairs."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Keep only the first pairs of other splits."})
    drop_empty_sentences: bool = field(
        default=False, metadata={"help": "Leave out pairs with an empty sentence instead of stopping (QQP has some)."}
    )

    def __post_init__(self) -> None:
        if self.num_labels is not None and self.num_labels < 1:
            raise ValueError(f"num_labels={self.num_labels}: it has to be 1 (regression) or the number of classes.")
        if self.max_seq_length < 4:
            raise ValueError(f"max_seq_length={self.max_seq_length}: it has to be at least 4.")
        for name in ("max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: it has to be at least 1; leave it out to keep every pair.")


def resolve_task(data_args: DataArguments) -> PairTask:
    """
    Combines a known task with what the arguments override.

    Args:
        data_args (`DataArguments`):
            The arguments; either `task_name` or `num_labels` has to be set, except for the embedded set.

    Returns:
        `PairTask`: the task with the columns and the symmetry asked for.

    Raises:
        `ValueError`: for an unknown task, or where the number of labels is unknown or contradicts the task.
    """
    name = data_args.task_name
    if name is None and data_args.dataset_name == EMBEDDED and data_args.num_labels is None:
        name = "stsb"
    if name is not None:
        if name not in PAIR_TASKS:
            raise ValueError(
                f"Unknown task {name!r}: the known tasks are {', '.join(PAIR_TASKS)}. For other data leave out "
                "`task_name` and pass `num_labels` together with `dataset_name` or `train_file`."
            )
        task = PAIR_TASKS[name]
        if data_args.num_labels not in (None, task.num_labels):
            raise ValueError(
                f"num_labels={data_args.num_labels} contradicts task {name!r}, which has {task.num_labels}: leave one "
                "of the two out."
            )
    elif data_args.num_labels is None:
        raise ValueError(
            f"The kind of labels is unknown: pass `task_name` (one of {', '.join(PAIR_TASKS)}) or `num_labels` "
            "(1 for a regression, 2 or more for classes)."
        )
    else:
        metric = {1: "pearson", 2: "f1"}.get(data_args.num_labels, "accuracy")
        task = PairTask("pairs", num_labels=data_args.num_labels, metric_for_best_model=metric)
    return PairTask(
        name=task.name,
        sentence1=data_args.sentence1_column or task.sentence1,
        sentence2=data_args.sentence2_column or task.sentence2,
        num_labels=task.num_labels,
        symmetric=task.symmetric if data_args.symmetric is None else data_args.symmetric,
        metric_for_best_model=task.metric_for_best_model,
        glue_name=task.glue_name,
    )


def _read_csv(path: Path) -> dict[str, list]:
    # Everything stays a string here: a sentence "NA" must not turn into a missing value, nor "007" into 7.
    with path.open(encoding="utf-8-sig", newline="") as file:
        reader = csv.DictReader(file, strict=True)
        columns: dict[str, list] = {name: [] for name in reader.fieldnames or []}
        try:
            for row in reader:
                if None in row or None in row.values():
                    raise ValueError(
                        f"{path}, line {reader.line_num}: expected {len(columns)} cells, as in the header."
                    )
                for name, value in row.items():
                    columns[name].append(value)
        except csv.Error as error:
            raise ValueError(f"{path}, line {reader.line_num}: not valid csv: {error}.") from error
    return columns


def _read_json(path: Path) -> dict[str, list]:
    text = path.read_text(encoding="utf-8-sig")
    # One list, or one object a line. Not `splitlines`: it also breaks at characters that JSON strings may hold.
    documents = [text] if text.lstrip().startswith("[") else text.split("\n")
    rows: list = []
    for number, document in enumerate(documents, start=1):
        try:
            if document.strip():
                rows.append(json.loads(document))
        except json.JSONDecodeError as error:
            raise ValueError(f"{path}, line {number}: not valid JSON: {error}.") from error
    if len(documents) == 1 and len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: every row has to be a JSON object with named columns.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def _read_parquet(path: Path) -> dict[str, list]:
    import pyarrow
    import pyarrow.parquet

    try:
        return pyarrow.parquet.read_table(path).to_pydict()
    except pyarrow.ArrowInvalid as error:
        raise ValueError(f"{path}: not a readable parquet file: {error}") from error


READERS: dict[str, Callable[[Path], dict[str, list]]] = {
    ".csv": _read_csv,
    ".json": _read_json,
    ".jsonl": _read_json,
    ".parquet": _read_parquet,
}


def read_columns(path: str | Path) -> dict[str, list]:
    """
    Reads a local table.

    Args:
        path (`str` or `Path`):
            A csv, json, jsonl or parquet file with named columns.

    Returns:
        `dict[str, list]`: the columns, in the order of the file; csv cells stay strings.

    Raises:
        `FileNotFoundError`: if there is no such file.
        `ValueError`: for another ending or unreadable content.
    """
    path = Path(path).expanduser()
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unsupported ending {path.suffix!r}; supported are {', '.join(READERS)}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    return READERS[path.suffix.lower()](path)


def read_texts(path: str | Path, text_column: str = "text") -> dict[str, list]:
    """
    Reads texts: sentences or documents, whatever they are for.

    Args:
        path (`str` or `Path`):
            A .txt file with a text in each line, a table with named columns, or a folder, in which every .txt and .md
            file is a text.
        text_column (`str`, *optional*, defaults to `"text"`):
            The column of the texts; the name that texts without one get.

    Returns:
        `dict[str, list]`: the columns of the file; of a folder the texts and `file`, their names in it.

    Raises:
        ValueError: an unknown ending, a missing column, or a text that is not a string.
        FileNotFoundError: there is no such file, or none with texts in the folder.
    """
    file = Path(path).expanduser()
    if file.is_dir():
        names = sorted(name.relative_to(file) for name in file.rglob("*") if name.suffix.lower() in (".txt", ".md"))
        names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
        if not names:
            raise FileNotFoundError(f"{path}: there are no .txt or .md files in this folder.")
        texts = [(file / name).read_text(encoding="utf-8-sig") for name in names]
        return {"file": [name.as_posix() for name in names], text_column: texts}
    if file.suffix.lower() == ".txt":
        if not file.is_file():
            raise FileNotFoundError(f"{path}: there is no such file.")
        # Not `splitlines`, which also breaks at characters that stand inside of texts. The last line may be unended.
        lines = file.read_text(encoding="utf-8-sig").removesuffix("\n").split("\n")
        return {text_column: [] if lines == [""] else lines}
    if file.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unsupported ending {file.suffix!r}; supported are .txt, {', '.join(READERS)}.")
    columns = read_columns(file)
    if text_column not in columns:
        raise ValueError(
            f"{path}: there is no column {text_column!r}; the columns are {', '.join(columns)}. Choose one with "
            "`text_column`."
        )
    for row, text in enumerate(columns[text_column]):
        if not isinstance(text, str):
            raise ValueError(f"{path}, row {row}: {text_column} is {text!r}, not a string.")
    return columns


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file so that it is either whole or as before, whatever happens on the way."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def check_positive(args: Any, *names: str) -> None:
    """
    Checks options that count something.

    Args:
        args (dataclass):
            The options.
        names (`str`):
            Fields that are `None`, a number, or a list of numbers.

    Raises:
        `ValueError`: for a number below 1, or an empty list.
    """
    for name in names:
        value = getattr(args, name)
        numbers = value if isinstance(value, list) else [value]
        if not numbers or any(number is not None and number < 1 for number in numbers):
            raise ValueError(f"{name}={value}: it has to be at least 1.")


def _folder_files(folder: Path) -> dict[str, list[Path]]:
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
    local = EMBEDDED_FOLDER if name == EMBEDDED else Path(name).expanduser() if name is not None else None
    if local is not None and local.is_dir():
        for split, paths in _folder_files(local).items():
            found[split] = partial(_concatenate, paths)
    elif name == EMBEDDED:
        raise FileNotFoundError(f"{EMBEDDED_FOLDER}: the embedded pairs are missing; reinstall hf-dse.")
    elif local is not None and (local.is_absolute() or str(name).startswith((".", "~"))):
        raise FileNotFoundError(f"{name}: there is no such folder.")
    elif name is not None or not any(named.values()):
        if name is None and task.glue_name is None:
            raise ValueError("No data: pass `dataset_name`, `train_file`, `validation_file` or `test_file`.")
        config = data_args.dataset_config_name or (task.glue_name if name in (None, GLUE) else None)
        hub = load_dataset(name or GLUE, config)
        for split in hub:
            # MNLI calls its validation and test splits "matched" and "mismatched": the first is the usual one.
            found[str(split).removesuffix("_matched")] = partial(hub.__getitem__, split)
    for split, path in named.items():
        if path is not None:
            found[split] = partial(read_columns, path)
    wanted = [split for split in SPLITS if split in found] if splits is None else splits
    missing = [split for split in wanted if split not in found]
    if missing or not wanted:
        raise FileNotFoundError(
            f"{name or 'The data'} has no split {' or '.join(missing or SPLITS)}; "
            f"the splits are {', '.join(found) or 'none'}."
        )
    return {split: found[split] for split in wanted}


def _concatenate(paths: list[Path]) -> dict[str, list]:
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
            f"{where}, row {row}: the label {values[row]!r} is not a number ({count} such rows). A regression has "
            "numbers as labels, classes are 0 to num_labels - 1: map names to numbers first."
        )
    count, row = _first_bad(numbers, lambda number: not math.isfinite(number))
    if count:
        raise ValueError(f"{where}, row {row}: the label is {values[row]!r} ({count} such rows): drop or repair them.")
    if num_labels == 1:
        return numbers
    count, row = _first_bad(numbers, lambda number: number != int(number) or not 0 <= number < num_labels)
    if count:
        raise ValueError(
            f"{where}, row {row}: the label {values[row]!r} is outside 0..{num_labels - 1} ({count} such rows). With "
            f"num_labels={num_labels} the classes are whole numbers from 0; pass the `num_labels` that fits the data."
        )
    return [int(number) for number in numbers if number is not None]


def _check_logits(values: Sequence, where: str) -> list[list[float]]:
    logits: list[list[float]] = []
    for row, value in enumerate(values):
        if isinstance(value, str):
            try:
                value = json.loads(value)
            except json.JSONDecodeError:
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
    raise ValueError(
        f"{where}: there is no column {wanted[0]!r}; the columns are {', '.join(names)}. Name the right one with "
        "`sentence1_column`, `sentence2_column` or `label_column`."
    )


def _normalize(
    columns: Mapping[str, Any] | Dataset, split: str, data_args: DataArguments, task: PairTask, require_labels: bool
) -> Dataset:
    where = f"Split {split!r}"
    limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
    names = columns.column_names if isinstance(columns, Dataset) else list(columns)

    def take(name: str) -> list:
        return list(columns[name][:limit])

    sentences: dict[str, list] = {}
    for key, column, explicit in (
        ("sentence1", task.sentence1, data_args.sentence1_column),
        ("sentence2", task.sentence2, data_args.sentence2_column),
    ):
        # A column asked for by name has to exist; a task's own column may also have the plain name.
        sentences[key] = take(_column(names, [column] if explicit else [column, key], where))
    if not sentences["sentence1"]:
        raise ValueError(f"{where} has no rows.")

    keep = range(len(sentences["sentence1"]))
    if data_args.drop_empty_sentences:
        pairs = zip(sentences["sentence1"], sentences["sentence2"], strict=True)
        kept = [row for row, pair in enumerate(pairs) if all(text is not None and str(text).strip() for text in pair)]
        if len(kept) < len(keep):
            logger.warning(f"{where}: left out {len(keep) - len(kept)} pairs with an empty sentence.")
        sentences = {key: [texts[row] for row in kept] for key, texts in sentences.items()}
    else:
        kept = list(keep)
    for key, texts in sentences.items():
        count, row = _first_bad(texts, lambda text: text is None or (isinstance(text, str) and not text.strip()))
        if count:
            raise ValueError(
                f"{where}, row {row}: {key} is empty ({count} such rows). Repair the data, or leave such pairs out "
                "with `drop_empty_sentences`."
            )
        count, row = _first_bad(texts, lambda text: not isinstance(text, str))
        if count:
            raise ValueError(f"{where}, row {row}: {key} is {texts[row]!r}, not a string ({count} such rows).")

    result: dict[str, list] = dict(sentences)
    if require_labels or data_args.label_column in names:
        name = _column(names, [data_args.label_column], where)
        labels = [take(name)[row] for row in kept] if len(kept) < len(keep) else take(name)
        if all(_to_float(label) == -1 for label in labels) and split != "train":
            logger.warning(f"{where}: every label is -1, as in GLUE's hidden test sets; the split has no labels.")
        else:
            result["label"] = _check_labels(labels, task.num_labels, where)
    if "teacher_logits" in names:
        logits = take("teacher_logits")
        result["teacher_logits"] = _check_logits([logits[row] for row in kept], where)
    return Dataset.from_dict(result)


def load_pairs(
    data_args: DataArguments, splits: Sequence[str] | None = None, require_labels: bool = True
) -> DatasetDict:
    """
    Reads sentence pairs and checks every row.

    Args:
        data_args (`DataArguments`):
            Where the pairs are.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to those of train, validation and test that exist. In a local folder every
            readable file is a split named after the file.
        require_labels (`bool`, *optional*, defaults to `True`):
            Whether a missing label column is an error.

    Returns:
        `DatasetDict`: per split the columns `sentence1`, `sentence2`, `label` (a float for a regression, otherwise an
        integer; absent where the labels are hidden) and, where the source has them, `teacher_logits` (a list of
        floats).

    Raises:
        `ValueError`: for an unknown task, a missing column, an empty sentence, or a label that is not a number, is NaN
        or is not a class of the task.
        `FileNotFoundError`: if a file, a folder or a split does not exist.
    """
    task = resolve_task(data_args)
    sources = _sources(data_args, task, splits)
    return DatasetDict(
        {split: _normalize(read(), split, data_args, task, require_labels) for split, read in sources.items()}
    )


def mix_pairs(
    labelled: Dataset, unlabelled: Dataset, labelled_weight: float = 1.0, unlabelled_weight: float = 1.0
) -> Dataset:
    """
    Puts labelled pairs and pairs that only a teacher scored into one training set.

    Args:
        labelled (`Dataset`):
            Pairs as [`load_pairs`] returns them, with `label` and maybe `teacher_logits`.
        unlabelled (`Dataset`):
            Pairs with `teacher_logits`. Labels in it are left out.
        labelled_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of a labelled pair.
        unlabelled_weight (`float`, *optional*, defaults to 1.0):
            Weight of the loss of any other pair.

    Returns:
        `Dataset`: the rows of both with a column `weight`; `label` or `teacher_logits` are `None` where unknown.

    Raises:
        `ValueError`: if the unlabelled pairs have no scores, or a weight is negative.
    """
    if "teacher_logits" not in unlabelled.column_names:
        raise ValueError(
            f"The unlabelled pairs have no column 'teacher_logits', only {', '.join(unlabelled.column_names)}: score "
            "them with `score_pairs` or `hf-dse score`."
        )
    if min(labelled_weight, unlabelled_weight) < 0:
        raise ValueError(f"Weights must not be negative, got {labelled_weight} and {unlabelled_weight}.")
    parts = []
    names = ("sentence1", "sentence2", "label", "teacher_logits")
    for part, weight in ((labelled, labelled_weight), (unlabelled, unlabelled_weight)):
        wanted = [name for name in names if name in part.column_names and (name != "label" or part is labelled)]
        parts.append(part.select_columns(wanted).add_column("weight", [weight] * len(part)))
    return concatenate_datasets(parts)


def lengths(
    dataset: Dataset, processing_class: PreTrainedTokenizerBase, *, max_length: int | None = None, joint: bool = False
) -> Dataset:
    """
    Adds a column `length`, for sampling batches of similar length.

    Args:
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`, *optional*):
            Upper limit of the lengths.
        joint (`bool`, *optional*, defaults to `False`):
            `True` counts the tokens of the encoded pair (cross-encoder), `False` those of the longer sentence.

    Returns:
        `Dataset`: the dataset with the column `length`.
    """

    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    if joint:
        sizes = token_lengths(processing_class, first, second)
    else:
        both = (token_lengths(processing_class, first), token_lengths(processing_class, second))
        sizes = [max(pair) for pair in zip(*both, strict=True)]
    if max_length is not None:
        sizes = [min(size, max_length) for size in sizes]
    if "length" in dataset.column_names:
        dataset = dataset.remove_columns("length")
    return dataset.add_column("length", sizes)


def token_lengths(
    processing_class: PreTrainedTokenizerBase, first: list[str], second: list[str] | None = None
) -> list[int]:
    """Counts tokens of sentences or pairs, special tokens included and nothing truncated."""
    sizes: list[int] = []
    for start in range(0, len(first), 1000):
        part = slice(start, start + 1000)
        # verbose=False: the tokenizer would warn of long sequences that are never given to a model in this form.
        encoded = processing_class(
            first[part], second and second[part], truncation=False, return_attention_mask=False, verbose=False
        )
        sizes += [len(ids) for ids in encoded["input_ids"]]
    return sizes


def _targets(features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    targets = {}
    if "label" in features[0]:
        labels = [feature["label"] for feature in features]
        if all(isinstance(label, int) for label in labels):
            targets["labels"] = torch.tensor(labels)
        else:
            # What is not labelled is NaN: no loss takes it for a label.
            targets["labels"] = torch.tensor([math.nan if label is None else float(label) for label in labels])
    if "teacher_logits" in features[0]:
        scores = [feature["teacher_logits"] for feature in features]
        size = max(len(score or []) for score in scores)
        targets["teacher_logits"] = torch.tensor([score or [math.nan] * size for score in scores])
    if "embeddings" in features[0]:
        targets["embeddings"] = torch.tensor([feature["embeddings"] for feature in features])
    if "weight" in features[0]:
        targets["weights"] = torch.tensor([feature["weight"] for feature in features])
    return targets


class PairCollator:
    """
    Tokenizes the two sentences of each pair on their own, for a bi-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a sentence; `n_truncated` counts the sentences that were cut.

    A call returns `input_ids` and `attention_mask` of shape `(batch_size, 2, seq_len)`, and where the features have
    them `labels` and `weights` of shape `(batch_size,)`, `teacher_logits` of shape `(batch_size, num_labels)` and
    `embeddings` of shape `(batch_size, 2, embedding_size)`.
    Labels and scores that are `None` become NaN.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int):
        self.processing_class = processing_class
        self.max_length = max_length
        self.n_truncated = 0

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        texts = [feature[key] for feature in features for key in ("sentence1", "sentence2")]
        encoded, cut = tokenize(self.processing_class, texts, self.max_length)
        if cut and not self.n_truncated:
            logger.warning(
                f"{cut} of {len(texts)} sentences of this batch are longer than {self.max_length} tokens and were "
                "cut: raise `max_seq_length` if their ends matter. Later ones are only counted."
            )
        self.n_truncated += cut
        batch = pad(self.processing_class, encoded, torch.device("cpu"))
        pairs = {key: batch[key].view(len(features), 2, -1) for key in ("input_ids", "attention_mask")}  # [B, 2, S]
        return pairs | _targets(features)


class CrossEncoderCollator:
    """
    Tokenizes each pair as one sequence, for a cross-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a pair; the longer sentence is cut first.
        swap (`bool`, *optional*, defaults to `False`):
            Whether the sentences of a pair change places with probability 1/2. The random numbers are PyTorch's, so
            a seeded run repeats and both orders are seen over the epochs.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int, swap: bool = False):
        self.processing_class = processing_class
        self.max_length = max_length
        self.swap = swap

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        pairs = [(feature["sentence1"], feature["sentence2"]) for feature in features]
        if self.swap:
            swapped = (torch.rand(len(pairs)) < 0.5).tolist()
            pairs = [pair[::-1] if change else pair for pair, change in zip(pairs, swapped, strict=True)]
        first, second = (list(texts) for texts in zip(*pairs, strict=True))
        encoded = self.processing_class(
            first, second, truncation="longest_first", max_length=self.max_length, padding=True, return_tensors="pt"
        )
        return {**encoded, **_targets(features)}
