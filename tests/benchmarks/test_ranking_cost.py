# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost of ranking: how many pairs are scored, and the times that are extrapolated."""

import json

import pytest
import ranking_cost
from ranking_cost import rank_table, summarize
from transformers import BertForSequenceClassification

from hf_dse import DseModel, export


def test_extrapolated_costs():
    seconds = {"cross-encoder": [1.0, 2.0, 3.0], "fast": [0.1, 0.1, 0.1]}
    cross, fast = summarize(seconds, 1000, 10, 50.0, {"fast": 2.0}, 100)
    assert (cross["online_ms"], cross["online_extrapolated"], cross["offline_seconds"]) == (200_000.0, True, 0.0)
    assert (fast["online_ms"], fast["online_extrapolated"]) == (100.0, False)
    assert (fast["offline_seconds"], fast["offline_extrapolated"]) == (52.0, True)
    assert cross["speedup"] == 1.0 and fast["speedup"] == pytest.approx(2000.0)
    table = rank_table([cross, fast])
    assert "| 1,000 | cross-encoder | 0.00 | ~200,000.00 | 1.0 |" in table
    assert "| 1,000 | fast | ~52.00 | 100.00 | 2,000.0 |" in table
    (exact,) = summarize({"cross-encoder": [1.0]}, 10, 10, 0.5, {}, 10)
    assert exact["online_ms"] == 1000.0 and not exact["online_extrapolated"]


def test_the_command(tmp_path, make_model, bert_tokenizer, save_bert, monkeypatch, capsys):
    scored = []
    score = ranking_cost.score
    monkeypatch.setattr(
        ranking_cost, "score", lambda model, texts, query: scored.append(len(texts)) or score(model, texts, query)
    )
    student = str(export(make_model(DseModel), tmp_path / "student", bert_tokenizer))
    teacher = str(save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1))
    argv = [student, teacher, "--candidates", "50", "5", "--max_pairs", "8", "--rounds", "2"]
    ranking_cost.main([*argv, "--output", str(tmp_path / "results.json")])
    out = capsys.readouterr().out
    assert "| 5 | cross-encoder | 0.00 | " in out and "| 50 | cross-encoder | 0.00 | ~" in out
    # Once to warm up and once for each round
    assert scored == [5] * 3 + [8] * 3
    rows = json.loads((tmp_path / "results.json").read_text())["rows"]
    assert {row["candidates"] for row in rows} == {5, 50} and all(row["online_ms"] > 0 for row in rows)
    assert [row["way"] for row in rows[:2]] == ["cross-encoder", "student, exact search"]
