# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: the cosines of a `SentenceTransformer`, with BM25, as scores of candidates."""

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import Rankings
from hf_dse.retrieval.bm25 import bm25_scores
from hf_dse.retrieval.index import embed_once
from hf_dse.retrieval.sentence_transformer import length_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer
    from typing_extensions import TypeIs


def is_bi_encoder(teacher: Any) -> "TypeIs[SentenceTransformer]":
    """Whether a teacher is a loaded bi-encoder; a name stands for a reranker."""
    return hasattr(teacher, "encode_query")


def similarities(
    encoder: "SentenceTransformer",
    rankings: Rankings,
    *,
    windows: str,
    bm25_weight: float,
    batch_size: int = 32,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
) -> list[list[float]]:
    """The cosines of queries and their candidates, 0 for a blank document, plus BM25 times its weight."""
    queries, lists = (rankings.queries[name][:] for name in ("query", "documents"))
    # Before the texts are embedded, because BM25 may lack its packages.
    words = bm25_scores(queries, rankings.corpus["text"][:], bm25_weight) if bm25_weight else None
    needed = keep_documents(rankings)
    # Windows of as many tokens as the model reads; 0 is whole documents.
    size = (length_of(encoder, "document") or 0) if windows == "best" else 0
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    query_parts = embed_once(encoder, queries, cache_dir, "query", **options)
    parts = embed_once(encoder, needed.corpus["text"][:], cache_dir, chunk_size=size, **options)
    query_vectors, vectors = ([to_units(found) for _, found in entries] for entries in (query_parts, parts))
    scores = []
    for number, (documents, rows) in enumerate(zip(lists, needed.queries["documents"][:], strict=True)):
        cosines = (vectors[row] @ query_vectors[number][0] if len(vectors[row]) else np.zeros(1) for row in rows)
        values = np.array([found.max() for found in cosines], dtype=np.float32)
        if words is not None:
            # One query at a time, because its scores are those of the whole corpus.
            values += words(slice(number, number + 1))[0, documents]
        scores.append(values.tolist())
    return scores


def to_units(vectors: np.ndarray) -> np.ndarray:
    """Vectors of length 1, but for those of length 0."""
    return vectors / np.maximum(np.linalg.norm(vectors, axis=1, keepdims=True), 1e-12)
