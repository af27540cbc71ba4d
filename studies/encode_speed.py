# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
`hf_dse.encode` versus `SentenceTransformer.encode`: same weights and texts, batch size 32, float32 and bfloat16.

    python studies/encode_speed.py DATA MODEL [--rounds 5]

DATA has the folders stsb and longwiki with parquet files. MODEL is a folder or a Hub id that sentence-transformers
loads. Both run in turn. The output is the median speed in texts per second, and the median ratio of a turn.
"""

import argparse
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer

from hf_dse import encode
from hf_dse.common.display import markdown


def seconds(run: Callable[[], np.ndarray]) -> float:
    start = time.perf_counter()
    run()
    return time.perf_counter() - start


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("model")
    parser.add_argument("--rounds", type=int, default=5)
    args = parser.parse_args()
    sentences = pd.read_parquet(args.data / "stsb" / "validation.parquet")["sentence1"].tolist()
    documents = pd.read_parquet(args.data / "longwiki" / "docs.parquet")
    articles = documents.loc[documents["split"] == "validation", "body"].tolist()
    texts = {
        "1,000 sentences": sentences[:1000],
        "1,000 sentences, 10 articles among them": [
            text for start in range(0, 1000, 100) for text in [*sentences[start : start + 100], articles[start // 100]]
        ],
        "20 articles": articles[:20],
        "one sentence": sentences[:1],
    }
    library = SentenceTransformer(args.model, trust_remote_code=True)
    model, tokenizer = library[0].auto_model, library.tokenizer

    options = {"max_length": library.max_seq_length, "normalize": True, "show_progress": False}
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for name, some in texts.items():

            def theirs(some: list[str] = some) -> np.ndarray:
                return library.encode(some, batch_size=32, normalize_embeddings=True)

            def ours(some: list[str] = some) -> np.ndarray:
                return encode(model, tokenizer, some, batch_size=32, **options)

            with torch.autocast(model.device.type, torch.bfloat16, enabled=dtype == torch.bfloat16):
                difference = np.abs(theirs() - ours()).max()
                rounds = args.rounds if len(some) > 1 else 20 * args.rounds
                measured = np.array([[seconds(theirs), seconds(ours)] for _ in range(rounds)])
            medians = len(some) / np.median(measured, axis=0)
            ratio = np.median(measured[:, 0] / measured[:, 1])
            rows.append(
                [str(dtype)[6:], name, *(f"{value:,.1f}" for value in medians), f"{ratio:.2f}", f"{difference:.0e}"]
            )
    columns = ["", "texts", "sentence-transformers", "ours", "speedup", "largest difference"]
    print(markdown(columns, rows, num_left=2))


if __name__ == "__main__":
    main()
