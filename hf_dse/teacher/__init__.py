# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Teachers: cross-encoders that are fine-tuned, loaded, and that score pairs."""
