# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes of `hf-dse distill`: stages in YAML, and files with any content."""

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse.cli.distill import parse_stages
from hf_dse.cli.parsing import read_config
from hf_dse.training.arguments import DseTrainingArguments, GeneralTrainingArguments
from hf_dse_cli import main, read


def recipe(text, folder):
    path = folder / "recipe.yaml"
    path.write_text(f"model_name_or_path: model\ntrain_file: pairs.jsonl\nmax_length: 32\n{text}")
    return ["--config", str(path), "--output_dir", str(folder / "run")]


def parse(text, folder, *argv):
    return parse_stages(list(argv), read_config(recipe(text, folder)[1]))


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


def test_one_stage_is_not_a_recipe(tmp_path):
    start = read("distill", recipe("stage: general\n", tmp_path))
    (stage,), cache_dir, is_recipe = start.args
    assert stage[0].stage == "general" and cache_dir is None and not is_recipe


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage: [pairs]", "stage takes one value, but it has a list"),
        ("stage: pair", "argument --stage: invalid choice"),
        ("stages: 1", "`stages` has to be a list of stages"),
        ("stages: [1]", "`stages` has to be a list of stages"),
        ("stages: [{stages: [{}]}]", "unknown key 'stages'"),
        ("stage_cache_dir: x", "`stage_cache_dir` is only for recipes with `stages`"),
        ("learning_rat: 1", r"unknown key 'learning_rat' \(did you mean 'learning_rate'\?\)"),
        ("learning_rate: null", "learning_rate needs a value, and it has none"),
        ("learning_rate: .nan", "learning_rate=nan: it has to be a finite number"),
        ("num_train_epochs: .inf", "num_train_epochs=inf: it has to be a finite number"),
        ("lr_scheduler_type: bogus", "invalid choice: 'bogus'"),
        ("seed: 2020-01-01", "invalid int value: '2020-01-01'"),
        ("seed: 1\nseed: 2", "'seed'"),
        ("seed: !!python/object:os.system x", "recipe.yaml is not valid YAML"),
    ],
)
def test_recipes_that_are_refused(tmp_path, text, message):
    with pytest.raises(ValueError, match=message):
        parse(text, tmp_path)


OPTIONS = (
    "stage stages stage_cache_dir max_length learning_rate seed linformer_length layer_types keep_layers num_labels "
    "per_device_train_batch_size warmup_steps bf16 logging_steps eval_strategy save_strategy save_steps "
    "load_best_model_at_end report_to augmented_file num_train_epochs max_steps train_file task_name symmetric "
    "max_train_samples num_negatives layer_mapping"
).split()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.sampled_from([10**30, float("nan"), float("inf"), -0.5, 0.5]),
    st.sampled_from(["", "x", "pairs", "ranking", "general", "no", "steps", "epoch", "{}", "[", "1", "--seed", "-"]),
)
CONTENT = st.recursive(
    SCALARS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(OPTIONS), values, max_size=2),
    max_leaves=5,
)
RECIPES = st.dictionaries(st.sampled_from(OPTIONS) | st.text(max_size=3), CONTENT, max_size=4)


@settings(max_examples=30, deadline=None, derandomize=True, database=None)
@given(content=RECIPES)
def test_recipes_of_any_values(tmp_path_factory, content):
    """They are read, or refused with an error that says something."""
    folder = tmp_path_factory.mktemp("any")
    (folder / "recipe.yaml").write_text(yaml.safe_dump({"model_name_or_path": "x", **content}))
    try:
        parse_stages(["--output_dir", str(folder / "run")], read_config(str(folder / "recipe.yaml")))
    except (ValueError, OSError) as error:
        assert str(error).strip()
