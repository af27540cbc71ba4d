# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Recipes and studies in YAML with unknown keys, values of the wrong kind, tags and anchors."""

import re
from random import Random

import pandas as pd
import pytest
import yaml
from bad_input import attempt, mutate, no_hang, refuse, run
from counting import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse.cli.distill import parse_stages
from hf_dse.cli.parsing import read_config
from hf_dse.studies.runs import load_study


FUZZ = settings(max_examples=100, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1500, deadline=None, derandomize=True, database=None)

# A list of lists of ... that has 10 ** 9 values
BOMB = "[" + ", ".join(["&a0 [x, x]", *(f"&a{i} [{', '.join([f'*a{i - 1}'] * 10)}]" for i in range(1, 9))]) + "]"


@pytest.fixture
def recipe(good, tmp_path):
    """Writes a recipe of a short training with some lines of its own."""

    def write(text):
        own = {line.split(":")[0] for line in text.split("\n")}
        lines = {
            "model_name_or_path": good / "dse",
            "train_file": good / "pairs.jsonl",
            "validation_file": good / "pairs.jsonl",
            "num_labels": 1,
            "distillation_alpha": 0,
            "max_steps": 1,
            "max_length": 32,
            "report_to": "none",
            "use_cpu": "true",
        }
        path = tmp_path / "recipe.yaml"
        path.write_text("\n".join([text, *(f"{name}: {value}" for name, value in lines.items() if name not in own)]))
        return "distill", "--config", path, "--output_dir", tmp_path / "run", "--overwrite_output_dir", "true"

    return write


@pytest.mark.parametrize(
    "name",
    [
        "max_length",
        "learning_rate",
        "seed",
        "stage",
        "per_device_train_batch_size",
        "num_train_epochs",
        "linformer_length",
        "logging_steps",
        "gradient_accumulation_steps",
        "distillation_alpha",
        "max_grad_norm",
        "label_column",
    ],
)
def test_options_that_need_a_value(recipe, name):
    refuse(f"--config: {name} needs a value, and it has none", *recipe(f"{name}: null"))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("stage: [pairs]", "stage takes one value, but it has a list"),
        ("stage: {a: b}", "argument --stage: invalid choice"),
        ("stages: [{stage: [general]}]", "stage takes one value, but it has a list"),
        ("stages: [1]", "`stages` has to be a list of stages"),
        ("stages: [{stages: [{}]}]", "unknown key 'stages'"),
        ("learning_rat: 1", r"unknown key 'learning_rat' \(did you mean 'learning_rate'\?\)"),
        ("gradient_accumulation_steps: 0", "gradient_accumulation_steps=0: it has to be at least 1"),
        ("gradient_accumulation_steps: -1", "gradient_accumulation_steps=-1: it has to be at least 1"),
        ("eval_accumulation_steps: 0", "eval_accumulation_steps=0: it has to be at least 1"),
        ("per_device_train_batch_size: 0", "per_device_train_batch_size=0: it has to be at least 1"),
        ("learning_rate: .nan", "learning_rate=nan: it has to be a finite number"),
        ("num_train_epochs: .inf", "num_train_epochs=inf: it has to be a finite number"),
        ("head_learning_rate: .nan", "head_learning_rate=nan: it has to be a finite number"),
        ("augmented_weight: .nan", "augmented_weight=nan: it has to be a finite number"),
        ("ranking_scale: .inf", "ranking_scale=inf: it has to be a finite number"),
        ("train_sampling_strategy: bogus", "`train_sampling_strategy` is 'bogus', and it has to be one of random"),
        ("lr_scheduler_type: bogus", "invalid choice: 'bogus'"),
        ("lr_scheduler_kwargs: {bogus: 1}", "`lr_scheduler_kwargs` is {'bogus': 1}, which does not fit .*linear"),
        ("lr_scheduler_kwargs: 3", "`lr_scheduler_kwargs` is '3', which does not fit"),
        ("lr_scheduler_type: warmup_stable_decay", "does not fit .*num_decay_steps"),
        ("accelerator_config: {bogus: 1}", "The training arguments do not fit: .*'bogus'"),
        ("dataloader_drop_last: true", "`dataloader_drop_last` leaves nothing of 8 rows, for a batch has 16"),
        ("metric_for_best_model: bogus", "'eval_bogus', which is not found in the evaluation metrics"),
        ("num_labels: 10000000", "num_labels=10000000: it must be .* at most 100,000"),
        ("seed: 2020-01-01", "recipe.yaml is not valid YAML: 2020-01-01 is a date: put it into quotes"),
        ("run_name: 2020-13-45", "recipe.yaml is not valid YAML: month must be in 1..12"),
        ("seed: !!binary aGVsbG8=", "is a bytes: put it into quotes"),
        ("seed: !!set {a, b}", "is a set: put it into quotes"),
        ("seed: !!python/object:os.system x", "recipe.yaml is not valid YAML: could not determine a constructor"),
        ("seed: *nowhere", "recipe.yaml is not valid YAML: found undefined alias"),
        ("seed: &a [*a]", "more than 100,000 values, or an anchor inside itself"),
        (f"seed: {BOMB}", "more than 100,000 values"),
        (f"lr_scheduler_kwargs: {{a: {BOMB}}}", "more than 100,000 values"),
        ("seed: 1\nseed: 2", "recipe.yaml is not valid YAML: 'seed' is there twice"),
        ("? [a]\n: 2", "recipe.yaml is not valid YAML: .*found unhashable key"),
        ("seed: " + "[" * 2_000, "recipe.yaml is not valid YAML: it is nested too deeply"),
        ("model_name_or_path: [a]", "model_name_or_path takes one value, but it has a list"),
    ],
    ids=lambda text: text[:40],
)
def test_recipes_that_are_refused(recipe, tmp_path, text, message):
    refuse(message, *recipe(text))
    assert not (tmp_path / "run" / "model").exists()


