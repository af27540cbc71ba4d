# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Helpers for all subpackages: files, options, devices, tables and provenance."""
