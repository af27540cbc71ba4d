# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of files: what `hf-dse score` does."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from transformers import BertForSequenceClassification

from hf_dse import DataArguments, load_pairs, load_rankings, load_reranker, score
from hf_dse.cli.parsing import LoadArguments
from hf_dse.cli.score import score as score_files
from hf_dse.teacher.options import ScoreOptions


WORDS = [f"word{number}" for number in range(40)]
LONG = " ".join(WORDS[::-1])
RANKINGS = [
    {"query": "word1 word2", "documents": ["word2 word3", "word4", LONG], "labels": [1, 0, 0]},
    {"query": "word5", "documents": [LONG, "word5 word6"], "labels": [0, 1]},
]
PAIRS = [
    {"sentence1": f"word{row} word{row + 1}", "sentence2": f"word{row + 1} word{3 * row}", "label": float(row)}
    for row in range(6)
]


def write(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    return str(path)


@pytest.fixture
def run(tmp_path, capsys):
    """Scores a file of these rows, and returns the output with what is said of it."""

    def run(teacher, rows, name="scored.jsonl", data=None, **options):
        data_args = DataArguments(train_file=write(tmp_path / "data.jsonl", rows), **(data or {}))
        load_args = LoadArguments(device="cpu", max_length=options.pop("max_length", None))
        score_files(ScoreOptions(str(teacher), str(tmp_path / name), **options), load_args, data_args)
        return tmp_path / name, capsys.readouterr().out.partition(" written to ")[0]

    return run


@pytest.fixture
def encoder(save_encoder):
    return str(save_encoder())


def logits_of(name, pairs=PAIRS, **options):
    dataset = Dataset.from_list([{key: row[key] for key in ("sentence1", "sentence2")} for row in pairs])
    return score(name, dataset, show_progress=False, **options)["teacher_logits"][:]


def scores_of(teacher, file, **options):
    rankings = load_rankings(DataArguments(train_file=str(file)))["train"]
    return score(teacher, rankings, show_progress=False, **options).queries["teacher_logits"][:]


def assert_close(found, expected):
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-5)


# Pairs


def test_scores_of_pairs_are_written(run, save_teacher):
    name = save_teacher()
    output, said = run(name, PAIRS, data={"task_name": "stsb", "symmetric": True})
    assert said == "6 scored pairs"
    rows = [json.loads(line) for line in output.read_text().splitlines()]
    assert [row["sentence1"] for row in rows] == [row["sentence1"] for row in PAIRS]
    assert_close([row["teacher_logits"] for row in rows], logits_of(name, symmetric=True))
    assert len(list((output.parent / ".hf-dse-scores").glob("*.sqlite"))) == 1
    # The trainer reads what was written.
    assert "teacher_logits" in load_pairs(DataArguments(train_file=str(output), num_labels=1))["train"].column_names


def test_a_cosine_is_no_class(run, encoder, tmp_path):
    with pytest.raises(ValueError, match="1 logits of scores, not of classes, but task"):
        run(encoder, PAIRS, data={"num_labels": 2})
    assert not (tmp_path / "scored.jsonl").exists()


# Rankings


def test_candidates_are_scored_by_a_reranker(run, language_model):
    output, said = run(language_model, RANKINGS, windows="best")
    assert said == "2 queries with scored candidates"
    found = load_rankings(DataArguments(train_file=str(output)))["train"]
    assert found.queries["query"][:] == [row["query"] for row in RANKINGS]
    assert found.queries["labels"][:] == [row["labels"] for row in RANKINGS]
    assert_close(found.queries["teacher_logits"][:], scores_of(language_model, output, windows="best"))


@pytest.mark.parametrize("options", [{"bm25_weight": 0.3}, {"windows": "best", "max_length": 16}])
def test_candidates_are_scored_by_a_bi_encoder(run, encoder, options):
    output, _ = run(encoder, RANKINGS, **options)
    model = SentenceTransformer(encoder, device="cpu")
    model.max_seq_length = options.pop("max_length", model.max_seq_length)
    found = load_rankings(DataArguments(train_file=str(output)))["train"]
    assert_close(found.queries["teacher_logits"][:], scores_of(model, output, **options))


def test_scores_that_teach_nothing_are_not_written(run, save_teacher, tmp_path):
    folder = save_teacher()
    model = BertForSequenceClassification.from_pretrained(folder)
    with torch.no_grad():
        model.classifier.weight.zero_()
    model.save_pretrained(folder)
    with pytest.raises(ValueError, match="all 5 scores are equal"):
        run(folder, RANKINGS)
    assert not (tmp_path / "scored.jsonl").exists()


# In Python


def test_data_and_teachers_by_name(save_teacher, tmp_path):
    name = save_teacher()
    quiet = {"show_progress": False}
    # Pairs of a file, and loaded ones, keep their columns.
    file = write(tmp_path / "pairs" / "validation.jsonl", [{**row, "id": 3} for row in PAIRS])
    found = score(name, tmp_path / "pairs", split="validation", task_name="stsb", **quiet)
    assert found.column_names == ["sentence1", "sentence2", "label", "id", "teacher_logits"]
    logits = logits_of(name, symmetric=True)
    assert_close(found["teacher_logits"][:], logits)
    teacher, pairs = load_reranker(name, device="cpu"), Dataset.from_list(PAIRS)
    for given in ((name, file), (teacher, file), (teacher, pairs)):
        assert_close(score(*given, symmetric=True, **quiet)["teacher_logits"][:], logits)
        one_order = logits_of(name, max_length=6)
        assert_close(score(*given, max_length=6, **quiet)["teacher_logits"][:], one_order)
    # Rankings.
    file = write(tmp_path / "rankings.jsonl", RANKINGS)
    rankings = load_rankings(file)["train"]
    for given in ((name, file), (teacher, rankings)):
        found = score(*given, windows="best", **quiet).queries["teacher_logits"][:]
        assert_close(found, scores_of(name, file, windows="best"))


def test_windows_are_for_rankings(save_teacher):
    with pytest.raises(ValueError, match="`--windows` are options of rankings, and"):
        score(save_teacher(), Dataset.from_list(PAIRS), windows="best", show_progress=False)