@pytest.mark.parametrize("field", ["hidden_dropout_prob", "attention_probs_dropout_prob"])
def test_dropout_of_a_conversion(good, recipe, field):
    text = f"{field}: 2\nmodel_name_or_path: {good / 'bert'}"
    refuse(f"`{field}` must be from 0 to 1, got 2.0", *recipe(text))


@pytest.mark.parametrize("name", ["linformer_length", "projection_dim", "max_position_embeddings"])
def test_sizes_that_no_memory_has(good, tmp_path, name):
    folder = tmp_path / "converted"
    options = ["--model_name_or_path", good / "bert", "--output_dir", folder, f"--{name}", 10**13]
    refuse("can't allocate memory.* This is more than the memory has", "convert", *options)
    assert not folder.exists()


def test_anchors_and_merges_are_read(recipe):
    *_, path, _, folder, _, _ = recipe("label_smoothing_factor: &a 0\nweight_decay: *a\nadam_beta1: 0.5")
    assert read_config(str(path))["weight_decay"] == 0
    path.write_text("a: &a {x: 1, y: 2}\nb: {<<: *a, x: 3}\n")
    assert read_config(str(path))["b"] == {"x": 3, "y": 2}
    path.write_text("a: &a {x: 1}\nb: {c: &c {<<: *a, x: 3}}\nd: {<<: *c}\n")
    assert read_config(str(path))["d"] == {"x": 3}


# Studies

STUDY = """
options:
  model_name_or_path: model
  train_file: pairs.jsonl
  num_labels: 1
factors:
  attention:
    linear: {linformer_length: 8}
    softmax: {layer_types: full_attention}
  seed: [1, 2]
"""


@pytest.fixture
def study(tmp_path):
    def write(text):
        path = tmp_path / "study.yaml"
        path.write_text(text)
        return path

    return write


@pytest.mark.parametrize(
    ("old", "new", "message"),
    [
        ("[1, 2]", "[2020-01-01]", "study.yaml is not valid YAML: 2020-01-01 is a date: put it into quotes"),
        ("linformer_length: 8", "linformer_length: 2020-01-01", "2020-01-01 is a date"),
        ("[1, 2]", "[[1], 2]", "the factor 'seed' has to be a list of values, or labels"),
        ("[1, 2]", "[]", "the factor 'seed' has to be a list of values, or labels"),
        ("[1, 2]", "3", "the factor 'seed' has to be a list of values, or labels"),
        ("[1, 2]", "!!set {a}", "study.yaml is not valid YAML: .*is a set"),
        ("seed:", "linear.seed:", "no factor may have the name 'linear.seed'"),
        ("factors:", "factor:", "a study has the keys `options` and `factors`"),
        ("options:", "options: []\nmore:", "a study has the keys `options` and `factors`"),
        ("seed:", "attention:", "study.yaml is not valid YAML: 'attention' is there twice"),
        ("[1, 2]", "[1, x]", "seed x: .*invalid int value: 'x'"),
        ("[1, 2]", BOMB, "more than 100,000 values"),
    ],
)
def test_studies_that_are_refused(study, old, new, message):
    assert old in STUDY
    refuse(message, "study", study(STUDY.replace(old, new)), "--dry_run", "true")


