# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The flagship's teacher of cosine and BM25: its scores, one candidate after the other, and the order of the lists."""

import importlib
import json
import sys
from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hf_dse import bm25_search


RECIPE = Path(__file__).parents[1] / "recipes" / "flagship"
TEXTS = ["a cat is sleeping on the sofa", "the dog barks", "rain falls on the house", "a sofa in the house"]


@pytest.fixture
def fusion(monkeypatch):
    monkeypatch.syspath_prepend(RECIPE)
    return importlib.import_module("fusion")


def write(file, rows):
    file.parent.mkdir(exist_ok=True)
    file.write_text("".join(json.dumps(row) + "\n" for row in rows))


def test_scores(fusion, save_bert, tmp_path, monkeypatch):
    encoder = str(save_bert(tmp_path / "encoder"))
    corpus = [{"_id": f"d{number}", "text": text} for number, text in enumerate(TEXTS)]
    lists = {"mined": [("q0", "the cat on a sofa", ["d0", "d3"]), ("q1", "dog", ["d1", "d0", "d2"])]}
    lists["unlabelled-mined"] = [("x0", "rain", ["d3", "d2"])]
    for folder, (name, rows) in zip(("search", "unlabelled"), lists.items(), strict=True):
        write(tmp_path / folder / "corpus.jsonl", corpus)
        keys = ("query_id", "query", "document_ids")
        write(tmp_path / f"{name}.jsonl", [dict(zip(keys, row, strict=True)) for row in rows])
    monkeypatch.setattr(fusion, "NUM_CLAIMS", 1)
    monkeypatch.setattr(sys, "argv", ["fusion.py", str(tmp_path), encoder])
    fusion.main()

    found = fusion.read(tmp_path / "fused.jsonl")
    assert [row["query_id"] for row in found] == ["q0", "x0", "q1"]
    model = SentenceTransformer(encoder)
    for row in found:
        scores, positions = bm25_search([row["query"]], TEXTS, len(TEXTS))
        words = dict(zip(positions[0], scores[0] / scores[0].std(), strict=True))
        (query,) = model.encode([row["query"]])
        for doc_id, score in zip(row["document_ids"], row["teacher_logits"], strict=True):
            number = int(doc_id[1:])
            (document,) = model.encode([TEXTS[number]])
            cosine = query @ document / np.linalg.norm(query) / np.linalg.norm(document)
            assert score == pytest.approx(cosine + 0.04 * words[number], abs=1e-4)
