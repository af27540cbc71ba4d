# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What smaller vectors cost: cut ones (`truncate_dim`) and quantized ones (`precision`), from one encoding of each set.

    python studies/sizes.py DATA MODEL [MODEL ...]

DATA has the folders stsb (pairs) and others in the layout of BEIR. MODEL is any encoder that `hf-dse evaluate` takes.
The output is the Spearman correlation of the cosine on STS-B test and nDCG@10 elsewhere, x 100, as those of
`hf-dse evaluate --truncate_dim --precision`. Both sentences of a pair are quantized, and the documents of a corpus.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_dse import (
    DataArguments,
    ModelArguments,
    encode,
    encode_document,
    encode_query,
    load_model,
    load_pairs,
    load_rankings,
    quantize,
    rank,
    ranking_metrics,
)
from hf_dse.common.display import markdown
from hf_dse.data.rankings import Rankings
from hf_dse.evaluation.pairs import cosines
from hf_dse.inference.quantization import truncate
from hf_dse.metrics import _score, as_run, relevance


def cut(vectors: np.ndarray, size: int, model: Any) -> np.ndarray:
    values = truncate(torch.from_numpy(vectors), size, model)
    return torch.nn.functional.normalize(values, dim=-1).numpy()


def measure_pairs(pairs: Any, model: Any, tokenizer: Any, sizes: list[tuple[int, str]]) -> list[float]:
    texts = list(dict.fromkeys([*pairs["sentence1"], *pairs["sentence2"]]))
    row_of = {text: row for row, text in enumerate(texts)}
    sides = [[row_of[text] for text in pairs[name]] for name in ("sentence1", "sentence2")]
    vectors = encode(model, tokenizer, texts)
    found = []
    for size, precision in sizes:
        coded = quantize(cut(vectors, size, model), precision)
        similarity = cosines(*(coded[side] for side in sides))
        found.append(_score(similarity, np.asarray(pairs["label"]), "regression", 1)["spearman"])
    return found


def measure_search(rankings: Rankings, model: Any, tokenizer: Any, sizes: list[tuple[int, str]]) -> list[float]:
    queries = encode_query(model, tokenizer, rankings.queries["query"][:])
    corpus = encode_document(model, tokenizer, rankings.corpus["text"][:])
    found = []
    for size, precision in sizes:
        coded = quantize(cut(corpus, size, model), precision)
        hits = rank(cut(queries, size, model), coded, top_k=101, show_progress=False)
        found.append(ranking_metrics(as_run(rankings, *hits, 100), relevance(rankings))["ndcg@10"])
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dims", type=int, nargs="+", default=[384, 256, 128, 64])
    parser.add_argument("--precisions", nargs="+", default=["float32", "int8", "binary"])
    parser.add_argument("--sets", nargs="+", default=["stsb", "cacm", "cranfield", "npl", "scifact"])
    parser.add_argument("--dtype", default="bfloat16")
    parser.add_argument("--output", type=Path, help="file for the numbers: model -> set -> [size, precision, value]")
    args = parser.parse_args()
    sizes = [(size, precision) for size in args.dims for precision in args.precisions]
    scores: dict[str, dict[str, list]] = {}
    for name in args.models:
        model, tokenizer = load_model(ModelArguments(name, dtype=args.dtype))
        columns: dict[str, list[float]] = {}
        for folder in args.sets:
            if folder == "stsb":
                file = str(args.data / folder / "test.parquet")
                data = load_pairs(DataArguments(test_file=file, num_labels=1), ["test"])["test"]
                columns[folder] = measure_pairs(data, model, tokenizer, sizes)
            else:
                rankings = load_rankings(DataArguments(dataset_name=str(args.data / folder)), ["test"])["test"]
                columns[folder] = measure_search(rankings, model, tokenizer, sizes)
        scores[name] = {
            folder: [[*size, value] for size, value in zip(sizes, values, strict=True)]
            for folder, values in columns.items()
        }
        rows = [
            [f"{size}, {precision}", *(f"{100 * values[row]:.2f}" for values in columns.values())]
            for row, (size, precision) in enumerate(sizes)
        ]
        print(f"{name}\n{markdown(['numbers, precision', *columns], rows, num_left=1)}", flush=True)
        if args.output:
            args.output.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
