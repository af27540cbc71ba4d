# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Contrastive training of the long student with sentence-transformers: find an article by a part of it.

    python recipes/long/contrastive.py MODEL DATA/longwiki/docs.parquet OUTPUT [--num_articles 1600] \\
        [--linformer_length 128 128 128 128 512 512]

MODEL is the student of recipes/long/student.yaml. A pair is an article of the train split and 30 to 150 consecutive
words from anywhere in it; negatives are the other articles of the batch, which have similar leads. OUTPUT/model is the
new student. An interrupted run continues when it is started again.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
import torch
from datasets import Dataset
from sentence_transformers import (
    SentenceTransformer,
    SentenceTransformerTrainer,
    SentenceTransformerTrainingArguments,
)
from sentence_transformers.base.sampler import DefaultBatchSampler
from sentence_transformers.sentence_transformer.losses import CachedMultipleNegativesRankingLoss
from torch.utils.data import BatchSampler, SequentialSampler
from transformers.trainer_utils import get_last_checkpoint


def cut(texts: list[str], tokenizer, length: int) -> list[str]:
    """Truncates texts to `length` tokens."""
    offsets = tokenizer(texts, truncation=True, max_length=length, return_offsets_mapping=True)["offset_mapping"]
    return [text[: max(end for _, end in spans)] for text, spans in zip(texts, offsets, strict=True)]


def make_pairs(bodies: list[str], seed: int) -> Dataset:
    """Pairs of a part of each article and the article."""
    rng = np.random.default_rng(seed)
    parts = []
    for body in bodies:
        words = body.split()
        length = int(rng.integers(30, 151))
        start = int(rng.integers(len(words) - length))
        parts.append(" ".join(words[start : start + length]))
    return Dataset.from_dict({"part": parts, "article": bodies})


def batches_of_neighbours(embeddings: np.ndarray, batch_size: int, seed: int) -> np.ndarray:
    """An order that groups similar articles into batches, as hard negatives."""
    left = np.random.default_rng(seed).permutation(len(embeddings))
    batches = []
    while len(left):
        nearest = np.argsort(-embeddings[left] @ embeddings[left[0]])[:batch_size]
        batches.append(left[nearest])
        left = np.delete(left, nearest)
    return np.concatenate(batches)


def in_order(dataset: Dataset, batch_size: int, drop_last: bool, **_) -> BatchSampler:
    return DefaultBatchSampler(SequentialSampler(dataset), batch_size, drop_last)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model")
    parser.add_argument("documents", type=Path)
    parser.add_argument("output", type=Path)
    parser.add_argument("--linformer_length", type=int, nargs="+", help="another k, or one per layer")
    parser.add_argument("--num_articles", type=int, default=1600)
    parser.add_argument("--max_length", type=int, default=2048, help="maximum tokens per article in training")
    parser.add_argument("--batch_size", type=int, default=16)
    parser.add_argument("--learning_rate", type=float, default=2e-5)
    parser.add_argument("--scale", type=float, default=20.0, help="inverse temperature")
    parser.add_argument("--seed", type=int, default=42)
    parser.add_argument("--bf16", action="store_true", help="bfloat16 autocast")
    args = parser.parse_args()

    articles = pd.read_parquet(args.documents)
    articles = articles[articles["split"] == "train"].tail(args.num_articles)
    k = args.linformer_length
    changes = {"linformer_length": k[0] if len(k) == 1 else k} if k else {}
    model = SentenceTransformer(args.model, trust_remote_code=True, config_kwargs=changes)
    with torch.autocast(model.device.type, torch.bfloat16, enabled=args.bf16):
        leads = model.encode(articles["lead"].tolist(), normalize_embeddings=True)
    articles = articles.iloc[batches_of_neighbours(leads, args.batch_size, args.seed)]
    bodies = cut(articles["body"].tolist(), model.tokenizer, args.max_length)
    trainer = SentenceTransformerTrainer(
        model=model,
        args=SentenceTransformerTrainingArguments(
            str(args.output),
            num_train_epochs=1,
            per_device_train_batch_size=args.batch_size,
            batch_sampler=in_order,
            learning_rate=args.learning_rate,
            warmup_steps=0.1,
            bf16=args.bf16,
            use_cpu=not torch.cuda.is_available(),
            logging_steps=5,
            save_steps=25,
            save_total_limit=1,
            report_to="none",
            seed=args.seed,
        ),
        train_dataset=make_pairs(bodies, args.seed),
        loss=CachedMultipleNegativesRankingLoss(model, scale=args.scale, mini_batch_size=4),
    )
    last = get_last_checkpoint(str(args.output)) if args.output.is_dir() else None
    trainer.train(resume_from_checkpoint=last)
    model.save_pretrained(str(args.output / "model"))


if __name__ == "__main__":
    main()
