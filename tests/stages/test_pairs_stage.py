# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pairs stage, from the command line to folders that load."""

import json
import shutil

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset, DatasetDict
from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import DataArguments, evaluate, load_pairs, score
from hf_dse.stages import shared


@pytest.fixture
def pairs(assets):
    return load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))


def test_from_a_teacher_to_a_folder(assets, tmp_path, run, pairs, results, error_of, capsys):
    assert run("out", cache_dir=tmp_path / "scores") == 0
    output, printed = tmp_path / "out", capsys.readouterr().out
    assert f"Saved to {output / 'model'}" in printed
    assert "pearson" in printed and "cosine_spearman" in printed
    assert list((tmp_path / "scores").iterdir())

    found = results("out")
    assert set(found["metrics"]) == {"validation", "test"}
    assert found["recipe"]["teacher_name_or_path"] == str(assets / "teacher")
    assert found["recipe"]["linformer_length"] == [8] and found["recipe"]["learning_rate"] == 1e-3
    assert found["training"]["epoch"] == 1 and found["training"]["peak_memory_mb"] > 50
    model = AutoModelForSequenceClassification.from_pretrained(output / "model")
    assert model.config.problem_type == "regression"
    tokenizer = AutoTokenizer.from_pretrained(output / "model")
    again = evaluate(model, pairs["test"], tokenizer, task_name="stsb", show_progress=False)
    assert again == pytest.approx(found["metrics"]["test"], abs=1e-6)
    assert "model-index" in (output / "model" / "README.md").read_text()

    assert run("out") == 2
    assert "is not empty" in error_of()
    assert run("out", overwrite_output_dir="true", max_steps=1) == 0
    assert results("out")["training"]["epoch"] < 1


def test_the_best_epoch_is_kept(tmp_path, run, results):
    assert run("out", num_train_epochs=3, save_total_limit=3) == 0
    state = json.loads((tmp_path / "out" / "trainer_state.json").read_text())
    scores = [entry["eval_pearson"] for entry in state["log_history"] if "eval_pearson" in entry]
    assert len(scores) == 3 and state["best_metric"] == max(scores)
    assert results("out")["metrics"]["validation"]["pearson"] == pytest.approx(max(scores), abs=1e-5)


def test_given_scores_take_precedence_over_the_teacher(assets, tmp_path, run, pairs, weights, caplog):
    scored = score(str(assets / "teacher"), pairs["train"], symmetric=True)
    scored.to_json(tmp_path / "scored.jsonl")
    # The given teacher is not even loaded.
    options = {"distillation_alpha": 1, "symmetric": "true", "max_steps": 2}
    given = {"train_file": tmp_path / "scored.jsonl", "teacher_name_or_path": tmp_path / "nowhere"}
    assert run("given", **given, **options) == 0
    assert "nowhere is not asked: all pairs have scores already, in the column `teacher_logits`" in caplog.text
    caplog.clear()
    assert run("scored", **options) == 0
    assert "is not asked" not in caplog.text
    first, second = weights("given"), weights("scored")
    assert all(torch.allclose(first[name], second[name], atol=1e-5) for name in first)


def test_classes(assets, tmp_path, run, results):
    data = tmp_path / "classes"
    shutil.copytree(assets / "data", data)
    for path in data.glob("*.parquet"):
        part = Dataset.from_parquet(str(path))
        labels = np.minimum(np.array(part["label"]), 2).astype(int).tolist()
        part.remove_columns("label").add_column("label", labels).to_parquet(path)
    options = {"dataset_name": data, "similarity": "mlp", "num_train_epochs": 5, "eval_strategy": "no"}
    # Without a number of labels, there are as many as the teacher has logits.
    options |= {"num_labels": None, "teacher_name_or_path": assets / "teacher-3"}
    assert run("out", **options) == 0
    assert set(results("out")["metrics"]["test"]) == {"accuracy", "f1"}
    config = AutoConfig.from_pretrained(tmp_path / "out" / "model")
    assert (config.num_labels, config.problem_type) == (3, "single_label_classification")


