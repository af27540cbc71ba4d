# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Studies: grids of trainings that are run once each, kept in one table, and reported with their noise."""
