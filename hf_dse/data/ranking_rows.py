# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows in the formats of other libraries, as queries with candidates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from functools import cached_property
from itertools import chain
from typing import Any

from datasets import Dataset, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.rankings import Rankings, is_list, make_corpus, make_rankings, read_numbers, to_lists
from hf_dse.data.tables import Columns, check_rows, column_names, find_column, shorten


logger = logging.get_logger(__name__)

# Names of columns, ours first, then those of other libraries.
QUERY = ("query", "anchor", "question", "sentence1")
QUERY_ID = ("query_id", "query-id", "qid", "_id", "id")
DOCUMENTS = ("documents", "docs", "passages", "candidates")
DOCUMENT_IDS = ("document_ids", "doc_ids", "corpus_ids")
LABELS = ("labels", "label", "relevance")
TEACHER_LOGITS = ("teacher_logits", "scores", "score")
POSITIVE = ("positive", "answer", "passage", "document", "pos")
# A list of these is relevant without labels that say so; one of the others may have any candidates.
ONLY_POSITIVES = ("positive", "pos")
NEGATIVE = re.compile(r"neg|(hard[_-]?)?negatives?([_-]?\d+)?")
SCORES_BY_LIST = ("pos_scores", "neg_scores")


def read_rankings(
    rows: Columns,
    corpus: Columns | None = None,
    query_texts: Mapping[str, str] | None = None,
    where: str = "The rankings",
) -> Rankings:
    """
    Makes [`Rankings`] of rows in the formats of other libraries. Rows with the same query become one query.

    Args:
        rows (`Mapping[str, list]` or `datasets.Dataset`):
            - Lists: `query`, `documents` (texts) or `document_ids`, and optionally `labels` and `teacher_logits`, a
              number for each, or `None` and NaN if unknown, also in the place of a list.
            - sentence-transformers: `query`, `positive`, `negative` or `negative_1`, ..., and optionally a list of
              `scores`; labelled pairs (`query`, a document, its `label` or `score`); labelled lists of these.
            - FlagEmbedding: `query`, `pos`, `neg` (texts), and optionally `pos_scores` and `neg_scores`.
            - Queries alone, `query` and optionally `query_id`, whose candidates are still to be mined.
        corpus (`Mapping[str, list]` or `datasets.Dataset`, *optional*):
            The columns `doc_id` and `text`; required for ids and for queries alone. Documents of the rows that it
            lacks are added, with an id of their own if another text has theirs.
        query_texts (`Mapping[str, str]`, *optional*):
            The texts of queries by their ids, for rows without them.
        where (`str`, *optional*, defaults to `"The rankings"`):
            The source of the rows, for the messages.

    Returns:
        [`Rankings`]: without labels, the relevant documents of scores are unknown.
    """
    columns = {name: to_lists(rows[name][:]) for name in column_names(rows)}
    documents = _Documents(None if corpus is None else make_corpus(corpus, where))
    lists, has_scores = _read_candidates(columns, documents, where)
    # In BEIR, the text of a query is the column `text`.
    query_names = QUERY if any(lists) else (*QUERY, "text")
    queries, query_ids = _read_queries(columns, query_names, query_texts, where)
    # The candidates of each query: label and score by the row in the corpus.
    merged: dict[str, tuple[str, dict[int, list]]] = {}
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
            known[row] = [b if a is None else a for a, b in zip(old, new, strict=True)]
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
        self.by_id = {doc_id: row for row, doc_id in enumerate(self.ids)}
        # Rows by the id that was given, and the text.
        self.added: dict[tuple[str, str], int] = {}

    @cached_property
    def texts(self) -> list[str]:
        return [] if self.corpus is None else self.corpus["text"][:]

    @cached_property
    def by_text(self) -> dict[str, int]:
        # The first of equal ones.
        return {text: row for row, text in reversed(list(enumerate(self.texts)))}

    def find(self, doc_id: str | None, text: str | None, where: str) -> int:
        """Returns the row of a document by its id, its text, or both, and adds one that is not there yet."""
        row = self.by_text.get(text or "") if doc_id is None else self.by_id.get(doc_id)
        if row is not None and text in (None, self.texts[row]):
            return row
        if text is None:
            raise ValueError(
                f"{where}: the document id {doc_id!r} is not in the corpus of {len(self.ids)} documents: add its "
                "text, or remove it."
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
    ids, texts, positive, labels, scores = (
        _first(columns, names) for names in (DOCUMENT_IDS, DOCUMENTS, POSITIVE, LABELS, TEACHER_LOGITS)
    )
    has_corpus = documents.corpus is not None
    negatives = [name for name in columns if NEGATIVE.fullmatch(name)]
    # Columns of candidates, and the label of these unless another column tells it.
    groups: dict[str, float | None] = {}
    lists = [name for name in (texts, ids) if name is not None]
    if lists:
        if texts is None and not has_corpus:
            raise ValueError(f"{where}: the texts of the document ids are unknown: name their `--corpus_file`.")
        for name in lists:
            check_rows(columns[name], is_list, where, f"{name} is {{}}, not a list")
        groups = {lists[0]: None}
    elif positive is not None:
        has_any = positive not in ONLY_POSITIVES and any(map(is_list, columns[positive]))
        is_relevant = bool(negatives) or not (labels or scores or has_any)
        groups = {positive: 1.0 if is_relevant else None} | dict.fromkeys(negatives, 0.0)
        if negatives:
            labels, scores = None, scores or labels
        known = {*groups, labels, scores, *QUERY, *QUERY_ID, *SCORES_BY_LIST, "text"}
        if others := [name for name in columns if name not in known]:
            logger.warning(f"{where}: the columns {', '.join(others)} have no known name, and are left out.")
    elif negatives or not has_corpus:
        raise ValueError(
            f"{where}: no column has {'positives' if negatives else 'candidates'}; the columns are "
            f"{', '.join(columns)}. Rename them to lists (`query`, `documents`, `labels`), tuples (`query`, "
            "`positive`, `negative_1`, ...), `query`, `pos` and `neg`, or ids (`query_id`, `document_ids`)."
        )
    parts = {name: _as_lists(columns[name]) for name in groups}
    rows = range(len(next(iter(columns.values()), [])))
    candidates = [list(chain(*(part[row] for part in parts.values()))) for row in rows]
    unknown = [[None] * len(row) for row in candidates]
    values = {
        "ids": [list(map(str, row)) for row in columns[ids]] if ids else unknown,
        "texts": unknown if lists and texts is None else candidates,
        "labels": [[label for name, label in groups.items() for _ in parts[name][row]] for row in rows],
        "scores": unknown,
    }
    if values["texts"] is candidates:
        problem = "the candidates {} are not texts"
        check_rows(candidates, lambda row: all(isinstance(text, str) for text in row), where, problem)
    # A column of texts may hold ids of the corpus.
    if has_corpus and ids is None and any(text in documents.by_id for text in chain(*candidates)):
        values |= {"ids": candidates, "texts": unknown}
    if labels:
        values["labels"] = read_numbers(columns[labels], candidates, where, labels)
    if scores:
        values["scores"] = read_numbers(columns[scores], candidates, where, scores)
    elif positive in parts and all(name in columns for name in SCORES_BY_LIST):
        first = parts[positive]
        rest = [row[len(positives) :] for row, positives in zip(candidates, first, strict=True)]
        both = (
            read_numbers(columns[name], part, where, name)
            for name, part in zip(SCORES_BY_LIST, (first, rest), strict=True)
        )
        values["scores"] = [a + b for a, b in zip(*both, strict=True)]
    found = [list(zip(*row, strict=True)) for row in zip(*values.values(), strict=True)]
    return found, values["scores"] is not unknown


def _read_queries(
    columns: dict[str, list], query_names: Sequence[str], query_texts: Mapping[str, str] | None, where: str
) -> tuple[list, list[str] | None]:
    """Returns the queries and their ids."""
    query_id = _first(columns, QUERY_ID)
    query_ids = None if query_id is None else [str(value) for value in columns[query_id]]
    if query_ids is None or query_texts is None or _first(columns, query_names) is not None:
        return columns[find_column(columns, where, query_names)], query_ids
    check_rows(query_ids, query_texts.__contains__, where, "the query {} has no text")
    return [query_texts[value] for value in query_ids], query_ids


def _first(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)


def _as_lists(values: list) -> list[list]:
    # In a column of lists, a missing one is empty.
    has_lists = any(map(is_list, values))
    return [list(value) if is_list(value) else [] if value is None and has_lists else [value] for value in values]
