# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidate documents: one form for all rooms, made of lists or of rows in other formats."""

import math
import re
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from pathlib import Path
from typing import Any

from datasets import Dataset, Features, Value, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.tables import (
    ROWS_PER_WRITE,
    Columns,
    check_rows,
    column_names,
    find_column,
    is_blank,
    is_filled,
    shorten,
    to_number,
    write_table,
)


logger = logging.get_logger(__name__)

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

# Names of columns, ours first, then those of other libraries.
QUERY = ("query", "anchor", "question", "sentence1")
QUERY_ID = ("query_id", "query-id", "qid", "_id", "id")
DOCUMENTS = ("documents", "docs", "passages", "candidates")
DOCUMENT_IDS = ("document_ids", "doc_ids", "corpus_ids")
# One id in each row; of a folder, the path of a file.
DOCUMENT_ID = ("document_id", "doc_id", "corpus_id", "corpus-id", "file")
LABELS = ("labels", "label", "relevance")
TEACHER_LOGITS = ("teacher_logits", "scores", "score")
POSITIVE = ("positive", "answer", "passage", "document", "pos")
# A list of these is relevant without labels that say so; one of the others may have any candidates.
ONLY_POSITIVES = ("positive", "pos")
NEGATIVE = re.compile(r"neg|(hard[_-]?)?negatives?([_-]?\d+)?")
# No ids.
ID_NOT = (float, bytes, list, tuple, dict)
# Columns beside the queries of BEIR, which are not read.
BESIDE = ("text", "title", "meta", "metadata")
SCORES_BY_LIST = ("pos_scores", "neg_scores")


@dataclass(frozen=True)
class Rankings:
    """
    Queries, each with candidates from a corpus, and their known relevance.

    Args:
        queries (`datasets.Dataset`):
            The columns `query_id`, `query`, `documents` (the rows of the candidates in the corpus), `labels` (above 0
            for a relevant candidate, 0 for others, NaN if unknown) and optionally `teacher_logits` (NaN if unknown).
        corpus (`datasets.Dataset`):
            The columns `doc_id`, `text`, which begins with the title if there is one, and optionally `title`.

    [`make_rankings`] makes them of lists, and [`load_rankings`] reads files and Hub data sets.
    """

    queries: Dataset
    corpus: Dataset

    def __post_init__(self) -> None:
        # Rows are numbers, texts and lists.
        for name in ("queries", "corpus"):
            part = getattr(self, name)
            if part.format["type"] is not None:
                object.__setattr__(self, name, part.with_format(None))

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def has_scores(self) -> bool:
        return "teacher_logits" in self.queries.column_names

    def positives(self) -> list[list[int]]:
        """Returns, for each query, the rows of the documents that are known to be relevant."""
        lists = zip(self.queries["documents"][:], self.queries["labels"][:], strict=True)
        return [[row for row, label in zip(*columns, strict=True) if label > 0] for columns in lists]

    def select(self, rows: Iterable[int]) -> "Rankings":
        """Returns some of the queries with the same corpus."""
        return Rankings(self.queries.select(rows), self.corpus)


