# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of the options of mining, and of a search by words."""

SAMPLINGS = ("top", "random")


QUERY_KINDS = ("titles", "first_sentences", "sentences")

# Of BM25 beside the cosine.
BM25_WEIGHT = 0.3
