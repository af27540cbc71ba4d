# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Embeds texts with a framework, in the way of its documentation, where hf-dse is not installed and there is no network:

    python embed.py FRAMEWORK TEXTS.json FOLDER VECTORS.npz [FOLDER VECTORS.npz ...]
"""

import json
import os
import socket
import sys


class NoHfDse:
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] == "hf_dse":
            raise ModuleNotFoundError(f"{name} is not installed here", name=name)


def no_network(self, address):
    raise ConnectionError(f"tests must not use the network, but one connects to {address}")


os.environ["HAYSTACK_TELEMETRY_ENABLED"] = "False"
sys.meta_path.insert(0, NoHfDse())
socket.socket.connect = no_network

import numpy as np  # noqa: E402


# Each returns the embeddings of the texts, by the way in which they were made.


def langchain(folder, texts):
    from langchain_huggingface import HuggingFaceEmbeddings

    model = HuggingFaceEmbeddings(model_name=folder, model_kwargs={"trust_remote_code": True, "device": "cpu"})
    return {"documents": model.embed_documents(texts), "queries": [model.embed_query(text) for text in texts]}


def llama_index(folder, texts):
    from llama_index.embeddings.huggingface import HuggingFaceEmbedding

    model = HuggingFaceEmbedding(model_name=folder, trust_remote_code=True, device="cpu")
    queries = [model.get_query_embedding(text) for text in texts]
    return {"documents": model.get_text_embedding_batch(texts), "queries": queries}


def haystack(folder, texts):
    from haystack import Document
    from haystack_integrations.components.embedders.sentence_transformers import (
        SentenceTransformersDocumentEmbedder,
        SentenceTransformersTextEmbedder,
    )

    of_documents = SentenceTransformersDocumentEmbedder(model=folder, trust_remote_code=True, progress_bar=False)
    of_queries = SentenceTransformersTextEmbedder(model=folder, trust_remote_code=True, progress_bar=False)
    of_documents.warm_up()
    of_queries.warm_up()
    documents = of_documents.run([Document(content=text) for text in texts])["documents"]
    return {
        "documents": [document.embedding for document in documents],
        "queries": [of_queries.run(text)["embedding"] for text in texts],
    }


def txtai(folder, texts):
    """With the method "transformers", txtai pools the states of `AutoModel` itself."""
    from txtai import Embeddings

    vectors = {}
    for method in ("transformers", "sentence-transformers"):
        model = Embeddings(path=folder, method=method, gpu=False, vectors={"trust_remote_code": True})
        vectors[method] = model.batchtransform(texts)
    return vectors


def fastembed(folder, texts):
    """The first output of a graph, or the mean of the token vectors."""
    from fastembed import TextEmbedding
    from fastembed.common.model_description import ModelSource, PoolingType

    with open(os.path.join(folder, "1_Pooling", "config.json"), encoding="utf-8") as file:
        dim = json.load(file)["word_embedding_dimension"]
    vectors = {}
    for pooling, options in (
        (PoolingType.DISABLED, {"normalization": False}),
        (PoolingType.MEAN, {"normalization": True, "output_name": "token_embeddings"}),
    ):
        name, source = f"{folder}, {pooling}", ModelSource(hf="user/model")
        TextEmbedding.add_custom_model(
            name, pooling=pooling, sources=source, dim=dim, model_file="onnx/model.onnx", **options
        )
        model = TextEmbedding(name, specific_model_path=folder)
        vectors[str(pooling)] = list(model.embed(texts, batch_size=2))
    return vectors


if __name__ == "__main__":
    _, framework, texts_file, *targets = sys.argv
    with open(texts_file, encoding="utf-8") as file:
        texts = json.load(file)
    for folder, vectors in zip(targets[::2], targets[1::2], strict=True):
        np.savez(vectors, **globals()[framework](folder, texts))
