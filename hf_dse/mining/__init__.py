# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training data from texts without labels."""
