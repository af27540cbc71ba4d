# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny encoder for the tests of retrieval."""

from pathlib import Path

import pytest
from sentence_transformers import SentenceTransformer

from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


@pytest.fixture
def save_encoder(save_bert, tmp_path):
    """Saves a tiny BERT with prompts of sentence-transformers into a new folder, and returns the folder."""
    folders = []

    def save(prompts=None, **fields):
        folder = str(save_bert(tmp_path / f"encoder-{len(folders)}", **fields))
        SentenceTransformer(folder, device="cpu", prompts=prompts, similarity_fn_name="cosine").save(folder)
        folders.append(folder)
        return Path(folder)

    return save


@pytest.fixture(scope="module")
def encoder(save_bert, tmp_path_factory):
    """A `SentenceTransformer` without prompts, which averages its tokens."""
    return load_sentence_transformer(str(save_bert(tmp_path_factory.mktemp("encoder"))), device="cpu")
