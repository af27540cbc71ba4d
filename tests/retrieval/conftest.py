# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A tiny encoder for the tests of retrieval."""

import json

import pytest

from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


@pytest.fixture
def save_encoder(save_bert, tmp_path):
    """Saves a tiny BERT with prompts of sentence-transformers into a new folder, and returns the folder."""
    folders = []

    def save(prompts=None, **fields):
        folders.append(save_bert(tmp_path / f"encoder-{len(folders)}", **fields))
        settings = {"prompts": prompts or {}, "similarity_fn_name": "cosine"}
        (folders[-1] / "config_sentence_transformers.json").write_text(json.dumps(settings))
        kind = "sentence_transformers.sentence_transformer.modules"
        modules = [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.Transformer"},
            {"idx": 1, "name": "1", "path": "1_Pooling", "type": f"{kind}.Pooling"},
        ]
        (folders[-1] / "modules.json").write_text(json.dumps(modules))
        (folders[-1] / "1_Pooling").mkdir()
        pooling = {"embedding_dimension": 16, "pooling_mode": "mean"}
        (folders[-1] / "1_Pooling" / "config.json").write_text(json.dumps(pooling))
        return folders[-1]

    return save


@pytest.fixture(scope="module")
def encoder(save_bert, tmp_path_factory):
    """A `SentenceTransformer` without prompts, which averages its tokens."""
    return load_sentence_transformer(str(save_bert(tmp_path_factory.mktemp("encoder"))), device="cpu")
