# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows in the formats of other libraries, as queries with candidates."""

import re
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from itertools import chain
from numbers import Real
from typing import Any

from datasets import Dataset, Value, concatenate_datasets
from transformers.utils import logging

from hf_dse.data.rankings import Rankings, check_table, check_texts, make_corpus, make_rankings, shorten, to_lists


logger = logging.get_logger(__name__)

# Names of columns, ours first, then those of other libraries.
QUERY = ("query", "anchor", "question", "sentence1")
QUERY_ID = ("query_id", "query-id", "qid", "_id", "id")
DOCUMENTS = ("documents", "docs", "passages", "candidates")
DOCUMENT_IDS = ("document_ids", "doc_ids", "corpus_ids")
LABELS = ("labels", "label", "relevance")
TEACHER_LOGITS = ("teacher_logits", "scores", "score")
EVIDENCE = "evidence"
POSITIVE = ("positive", "answer", "passage", "document", "pos")
# A list of these is relevant without labels that say so; one of the others may have any candidates.
ONLY_POSITIVES = ("positive", "pos")
SCORES_BY_LIST = ("pos_scores", "neg_scores")
NOT_TEXTS = {*QUERY_ID, *LABELS, *TEACHER_LOGITS, *SCORES_BY_LIST}
NEGATIVE = re.compile(r"neg|(hard[_-]?)?negatives?([_-]?\d+)?")


