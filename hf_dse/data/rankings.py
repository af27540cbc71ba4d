# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidate documents: one form for all rooms, made of lists or of rows."""

import math
import re
import sys
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from pathlib import Path
from typing import Any
from unicodedata import category

from datasets import Dataset, Features, Value
from transformers.utils import logging

from hf_dse.data.options import check_threshold
from hf_dse.data.report import Report, report_rankings
from hf_dse.data.tables import (
    ROWS_PER_WRITE,
    Columns,
    check_rows,
    column_names,
    find_column,
    is_filled,
    shorten,
    to_number,
    write_table,
)
from hf_dse.data.texts import join_titles


logger = logging.get_logger(__name__)

FEATURES = {
    "query_id": Value("string"),
    "query": Value("string"),
    "documents": [Value("int64")],
    "labels": [Value("float64")],
    "teacher_logits": [Value("float64")],
}

# The columns of a file, which has texts.
FILE_FEATURES = FEATURES | {"document_ids": [Value("string")], "documents": [Value("string")]}
FILE_FEATURES |= {"groups": [Value("string")], "chunk_size": Value("int64")}

# Names of columns, ours first, then those of other libraries.
QUERY = ("query", "anchor", "question")
QUERY_ID = ("query_id", "query-id", "qid", "_id", "id")
LISTS = ("documents", "document_ids")
DOCUMENT = ("positive", "document", "answer", "passage")
# With a corpus; of a folder, the path of a file.
DOCUMENT_ID = ("document_id", "doc_id", "corpus_id", "corpus-id", "file")
LABELS = ("labels", "label", "relevance")
TEACHER_LOGITS = ("teacher_logits", "scores", "score")
NEGATIVE = re.compile(r"neg|(hard[_-]?)?negatives?([_-]?\d+)?")
# No ids.
ID_NOT = (float, bytes, list, tuple, dict)
# Columns beside the queries of BEIR, which are not read.
BESIDE = ("text", "title", "meta", "metadata")


@dataclass(frozen=True)
class Rankings:
    """
    Queries, each with candidates from a corpus, and their known relevance.

    Args:
        queries (`datasets.Dataset`):
            The columns `query_id`, `query`, `documents` (the rows of the candidates in the corpus), `labels` (above 0
            for a relevant candidate, or its grade, 0 for others, NaN if unknown) and optionally `teacher_logits` (NaN
            if unknown).
        corpus (`datasets.Dataset`):
            The columns `doc_id`, `text`, which begins with the title if there is one, and optionally `joined_title`,
            this title, and `passage_of`, the id of the document that a text is a passage of.
        chunk_size (`int`, *optional*):
            Tokens of the passages by which the documents are searched, at most; 0 or `None`: whole texts.
        relevance_threshold (`float`, *optional*):
            The lowest label of a relevant candidate. Defaults to all labels above 0, as in BEIR.

    [`make_rankings`] makes them of lists, and [`load_rankings`] reads files and Hub data sets.
    """

    queries: Dataset
    corpus: Dataset
    chunk_size: int | None = None
    relevance_threshold: float | None = None

    def __len__(self) -> int:
        return len(self.queries)

    @property
    def has_scores(self) -> bool:
        return "teacher_logits" in self.queries.column_names

    @property
    def document_ids(self) -> list[str]:
        """The id of the document of each row of the corpus, which judgements are about."""
        return self.corpus["passage_of" if self.has_passages else "doc_id"][:]

    @property
    def has_passages(self) -> bool:
        """Whether the rows of the corpus are passages of documents."""
        return "passage_of" in self.corpus.column_names

    def check_unit(self) -> None:
        """Raises a `ValueError` if candidates are whole documents that are searched by passages."""
        if self.chunk_size and not self.has_passages and any(self.queries["documents"][:]):
            raise ValueError(
                f"The documents are searched by passages of {self.chunk_size} tokens, and these candidates are whole "
                "documents: `mine` (`hf-dse mine`) finds their passages, or keep whole texts with chunk_size=0 "
                "(`--chunk_size 0`)."
            )

    def report(self) -> Report:
        """Returns what was read: numbers, grades, range of scores, copies and blank documents, and what is ranked."""
        texts = self.corpus["text"][:]
        return report_rankings(self.queries, texts, self.chunk_size, self.grades(), self.relevant_labels)

    def grades(self) -> dict[float, int]:
        """How many candidates have each known label, the highest first."""
        counts = Counter(label for labels in self.queries["labels"][:] for label in labels if not math.isnan(label))
        return dict(sorted(counts.items(), reverse=True))

    def is_relevant(self, labels: Any) -> Any:
        """Which label, or which of an array, counts as relevant."""
        return labels > 0 if self.relevance_threshold is None else labels >= self.relevance_threshold

    @property
    def relevant_labels(self) -> str:
        """The labels that count as relevant, in words."""
        return "above 0" if self.relevance_threshold is None else f"of {self.relevance_threshold:g} or more"

    def positives(self) -> list[list[int]]:
        """Returns, for each query, the rows of the documents that are known to be relevant."""
        lists = zip(self.queries["documents"][:], self.queries["labels"][:], strict=True)
        return [[row for row, label in zip(*columns, strict=True) if self.is_relevant(label)] for columns in lists]

    def select(self, rows: Iterable[int]) -> "Rankings":
        """Returns some of the queries with the same corpus."""
        return replace(self, queries=self.queries.select(rows))

    def keep_documents(self, extra: Iterable[int] = ()) -> "Rankings":
        """Returns the same queries with only their candidates, and the rows `extra`, as corpus."""
        lists = self.queries["documents"][:]
        rows = sorted({*(row for rows in lists for row in rows), *extra})
        new = {row: number for number, row in enumerate(rows)}
        feature = self.queries.features["documents"]
        documents = [[new[row] for row in rows] for rows in lists]
        queries = self.queries.remove_columns("documents").add_column("documents", documents, feature=feature)
        return replace(self, queries=queries, corpus=self.corpus.select(rows))


