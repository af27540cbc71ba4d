# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The origin of results: names of models with their revision, and fingerprints."""

import torch
from transformers import AutoTokenizer, BertModel

from hf_dse.common.provenance import (
    describe_source,
    fingerprint,
    weight_bytes,
)


def test_sources(tmp_path):
    link = "[user/name@abc](https://huggingface.co/user/name/tree/abc)"
    assert str(describe_source("user/name@abc")) == link
    assert str(describe_source("user/set", "datasets/")) == "[user/set](https://huggingface.co/datasets/user/set)"
    cached = tmp_path / "models--user--name" / "snapshots" / "0a1"
    cached.mkdir(parents=True)
    assert describe_source(str(cached)).hub_id == "user/name"
    # Local paths do not become public.
    assert str(describe_source(str(tmp_path / "my|model"))) == r"my\|model"


def test_fingerprints(save_bert, tmp_path):
    """Everything that affects scores, and nothing else: a stored score must not outlive its model."""
    model = BertModel.from_pretrained(save_bert(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    first = fingerprint(model, tokenizer)
    model.config._name_or_path = "elsewhere"
    tokenizer(["a"], truncation=True, max_length=4, padding=True)
    assert fingerprint(model, tokenizer) == first
    tokenizer.padding_side = "left"
    assert fingerprint(model, tokenizer) != first
    tokenizer.padding_side = "right"
    model.config.hidden_act = "relu"
    assert fingerprint(model, tokenizer) != first
    model.config.hidden_act = "gelu"
    with torch.no_grad():
        next(model.parameters())[0, 0] += 1e-3
    assert fingerprint(model, tokenizer) != first


def test_weights_have_the_same_bytes_in_any_layout():
    weights = torch.randn(3, 4)
    assert weight_bytes(weights.T.contiguous().T) == weight_bytes(weights) != weight_bytes(-weights)
    assert len(weight_bytes(torch.tensor(1.0, dtype=torch.bfloat16))) == 2
