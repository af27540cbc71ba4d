# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Teachers: scores of pairs and candidates by rerankers and bi-encoders."""