def read_rankings(
    rows: Mapping[str, list] | Dataset,
    corpus: Mapping[str, list] | Dataset | None = None,
    query_texts: Mapping[str, str] | None = None,
    where: str = "The rankings",
) -> Rankings:
    """
    Makes [`Rankings`] of rows in the formats of other libraries. Rows with the same query become one query.

    Args:
        rows (`Mapping[str, list]` or `datasets.Dataset`):
            - Lists: `query`, `documents` (texts), and optionally `labels` and `teacher_logits`, a number for each.
            - n-tuples of sentence-transformers: `query`, `positive`, `negative` or `negative_1`, `negative_2`, ...; by
              these names, or in this order, of which a warning says what it was taken for. Columns before the query
              are left out then. With `labels` or `scores`, a list with a number for the positive and each negative,
              or with the margin between the positive and each negative.
            - Labelled pairs of sentence-transformers: `query`, a document and its `label` or `score`, one number.
            - Labelled lists of sentence-transformers: `query`, lists of documents, and lists of `labels` or `scores`.
              With scores alone nobody says which documents are relevant.
            - FlagEmbedding: `query`, `pos`, `neg` (texts), and optionally `pos_scores` and `neg_scores`.
            - Reranking sets of MTEB: `query`, `positive`, `negative` (lists, or a text instead of a list of one).
            - Ids: `query_id`, `document_ids`, and optionally `labels` and `scores`; with `query` or `query_texts`.
            - Queries alone, `query` and optionally `query_id`, whose candidates are still to be mined.

            In each format a column `evidence` may have the passage of the relevant document that answers the query,
            or a list of passages, to the letter or but for white space; `None` if it is unknown.
        corpus (`Mapping[str, list]` or `datasets.Dataset`, *optional*):
            The columns `doc_id` and `text`; required for ids and for queries alone. Where rows have ids and texts of
            documents, those that it lacks are added, and those with another text, as [`make_queries`] takes queries
            out of texts, get an id of their own.
        query_texts (`Mapping[str, str]`, *optional*):
            The texts of queries by their ids, for rows without them.
        where (`str`, *optional*, defaults to `"The rankings"`):
            Where the rows are from, for the messages.

    Returns:
        [`Rankings`].

    Raises:
        `TypeError`: for rows or a corpus that are no table in memory, such as a streaming data set, a list of rows or
        several splits.
        `ValueError`: for unknown columns, an id without a text, a positive that is also a negative, and as
        [`make_rankings`].

    Example:

    ```python
    >>> from hf_dse import read_rankings

    >>> rankings = read_rankings({"anchor": ["A cat?"], "positive": ["Cats purr."], "negative": ["Planes fly."]})
    >>> rankings.queries["labels"][0], rankings.corpus["text"][:]
    ([1.0, 0.0], ['Cats purr.', 'Planes fly.'])
    ```
    """
    check_table(rows, f"{where}: what was passed is")
    names = rows.column_names if isinstance(rows, Dataset) else list(rows)
    columns = {name: to_lists(rows[name]) for name in names}
    if corpus is None:
        corpus = _corpus_of_lists(columns, where)
    else:
        corpus = _add_documents(columns, make_corpus(corpus, where), where)
    evidence = _read_evidence(columns.pop(EVIDENCE), where) if EVIDENCE in columns else None
    lists = _to_lists(columns, corpus, query_texts, where)
    if corpus is not None and not lists.are_ids and any(lists.candidates):
        corpus, lists.candidates = _find_texts(lists.candidates, corpus, where)
    if corpus is None:
        _check_candidates(lists.candidates, where)
        position = {
            text: row for row, text in enumerate(dict.fromkeys(t for texts in lists.candidates for t in texts))
        }
        corpus = {"text": list(position)}
    else:
        ids = corpus["doc_id"][:] if isinstance(corpus, Dataset) else corpus["doc_id"]
        position = {str(doc_id): row for row, doc_id in enumerate(ids)}
    merged: dict[str, dict[str, Any]] = {}
    for number, query in enumerate(lists.queries):
        key = lists.query_ids[number] if lists.query_ids else f"{number}" if lists.is_margin else f"text {query}"
        entry = merged.setdefault(key, {"query": query, "candidates": {}, "evidence": {}})
        if lists.query_ids and entry["query"] != query:
            raise ValueError(
                f"{where}, row {number}: the query {key!r} has another text than in a row before: {shorten(query)}."
            )
        entry["evidence"] |= dict.fromkeys(evidence[number] if evidence else ())
        for order, candidate in enumerate(lists.candidates[number]):
            if candidate not in position:
                raise ValueError(
                    f"{where}, row {number}: the document id {candidate!r} is not in the corpus of {len(position)} "
                    "documents: add its text, or remove it."
                )
            values = [None if part is None else part[number][order] for part in (lists.labels, lists.logits)]
            known = entry["candidates"].setdefault(position[candidate], values)
            if _differ(known[1], values[1]):
                raise ValueError(
                    f"{where}, row {number}: the candidate {shorten(candidate)} of the query {shorten(query)} has the "
                    f"score {values[1]}, and {known[1]} before: remove one of the two."
                )
            if known is not values and (known[0] or 0) * (values[0] or 0) == 0 and known[0] != values[0]:
                raise ValueError(
                    f"{where}, row {number}: the candidate {shorten(candidate)} of the query {shorten(query)} is both "
                    "relevant and not relevant (a positive and a negative): remove one of the two."
                )
    queries: dict[str, Any] = {
        "query": [entry["query"] for entry in merged.values()],
        "documents": [list(entry["candidates"]) for entry in merged.values()],
    }
    if lists.query_ids:
        queries["query_id"] = list(merged)
    for index, (name, part) in enumerate((("labels", lists.labels), ("teacher_logits", lists.logits))):
        if part is not None:
            queries[name] = [[values[index] for values in e["candidates"].values()] for e in merged.values()]
    if evidence is not None:
        queries["evidence"] = [list(entry["evidence"]) for entry in merged.values()]
    return make_rankings(queries, corpus, where)


def _differ(first: Any, second: Any) -> bool:
    """Whether two numbers differ by more than the rounding of bfloat16."""
    are_numbers = all(isinstance(value, Real) for value in (first, second))
    return are_numbers and abs(first - second) > 0.01 * max(1.0, abs(first))


def _read_evidence(values: Sequence, where: str) -> list[list[str]]:
    """The passages of each row, of which there may be none, one or several."""
    rows = [[] if value is None else [value] if isinstance(value, str) else value for value in values]
    _check_lists(rows, EVIDENCE, where)
    return [[text for text in row if text != ""] for row in rows]


def _ids_and_texts(columns: dict[str, list], where: str) -> tuple[str, str] | None:
    """The names of the columns with ids and texts of documents, lists of the same sizes, if there are both."""
    ids, texts = (_first(columns, wanted) for wanted in (DOCUMENT_IDS, DOCUMENTS))
    if ids is None or texts is None:
        return None
    _check_lists(columns[texts], texts, where)
    _check_sizes(columns[ids], columns[texts], ids, where)
    return ids, texts


