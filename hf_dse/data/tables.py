# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Local tables. csv and JSON are read here and not with `load_dataset`, which changes values silently: in csv "007"
becomes the number 7, "NA" becomes `None`, and a row with one cell too many loses the first; in JSON a text such as
"2020-01-01" becomes a time.
"""

import csv
import io
import json
import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from pathlib import Path
from typing import TYPE_CHECKING, Any, BinaryIO, TypeAlias, Union

import pyarrow
import pyarrow.parquet

from hf_dse.common.files import to_path, write_atomically


# For help, which needs this module, datasets takes too long to import.
if TYPE_CHECKING:
    from datasets import Dataset

# csv stops at 131,072 characters.
csv.field_size_limit(2**31 - 1)

READERS = (".csv", ".tsv", ".json", ".jsonl", ".parquet")

OUTPUT_ENDINGS = (".jsonl", ".parquet")

ROWS_PER_WRITE = 1000

# Columns by name. A data set keeps types that Python lacks, such as nanoseconds.
Columns: TypeAlias = Union[Mapping[str, list], "Dataset"]


def read_text(path: Path, newline: str | None = None) -> str:
    """Returns the text of a file, without a byte order mark."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            return file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text in UTF-8: {error}. Convert it, or decompress it.") from error


def _read_csv(path: Path) -> dict[str, list]:
    # In a tsv file quotation marks are text, as in the queries of MS MARCO.
    style: dict[str, Any] = {"delimiter": "\t", "quoting": csv.QUOTE_NONE} if path.suffix.lower() == ".tsv" else {}
    reader = csv.reader(io.StringIO(read_text(path, newline=""), newline=""), strict=True, **style)
    names: list[str] = []
    rows = []
    try:
        for row in filter(None, reader):
            names = names or row
            if len(row) != len(names):
                raise ValueError(f"{len(row)} cells, and {len(names)} in the header")
            if len(set(names)) < len(names):
                raise ValueError(f"two columns have one name: {', '.join(names)}")
            rows.append(row)
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path}, line {reader.line_num}: not valid csv: {error}.") from error
    return {name: [row[column] for row in rows[1:]] for column, name in enumerate(names)}


def _read_json(path: Path) -> dict[str, list]:
    text = read_text(path)
    # One list, or one object per line. Not `splitlines`, which also splits at characters inside JSON strings.
    documents = [text] if text.lstrip().startswith("[") else text.split("\n")
    rows: list = []
    for number, document in enumerate(documents, start=1):
        try:
            if document.strip():
                rows.append(json.loads(document))
        except (ValueError, RecursionError) as error:
            raise ValueError(f"{path}, line {number}: not valid JSON: {error}.") from error
    if len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: every row must be a JSON object with named columns.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def read_table(path: Path) -> pyarrow.Table:
    """Returns a parquet file."""
    # Not `pyarrow.parquet.read_table`, which also makes columns of the names of folders.
    try:
        with pyarrow.parquet.ParquetFile(path) as file:
            return file.read()
    except (pyarrow.ArrowException, OSError) as error:
        raise ValueError(f"{path}: not a readable parquet file: {error}") from error


def open_table(path: str | Path) -> Columns:
    """Returns a local table: a data set for a parquet file, otherwise a dictionary. Cells of csv files stay texts."""
    path = to_path(path)
    ending = path.suffix.lower()
    if ending not in READERS:
        raise ValueError(f"{path}: unsupported ending {path.suffix!r}; supported are {', '.join(READERS)}.")
    if ending == ".parquet":
        from datasets import Dataset

        return Dataset(read_table(path))
    columns = _read_csv(path) if ending in (".csv", ".tsv") else _read_json(path)
    if not columns:
        raise ValueError(f"{path} has no columns: the file is empty.")
    return columns


def read_columns(path: str | Path) -> dict[str, list]:
    """Returns a local table as [`open_table`] does, with values of Python."""
    columns = open_table(path)
    return {name: columns[name][:] for name in column_names(columns)}


def column_names(columns: Columns) -> list[str]:
    """Returns the names of the columns of a table in memory."""
    return list(getattr(columns, "column_names", columns))


def find_column(columns: Columns, where: str | Path, wanted: Sequence[str], advice: str = "Rename it.") -> str:
    """Returns the first of the wanted names that a table has; raises a `ValueError` if it has none."""
    names = column_names(columns)
    found = next((name for name in wanted if name in names), None)
    if found is None:
        others = "".join(f" or {name!r}" for name in dict.fromkeys(wanted[1:]) if name != wanted[0])
        raise ValueError(
            f"{where}: there is no column {wanted[0]!r}{others}; the columns are {', '.join(names)}. {advice}"
        )
    return found


def find_table(folder: Path, name: str) -> Path | None:
    """Returns the table of a folder with this name and any ending, such as the `corpus` of BEIR."""
    return next((path for ending in READERS if (path := folder / f"{name}{ending}").is_file()), None)


def check_rows(
    values: Iterable, is_good: Callable[[Any], bool], where: str, problem: str, names: Sequence | None = None
) -> None:
    """Raises a `ValueError` that names the first bad row, by `names` or its number; `{}` in `problem` is its value."""
    for row, value in enumerate(values):
        if not is_good(value):
            place = f", row {row}" if names is None else f" {names[row]!r}"
            raise ValueError(f"{where}{place}: {problem.format(shorten(value))}.")


def check_texts(texts: Sequence, where: str | Path, column: str) -> None:
    """Raises a `ValueError` if a text of a column is not a string."""
    check_rows(texts, lambda text: isinstance(text, str), str(where), f"{column} is {{}}, not a string")


def is_filled(text: Any) -> bool:
    """Returns whether a value is a text that is not blank."""
    return isinstance(text, str) and bool(text.strip())


def shorten(value: Any) -> str:
    """Returns a value as a message shows it."""
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


def to_number(value: Any) -> float | None:
    """Returns a number, or a text that is one, as a finite number; `None` for other values."""
    with suppress(TypeError, ValueError, OverflowError):
        number = float(value)
        return number if math.isfinite(number) else None
    return None


def write_table(parts: Iterable["Dataset"], path: Path) -> None:
    """Writes parts of a data set atomically, as JSON lines or parquet by the ending of the file."""

    def write_parquet(file: BinaryIO) -> None:
        tables = (table for part in parts for table in part.with_format("arrow").iter(ROWS_PER_WRITE))
        first = next(tables)
        with pyarrow.parquet.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write_table(table)

    def write_lines(file: BinaryIO) -> None:
        # `Dataset.to_json` would round numbers to ten digits. Other columns may have dates.
        for row in chain.from_iterable(parts):
            file.write(f"{json.dumps(row, ensure_ascii=False, default=str)}\n".encode())

    write_atomically(path, write_parquet if path.suffix == ".parquet" else write_lines)
