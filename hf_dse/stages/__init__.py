# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The stages of a distillation, in one call: data, teacher scores, training, evaluation and export."""