def _corpus_of_lists(columns: dict[str, list], where: str) -> dict[str, list] | None:
    """The documents of rows that have both their ids and their texts, as [`write_rankings`] writes them."""
    names = _ids_and_texts(columns, where)
    if names is None:
        return None
    ids, texts = names
    found: dict[str, str] = {}
    for number, pairs in enumerate(zip(columns[ids], columns[texts], strict=True)):
        for doc_id, text in zip(*pairs, strict=True):
            if found.setdefault(str(doc_id), text) != text:
                raise ValueError(
                    f"{where}, row {number}: the document {doc_id!r} has another text than in a row before."
                )
    return {"doc_id": list(found), "text": list(found.values())}


def _add_documents(columns: dict[str, list], corpus: Dataset, where: str) -> Dataset:
    """Adds the documents of rows that the corpus does not have, or has with another text, which gets another id."""
    names = _ids_and_texts(columns, where)
    if names is None:
        return corpus
    ids, texts = names
    known = {str(doc_id): text for doc_id, text in zip(corpus["doc_id"][:], corpus["text"][:], strict=True)}
    added: dict[str, str] = {}

    def id_of(doc_id: str, text: str) -> str:
        name, number = doc_id, 1
        while known.get(name, text) != text:
            number += 1
            name = f"{doc_id} ({number})"
        if name not in known:
            known[name] = added[name] = text
        return name

    columns[ids] = [
        [id_of(str(doc_id), text) for doc_id, text in zip(*pairs, strict=True)]
        for pairs in zip(columns[ids], columns[texts], strict=True)
    ]
    if not added:
        return corpus
    logger.info(f"{len(added):,} documents of the rows, or their texts, are not in the corpus: they are added to it.")
    check_texts(list(added.values()), f"{where}: document", list(added), can_be_blank=True)
    corpus = corpus.cast_column("doc_id", Value("string"))
    new: dict[str, list] = {name: [None] * len(added) for name in corpus.column_names}
    new |= {"doc_id": list(added), "text": list(added.values())}
    return concatenate_datasets([corpus, Dataset.from_dict(new, features=corpus.features)])


def _find_texts(lists: list[list[str]], corpus: Dataset, where: str) -> tuple[Dataset, list[list[str]]]:
    """The ids of candidates that are texts, and the corpus with those that it lacks; candidates may be ids, too."""
    ids = [str(doc_id) for doc_id in corpus["doc_id"][:]]
    known = set(ids)
    _check_candidates(lists, where)
    if any(candidate in known for candidates in lists for candidate in candidates):
        return corpus, lists
    names = dict(zip(reversed(corpus["text"][:]), reversed(ids), strict=True))
    for text in dict.fromkeys(text for candidates in lists for text in candidates):
        names.setdefault(text, f"added {len(names)}")
    columns = {"document_ids": [[names[text] for text in candidates] for candidates in lists], "documents": lists}
    return _add_documents(columns, corpus, where), columns["document_ids"]


@dataclass
class _Lists:
    """Rows of any format, as lists: candidates are texts or ids."""

    queries: list[str]
    candidates: list[list[str]]
    labels: Sequence[Sequence[float | None]] | None
    logits: list[list[float]] | None
    query_ids: list[str] | None = None
    is_margin: bool = False
    are_ids: bool = False


def is_ranking(names: Sequence[str]) -> bool:
    """Whether rows with these columns are rankings, not pairs of sentences."""
    has_lists = any(name in names for name in (*DOCUMENTS, *DOCUMENT_IDS))
    has_lists |= any(name in names for name in POSITIVE) and ("labels" in names or "scores" in names)
    has_negatives = any(NEGATIVE.fullmatch(name) for name in names)
    return has_lists or has_negatives or "positive" in names


