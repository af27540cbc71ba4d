# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Students of encoders other than BERT: every stage lowers its loss, and writes a folder that loads."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel


TRAINING = {"num_train_epochs": 12, "learning_rate": 3e-3, "logging_strategy": "epoch", "eval_strategy": "no"}


@pytest.mark.parametrize("stage", ["general", "pairs", "ranking"])
@pytest.mark.parametrize("model_type", ["modernbert", "mpnet"])
def test_a_stage(model_type, stage, tiny_config, bert_tokenizer, run, tmp_path):
    torch.manual_seed(0)
    fields = {"model_type": model_type, "linformer_projection": "strided", "initializer_range": 0.2}
    encoder = AutoModel.from_config(tiny_config(bert_tokenizer, **fields, global_attn_every_n_layers=2).encoder)
    for part in (encoder, bert_tokenizer):
        part.save_pretrained(tmp_path / "encoder")
    # Random teachers contradict the labels of pairs.
    options = {"distillation_alpha": 0.0, **TRAINING} if stage == "pairs" else TRAINING
    assert run("out", stage, model_name_or_path=tmp_path / "encoder", linformer_length=4, **options) == 0
    (state,) = (tmp_path / "out").glob("trainer_state.json")
    losses = [entry["loss"] for entry in json.loads(state.read_text())["log_history"] if "loss" in entry]
    assert losses[-1] < 0.8 * losses[0]
    student = SentenceTransformer(str(tmp_path / "out" / "model"), device="cpu")
    assert student[0].auto_model.config.encoder.model_type == model_type
    assert np.isfinite(student.encode(["a cat sat on the old mat", "new"])).all()
