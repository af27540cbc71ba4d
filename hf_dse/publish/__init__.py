# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Publishing models: folders, model cards, graphs and the Hub."""
