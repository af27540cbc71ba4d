# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidate documents: one form for training, mining, scoring and evaluation."""

import math
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any, BinaryIO

import pyarrow.parquet
from datasets import Dataset, Features, Value

from hf_dse.common.files import write_atomically
from hf_dse.data.tables import Columns, check_rows, column_names, find_column, is_filled, to_number, write_rows


# Rows of a written table at a time.
ROWS_PER_WRITE = 1000

FEATURES = {
    "query_id": Value("string"),
    "query": Value("string"),
    "documents": [Value("int64")],
    "labels": [Value("float64")],
    "teacher_logits": [Value("float64")],
}

# The columns of a file, which has texts.
FILE_FEATURES = {
    **FEATURES,
    "document_ids": [Value("string")],
    "documents": [Value("string")],
    "teacher": Value("string"),
}


@dataclass(frozen=True)
class Rankings:
    """
    Queries, each with candidates from a corpus, and their known relevance.

    Args:
        queries (`datasets.Dataset`):
            The columns `query_id`, `query`, `documents` (for each query, the rows of its candidates in the corpus),
            `labels` (the relevance of each candidate: above 0 if it is relevant, 0 if it is not, NaN if unknown) and
            optionally `teacher_logits` (the score of each candidate; NaN if unknown).
        corpus (`datasets.Dataset`):
            The columns `doc_id` and `text`, which begins with the title of a document that has one, and optionally
            `title`.

    [`make_rankings`] makes them of lists and checks these, and [`load_rankings`] reads files and Hub data sets.
    """

    queries: Dataset
    corpus: Dataset

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def has_scores(self) -> bool:
        return "teacher_logits" in self.queries.column_names

    def positives(self) -> list[list[int]]:
        """Returns, for each query, the rows of the documents that are known to be relevant."""
        columns = (self.queries[name][:] for name in ("documents", "labels"))
        return [
            [row for row, label in zip(rows, labels, strict=True) if label > 0]
            for rows, labels in zip(*columns, strict=True)
        ]

    def select(self, rows: Iterable[int]) -> "Rankings":
        """Returns some of the queries with the same corpus."""
        return Rankings(self.queries.select(rows), self.corpus)


def make_rankings(queries: Mapping[str, Any], corpus: Columns, where: str = "The rankings") -> Rankings:
    """
    Makes [`Rankings`] of columns, and checks every row.

    Args:
        queries (`Mapping[str, list]`):
            The columns `query`, `documents` (rows of the corpus) and optionally `query_id` (by default the number of
            the row), `labels` and `teacher_logits`. `None` and NaN are an unknown label or score.
        corpus (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `text` and optionally `doc_id` (by default the number of the row) and `title`. Other columns of
            a data set stay.
        where (`str`, *optional*, defaults to `"The rankings"`):
            The source of the rankings, for the messages.

    Returns:
        [`Rankings`].

    Example:

    ```python
    >>> from hf_dse import make_rankings

    >>> corpus = {"doc_id": ["a", "b"], "text": ["Planes fly by lift.", "Cats purr."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0, 1]], "labels": [[1, 0]]}, corpus)
    >>> rankings.positives()
    [[0]]
    ```
    """
    documents = make_corpus(corpus, where)
    texts = to_lists(queries["query"])
    if not texts:
        raise ValueError(f"{where}: there are no queries.")
    ids = [str(query_id) for query_id in to_lists(queries.get("query_id", range(len(texts))))]
    _check_unique(ids, f"{where}: the query id")
    place = f"{where}, query"
    check_rows(texts, is_filled, place, "the query is {}, not a text", ids)
    lists = [list(rows) for rows in to_lists(queries["documents"])]
    size = len(documents)
    problem = f"the candidates {{}} are not rows of the {size} documents, each once"
    check_rows(lists, lambda rows: len({row for row in rows if 0 <= row < size}) == len(rows), place, problem, ids)
    columns: dict[str, list] = {"query_id": ids, "query": texts, "documents": lists}
    columns["labels"] = [[math.nan] * len(rows) for rows in lists]
    for name in ("labels", "teacher_logits"):
        if queries.get(name) is not None:
            numbers = read_numbers(to_lists(queries[name]), lists, place, name, ids)
            columns[name] = [[math.nan if number is None else number for number in row] for row in numbers]
    features = Features({name: FEATURES[name] for name in columns})
    return Rankings(Dataset.from_dict(columns, features=features), documents)


