# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Data of the five sentence-pair tasks of DSE in the splits of `studies/five_tasks.yaml`.

    python studies/prepare_five_tasks.py DATA outputs/five-tasks/data

DATA has the folders stsb, mrpc, qqp, qnli and nli with parquet files. Not all are the datasets of GLUE: QQP is a
subset with its own splits; QNLI is only the 5,463 validation pairs, split by question 80 / 10 / 10; NLI is SNLI's
validation pairs and counterfactually revised SNLI for training and SNLI's test pairs for testing, without common
pairs. 10,000 training pairs each of QQP and NLI, and 5,000 test pairs of SNLI are sampled. No training split has pairs
of its validation and test splits.
"""

import hashlib
import sys
from pathlib import Path

import pandas as pd


sys.path.insert(0, str(Path(__file__).parents[1] / "recipes"))
from augment import normalize_text, pair_key  # noqa: E402


# Maximum pairs per split, so that training a teacher and its students takes hours, not days.
MOST = {"train": 10_000, "validation": 2_500, "test": 5_000}


def keys(pairs: pd.DataFrame, first: str, second: str) -> pd.Series:
    rows = zip(pairs[first], pairs[second], strict=True)
    return pd.Series([pair_key(*row) for row in rows], index=pairs.index)


def part_of(text: str) -> str:
    """Returns the split of a question, by its hash."""
    number = int(hashlib.sha256(normalize_text(text).encode()).hexdigest(), 16) % 10
    return {8: "validation", 9: "test"}.get(number, "train")


def read(folder: Path, name: str) -> pd.DataFrame:
    return pd.read_parquet(folder / f"{name}.parquet")


def load_tasks(data: Path) -> dict[str, dict[str, pd.DataFrame]]:
    tasks = {"stsb": {split: read(data / "stsb", split) for split in ("train", "validation", "test")}}
    tasks["qqp"] = {split: read(data / "qqp", split) for split in ("train", "validation", "test")}

    # GLUE's validation pairs are the test split; every tenth training pair is for validation.
    train = read(data / "mrpc", "train")
    is_held_out = train.index % 10 == 0
    tasks["mrpc"] = {
        "train": train[~is_held_out],
        "validation": train[is_held_out],
        "test": read(data / "mrpc", "validation"),
    }

    qnli = read(data / "qnli", "validation")
    parts = qnli["question"].map(part_of)
    tasks["qnli"] = {split: qnli[parts == split] for split in ("train", "validation", "test")}

    snli, revised = read(data / "nli", "snli"), read(data / "nli", "cad_snli")
    tasks["nli"] = {
        "train": pd.concat([snli[snli["split"] == "validation"], revised[revised["split"] == "train"]]),
        "validation": revised[revised["split"] == "validation"],
        "test": snli[snli["split"] == "test"],
    }
    return tasks


def main() -> None:
    data, output = map(Path, sys.argv[1:3])
    columns = {"qqp": ("question1", "question2"), "qnli": ("question", "sentence")}
    for task, splits in load_tasks(data).items():
        first, second = columns.get(task, ("sentence1", "sentence2"))
        seen: set = set()
        for split in ("test", "validation", "train"):
            pairs = splits[split][[first, second, "label"]].reset_index(drop=True)
            known = keys(pairs, first, second)
            pairs = pairs[~known.isin(seen)]
            seen |= set(known)
            pairs = pairs.sample(min(len(pairs), MOST[split]), random_state=0)
            (output / task).mkdir(parents=True, exist_ok=True)
            pairs.to_parquet(output / task / f"{split}.parquet", index=False)
            print(f"{task:<6}{split:<12}{len(pairs):>7,} of {len(known):,} pairs")


if __name__ == "__main__":
    main()
