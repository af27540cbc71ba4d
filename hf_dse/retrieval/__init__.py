# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Inference: loading models, computing embeddings, indexes and search."""