def _to_lists(columns: dict[str, list], corpus: Any, query_texts: Mapping[str, str] | None, where: str) -> _Lists:
    names = list(columns)
    query_id, query = _first(names, QUERY_ID), _first(names, QUERY)
    query_ids = None if query_id is None else [str(value) for value in columns[query_id]]
    free = [name for name in names if name not in NOT_TEXTS and not _has_candidates([name])]
    if query is not None:
        queries = columns[query]
    elif query_ids is not None and query_texts is not None:
        missing = [value for value in query_ids if value not in query_texts]
        if missing:
            raise ValueError(f"{where}: {len(missing)} queries have no text, the first is {missing[0]!r}.")
        queries = [query_texts[value] for value in query_ids]
    elif corpus is not None and "text" in names and not _has_candidates(names):
        # Queries of BEIR.
        query = "text"
        queries = columns[query]
    elif free and not any(name in names for name in DOCUMENT_IDS):
        query = free[0]
        queries = columns[query]
    else:
        raise ValueError(f"{where}: there is no column {QUERY[0]!r}; the columns are {', '.join(names)}.")

    labels, logits = _first(names, LABELS), _first(names, TEACHER_LOGITS)
    ids = _first(names, DOCUMENT_IDS) if corpus is not None else None
    # sentence-transformers writes labelled lists under the name that its positives had.
    listed = [name for name in POSITIVE if labels or logits or name not in ONLY_POSITIVES]
    has_negatives = any(NEGATIVE.fullmatch(name) for name in names)
    listed = [name for name in listed if _has_lists(columns.get(name, ())) and not has_negatives]
    texts = ids or _first(names, (*DOCUMENTS, *listed))
    if texts is not None:
        candidates = columns[texts]
        _check_lists(candidates, texts, where)
        if ids:
            candidates = [[str(value) for value in values] for values in candidates]
        for name in (labels, logits):
            if name is not None:
                _check_sizes(columns[name], candidates, name, where)
        _warn_of_columns(_query_by_place(query), [], where)
        found = [None if name is None else columns[name] for name in (labels, logits)]
        return _Lists(queries, candidates, found[0], found[1], query_ids, are_ids=ids is not None)
    if any(name in names for name in DOCUMENT_IDS):
        raise ValueError(
            f"{where} has ids of documents, but their texts are unknown: name a table with `doc_id` and `text` as "
            "`--corpus_file`."
        )
    if corpus is not None and not _has_candidates(names) and (query in (*QUERY, "text") or len(names) < 3):
        _warn_of_columns([] if query == "text" else _query_by_place(query), [], where)
        return _Lists(queries, [[] for _ in queries], None, None, query_ids)
    return _from_tuples(columns, queries, query, query_id, labels, logits, query_ids, where)


def _has_candidates(names: Sequence[str]) -> bool:
    known = (*DOCUMENTS, *DOCUMENT_IDS, *POSITIVE)
    return any(name in known or NEGATIVE.fullmatch(name) for name in names)


def _has_lists(values: Iterable) -> bool:
    return any(isinstance(value, list | tuple) for value in values)


def _query_by_place(query: str | None) -> list[str]:
    return [] if query is None or query in QUERY else [f"{query} as the query"]


def _warn_of_columns(by_place: list[str], left_out: list[str], where: str) -> None:
    notes = [f"the columns {', '.join(left_out)} have no known name, and are left out"] if left_out else []
    if by_place:
        notes.append(
            f"by their places, for their names do not say it, columns are read so: {', '.join(by_place)}. If that is "
            "wrong, rename columns to `query`, `positive` and `negative`, and drop the others"
        )
    if notes:
        logger.warning(f"{where}: {'; '.join(notes)}.")