def make_rankings(
    queries: Mapping[str, Any] | Dataset,
    corpus: Columns,
    where: str = "The rankings",
    relevance_threshold: float | None = None,
) -> Rankings:
    """
    Makes [`Rankings`] of columns, and checks every row.

    Args:
        queries (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `query`, `documents` (rows of the corpus) and optionally `query_id`, `labels` and
            `teacher_logits`, where `None` and NaN are unknown.
        corpus (`Mapping[str, list]` or `datasets.Dataset`):
            The columns `text` and optionally `doc_id` and `title`, which is put before the text, as in BEIR. A corpus
            that was read has its titles there, and names them in `joined_title`.
        where (`str`, *optional*, defaults to `"The rankings"`):
            The source of the rankings, for messages.
        relevance_threshold (`float`, *optional*):
            The lowest label of a relevant candidate. Defaults to all labels above 0, as in BEIR.

    Example:

    ```python
    >>> from hf_dse import make_rankings

    >>> corpus = {"doc_id": ["a", "b"], "text": ["Planes fly by lift.", "Cats purr."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0, 1]], "labels": [[1, 0]]}, corpus)
    >>> rankings.positives()
    [[0]]
    ```
    """
    check_threshold(relevance_threshold)
    documents = make_corpus(corpus, where)
    names = column_names(queries)
    for name in ("query", "documents"):
        find_column(queries, where, [name])
    if others := [name for name in names if name not in FEATURES]:
        logger.warning(
            f"{where}: the columns {', '.join(others)} are left out; those that count are {', '.join(FEATURES)}."
        )
    given = {name: to_lists(queries[name][:]) for name in FEATURES if name in names}
    texts, size = given["query"], len(documents)
    if not texts:
        raise ValueError(f"{where}: there are no queries.")
    # Not the numbers that documents have without ids: a document with the id of a query is the query itself.
    ids = given.get("query_id", [f"q{row}" for row in range(len(texts))])
    ids, place = to_ids(ids, f"{where}: the query id", unique=True), f"{where}, query"
    check_rows(texts, is_filled, place, "the query is {}, not a text", ids)
    lists = [list(rows) for rows in given["documents"]]
    problem = f"the candidates {{}} are not rows of the {size} documents, as numbers, each once"
    check_rows(lists, lambda rows: len({row for row in rows if row in range(size)}) == len(rows), place, problem, ids)
    columns: dict[str, list] = {"query_id": ids, "query": texts, "documents": lists}
    given.setdefault("labels", [None] * len(texts))
    for name in ("labels", "teacher_logits"):
        if name in given:
            columns[name] = read_numbers(given[name], lists, place, name, ids)
    features = Features({name: FEATURES[name] for name in columns})
    made = Rankings(Dataset.from_dict(columns, features=features), documents, relevance_threshold=relevance_threshold)
    relevant = sorted(filter(made.is_relevant, made.grades()))
    if relevance_threshold is None and len(relevant) > 1:
        shown = ", ".join(f"{grade:g}" for grade in relevant[:5]) + (", ..." if relevant[5:] else "")
        logger.warning(
            f"{where}: candidates of the grades {shown} count as relevant, all above 0, as in BEIR; a training takes "
            "the best of a query as positives. Name the lowest relevant grade with `--relevance_threshold`, in Python "
            "`relevance_threshold`."
        )
    return made


