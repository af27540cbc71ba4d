# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny encoder and teachers, pairs and queries for them, and the command `hf-dse distill` on these."""

import json

import pytest
from safetensors.torch import load_file
from tiny_data import make_rows, write_assets
from transformers import BertForSequenceClassification

from hf_dse import DataArguments, distill, load_rankings, mine
from hf_dse.data.rankings import write_rankings
from hf_dse_cli import main


COMMON = {
    "max_length": 24,
    "num_train_epochs": 1,
    "learning_rate": 1e-3,
    "per_device_train_batch_size": 8,
    "linformer_length": 8,
    "use_cpu": True,
    "disable_tqdm": True,
    "report_to": "none",
}
STAGES = {
    "pairs": {**COMMON, "dataset_name": "data"},
    "ranking": {
        **COMMON,
        "dataset_name": "queries",
        "stage": "ranking",
        "per_device_train_batch_size": 4,
        "num_candidates": 4,
        "train_file": "mined.jsonl",
    },
    "general": {**COMMON, "train_file": "texts.txt", "stage": "general", "teacher_name_or_path": None},
}


@pytest.fixture(scope="session")
def assets(tmp_path_factory, save_bert):
    folder = write_assets(tmp_path_factory.mktemp("assets"), save_bert)
    save_bert(folder / "teacher-3", BertForSequenceClassification, num_labels=3)
    train = load_rankings(DataArguments(dataset_name=str(folder / "queries")), ["train"])["train"]
    write_rankings(mine(train, bm25=True, num_negatives=6, show_progress=False), folder / "mined.jsonl")
    (folder / "texts.txt").write_text("\n".join(row["sentence1"] for row in make_rows(16, 3)))
    return folder


@pytest.fixture
def options_of(assets, tmp_path):
    """The options of a short run of a stage with a name of its own; they can be overridden, or omitted with `None`."""

    def make(name, stage="pairs", **options):
        defaults = {
            "model_name_or_path": assets / "encoder",
            "teacher_name_or_path": assets / "teacher",
            "output_dir": tmp_path / name,
        }
        defaults |= STAGES[stage]
        defaults |= {name: assets / defaults[name] for name in ("dataset_name", "train_file") if name in defaults}
        if stage == "pairs":
            defaults["num_labels"] = 1
        return {**defaults, **options}

    return make


@pytest.fixture
def call(options_of):
    """`distill` with the options of a short run, of which the first ones are its arguments."""

    def make(name, kind="pairs", **changed):
        options = options_of(name, kind)
        arguments = {"model": "model_name_or_path", "teacher": "teacher_name_or_path", "dataset": "dataset_name"}
        arguments = {key: options.pop(option, None) for key, option in arguments.items()}
        options = {**arguments, **options, **changed}
        return distill(**{key: value for key, value in options.items() if value is not None})

    return make


@pytest.fixture
def command(options_of):
    """The command line of a run. Options that are `None` are left out, lists have several values."""

    def make(*args, **options):
        words = ["distill"]
        for name, value in options_of(*args, **options).items():
            if value is not None:
                words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        return words

    return make


@pytest.fixture
def run(command):
    """Runs `hf-dse distill` and returns the exit code."""
    return lambda *args, **options: main(command(*args, **options))


@pytest.fixture
def error_of(capsys):
    """The error that ended the last command."""

    def find():
        text = capsys.readouterr().err
        return text[text.rindex("hf-dse distill: error: ") :]

    return find


@pytest.fixture
def results(tmp_path):
    """The results file of a run."""
    return lambda name: json.loads((tmp_path / name / "results.json").read_text())


@pytest.fixture
def weights(tmp_path):
    """The weights of the model of a run."""
    return lambda name: load_file(tmp_path / name / "model" / "model.safetensors")


@pytest.fixture
def same(weights):
    """Whether two runs ended with the same weights."""

    def compare(first, second):
        first, second = weights(first), weights(second)
        return first.keys() == second.keys() and all(first[name].equal(second[name]) for name in first)

    return compare
