# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search: the index of a corpus, any model as `SentenceTransformer`, BM25, rerankers, made queries and negatives."""
