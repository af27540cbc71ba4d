# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exported folders are complete, load in transformers, and are written in one step."""

import importlib.metadata
import json
import os
import re
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import DseForSequenceClassification, DseModel, export
from hf_dse.common.settings import TRANSFORMERS_NEEDED
from hf_dse_cli import main


FILES = {
    "1_Pooling/config.json",
    "README.md",
    "attention_dse.py",
    "config.json",
    "config_sentence_transformers.json",
    "configuration_dse.py",
    "model.safetensors",
    "modeling_dse.py",
    "modules.json",
    "pairs_dse.py",
    "tokenizer.json",
    "tokenizer_config.json",
}
TEXTS = ["a cat sat on the mat", "dog", "the old house is in the new house and the cat ran of a mat"]


def files(folder):
    paths = [path for path in Path(folder).rglob("*") if path.is_file()]
    return {path.relative_to(folder).as_posix(): path.read_bytes() for path in paths}


@pytest.mark.parametrize("encoder", ["bert", "modernbert", "nomic_bert"])
@pytest.mark.parametrize("model_class", [DseModel, DseForSequenceClassification])
def test_folder_is_complete_and_loads(tmp_path, make_model, bert_tokenizer, model_class, encoder):
    model = make_model(model_class, model_type=encoder, projection_dim=6)
    folder = export(model, tmp_path / "deep" / "model", bert_tokenizer)
    assert folder == tmp_path / "deep" / "model"
    assert set(files(folder)) == FILES
    assert os.listdir(folder.parent) == ["model"]
    config = json.loads((folder / "config.json").read_text())
    assert set(config["auto_map"]) == {"AutoConfig", "AutoModel", "AutoModelForSequenceClassification"}
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    assert settings["requirements"]["transformers"] == TRANSFORMERS_NEEDED

    tokenizer = AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, return_tensors="pt")
    loaded, info = AutoModel.from_pretrained(folder, output_loading_info=True)
    assert not any(info.values()), info
    torch.testing.assert_close(loaded(**batch).pooler_output, model.base_model(**batch).pooler_output, rtol=0, atol=0)
    if model_class is DseForSequenceClassification:
        batch = tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")
        loaded = AutoModelForSequenceClassification.from_pretrained(folder)
        torch.testing.assert_close(loaded(**batch).logits, model(**batch).logits, rtol=0, atol=0)


def test_a_loaded_export_can_be_exported_over_itself(tmp_path, make_model, bert_tokenizer):
    folder = export(make_model(), tmp_path / "model", bert_tokenizer)
    before = files(folder)
    with pytest.raises(FileExistsError, match="model is not empty"):
        export(make_model(), folder, bert_tokenizer)
    assert files(folder) == before
    (folder / "optimizer.pt").write_bytes(b"stale")
    model = AutoModelForSequenceClassification.from_pretrained(folder)
    export(model, folder, AutoTokenizer.from_pretrained(folder), overwrite_output_dir=True)
    assert files(folder) == before
    assert os.listdir(tmp_path) == ["model"]


def test_one_length_is_stored(tmp_path, make_model, bert_tokenizer):
    def stored(name, max_length=None, **fields):
        folder = export(make_model(**fields), tmp_path / name, bert_tokenizer, max_length=max_length)
        length = AutoTokenizer.from_pretrained(folder).model_max_length
        assert f"| Longest text | the tokenizer keeps {length:,} tokens" in (folder / "README.md").read_text()
        return length

    assert bert_tokenizer.model_max_length == 64
    assert stored("the model's", max_position_embeddings=24) == 24
    assert stored("the tokenizer's", max_position_embeddings=100) == 64
    assert stored("chosen", max_length=10) == 10
    assert stored("longer", max_length=100, max_position_embeddings=100) == 100
    assert bert_tokenizer.model_max_length == 64
    for length in (0, 101):
        with pytest.raises(ValueError, match=f"`max_length` .* 1 .* 100.* got {length}"):
            stored("wrong", max_length=length, max_position_embeddings=100)


