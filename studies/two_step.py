# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Retrieval with an mlp head, which cannot use an index: the loss from ranking only a pool of candidates found by cosine.

    python studies/two_step.py outputs/five-tasks/data/qqp/test.parquet MODEL [MODEL ...]

The queries are the first questions of QQP's duplicates, the corpus is all other questions of the split, and the
duplicates of a query are relevant. The output is R@1, R@10 and MRR@10, x 100, the share of the head's own top 10 that
is found, and the milliseconds per query with computed embeddings.
"""

import argparse
import time
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import encode, rank
from hf_dse.common.devices import choose_device
from hf_dse.common.display import markdown


TOP = 10


def load(file: Path) -> tuple[list[str], list[str], list[set[int]]]:
    """Returns queries, corpus, and for each query the rows of its duplicates."""
    pairs = pd.read_parquet(file)
    pairs = pairs[pairs["question1"] != pairs["question2"]]
    duplicates = pairs[pairs["label"] == 1].groupby("question1", sort=False)["question2"].agg(set)
    texts = pd.concat([pairs["question1"], pairs["question2"]]).unique().tolist()
    row_of = {text: row for row, text in enumerate(texts)}
    return duplicates.index.tolist(), texts, [{row_of[text] for text in found} for found in duplicates]


def search(head, pool: int | None, of_queries: np.ndarray, of_texts: np.ndarray, own: list[int]):
    """Returns the best rows for each query without the query itself, and the milliseconds per query."""
    start = time.perf_counter()
    _, positions = rank(of_queries, of_texts, top_k=TOP + 1, head=head, pool=pool, show_progress=False)
    milliseconds = 1000 * (time.perf_counter() - start) / len(of_queries)
    others = [[row for row in found if row != out][:TOP] for found, out in zip(positions, own, strict=True)]
    return others, milliseconds


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--pools", type=int, nargs="+", default=[20, 100, 500])
    args = parser.parse_args()
    queries, texts, relevant = load(args.file)
    own = [texts.index(query) for query in queries]
    print(f"{len(queries)} queries, {len(texts)} texts")

    rows = []
    for name in args.models:
        model = (
            AutoModelForSequenceClassification.from_pretrained(name, trust_remote_code=True).to(choose_device()).eval()
        )
        tokenizer = AutoTokenizer.from_pretrained(name)
        of_queries, of_texts = encode(model, tokenizer, queries), encode(model, tokenizer, texts)

        ways = {"cosine": (None, None), **{f"head, pool of {pool}": (model, pool) for pool in args.pools}}
        ways["head, whole corpus"] = (model, None)
        results = {title: search(*way, of_queries, of_texts, own) for title, way in ways.items()}
        best, _ = results["head, whole corpus"]
        for title, (found, milliseconds) in results.items():
            ranks = [
                next((place for place, row in enumerate(places) if row in wanted), np.inf)
                for places, wanted in zip(found, relevant, strict=True)
            ]
            agreement = np.mean([len({*a} & {*b}) / TOP for a, b in zip(found, best, strict=True)])
            scores = [np.mean(np.less(ranks, 1)), np.mean(np.less(ranks, TOP)), np.mean(1 / (1 + np.array(ranks)))]
            cells = [f"{100 * score:.1f}" for score in (*scores, agreement)]
            rows.append([name, title, *cells, f"{milliseconds:.2f}"])
    columns = ["model", "ranked by", "R@1", "R@10", "MRR@10", "of the head's 10", "ms per query"]
    print(markdown(columns, rows, num_left=2))


if __name__ == "__main__":
    main()
