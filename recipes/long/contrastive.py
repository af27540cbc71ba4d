# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
After the chunk teacher: the long student learns to find an article from a part of it, with sentence-transformers.

    python recipes/long/contrastive.py MODEL DATA/longwiki/docs.parquet OUTPUT [--num_articles 1600]

MODEL is the student of recipes/long/student.yaml. A pair is an article of the train split and 30 to 150 successive
words of it, from anywhere; the other articles of the batch are what it must not be taken for. OUTPUT/model is the new
student.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from transformers.trainer_utils import get_last_checkpoint


def make_pairs(articles: pd.DataFrame, seed: int) -> Dataset:
    """A part of each article, and the article."""
    rng = np.random.default_rng(seed)
    parts = []
    for body in articles["body"]:
        words = body.split()
        length = int(rng.integers(30, 151))
        start = int(rng.integers(len(words) - length))
        parts.append(" ".join(words[start : start + length]))
    return Dataset.from_dict({"part": parts, "article": articles["body"].tolist()})


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("documents", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--num_articles", type=int, default=1600)
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--scale", type=float, default=20.0, help="inverse temperature")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    args = parser.parse_args()

    articles = pd.read_parquet(args.documents)
    articles = articles[articles["split"] == "train"].tail(args.num_articles)
    model = SentenceTransformer(args.model, trust_remote_code=True)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(args.output),
            num_train_epochs=1,
            per_device_train_batch_size=args.batch_size,
            learning_rate=args.learning_rate,
            warmup_steps=0.1,
            bf16=args.bf16,
            logging_steps=5,
            save_steps=25,
            save_total_limit=1,
            report_to="none",
            seed=args.seed,
        ),
        train_dataset=make_pairs(articles, args.seed),
        loss=CachedMultipleNegativesRankingLoss(model, scale=args.scale, mini_batch_size=4),
    )
    last = get_last_checkpoint(str(args.output)) if args.output.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    model.save_pretrained(str(args.output / "model"))


if __name__ == "__main__":
    main()