def read_numbers(
    values: Sequence, candidates: list[list], where: str, name: str | None, ids: Sequence | None = None
) -> list[list[float]]:
    """Returns a number for each candidate, NaN if it is unknown: `None` or NaN, also in the place of a list."""
    rows = [
        [None] * len(row) if is_missing(value) else list(value) if isinstance(value, list | tuple) else [value]
        for value, row in zip(values, candidates, strict=True)
    ]
    problem = f"{name} and candidates are {{}}: one finite number for each is needed"

    def is_good(pair: tuple[list, list]) -> bool:
        numbers, row = pair
        return len(numbers) == len(row) and all(is_missing(one) or to_number(one) is not None for one in numbers)

    check_rows(zip(rows, candidates, strict=True), is_good, where, problem, ids)
    return [[math.nan if one is None else float(one) for one in row] for row in rows]


def is_missing(value: Any) -> bool:
    """Returns whether a value is `None` or NaN, as a data frame has it."""
    return value is None or value != value


def make_corpus(corpus: Columns, where: str) -> Dataset:
    """Returns columns as the checked `corpus` of [`Rankings`]."""
    corpus = corpus.with_format(None) if isinstance(corpus, Dataset) and corpus.format["type"] else corpus
    names = column_names(corpus)
    texts = to_lists(corpus[find_column(corpus, f"{where}: the corpus", ["text"])][:])
    if not texts:
        raise ValueError(f"{where}: the corpus is empty.")
    given = to_lists(corpus["doc_id"][:]) if "doc_id" in names else range(len(texts))
    ids = to_ids(given, f"{where}: the document id", unique=True)
    check_rows(texts, lambda text: isinstance(text, str), f"{where}, document", "the text is {}, not a text", ids)
    columns = {"doc_id": ids, "text": texts}
    if "joined_title" in names:
        columns["joined_title"] = corpus["joined_title"][:]
    elif "title" in names:
        columns["text"], titles = join_titles(texts, to_lists(corpus["title"][:]), where)
        columns |= {"joined_title": titles} if any(titles) else {}
    if "passage_of" in names:
        columns["passage_of"] = to_ids(to_lists(corpus["passage_of"][:]), f"{where}: the group")
    # Not copied again.
    if isinstance(corpus, Dataset) and list(given) == ids and columns["text"] == texts:
        return corpus
    return Dataset.from_dict(columns, features=Features({name: Value("string") for name in columns}))


def bodies_of(passages: Dataset) -> list[str]:
    """The texts of passages without the titles before them; of documents, their texts."""
    if not {"joined_title", "passage_of"} <= set(passages.column_names):
        return passages["text"][:]
    rows = zip(passages["text"], passages["joined_title"], strict=True)
    return [text.removeprefix(f"{title}\n") for text, title in rows]


def to_ids(values: Sequence, where: str, unique: bool = False) -> list[str]:
    """Returns ids as texts; a whole number is one, also where a missing id has made it 12.0."""
    check_ids(values, where)
    values = [int(value) if isinstance(value, float) and value.is_integer() else value for value in values]
    check_rows(values, lambda value: not (is_missing(value) or isinstance(value, ID_NOT)), where, "{} names no text")
    ids = list(map(str, values))
    if unique and len(set(ids)) < len(ids):
        raise ValueError(f"{where} {Counter(ids).most_common(1)[0][0]!r} occurs twice: ids name one text each.")
    return ids


