# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The pairs of the flagship. None of them has a sentence of the validation or test split of STS-B, except 678 of STS-B's
own training pairs.

    python recipes/flagship/pairs.py labelled DATA OUT    # before the teacher is trained
    python recipes/flagship/pairs.py unlabelled OUT       # from the pairs of recipes/augment.py there
    python recipes/flagship/pairs.py training OUT         # from the scored pairs there

DATA has the folders stsb and sts12_16 (SemEval STS 2012 to 2016, the source of STS-B) with parquet files.
"""

import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd


sys.path.insert(0, str(Path(__file__).parents[1]))
from augment import balance, normalize_text, pair_key  # noqa: E402


TEXTS = ["sentence1", "sentence2"]
SEED = 0


def rows(pairs: pd.DataFrame) -> Iterator[tuple[str, str]]:
    return zip(pairs["sentence1"], pairs["sentence2"], strict=True)


def labelled(data: Path, out: Path) -> None:
    """
    extra.parquet: pairs of STS 2012 to 2016 that are not in STS-B train and have no sentence of its other splits.
    gold.parquet: STS-B train and these. continue.parquet: these and half of STS-B train, to train the teacher further.
    """
    splits = [pd.read_parquet(data / "stsb" / f"{split}.parquet") for split in ("train", "validation", "test")]
    train = splits[0][[*TEXTS, "label"]]
    evaluated = {normalize_text(text) for part in splits[1:] for name in TEXTS for text in part[name]}
    found = pd.concat([pd.read_parquet(path) for path in sorted((data / "sts12_16").glob("*.parquet"))])
    known = {pair_key(*row) for row in rows(train)}
    keys = (pair_key(*row) for row in rows(found))
    is_clean = [key not in known and evaluated.isdisjoint(key) for key in keys]
    extra = found[is_clean][[*TEXTS, "label"]].drop_duplicates(TEXTS)
    print(f"{len(extra)} of {len(found)} pairs of STS 2012 to 2016 are new, without repetitions.")
    out.mkdir(parents=True, exist_ok=True)
    extra.to_parquet(out / "extra.parquet", index=False)
    pd.concat([train, extra]).to_parquet(out / "gold.parquet", index=False)
    pd.concat([train.sample(2800, random_state=SEED), extra]).to_parquet(out / "continue.parquet", index=False)


def unlabelled(out: Path) -> None:
    """pool.parquet: a sample of the pairs of recipes/augment.py, by kind of pair."""
    made = {path.stem.removeprefix("made_"): pd.read_parquet(path) for path in sorted(out.glob("made_*.parquet"))}
    parts = [
        made["stsb"][made["stsb"]["kind"] == "similar"].sample(18_000, random_state=SEED),
        made["stsb"][made["stsb"]["kind"] == "random"].sample(2_500, random_state=SEED),
        made["sts"][made["sts"]["kind"] == "row"],
        made["sts"][made["sts"]["kind"] == "similar"].sample(9_000, random_state=SEED),
        *(made[name] for name in ("multi30k", "snli") if name in made),
    ]
    pool = pd.concat(parts, ignore_index=True)
    texts = pd.Series(map(frozenset, rows(pool)))
    pool = pool[~texts.duplicated()].sample(frac=1, random_state=SEED)
    if "mrpc" in made:
        pool = pd.concat([pool, made["mrpc"]], ignore_index=True)
    print(f"{len(pool)} unlabelled pairs")
    pool.to_parquet(out / "pool.parquet", index=False)


def training(out: Path) -> None:
    """
    train.parquet: the labelled pairs, and 20,000 scored ones without labels, drawn evenly over the range of the
    teacher's scores. For studies scored_stsb.parquet, STS-B train alone, and augmented_stsb.parquet, both together.
    """
    gold, pool = (pd.read_parquet(out / f"scored_{name}.parquet") for name in ("gold", "pool"))
    stsb = gold[: -len(pd.read_parquet(out / "extra.parquet"))]
    stsb.to_parquet(out / "scored_stsb.parquet", index=False)
    gold_pairs = set(map(frozenset, rows(gold)))
    is_new = [frozenset(row) not in gold_pairs for row in rows(pool)]
    unlabelled = pool[is_new][[*TEXTS, "teacher_logits"]]
    drawn = balance(unlabelled, 20_000)
    pd.concat([gold, drawn]).to_parquet(out / "train.parquet", index=False)
    pd.concat([stsb, drawn]).to_parquet(out / "augmented_stsb.parquet", index=False)
    print(f"20,000 of {len(unlabelled)} scored pairs")


if __name__ == "__main__":
    steps = (labelled, unlabelled, training)
    {step.__name__: step for step in steps}[sys.argv[1]](*map(Path, sys.argv[2:]))
