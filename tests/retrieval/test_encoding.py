# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Embeddings of a bare model: against one text at a time, any tokenizer, and errors."""

import copy

import numpy as np
import pytest
import torch
from tiny import make_config
from transformers import (
    BertModel,
    DistilBertConfig,
    DistilBertModel,
    GPT2Config,
    GPT2Model,
    RobertaConfig,
    RobertaModel,
)

from hf_dse import encode
from hf_dse.modeling import DseForSequenceClassification, DseModel


TEXTS = ["the cat sat", "a dog ran " * 6, "house", "the old dog sat in a new house", "a dog ran " * 9, "cat"]
QUIET = {"show_progress": False}


def make_bert(save_bert, tmp_path):
    return BertModel.from_pretrained(save_bert(tmp_path / "bert"))


@pytest.mark.parametrize("kind", [DseModel, DseForSequenceClassification, BertModel])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_equals_one_text_at_a_time(kind, batch_size, make_model, save_bert, bert_tokenizer, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_dse.retrieval.encoding.BATCHES_PER_WINDOW", 1)
    model = make_bert(save_bert, tmp_path) if kind is BertModel else make_model(kind)
    vectors = encode(model, bert_tokenizer, TEXTS, batch_size=batch_size, **QUIET)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.no_grad():
            outputs = model.base_model(**bert_tokenizer(text, return_tensors="pt"))
        expected = outputs.last_hidden_state[0].mean(dim=0) if kind is BertModel else outputs.pooler_output[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    unit = encode(model, bert_tokenizer, TEXTS, normalize=True, **QUIET)
    np.testing.assert_allclose(unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-6)
    assert encode(model, bert_tokenizer, []).shape == (0, vectors.shape[1])


SIZES = {"vocab_size": 100, "hidden_size": 16, "num_hidden_layers": 1, "num_attention_heads": 2}


@pytest.mark.parametrize(
    ("make", "changes"),
    [
        # Learned positions after padding on the left would be those of the batch.
        (
            lambda: GPT2Model(GPT2Config(vocab_size=100, n_embd=16, n_layer=1, n_head=2)),
            {"padding_side": "left", "model_input_names": ["input_ids", "attention_mask"]},
        ),
        (None, {"padding_side": "left"}),
        # No attention mask.
        (None, {"model_input_names": ["input_ids"]}),
        # Token types that the model does not have.
        (lambda: RobertaModel(RobertaConfig(**SIZES, intermediate_size=16, type_vocab_size=1)), {}),
        (lambda: DseModel(make_config("roberta", **SIZES, intermediate_size=16, type_vocab_size=1)), {}),
        (lambda: DistilBertModel(DistilBertConfig(vocab_size=100, dim=16, n_layers=1, n_heads=2, hidden_dim=16)), {}),
    ],
)
def test_any_tokenizer_gives_the_vectors_of_single_texts(make, changes, bert_tokenizer, save_bert, tmp_path):
    torch.manual_seed(0)
    model = (make() if make else make_bert(save_bert, tmp_path)).eval()
    tokenizer = copy.deepcopy(bert_tokenizer)
    for name, value in changes.items():
        setattr(tokenizer, name, value)
    vectors = encode(model, tokenizer, TEXTS, batch_size=6, **QUIET)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = torch.tensor([bert_tokenizer(text)["input_ids"]])
        with torch.no_grad():
            expected = model(input_ids=ids).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)


def test_prompts_and_lengths_are_those_of_the_config(make_model, bert_tokenizer):
    model = make_model(DseModel, prompts={"query": "old ", "other": "the "}, query_length=8)
    with pytest.raises(ValueError, match="prompt_name='queries': the model has the prompts query, document"):
        encode(model, bert_tokenizer, ["cat"], prompt_name="queries", **QUIET)
    with_prompt = encode(model, bert_tokenizer, ["cat"], prompt_name="query", **QUIET)
    np.testing.assert_allclose(with_prompt, encode(model, bert_tokenizer, ["old cat"], **QUIET), atol=1e-6)
    document = encode(model, bert_tokenizer, ["cat"], prompt_name="document", **QUIET)
    np.testing.assert_array_equal(document, encode(model, bert_tokenizer, ["cat"], **QUIET))
    cut = encode(model, bert_tokenizer, ["cat " * 20], prompt_name="query", **QUIET)
    np.testing.assert_allclose(cut, encode(model, bert_tokenizer, ["old " + "cat " * 5], **QUIET), atol=1e-6)


def test_texts_that_are_cut_or_blank_are_counted(make_model, bert_tokenizer, warnings):
    model = make_model(DseModel, hidden_dropout_prob=0.5).train()
    model.encoder.embeddings.eval()
    encode(model, bert_tokenizer, ["cat " * 4, "dog " * 5, "house " * 9, " "], max_length=6, **QUIET)
    assert "1 of 4 texts are blank, the first is texts[3]" in warnings[0]
    assert "2 of 4 texts are longer than the 6 tokens that are read of one, and were truncated" in warnings[1]
    # The mode of every module is restored.
    assert model.training and model.encoder.training and not model.encoder.embeddings.training
    encode(model, bert_tokenizer, ["a cat", "ឆ្មាដេកលើសាឡុង"], **QUIET)
    assert "1 of 2 texts are mostly unknown to the vocabulary" in warnings[-1]


def test_errors(make_model, bert_tokenizer):
    model = make_model(DseModel)
    with pytest.raises(TypeError, match="list of strings, got str"):
        encode(model, bert_tokenizer, "one text")
    with torch.no_grad():
        model.get_input_embeddings().weight[bert_tokenizer.convert_tokens_to_ids("house")] = float("inf")
    with pytest.raises(ValueError, match="1 of 3 embeddings are NaN or infinite, the first at row 1"):
        encode(model, bert_tokenizer, ["cat", "house", "dog"], **QUIET)
