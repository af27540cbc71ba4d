# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures: of sentence pairs and rankings, with intervals; searches side by side, and what is there to gain."""
