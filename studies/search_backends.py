# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The same SciFact embeddings in several search backends: nDCG@10 of the exact ranking of hf-dse, of a faiss index of
`datasets`, and of `semantic_search` of sentence-transformers.

    python studies/search_backends.py DATA/scifact MODEL [--bf16]
"""

import argparse
from pathlib import Path

import faiss
import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers.util import semantic_search
from transformers import AutoModel, AutoTokenizer

from hf_dse import encode, rank


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    args = parser.parse_args()
    corpus = pd.read_parquet(args.data / "corpus.parquet").astype({"doc_id": str})
    queries = pd.read_parquet(args.data / "queries_test.parquet").astype({"query_id": str})
    judged = pd.read_parquet(args.data / "qrels_test.parquet").astype({"query_id": str, "doc_id": str})
    row_of = {document: row for row, document in enumerate(corpus["doc_id"])}
    relevant = judged.groupby("query_id")["doc_id"].agg(lambda documents: {row_of[name] for name in documents})

    model, tokenizer = AutoModel.from_pretrained(args.model), AutoTokenizer.from_pretrained(args.model)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=args.bf16):
        options = {"max_length": 256, "normalize": True}
        corpus_vectors = encode(model, tokenizer, (corpus["title"] + " " + corpus["text"]).tolist(), **options)
        query_vectors = encode(model, tokenizer, queries["query"].tolist(), **options)

    dataset = Dataset.from_dict({"vector": list(corpus_vectors)})
    dataset.add_faiss_index("vector", metric_type=faiss.METRIC_INNER_PRODUCT)
    hits = semantic_search(torch.from_numpy(query_vectors), torch.from_numpy(corpus_vectors), top_k=10)
    found = {
        "rank of hf-dse (exact)": rank(query_vectors, corpus_vectors, top_k=10)[1],
        "Dataset.add_faiss_index": dataset.search_batch("vector", query_vectors, k=10).total_indices,
        "semantic_search": [[hit["corpus_id"] for hit in row] for row in hits],
    }
    discounts = 1 / np.log2(np.arange(2, 12))
    for name, positions in found.items():
        scores = []
        for query, row in zip(queries["query_id"], positions, strict=True):
            if query in relevant.index:
                gains = np.isin(row, list(relevant[query]))
                scores.append(gains @ discounts / discounts[: len(relevant[query])].sum())
        print(f"{name:<24} nDCG@10 {100 * np.mean(scores):.2f} over {len(scores)} queries")


if __name__ == "__main__":
    main()