def make_rankings(queries: Mapping[str, Any] | Dataset, corpus: Columns, where: str = "The rankings") -> Rankings:
    """
    Makes [`Rankings`] of columns, and checks every row.

    Args:
        queries (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `query`, `documents` (rows of the corpus) and optionally `query_id`, `labels` and
            `teacher_logits`, where `None` and NaN are unknown.
        corpus (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `text` and optionally `doc_id` and `title`, which is put before a text that does not begin with
            it. Other columns of a data set stay.
        where (`str`, *optional*, defaults to `"The rankings"`):
            The source of the rankings, for messages.

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
    names = column_names(queries)
    for name in ("query", "documents"):
        find_column(queries, where, [name])
    if others := [name for name in names if name not in FEATURES]:
        logger.warning(
            f"{where}: the columns {', '.join(others)} are left out; those that count are {', '.join(FEATURES)}."
        )
    queries = {name: queries[name][:] for name in FEATURES if name in names}
    texts = to_lists(queries["query"])
    if not texts:
        raise ValueError(f"{where}: there are no queries.")
    # Not the numbers that documents have without ids: a document with the id of a query is the query itself.
    ids = to_ids(queries.get("query_id", [f"q{row}" for row in range(len(texts))]), f"{where}: the query id")
    _check_unique(ids, f"{where}: the query id")
    place = f"{where}, query"
    check_rows(texts, is_filled, place, "the query is {}, not a text", ids)
    lists = [list(rows) for rows in to_lists(queries["documents"])]
    size = len(documents)
    problem = f"the candidates {{}} are not rows of the {size} documents, as numbers, each once"
    check_rows(lists, lambda rows: len({row for row in rows if row in range(size)}) == len(rows), place, problem, ids)
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
    given_texts = corpus[find_column(corpus, f"{where}: the corpus", ["text"])][:]
    texts = given_texts
    if "title" in names:
        texts = [_after_title(*row) for row in zip(given_texts, corpus["title"][:], strict=True)]
    if not len(texts):
        raise ValueError(f"{where}: the corpus is empty.")
    given = to_lists(corpus["doc_id"][:]) if "doc_id" in names else range(len(texts))
    ids = to_ids(given, f"{where}: the document id")
    _check_unique(ids, f"{where}: the document id")
    check_rows(texts, lambda text: isinstance(text, str), f"{where}, document", "the text is {}, not a text", ids)
    if not isinstance(corpus, Dataset):
        columns = {"doc_id": ids, "text": list(texts)}
        if "title" in names:
            # A data frame has NaN where there is no title.
            columns["title"] = [None if is_unknown(title) else title for title in corpus["title"]]
        return Dataset.from_dict(columns, features=Features({name: Value("string") for name in columns}))
    if texts != given_texts:
        corpus = corpus.remove_columns("text").add_column("text", texts)
    if list(given) == ids:
        return corpus
    return corpus.select_columns([name for name in names if name != "doc_id"]).add_column("doc_id", ids)


def _after_title(text: Any, title: Any) -> Any:
    """A text that begins with its title, if it has one, as in BEIR."""
    if not isinstance(text, str) or not isinstance(title, str) or text.startswith(title.strip()):
        return text
    return f"{title} {text}".strip()


def to_ids(values: Any, where: str) -> list[str]:
    """Returns ids as texts; a whole number is one, also where a missing id has made it 12.0."""
    values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in to_lists(values)]
    check_rows(values, lambda value: not (is_unknown(value) or isinstance(value, ID_NOT)), where, "{} names no text")
    return [str(value) for value in values]


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
    """Returns rankings as rows with texts, which sentence-transformers reads too; `None` is an unknown number."""
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
    """Writes rankings as rows with texts; `teacher`, a column of this name, says which model scored them and how."""

    def read_rows(start: int) -> Dataset:
        part = rankings.select(range(start, min(start + ROWS_PER_WRITE, len(rankings))))
        columns = ranking_rows(part) | ({} if teacher is None else {"teacher": [teacher] * len(part)})
        return Dataset.from_dict(columns, features=Features({name: FILE_FEATURES[name] for name in columns}))

    write_table(map(read_rows, range(0, len(rankings), ROWS_PER_WRITE)), path)


# Rows in the formats of other libraries


def read_rankings(
    rows: Columns,
    corpus: Columns | None = None,
    query_texts: Mapping[str, str] | None = None,
    where: str = "The rankings",
) -> Rankings:
    """
    Makes [`Rankings`] of rows: lists (`query`, `documents` or `document_ids`, `labels`, `teacher_logits`), the formats
    of sentence-transformers and FlagEmbedding, or, with a corpus, queries alone. Rows with the same query become one.
    """
    columns = {name: to_lists(rows[name][:]) for name in column_names(rows)}
    documents = _Documents(None if corpus is None else make_corpus(corpus, where))
    lists, has_scores = _read_candidates(columns, documents, where)
    # As in BEIR.
    query_names = QUERY if any(lists) else (*QUERY, "text")
    queries, query_ids = _read_queries(columns, query_names, query_texts, where)
    check_rows(queries, is_filled, where, "the query is {}, not a text")
    # The candidates of each query: label and score by the row in the corpus.
    merged: dict[str, tuple[str, dict[int, list]]] = {}
    num_changed = 0
    for number, (query, candidates) in enumerate(zip(queries, lists, strict=True)):
        place = f"{where}, row {number}"
        key = query_ids[number] if query_ids else str(query)
        first, known = merged.setdefault(key, (query, {}))
        if first != query:
            raise ValueError(f"{place}: the query {key!r} has another text than in a row before: {shorten(query)}.")
        for doc_id, text, *new in candidates:
            row = documents.find(doc_id, text, place)
            old = known.setdefault(row, new)
            if None not in (old[0], new[0]) and (old[0] > 0) != (new[0] > 0):
                raise ValueError(
                    f"{place}: the candidate {shorten(text or doc_id)} of the query {shorten(query)} is both relevant "
                    "and not relevant (a positive and a negative): remove one of the two."
                )
            num_changed += any(None not in pair and pair[0] != pair[1] for pair in zip(old, new, strict=True))
            known[row] = [b if a is None else a for a, b in zip(old, new, strict=True)]
    if num_changed:
        logger.warning(
            f"{where}: {num_changed} candidates have another label or score in a later row: the first counts."
        )
    if num_again := len(merged) - len({first for first, _ in merged.values()}):
        logger.warning(
            f"{where}: {num_again} queries have the text of another query and an id of their own: each id is a query "
            "that ranks alone. If the ids are those of rows, leave their column out."
        )
    result: dict[str, Any] = {
        "query": [query for query, _ in merged.values()],
        "documents": [list(known) for _, known in merged.values()],
        "labels": [[label for label, _ in known.values()] for _, known in merged.values()],
    }
    if query_ids:
        result["query_id"] = list(merged)
    if has_scores:
        result["teacher_logits"] = [[score for _, score in known.values()] for _, known in merged.values()]
    return make_rankings(result, documents.finish(where), where)


def is_ranking(names: Sequence[str]) -> bool:
    """Returns whether rows with these columns are rankings, not pairs of sentences."""
    has_lists = any(name in names for name in (*DOCUMENTS, *DOCUMENT_IDS))
    has_lists |= any(name in names for name in POSITIVE) and ("labels" in names or "scores" in names)
    return has_lists or any(NEGATIVE.fullmatch(name) for name in names) or "positive" in names


class _Documents:
    """The documents of a corpus, if there is one, and those that rows add."""

    def __init__(self, corpus: Dataset | None):
        self.corpus = corpus
        self.ids: list[str] = [] if corpus is None else corpus["doc_id"][:]
        self.texts: list[str] = [] if corpus is None else corpus["text"][:]
        self.by_id = {doc_id: row for row, doc_id in enumerate(self.ids)}
        # The first of equal ones.
        self.by_text = {text: row for row, text in reversed(list(enumerate(self.texts)))}
        # Rows by the id that was given, and the text.
        self.added: dict[tuple[str, str], int] = {}

    def are_named(self, candidates: list[list]) -> bool:
        """Returns whether candidates, which may be texts or ids, are ids of the corpus."""
        return self.corpus is not None and any(str(cell) in self.by_id for row in candidates for cell in row)

    def find(self, doc_id: str | None, text: str | None, where: str) -> int:
        """Returns the row of a document by its id, its text, or both, and adds one that is not there yet."""
        row = self.by_text.get(text or "") if doc_id is None else self.by_id.get(doc_id)
        if row is not None and text in (None, self.texts[row]):
            return row
        if text is None:
            raise ValueError(
                f"{where}: the document id {doc_id!r} is not in the corpus of {len(self.ids)} documents, whose ids "
                f"are such as {self.ids[0]!r}: add its text, or remove it."
            )
        if row is not None and self.corpus is None:
            raise ValueError(f"{where}: the document {doc_id!r} has another text than in a row before.")
        given = doc_id or f"{'' if self.corpus is None else 'added '}{len(self.ids)}"
        if (given, text) not in self.added:
            self.added[given, text] = self.by_text[text] = len(self.ids)
            name = given
            while name in self.by_id:
                name += " (2)"
            self.by_id[name] = len(self.ids)
            self.ids.append(name)
            self.texts.append(text)
        return self.added[given, text]

    def finish(self, where: str) -> Columns:
        """Returns the corpus with the documents that were added."""
        if self.corpus is None:
            return {"doc_id": self.ids, "text": self.texts}
        if len(self.ids) == len(self.corpus):
            return self.corpus
        ids, texts = (values[len(self.corpus) :] for values in (self.ids, self.texts))
        logger.info(f"{where}: {len(ids):,} documents of the rows, or their texts, are added to the corpus.")
        columns: dict[str, list] = {name: [None] * len(ids) for name in self.corpus.column_names}
        added = Dataset.from_dict(columns | {"doc_id": ids, "text": texts}, features=self.corpus.features)
        return concatenate_datasets([self.corpus, added])


def _read_candidates(columns: dict[str, list], documents: _Documents, where: str) -> tuple[list[list[tuple]], bool]:
    """Returns id, text, label and score of the candidates of each row, `None` if unknown, and if there are scores."""
    has_corpus = documents.corpus is not None
    single = (*POSITIVE, *DOCUMENT_ID) if has_corpus else POSITIVE
    ids, texts, positive, labels, scores = (
        _first(columns, names) for names in (DOCUMENT_IDS, DOCUMENTS, single, LABELS, TEACHER_LOGITS)
    )
    negatives = [name for name in columns if NEGATIVE.fullmatch(name)]
    # Columns of candidates, and the label of these unless another column tells it.
    groups: dict[str, float | None] = {}
    lists = [name for name in (texts, ids) if name is not None]
    if lists:
        if texts is None and not has_corpus:
            raise ValueError(f"{where}: the texts of the document ids are unknown: name their `--corpus`.")
        for name in lists:
            check_rows(columns[name], is_list, where, f"{name} is {{}}, not a list")
        groups = {lists[0]: None}
    elif positive is not None:
        has_any = positive not in ONLY_POSITIVES and any(map(is_list, columns[positive]))
        is_relevant = bool(negatives) or not (labels or scores or has_any)
        groups = {positive: 1.0 if is_relevant else None} | dict.fromkeys(negatives, 0.0)
        if negatives:
            labels, scores = None, scores or labels
    elif negatives or not has_corpus or not {*QUERY, *QUERY_ID, *BESIDE}.issuperset(columns):
        raise ValueError(
            f"{where}: no column has {'positives' if negatives else 'candidates'}; the columns are "
            f"{', '.join(columns)}. Rename them to `query` and `document` (a text, or with `--corpus` an id or "
            "the path of a file), or `query`, `documents` and `labels`, or `query`, `positive` and `negative_1`, ..., "
            "and remove those of queries that have no candidates."
        )
    known = {*lists, *groups, labels, scores, *QUERY, *QUERY_ID, *SCORES_BY_LIST, *BESIDE, "teacher"}
    if others := [name for name in columns if name not in known]:
        logger.warning(f"{where}: the columns {', '.join(others)} have no known name, and are left out.")
    parts = {name: _as_lists(columns[name]) for name in groups}
    for name in parts.keys() & negatives:
        # Rows may have fewer negatives than others.
        parts[name] = [["" if is_unknown(text) else text for text in row] for row in parts[name]]
    rows = range(len(next(iter(columns.values()), [])))
    candidates = [list(chain(*(part[row] for part in parts.values()))) for row in rows]
    unknown = [[None] * len(row) for row in candidates]
    values: dict[str, list[list]] = {
        "ids": [list(map(str, row)) for row in columns[ids]] if ids else unknown,
        "texts": unknown if lists and texts is None else candidates,
        "labels": [[label for name, label in groups.items() for _ in parts[name][row]] for row in rows],
        "scores": unknown,
    }
    if not lists and (positive in DOCUMENT_ID or documents.are_named(candidates)):
        # A text of the corpus may stand among the ids.
        is_text = [
            [cell in documents.by_text and str(cell) not in documents.by_id for cell in row] for row in candidates
        ]
        pairs = [list(zip(*cells, strict=True)) for cells in zip(candidates, is_text, strict=True)]
        values["ids"] = [[None if is_text else str(cell) for cell, is_text in row] for row in pairs]
        values["texts"] = [[cell if is_text else None for cell, is_text in row] for row in pairs]
    if values["texts"] is candidates:
        problem = "the candidates {} are not texts"
        check_rows(candidates, lambda row: all(isinstance(text, str) for text in row), where, problem)
    if labels:
        values["labels"] = read_numbers(columns[labels], candidates, where, labels)
    if scores:
        values["scores"] = read_numbers(columns[scores], candidates, where, scores)
    elif len(parts) == len(SCORES_BY_LIST) and all(name in columns for name in SCORES_BY_LIST):
        of_parts = zip(SCORES_BY_LIST, parts.values(), strict=True)
        by_list = [read_numbers(columns[name], part, where, name) for name, part in of_parts]
        values["scores"] = [positives + others for positives, others in zip(*by_list, strict=True)]
    found = [list(zip(*row, strict=True)) for row in zip(*values.values(), strict=True)]
    kept = [[one for one in row if one[1] is None or not is_blank(one[1])] for row in found]
    if num_blank := sum(map(len, found)) - sum(map(len, kept)):
        logger.warning(f"{where}: {num_blank} blank candidates are left out.")
    return kept, values["scores"] is not unknown


def _read_queries(
    columns: dict[str, list], query_names: Sequence[str], query_texts: Mapping[str, str] | None, where: str
) -> tuple[list, list[str] | None]:
    """Returns the queries and their ids."""
    query_id = _first(columns, QUERY_ID)
    query_ids = None if query_id is None else to_ids(columns[query_id], f"{where}: the query id")
    if query_ids is None or query_texts is None or _first(columns, query_names) is not None:
        return columns[find_column(columns, where, query_names)], query_ids
    problem = f"the query {{}} has no text; the queries have ids such as {next(iter(query_texts), None)!r}"
    check_rows(query_ids, query_texts.__contains__, where, problem)
    return [query_texts[value] for value in query_ids], query_ids


def _first(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _as_lists(values: list) -> list[list]:
    # In a column of lists, a missing one is empty.
    has_lists = any(map(is_list, values))
    return [list(value) if is_list(value) else [] if value is None and has_lists else [value] for value in values]