def test_what_was_read_is_said_and_names_of_classes_are_kept(assets, tmp_path, run, infos):
    """Also the data set's own names, in the folder and for its users."""
    rows = [{"sentence1": f"cat {n}", "sentence2": f"cat {n * (n % 2)}", "label": n % 2, "id": n} for n in range(16)]
    pairs = Dataset.from_list(rows).cast_column("label", ClassLabel(names=["different", "same"]))
    DatasetDict(train=pairs, test=pairs.select([0, 1])).save_to_disk(tmp_path / "saved")
    options = {"num_labels": 2, "dataset_name": tmp_path / "saved", "distillation_alpha": 0, "max_steps": 1}
    assert run("out", **options, teacher_name_or_path=None) == 0
    (said,) = [text for text in infos if text.startswith("Split 'train'")]
    assert said == (
        "Split 'train': 16 pairs; columns sentence1, sentence2, label; ignored: id\nclasses different: 8, same: 8"
    )
    assert infos.index(said) < next(row for row, text in enumerate(infos) if text.startswith("Loading"))
    config = AutoConfig.from_pretrained(tmp_path / "out" / "model")
    assert config.id2label == {0: "same"} and config.label2id == {"same": 0}
    assert "The logit is positive if same is more likely" in (tmp_path / "out" / "model" / "README.md").read_text()


def test_a_teacher_whose_scores_are_all_equal_is_refused(assets, tmp_path, run, pairs, error_of):
    scored = pairs["train"].add_column("teacher_logits", [[-4.0]] * len(pairs["train"]))
    scored.to_parquet(tmp_path / "scored.parquet")
    assert run("out", train_file=tmp_path / "scored.parquet", teacher_name_or_path=None) == 2
    assert "All scores are equal, so there is nothing to learn from them: labels from 0 to " in error_of()


def test_without_labels_only_the_teacher_counts(tmp_path, run, pairs, results, error_of):
    pairs["train"].select_columns(["sentence1", "sentence2"]).to_parquet(tmp_path / "train.parquet")
    options = {"dataset_name": None, "train_file": tmp_path / "train.parquet"}
    assert run("out", **options) == 2
    assert "no column 'label': pass `--distillation_alpha 1`" in error_of()
    assert run("out", **options, distillation_alpha=1, overwrite_output_dir="true") == 0
    assert results("out")["metrics"] == {}


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"teacher_name_or_path": None}, "add the column 'teacher_logits'"),
        ({"test_file": "equal.parquet"}, "Split 'test': all labels are 1.0, so that correlations with them are undef"),
        (
            {"metric_for_best_model": "pearsn"},
            "metric_for_best_model='pearsn': an evaluation has loss, pearson",
        ),
        ({"dataset_name": "queries", "num_labels": None, "teacher_name_or_path": None}, "add `--stage ranking`"),
        ({"chunk_size": 8}, "chunk_size=8 is for the documents of the ranking stage: leave it out"),
        ({"relevance_threshold": 2}, "relevance_threshold=2.0 is for the documents of the ranking stage"),
    ],
)
def test_errors(options, message, assets, tmp_path, run, error_of):
    """None of them after a training or an hour of scoring."""
    rows = [{"sentence1": "a cat", "sentence2": "a dog", "label": 1.0}] * 4
    Dataset.from_list(rows).to_parquet(assets / "equal.parquet")
    folders = ("teacher_name_or_path", "dataset_name", "test_file")
    options = {key: assets / value if key in folders and value else value for key, value in options.items()}
    assert run("out", **options) == 2
    assert message in error_of()
    assert not list(tmp_path.glob("out/checkpoint-*"))


