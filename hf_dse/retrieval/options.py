# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that options of a search can have."""

# Weight of BM25 beside the cosine, if nothing else is said.
BM25_WEIGHT = 0.3

# Share of a reranker's score beside that of the search, if nothing else is said.
RERANK_WEIGHT = 0.5

# How many documents of a query a reranker reads: in a search, and where searches are compared.
RERANKED = 50
RERANK_TOP = (20, 100)

QUERY_KINDS = ("headings", "first_sentences")
SAMPLINGS = ("top", "random")


def check_reranking(reranker: object, **options: object) -> None:
    """Raises a `ValueError` for an option of a reranker where there is none."""
    for name, value in options.items():
        if reranker is None and value is not None:
            raise ValueError(f"{name}={value}: there is no reranker. Pass one (`--rerank`), or leave this out.")
