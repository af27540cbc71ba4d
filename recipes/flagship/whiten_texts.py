# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Texts that the whitening of the flagship is fitted to: 2,000 queries and 4,000 documents of those that it learned to
search from (see queries.py), and 2,000 sentences of STS-B train, cut after 100 words.

    python recipes/flagship/whiten_texts.py DATA OUT FILE.parquet
"""

import json
import random
import sys
from pathlib import Path

import pandas as pd


SEED = 0
WORDS = 100


def main() -> None:
    data, out, file = map(Path, sys.argv[1:])
    draw = random.Random(SEED)

    def read(name: str, column: str) -> list[str]:
        return [json.loads(line)[column] for line in (out / name).read_text().splitlines()]

    queries = read("search/queries.jsonl", "text") + read("unlabelled.jsonl", "query")
    documents = read("search/corpus.jsonl", "text") + read("unlabelled/corpus.jsonl", "text")
    stsb = pd.read_parquet(data / "stsb" / "train.parquet")
    sentences = [*stsb["sentence1"], *stsb["sentence2"]]
    drawn = [(queries, 2000), (documents, 4000), (sentences, 2000)]
    texts = [
        " ".join(text.split()[:WORDS]) for known, number in drawn for text in draw.sample(sorted(set(known)), number)
    ]
    pd.DataFrame({"text": texts}).to_parquet(file)


if __name__ == "__main__":
    main()
