# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that are run: loading, embeddings, indices and search, on one machine or many."""