def check_ids(values: Iterable, where: str) -> None:
    """Raises a `ValueError` for an id that names another text, because it was rounded."""
    # Floats from 2**53 on do not tell all whole numbers apart.
    rounded = "the id {} is a number that was rounded when it became a float: write the ids as texts"
    check_rows(values, lambda value: not (isinstance(value, float) and abs(value) >= 2.0**53), where, rounded)


def to_lists(values: Any) -> list:
    """Returns a column with lists and numbers in the place of arrays and tensors."""
    values = values.tolist() if hasattr(values, "tolist") else values
    return [value.tolist() if hasattr(value, "tolist") else value for value in values]


def fold(text: str) -> str:
    """Returns a text in lower case and with single spaces."""
    return " ".join(text.lower().split())


def bare(text: str) -> str:
    """
    Returns a text in lower case without white space and punctuation, unless it has nothing else. Signs that make
    another number or name stay: those of `2.5`, `-5`, `5 %` and `C#`.
    """
    kept = SIGNS.sub(lambda found: chr(PRIVATE + ord(found[0])), text.lower())
    return "".join(kept.translate(_punctuation()).split()) or fold(text)


# Signs of numbers and names, and the characters without a category that stand for them meanwhile.
SIGNS = re.compile(r"(?<=\d)[.,/:-](?=\d)|(?<![\w)])-(?=\d)|(?<=\w)#|%")
PRIVATE = 0xE000


@cache
def _punctuation() -> dict[int, None]:
    """All punctuation of Unicode, which `str.translate` takes out; `+` and `=` are symbols."""
    return dict.fromkeys(number for number in range(sys.maxunicode + 1) if category(chr(number)).startswith("P"))


def ranking_rows(rankings: Rankings) -> dict[str, list]:
    """Returns rankings as rows with texts, which sentence-transformers reads too; `None` is an unknown number."""
    rankings = rankings.keep_documents()
    queries, corpus = rankings.queries, rankings.corpus
    columns: dict[str, list] = {name: queries[name][:] for name in ("query_id", "query")}
    for name, source in (("document_ids", "doc_id"), ("documents", "text"), ("groups", "passage_of")):
        if source in corpus.column_names:
            values = corpus[source][:]
            columns[name] = [[values[row] for row in rows] for rows in queries["documents"][:]]
    for name in ("labels", "teacher_logits"):
        if name in queries.column_names:
            columns[name] = [[None if math.isnan(value) else value for value in row] for row in queries[name][:]]
    if rankings.chunk_size is not None:
        columns["chunk_size"] = [rankings.chunk_size] * len(rankings)
    return columns


def write_rankings(rankings: Rankings, path: Path) -> None:
    """Writes rankings as rows with texts."""

    def read_rows(start: int) -> Dataset:
        columns = ranking_rows(rankings.select(range(start, min(start + ROWS_PER_WRITE, len(rankings)))))
        return Dataset.from_dict(columns, features=Features({name: FILE_FEATURES[name] for name in columns}))

    write_table(map(read_rows, range(0, len(rankings), ROWS_PER_WRITE)), path)


# Rows of files


@dataclass(slots=True)
class Candidate:
    """A candidate of a row of a file; `None` and NaN are unknown."""

    row: int
    doc_id: Any
    text: str | None
    group: str | None
    label: float
    score: float


