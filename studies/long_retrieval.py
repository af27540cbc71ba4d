# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Retrieval of long documents: one pass over a whole document versus truncation, the mean of its chunks or all chunks.

    python studies/long_retrieval.py DATA MODEL [MODEL ...] [--set longwiki|qmsum] [--max_length 4096]
    python studies/long_retrieval.py DATA SOURCE --chunks mean max    # the usual ways with a short encoder

DATA has the folders longwiki (queries: paragraphs after word 600 of an article) and qmsum (queries: answers to
questions about a meeting) with parquet files. MODEL is a folder or a Hub id of a DSE model or any other encoder. The
output is R@1, R@10 and MRR, x 100; each query has one relevant document.
"""

import argparse
import json
import time
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from transformers import AutoModel, AutoTokenizer

from hf_dse import encode
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device
from hf_dse.data.tokenization import max_tokens


def load(data: Path, name: str, split: str, max_documents: int | None) -> tuple[list[str], list[str], np.ndarray]:
    """Returns documents, queries, and for each query the row of its document."""
    documents = pd.read_parquet(data / name / "docs.parquet")
    documents = documents[documents["split"] == split][:max_documents]
    queries = pd.read_parquet(data / name / ("queries_late.parquet" if name == "longwiki" else "queries.parquet"))
    queries = queries[queries["doc_id"].isin(documents["doc_id"])]
    row_of = {document: row for row, document in enumerate(documents["doc_id"])}
    texts = documents["body" if name == "longwiki" else "text"]
    return (
        texts.tolist(),
        queries["query" if name == "longwiki" else "answer"].tolist(),
        queries["doc_id"].map(row_of).to_numpy(),
    )


def cut(tokenizer, text: str, length: int) -> list[str]:
    """Splits a text into chunks of at most `length` tokens, including special tokens."""
    encoded = tokenizer(
        text,
        truncation=True,
        max_length=length,
        return_overflowing_tokens=True,
        return_offsets_mapping=True,
    )
    spans = [[end for _, end in offsets if end] for offsets in encoded["offset_mapping"]]
    ends = [0, *(span[-1] for span in spans)]
    return [text[start:end] for start, end in zip(ends, ends[1:], strict=False)]


def ranks(similarities: np.ndarray, relevant: np.ndarray) -> np.ndarray:
    """Returns the number of documents ranked above the relevant one of each query."""
    own = similarities[np.arange(len(relevant)), relevant]
    return (similarities > own[:, None]).sum(axis=1)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--set", choices=["longwiki", "qmsum"], default="longwiki")
    parser.add_argument("--split", default="validation")
    parser.add_argument("--max_documents", type=int)
    parser.add_argument("--max_length", type=int, help="maximum tokens per document; default: the limit")
    parser.add_argument("--extend", type=int, help="run DSE models with dynamic positions at up to this many tokens")
    parser.add_argument(
        "--linformer_length", type=int, nargs="+", help="another k, or one per layer, if E and F have no weights"
    )
    parser.add_argument("--chunks", nargs="*", choices=["mean", "max"], default=[], help="also score by chunks")
    parser.add_argument("--chunk_length", type=int, default=512)
    parser.add_argument("--batch_size", type=int, default=8)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    parser.add_argument("--output", type=Path, help="file for the numbers")
    args = parser.parse_args()
    documents, queries, relevant = load(args.data, args.set, args.split, args.max_documents)
    print(f"{len(documents)} documents, {len(queries)} queries")

    k = args.linformer_length
    changes = {"max_position_embeddings": args.extend, "linformer_length": k[0] if k and len(k) == 1 else k}
    changes = {field: value for field, value in changes.items() if value is not None}
    rows = []
    for name in args.models:
        tokenizer = AutoTokenizer.from_pretrained(name)
        model = AutoModel.from_pretrained(name, trust_remote_code=True, **changes).to(choose_device()).eval()
        limit = max_tokens(model, tokenizer)

        def embed(texts: list[str], length: int | None, model=model, tokenizer=tokenizer) -> np.ndarray:
            with torch.autocast(model.device.type, torch.bfloat16, args.bf16):
                options = {"max_length": length, "batch_size": args.batch_size, "normalize": True}
                return encode(model, tokenizer, texts, **options)

        of_queries = embed(queries, limit and min(limit, 512))
        length = min(limit or args.max_length, args.max_length or limit)
        start = time.perf_counter()
        found = {f"one pass, truncated to {length}": of_queries @ embed(documents, length).T}
        seconds = time.perf_counter() - start
        if args.chunks:
            chunks = [cut(tokenizer, text, args.chunk_length) for text in documents]
            of_chunks = embed([chunk for text in chunks for chunk in text], args.chunk_length)
            first = np.cumsum([0, *(len(text) for text in chunks)])[:-1]
            means = np.add.reduceat(of_chunks, first)
            means /= np.linalg.norm(means, axis=1, keepdims=True)
            similarities = of_queries @ of_chunks.T
            both = {"mean": of_queries @ means.T, "max": np.maximum.reduceat(similarities, first, axis=1)}
            titles = {"mean": "average of its chunks", "max": "best of its chunks"}
            found |= {titles[kind]: both[kind] for kind in args.chunks}
        for title, similarities in found.items():
            places = ranks(similarities, relevant)
            scores = [np.mean(places < 1), np.mean(places < 10), np.mean(1 / (1 + places))]
            rows.append([Path(name).name, title, *(f"{100 * score:.1f}" for score in scores)])
        print(f"{name}: {seconds:.0f} s for {len(documents)} documents in one pass")
    columns = ["model", "a document is", "R@1", "R@10", "MRR"]
    print(markdown(columns, rows, num_left=2))
    if args.output:
        args.output.write_text(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=2) + "\n")


if __name__ == "__main__":
    main()
