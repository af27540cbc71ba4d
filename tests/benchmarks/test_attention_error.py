# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The error of projected attention: against a plain computation, and the spectrum."""

import attention_error
import pytest
import torch
from attention_error import attention_matrix, layer_errors, measure_spectrum, project

from hf_dse import DseModel


@pytest.fixture
def softmax(make_model):
    return make_model(DseModel, layer_types=["full_attention"] * 2)


@torch.inference_mode()
def test_the_error_is_that_of_a_plain_computation(softmax):
    input_ids = torch.randint(5, 40, (1, 10))
    errors = layer_errors(project(softmax, 4, "mean"), attention_error.run(softmax, input_ids))
    states = softmax(input_ids, output_hidden_states=True).hidden_states
    # First and last token stay, the eight between them are two segments of four tokens.
    pool = torch.zeros(4, 10)
    pool[0, 0] = pool[3, 9] = 1.0
    pool[1, 1:5] = pool[2, 5:9] = 0.25
    for number, layer in enumerate(softmax.encoder.encoder.layer):
        x, attention = states[number][0], layer.attention.self
        expected, found = torch.empty(10, 16), torch.empty(10, 16)
        for head in (slice(0, 8), slice(8, 16)):
            query = attention.query(x)[:, head]
            logits = query @ attention.key(x)[:, head].T / 8**0.5
            expected[:, head] = logits.softmax(dim=-1) @ attention.value(x)[:, head]
            logits = query @ attention.key(pool @ x)[:, head].T / 8**0.5
            found[:, head] = logits.softmax(dim=-1) @ attention.value(pool @ x)[:, head]
        plain = ((found - expected) ** 2).sum().sqrt() / (expected**2).sum().sqrt()
        assert errors[number].item() == pytest.approx(plain.item(), rel=1e-4)


@torch.inference_mode()
def test_the_spectrum_is_that_of_the_recorded_attention(softmax):
    input_ids = torch.randint(5, 40, (1, 12))
    run = attention_error.run(softmax, input_ids)
    rows = measure_spectrum(softmax, [run], [5, 20])
    recorded = softmax(input_ids, output_attentions=True).attentions
    for number, (row, attentions) in enumerate(zip(rows, recorded, strict=True)):
        made = attention_matrix(softmax.encoder.encoder.layer[number].attention.self, run.layers[number][0])
        torch.testing.assert_close(made, attentions)
        energy = torch.linalg.svdvals(attentions[0]) ** 2
        shares = energy.cumsum(dim=-1) / energy.sum(dim=-1, keepdim=True)
        assert row["shares"]["5"] == pytest.approx(shares[:, 4].mean().item(), abs=1e-5)
        assert row["shares"]["20"] == pytest.approx(1.0)
        assert row["num_values"] == pytest.approx((1 + (shares < 0.9).sum(dim=-1)).double().mean().item())


def test_the_command(save_bert, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(f"the cat sat on mat {number}" for number in range(50)))
    argv = [str(save_bert(tmp_path / "bert")), str(tmp_path / "texts.txt"), "--lengths", "40", "--num_texts", "2"]
    attention_error.main([*argv, "--projected_lengths", "8", "40", "--projections", "mean", "strided"])
    out = capsys.readouterr().out
    assert "| mean | 40 | 40 | 0.0 | 0.0 | 0.0 |" in out and "| strided | 40 | 8 | " in out
    assert "| 40 | 1 | " in out and "% in first 8" in out
