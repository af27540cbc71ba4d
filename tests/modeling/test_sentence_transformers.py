# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The real sentence-transformers loads a model folder and returns exactly the embeddings of `DseModel`."""

import json

import numpy as np
import pytest
import torch
from sentence_transformers import (
    CrossEncoder,
    SentenceTransformer,
)
from transformers import AutoTokenizer

from hf_dse import DseForSequenceClassification, DseModel, convert_encoder, export, to_sentence_transformer


# From one token to far above k = 8, up to the limit of 64.
TEXTS = [
    "cat",
    "a dog ran on the mat",
    "the old house is in the new house",
    "the cat and a dog " * 9,
    "new",
    "is 1 + 1 = 2?",
]


MODERNBERT = {"model_type": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2}


def embed_alone(model, tokenizer):
    """Embeds one text after the other, directly with the model."""
    with torch.inference_mode():
        batches = [tokenizer(text, truncation=True, return_tensors="pt") for text in TEXTS]
        return torch.cat([model.base_model(**batch).pooler_output for batch in batches]).numpy()


@pytest.mark.parametrize(
    ("model_class", "fields"),
    [
        (DseModel, {}),
        (DseModel, {"normalize_embeddings": True, "projection_dim": 6}),
        (DseModel, MODERNBERT),
        (DseForSequenceClassification, {"pooling_mode": "cls", "projection_dim": 6}),
    ],
)
@pytest.mark.parametrize("writer", ["export", "save_pretrained"])
def test_encode_returns_our_embeddings(tmp_path, make_model, bert_tokenizer, model_class, fields, writer, recwarn):
    model = make_model(model_class, **fields)
    folder = tmp_path / "model"
    if writer == "export":
        export(model, folder, bert_tokenizer)
    else:
        model.save_pretrained(folder)
        bert_tokenizer.save_pretrained(folder)
    loaded = SentenceTransformer(str(folder), device="cpu")
    assert not [warning for warning in recwarn if "sentence_transformers" in str(warning.message)]
    assert type(loaded[0].auto_model) is DseModel
    modules = ["Transformer", "Pooling"] + ["Normalize"] * model.config.normalize_embeddings
    assert [type(module).__name__ for module in loaded] == modules
    assert loaded.max_seq_length == 64
    assert loaded.get_embedding_dimension() == model.config.embedding_size

    embeddings = loaded.encode(TEXTS, batch_size=len(TEXTS))
    assert embeddings.shape == (len(TEXTS), model.config.embedding_size)
    np.testing.assert_allclose(embeddings, embed_alone(model, bert_tokenizer), rtol=0, atol=1e-6)
    ours = to_sentence_transformer(model, bert_tokenizer).encode(TEXTS)
    np.testing.assert_allclose(embeddings, ours, rtol=0, atol=1e-6)
    # Tools that pool token vectors themselves get the same.
    if model.config.pooling_mode == "mean" and not model.config.normalize_embeddings:
        tokens = loaded.encode(TEXTS, output_value="token_embeddings")
        for vectors, embedding in zip(tokens, embeddings, strict=True):
            np.testing.assert_allclose(vectors.mean(dim=0), embedding, rtol=0, atol=1e-6)


@pytest.mark.parametrize(
    ("labels", "is_probability"),
    [
        ({"num_labels": 1}, False),
        ({"num_labels": 1, "problem_type": "multi_label_classification"}, True),
        ({"num_labels": 3, "problem_type": "single_label_classification"}, False),
    ],
)
def test_cross_encoder_returns_the_scores_of_the_head(tmp_path, make_model, bert_tokenizer, labels, is_probability):
    model = make_model(**labels)
    with torch.no_grad():
        logits = model(**bert_tokenizer(TEXTS, TEXTS[::-1], padding=True, return_tensors="pt")).logits
    folder = export(model, tmp_path / "model", bert_tokenizer)
    # It has to know the number of several labels.
    options = {"num_labels": 3} if labels["num_labels"] == 3 else {}
    scores = CrossEncoder(str(folder), device="cpu", **options).predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    expected = logits.sigmoid() if is_probability else logits
    np.testing.assert_allclose(scores, expected.squeeze(1), rtol=0, atol=1e-5)


def test_cross_encoder_of_an_encoder_returns_cosines(tmp_path, bert_tokenizer, save_bert):
    # Converted, so that it has no head and no training.
    model = convert_encoder(str(save_bert(tmp_path / "bert")))
    folder = export(model, tmp_path / "model", bert_tokenizer)
    scores = CrossEncoder(str(folder), device="cpu").predict(list(zip(TEXTS, TEXTS[::-1], strict=True)))
    embeddings = to_sentence_transformer(model, bert_tokenizer).encode(
        TEXTS, normalize_embeddings=True, convert_to_tensor=True
    )
    np.testing.assert_allclose(scores, (embeddings * embeddings.flip(0)).sum(dim=1), rtol=0, atol=1e-5)


@pytest.mark.parametrize("similarity", ["cosine", "dot", "mlp"])
def test_similarity_function_is_that_of_the_model(tmp_path, make_model, bert_tokenizer, similarity):
    folder = export(make_model(similarity=similarity), tmp_path / "model", bert_tokenizer)
    loaded = SentenceTransformer(str(folder), device="cpu")
    embeddings = torch.from_numpy(loaded.encode(TEXTS))
    vectors = embeddings if similarity == "dot" else torch.nn.functional.normalize(embeddings, dim=-1)
    torch.testing.assert_close(loaded.similarity(embeddings, embeddings), vectors @ vectors.T, rtol=0, atol=1e-5)


def test_sentence_transformers_saves_the_same_model(tmp_path, make_model, bert_tokenizer):
    model = make_model(DseModel, normalize_embeddings=True)
    prompts = {"query": "ask: ", "document": ""}
    folder, theirs = export(model, tmp_path / "model", bert_tokenizer, max_length=32), tmp_path / "theirs"
    SentenceTransformer(str(folder), prompts=prompts, device="cpu").save(str(theirs))
    written, expected = (json.loads((place / "config.json").read_text()) for place in (folder, theirs))
    # It turns caches off, which an encoder has none of.
    assert expected["encoder"].pop("use_cache") is False and written["encoder"].pop("use_cache")
    assert written == expected
    # Saving the model inside does not overwrite the settings, which sentence-transformers saves before.
    settings = json.loads((theirs / "config_sentence_transformers.json").read_text())
    assert settings["prompts"] == prompts and settings["similarity_fn_name"] == "cosine"
    again = SentenceTransformer(str(theirs), device="cpu")
    assert again.max_seq_length == 32 and (theirs / "modeling_dse.py").is_file()
    # Texts are cut at the stored length, by all.
    expected = embed_alone(model, AutoTokenizer.from_pretrained(folder))
    ours = to_sentence_transformer(model, AutoTokenizer.from_pretrained(theirs)).encode(TEXTS)
    for vectors in (again.encode(TEXTS), ours):
        np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-6)
