# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`evaluate` of named and loaded models on named and loaded data."""

import pytest
from datasets import Dataset
from transformers import AutoTokenizer

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    DseModel,
    assess,
    evaluate,
    export,
    load_pairs,
    load_rankings,
    mine,
    score,
)
from hf_dse.common.display import format_table
from hf_dse.retrieval.evaluation import evaluate_pairs
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer
from hf_dse_cli import main


pytest.importorskip("pytrec_eval")

QUIET = {"show_progress": False}


@pytest.fixture
def student(make_model, bert_tokenizer, tmp_path):
    return export(make_model(DseForSequenceClassification, num_labels=1), tmp_path / "student", bert_tokenizer)


def test_pairs_by_name_and_loaded(student, assets, capsys):
    data = assets / "data"
    pairs = load_pairs(DataArguments(dataset_name=str(data), num_labels=1))
    model, tokenizer = DseForSequenceClassification.from_pretrained(student), AutoTokenizer.from_pretrained(student)
    expected = evaluate_pairs(model, tokenizer, pairs["validation"], "stsb", **QUIET)
    options = {"num_labels": 1, "device": "cpu", **QUIET}
    assert evaluate(student, data, **options) == evaluate(str(student), str(data), **options) == expected
    assert evaluate(model, pairs["validation"], tokenizer, task_name="stsb", **QUIET) == expected
    assert evaluate(student, data, split="test", max_length=4, **options) == evaluate_pairs(
        model, tokenizer, pairs["test"], "stsb", max_length=4, **QUIET
    )
    # A `SentenceTransformer` has no head. The command says the same of a student.
    cosine = evaluate(load_sentence_transformer(student, device="cpu"), pairs["validation"], num_labels=1, **QUIET)
    assert cosine == pytest.approx({name: expected[name] for name in ("cosine_pearson", "cosine_spearman")}, abs=1e-5)
    command = ["evaluate", "--model", str(student), "--dataset", str(data), "--num_labels", "1", "--device", "cpu"]
    assert main(command) == 0
    assert capsys.readouterr().out == format_table({"validation": {"num_pairs": 12, **expected}}) + "\n"


def test_loaded_pairs_are_checked(student):
    pairs = Dataset.from_dict({"sentence1": ["a cat", "a dog"], "sentence2": ["cats", "rain"], "label": [2, 1]})
    model = load_sentence_transformer(student, device="cpu")
    with pytest.raises(ValueError, match="the label 2 is not a class from 0 to 1"):
        evaluate(model, pairs, num_labels=2, symmetric=True, **QUIET)


def test_an_option_that_does_not_exist(student, assets):
    model, data = load_sentence_transformer(student, device="cpu"), load_rankings(str(assets / "queries"))["test"]
    for call in (evaluate, assess):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) has no option 'chunksize'; those of loading are"):
            call(model, data, chunksize=64)
    for call, given in ((score, (model, data)), (mine, (data, model))):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) has no option 'window'"):
            call(*given, window="best")


def test_searches_by_name_and_loaded(student, assets):
    data = assets / "queries"
    splits = load_rankings(str(data))
    model = load_sentence_transformer(student, device="cpu")
    expected = evaluate(model, splits["test"], **QUIET)
    assert evaluate(student, data, device="cpu", **QUIET) == expected
    for name, split in splits.items():
        assert evaluate(model, DataArguments(dataset_name=str(data)), split=name, **QUIET) == evaluate(
            model, split, **QUIET
        )
    bare, tokenizer = DseModel.from_pretrained(student), AutoTokenizer.from_pretrained(student)
    assert evaluate(bare, splits["test"], tokenizer, **QUIET) == expected
    short = load_sentence_transformer(student, device="cpu", max_length=4)
    cut = evaluate(short, splits["test"], **QUIET)
    for given in ((student, data), (bare, splits["test"], tokenizer)):
        assert evaluate(*given, max_length=4, **QUIET) == cut


def test_what_cannot_be_evaluated_is_named(student, assets, make_model, bert_tokenizer):
    model = load_sentence_transformer(student, device="cpu")
    rows = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))["test"]
    one = {"num_labels": 1}
    for given, options, error, message in (
        ((model, rows), {**one, "chunk_size": 8}, ValueError, "chunk_size=8 is for the search in a corpus"),
        ((model, rows), {**one, "max_length": 8}, ValueError, "max_length=8 is for a model that is named"),
        ((3, rows), one, TypeError, "The model is a int, and has to be a `SentenceTransformer` with a transf"),
        ((make_model(), rows), one, TypeError, "A loaded `model` needs its tokenizer: pass `processing_class`"),
    ):
        with pytest.raises(error, match=message):
            evaluate(*given, **options, **QUIET)
