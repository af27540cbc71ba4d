# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Local files of texts and tables."""

import csv
import io
import json
import re
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pyarrow
import pyarrow.parquet

from hf_dse.common.files import to_path, write_atomically


if TYPE_CHECKING:
    from datasets import Dataset


# A cell may hold a whole document; csv stops at 131,072 characters.
csv.field_size_limit(2**31 - 1)


def read_text(path: Path, newline: str | None = None) -> str:
    """The text of a file, without a byte order mark."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text in UTF-8: {error}. Convert it, or decompress it.") from error


def _read_csv(path: Path) -> dict[str, list]:
    # All cells stay strings: a sentence "NA" must not become a missing value, nor "007" the number 7.
    reader = csv.DictReader(io.StringIO(read_text(path, newline=""), newline=""), strict=True)
    try:
        names = list(reader.fieldnames or [])
        _check_unique(names, path)
        columns: dict[str, list] = {name: [] for name in names}
        for row in reader:
            if None in row or None in row.values():
                raise ValueError(f"{path}, line {reader.line_num}: expected {len(columns)} cells, as in the header.")
            for name, value in row.items():
                columns[name].append(value)
    except csv.Error as error:
        raise ValueError(f"{path}, line {reader.line_num}: not valid csv: {error}.") from error
    return columns


def _read_json(path: Path) -> dict[str, list]:
    text = read_text(path)
    # One list, or one object per line. Not `splitlines`, which also splits at characters inside JSON strings.
    documents = [text] if text.lstrip().startswith("[") else text.split("\n")
    rows: list = []
    for number, document in enumerate(documents, start=1):
        try:
            if document.strip():
                rows.append(parse_json(document))
        except ValueError as error:
            raise ValueError(f"{path}, line {number}: not valid JSON: {error}.") from error
    if len(documents) == 1 and len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: every row must be a JSON object with named columns.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def parse_json(document: str) -> Any:
    """The value of a JSON document; a `ValueError` if it has none, or one that is no data."""
    try:
        value = json.loads(document, object_pairs_hook=_unique_names)
    except RecursionError:
        raise ValueError("lists or objects are nested too deeply") from None
    # Half of a surrogate pair, such as "\\ud800", is JSON, but no character.
    if re.search(r"\\u[dD][89a-fA-F]", document):
        json.dumps(value, ensure_ascii=False).encode()
    return value


def _unique_names(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    row = dict(pairs)
    if len(row) < len(pairs):
        raise ValueError(f"an object has the name {Counter(name for name, _ in pairs).most_common(1)[0][0]!r} twice")
    return row


def _read_parquet(path: Path) -> dict[str, list]:
    return to_columns(read_table(path), path)


def read_table(path: Path, columns: list[str] | None = None) -> pyarrow.Table:
    """The table of a parquet file, or some of its columns; raises a `ValueError` if it is invalid."""
    # Not `read_table`, which also makes columns of the names of folders.
    with _reading_parquet(path), pyarrow.parquet.ParquetFile(path) as file:
        names, table = file.schema_arrow.names, file.read(columns)
    _check_unique(names, path)
    return table


def read_batches(path: Path, columns: list[str]) -> Iterator[pyarrow.RecordBatch]:
    """A parquet file in parts, with the errors of [`read_table`]."""
    with _reading_parquet(path), pyarrow.parquet.ParquetFile(path) as file:
        yield from file.iter_batches(columns=columns)


def to_columns(table: pyarrow.Table, path: Path) -> dict[str, list]:
    """The columns of a table that was read from `path`, as values of Python."""
    with _reading_parquet(path):
        return table.to_pydict()


@contextmanager
def _reading_parquet(path: Path) -> Iterator[None]:
    try:
        yield
    # OverflowError: dates and durations beyond those of Python.
    except (pyarrow.ArrowException, OSError, OverflowError, ValueError) as error:
        raise ValueError(f"{path}: not a readable parquet file: {error}") from error


def table_remedy(value: Any, otherwise: str = "convert it with `Dataset.from_list`") -> str:
    """What makes a `datasets.Dataset` of something else, for the messages of errors."""
    if isinstance(value, Mapping) and any(hasattr(part, "column_names") for part in value.values()):
        return f"pass one of its splits: {', '.join(map(str, value))}"
    if isinstance(value, Mapping):
        return "convert it with `Dataset.from_dict`"
    if "Iterable" in type(value).__name__ or not hasattr(value, "__len__"):
        return "load it without `streaming=True`, or write it to disk once with `Dataset.from_generator`"
    return otherwise


def missing_column(where: str | Path, name: str, columns: Iterable[str], advice: str) -> ValueError:
    """The error of a table without a column."""
    return ValueError(f"{where}: there is no column {name!r}; the columns are {', '.join(columns)}. {advice}")


def _check_unique(names: list[str], path: Path) -> None:
    for name, number in Counter(names).most_common(1):
        if number > 1:
            raise ValueError(f"{path} has {number} columns {name!r}: rename or remove all but one.")


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
        `dict[str, list]`: the columns in the order of the file; cells of a csv file stay strings.

    Raises:
        `FileNotFoundError`: if there is no such file.
        `ValueError`: for an unsupported ending or invalid content.
    """
    path = to_path(path)
    if path.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unsupported ending {path.suffix!r}; supported are {', '.join(READERS)}.")
    if not path.is_file():
        raise FileNotFoundError(f"{path}: there is no such file.")
    columns = READERS[path.suffix.lower()](path)
    if not columns:
        raise ValueError(f"{path} has no columns: the file is empty.")
    return columns