def test_a_study_of_too_many_runs(study):
    factors = "".join(f"  f{number}: [0, 1, 2, 3, 4, 5, 6, 7, 8, 9]\n" for number in range(8))
    path = study(STUDY + factors)
    with no_hang(5):
        refuse("study.yaml has 400,000,000 runs, one for each combination; 10,000 are the most", "study", path)
        refuse("400,000,000 runs", "study", "report", path)


@pytest.mark.parametrize("kind", ["other columns", "no parquet"])
def test_a_report_on_another_file(study, tmp_path, kind):
    path = tmp_path / "other.parquet"
    pd.DataFrame({"text": ["a"]}).to_parquet(path)
    message = "other.parquet holds no results of a study, for it has no column 'run'"
    if kind == "no parquet":
        path.write_text("text")
        message = "other.parquet: not a readable parquet file"
    refuse(message, "study", "report", study(STUDY), "--results_file", path)
    refuse(message, "study", study(STUDY), "--dry_run", "true", "--results_file", path)


# Any values, and any damage

OPTIONS = (
    "stage stages stage_cache_dir max_length learning_rate seed linformer_length layer_types keep_layers num_labels "
    "per_device_train_batch_size lr_scheduler_type lr_scheduler_kwargs accelerator_config optim warmup_steps bf16 "
    "logging_steps eval_strategy save_strategy save_steps eval_steps metric_for_best_model load_best_model_at_end "
    "report_to augmented_file num_train_epochs max_steps train_file task_name symmetric sentence1_column "
    "dataloader_num_workers fsdp deepspeed ddp_timeout max_train_samples num_negatives layer_mapping progressive"
).split()
SCALARS = st.one_of(
    st.none(),
    st.booleans(),
    st.integers(-3, 10),
    st.sampled_from([2**63, 10**30, float("nan"), float("inf"), -0.5, 0.5]),
    st.sampled_from(["", "x", "pairs", "ranking", "general", "no", "steps", "epoch", "{}", "[", "1", "--seed", "-"]),
)
CONTENT = st.recursive(
    SCALARS,
    lambda values: st.lists(values, max_size=3) | st.dictionaries(st.sampled_from(OPTIONS), values, max_size=2),
    max_leaves=5,
)
RECIPES = st.dictionaries(st.sampled_from(OPTIONS) | st.text(max_size=3), CONTENT, max_size=4)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("recipes")


def check_recipe(folder, content):
    tried()
    path = folder / "recipe.yaml"
    path.write_text(yaml.safe_dump({"model_name_or_path": "x", **content}))
    config = attempt(read_config, str(path))
    if config is not None:
        attempt(parse_stages, ["--output_dir", str(folder / "run")], config)


@FUZZ
@given(content=RECIPES)
def test_recipes_of_any_values(folder, content):
    check_recipe(folder, content)


@pytest.mark.slow
@LONG
@given(content=RECIPES)
def test_many_recipes_of_any_values(folder, content):
    check_recipe(folder, content)


@FUZZ
@given(options=RECIPES, factors=st.dictionaries(st.sampled_from(OPTIONS), CONTENT, max_size=3))
def test_studies_of_any_values(folder, options, factors):
    tried()
    path = folder / "study.yaml"
    path.write_text(yaml.safe_dump({"options": options, "factors": factors}))
    study = attempt(load_study, path)
    for one in study.runs() if study is not None else []:
        # The labels of a file never lead out of its folder.
        assert len(one.key) == 12 and re.fullmatch(r"[A-Za-z0-9.-]+-[0-9a-f]{12}", one.folder)


def damage(folder, number):
    tried()
    random = Random(number)
    path = folder / "damaged.yaml"
    path.write_bytes(mutate(STUDY.encode(), random))
    study = attempt(load_study, path)
    for one in study.runs() if study is not None else []:
        assert len(one.key) == 12
        attempt(parse_stages, ["--output_dir", str(folder / "run")], one.options)


def test_damaged_studies(folder):
    for number in range(60):
        damage(folder, number)


@pytest.mark.slow
def test_many_damaged_studies(folder):
    for number in range(60, 600):
        damage(folder, number)


def test_the_recipe_that_the_others_change_works(recipe, tmp_path):
    assert run(*recipe("")) == ""
    assert (tmp_path / "run" / "model" / "config.json").is_file()
