# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: the cosines of a `SentenceTransformer`, with BM25, as scores of candidates."""

from typing import TYPE_CHECKING, Any

import numpy as np

from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import Rankings
from hf_dse.retrieval.bm25 import Words, number_groups
from hf_dse.retrieval.index import Index
from hf_dse.retrieval.sentence_transformer import length_of, to_sentence_transformer


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
    **options: Any,
) -> list[list[float]]:
    """
    The cosines of queries and their candidates, 0 for a blank document, plus BM25 times its weight. `options` are of
    an [`Index`].
    """
    queries, lists = (rankings.queries[name][:] for name in ("query", "documents"))
    encoder = to_sentence_transformer(encoder)
    # Also for models that are made for dot products.
    encoder.similarity_fn_name = "cosine"
    # The words of the whole corpus, and the vectors of the candidates alone.
    groups = number_groups(rankings.document_ids) if rankings.has_passages else None
    words = Words(rankings.corpus["text"][:], groups).scores(queries, bm25_weight) if bm25_weight else None
    needed = keep_documents(rankings)
    # Windows of as many tokens as the model reads; 0 is whole documents.
    size = (length_of(encoder, "document") or 0) if windows == "best" else 0
    index = Index(encoder, needed.corpus["text"][:], chunk_size=size, **options)
    found = index.scores(queries, needed.queries["documents"][:])
    scores = []
    for number, (documents, values) in enumerate(zip(lists, found, strict=True)):
        row = np.array([value for value, _ in values], dtype=np.float32)
        # One query at a time, because its scores are those of the whole corpus.
        scores.append((row if words is None else row + words(slice(number, number + 1))[0, documents]).tolist())
    return scores
