# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Frameworks embed with a model folder as it is, and return the vectors of sentence-transformers."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer


FOLDER = str(Path(__file__).parents[2] / "checkpoints" / "dse-minilm-l6")
TEXTS = ["1", "A cat sleeps, but not for long: is it hungry?", "The harbour was quiet. " * 200]


def llama_index():
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    return HuggingFaceEmbedding(FOLDER, trust_remote_code=True, device="cpu").get_text_embedding_batch(TEXTS)


def haystack():
    from haystack_integrations.components.embedders.sentence_transformers import SentenceTransformersTextEmbedder

    embedder = SentenceTransformersTextEmbedder(model=FOLDER, trust_remote_code=True, progress_bar=False)
    embedder.warm_up()
    return [embedder.run(text)["embedding"] for text in TEXTS]


def txtai():
    from txtai import Embeddings

    # With this method, txtai pools the states of `AutoModel` itself.
    model = Embeddings(path=FOLDER, method="transformers", gpu=False, vectors={"trust_remote_code": True})
    return model.batchtransform(TEXTS)


def keybert():
    from keybert import KeyBERT

    return KeyBERT(SentenceTransformer(FOLDER, device="cpu")).extract_embeddings(TEXTS)[0]


def setfit():
    from setfit import SetFitModel

    return SetFitModel.from_pretrained(FOLDER, trust_remote_code=True, device="cpu").encode(TEXTS)


@pytest.mark.slow
@pytest.mark.parametrize("embed", [llama_index, haystack, txtai, keybert, setfit])
def test_a_framework_returns_the_vectors(embed, monkeypatch, tmp_path):
    monkeypatch.setenv("HAYSTACK_TELEMETRY_ENABLED", "False")
    monkeypatch.setenv("HOME", str(tmp_path))
    expected = SentenceTransformer(FOLDER, device="cpu").encode(TEXTS, normalize_embeddings=True)
    try:
        vectors = np.asarray(embed())
    except ModuleNotFoundError as error:
        pytest.skip(f"{error}: `pip install hf-dse[tools]`")
    vectors = vectors / np.linalg.norm(vectors, axis=1, keepdims=True)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-4)