def _from_tuples(
    columns: dict[str, list],
    queries: list[str],
    query: str | None,
    query_id: str | None,
    labels: str | None,
    scores: str | None,
    query_ids: list[str] | None,
    where: str,
) -> _Lists:
    """Rows of a query, a positive and negatives, or of a query, a document and its label."""
    names = list(columns)
    texts = [name for name in names if name not in {query, query_id, labels, scores, *SCORES_BY_LIST}]
    negatives = [name for name in texts if NEGATIVE.fullmatch(name)]
    positive = _first(texts, POSITIVE)
    by_place = _query_by_place(query)
    if positive is None:
        # Without names that say so, the order does, as in sentence-transformers.
        free = [name for name in names[0 if query is None else names.index(query) + 1 :] if name in texts]
        free = [name for name in free if name not in {*NOT_TEXTS, *negatives}]
        if not free:
            raise ValueError(
                f"{where}: no column has {'positives' if negatives else 'candidates'}; the columns are "
                f"{', '.join(names)}, and one without a known name has to stand after the query. Pass lists (`query`, "
                "`documents`, `labels`), tuples (`query`, `positive`, `negative_1`, ...), `query`, `pos` and `neg`, "
                "or ids (`query_id`, `document_ids`)."
            )
        positive, *others = free
        others = [] if negatives else others
        negatives = negatives or others
        kind = "positive" if negatives or not (labels or scores) else "document"
        by_place += [f"{positive} as the {kind}", *(f"{name} as a negative" for name in others)]
    roles = [positive, *negatives]
    _warn_of_columns(by_place, [name for name in texts if name not in roles], where)
    has_lists = any(_has_lists(columns[name]) for name in roles if _has_candidates([name]))
    lists = [[[v] if isinstance(v, str) or not has_lists else v for v in columns[name]] for name in roles]
    for name, values in zip(roles, lists, strict=True):
        _check_lists(values, name, where)
    candidates = [list(chain(*row)) for row in zip(*lists, strict=True)]
    negative_texts = [row[len(first) :] for first, row in zip(lists[0], candidates, strict=True)]
    for number, row in enumerate([] if has_lists else candidates):
        check_texts(row, f"{where}, row {number}: candidate", range(len(row)))
        if row[0] in row[1:]:
            raise ValueError(
                f"{where}, row {number}: the positive {shorten(row[0])} of the query {shorten(queries[number])} is "
                "also a negative: remove one of the two."
            )
    relevance: Sequence[Sequence[float | None]] = [
        [1.0] * len(first) + [0.0] * len(rest) for first, rest in zip(lists[0], negative_texts, strict=True)
    ]
    if all(name in columns for name in SCORES_BY_LIST):
        for name, part in zip(SCORES_BY_LIST, (lists[0], negative_texts), strict=True):
            _check_sizes(columns[name], part, name, where)
        values = [[*p, *n] for p, n in zip(*(columns[name] for name in SCORES_BY_LIST), strict=True)]
        return _Lists(queries, candidates, relevance, values, query_ids)
    numbers = {
        name: [
            [_to_number(value) for value in (row if isinstance(row, list | tuple) else [row])] for row in columns[name]
        ]
        for name in (labels, scores)
        if name is not None
    }
    # One number a document, of which nobody says that it is relevant.
    single = [name for name in numbers if not negatives and not _has_lists(columns[name])]
    if labels in single:
        relevance, labels = numbers[labels], None
    elif scores in single:
        relevance = [[None] for _ in candidates]
    scores = labels or scores
    if scores is None:
        return _Lists(queries, candidates, relevance, None, query_ids)
    values = numbers[scores]
    is_margin = bool(negatives and values) and len(values[0]) == len(candidates[0]) - 1
    is_margin &= all(len(first) == 1 for first in lists[0])
    if is_margin:
        # Only differences count, so the positive may have the score 0.
        values = [[0.0, *(-margin for margin in row)] for row in values]
    _check_sizes(values, candidates, scores, where)
    return _Lists(queries, candidates, relevance, values, query_ids, is_margin)


def _to_number(value: Any) -> Any:
    """A cell of a csv file as a number if it is one; others are named by whoever checks them."""
    try:
        return float(value) if isinstance(value, str) else value
    except ValueError:
        return value


def _first(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    names = list(names)
    return next((name for name in wanted if name in names), None)


def _check_lists(values: Sequence, name: str, where: str) -> None:
    for number, value in enumerate(values):
        if not isinstance(value, list | tuple):
            raise ValueError(f"{where}, row {number}: {name} is {shorten(value)}, not a list.")


def _check_candidates(lists: Sequence[Sequence], where: str) -> None:
    for number, texts in enumerate(lists):
        wrong = [text for text in texts if not isinstance(text, str)]
        if wrong:
            raise ValueError(f"{where}, row {number}: the candidate {shorten(wrong[0])} is not a text.")


def _check_sizes(values: Sequence, candidates: Sequence[Sequence], name: str, where: str) -> None:
    for number, (row, texts) in enumerate(zip(values, candidates, strict=True)):
        size = len(row) if isinstance(row, list | tuple) else 1
        if size != len(texts) or not isinstance(row, list | tuple):
            raise ValueError(f"{where}, row {number}: {name} has {size} values for {len(texts)} candidates.")
