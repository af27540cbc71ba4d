# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Texts for the long student: whole articles, and their leads to keep the quality on short texts.

    python recipes/long/texts.py DATA/longwiki/docs.parquet OUT/texts.parquet [NUM_ARTICLES [FIRST]] [--pieces WORDS]

The table needs the columns `split` (only `train` is used), `lead` and `body`. With `--pieces` the texts are
pieces of the articles with WORDS words each, to fit whitening on.
"""

import argparse
from pathlib import Path

import pandas as pd


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("source", type=Path)
parser.add_argument("target", type=Path)
parser.add_argument("num_articles", type=int, nargs="?")
parser.add_argument("first", type=int, nargs="?", default=0)
parser.add_argument("--pieces", type=int, metavar="WORDS")
args = parser.parse_args()

articles = pd.read_parquet(args.source)
articles = articles[articles["split"] == "train"][args.first :][: args.num_articles]
texts = [*articles["body"], *articles["lead"]]
if args.pieces:
    words = [body.split() for body in articles["body"]]
    texts = [" ".join(of[at : at + args.pieces]) for of in words for at in range(0, len(of), args.pieces)]
args.target.parent.mkdir(parents=True, exist_ok=True)
pd.DataFrame({"text": texts}).to_parquet(args.target, index=False)
print(f"{len(texts)} texts written to {args.target}")
