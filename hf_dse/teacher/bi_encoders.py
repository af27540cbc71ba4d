# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: the cosines of a `SentenceTransformer`, with BM25, as scores of candidates."""

import math
from itertools import compress, islice, pairwise
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dse.common.loading import read_json, reading
from hf_dse.common.settings import SETTINGS, read_modules
from hf_dse.data.passages import split_text
from hf_dse.data.rankings import Rankings, bodies_of
from hf_dse.data.tables import is_filled
from hf_dse.retrieval.bm25 import Words
from hf_dse.retrieval.index import Index
from hf_dse.retrieval.negatives import split_corpus
from hf_dse.retrieval.sentence_transformer import room_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from typing_extensions import TypeIs


def is_bi_encoder(teacher: Any) -> "TypeIs[SentenceTransformer]":
    """Whether a teacher is a bi-encoder, loaded or by its files: a `SentenceTransformer` with its modules."""
    if not isinstance(teacher, str | PathLike):
        return hasattr(teacher, "encode_query")
    name = fspath(teacher)
    with reading(name):
        # A `CrossEncoder` may have modules too.
        return bool(read_modules(name)) and read_json(name, SETTINGS).get("model_type") != "CrossEncoder"


def similarities(
    encoder: "SentenceTransformer",
    rankings: Rankings,
    *,
    windows: str,
    bm25_weight: float,
    **options: Any,
) -> list[list[float]]:
    """
    The cosines of queries and their candidates, 0 for a blank document, plus BM25 times its weight. `options` are of
    an [`Index`].
    """
    queries, lists = (rankings.queries[name][:] for name in ("query", "documents"))
    # Also for models that are made for dot products.
    encoder.similarity_fn_name = "cosine"
    # The words of the whole corpus, and the vectors of the candidates alone.
    if bm25_weight:
        words, places = _count_words(rankings, encoder)
        added = words.scores(queries, bm25_weight)
    needed = rankings.keep_documents()
    texts, room = needed.corpus["text"][:], room_of(encoder)
    # Windows of as many tokens as the model reads.
    is_split = windows == "best" and room < math.inf
    parts = [split_text(text, encoder.tokenizer, int(room)) if is_split and text else [text] for text in texts]
    starts = np.cumsum([0, *map(len, parts)]).tolist()
    index = Index(encoder, [part for found in parts for part in found], **options)
    rows_of = [list(range(first, last)) for first, last in pairwise(starts)]
    needed_lists = needed.queries["documents"][:]
    found = index.scores(queries, [[row for document in rows for row in rows_of[document]] for rows in needed_lists])
    scores = []
    for number, (documents, rows, of_windows) in enumerate(zip(lists, needed_lists, found, strict=True)):
        values = iter(of_windows)
        row = np.array([max(islice(values, len(parts[document]))) for document in rows], dtype=np.float32)
        # One query at a time, because its scores are those of the whole corpus.
        if bm25_weight:
            where = places[documents]
            row += np.where(where < 0, 0, added(slice(number, number + 1))[0, where])
        scores.append(row.tolist())
    return scores


def _count_words(rankings: Rankings, encoder: "SentenceTransformer") -> tuple[Words, np.ndarray]:
    """
    The words of the corpus as a search has them, and the place of each of its rows there, -1 for none: beside
    candidates that are passages, whole documents are split into all of theirs.
    """
    corpus, places = rankings.corpus, np.arange(len(rankings.corpus))
    if not rankings.has_passages:
        texts = corpus["text"][:]
        filled = np.array([is_filled(text) for text in texts])
        places = np.where(filled, np.cumsum(filled) - 1, -1)
        return Words(list(compress(texts, filled))), places
    ids, documents = corpus["doc_id"][:], rankings.document_ids
    whole = [row for row, (doc_id, document) in enumerate(zip(ids, documents, strict=True)) if doc_id == document]
    if not whole or not rankings.chunk_size:
        return Words(bodies_of(corpus), documents), places
    split = split_corpus(corpus.select(whole), encoder, rankings.chunk_size)
    rows = {doc_id: row for row, doc_id in enumerate(split["doc_id"][:])}
    return Words(bodies_of(split), split["passage_of"][:]), np.array([rows.get(doc_id, -1) for doc_id in ids])
