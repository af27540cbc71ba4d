# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Padding must not change similarities: the largest change of the cosine of STS-B pairs when the sentences are padded to
n tokens, the length of another text in the batch.

    python studies/padding.py DATA ENCODER

DATA has the folder stsb with parquet files; the encoder is a folder or a Hub id. It is converted with k = 8, which
most sentences exceed. Padding is on the right, and on the left. Nothing is trained.
"""

import argparse
from pathlib import Path

import pandas as pd
import torch
from transformers import AutoTokenizer

from hf_dse import convert_encoder
from hf_dse.common.display import markdown


def cosines(model, tokenizer, texts: list[str], **padding) -> torch.Tensor:
    """Returns the cosine of each pair of successive texts; an additional last text only sets the length."""
    with torch.inference_mode():
        embeddings = model(**tokenizer(texts, padding=True, return_tensors="pt", **padding)).pooler_output
    return torch.cosine_similarity(embeddings[0:-1:2], embeddings[1::2])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder")
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 1024, 2048])
    parser.add_argument("--num_pairs", type=int, default=8)
    parser.add_argument("--k", type=int, default=8)
    args = parser.parse_args()
    pairs = pd.read_parquet(args.data / "stsb" / "validation.parquet")[: args.num_pairs]
    texts = pairs[["sentence1", "sentence2"]].to_numpy().ravel().tolist()
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    rows = []
    for projection in ("learned", "mean", "strided"):
        model = convert_encoder(
            args.encoder,
            linformer_projection=projection,
            linformer_length=args.k,
            max_position_embeddings=max(args.lengths),
        )
        alone = cosines(model, tokenizer, texts)
        cells = [projection]
        for length in args.lengths:
            long = "long " * (length - tokenizer.num_special_tokens_to_add())
            sides = [cosines(model, tokenizer, [*texts, long], padding_side=side) for side in ("right", "left")]
            cells.append(f"{(torch.stack(sides) - alone).abs().max():.0e}")
        rows.append(cells)
    print(markdown(["projection", *(f"n = {length:,}" for length in args.lengths)], rows, num_left=1))


if __name__ == "__main__":
    main()
