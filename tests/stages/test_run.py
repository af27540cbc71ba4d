# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes: options from a file, several stages, and how these go on."""

import json
import shutil

import pytest
import torch
import yaml
from safetensors.torch import load_file
from transformers import AutoModel

from hf_dse_cli import main


@pytest.fixture
def write(tmp_path):
    def make(recipe):
        (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
        return ["distill", "--config", str(tmp_path / "recipe.yaml")]

    return make


@pytest.fixture
def recipe(assets, tmp_path):
    """A general stage, pairs and rankings."""
    return {
        "model_name_or_path": str(assets / "encoder"),
        "linformer_length": 8,
        "num_hidden_layers": 1,
        "max_length": 24,
        "num_train_epochs": 1,
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-3,
        "use_cpu": True,
        "report_to": "none",
        "output_dir": str(tmp_path / "out"),
        "stages": [
            {"stage": "general", "train_file": str(assets / "texts.txt")},
            {
                "stage": "pairs",
                "teacher_name_or_path": str(assets / "teacher"),
                "dataset_name": str(assets / "data"),
                "num_labels": 1,
                "num_train_epochs": 2,
            },
        ],
    }


def results_of(folder):
    return json.loads((folder / "results.json").read_text())


def test_a_killed_recipe_goes_on(write, recipe, tmp_path, error_of, capsys):
    command = write(recipe)
    assert main(command) == 0
    assert "Stage 1 of 2 (general)" in capsys.readouterr().err
    general, pairs = tmp_path / "out" / "1-general", tmp_path / "out" / "2-pairs"
    assert AutoModel.from_pretrained(general / "model").config.num_hidden_layers == 1
    assert results_of(general)["training"]["train_loss"] > 0
    assert results_of(pairs)["recipe"]["model_name_or_path"] == str(general / "model")
    # The card names the original encoder.
    assert "It was converted from encoder." in (pairs / "model" / "README.md").read_text()

    # As if it had been killed in the second stage: it resumes from its last checkpoint, the first stage is skipped.
    straight = load_file(pairs / "model" / "model.safetensors")
    (pairs / "results.json").unlink()
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(pairs / name, ignore_errors=True)
    before = (general / "model" / "model.safetensors").stat().st_mtime_ns
    assert main([*command, "--resume_from_checkpoint", "last"]) == 0
    assert "Stage 1 of 2 (general) is already finished" in capsys.readouterr().err
    assert (general / "model" / "model.safetensors").stat().st_mtime_ns == before
    resumed = load_file(pairs / "model" / "model.safetensors")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)
    assert main(command) == 2
    assert "not empty" in error_of()


def test_a_later_stage_takes_dropout_and_prompts_only(write, recipe, tmp_path, assets, error_of, capsys):
    files = {"dataset_name": str(assets / "queries"), "train_file": str(assets / "mined.jsonl")}
    ranking = {"stage": "ranking", **files, "query_prompt": "of: "}
    pairs = {**recipe["stages"][1], "hidden_dropout_prob": 0.3, "num_train_epochs": 1}
    assert main(write({**recipe, "stages": [pairs, ranking]})) == 0
    last = tmp_path / "out" / "2-ranking"
    assert f"Saved to {last / 'model'}" in capsys.readouterr().out
    config = AutoModel.from_pretrained(last / "model").config
    assert config.encoder.hidden_dropout_prob == 0.3
    settings = json.loads((last / "model" / "config_sentence_transformers.json").read_text())
    assert settings["prompts"]["query"] == "of: "
    for name, value in {"linformer_length": 4, "model_name_or_path": "another"}.items():
        later = {**recipe, "stages": [pairs, {**ranking, name: value}], "output_dir": str(tmp_path / "never")}
        assert main(write(later)) == 2
        assert f"Stage 2 names `{name}`" in error_of()
    assert not (tmp_path / "never").exists()
