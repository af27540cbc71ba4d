# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Teachers: fine-tuning and loading cross-encoders, and scoring pairs with them."""
