# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Stores a teacher's scores without the texts, to train students again without the teacher: of pairs by a hash of each,
of the candidates of queries by their ids, which are those of `--dataset_name`, a folder with `corpus` and `queries`.

    python recipes/kept_scores.py keep SCORED... KEPT      # from files of `hf-dse score`
    python recipes/kept_scores.py add PAIRS KEPT SCORED    # to pairs that all have a kept score
    python recipes/kept_scores.py ids SCORED.jsonl KEPT    # queries with candidates: KEPT is a `--train_file`
"""

import hashlib
import sys
from pathlib import Path

import numpy as np
import pandas as pd


TEXTS = (["sentence1", "sentence2"], ["question1", "question2"], ["question", "sentence"])


def hashes(pairs: pd.DataFrame) -> np.ndarray:
    names = next(names for names in TEXTS if set(names) <= set(pairs.columns))
    texts = ("\0".join(row).encode() for row in pairs[names].itertuples(index=False))
    return np.array([int.from_bytes(hashlib.sha256(text).digest()[:8], "little") for text in texts], dtype=np.uint64)


def keep(*files: str) -> None:
    *scored, kept = files
    parts = map(pd.read_parquet, scored)
    scores = pd.concat([pd.DataFrame({"hash": hashes(pairs), "logits": pairs["teacher_logits"]}) for pairs in parts])
    scores["logits"] = scores["logits"].map(lambda logits: np.asarray(logits, dtype=np.float32))
    scores = scores.loc[~scores.assign(logits=scores["logits"].map(tuple)).duplicated()]
    if scores["hash"].duplicated().any():
        sys.exit("Some pairs have several scores: keep the scores of each teacher in a separate file.")
    scores.to_parquet(kept, index=False, compression="zstd")


def add(pairs_file: str, kept: str, scored: str) -> None:
    pairs = pd.read_parquet(pairs_file)
    logits = pd.read_parquet(kept).set_index("hash")["logits"].reindex(hashes(pairs))
    if missing := logits.isna().sum():
        sys.exit(
            f"{missing} of {len(pairs)} pairs of {pairs_file} have no score in {kept}: score them with a teacher."
        )
    Path(scored).parent.mkdir(parents=True, exist_ok=True)
    pairs.assign(teacher_logits=logits.tolist()).to_parquet(scored, index=False)


def ids(scored: str, kept: str) -> None:
    rows = pd.read_json(scored, lines=True, dtype=False)
    rows[["query_id", "document_ids", "labels", "teacher_logits"]].to_parquet(kept, index=False, compression="zstd")


if __name__ == "__main__":
    {"keep": keep, "add": add, "ids": ids}[sys.argv[1]](*sys.argv[2:])
