# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.distill` gives the same results as the command, with names and with loaded objects."""

import pytest
from datasets import Dataset, DatasetDict
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import AutoTokenizer

from hf_dse import convert_encoder, load_pairs, load_rankings, make_pair_model
from hf_dse.data.options import DataArguments


@pytest.mark.parametrize("stage", ["pairs", "ranking"])
def test_one_call_equals_the_command(stage, call, run, assets, results, same, capsys):
    result = call("call", stage)
    # Messages of libraries go to their logs.
    assert "Saved to" not in capsys.readouterr().out
    assert run("command", stage) == 0
    assert "Saved to" in capsys.readouterr().out
    assert same("call", "command")
    assert result.metrics == results("command")["metrics"] and set(result.metrics) == {"validation", "test"}
    assert type(result.model).__name__ == "DseForSequenceClassification"
    assert result.path.name == "model"


def test_loaded_models_and_datasets_give_the_same_student(call, assets, results, same):
    call("names")
    parts = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))
    call(
        "objects",
        model=convert_encoder(str(assets / "encoder"), linformer_length=8),
        teacher=CrossEncoder(str(assets / "teacher"), device="cpu"),
        dataset=DatasetDict(parts),
        processing_class=AutoTokenizer.from_pretrained(assets / "encoder"),
        linformer_length=None,
    )
    assert same("names", "objects")
    assert results("names")["metrics"] == results("objects")["metrics"]
    assert results("objects")["recipe"]["teacher_name_or_path"] == str(assets / "teacher")


def test_loaded_rankings_are_a_stage(call, assets, same):
    call("names", "ranking")
    files = {"dataset_name": str(assets / "queries"), "train_file": str(assets / "mined.jsonl")}
    rankings = load_rankings(DataArguments(**files))
    teacher = CrossEncoder(str(assets / "teacher"), device="cpu")
    call("objects", "ranking", stage=None, dataset=rankings, teacher=teacher, train_file=None)
    assert same("names", "objects")
    student = convert_encoder(str(assets / "encoder"), linformer_length=24)
    loaded = {"processing_class": AutoTokenizer.from_pretrained(assets / "encoder"), "linformer_length": None}
    result = call("student", "ranking", model=student, **loaded)
    assert set(result.metrics) == {"validation", "test"}


def test_the_general_stage(call, assets, results, same):
    options = {"stage": "general", "teacher": None, "num_labels": None, "per_device_train_batch_size": 8}
    by_file = call("file", dataset=assets / "texts.txt", **options)
    assert by_file.metrics == {} and results("file")["training"]["train_loss"] > 0
    texts = Dataset.from_dict({"text": (assets / "texts.txt").read_text().splitlines()})
    call("loaded", dataset={"train": texts}, **options)
    assert same("file", "loaded")
    student = {"model": by_file.path, "dataset": assets / "texts.txt", "linformer_length": None}
    with pytest.raises(ValueError, match="is already a DSE model, so the encoder to learn from is unknown"):
        call("again", **{**options, **student})
    call("again", **{**options, **student, "teacher": assets / "encoder"})
    assert "layers of encoder" in (by_file.path / "README.md").read_text()


def test_a_single_dataset_is_the_train_split(call, assets):
    rows = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))["train"]
    rows = rows.add_column("teacher_logits", [[label] for label in rows["label"]])
    assert call("out", dataset=rows, teacher=None).metrics == {}


def test_errors(call, assets):
    with pytest.raises(ValueError, match="stage='rankings': it has to be one of general, pairs, ranking"):
        call("out", stage="rankings")
    with pytest.raises(TypeError, match=r"Several teachers are for rankings: .* with `score\(teachers, pairs\)`"):
        call("out", teacher=[SentenceTransformer(str(assets / "encoder"), device="cpu"), str(assets / "teacher")])
    with pytest.raises(
        ValueError, match="The teacher is a bi-encoder, and the teacher of pairs has to be a cross-enc"
    ):
        call("out", teacher=SentenceTransformer(str(assets / "encoder"), device="cpu"))
    with pytest.raises(TypeError, match="`dataset` is a list: pass `datasets.Dataset.from_list"):
        call("out", dataset=[{"sentence1": "a", "sentence2": "b", "label": 1.0}])
    with pytest.raises(TypeError, match="`model` is a SentenceTransformer, .* pass the name or folder of a"):
        call("out", model=SentenceTransformer(str(assets / "encoder"), device="cpu"))
    peft = pytest.importorskip("peft")
    student = make_pair_model(convert_encoder(str(assets / "encoder")))
    adapted = peft.get_peft_model(student, peft.LoraConfig(target_modules=["query"]))
    with pytest.raises(TypeError, match="`model` is a PeftModel, .* merge an adapter first"):
        call("out", model=adapted)
    with pytest.raises(TypeError, match="DseForSequenceClassification with an adapter"):
        student = make_pair_model(convert_encoder(str(assets / "encoder")))
        student.add_adapter(peft.LoraConfig(target_modules=["query"]))
        call("out", model=student)
    with pytest.raises(TypeError, match="A loaded `model` needs its tokenizer: pass `processing_class`"):
        call("out", model=convert_encoder(str(assets / "encoder")))
