# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Which unit finds a file: its first tokens, its best passage, its best passage after its title, or the sum of the scores
of file and best passage. nDCG@10 x 100 of judged questions, by the cosine and with BM25.

    python studies/prepare_files.py OUT
    python studies/units.py ENCODER OUT/django studies/files/django.csv --max_length 256

It prints a row per unit, with the cosine and with BM25 at each of `--weights`.
"""

import argparse

import numpy as np

from hf_dse import DataArguments, Index, load_rankings, split_text, to_sentence_transformer
from hf_dse.measure.metrics import measure_run, relevance


def documents_of(index: Index, rows: np.ndarray) -> np.ndarray:
    """The best score of each document, `(num_queries, num_documents)`, of those of passages."""
    found = np.full((len(rows), index.document_of.max() + 1), -np.inf, np.float32)
    for number, scores in enumerate(rows):
        np.maximum.at(found[number], index.document_of, scores)
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("encoder")
    parser.add_argument("corpus", help="Folder of .txt and .md files.")
    parser.add_argument("questions", help="Table with the columns query_id, query and file.")
    parser.add_argument("--max_length", type=int, default=256)
    parser.add_argument("--chunk_size", type=int, default=128)
    parser.add_argument("--weights", type=float, nargs="+", default=[0.0, 0.3])
    args = parser.parse_args()
    model = to_sentence_transformer(args.encoder, max_length=args.max_length)
    data = DataArguments(test_file=args.questions, corpus_file=args.corpus, chunk_size=args.chunk_size)
    rankings = load_rankings(data)["test"]
    judged, names, texts = relevance(rankings), rankings.document_ids, rankings.corpus["text"][:]
    queries, ids = rankings.queries["query"][:], rankings.queries["query_id"][:]
    parts = [split_text(text, model.tokenizer, args.chunk_size) for text in texts]
    groups = np.repeat(np.arange(len(texts)), [len(part) for part in parts])
    indexes = {
        "whole files": Index(model, texts),
        "passages": Index(model, [passage for part in parts for passage in part], groups=groups),
        "passages after the title": Index(model, texts, chunk_size=args.chunk_size),
    }
    vectors = indexes["whole files"].encode_queries(queries)
    print(f"{indexes['passages after the title'].unit}, {len(queries)} questions, nDCG@10 x 100")
    print("  ".join([" " * 24, *(f"BM25 x {weight:<4g}" for weight in args.weights)]))
    rows: dict[str, list[np.ndarray]] = {}
    for name, index in indexes.items():
        words = index.words.scores(queries)(slice(0, len(queries)))
        cosines = vectors @ index.vectors.T
        rows[name] = [documents_of(index, cosines + weight * words) for weight in args.weights]
    rows["file + best passage"] = [sum(pair) / 2 for pair in zip(rows["whole files"], rows["passages"], strict=True)]
    for name, found in rows.items():
        cells = []
        for scores in found:
            run = {key: dict(zip(names, map(float, row), strict=True)) for key, row in zip(ids, scores, strict=True)}
            cells.append(f"{100 * measure_run(run, judged)['ndcg@10']:11.1f}")
        print("  ".join([f"{name:<24}", *cells]), flush=True)


if __name__ == "__main__":
    main()
