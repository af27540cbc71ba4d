# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading students: a head that fits is kept, a tokenizer stores the length, and precision is as stored."""

import copy
from dataclasses import replace

import pytest
import torch
from transformers import AutoConfig, AutoModel, AutoTokenizer, BertModel

from hf_dse import DseModel, export
from hf_dse.common.settings import settings_of
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.student import (
    limit_tokens,
    load_dse_model,
    load_or_convert,
    load_student,
    with_own_attention,
)


@pytest.fixture
def folder(make_model, bert_tokenizer, tmp_path):
    """A student with a head of one label."""
    model = make_model(problem_type="regression")
    model.similarity.calibrate(3.0, 1.0)
    return str(export(model, tmp_path / "student", bert_tokenizer))


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
        student = load_student(model, ConvertOptions(), num_labels, problem_type)
        assert (student.config.num_labels, student.config.problem_type) == (logits, stored)
        is_kept = logits == 1 and not isinstance(model, DseModel)
        assert student.similarity.scale.tolist() == ([3.0] if is_kept else [1.0] * logits)
        for name, weight in before.dse.state_dict().items():
            assert weight.equal(student.dse.state_dict()[name])


def test_an_encoder_is_converted_and_a_student_is_not(folder, save_bert, tmp_path, warnings):
    save_bert(tmp_path / "bert")
    arguments = ConvertOptions(linformer_length=[5], query_prompt="of: ", hidden_dropout_prob=0.3)
    student = load_student(str(tmp_path / "bert"), arguments, 1, "regression")
    assert (student.config.linformer_length, settings_of(student).prompts) == (5, {"query": "of: "})
    assert warnings == []
    assert student.config.encoder.hidden_dropout_prob == 0.3
    for load in (load_or_convert, lambda *args: load_student(*args, 1, "regression")):
        with pytest.raises(ValueError, match=r"linformer_length=\[5\]: .* is a DSE model already, with 8: leave `lin"):
            load(folder, arguments)
        model = load(folder, replace(arguments, linformer_length=[8]))
        assert (model.config.linformer_length, settings_of(model).prompts) == (8, {"query": "of: "})
        # The modules have it, too.
        found = [module.p for name, module in model.named_modules() if name.endswith("embeddings.dropout")]
        assert model.config.encoder.hidden_dropout_prob == 0.3 and found == [0.3]
    load_student(folder, ConvertOptions(query_prompt="of: ", hidden_dropout_prob=0.0), 1, "regression")
    assert warnings == []


def test_other_models_are_refused(save_bert, tmp_path):
    save_bert(tmp_path / "bert")
    with pytest.raises(ValueError, match="is of the type 'bert' and has to be a DSE model"):
        load_dse_model(str(tmp_path / "bert"))
    with pytest.raises(TypeError, match="has to be a DSE model, got BertModel: convert it with `convert_encoder`"):
        load_student(BertModel.from_pretrained(tmp_path / "bert"), ConvertOptions(), 1, "regression")


def test_the_tokenizer_stores_the_length(make_model, bert_tokenizer, tmp_path):
    model = make_model(DseModel)
    # A side of truncation that was set as an attribute is that of the folder.
    copied = copy.deepcopy(bert_tokenizer)
    copied.truncation_side = "left"
    tokenizer = limit_tokens(copied, model, 10)
    assert (tokenizer.model_max_length, bert_tokenizer.model_max_length) == (10, 64)
    # An earlier use leaves nothing behind.
    tokenizer("a cat " * 9, padding="max_length", truncation=True, max_length=3)
    limit_tokens(tokenizer, model).save_pretrained(tmp_path)
    loaded = AutoTokenizer.from_pretrained(tmp_path)
    assert len(loaded("a cat " * 9)["input_ids"]) == 20 and loaded.model_max_length == 10
    cut = loaded("the old cat sat", truncation=True, max_length=4)["input_ids"]
    assert loaded.convert_ids_to_tokens(cut) == ["[CLS]", "cat", "sat", "[SEP]"]
    with pytest.raises(ValueError, match="has embeddings for 20"):
        limit_tokens(bert_tokenizer, make_model(DseModel, vocab_size=20))


@pytest.mark.parametrize("model_type", ["bert", "modernbert"])
def test_a_student_with_the_attention_of_its_source(model_type, make_model):
    """For texts beyond k tokens, and with the window of the source."""
    fields = {"model_type": model_type, "global_attn_every_n_layers": 2, "local_attention": 6}
    student = make_model(DseModel, linformer_length=4, sliding_window=1, **fields)
    theirs = with_own_attention(student)
    kinds = ["full_attention", "sliding_attention" if model_type == "modernbert" else "full_attention"]
    assert theirs.config.layer_types == kinds and "linear_attention" in student.config.layer_types
    source = AutoModel.from_config(AutoConfig.for_model(**student.config.encoder.to_dict())).eval()
    source.load_state_dict(student.encoder.state_dict(), strict=False)
    ids = torch.arange(5, 25)[None]
    with torch.no_grad():
        expected, ours, own = (model(input_ids=ids).last_hidden_state for model in (source, student, theirs))
    torch.testing.assert_close(own, expected, rtol=0, atol=1e-5)
    assert (ours - expected).abs().max() > 1e-2
