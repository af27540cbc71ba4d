# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Models of sentence-transformers: what is read and refused, and vectors that do not depend on the batch."""

import copy
import json

import numpy as np
import pytest
import torch
from safetensors.torch import load_file, save_file
from sentence_transformers import CrossEncoder, SentenceTransformer
from sentence_transformers.sentence_transformer.modules import StaticEmbedding
from tokenizers import Tokenizer, models
from transformers import BertForSequenceClassification, BertModel

from hf_dse import (
    Index,
    assess,
    convert_encoder,
    evaluate,
    load_reranker,
    make_rankings,
    mine,
    score,
    search,
    to_sentence_transformer,
)
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
    bare = to_sentence_transformer(BertModel.from_pretrained(folder), model.tokenizer, max_length=20)
    for prompt_name, text, read in (
        ("query", "cat " * 20, "old " + "cat " * 5),
        # sentence-transformers adds an empty prompt `document`.
        ("document", "Cat " * 30, "the " + "cat " * 17),
        ("passage", "CAT", "the cat"),
    ):
        expected = embed(bare, [read], None, **QUIET)
        np.testing.assert_allclose(embed(model, [text], prompt_name, **QUIET), expected, atol=1e-5)
    assert "1 of 1 texts are longer than the 8 tokens that are read of one, and were truncated" in warnings[0]
    bare = to_sentence_transformer(BertModel.from_pretrained(folder), model.tokenizer, max_length=40)
    expected = embed(bare, ["old " + "cat " * 37], None, **QUIET)
    # Of a named model, and of a loaded one, which keeps its own.
    for longer in (to_sentence_transformer(folder, max_length=40), to_sentence_transformer(model, max_length=40)):
        np.testing.assert_allclose(embed(longer, ["cat " * 50], "query", **QUIET), expected, atol=1e-5)
    assert (model.max_seq_length, model[0].query_length) == (20, 8)
    for source in (folder, model):
        with pytest.raises(ValueError, match="max_length=99 is above the 64 tokens"):
            to_sentence_transformer(source, max_length=99)


@pytest.mark.parametrize("changes", [{"padding_side": "left"}, {"model_input_names": ["input_ids"]}])
def test_vectors_do_not_depend_on_the_batch(changes, save_encoder):
    folder = save_encoder()
    edit(folder, "tokenizer_config.json", **changes)
    model = load(folder)
    alone = np.concatenate([embed(model, [text], **QUIET) for text in TEXTS])
    np.testing.assert_allclose(embed(model, TEXTS, **QUIET), alone, atol=1e-5)
    # As sentence-transformers loads it. Its own tokenizer stays.
    plain = SentenceTransformer(str(folder), device="cpu")
    before = copy.deepcopy((plain.tokenizer.padding_side, plain.tokenizer.model_input_names))
    np.testing.assert_allclose(embed(to_sentence_transformer(plain), TEXTS, **QUIET), alone, atol=1e-5)
    assert (plain.tokenizer.padding_side, plain.tokenizer.model_input_names) == before


def test_a_student_beyond_the_length_that_it_is_made_for(make_model, bert_tokenizer, warnings):
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.model_max_length = 16
    encoder = to_sentence_transformer(make_model(), tokenizer, max_length=32)
    assert encoder.max_seq_length == 32 and tokenizer.model_max_length == 16
    assert "max_length=32 is above the 16 tokens that this student is made for" in warnings[0]
    to_sentence_transformer(make_model(), tokenizer, max_length=8)
    assert len(warnings) == 1


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


def test_a_checkpoint_without_its_unused_pooler_is_the_same_at_each_load(save_encoder, tmp_path):
    folder = save_encoder()
    weights = load_file(folder / "model.safetensors")
    rest = {name: tensor for name, tensor in weights.items() if not name.startswith("pooler.")}
    assert len(rest) < len(weights)
    save_file(rest, folder / "model.safetensors", {"format": "pt"})
    torch.manual_seed(7)
    first, drawn = load(folder), torch.rand(1)
    assert fingerprint_of(first) == fingerprint_of(load(folder))
    torch.manual_seed(7)
    # The generator of the caller is left as it was.
    assert torch.rand(1) == drawn
    Index(str(folder), TEXTS, show_progress=False).save(tmp_path / "index")
    assert len(Index.load(tmp_path / "index", str(folder), show_progress=False)) == len(TEXTS)


def test_options_of_loading_are_refused_for_a_loaded_model(save_encoder, save_bert, tmp_path):
    model = load(save_encoder())
    reranker = CrossEncoder(str(save_bert(tmp_path / "ce", BertForSequenceClassification, num_labels=1)), device="cpu")
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]], "labels": [[1]]}, {"text": TEXTS})
    for option in ({"backend": "onnx"}, {"dtype": "bfloat16"}, {"trust_remote_code": True}):
        message = f"`{next(iter(option))}` is for a model that is named, to load it, and none is named"
        for call in (
            lambda **how: to_sentence_transformer(model, **how),
            lambda **how: load_reranker(reranker, **how),
            lambda **how: score(reranker, rankings, **how),
            lambda **how: mine(rankings, model, **how),
            lambda **how: mine(rankings, bm25=True, **how),
            lambda **how: evaluate(model, rankings, **how),
            lambda **how: assess(model, rankings, reranker=reranker, **how),
        ):
            with pytest.raises(TypeError, match=message):
                call(**option)
    with pytest.raises(TypeError, match="`processing_class` is for a `PreTrainedModel`"):
        to_sentence_transformer(model, model.tokenizer)