def read_numbers(
    values: Sequence, candidates: list[list], where: str, name: str, ids: Sequence | None = None
) -> list[list]:
    """Returns a number for each candidate; `None` is unknown, as is NaN, and either in the place of a list."""
    rows = [
        [None] * len(row) if is_unknown(value) else list(value) if is_list(value) else [value]
        for value, row in zip(values, candidates, strict=True)
    ]
    problem = f"{name} and candidates are {{}}: one finite number for each is needed"
    pairs = zip(rows, candidates, strict=True)
    check_rows(pairs, lambda pair: len(pair[0]) == len(pair[1]) and all(map(_is_number, pair[0])), where, problem, ids)
    return [[None if is_unknown(cell) else to_number(cell) for cell in row] for row in rows]


def is_list(value: Any) -> bool:
    return isinstance(value, list | tuple)


def is_unknown(value: Any) -> bool:
    return value is None or value != value


def _is_number(value: Any) -> bool:
    return is_unknown(value) or to_number(value) is not None


def make_corpus(corpus: Columns, where: str) -> Dataset:
    """Returns columns as the checked `corpus` of [`Rankings`]."""
    names = column_names(corpus)
    texts = corpus[find_column(corpus, f"{where}: the corpus", ["text"])][:]
    if not len(texts):
        raise ValueError(f"{where}: the corpus is empty.")
    given = to_lists(corpus["doc_id"][:]) if "doc_id" in names else range(len(texts))
    ids = [str(doc_id) for doc_id in given]
    _check_unique(ids, f"{where}: the document id")
    check_rows(texts, lambda text: isinstance(text, str), f"{where}, document", "the text is {}, not a text", ids)
    if not isinstance(corpus, Dataset):
        columns = {"doc_id": ids} | {name: list(corpus[name]) for name in ("text", "title") if name in names}
        return Dataset.from_dict(columns, features=Features({name: Value("string") for name in columns}))
    corpus = corpus if corpus.format["type"] is None else corpus.with_format(None)
    if list(given) == ids:
        return corpus
    return corpus.select_columns([name for name in names if name != "doc_id"]).add_column("doc_id", ids)


def to_lists(values: Any) -> list:
    """Returns a column with lists and numbers in the place of arrays and tensors."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def fold(text: str) -> str:
    """Returns a text in lower case and with single spaces."""
    return " ".join(text.lower().split())


def check_positives(rankings: Rankings, where: str = "The rankings") -> None:
    """Raises a `ValueError` if a query has no relevant document."""
    without = [row for row, positives in enumerate(rankings.positives()) if not positives]
    if without:
        query_id = rankings.queries["query_id"][without[0]]
        raise ValueError(
            f"{where}: {len(without)} of {len(rankings)} queries have no relevant document (a label above 0), the "
            f"first is {query_id!r}: remove them, or train on the teacher's scores only."
        )


def _check_unique(ids: Sequence[str], what: str) -> None:
    if len(set(ids)) < len(ids):
        twice = Counter(ids).most_common(1)[0][0]
        raise ValueError(f"{what} {twice!r} occurs twice: ids name one text each.")


def ranking_rows(rankings: Rankings) -> dict[str, list]:
    """
    Returns rankings as rows with texts, which sentence-transformers and [`read_rankings`] read: `query_id`, `query`,
    `document_ids`, `documents` (texts), `labels` and, if there are scores, `teacher_logits`. Unknown labels and scores
    are `None`.
    """
    queries = rankings.queries
    columns: dict[str, list] = {name: queries[name][:] for name in ("query_id", "query")}
    lists = queries["documents"][:]
    needed = sorted({row for rows in lists for row in rows})
    found = rankings.corpus.select(needed)
    for name, source in (("document_ids", "doc_id"), ("documents", "text")):
        values = dict(zip(needed, found[source][:], strict=True))
        columns[name] = [[values[row] for row in rows] for rows in lists]
    for name in ("labels", "teacher_logits"):
        if name in queries.column_names:
            columns[name] = [[None if math.isnan(value) else value for value in row] for row in queries[name][:]]
    return columns


def write_rankings(rankings: Rankings, path: Path, teacher: str | None = None) -> None:
    """
    Writes rankings atomically as rows with texts, JSON lines or parquet by the ending of the file. `teacher`, a column
    of this name, says which model scored them and how.
    """

    def read_rows(start: int) -> Dataset:
        part = rankings.select(range(start, min(start + ROWS_PER_WRITE, len(rankings))))
        columns = ranking_rows(part) | ({} if teacher is None else {"teacher": [teacher] * len(part)})
        return Dataset.from_dict(columns, features=Features({name: FILE_FEATURES[name] for name in columns}))

    def write(file: BinaryIO) -> None:
        with pyarrow.parquet.ParquetWriter(file, read_rows(0).features.arrow_schema, compression="zstd") as writer:
            for part in parts:
                writer.write_table(part.data.table)

    parts = (read_rows(start) for start in range(0, len(rankings), ROWS_PER_WRITE))
    if path.suffix == ".parquet":
        write_atomically(path, write)
    else:
        write_rows((row for part in parts for row in part), path)
