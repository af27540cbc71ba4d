# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading students: a head that fits is kept, a tokenizer stores the length, and precision is as stored."""

import pytest
import torch
from transformers import AutoTokenizer, BertModel

from hf_dse import DseForSequenceClassification, DseModel, export_model
from hf_dse.convert.convert import ConvertArguments
from hf_dse.convert.student import limit_tokens, load_converted, load_dse_model, load_student, stored_dtype


@pytest.fixture
def folder(make_model, bert_tokenizer, tmp_path):
    """A student with a head of one label."""
    model = make_model(problem_type="regression")
    model.similarity.calibrate(3.0, 1.0)
    return str(export_model(model, bert_tokenizer, tmp_path / "student"))


@pytest.mark.parametrize(
    ("num_labels", "problem_type", "logits", "stored"),
    [
        (1, "regression", 1, "regression"),
        # Two classes have one logit, as in DSE.
        (2, "single_label_classification", 1, "multi_label_classification"),
        (3, "single_label_classification", 3, "single_label_classification"),
    ],
)
def test_a_head_that_fits_is_kept(folder, num_labels, problem_type, logits, stored):
    before = load_dse_model(folder)
    for model in (folder, load_dse_model(folder), load_dse_model(folder).dse):
        student = load_student(model, ConvertArguments(), num_labels, problem_type)
        assert (student.config.num_labels, student.config.problem_type) == (logits, stored)
        is_kept = logits == 1 and not isinstance(model, DseModel)
        assert student.similarity.scale.tolist() == ([3.0] if is_kept else [1.0] * logits)
        for name, weight in before.dse.state_dict().items():
            assert weight.equal(student.dse.state_dict()[name])


def test_an_encoder_is_converted_and_a_student_is_not(folder, save_bert, tmp_path, warnings):
    save_bert(tmp_path / "bert")
    arguments = ConvertArguments(linformer_length=[5], query_prompt="of: ", hidden_dropout_prob=0.3)
    student = load_student(str(tmp_path / "bert"), arguments, 1, "regression")
    fields = student.config.linformer_length, student.config.prompts, student.config.hidden_dropout_prob
    assert fields == (5, {"query": "of: "}, 0.3) and warnings == []
    for load in (load_converted, lambda *args: load_student(*args, 1, "regression")):
        config = load(folder, arguments).config
        assert (config.linformer_length, config.prompts, config.hidden_dropout_prob) == (8, {"query": "of: "}, 0.3)
        assert "is a DSE model already: the options of conversion are not used" in warnings.pop()
    load_student(folder, ConvertArguments(query_prompt="of: ", hidden_dropout_prob=0.0), 1, "regression")
    assert warnings == []


def test_other_models_are_refused(save_bert, tmp_path):
    save_bert(tmp_path / "bert")
    with pytest.raises(ValueError, match="is of the type 'bert' and has to be a DSE model"):
        load_dse_model(str(tmp_path / "bert"))
    with pytest.raises(TypeError, match="has to be a DSE model, got BertModel: convert it with `convert_encoder`"):
        load_student(BertModel.from_pretrained(tmp_path / "bert"), ConvertArguments(), 1, "regression")


def test_the_tokenizer_stores_the_length(make_model, bert_tokenizer, tmp_path):
    model = make_model(DseModel)
    tokenizer = limit_tokens(bert_tokenizer, model, 10)
    assert (tokenizer.model_max_length, bert_tokenizer.model_max_length) == (10, 64)
    # An earlier use leaves nothing behind.
    tokenizer("a cat " * 9, padding="max_length", truncation=True, max_length=3)
    limit_tokens(tokenizer, model).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded("a cat " * 9)["input_ids"]) == 20 and loaded.model_max_length == 10
    with pytest.raises(ValueError, match="has embeddings for 20"):
        limit_tokens(bert_tokenizer, make_model(DseModel, vocab_size=20))


@pytest.mark.parametrize("dtype", [torch.float32, torch.bfloat16])
def test_the_stored_precision(make_model, bert_tokenizer, tmp_path, dtype):
    folder = export_model(make_model(), bert_tokenizer, tmp_path / "model", dtype=dtype)
    assert stored_dtype(str(folder)) == dtype
    assert DseForSequenceClassification.from_pretrained(folder).dtype == torch.float32
