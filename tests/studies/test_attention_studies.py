# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The studies of kinds of attention, of layers, and of the first stage of E and F, on a tiny encoder."""

import json

import attention_outputs
import kinds_of_attention
import numpy as np
import pandas as pd
import pytest
import torch
import which_layers
from transformers import AutoModel

from hf_dse import convert_encoder


WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


@pytest.fixture
def encoder(save_bert, tmp_path):
    return str(save_bert(tmp_path / "bert"))


@pytest.fixture
def data(tmp_path):
    """Sentences with labels, and documents of 60 words, each with a query."""
    draw = np.random.default_rng(0)
    texts = [" ".join(draw.choice(WORDS, 60)) for _ in range(24)]
    folders = {name: tmp_path / "data" / name for name in ("stsb", "longwiki")}
    for folder in folders.values():
        folder.mkdir(parents=True)
    pairs = {"sentence1": [text[:20] for text in texts], "sentence2": [text[5:40] for text in texts]}
    pd.DataFrame({**pairs, "label": range(24)}).to_parquet(folders["stsb"] / "validation.parquet")
    documents = pd.DataFrame({"doc_id": range(24), "split": ["train", "validation"] * 12, "body": texts})
    documents.to_parquet(folders["longwiki"] / "docs.parquet")
    queries = documents.rename(columns={"body": "query"})
    queries.to_parquet(folders["longwiki"] / "queries_late.parquet")
    return str(tmp_path / "data")


def test_kinds_of_attention(encoder, data, tmp_path, capsys):
    argv = [data, encoder, str(tmp_path / "r.jsonl"), "--sets", "stsb-dev", "longwiki", "--lengths", "40", "64"]
    argv += ["--ks", "8", "--windows", "4", "--max_documents", "10"]
    kinds_of_attention.main(argv)
    table = capsys.readouterr().out
    rows = [json.loads(line) for line in (tmp_path / "r.jsonl").read_text().splitlines()]
    # Four kinds of attention: each reads the sentences once, and the documents at two lengths.
    assert len(rows) == 4 * 3 and table.count("\n| bert |") == 4 * 3
    found = {(row["kind"], row["set"], row["max_length"]): row for row in rows}
    # A query is its document, of the same length.
    assert found["full_attention", "longwiki", 64]["recall@1"] == 1.0
    assert (
        found["full_attention", "stsb-dev", 512]["spearman"] != found["linear_attention", "stsb-dev", 512]["spearman"]
    )
    # What is measured already is not measured again.
    kinds_of_attention.main([*argv, "--kinds", "full_attention", "linear_attention"])
    assert capsys.readouterr().out == table and len((tmp_path / "r.jsonl").read_text().splitlines()) == 12


def test_a_converted_model_is_measured_as_it_is(encoder, data, bert_tokenizer, tmp_path, capsys):
    convert_encoder(encoder, linformer_length=8).save_pretrained(tmp_path / "dse")
    bert_tokenizer.save_pretrained(tmp_path / "dse")
    kinds_of_attention.main([data, str(tmp_path / "dse"), str(tmp_path / "r.jsonl"), "--sets", "stsb-dev"])
    assert "| dse | own | - | - | - | 64 | " in capsys.readouterr().out


def test_which_layers(encoder, data, tmp_path, capsys):
    argv = [encoder, data, "--length", "60", "--num_texts", "12", "--batch_size", "6", "--output"]
    which_layers.main([*argv, str(tmp_path / "rows.json"), "--linformer_length", "8"])
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    values = {(row["what"], row["layer"]): row["divergence"] for row in rows}
    assert min(values.values()) > 0
    # There are two layers: where one is restored, the other one alone is linear.
    for layer in (0, 1):
        assert values["only this one restored", layer] == pytest.approx(values["only this one linear", 1 - layer])
    assert "| layer | restored alone | % less | linear alone |" in capsys.readouterr().out
    # Attention to as many slots as tokens is exact.
    which_layers.main([*argv, str(tmp_path / "rows.json"), "--linformer_length", "60"])
    rows = json.loads((tmp_path / "rows.json").read_text())["rows"]
    assert max(abs(row["divergence"]) for row in rows) < 1e-6


def test_only_e_and_f_learn_the_outputs_of_attention(encoder, data, tmp_path, capsys):
    argv = [data, encoder, str(tmp_path / "out"), "--sets", "longwiki", "--length", "32", "--batch_size", "4"]
    attention_outputs.main([*argv, "--ks", "6", "12", "--tokens", "1000", "--num_batches", "1", "--min_length", "20"])
    report = json.loads((tmp_path / "out" / "errors.json").read_text())
    for k in ("6", "12"):
        assert all(after < before for after, before in zip(report["after"][k], report["before"][k], strict=True))
    assert "| 6 | before |" in capsys.readouterr().out
    source = AutoModel.from_pretrained(encoder).state_dict()
    student = AutoModel.from_pretrained(tmp_path / "out" / "k-6").encoder.state_dict()
    assert all(torch.equal(part, source[name]) for name, part in student.items() if "linformer" not in name)
    assert all(part.any() for name, part in student.items() if "linformer" in name)
    with pytest.raises(SystemExit, match="fewer than 4 texts of 1000 tokens"):
        attention_outputs.main([*argv, "--length", "1000"])