def read_rankings(
    rows: Columns,
    corpus: Columns | None = None,
    query_texts: Mapping[str, str] | None = None,
    where: str = "The rankings",
    relevance_threshold: float | None = None,
) -> Rankings:
    """
    Makes [`Rankings`] of rows: lists (`query`, `documents` or `document_ids`, `labels`, `teacher_logits`), a
    `positive` and negatives as in sentence-transformers, one document, or, with a corpus, queries alone. With a corpus
    a document may be an id in the place of its text. Rows with the same query become one.
    """
    columns = {name: to_lists(rows[name][:]) for name in column_names(rows)}
    documents: Any = None if corpus is None else make_corpus(corpus, where)
    candidates, has_scores = _read_candidates(columns, documents is not None, where)
    texts = _name_documents(candidates, documents, where)
    id_column = _first(columns, QUERY_ID)
    query_ids = None if id_column is None else to_ids(columns[id_column], f"{where}: the query id")
    # As in BEIR.
    query_names = QUERY if candidates else (*QUERY, "text")
    if query_ids is None or query_texts is None or _first(columns, query_names) is not None:
        queries = columns[find_column(columns, where, query_names)]
    else:
        problem = f"the query {{}} has no text; the queries have ids such as {next(iter(query_texts), None)!r}"
        check_rows(query_ids, query_texts.__contains__, where, problem)
        queries = [query_texts[value] for value in query_ids]
    check_rows(queries, is_filled, where, "the query is {}, not a text")
    keys = queries if query_ids is None else query_ids
    query_of: dict[str, str] = {}
    for row, (key, query) in enumerate(zip(keys, queries, strict=True)):
        if query_of.setdefault(key, query) != query:
            raise ValueError(
                f"{where}, row {row}: the query {key!r} has another text than in a row before: {shorten(query)}."
            )
    if num_again := len(query_of) - len(set(query_of.values())):
        logger.warning(
            f"{where}: {num_again} queries have the text of another query and an id of their own: each id is a query "
            "that ranks alone. If the ids are those of rows, leave their column out."
        )
    merged: dict[str, dict[str, Candidate]] = {key: {} for key in query_of}
    for new in candidates:
        old = merged[keys[new.row]].setdefault(new.doc_id, new)
        for name in ("label", "score"):
            before, now = getattr(old, name), getattr(new, name)
            if before != now and not math.isnan(before) and not math.isnan(now):
                raise ValueError(
                    f"{where}, row {new.row}: the candidate {shorten(texts[new.doc_id])} of the query "
                    f"{shorten(queries[new.row])} has the label or score {now:g}, and before {before:g}: remove one "
                    "of the two."
                )
            setattr(old, name, now if math.isnan(before) else before)
    rows_by_id = {doc_id: row for row, doc_id in enumerate(texts)}
    result: dict[str, Any] = {
        "query": list(query_of.values()),
        "documents": [list(map(rows_by_id.__getitem__, known)) for known in merged.values()],
        "labels": [[one.label for one in known.values()] for known in merged.values()],
    }
    if query_ids is not None:
        result["query_id"] = list(query_of)
    if has_scores:
        result["teacher_logits"] = [[one.score for one in known.values()] for known in merged.values()]
    if documents is None or len(texts) > len(documents):
        documents = {"doc_id": list(texts), "text": list(texts.values())}
        # The documents that candidates are passages of.
        if group_of := {one.doc_id: one.group for one in candidates if one.group is not None}:
            documents["passage_of"] = [group_of.get(doc_id, doc_id) for doc_id in texts]
    made = make_rankings(result, documents, where, relevance_threshold)
    sizes = {int(size) for size in columns.get("chunk_size", []) if not is_missing(size)}
    if len(sizes) > 1:
        raise ValueError(f"{where}: the rows have the chunk sizes {sorted(sizes)}: mine all with one `--chunk_size`.")
    return replace(made, chunk_size=sizes.pop()) if sizes else made


def is_ranking(names: Sequence[str]) -> bool:
    """Returns whether rows with these columns are rankings, not pairs of sentences."""
    return any(name in (*LISTS, "positive") or NEGATIVE.fullmatch(name) for name in names)


def _name_documents(candidates: Sequence[Candidate], corpus: Dataset | None, where: str) -> dict[str, str]:
    """Gives each candidate its id, and returns the texts of a corpus and those that the rows add, by their ids."""
    known = {} if corpus is None else dict(zip(corpus["doc_id"][:], corpus["text"][:], strict=True))
    # The first of equal ones.
    by_text = {text: doc_id for doc_id, text in reversed(known.items())}
    unnamed = [one for one in candidates if one.doc_id is None]
    # Texts are ids where one of them is an id of the corpus.
    if any(one.text in known for one in unnamed):
        for one in unnamed:
            one.doc_id, one.text = one.text if one.text in known else by_text.get(one.text, one.text), None
    for one in candidates:
        if one.doc_id is None:
            one.doc_id = by_text.setdefault(one.text, f"{'' if corpus is None else 'added '}{len(known)}")
        elif one.text is None and one.doc_id not in known:
            raise ValueError(
                f"{where}, row {one.row}: the document {shorten(one.doc_id)} is not in the corpus of {len(known)} "
                f"documents, whose ids are such as {next(iter(known))!r}: add its text, or remove it."
            )
        # An id may have another text in the corpus or another row.
        while one.text is not None and known.setdefault(one.doc_id, one.text) != one.text:
            one.doc_id += " (2)"
    return known


