# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The cost of smaller vectors: fewer dimensions (`truncate_dim`) and fewer bits (`quantize_embeddings`) of
sentence-transformers, from one encoding of each set.

    python studies/sizes.py DATA MODEL [MODEL ...]

DATA has the folders of studies/generality.py. The output is the Spearman correlation of the cosine on STS-B test and
nDCG@10 elsewhere, x 100. Both sentences of a pair are quantized, and the documents of a corpus; queries are only cut.
"""

import argparse
from collections.abc import Sequence
from pathlib import Path

import numpy as np
from generality import as_rankings, read_sets
from scipy.stats import spearmanr
from sentence_transformers import SentenceTransformer, quantize_embeddings

from hf_dse import Index
from hf_dse.common.display import markdown
from hf_dse.measure.metrics import measure_run, relevance


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def code(vectors: np.ndarray, precision: str) -> np.ndarray:
    """The values that the codes of unit vectors stand for."""
    if precision == "float32":
        return vectors
    if precision == "binary":
        return np.where(vectors > 0, 1.0, -1.0).astype(np.float32)
    low, high = vectors.min(axis=0), vectors.max(axis=0)
    codes = quantize_embeddings(vectors, precision="int8", ranges=np.stack([low, high])).astype(np.float32)
    return low + (codes + 128) * (high - low) / 255


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 256, 128, 64])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8"], choices=["float32", "int8", "binary"])
    parser.add_argument(
        "--sets", nargs="+", default=["STS-B", "CACM", "Cranfield"], help="names of studies/generality.py"
    )
    parser.add_argument("--dtype", default="bfloat16", choices=["float32", "bfloat16"])
    args = parser.parse_args(argv)
    sizes = [(dim, precision) for dim in args.dims for precision in args.precisions]
    similarity, search = (
        {title: part for title, part in parts.items() if title.split()[0] in args.sets}
        for parts in read_sets(args.data)
    )
    for name in args.models:
        options = {"model_kwargs": {"dtype": args.dtype}, "similarity_fn_name": "cosine"}
        model = SentenceTransformer(name, trust_remote_code=True, **options)
        columns: dict[str, list[float]] = {}
        for title, (first, second, labels) in similarity.items():
            sides = [model.encode(texts, batch_size=64) for texts in (first, second)]
            columns[title] = []
            for dim, precision in sizes:
                both = code(unit(np.concatenate(sides)[:, :dim]), precision)
                cosines = (unit(both[: len(first)]) * unit(both[len(first) :])).sum(axis=1)
                columns[title].append(spearmanr(cosines, labels).statistic)
        for title, collection in search.items():
            rankings, (queries, texts) = as_rankings(*collection), (list(part.values()) for part in collection[:2])
            asked, corpus = model.encode_query(queries, batch_size=64), model.encode_document(texts, batch_size=64)
            columns[title] = []
            for dim, precision in sizes:
                index = Index.of(model, rankings, vectors=code(unit(corpus[:, :dim]), precision), show_progress=False)
                ranked = index.ranked(rankings, 10, vectors=unit(asked[:, :dim]))
                run = {query_id: {name: score for name, score, _ in hits} for query_id, hits in ranked.items()}
                columns[title].append(measure_run(run, relevance(rankings))["ndcg@10"])
        rows = [
            [f"{dim}, {precision}", *(f"{100 * values[row]:.2f}" for values in columns.values())]
            for row, (dim, precision) in enumerate(sizes)
        ]
        print(f"{name}\n{markdown(['dimensions, precision', *columns], rows, num_left=1)}", flush=True)


if __name__ == "__main__":
    main()
