# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that options of a search can have."""

# Weight of BM25 beside the cosine, if nothing else is said.
BM25_WEIGHT = 0.3

# Share of a reranker's score beside that of the search, if nothing else is said.
RERANK_WEIGHT = 0.5

# How many documents of a query a reranker reads.
RERANK_TOP = (20, 100)

QUERY_KINDS = ("first_sentences", "sentences")
SAMPLINGS = ("top", "random")
