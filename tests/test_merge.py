# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Merged students are the weighted mean of their weights, and only what belongs together is merged."""

import json
import sys

import numpy as np
import pytest
import torch
from transformers import AutoModelForSequenceClassification

from hf_dse import DseForSequenceClassification, DseModel, export_model
from hf_dse.student.merge import merge_models
from hf_dse_cli import main


@pytest.fixture
def make_models(make_model):
    """Makes models of one configuration whose weights differ by noise."""

    def make(count=3, model_class=DseForSequenceClassification, **fields):
        models = []
        for seed in range(count):
            model = make_model(model_class, **fields)
            generator = torch.Generator().manual_seed(seed)
            with torch.no_grad():
                for parameter in model.parameters():
                    parameter += 0.1 * torch.randn(parameter.shape, generator=generator)
            models.append(model)
        return models

    return make


def weights_of(model, prefix=""):
    return {name.removeprefix(prefix): tensor.numpy().copy() for name, tensor in model.state_dict().items()}


@pytest.mark.parametrize("weights", [None, [1.0, 1.0, 2.0], [0.0, 3.0, 0.0]])
def test_the_weighted_mean(make_models, weights):
    models = make_models()
    before = [weights_of(model) for model in models]
    merged = merge_models(models, weights)
    assert merged is models[0]
    shares = np.array(weights or [1.0] * 3) / sum(weights or [1.0] * 3)
    for name, tensor in weights_of(merged).items():
        expected = sum(share * state[name].astype(float) for share, state in zip(shares, before, strict=True))
        np.testing.assert_allclose(tensor, expected, rtol=1e-6, atol=1e-7, err_msg=name)
    for model, state in zip(models[1:], before[1:], strict=True):
        assert all(np.array_equal(tensor, state[name]) for name, tensor in weights_of(model).items())


@pytest.mark.parametrize("head_first", [True, False])
def test_a_student_and_the_encoder_it_started_from(make_models, head_first):
    (student,), (start,) = make_models(1), make_models(1, DseModel)
    with torch.no_grad():
        for parameter in start.parameters():
            parameter += 1.0
    heads = {name: tensor for name, tensor in weights_of(student).items() if name.startswith("similarity.")}
    ours, theirs = weights_of(student.dse), weights_of(start)
    merged = merge_models([student, start] if head_first else [start, student], [3, 1] if head_first else [1, 3])
    assert isinstance(merged, DseForSequenceClassification if head_first else DseModel)
    state = weights_of(merged, "dse.")
    for name in ours:
        np.testing.assert_allclose(state[name], 0.75 * ours[name] + 0.25 * theirs[name], rtol=1e-5, atol=1e-6)
    assert all(np.array_equal(state[name], tensor) for name, tensor in heads.items() if head_first)
    assert set(state) == (set(ours) | set(heads) if head_first else set(ours))


@pytest.mark.parametrize(
    ("fields", "weights", "message"),
    [
        ([{}], None, "at least two models, got 1"),
        ([{}, {}], [1.0], "2 models need 2 weights, got 1"),
        ([{}, {}], [1.0, -1.0], "finite numbers of at least 0, and not all 0, got"),
        ([{}, {}], [1.0, float("nan")], "finite numbers of at least 0"),
        ([{}, {}], [0.0, 0.0], "finite numbers of at least 0"),
        ([{}, {}, {"linformer_length": 4}], None, r"Model 3 has another configuration .*linformer_length: 8 and 4"),
        ([{}, {"similarity": "dot"}], None, "similarity: cosine and dot"),
        ([{}, {"num_labels": 3}], None, "another weights|another configuration"),
    ],
)
def test_what_is_refused(make_model, fields, weights, message):
    models = [make_model(**options) for options in fields]
    before = weights_of(models[0])
    with pytest.raises(ValueError, match=message):
        merge_models(models, weights)
    assert all(np.array_equal(tensor, before[name]) for name, tensor in weights_of(models[0]).items())


def test_what_a_projection_does_not_use_may_differ(make_model):
    fields = [{"linformer_init": "mean"}, {"linformer_init": "strided", "linformer_sharing": "none"}]
    merge_models([make_model(linformer_projection="strided", **options) for options in fields])
    with pytest.raises(ValueError, match="linformer_init: mean and strided"):
        merge_models([make_model(linformer_projection="learned", **options) for options in fields])


def test_students_may_have_another_dropout(make_model):
    merge_models([make_model(hidden_dropout_prob=0.0), make_model(hidden_dropout_prob=0.2)])


def test_vocabularies_are_compared(make_models, bert_tokenizer, tmp_path, capsys):
    folders = [export_model(model, bert_tokenizer, tmp_path / f"{n}") for n, model in enumerate(make_models(2))]
    stored = json.loads((folders[1] / "tokenizer.json").read_text())
    vocabulary = stored["model"]["vocab"]
    first, second = list(vocabulary)[-2:]
    vocabulary[first], vocabulary[second] = vocabulary[second], vocabulary[first]
    (folders[1] / "tokenizer.json").write_text(json.dumps(stored))
    command = ["merge", "--model_names_or_paths", *map(str, folders), "--output_dir", str(tmp_path / "soup")]
    assert main(command) == 2
    assert "1 has another vocabulary than" in capsys.readouterr().err and not (tmp_path / "soup").exists()


def test_the_command(make_models, bert_tokenizer, tmp_path, capsys, monkeypatch):
    models = make_models(2)
    folders = [str(export_model(model, bert_tokenizer, tmp_path / f"seed-{n}")) for n, model in enumerate(models)]
    output = tmp_path / "soup"
    command = ["merge", "--model_names_or_paths", *folders, "--output_dir", str(output)]
    command_line = [*command, "--weights", "1", "3", "--max_length", "32"]
    monkeypatch.setattr(sys, "argv", ["hf-dse", *command_line])
    assert main(command_line) == 0
    assert f"Saved to {output}" in capsys.readouterr().out
    expected = weights_of(merge_models(models, [0.25, 0.75]))
    loaded = AutoModelForSequenceClassification.from_pretrained(output)
    assert all(np.allclose(tensor, expected[name], atol=1e-7) for name, tensor in weights_of(loaded).items())
    card = (output / "README.md").read_text()
    assert "seed-0 (0.25), seed-1 (0.75)" in card and "hf-dse merge" in card and str(tmp_path) not in card

    assert main(command) == 2
    assert "not empty" in capsys.readouterr().err
    assert main([*command[:-1], str(tmp_path / "other"), "--weights", "1"]) == 2
    assert "2 models need 2 weights" in capsys.readouterr().err
    assert not (tmp_path / "other").exists()


def test_checkpoints_are_not_deleted_by_their_merge(make_models, bert_tokenizer, tmp_path, capsys):
    folders = [
        export_model(model, bert_tokenizer, tmp_path / "run" / f"checkpoint-{n}")
        for n, model in enumerate(make_models(2))
    ]
    command = ["merge", "--model_names_or_paths", *map(str, folders), "--output_dir", str(tmp_path / "run")]
    assert main([*command, "--overwrite_output_dir"]) == 2
    assert "run is not a plain model folder" in capsys.readouterr().err
    assert all((folder / "model.safetensors").is_file() for folder in folders)
