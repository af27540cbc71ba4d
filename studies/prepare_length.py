# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Makes long pairs from STS-B in two ways, with a given number of tokens per text, for studies/length_*.yaml:

    python studies/prepare_length.py DATA TOKENIZER OUT [--lengths 128 512 1024 2048 4096]

concatenated: random pairs of nearly equal score, joined up to this number of tokens; the label is the mean of their
    scores. Every part of a text counts.
hidden: both sentences of a pair, each at the same place in the same unrelated Wikipedia text. Only one part counts.

DATA has the folders stsb and longwiki with parquet files; OUT gets a folder for each way and length.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from transformers import AutoTokenizer


NUM_PAIRS = {"train": 256, "validation": 64, "test": 128}
# Maximum difference of scores that count as nearly equal, on the scale of 0 to 5.
WINDOW = 0.25


def concatenated(pairs: pd.DataFrame, count, length: int, number: int, rng: np.random.Generator) -> pd.DataFrame:
    """Makes pairs of long texts by joining pairs of nearly equal score; `count` returns the tokens of a text."""
    tokens = np.maximum(pairs["sentence1"].map(count), pairs["sentence2"].map(count)).to_numpy()
    labels = pairs["label"].to_numpy()
    rows = []
    for first in rng.integers(len(pairs), size=number):
        near = np.flatnonzero(np.abs(labels - labels[first]) <= WINDOW)
        chosen, total = [], 0
        while total < length:
            chosen.append(first if not chosen else rng.choice(near))
            total += tokens[chosen[-1]]
        # The last one would be truncated.
        chosen = chosen[:-1] or chosen
        part = pairs.iloc[chosen]
        rows.append((" ".join(part["sentence1"]), " ".join(part["sentence2"]), part["label"].mean()))
    return pd.DataFrame(rows, columns=["sentence1", "sentence2", "label"])


def hidden(
    pairs: pd.DataFrame, articles: list[str], count, length: int, number: int, rng: np.random.Generator
) -> pd.DataFrame:
    """Makes pairs of long texts that differ in one sentence."""
    rows = []
    for pair in pairs.sample(number, random_state=int(rng.integers(2**31))).itertuples():
        room = length - max(count(pair.sentence1), count(pair.sentence2))
        sentences: list[str] = []
        while room > 0:
            article = articles[rng.integers(len(articles))]
            for sentence in article.replace("\n", " ").split(". "):
                room -= count(sentence + ".")
                if room <= 0:
                    break
                sentences.append(sentence.removesuffix(".") + ".")
        place = int(rng.integers(len(sentences) + 1))
        texts = [" ".join([*sentences[:place], own, *sentences[place:]]) for own in (pair.sentence1, pair.sentence2)]
        rows.append((*texts, pair.label))
    return pd.DataFrame(rows, columns=["sentence1", "sentence2", "label"])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("tokenizer")
    parser.add_argument("output", type=Path)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048, 4096])
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.tokenizer)

    def count(text: str) -> int:
        return len(tokenizer(text, add_special_tokens=False, verbose=False)["input_ids"])

    documents = pd.read_parquet(args.data / "longwiki" / "docs.parquet")
    for split, number in NUM_PAIRS.items():
        pairs = pd.read_parquet(args.data / "stsb" / f"{split}.parquet")[["sentence1", "sentence2", "label"]]
        part = "train" if split == "train" else "validation"
        articles = documents.loc[documents["split"] == part, "body"].tolist()
        for length in args.lengths:
            rng = np.random.default_rng(length)
            made = {
                "concatenated": concatenated(pairs, count, length - 2, number, rng),
                "hidden": hidden(pairs, articles, count, length - 2, number, rng),
            }
            for name, table in made.items():
                folder = args.output / f"{name}-{length}"
                folder.mkdir(parents=True, exist_ok=True)
                table.to_parquet(folder / f"{split}.parquet", index=False)
                tokens = [count(text) + 2 for text in [*table["sentence1"], *table["sentence2"]]]
                print(f"{name:<13}{length:>6}  {split:<11}{number:>5} pairs, {np.mean(tokens):,.0f} tokens per text")


if __name__ == "__main__":
    main()
