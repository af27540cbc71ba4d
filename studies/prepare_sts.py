# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
More labelled pairs of the kind of STS-B, none of which touches its evaluation.

    python studies/prepare_sts.py DATA OUT

DATA holds the folders stsb and sts12_16 (SemEval STS 2012 to 2016, of which STS-B was made) with parquet files.
Written to OUT are extra.parquet (pairs of STS 2012 to 2016 that are not in STS-B's train split and hold no sentence of
its validation or test split, after normalisation), gold.parquet (STS-B train and these) and continue.parquet (these
and a random half of STS-B train, for a teacher that knows STS-B train already).
"""

import sys
from pathlib import Path

import pandas as pd

from hf_dse.augment import normalize_text


COLUMNS = ["sentence1", "sentence2", "label"]


def main() -> None:
    data, output = map(Path, sys.argv[1:])
    train, *held_out = (
        pd.read_parquet(data / "stsb" / f"{split}.parquet") for split in ("train", "validation", "test")
    )
    evaluated = {normalize_text(text) for part in held_out for name in COLUMNS[:2] for text in part[name]}
    years = [pd.read_parquet(path) for path in sorted((data / "sts12_16").glob("*.parquet"))]
    found = pd.concat(years, ignore_index=True)
    known = {frozenset(map(normalize_text, pair)) for pair in zip(train["sentence1"], train["sentence2"], strict=True)}
    keys = [tuple(map(normalize_text, pair)) for pair in zip(found["sentence1"], found["sentence2"], strict=True)]
    touches = pd.Series([not evaluated.isdisjoint(key) for key in keys])
    is_known = pd.Series([frozenset(key) in known for key in keys])
    extra = found[~touches & ~is_known][COLUMNS].drop_duplicates(COLUMNS[:2])
    print(
        f"{len(found)} pairs of STS 2012 to 2016: {touches.sum()} with a sentence of STS-B validation or test, "
        f"{(is_known & ~touches).sum()} more in STS-B train; {len(extra)} left, without repetitions."
    )
    output.mkdir(parents=True, exist_ok=True)
    extra.to_parquet(output / "extra.parquet", index=False)
    pd.concat([train[COLUMNS], extra]).to_parquet(output / "gold.parquet", index=False)
    half = train[COLUMNS].sample(2800, random_state=0)
    pd.concat([half, extra]).to_parquet(output / "continue.parquet", index=False)


main()