def _read_candidates(columns: dict[str, list], has_corpus: bool, where: str) -> tuple[list[Candidate], bool]:
    """Returns the candidates of all rows, and whether there are scores."""
    labels, scores = _first(columns, LABELS), _first(columns, TEACHER_LOGITS)
    if labels is None and scores == "score" and {"query-id", "corpus-id"}.issubset(columns):
        # The judgements of BEIR.
        labels, scores = scores, None
    document = _first(columns, (*DOCUMENT, *DOCUMENT_ID) if has_corpus else DOCUMENT)
    negatives = [name for name in columns if NEGATIVE.fullmatch(name)]
    lists = {name: columns[name] for name in LISTS if name in columns}
    used = [*lists]
    # Labels of the candidates of a row, where no column tells them.
    relevance: list[float] | None = None
    if lists:
        if not has_corpus and "documents" not in lists:
            raise ValueError(f"{where}: the texts of the document ids are unknown: name their `--corpus`.")
        for name, rows in lists.items():
            check_rows(rows, lambda value: isinstance(value, list), where, f"{name} is {{}}, not a list")
    elif document is not None:
        used = [document, *negatives]
        if negatives:
            # In sentence-transformers, the labels of negatives are a teacher's scores.
            labels, scores = None, scores or labels
        if negatives or not labels and (scores is None or document == "positive"):
            relevance = [1.0, *(0.0 for _ in negatives)]
        # Rows may have fewer negatives than others.
        others = [["" if is_missing(text) else text for text in columns[name]] for name in negatives]
        kind = "document_ids" if document in DOCUMENT_ID else "documents"
        lists = {kind: list(map(list, zip(columns[document], *others, strict=True)))}
    elif not negatives and has_corpus and {*QUERY, *QUERY_ID, *BESIDE}.issuperset(columns):
        lists = {"documents": [[] for _ in next(iter(columns.values()), [])]}
    else:
        raise ValueError(
            f"{where}: no column has {'positives' if negatives else 'candidates'}; the columns are "
            f"{', '.join(columns)}. Rename them to `query` and `document` (a text, or with `--corpus` an id or "
            "the path of a file), or `query`, `documents` and `labels`, or `query`, `positive` and `negative_1`, ..., "
            "and remove those of queries that have no candidates."
        )
    known = {*used, labels, scores, *QUERY, *QUERY_ID, *BESIDE, "groups", "chunk_size"}
    if left_out := [name for name in columns if name not in known]:
        logger.warning(f"{where}: the columns {', '.join(left_out)} have no known name, and are left out.")
    first = next(iter(lists.values()))
    kinds = str | int | float if has_corpus else str
    problem = "the candidates {} are not texts: lists are read from the columns `documents` and `labels`"
    check_rows(first, lambda row: all(isinstance(text, kinds) for text in row), where, problem)
    names = {
        name: [to_ids(row, f"{where}, row {number}: the document id") for number, row in enumerate(rows)]
        for name, rows in lists.items()
    }
    unknown: list[list] = [[None] * len(row) for row in first]
    named = [names.get("document_ids", unknown), names.get("documents", unknown), columns.get("groups", unknown)]
    relevances = columns[labels] if labels else [relevance] * len(first)
    logits = columns[scores] if scores else unknown
    numbers = [read_numbers(values, first, where, name) for name, values in ((labels, relevances), (scores, logits))]
    found: list[Candidate] = []
    for row, parts in enumerate(zip(*named, *numbers, strict=True)):
        found += [Candidate(row, *part) for part in zip(*parts, strict=True)]
    kept = [one for one in found if one.text is None or is_filled(one.text)]
    if len(kept) < len(found):
        logger.warning(f"{where}: {len(found) - len(kept)} blank candidates are left out.")
    return kept, scores is not None


def _first(names: Iterable[str], wanted: Sequence[str]) -> str | None:
    return next((name for name in wanted if name in names), None)
