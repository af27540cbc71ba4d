# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidate documents: one form for training, mining, scoring and evaluation."""

import json
import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from numbers import Real
from pathlib import Path
from typing import Any
from weakref import WeakSet

import pyarrow
import pyarrow.parquet
from datasets import Dataset, Features, IterableDataset, Value
from transformers.utils import logging

from hf_dse.common.files import write_atomically
from hf_dse.data.tables import table_remedy


logger = logging.get_logger(__name__)

# Rows of a written table at a time.
ROWS_PER_WRITE = 1000

# Corpora that are not checked again.
_CHECKED: WeakSet[Dataset] = WeakSet()


@dataclass(frozen=True)
class Rankings:
    """
    Queries, each with candidates from a corpus, and what is known of how relevant they are.

    Args:
        queries (`datasets.Dataset`):
            The columns `query_id`, `query`, `documents` (for each query, the rows of its candidates in the corpus),
            `labels` (the relevance of each candidate: above 0 if it is relevant, 0 if it is not, NaN if unknown) and
            optionally `teacher_logits` (the score of each candidate; NaN if unknown) and `evidence` (passages of the
            relevant documents that answer the query; none if unknown).
        corpus (`datasets.Dataset`):
            The columns `doc_id` and `text`, which begins with the title of a document that has one, and optionally
            `title`.

    [`make_rankings`] makes them of lists and checks these, [`read_rankings`] of rows in the formats of other
    libraries, and [`load_rankings`] of files and Hub data sets.
    """

    queries: Dataset
    corpus: Dataset

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def has_scores(self) -> bool:
        return "teacher_logits" in self.queries.column_names

    @property
    def has_evidence(self) -> bool:
        return "evidence" in self.queries.column_names

    def positives(self) -> list[list[int]]:
        """For each query, the rows of the documents that are known to be relevant."""
        columns = (self.queries[name][:] for name in ("documents", "labels"))
        return [
            [row for row, label in zip(rows, labels, strict=True) if label > 0]
            for rows, labels in zip(*columns, strict=True)
        ]

    def select(self, rows: Iterable[int]) -> "Rankings":
        """The same corpus with some of the queries."""
        return Rankings(self.queries.select(rows), self.corpus)


FEATURES = {
    "query_id": Value("string"),
    "query": Value("string"),
    "documents": [Value("int64")],
    "labels": [Value("float64")],
    "teacher_logits": [Value("float64")],
    "evidence": [Value("string")],
}


