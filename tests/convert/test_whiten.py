# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Whitening levels the spread of embeddings, makes them smaller, and leaves everything else as it was."""

import numpy as np
import pytest
import torch
from transformers import AutoModel
from transformers.dynamic_module_utils import get_class_from_dynamic_module

from hf_dse import DseForSequenceClassification, DseModel, export, to_sentence_transformer, whiten_encoder
from hf_dse.convert.whiten import LEAST_SPREAD
from hf_dse_cli import main


WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
SIZE = 16  # the tiny model's


@pytest.fixture(scope="module")
def texts():
    rng = np.random.default_rng(0)
    return [" ".join(rng.choice(WORDS, rng.integers(2, 12))) for _ in range(120)]


def unit(vectors):
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def embed(model, tokenizer, texts):
    return to_sentence_transformer(model, tokenizer).encode(texts, show_progress_bar=False).astype(float)


@pytest.mark.parametrize("power", [0.0, 0.5, 1.0])
@pytest.mark.parametrize("projection_dim", [1, 5, SIZE])
def test_against_the_covariance(power, projection_dim, make_model, bert_tokenizer, texts):
    model = make_model(DseModel)
    before = embed(model, bert_tokenizer, texts)
    assert whiten_encoder(model, bert_tokenizer, texts, projection_dim, power=power) is model
    after = embed(model, bert_tokenizer, texts)
    assert after.shape == (len(texts), projection_dim) and model.config.projection_dim == projection_dim

    # The slow way: eigenvectors of the covariance, largest eigenvalues first.
    values, vectors = np.linalg.eigh(np.cov(unit(before).T))
    values = np.maximum(values, values[-1] * LEAST_SPREAD**2)
    values, vectors = values[::-1][:projection_dim], vectors[:, ::-1][:, :projection_dim]
    expected = before @ vectors * values ** (-power / 2)
    expected *= np.linalg.norm(unit(before)) / np.linalg.norm(unit(before) @ vectors * values ** (-power / 2))
    np.testing.assert_allclose(np.abs(after), np.abs(expected), rtol=2e-3, atol=2e-3)
    # A direction may have either sign, but the same one in all texts.
    np.testing.assert_allclose(after @ after.T, expected @ expected.T, rtol=5e-3, atol=5e-3)


def test_everything_else_stays(make_model, bert_tokenizer, texts, tmp_path):
    model = make_model(DseModel)
    state = {name: tensor.clone() for name, tensor in model.state_dict().items()}
    whiten_encoder(model, bert_tokenizer, texts, 6)
    after = model.state_dict()
    assert set(after) - set(state) == {"projection.weight", "projection.bias"}
    assert all(torch.equal(tensor, after[name]) for name, tensor in state.items())
    assert not model.training and all(parameter.requires_grad for parameter in model.parameters())
    export(model, tmp_path / "whitened", bert_tokenizer)
    loaded = AutoModel.from_pretrained(tmp_path / "whitened")
    assert loaded.config.projection_dim == loaded.config.embedding_size == 6
    np.testing.assert_array_equal(embed(loaded, bert_tokenizer, texts), embed(model, bert_tokenizer, texts))
    # The same texts in another order give the same weights, but for rounding.
    again = whiten_encoder(make_model(DseModel), bert_tokenizer, texts[::-1], 6)
    torch.testing.assert_close(again.projection.weight, model.projection.weight, rtol=1e-3, atol=1e-4)


@pytest.mark.parametrize(
    ("fields", "options", "message"),
    [
        ({}, {"projection_dim": SIZE + 1}, "from 1 to 16, the pooled size, got 17"),
        ({}, {"power": float("nan")}, r"between 0 \(PCA\) and 1 \(whitening\), got nan"),
        ({}, {"texts": ["a cat", "the dog"] * SIZE}, "span 1 directions, fewer than `projection_dim` = 4"),
        ({"projection_dim": 16}, {}, "already has a projection to 16 dimensions"),
    ],
)
def test_what_is_refused(fields, options, message, make_model, bert_tokenizer, texts):
    model = make_model(DseModel, **fields)
    state, config = model.state_dict(), model.config.to_dict()
    with pytest.raises(ValueError, match=message):
        whiten_encoder(model, bert_tokenizer, **{"texts": texts, "projection_dim": 4, **options})
    assert model.config.to_dict() == config and model.state_dict().keys() == state.keys()


def test_a_model_with_the_code_of_its_folder(make_model, bert_tokenizer, texts, tmp_path):
    """Its class has the same name and is another one."""
    ours = make_model(DseModel)
    folder = export(ours, tmp_path / "model", bert_tokenizer)
    other = get_class_from_dynamic_module("modeling_dse.DseModel", str(folder)).from_pretrained(folder)
    assert not isinstance(other, DseModel)
    expected, found = (whiten_encoder(model, bert_tokenizer, texts, 4) for model in (ours, other))
    assert torch.allclose(found.projection.weight, expected.projection.weight, atol=1e-5)


def test_a_head_is_refused(make_model, bert_tokenizer, texts):
    with pytest.raises(TypeError, match="got DseForSequenceClassification: .* train a new head afterwards"):
        whiten_encoder(make_model(), bert_tokenizer, texts, 4)


@pytest.mark.parametrize("model_class", [DseModel, DseForSequenceClassification])
def test_the_command(model_class, make_model, bert_tokenizer, texts, tmp_path, capsys):
    model = make_model(model_class)
    source = export(model, tmp_path / "student", bert_tokenizer)
    file, output = tmp_path / "texts.txt", tmp_path / "whitened"
    file.write_text("\n".join(texts) + "\n")
    command = ["whiten", "--model", str(source), "--train_file", str(file), "--output_dir", str(output)]
    assert main([*command, "--projection_dim", "6", "--power", "1"]) == 0
    assert f"Saved to {output}" in capsys.readouterr().out
    loaded = AutoModel.from_pretrained(output)
    expected = whiten_encoder(model.base_model, bert_tokenizer, texts, 6, power=1)
    vectors = [embed(encoder, bert_tokenizer, texts) for encoder in (loaded, expected)]
    np.testing.assert_allclose(*vectors, rtol=1e-4, atol=1e-5)
    assert main([*command, "--projection_dim", "17", "--output_dir", str(tmp_path / "other")]) == 2
    assert not (tmp_path / "other").exists() and "got 17" in capsys.readouterr().err
