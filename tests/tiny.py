# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Configurations of tiny models."""

from dataclasses import fields

from hf_dse import DseConfig


OURS = {entry.name for entry in fields(DseConfig)} | {"num_labels", "problem_type", "id2label", "label2id"}


def make_config(model_type="bert", table=None, **options):
    """A `DseConfig`; options that are none of its fields are those of the encoder inside."""
    encoder = {name: value for name, value in options.items() if name not in OURS}
    # Both have it; a table of positions may be shorter than the texts.
    positions = {"max_position_embeddings": table or options.get("max_position_embeddings", 512)}
    ours = {name: value for name, value in options.items() if name in OURS}
    return DseConfig(encoder={"model_type": model_type, **positions, **encoder}, **ours)
