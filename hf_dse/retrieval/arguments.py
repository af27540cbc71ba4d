# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values that options of retrieval can have, without the imports of retrieval."""

# The name of the search by words.
BM25 = "BM25"
# Ends the name of a search by vectors and words.
WITH_BM25 = f" with {BM25}"

# Tokens of a chunk, and the weight of BM25 beside the cosine, if nothing else is said.
CHUNK_SIZE = 128
BM25_WEIGHT = 0.3

# How many documents of a query a reranker reads.
RERANK_TOP = (20, 100)

QUERY_KINDS = ("first_sentences", "sentences")
SAMPLINGS = ("top", "random")
