# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The example server over HTTP: its vectors are those of sentence-transformers, for many clients at once."""

from pathlib import Path

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer

from hf_dse import DseModel, export


pytest.importorskip("litserve")
httpx = pytest.importorskip("httpx")
pytestmark = pytest.mark.slow

SERVER = Path(__file__).parents[2] / "examples" / "14_serve.py"
# The second text is longer than the model reads.
TEXTS = ["the cat sat on the mat", "a dog ran " * 100, ""]


@pytest.fixture(scope="module")
def folder(tmp_path_factory, tiny_config, bert_tokenizer):
    return export(DseModel(tiny_config(bert_tokenizer)), tmp_path_factory.mktemp("model") / "m", bert_tokenizer)


@pytest.fixture(scope="module")
def client(folder, serve):
    # The folder is loaded with its own code, and a copy of it is kept beside the folder.
    environment = {"HF_MODULES_CACHE": str(folder.parent / "modules")}
    with serve([SERVER, folder, "--max_bytes", "10000"], folder.parent, "/health", environment) as client:
        yield client


def embed(client, texts):
    answer = client.post("/v1/embeddings", json={"model": "m", "input": texts})
    assert answer.status_code == 200, answer.text
    rows = answer.json()["data"]
    assert [row["index"] for row in rows] == list(range(len(rows)))
    return np.array([row["embedding"] for row in rows])


def test_vectors_are_those_of_sentence_transformers(client, folder):
    expected = SentenceTransformer(str(folder), device="cpu").encode(TEXTS)
    np.testing.assert_allclose(embed(client, TEXTS), expected, rtol=0, atol=1e-5)
    np.testing.assert_allclose(embed(client, TEXTS[0]), expected[:1], rtol=0, atol=1e-5)


def test_refuses_what_it_cannot_embed_and_lives_on(client):
    for given, status in (([], 500), ([[1, 2]], 500), (5, 422), ("a" * 20_000, 413)):
        # The server closes a connection after an error, and in the midst of a request that is too large.
        with httpx.Client(base_url=client.base_url, timeout=60) as other:
            try:
                assert other.post("/v1/embeddings", json={"model": "m", "input": given}).status_code == status
            except httpx.TransportError:
                assert status == 413
    with httpx.Client(base_url=client.base_url, timeout=60) as other:
        assert len(embed(other, "the cat")) == 1
