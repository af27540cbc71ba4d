# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation: pairs of sentences, search in a corpus, and comparisons of searches."""
