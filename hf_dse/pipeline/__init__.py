# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The distillation pipeline: data, teacher scores, training, evaluation and export, stage by stage."""