# Names of the column of a document's text.
TEXT = ("text", "contents", "body")


def find_columns(columns: dict[str, list], where: str, *wanted: Sequence[str]) -> list[str]:
    """Of each group of names the first that a table has; raises a `ValueError` if it has none of a group."""
    missing = [group for group in wanted if not any(name in columns for name in group)]
    if missing:
        advice = " and ".join(f"one to {', '.join(group[:-1])} or {group[-1]}" for group in missing)
        raise missing_column(where, missing[0][0], columns, f"Rename {advice}.")
    return [next(name for name in group if name in columns) for group in wanted]


def find_table(folder: Path, name: str) -> Path | None:
    """The table of a folder with this name and any ending, such as the `corpus` of BEIR."""
    return next((path for ending in READERS if (path := folder / f"{name}{ending}").is_file()), None)


def join_titles(columns: dict[str, list], where: str) -> list:
    """The texts of documents, each after its title if there are titles, as BEIR does it."""
    (name,) = find_columns(columns, where, TEXT)
    texts = list(columns[name])
    if not any(columns.get("title", [])):
        return texts
    parts = zip(columns["title"], texts, strict=True)
    return [" ".join("" if part is None else str(part) for part in pair).strip() for pair in parts]


def find_texts(folder: Path) -> list[Path]:
    """The .txt and .md files of a folder that are not hidden, by their relative paths."""
    names = sorted(name.relative_to(folder) for name in folder.rglob("*") if name.suffix.lower() in (".txt", ".md"))
    names = [name for name in names if not any(part.startswith(".") for part in name.parts)]
    # Reading a pipe waits for ever.
    return [name for name in names if (folder / name).is_file()]


def read_texts(path: str | Path, text_column: str = "text") -> dict[str, list]:
    """
    Reads texts: sentences or documents.

    Args:
        path (`str` or `Path`):
            A .txt file with one text per line, a table with named columns, a folder with one text per .txt or .md
            file, or a folder in the layout of BEIR, whose `corpus` is read (csv, json, jsonl or parquet).
        text_column (`str`, *optional*, defaults to `"text"`):
            The column of the texts, also in the result for files without columns. The `"text"` of a folder in the
            layout of BEIR begins with the title where there is one; other columns are as they are.

    Returns:
        `dict[str, list]`: the columns of the file; for a folder the texts and the column `file`, their relative paths.

    Raises:
        `ValueError`: for an unsupported ending, a missing column, or a text that is not a string.
        `FileNotFoundError`: if the file does not exist, or the folder has no text files.
    """
    file = to_path(path)
    table = find_table(file, "corpus")
    if table is not None and text_column != "text":
        return read_texts(table, text_column)
    if table is not None:
        columns = read_columns(table)
        columns[text_column] = join_titles(columns, str(table))
        check_texts(columns[text_column], table, text_column)
        return columns
    if file.is_dir():
        names = find_texts(file)
        if not names:
            raise FileNotFoundError(f"{path}: there are no .txt or .md files in this folder, and no corpus.jsonl.")
        texts = [read_text(file / name) for name in names]
        return {"file": [name.as_posix() for name in names], text_column: texts}
    if file.suffix.lower() == ".txt":
        if not file.is_file():
            raise FileNotFoundError(f"{path}: there is no such file.")
        # Not `splitlines`, which also splits at other characters. The last line may have no line break.
        lines = read_text(file).removesuffix("\n").split("\n")
        return {text_column: [] if lines == [""] else lines}
    if not file.suffix and not file.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder.")
    if file.suffix.lower() not in READERS:
        raise ValueError(f"{path}: unsupported ending {file.suffix!r}; supported are .txt, {', '.join(READERS)}.")
    columns = read_columns(file)
    if text_column not in columns:
        advice = "Choose one with `--text_column`, in Python `text_column`."
        raise missing_column(path, text_column, columns, advice)
    check_texts(columns[text_column], path, text_column)
    return columns


def check_texts(texts: list, path: str | Path, text_column: str) -> None:
    """Raises a `ValueError` if a text of a file is not a string."""
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"{path}, row {row}: {text_column} is {text!r}, not a string.")


OUTPUT_ENDINGS = (".jsonl", ".parquet")


def write_pairs(pairs: "Dataset", path: Path) -> None:
    """Writes pairs atomically, as JSON lines or parquet by the ending of the file."""
    if path.suffix == ".parquet":
        write_atomically(path, pairs.to_parquet)
    else:
        # Other columns may have dates.
        lines = (json.dumps(row, ensure_ascii=False, default=str) + "\n" for row in pairs)
        write_atomically(path, lambda file: file.writelines(line.encode() for line in lines))


def read_schema(path: Path) -> pyarrow.Schema:
    """The schema of a parquet file; raises a `ValueError` if it is invalid."""
    with _reading_parquet(path):
        return pyarrow.parquet.read_schema(path)
