# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job: data, teacher scores, training, evaluation and a documented model folder, stage by stage."""