def test_export_keeps_the_card_and_the_type_of_the_weights(tmp_path, make_model, bert_tokenizer, warnings):
    """Weights stored in bfloat16 that are loaded in float32, as those of checkpoints/dse-minilm-l6."""
    model = make_model().to(torch.bfloat16).float()
    facts = {"metrics": {"test": {"pearson": 0.8594}}, "datasets": ["stsb"], "max_length": 32}
    options = {"model_id": "old/name", "dtype": torch.bfloat16}
    source = export(model, tmp_path / "source", bert_tokenizer, **options, **facts)
    assert AutoModelForSequenceClassification.from_pretrained(source).dtype == torch.float32
    command = ["export", "--model", str(source), "--output_dir"]
    assert main([*command, str(tmp_path / "same"), "--model_id", "old/name"]) == 0
    assert {tensor.dtype for tensor in load_file(tmp_path / "same" / "model.safetensors").values()} == {torch.bfloat16}

    assert main([*command, str(tmp_path / "longer"), "--max_length", "64"]) == 0
    assert "README.md is kept and may name 32 tokens per text" in warnings.pop()

    assert main([*command, str(tmp_path / "own"), "--model_id", "user/own"]) == 0
    assert (tmp_path / "own" / "README.md").read_text() == (source / "README.md").read_text()
    assert "README.md is kept and does not mention user/own: edit it in" in warnings.pop()
    assert not warnings


def test_facts_make_a_new_card_of_a_folder(tmp_path, make_model, bert_tokenizer):
    source = export(make_model(), tmp_path / "source", bert_tokenizer, metrics={"test": {"pearson": 0.8594}})
    cards = {}
    for name, facts in (("kept", {}), ("new", {"license": "apache-2.0"})):
        folder = export(str(source), tmp_path / name, **facts)
        assert set(files(folder)) == FILES
        cards[name] = (folder / "README.md").read_text()
    assert "85.94" in cards["kept"] and "license: apache" not in cards["kept"]
    assert "85.94" not in cards["new"] and "license: apache" in cards["new"]


def test_what_cannot_be_exported_is_named(tmp_path, make_model, bert_tokenizer):
    for model, tokenizer, message in (
        (make_model(), None, "without `processing_class`, and has to be a DSE model with its tokenizer"),
        (3, bert_tokenizer, "`model` is a int, and has to be a DSE model"),
    ):
        with pytest.raises(TypeError, match=message):
            export(model, tmp_path / "out", tokenizer)
    for options, message in (
        ({"format": "openvino"}, "format='openvino': it has to be transformers or onnx. OpenVINO reads"),
        ({"int8": True}, "int8=True quantizes a graph of ONNX, not format='transformers': add"),
    ):
        with pytest.raises(ValueError, match=message):
            export(make_model(), tmp_path / "out", bert_tokenizer, **options)
    assert not os.listdir(tmp_path)


class OtherModel(DseModel):
    pass


def test_models_whose_folder_would_not_load_are_errors(tmp_path, make_model, bert_tokenizer):
    """The folder would have the code of a subclass, but not the modules that it imports, or only an adapter."""
    with pytest.raises(TypeError, match="OtherModel was saved without .*modeling_dse.py"):
        export(make_model(OtherModel), tmp_path / "model", bert_tokenizer)
    peft = pytest.importorskip("peft")
    model, config = make_model(), peft.LoraConfig(target_modules=["query", "value"], r=2)
    model.add_adapter(config)
    with pytest.raises(TypeError, match="merge"):
        export(model, tmp_path / "model", bert_tokenizer)
    assert not os.listdir(tmp_path)
    merged = peft.get_peft_model(make_model(), config).merge_and_unload()
    assert set(files(export(merged, tmp_path / "model", bert_tokenizer))) == FILES


def test_says_which_transformers_the_package_needs():
    lines = [line for line in importlib.metadata.requires("hf-dse") if "extra ==" not in line]
    (needed,) = (line for line in lines if re.match(r"transformers[<>=]", line))
    assert TRANSFORMERS_NEEDED in needed.removeprefix("transformers").split(",")
