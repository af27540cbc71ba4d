# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands of `hf-dse`: each parses its options and calls the subpackages that do the work."""