def test_pairs_without_a_label(tmp_path, run, weights, error_of, caplog):
    """They learn from the teacher's scores alone, in any order of the columns and kind of file."""
    texts = ["A cat sat.", "The dog ran.", "A house is new.", "The cat sat on the mat."]
    rows = [{"sentence1": first, "sentence2": second, "label": None} for first in texts for second in texts]
    rows[0]["label"] = 1.5
    Dataset.from_list(rows).to_parquet(tmp_path / "train.parquet")
    Dataset.from_list(rows).to_csv(tmp_path / "train.csv")
    for ending in ("parquet", "csv"):
        assert run(ending, train_file=tmp_path / f"train.{ending}") == 0
        assert "15 of 16 training pairs have no label: the teacher's scores alone teach them" in caplog.text
        caplog.clear()
    first, second = weights("parquet"), weights("csv")
    assert all(torch.equal(first[name], second[name]) for name in first)
    # Where labels alone teach the others, too.
    assert run("labels", train_file=tmp_path / "train.csv", distillation_alpha=0.0) == 0
    for alpha in (0.0, 0.5, 1.0):
        options = {"teacher_name_or_path": None, "distillation_alpha": alpha}
        assert run("never", train_file=tmp_path / "train.csv", **options) == 2
        assert "15 of 16 training pairs have no label: name a cross-encoder with `--teacher`" in error_of()
    assert not list(tmp_path.glob("never/checkpoint-*"))


def test_results_and_card_record_what_was_used(assets, tmp_path, run, results, monkeypatch, caplog):
    monkeypatch.setenv("ACCELERATE_MIXED_PRECISION", "bf16")
    monkeypatch.setattr(shared, "computes_bfloat16", lambda device: True)
    options = {"distillation_alpha": 0, "similarity": "mlp", "max_steps": 1, "per_device_train_batch_size": 16}
    assert run("out", **options) == 0
    assert "The teacher is not asked: with distillation_alpha=0 the labels alone teach" in caplog.text
    recipe, card = results("out")["recipe"], (tmp_path / "out" / "model" / "README.md").read_text()
    # One of two batches of an epoch; an mlp has no scale, and 8 positions are learned by default.
    assert (recipe["num_train_epochs"], recipe["precision"], recipe["train_batch_size"]) == (0.5, "bf16", 16)
    assert "scale_learning_rate" not in recipe and recipe["linformer_projection"] == "learned"
    assert "| precision | bf16 |" in card and "- Teacher:" not in card
    # Another stage on the student records the student's own length.
    student = {"model_name_or_path": tmp_path / "out" / "model", "linformer_length": None}
    assert run("again", **student, max_steps=1) == 0
    assert results("again")["recipe"]["linformer_length"] == [8]
    assert "may take half of the time" not in caplog.text
    monkeypatch.delenv("ACCELERATE_MIXED_PRECISION")
    assert run("float32", **options) == 0
    assert "The training computes in float32: `--bf16 true --use_cpu true` may take half of the time." in caplog.text


def test_a_resumed_stage_is_the_same_or_refused(assets, tmp_path, run, results, error_of):
    assert run("out") == 0
    before = results("out")["training"]["train_loss"]
    # Before the model is loaded.
    other = {"learning_rate": 1e-4, "model_name_or_path": "no/such-encoder"}
    assert run("out", resume_from_checkpoint="last", **other) == 2
    assert "learning_rate=0.0001 (the checkpoint was made with 0.001)" in error_of()
    assert run("out", resume_from_checkpoint="last") == 0
    assert results("out")["training"]["train_loss"] == pytest.approx(before) != 0


@pytest.mark.parametrize("stage", ["general", "pairs", "ranking"])
def test_rows_that_fill_no_batch_are_named_before_the_model_is_loaded(stage, run, error_of):
    options = {"dataloader_drop_last": True, "per_device_train_batch_size": 99}
    # The general stage reads the configuration of the model first.
    options["teacher_name_or_path" if stage == "general" else "model_name_or_path"] = "no/such-encoder"
    options |= {"teacher_name_or_path": None, "distillation_alpha": 0} if stage == "pairs" else {}
    for plan in ({"max_steps": 2}, {"num_train_epochs": 3}):
        assert run("out", stage, **options, **plan) == 2
        assert "training rows give no batch of 99" in error_of()
