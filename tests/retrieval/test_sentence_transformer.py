# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading with sentence-transformers: what is read and refused, and vectors that do not depend on the batch."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models
from transformers import BertForSequenceClassification, BertModel

from hf_dse import convert_encoder, encode, search
from hf_dse.retrieval.sentence_transformer import (
    embed,
    fingerprint_of,
    load_sentence_transformer,
)


TEXTS = ["the cat sat", "a dog ran " * 6, "house", "the old dog sat in a new house"]
QUIET = {"show_progress": False}


def edit(folder, name, **changes):
    path = folder / name
    path.write_text(json.dumps({**json.loads(path.read_text()), **changes}))


def load(folder, **options):
    return load_sentence_transformer(folder, device="cpu", **options)


def test_prompts_and_lengths_of_the_checkpoint(save_encoder, warnings):
    folder = save_encoder({"query": "old ", "passage": "the "})
    settings = {"max_seq_length": 20, "query_length": 8, "do_lower_case": True}
    (folder / "sentence_bert_config.json").write_text(json.dumps(settings))
    model = load(folder)
    bare = BertModel.from_pretrained(folder), model.tokenizer
    for prompt_name, text, read in (
        ("query", "cat " * 20, "old " + "cat " * 5),
        # sentence-transformers adds an empty prompt `document`.
        ("document", "Cat " * 30, "the " + "cat " * 17),
        ("passage", "CAT", "the cat"),
    ):
        expected = encode(*bare, [read], max_length=20, **QUIET)
        np.testing.assert_allclose(embed(model, [text], prompt_name, **QUIET), expected, atol=1e-5)
    assert "1 of 1 texts are longer than the 8 tokens that are read of one, and were truncated" in warnings[0]
    longer = load(folder, max_length=40)
    expected = encode(*bare, ["old " + "cat " * 37], max_length=40, **QUIET)
    np.testing.assert_allclose(embed(longer, ["cat " * 50], "query", **QUIET), expected, atol=1e-5)
    with pytest.raises(ValueError, match="max_length=99 is above the 64 tokens"):
        load(folder, max_length=99)


@pytest.mark.parametrize("changes", [{"padding_side": "left"}, {"model_input_names": ["input_ids"]}])
def test_vectors_do_not_depend_on_the_batch(changes, save_encoder):
    folder = save_encoder()
    edit(folder, "tokenizer_config.json", **changes)
    model = load(folder)
    alone = np.concatenate([embed(model, [text], **QUIET) for text in TEXTS])
    np.testing.assert_allclose(embed(model, TEXTS, **QUIET), alone, atol=1e-5)
    # As sentence-transformers loads it.
    np.testing.assert_allclose(embed(SentenceTransformer(str(folder)), TEXTS, **QUIET), alone, atol=1e-5)


def test_what_is_refused(save_encoder, save_bert, tmp_path):
    reranker = save_bert(tmp_path / "reranker", BertForSequenceClassification)
    with pytest.raises(ValueError, match="is a BertForSequenceClassification, .* as the reranker"):
        load(reranker)
    pickled = save_encoder()
    torch.save(BertModel.from_pretrained(pickled).state_dict(), pickled / "pytorch_model.bin")
    (pickled / "model.safetensors").unlink()
    with pytest.raises(OSError, match="safetensors"):
        load(pickled)


def test_the_fingerprint_is_of_everything(save_encoder):
    folder = save_encoder()
    first = fingerprint_of(load(folder))
    assert fingerprint_of(load(folder)) == first
    assert fingerprint_of(load(folder, dtype="bfloat16")) != first
    edit(folder / "1_Pooling", "config.json", pooling_mode="cls")
    assert fingerprint_of(load(folder)) != first
    assert fingerprint_of(load(save_encoder(hidden_act="relu"))) != first
    whole, cut = (SentenceTransformer(str(folder), device="cpu", truncate_dim=size) for size in (None, 8))
    assert fingerprint_of(whole) != fingerprint_of(cut)


def test_blank_unknown_and_no_texts(encoder, warnings):
    assert embed(encoder, []).shape == (0, 16)
    embed(encoder, ["a", " ", "ឆ្មាដេកលើសាឡុង", "🐈 🐕", "the café"], **QUIET)
    assert "1 of 5 texts are blank" in warnings[0]
    assert "2 of 5 texts are mostly unknown to the vocabulary" in warnings[1]


def test_a_static_model_is_refused(tmp_path):
    tokenizer = Tokenizer(models.WordLevel({"[UNK]": 0, "cat": 1}, "[UNK]"))
    static = SentenceTransformer(modules=[StaticEmbedding(tokenizer, embedding_dim=8)], device="cpu")
    static.save(str(tmp_path / "static"))
    for read in (load, convert_encoder):
        with pytest.raises(ValueError, match="is a static model, without a transformer"):
            read(str(tmp_path / "static"))
    with pytest.raises(TypeError, match="has to be a `SentenceTransformer` with a transformer"):
        search(static, ["cat"], TEXTS)
