# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Where a student falls behind its teacher: Pearson correlation on STS-B validation by the origin of the pairs.

    python studies/genres.py STSB SCORED_OR_MODEL [SCORED_OR_MODEL ...]

STSB is the folder of STS-B with the column `origin`. SCORED is the validation split scored by `hf-dse score`
(parquet). MODEL is a DSE model, which scores by cosine.
"""

import sys
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset
from transformers import AutoModel, AutoTokenizer

from hf_dse.common.display import markdown
from hf_dse.teacher.score import score_similarities


def scores_of(name: str, pairs: pd.DataFrame) -> np.ndarray:
    if name.endswith(".parquet"):
        return pd.read_parquet(name)["teacher_logits"].str[0].to_numpy()
    model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    texts = Dataset.from_pandas(pairs[["sentence1", "sentence2"]], preserve_index=False)
    return np.ravel(score_similarities(model, texts, processing_class=tokenizer)["teacher_logits"][:])


def main() -> None:
    folder, *names = sys.argv[1:]
    pairs = pd.read_parquet(Path(folder) / "validation.parquet")
    scores = {name: scores_of(name, pairs) for name in names}
    groups = {"all": np.ones(len(pairs), dtype=bool)}
    groups |= {origin: (pairs["origin"] == origin).to_numpy() for origin in sorted(pairs["origin"].unique())}
    rows = [
        [
            origin,
            str(part.sum()),
            *(f"{100 * np.corrcoef(score[part], pairs['label'][part])[0, 1]:.2f}" for score in scores.values()),
        ]
        for origin, part in groups.items()
    ]
    print(markdown(["origin", "pairs", *names], rows, num_left=1))


if __name__ == "__main__":
    main()