def make_rankings(
    queries: Mapping[str, list], corpus: Mapping[str, list] | Dataset, where: str = "The rankings"
) -> Rankings:
    """
    Makes [`Rankings`] of columns, and checks every row.

    Args:
        queries (`Mapping[str, list]`):
            The columns `query`, `documents` (rows of the corpus) and optionally `query_id` (by default the number of
            the row), `labels`, `teacher_logits` and `evidence`, a list of texts for each query. `None` is an unknown
            label or score.
        corpus (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `text` and optionally `doc_id` (by default the number of the row) and `title`. A data set is
            checked once; its other columns stay.
        where (`str`, *optional*, defaults to `"The rankings"`):
            Where they are from, for the messages.

    Returns:
        [`Rankings`].

    Raises:
        `TypeError`: for a corpus that is no table in memory, such as a streaming data set.
        `ValueError`: for an empty corpus, no queries, a query or a document that is not a text, an id that occurs
        twice, a candidate that is not in the corpus or twice in the list of a query, lists of different lengths, and
        labels or scores that are not finite numbers.

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
    if not len(queries["query"]):
        raise ValueError(f"{where}: there are no queries.")
    query_ids = [str(query_id) for query_id in to_lists(queries.get("query_id", range(len(queries["query"]))))]
    check_unique(query_ids, f"{where}: the query id")
    check_texts(queries["query"], f"{where}: query", query_ids)
    columns: dict[str, list] = {"query_id": query_ids, "query": list(queries["query"])}
    columns["documents"] = [list(rows) for rows in to_lists(queries["documents"])]
    for query_id, rows in zip(query_ids, columns["documents"], strict=True):
        wrong = [row for row in rows if not 0 <= row < len(documents)]
        if wrong:
            raise ValueError(
                f"{where}, query {query_id!r}: row {wrong[0]} is not one of the {len(documents)} documents."
            )
        if len(set(rows)) < len(rows):
            twice = next(row for number, row in enumerate(rows) if row in rows[:number])
            raise ValueError(
                f"{where}, query {query_id!r}: the document {documents['doc_id'][twice]!r} is twice among its "
                "candidates: keep one."
            )
    for name in ("labels", "teacher_logits"):
        if queries.get(name) is not None:
            columns[name] = _check_numbers(name, to_lists(queries[name]), columns["documents"], query_ids, where)
        elif name == "labels":
            columns[name] = [[math.nan] * len(rows) for rows in columns["documents"]]
    if queries.get("evidence") is not None:
        columns["evidence"] = [list(texts) for texts in to_lists(queries["evidence"])]
        for query_id, texts in zip(query_ids, columns["evidence"], strict=True):
            check_texts(texts, f"{where}, query {query_id!r}: evidence", range(len(texts)))
    return Rankings(
        Dataset.from_dict(columns, features=Features({name: FEATURES[name] for name in columns})), documents
    )


def make_corpus(corpus: Mapping[str, list] | Dataset, where: str) -> Dataset:
    """The `corpus` of [`Rankings`] of columns, which are checked."""
    check_table(corpus, f"{where}: the corpus is")
    names = corpus.column_names if isinstance(corpus, Dataset) else list(corpus)
    if names and "text" not in names:
        raise ValueError(
            f"{where}: the corpus has no column 'text'; the columns are {', '.join(names)}: rename the one "
            "that has the documents."
        )
    if not names or not len(corpus["text"]):
        raise ValueError(f"{where}: the corpus is empty.")
    if isinstance(corpus, Dataset):
        return _check_dataset(corpus, where)
    ids = [str(doc_id) for doc_id in corpus.get("doc_id", range(len(corpus["text"])))]
    check_unique(ids, f"{where}: the document id")
    check_texts(corpus["text"], f"{where}: document", ids, can_be_blank=True)
    texts = {"doc_id": ids} | {name: list(corpus[name]) for name in ("text", "title") if name in corpus}
    made = Dataset.from_dict(texts, features=Features({name: Value("string") for name in texts}))
    _CHECKED.add(made)
    return made


def _check_dataset(corpus: Dataset, where: str) -> Dataset:
    """A corpus with ids that are texts; its own texts are not read where their type says that they are texts."""
    if corpus in _CHECKED:
        return corpus
    if corpus.format["type"] not in (None, "custom"):
        corpus = corpus.with_format(None)
    given = corpus["doc_id"][:] if "doc_id" in corpus.column_names else []
    ids = [str(doc_id) for doc_id in given or range(len(corpus))]
    check_unique(ids, f"{where}: the document id")
    texts = corpus.data.column("text")
    if texts.type not in (pyarrow.string(), pyarrow.large_string()) or texts.null_count:
        check_texts(corpus["text"][:], f"{where}: document", ids, can_be_blank=True)
    if given != ids:
        corpus = corpus.select_columns([name for name in corpus.column_names if name != "doc_id"])
        corpus = corpus.add_column("doc_id", ids)
    _CHECKED.add(corpus)
    return corpus


def check_table(table: Any, what: str) -> None:
    """Raises a `TypeError` for what has no columns in memory."""
    has_splits = isinstance(table, Mapping) and any(isinstance(p, Dataset | IterableDataset) for p in table.values())
    # A data frame has keys, too.
    if isinstance(table, Dataset) or (hasattr(table, "keys") and not has_splits):
        return
    remedy = table_remedy(table, "a list of rows becomes one with `Dataset.from_list(rows)`")
    raise TypeError(
        f"{what} a `{type(table).__name__}`, and has to be a `datasets.Dataset` or a dictionary with a list for each "
        f"column, for every row is checked: {remedy}."
    )


def to_lists(values: Any) -> list:
    """A column with lists and numbers in the place of arrays and tensors."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def fold(text: str) -> str:
    """A text without what makes no difference: upper case and white space."""
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


def shorten(text: Any) -> str:
    text = repr(text)
    return text if len(text) <= 60 else f"{text[:57]}..."


def check_unique(ids: Sequence[str], what: str) -> None:
    if len(set(ids)) < len(ids):
        seen: set[str] = set()
        twice = next(value for value in ids if value in seen or seen.add(value))  # type: ignore[func-returns-value]
        raise ValueError(f"{what} {twice!r} occurs twice: ids name one text each.")


