# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The origin of results: names of models with their revision, commands, and fingerprints."""

import sys
from pathlib import Path

import torch
from transformers import AutoTokenizer, BertModel

from hf_dse.common.provenance import (
    describe_command,
    describe_source,
    fingerprint,
    local_name,
    package_versions,
    weight_bytes,
)


def test_sources(tmp_path):
    link = "[user/name@abc](https://huggingface.co/user/name/tree/abc)"
    assert str(describe_source("user/name@abc")) == link
    assert str(describe_source("user/set", "datasets/")) == "[user/set](https://huggingface.co/datasets/user/set)"
    cached = tmp_path / "models--user--name" / "snapshots" / "0a1"
    cached.mkdir(parents=True)
    assert describe_source(str(cached)).hub_id == "user/name"
    folder = tmp_path / "my|run" / "model"
    folder.mkdir(parents=True)
    # Local paths do not become public.
    assert str(describe_source(str(folder))) == r"my\|run/model"
    (folder / "README.md").write_text("---\nbase_model: user/base\n---\n")
    assert str(describe_source(str(folder))).endswith("made from [user/base](https://huggingface.co/user/base)")
    (folder / "README.md").write_text("---\nbase_model: ]\n---\n")
    assert describe_source(str(folder)).hub_id is None
    assert local_name(tmp_path / "run" / "checkpoint-5") == "run/checkpoint-5"
    assert local_name(Path("~/model")) == "model"


def test_commands_have_no_tokens_and_no_paths(tmp_path, monkeypatch):
    words = ["/bin/hf-dse", "push", "--token", "hf_secret", "--hub_token=hf_secret", str(tmp_path / "a b"), "--x=/y/z"]
    monkeypatch.setattr(sys, "argv", words)
    assert describe_command() == "hf-dse push 'a b' --x=z"
    monkeypatch.setattr(sys, "argv", ["pytest"])
    assert describe_command() is None
    assert package_versions(["torch", "no-such-package"]) == {"torch": torch.__version__, "no-such-package": None}


def test_fingerprints(save_bert, tmp_path):
    """Everything that affects scores, and nothing else: a stored score must not outlive its model."""
    model = BertModel.from_pretrained(save_bert(tmp_path))
    tokenizer = AutoTokenizer.from_pretrained(tmp_path)
    first = fingerprint(model, tokenizer)
    model.config.prompts, model.config._name_or_path = {"query": "x"}, "elsewhere"
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
