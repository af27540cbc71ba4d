# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Data sets: tasks, files, sentence pairs, tokenization and batches."""