def check_texts(texts: Sequence, what: str, ids: Sequence, can_be_blank: bool = False) -> None:
    for name, text in zip(ids, texts, strict=True):
        if not isinstance(text, str):
            raise ValueError(f"{what} {name!r} is {text!r}, not a text.")
        if not can_be_blank and not text.strip():
            raise ValueError(f"{what} {name!r} is empty: remove it.")
    blank = sum(not text.strip() for text in texts)
    if blank:
        logger.warning(f"{what}s: {blank} of {len(texts)} are empty.")


def _check_numbers(
    name: str, values: Sequence, documents: list[list[int]], query_ids: Sequence[str], where: str
) -> list[list[float]]:
    what = "a label" if name == "labels" else "a score"
    checked = []
    for query_id, row, rows in zip(query_ids, values, documents, strict=True):
        if len(row) != len(rows):
            raise ValueError(
                f"{where}, query {query_id!r}: {len(row)} {name} for {len(rows)} candidates: pass one for each."
            )
        for value in row:
            # None is unknown. NaN is, too, in what has been checked before; in the scores of a file it is an error.
            is_number = value is None or (isinstance(value, Real) and not math.isinf(value))
            if not is_number or (name == "teacher_logits" and value is not None and math.isnan(value)):
                raise ValueError(
                    f"{where}, query {query_id!r}: {what} is {value!r}, not a finite number: score it again, or "
                    "remove it."
                )
        checked.append([math.nan if value is None else float(value) for value in row])
    return checked


def ranking_rows(rankings: Rankings, rows: Iterable[int] | None = None) -> dict[str, list]:
    """
    Rankings as rows with texts, which sentence-transformers and [`read_rankings`] read.

    Args:
        rankings ([`Rankings`]):
            The rankings.
        rows (`Iterable[int]`, *optional*):
            The queries to return. Defaults to all.

    Returns:
        `dict[str, list]`: the columns `query_id`, `query`, `document_ids`, `documents` (texts), `labels` and, if there
        are scores or evidence, `teacher_logits` and `evidence`. Unknown labels and scores are `None`.
    """
    part = rankings.queries if rows is None else rankings.queries.select(rows)
    columns: dict[str, list] = {name: part[name][:] for name in ("query_id", "query")}
    needed = sorted({row for rows in part["documents"][:] for row in rows})
    found = rankings.corpus.select(needed)
    texts = dict(zip(needed, zip(found["doc_id"][:], found["text"][:], strict=True), strict=True))
    columns["document_ids"] = [[texts[row][0] for row in rows] for rows in part["documents"][:]]
    columns["documents"] = [[texts[row][1] for row in rows] for rows in part["documents"][:]]
    for name in ("labels", "teacher_logits"):
        if name in part.column_names:
            columns[name] = [[None if math.isnan(value) else value for value in row] for row in part[name][:]]
    if rankings.has_evidence:
        columns["evidence"] = part["evidence"][:]
    return columns


def write_rankings(rankings: Rankings, path: Path, teacher: str | None = None) -> None:
    """
    Writes rankings atomically as rows with texts, JSON lines or parquet by the ending of the file. `teacher` says who
    scored them and how; it is a column of this name.
    """
    starts = range(0, len(rankings), ROWS_PER_WRITE)

    def read_part(rows: range) -> dict[str, list]:
        return ranking_rows(rankings, rows) | ({} if teacher is None else {"teacher": [teacher] * len(rows)})

    parts = (read_part(range(start, min(start + ROWS_PER_WRITE, len(rankings)))) for start in starts)
    if path.suffix == ".parquet":
        string, numbers = pyarrow.string(), pyarrow.list_(pyarrow.float64())
        kinds = {"query_id": string, "query": string}
        kinds |= {name: pyarrow.list_(string) for name in ("document_ids", "documents")} | {"labels": numbers}
        kinds |= {"teacher_logits": numbers} if rankings.has_scores else {}
        kinds |= {"evidence": pyarrow.list_(string)} if rankings.has_evidence else {}
        schema = pyarrow.schema(kinds | ({} if teacher is None else {"teacher": string}))

        def write(file: Any) -> None:
            with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
                for part in parts:
                    writer.write_table(pyarrow.table(part, schema=schema))

        write_atomically(path, write)
    else:
        rows = (dict(zip(part, values, strict=True)) for part in parts for values in zip(*part.values(), strict=True))
        lines = (json.dumps(row, ensure_ascii=False) + "\n" for row in rows)
        write_atomically(path, lambda file: file.writelines(line.encode() for line in lines))
