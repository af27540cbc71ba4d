# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Local tables. csv and JSON are read here and not with `load_dataset`, which changes values silently: in csv "007"
becomes the number 7, "NA" becomes `None`, and a row with one cell too many loses the first; in JSON a text such as
"2020-01-01" becomes a time.
"""

import ast
import csv
import io
import json
import math
import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from contextlib import suppress
from itertools import chain
from os import PathLike
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
# A text of white space, and of characters that nobody sees.
BLANK = re.compile(r"[\s\x00-\x1f\x7f-\x9f\xad\u061c\u180e\u200b-\u200f\u2028-\u202e\u2060-\u2069\ufeff]*")
# What is left of a character that could not be decoded.
HALF = re.compile("[\ud800-\udfff]")
# A cell with a list, and one with texts in quotation marks.
LIST = re.compile(r"\s*\[.*\]\s*", re.DOTALL)
QUOTED_LIST = re.compile(r"\s*\[\s*['\"].*['\"]\s*\]\s*", re.DOTALL)
ROWS_PER_WRITE = 1000
# Columns by name. A data set keeps types that Python lacks, such as nanoseconds.
Columns: TypeAlias = Union[Mapping[str, list], "Dataset"]
# A file, or what it would hold.
Source: TypeAlias = Union[str, PathLike, "Dataset"]


def read_text(path: Path, newline: str | None = None) -> str:
    """Returns the text of a file, without a byte order mark."""
    try:
        with path.open(encoding="utf-8-sig", newline=newline) as file:
            text = file.read()
    except UnicodeDecodeError as error:
        raise ValueError(f"{path}: not a text in UTF-8: {error}. Convert it, or decompress it.") from error
    # UTF-16 without its mark has one after each letter.
    if "\0" in text[:100]:
        raise ValueError(f"{path}: not a text in UTF-8: it has the character NUL. Convert it.")
    return text


def _read_csv(path: Path) -> dict[str, list]:
    text = read_text(path, newline="")
    if path.suffix.lower() != ".tsv":
        return _parse_csv(path, text)
    # Most programs quote cells, but in the queries of MS MARCO quotation marks are text: then the cells do not fit, or
    # one goes from a quotation mark to another, over tabs.
    with suppress(ValueError):
        columns = _parse_csv(path, text, delimiter="\t")
        if not any("\t" in cell for cells in (columns, *columns.values()) for cell in cells):
            return columns
    return _parse_csv(path, text, delimiter="\t", quoting=csv.QUOTE_NONE)


def _parse_csv(path: Path, text: str, **style: Any) -> dict[str, list]:
    reader = csv.reader(io.StringIO(text, newline=""), strict=True, **style)
    rows: list[list[str]] = []
    try:
        for row in filter(None, reader):
            rows.append(row)
            if len(row) != len(rows[0]):
                raise ValueError(f"{len(row)} cells, and {len(rows[0])} in the header")
            if len(rows) == 1 and len(set(row)) < len(row):
                raise ValueError(f"two columns have one name: {', '.join(row)}")
    except (csv.Error, ValueError) as error:
        raise ValueError(f"{path}, line {reader.line_num}: not valid csv: {error}.") from error
    return {name: cells for name, *cells in zip(*rows, strict=True)}


def _read_lists(cells: list[str], where: str) -> list:
    """Cells that are all lists in JSON or Python, or empty, as these lists, and others as they are."""
    if not any(cells) or not all(cell == "" or LIST.fullmatch(cell) for cell in cells):
        return cells
    lists = []
    for row, cell in enumerate(cells):
        value: Any = None
        with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
            value = json.loads(cell or "null")
        if value is None and cell:
            with suppress(ValueError, SyntaxError, RecursionError, MemoryError):
                value = ast.literal_eval(cell)
            # In Python, two texts without a comma between, as numpy prints them, would be one.
            value = value if repr(value) == cell.strip() else None
        if value is None and cell and not QUOTED_LIST.fullmatch(cell):
            return cells
        if value is None and cell:
            raise ValueError(
                f"{where}, row {row}: {shorten(cell)} is a list that csv cannot hold: write jsonl or parquet."
            )
        lists.append(value)
    return lists


def _to_object(pairs: list[tuple[str, Any]]) -> dict[str, Any]:
    """An object of JSON, where `json` would keep the last of two values with one name."""
    found = dict(pairs)
    if len(found) < len(pairs):
        names = [name for name, _ in pairs]
        raise ValueError(f"duplicate key {next(name for name in found if names.count(name) > 1)!r}")
    return found


def _read_json(path: Path) -> dict[str, list]:
    text = read_text(path)
    # One list, or one object per line. Not `splitlines`, which also splits at characters inside JSON strings.
    documents = [text] if text.lstrip().startswith("[") else text.split("\n")
    rows: list = []
    for number, document in enumerate(documents, start=1):
        try:
            if document.strip():
                rows.append(json.loads(document, object_pairs_hook=_to_object))
                if "\\u" in document:
                    json.dumps(rows[-1], ensure_ascii=False).encode()
        except (ValueError, RecursionError) as error:
            problem = "half of a character" if isinstance(error, UnicodeEncodeError) else "not valid JSON"
            raise ValueError(f"{path}, line {number}: {problem}: {error}.") from error
    if len(rows) == 1 and isinstance(rows[0], list):
        rows = rows[0]
    if not all(isinstance(row, dict) for row in rows):
        raise ValueError(f"{path}: every row must be a JSON object with named columns.")
    names = dict.fromkeys(name for row in rows for name in row)
    return {name: [row.get(name) for row in rows] for name in names}


def open_table(source: Source) -> Columns:
    """
    Returns a local table: a data set for a parquet file, otherwise a dictionary. Cells of csv files stay texts, but
    for columns of lists. A data set is returned as it is.
    """
    if not isinstance(source, str | PathLike):
        return source
    path = to_path(source)
    ending = path.suffix.lower()
    if ending not in READERS:
        raise ValueError(f"{path}: unsupported ending {path.suffix!r}; supported are {', '.join(READERS)}.")
    if ending == ".parquet":
        from datasets import Dataset

        # Not `pyarrow.parquet.read_table`, which also makes columns of the names of folders.
        try:
            with pyarrow.parquet.ParquetFile(path) as file:
                return Dataset(file.read())
        except (pyarrow.ArrowException, OSError) as error:
            raise ValueError(f"{path}: not a readable parquet file: {error}") from error
    is_csv = ending in (".csv", ".tsv")
    columns = _read_csv(path) if is_csv else _read_json(path)
    if not columns:
        raise ValueError(f"{path} has no columns: the file is empty.")
    return {name: _read_lists(cells, f"{path}, {name}") for name, cells in columns.items()} if is_csv else columns


def column_names(columns: Columns) -> list[str]:
    """Returns the names of the columns of a table in memory."""
    return list(getattr(columns, "column_names", columns))


def find_column(columns: Columns, where: str | Path, wanted: Sequence[str], advice: str = "Rename it.") -> str:
    """Returns the first of the wanted names that a table has; raises a `ValueError` if it has none."""
    names = column_names(columns)
    found = next((name for name in wanted if name in names), None)
    if found is None:
        options = " or ".join(map(repr, dict.fromkeys(wanted)))
        raise ValueError(f"{where}: there is no column {options}; the columns are {', '.join(names)}. {advice}")
    return found


def check_rows(
    values: Iterable, is_good: Callable[[Any], bool], where: str, problem: str, names: Sequence | None = None
) -> None:
    """Raises a `ValueError` that names the first bad row, by `names` or its number; `{}` in `problem` is its value."""
    for row, value in enumerate(values):
        if not is_good(value):
            place = f", row {row}" if names is None else f" {names[row]!r}"
            raise ValueError(f"{where}{place}: {problem.format(shorten(value))}.")


def check_texts(texts: Sequence, where: str | Path, column: str) -> None:
    """Raises a `ValueError` if a text of a column is not a string, or cannot be written, so that nothing reads it."""
    check_rows(texts, lambda text: isinstance(text, str), str(where), f"{column} is {{}}, not a string")
    half = f"{column} is {{}}, with half of a character: decode it with `errors='replace'`"
    check_rows(texts, lambda text: text.isascii() or HALF.search(text) is None, str(where), half)


def is_filled(text: Any) -> bool:
    """Returns whether a value is a text that is not blank: somebody sees something of it."""
    return isinstance(text, str) and BLANK.fullmatch(text) is None


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


def to_python(table: Columns | pyarrow.Table) -> dict[str, list]:
    """Returns columns with values of Python; times are texts, because Python has no nanoseconds and no year 10,000."""
    if isinstance(table, Mapping):
        return dict(table)
    table = table if isinstance(table, pyarrow.Table) else table.with_format("arrow")[:]
    for place, field in enumerate(table.schema):
        if pyarrow.types.is_timestamp(field.type) or pyarrow.types.is_time(field.type):
            table = table.set_column(place, field.name, table[place].cast(pyarrow.string()))
    return table.to_pydict()


def to_json(row: Any) -> bytes:
    """Returns a row as a line of JSON, which has no NaN and no infinity. Other types than its own are texts."""
    row = json.loads(json.dumps(row, default=str), parse_constant=lambda _: None)
    # Names of files may have bytes that are not characters.
    return f"{json.dumps(row, ensure_ascii=False)}\n".encode(errors="backslashreplace")


def to_table(columns: Columns, where: str | Path) -> pyarrow.Table:
    """
    Returns columns as a table that a parquet file can hold; those of a data set keep their types. Objects with other
    keys in each row, or with none as the `metadata` of BEIR, are texts in JSON: Arrow would give each the keys of all.
    """
    if not isinstance(columns, Mapping):
        return columns.with_format("arrow")[:]
    arrays = {}
    for name, values in columns.items():
        try:
            arrays[name] = pyarrow.array(values)
            kind = str(arrays[name].type)
            is_same = "struct<" not in kind or ("struct<>" not in kind and arrays[name].to_pylist() == values)
        except (pyarrow.ArrowException, OverflowError) as error:
            if not any(isinstance(value, dict | list) for value in values):
                raise ValueError(
                    f"{where}: the column {name!r} has values of several types: {error}. Write all as texts, or all "
                    "as numbers."
                ) from error
            is_same = False
        if not is_same:
            arrays[name] = pyarrow.array([None if value is None else json.dumps(value) for value in values])
    return pyarrow.table(arrays)


def write_table(parts: Iterable["Dataset"], path: Path) -> None:
    """Writes parts of a data set atomically, as JSON lines or parquet by the ending of the file."""
    tables = (table for part in parts for table in part.with_format("arrow").iter(ROWS_PER_WRITE))

    def write_parquet(file: BinaryIO) -> None:
        first = next(tables)
        with pyarrow.parquet.ParquetWriter(file, first.schema, compression="zstd") as writer:
            for table in chain([first], tables):
                writer.write_table(table)

    def write_lines(file: BinaryIO) -> None:
        # `Dataset.to_json` would round numbers to ten digits.
        for columns in map(to_python, tables):
            rows = zip(*columns.values(), strict=True)
            file.writelines(to_json(dict(zip(columns, row, strict=True))) for row in rows)

    write_atomically(path, write_parquet if path.suffix == ".parquet" else write_lines)
