# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Embeddings of a model in memory: against one text at a time, any tokenizer, prompts and lengths, and errors."""

import copy

import numpy as np
import pytest
import torch
from peft import LoraConfig, get_peft_model
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

from hf_dse import to_sentence_transformer
from hf_dse.common.settings import TextSettings, set_settings
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.retrieval.sentence_transformer import embed, similarity_of


TEXTS = ["the cat sat", "a dog ran " * 6, "house", "the old dog sat in a new house", "a dog ran " * 9, "cat"]
QUIET = {"show_progress": False}


def make_bert(save_bert, tmp_path):
    return BertModel.from_pretrained(save_bert(tmp_path / "bert"))


def encode(model, tokenizer, texts, prompt_name=None, *, max_length=None, **options):
    encoder = to_sentence_transformer(model, tokenizer, max_length=max_length)
    return embed(encoder, texts, prompt_name, **{**QUIET, **options})


@pytest.mark.parametrize("kind", [DseModel, DseForSequenceClassification, BertModel])
@pytest.mark.parametrize("batch_size", [1, 4])
def test_equals_one_text_at_a_time(kind, batch_size, make_model, save_bert, bert_tokenizer, tmp_path):
    model = make_bert(save_bert, tmp_path) if kind is BertModel else make_model(kind)
    vectors = encode(model, bert_tokenizer, TEXTS, batch_size=batch_size)
    assert vectors.dtype == np.float32
    for text, vector in zip(TEXTS, vectors, strict=True):
        with torch.no_grad():
            outputs = model.base_model(**bert_tokenizer(text, return_tensors="pt"))
        expected = outputs.last_hidden_state[0].mean(dim=0) if kind is BertModel else outputs.pooler_output[0]
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    unit = encode(model, bert_tokenizer, TEXTS, normalize=True)
    np.testing.assert_allclose(unit, vectors / np.linalg.norm(vectors, axis=1, keepdims=True), atol=1e-6)
    assert encode(model, bert_tokenizer, []).shape == (0, vectors.shape[1])
    # The methods of sentence-transformers give the same.
    encoder = to_sentence_transformer(model, bert_tokenizer)
    for method in (encoder.encode, encoder.encode_query, encoder.encode_document):
        np.testing.assert_allclose(method(TEXTS, show_progress_bar=False), vectors, atol=1e-5)
    assert encoder.get_embedding_dimension() == vectors.shape[1]


def test_few_long_texts_at_once(make_model, bert_tokenizer, monkeypatch):
    """Fewer than a batch of those longer than a limit; all vectors have their places."""
    model = make_model(DseModel)
    expected, sizes = encode(model, bert_tokenizer, TEXTS), []
    monkeypatch.setattr("hf_dse.retrieval.sentence_transformer.TOKENS_PER_TEXT", 8)
    encoder = to_sentence_transformer(model, bert_tokenizer)
    encoder[0].register_forward_pre_hook(lambda module, args: sizes.append(len(args[0]["input_ids"])))
    np.testing.assert_allclose(embed(encoder, TEXTS, batch_size=4, **QUIET), expected, atol=1e-5)
    # Of 90 letters, about 22 tokens.
    assert sorted(sizes) == [1, 1, 4]


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
    vectors = encode(model, tokenizer, TEXTS, batch_size=6)
    for text, vector in zip(TEXTS, vectors, strict=True):
        ids = torch.tensor([bert_tokenizer(text)["input_ids"]])
        with torch.no_grad():
            expected = model(input_ids=ids).last_hidden_state[0].mean(dim=0)
        np.testing.assert_allclose(vector, expected.numpy(), atol=1e-5)
    # The caller's tokenizer stays as it is.
    for name, value in changes.items():
        assert getattr(tokenizer, name) == value


def test_prompts_and_lengths_are_those_of_the_settings(make_model, bert_tokenizer):
    model = make_model(DseModel)
    set_settings(model, TextSettings({"query": "old ", "other": "the "}, {"query_length": 8}))
    with pytest.raises(ValueError, match="'queries' not found .* \\['query', 'document', 'other'\\]"):
        encode(model, bert_tokenizer, ["cat"], "queries")
    plain = encode(model, bert_tokenizer, ["old cat", "the cat", "cat", "old " + "cat " * 5])
    for name, text, expected in (
        ("query", "cat", plain[0]),
        ("other", "cat", plain[1]),
        ("document", "cat", plain[2]),
        ("query", "cat " * 20, plain[3]),
    ):
        np.testing.assert_allclose(encode(model, bert_tokenizer, [text], name)[0], expected, atol=1e-6)
    # Those without a text are there too.
    assert to_sentence_transformer(model, bert_tokenizer).prompts == {"query": "old ", "document": "", "other": "the "}


