# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
hf-dse's training against the losses of sentence-transformers: the same student, data, candidates, steps, learning rate
and seed. The student has softmax attention, so that only the training differs.

    python benchmarks/losses.py pairs ENCODER SCORED VALIDATION TEST --bf16     # pairs with `teacher_logits`
    python benchmarks/losses.py rankings ENCODER BEIR MINED --bf16              # rows of `hf-dse mine`, or ids

Pairs: DseTrainer, CosineSimilarityLoss and CoSENTLoss (the teacher's scores scaled to 0 to 1); Spearman of the cosine.
Rankings: RankingTrainer and CachedMultipleNegativesRankingLoss from labels, and from scores KL, MarginMSE and
DistillKLDivLoss, whose scales fit those of cosines; nDCG@10 of the search in the corpus of BEIR. Lines are written to
`--output` as they come.
"""

import argparse
import json
import tempfile
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from datasets import Dataset
from sentence_transformers import SentenceTransformer, SentenceTransformerTrainer, SentenceTransformerTrainingArguments
from sentence_transformers.sentence_transformer import losses
from transformers import AutoTokenizer, set_seed

from hf_dse import (
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    RankingTrainer,
    RankingTrainingArguments,
    convert_encoder,
    evaluate,
    export,
    load_rankings,
    make_pair_model,
)


def as_sentence_transformer(model: Any, args: argparse.Namespace, folder: str) -> SentenceTransformer:
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    return SentenceTransformer(str(export(model, folder, tokenizer, max_length=args.max_length)), device="cpu")


def options(args: argparse.Namespace, seed: int) -> dict[str, Any]:
    shared = {"num_train_epochs": args.epochs, "learning_rate": args.learning_rate, "seed": seed, "bf16": args.bf16}
    shared |= {"per_device_train_batch_size": args.batch_size, "warmup_steps": 0.1, "weight_decay": 0.01}
    return shared | {"output_dir": "unused", "save_strategy": "no", "report_to": "none", "use_cpu": True}


def timed(trainer: Any) -> float:
    """Trains, and returns the seconds of a step."""
    result = trainer.train()
    return result.metrics["train_runtime"] / result.global_step


def train_theirs(student: SentenceTransformer, loss: Any, rows: Dataset, args: argparse.Namespace, seed: int) -> float:
    trainer = SentenceTransformerTrainer(
        model=student, args=SentenceTransformerTrainingArguments(**options(args, seed)), train_dataset=rows, loss=loss
    )
    return timed(trainer)


def pairs(args: argparse.Namespace, name: str, seed: int, folder: str) -> dict[str, float]:
    frame = pd.read_parquet(args.data[0])
    scores = np.concatenate(frame["teacher_logits"].to_numpy()).astype(float)
    texts = {side: frame[side].tolist() for side in ("sentence1", "sentence2")}
    if name == "hf-dse":
        model = make_pair_model(convert_encoder(args.encoder, layer_types="full_attention"))
        tokenizer = AutoTokenizer.from_pretrained(args.encoder)
        rows = Dataset.from_dict({**texts, "teacher_logits": [[score] for score in scores]})
        fields = {"scale_learning_rate": 1e-5, "distillation_alpha": 1.0, "max_length": args.max_length}
        trainer = DseTrainer(model, DseTrainingArguments(**options(args, seed), **fields), rows, None, tokenizer)
        seconds = timed(trainer)
        student = as_sentence_transformer(trainer.model, args, folder)
    else:
        student = as_sentence_transformer(convert_encoder(args.encoder, layer_types="full_attention"), args, folder)
        labels = (scores - scores.min()) / np.ptp(scores)
        rows = Dataset.from_dict({**texts, "score": labels.tolist()})
        seconds = train_theirs(student, getattr(losses, name)(student), rows, args, seed)
    metrics = {"seconds_per_step": seconds}
    for split, file in zip(("validation", "test"), args.data[1:], strict=True):
        part = Dataset.from_parquet(file)
        metrics[split] = 100 * evaluate(student, part, task_name="stsb", show_progress=False)["cosine_spearman"]
    return metrics


def load_train(corpus: str, mined: str) -> Any:
    return load_rankings(DataArguments(train_file=mined, corpus_file=corpus), ["train"])["train"]


def rankings(args: argparse.Namespace, name: str, seed: int, folder: str) -> dict[str, float]:
    corpus, mined = args.data
    train = load_train(corpus, mined)
    if args.max_queries:
        train = train.select(range(min(args.max_queries, len(train))))
    uses_scores, num = name not in ("hf-dse, labels", "CachedMultipleNegativesRankingLoss"), args.num_candidates
    if name.startswith("hf-dse"):
        model = make_pair_model(convert_encoder(args.encoder, layer_types="full_attention"))
        tokenizer = AutoTokenizer.from_pretrained(args.encoder)
        fields = {"num_candidates": num, "max_length": args.max_length, "kl_weight": float(uses_scores)}
        fields |= {"contrastive_weight": float(not uses_scores)}
        training = RankingTrainingArguments(**options(args, seed), **fields)
        trainer = RankingTrainer(model, training, train, None, tokenizer)
        seconds = timed(trainer)
        student = as_sentence_transformer(trainer.model, args, folder)
    else:
        student = as_sentence_transformer(convert_encoder(args.encoder, layer_types="full_attention"), args, folder)
        seconds = train_theirs(student, *their_loss(student, train, name, num, seed, args), args, seed)
    student = student.bfloat16() if args.bf16 else student
    test = load_rankings(corpus, ["test"])["test"]
    return {"seconds_per_step": seconds, "ndcg@10": 100 * evaluate(student, test, batch_size=64)["ndcg@10"]}


def their_loss(
    student: SentenceTransformer, train: Any, name: str, num: int, seed: int, args: argparse.Namespace
) -> tuple[Any, Dataset]:
    """
    A loss of sentence-transformers, and its rows: the first relevant candidate, or without labels the one with the
    highest score, and others, drawn once.
    """
    texts, rng, rows = train.corpus["text"][:], np.random.default_rng(seed), []
    for row in train.queries:
        is_first = np.array(row["labels"]) > 0
        if not is_first.any():
            is_first = np.arange(len(is_first)) == np.argmax(row["teacher_logits"])
        chosen = [np.flatnonzero(is_first)[0], *rng.permutation(np.flatnonzero(~is_first))[: num - 1]]
        if len(chosen) == num:
            logits = [row["teacher_logits"][place] for place in chosen] if train.has_scores else []
            rows.append((row["query"], [texts[row["documents"][place]] for place in chosen], logits))
    columns = {"query": [query for query, _, _ in rows], "positive": [found[0] for _, found, _ in rows]}
    columns |= {f"negative_{place}": [found[place] for _, found, _ in rows] for place in range(1, num)}
    if name == "CachedMultipleNegativesRankingLoss":
        loss = losses.CachedMultipleNegativesRankingLoss(student, mini_batch_size=args.batch_size)
        return loss, Dataset.from_dict(columns)
    scores = np.array([logits for *_, logits in rows])
    if name == "MarginMSELoss":
        # Cosines differ by 2 at most.
        scores = scores if args.raw_scores else scores / np.ptp(scores)
        labels = (scores[:, :1] - scores[:, 1:]).tolist()
        return losses.MarginMSELoss(student), Dataset.from_dict({**columns, "label": labels})
    loss = losses.DistillKLDivLoss(student, student_temperature=1 if args.raw_scores else TEMPERATURE)
    return loss, Dataset.from_dict({**columns, "label": scores.tolist()})


# The contrastive losses of sentence-transformers multiply the cosine by 20.
TEMPERATURE = 0.05
PAIRS = ("hf-dse", "CosineSimilarityLoss", "CoSENTLoss")
LABELS = ("hf-dse, labels", "CachedMultipleNegativesRankingLoss")
SCORES = ("hf-dse, scores", "MarginMSELoss", "DistillKLDivLoss")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("kind", choices=("pairs", "rankings"))
    parser.add_argument("encoder", help="Folder or Hub id.")
    parser.add_argument("data", nargs="+", help="SCORED VALIDATION TEST, or BEIR MINED.")
    parser.add_argument("--seeds", type=int, nargs="+", default=[42])
    parser.add_argument("--epochs", type=float, default=2)
    parser.add_argument("--learning_rate", type=float, default=5e-5)
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--max_length", type=int, default=128)
    parser.add_argument("--num_candidates", type=int, default=4)
    parser.add_argument("--max_queries", type=int, help="The first queries alone.")
    parser.add_argument("--raw_scores", action="store_true", help="MarginMSE and KL without a scale, as by default.")
    parser.add_argument("--names", nargs="+", help="Some of the rows.")
    parser.add_argument("--bf16", action="store_true")
    parser.add_argument("--output", type=Path, help="JSON lines, to which rows are added.")
    args = parser.parse_args()
    names = args.names
    if names is None:
        has_scores = args.kind == "rankings" and load_train(*args.data).has_scores
        names = PAIRS if args.kind == "pairs" else LABELS + (SCORES if has_scores else ())
    # Interleaved, so that the times of all are those of the same machine.
    for seed in args.seeds:
        for name in names:
            set_seed(seed)
            with tempfile.TemporaryDirectory() as folder:
                metrics = (pairs if args.kind == "pairs" else rankings)(args, name, seed, f"{folder}/student")
            line = json.dumps({"name": name, "seed": seed, **metrics})
            print(line, flush=True)
            if args.output is not None:
                with args.output.open("a") as file:
                    file.write(line + "\n")


if __name__ == "__main__":
    main()
