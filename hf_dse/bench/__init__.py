# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: speed by length, the cost of ranking, the error of projected attention."""