def test_settings_are_those_of_the_source(save_encoder, bert_tokenizer):
    """Those of the folder that a model was loaded from."""
    folder = save_encoder({"query": "old "})
    encoder = to_sentence_transformer(BertModel.from_pretrained(folder), bert_tokenizer)
    expected = to_sentence_transformer(folder, device="cpu")
    assert encoder.prompts == {"query": "old ", "document": ""}
    for name in ("query", "document"):
        np.testing.assert_allclose(*(embed(model, TEXTS, name, **QUIET) for model in (encoder, expected)), atol=1e-5)


def test_the_similarity_is_that_of_the_model(make_model, bert_tokenizer):
    for similarity, name in (("dot", "dot"), ("cosine", "cosine"), ("mlp", "cosine")):
        model = make_model(similarity=similarity)
        assert similarity_of(to_sentence_transformer(model, bert_tokenizer)) == name


def test_an_adapter_counts(save_bert, bert_tokenizer, tmp_path):
    bert = make_bert(save_bert, tmp_path)
    before = encode(bert, bert_tokenizer, TEXTS)
    torch.manual_seed(0)
    adapted = get_peft_model(bert, LoraConfig(target_modules=["query"], init_lora_weights=False)).eval()
    vectors = encode(adapted, bert_tokenizer, TEXTS)
    with torch.no_grad():
        expected = adapted(**bert_tokenizer(TEXTS[0], return_tensors="pt")).last_hidden_state[0].mean(dim=0)
    np.testing.assert_allclose(vectors[0], expected.numpy(), atol=1e-5)
    assert np.abs(vectors - before).max() > 1e-3


def test_weights_are_shared_and_all_else_is_not(make_model, bert_tokenizer):
    """What is trained afterwards counts; modes, limits and the tokenizer are those of the copy alone."""
    model = make_model(DseModel, hidden_dropout_prob=0.5).train()
    model.encoder.embeddings.eval()
    tokenizer = copy.deepcopy(bert_tokenizer)
    encoder = to_sentence_transformer(model, tokenizer, max_length=8)
    first = embed(encoder, TEXTS, **QUIET)
    np.testing.assert_array_equal(embed(encoder, TEXTS, **QUIET), first)
    assert model.training and model.encoder.training and not model.encoder.embeddings.training
    assert (encoder.max_seq_length, tokenizer.model_max_length) == (8, 64)
    theirs, ours = ({id(part) for part in owner.parameters()} for owner in (encoder, model))
    assert theirs == ours
    with torch.no_grad():
        model.get_input_embeddings().weight.neg_()
    assert np.abs(embed(encoder, TEXTS, **QUIET) - first).max() > 1e-3


def test_texts_that_are_cut_or_blank_are_counted(make_model, bert_tokenizer, warnings):
    model = make_model(DseModel)
    encode(model, bert_tokenizer, ["cat " * 4, "dog " * 5, "house " * 9, " "], max_length=6)
    assert "1 of 4 texts are blank, the first is texts[3]" in warnings[0]
    assert "2 of 4 texts are longer than the 6 tokens that are read of one, and were truncated" in warnings[1]
    encode(model, bert_tokenizer, ["a cat", "ឆ្មាដេកលើសាឡុង"])
    assert "1 of 2 texts are mostly unknown to the vocabulary" in warnings[-1]


def test_errors(make_model, bert_tokenizer, tmp_path):
    model = make_model(DseModel)
    with pytest.raises(TypeError, match="A loaded `model` needs its tokenizer: pass `processing_class`"):
        to_sentence_transformer(model)
    with pytest.raises(TypeError, match="list of strings, got str"):
        encode(model, bert_tokenizer, "one text")
    with pytest.raises(ValueError, match="max_length=65 is above the 64 tokens this model takes"):
        to_sentence_transformer(model, bert_tokenizer, max_length=65)
    with pytest.raises(TypeError, match="An encoder in memory is saved with `export`"):
        to_sentence_transformer(model, bert_tokenizer).save(str(tmp_path / "saved"))
    with torch.no_grad():
        model.get_input_embeddings().weight[bert_tokenizer.convert_tokens_to_ids("house")] = float("inf")
    with pytest.raises(ValueError, match="1 of 3 embeddings are NaN or infinite, the first at row 1"):
        encode(model, bert_tokenizer, ["cat", "house", "dog"])
