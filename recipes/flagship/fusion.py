# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
A teacher that knows the words: the cosine of an encoder, and BM25.

    python recipes/flagship/fusion.py OUT ENCODER [--dtype bfloat16]

Gives each candidate of OUT/mined.jsonl and OUT/unlabelled-mined.jsonl (`hf-dse mine` in OUT/search and OUT/unlabelled)
the score `cosine + 0.04 * BM25 / s`, where s is the standard deviation of the query's 100 best BM25 scores.
OUT/fused.jsonl has the lists, in the order of their use: claims of SciFact, queries without labels, the other queries.
"""

import argparse
import json
from pathlib import Path

import numpy as np
from sentence_transformers import SentenceTransformer

from hf_dse import bm25_scores


WEIGHT = 0.04
# Queries of SciFact, the first ones of OUT/mined.jsonl.
NUM_CLAIMS = 809


def read(file: Path) -> list[dict]:
    return [json.loads(line) for line in file.read_text().split("\n") if line]


def score(corpus: list[dict], lists: list[dict], encoder: SentenceTransformer) -> None:
    """Adds `teacher_logits` to the lists of one corpus."""
    texts = [row["text"] for row in corpus]
    row_of = {row["_id"]: number for number, row in enumerate(corpus)}
    found = sorted({row_of[doc_id] for row in lists for doc_id in row["document_ids"]})
    options = {"batch_size": 64, "normalize_embeddings": True}
    vectors = dict(zip(found, encoder.encode([texts[row] for row in found], **options), strict=True))
    queries = encoder.encode([row["query"] for row in lists], **options)
    # The words are indexed once. What each query's scores are divided by there has no effect here.
    score_words = bm25_scores([row["query"] for row in lists], texts, 1.0)
    num_best = min(100, len(texts))
    for number, row in enumerate(lists):
        (words,) = score_words(slice(number, number + 1))
        words /= np.partition(words, -num_best)[-num_best:].std() + 1e-6
        rows = [row_of[doc_id] for doc_id in row["document_ids"]]
        cosines = np.stack([vectors[row] for row in rows]) @ queries[number]
        row["teacher_logits"] = [float(value) for value in cosines + WEIGHT * words[rows]]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("out", type=Path)
    parser.add_argument("encoder")
    parser.add_argument("--dtype", default="float32")
    args = parser.parse_args()
    encoder = SentenceTransformer(args.encoder, model_kwargs={"dtype": args.dtype})
    labelled, unlabelled = read(args.out / "mined.jsonl"), read(args.out / "unlabelled-mined.jsonl")
    score(read(args.out / "search" / "corpus.jsonl"), labelled, encoder)
    score(read(args.out / "unlabelled" / "corpus.jsonl"), unlabelled, encoder)
    lists = [*labelled[:NUM_CLAIMS], *unlabelled, *labelled[NUM_CLAIMS:]]
    (args.out / "fused.jsonl").write_text("".join(json.dumps(row) + "\n" for row in lists))
    print(f"{len(lists):,} lists")


if __name__ == "__main__":
    main()
