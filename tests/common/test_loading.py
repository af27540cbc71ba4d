# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading configurations, tokenizers and weights: what is refused, and errors that name the checkpoint."""

import json
import logging
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file, save_file
from transformers import AutoModel

from hf_dse import Index
from hf_dse.common.loading import (
    choose_device,
    choose_dtype,
    import_extra,
    load_config,
    load_encoder,
    load_tokenizer,
    read_json,
    source_of,
    split_revision,
)
from hf_dse.measure.evaluate import load_for_pairs
from hf_dse.retrieval.rerankers import load_reranker
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer, to_sentence_transformer


@pytest.fixture
def folder(save_bert, tmp_path):
    return save_bert(tmp_path / "bert")


def test_missing_weights_would_be_random(folder):
    weights = load_file(folder / "model.safetensors")
    lost = {name: weights.pop(name) for name in [name for name in weights if name.startswith("pooler")]}
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    # The pooler is not used.
    load_encoder(AutoModel, folder)
    assert lost and weights.pop("encoder.layer.1.output.dense.weight") is not None
    save_file(weights, folder / "model.safetensors", metadata={"format": "pt"})
    with pytest.raises(ValueError, match=f"{folder} lacks 1 weights .* `encoder.layer.1.output.dense.weight`"):
        load_encoder(AutoModel, folder)


@pytest.mark.parametrize(
    ("name", "content", "match"),
    [
        ("config.json", b'{"model_type": "bert", "hidden_size": "x"}', "{folder} cannot be loaded: its files are"),
        ("model.safetensors", b"x", "{folder} cannot be loaded: its files are damaged or do not fit together"),
        ("config.json", b"\xff", "{folder}: config.json is not valid JSON"),
    ],
)
def test_damaged_files_name_the_checkpoint(folder, name, content, match):
    (folder / name).write_bytes(content)
    with pytest.raises(ValueError, match=match.format(folder=folder)):
        load_encoder(AutoModel, folder)


def test_other_folders(tmp_path):
    (tmp_path / "adapter_config.json").write_text('{"base_model_name_or_path": "some/base"}')
    with pytest.raises(ValueError, match="is a PEFT adapter for some/base: merge it first"):
        load_config(str(tmp_path))
    assert read_json(str(tmp_path), "modules.json", kind=list) == []
    for name in (f"{tmp_path}/missing", "./missing", "some/folder/missing", "~/models"):
        with pytest.raises(FileNotFoundError, match=f"There is no folder {name}: pass a folder of a model, or"):
            load_config(name)
    with pytest.raises(OSError, match="There is no folder missing, and no such model can be had from the Hub: "):
        load_config("missing")


def test_the_folder_of_a_training_stands_for_its_model(folder, tmp_path):
    (tmp_path / "student").mkdir()
    folder.rename(tmp_path / "student" / "model")
    for name in (tmp_path / "student", f"{tmp_path}/student/"):
        assert split_revision(name) == (str(tmp_path / "student" / "model"), "main")
        assert load_config(name).hidden_size == load_config(tmp_path / "student" / "model").hidden_size
        load_encoder(AutoModel, name)
        load_sentence_transformer(name, device="cpu")


def test_tokenizers_are_lowercase_where_sentence_transformers_makes_them(folder):
    cased = json.loads((folder / "tokenizer.json").read_text())
    cased["normalizer"]["lowercase"] = False
    (folder / "tokenizer.json").write_text(json.dumps(cased))
    settings = json.loads((folder / "tokenizer_config.json").read_text())
    settings |= {"do_lower_case": False, "tokenizer_class": "PreTrainedTokenizerFast"}
    (folder / "tokenizer_config.json").write_text(json.dumps(settings))
    assert load_tokenizer(folder)("The CAT")["input_ids"] != load_tokenizer(folder)("the cat")["input_ids"]
    (folder / "sentence_bert_config.json").write_text('{"max_seq_length": 20, "do_lower_case": true}')
    lower = load_tokenizer(folder)
    assert lower("The CAT")["input_ids"] == lower("the cat")["input_ids"]
    lower.save_pretrained(folder / "saved")
    assert load_tokenizer(folder / "saved")("The CAT")["input_ids"] == lower("the cat")["input_ids"]


def test_devices():
    assert choose_device("cpu") == torch.device("cpu")
    with pytest.raises(ValueError, match=f"'nonsense' cannot be used: .*of this machine is {choose_device()}"):
        choose_device("nonsense")


@pytest.mark.parametrize(
    ("one_dnn", "unit", "expected"),
    [
        (True, "_is_amx_tile_supported", "bfloat16"),
        (True, "_is_avx512_bf16_supported", "bfloat16"),
        (False, "_is_avx512_bf16_supported", "float32"),
        (True, None, "float32"),
    ],
)
def test_bfloat16_is_chosen_where_the_cpu_computes_in_it(
    monkeypatch, save_encoder, save_teacher, infos, one_dnn, unit, expected
):
    units = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    for name in units:
        monkeypatch.setattr(torch.cpu, name, lambda name=name: name == unit, raising=False)
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: one_dnn)
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    logging.Logger.info_once.cache_clear()
    cpu = torch.device("cpu")
    assert choose_dtype("auto", cpu) == expected
    assert choose_dtype("float16", cpu) == "float16" and choose_dtype("auto", torch.device("meta")) == "float32"
    encoder, chosen = save_encoder(), getattr(torch, expected)
    assert load_reranker(save_teacher(), device="cpu").dtype == load_for_pairs(encoder)[0].dtype == chosen
    # It is said once.
    said = "Models compute in bfloat16, which is faster on this CPU; `--dtype float32`"
    assert [text.startswith(said) for text in infos if "bfloat16" in text] == [True] * (expected == "bfloat16")
    # Vectors that leave the library are those of sentence-transformers.
    exact = to_sentence_transformer(encoder)
    assert exact.dtype == torch.float32
    # A kept index is read in its own data type.
    index = Index(encoder, ["a cat sat", "the dog ran", "old and new"])
    index.save(encoder / "index")
    monkeypatch.setattr(torch.ops.mkldnn, "_is_mkldnn_bf16_supported", lambda: not one_dnn)
    assert Index.load(encoder / "index", encoder).model.dtype == index.model.dtype == chosen
    if expected == "bfloat16":
        with pytest.raises(ValueError, match=r"another prompt, length, backend or data type \(torch, bfloat16\)"):
            Index.load(encoder / "index", exact)
    # What is found is the same, but for rounding.
    hits, same = (one.search(["the cat"])[0] for one in (index, Index(exact, index.texts)))
    assert [hit["row"] for hit in hits] == [hit["row"] for hit in same]
    assert max(abs(hit["score"] - other["score"]) for hit, other in zip(hits, same, strict=True)) < 0.02


def test_names_with_a_revision(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    for name in ("user/name", "user/name@../x", "a/b/c@d"):
        assert split_revision(name) == (name, "main")
    assert split_revision("name@refs/pr/1") == ("name", "refs/pr/1")
    assert source_of(Path("user/name@abc")) == {
        "pretrained_model_name_or_path": "user/name",
        "revision": "abc",
        "trust_remote_code": False,
    }
    (tmp_path / "models" / "mine@v1").mkdir(parents=True)
    assert split_revision("models/mine@v1") == ("models/mine@v1", "main")


def test_a_package_that_is_not_installed_is_named_with_its_extra():
    assert import_extra("st", "json") == [json]
    with pytest.raises(ImportError, match=r"No module named 'nonsense': `pip install hf-dse\[ranking\]`"):
        import_extra("ranking", "json", "nonsense")
