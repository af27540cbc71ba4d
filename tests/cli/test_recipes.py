# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes of `hf-dse distill`: stages in YAML, and files with any content."""

import pytest

from hf_dse.cli.parsing import read_config
from hf_dse.cli.training import parse_stages
from hf_dse.training.arguments import DseTrainingArguments, GeneralTrainingArguments
from hf_dse_cli import main


def recipe(text, folder):
    path = folder / "recipe.yaml"
    path.write_text(f"model_name_or_path: model\ntrain_file: pairs.jsonl\nmax_length: 32\n{text}")
    return ["--config", str(path), "--output_dir", str(folder / "run")]


def parse(text, folder, *argv):
    return parse_stages(list(argv), read_config(recipe(text, folder))[0])


def test_stages_share_options_and_have_their_own(tmp_path):
    text = "seed: 7\nstages:\n- {stage: general, hidden_weight: 2}\n- {stage: pairs, seed: 8, task_name: stsb}\n"
    general, pairs = parse(text, tmp_path, "--output_dir", "run", "--num_train_epochs", "5")
    assert isinstance(general[3], GeneralTrainingArguments) and isinstance(pairs[3], DseTrainingArguments)
    assert (general[0].stage, general[3].hidden_weight, general[3].seed) == ("general", 2.0, 7)
    assert (pairs[0].stage, pairs[2].task_name, pairs[3].seed) == ("pairs", "stsb", 8)
    # The command line has the last word.
    assert general[3].num_train_epochs == pairs[3].num_train_epochs == 5.0
    assert general[3].max_length == pairs[3].max_length == 32


def test_all_stages_are_read_before_the_first_one_runs(tmp_path, capsys):
    text = "stages:\n- {stage: general}\n- {stage: pairs, learning_rat: 1}\n"
    assert main(["distill", *recipe(text, tmp_path)]) == 2
    assert "unknown key 'learning_rat' (did you mean 'learning_rate'?)" in capsys.readouterr().err
    assert not (tmp_path / "run").exists()


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage: pair", "argument --stage: invalid choice"),
        ("stages: 1", "`stages` has to be a list of stages"),
    ],
)
def test_recipes_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, tmp_path)
