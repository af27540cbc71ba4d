# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The ranking stage: a student learns to search from labels and the scores of a teacher."""

import math
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from transformers.utils import logging

from hf_dse.common.display import format_table
from hf_dse.common.settings import set_settings, settings_of
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.ranking_files import load_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.measure.compare import compare_searches
from hf_dse.measure.metrics import RANKING_METRICS, relevance
from hf_dse.measure.shares import judged_queries
from hf_dse.retrieval.blend import weights_for
from hf_dse.retrieval.bm25 import has_bm25
from hf_dse.retrieval.options import BM25_WEIGHT
from hf_dse.retrieval.sentence_transformer import length_of, limit_length, to_sentence_transformer
from hf_dse.stages.shared import DistillationResult, Metrics, Stage
from hf_dse.teacher.bi_encoders import is_bi_encoder
from hf_dse.teacher.score import check_scores, score_candidates
from hf_dse.training.base import check_batches
from hf_dse.training.ranking_trainer import RankingTrainer, as_rankings, check_targets, limit_rankings, spread_of


logger = logging.get_logger(__name__)

# Judged queries on which a teacher is measured before it scores all.
CHECKED_QUERIES = 50


def run_ranking(stage: Stage) -> DistillationResult:
    """Scores candidates where needed, trains the student, and evaluates its search in the corpus."""
    args, data_args, training_args = stage.args, stage.data_args, stage.training_args
    stage.check_metric(*RANKING_METRICS)
    splits: Any = load_rankings(data_args) if stage.dataset is None else stage.dataset
    if "train" not in splits:
        raise ValueError(f"There is no train split to learn from, only {', '.join(splits)}.")
    threshold = data_args.relevance_threshold
    ranked = {name: as_rankings(part, f"The split {name!r}", threshold) for name, part in splits.items()}
    splits = stage.limit(ranked)
    if stage.dataset is not None:
        for name, part in splits.items():
            part.report().log(f"Split {name!r}")
    train = splits.pop("train")
    for split, rankings in splits.items():
        try:
            relevance(rankings)
        except ValueError as error:
            raise ValueError(f"Split {split!r}: {error} Correct its labels, or leave the split out.") from error
    if stage.has_teacher:
        weights_for(args.teacher_weights, len(stage.teachers))
        if args.teacher_bm25_weight != BM25_WEIGHT and not any(map(is_bi_encoder, stage.teachers)):
            raise ValueError(
                f"teacher_bm25_weight={args.teacher_bm25_weight} is for an encoder, and there is none among the "
                "teachers: leave it out."
            )
    train.check_unit()
    _check_candidates(train, stage.has_teacher)
    if not stage.has_teacher:
        check_targets(train, training_args)
    pairs = None
    if args.pairs_file is not None:
        source = DataArguments(train_file=args.pairs_file, num_labels=1)
        pairs = load_pairs(source, ["train"], require_labels=False)["train"]
    check_batches(training_args, len(train) + (0 if pairs is None else len(pairs)))

    model = stage.load_student(1, "regression")
    # Before hours of scoring.
    tokenizer = limit_rankings(training_args, model, stage.load_tokenizer())
    trainer = RankingTrainer(
        model=model,
        args=training_args,
        train_dataset=stage.make_once(lambda: _score(stage, train)),
        eval_dataset=splits.get("validation"),
        processing_class=tokenizer,
        pairs=pairs,
    )

    def evaluate() -> Metrics:
        if not splits:
            return {}
        encoders = {"student": to_sentence_transformer(trainer.model, tokenizer)}
        if stage.model is None:
            # As the student.
            loading: dict[str, Any] = {"dtype": "float32", "device": training_args.device}
            loading["trust_remote_code"] = args.trust_remote_code
            source = to_sentence_transformer(args.model_name_or_path, **loading)
            # It reads as much as the student, or its own limit if that is lower.
            limit = training_args.max_length
            limit_length(source, min(length_of(source, "document") or limit, limit), queries=False)
            encoders[args.model_name_or_path] = source
        size = training_args.per_device_eval_batch_size
        with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
            # A student knows the queries of its training: those of validation alone tell its share of BM25.
            judged = judged_queries(splits, None)
            ids = None if judged is None else judged.document_ids
            fit_on = {split: judged if part.document_ids == ids else None for split, part in splits.items()}
            found = compare_searches(encoders, splits, bm25=has_bm25(), batch_size=size, fit_on=fit_on)
        for split, rows in found.items():
            logger.info(f"{split}\n{format_table(rows, 'search')}")
            share = next((row["share"] for row in rows.values() if row["share"] is not None), None)
            if share is not None and share.num_queries:
                logger.info(f"BM25 beside the cosine: {share}, kept with the student")
                set_settings(trainer.model, replace(settings_of(trainer.model), bm25_weight=share.weight))
        stage.searches = found
        first = {split: next(iter(rows.values())) for split, rows in found.items()}
        names = ("num_queries", *RANKING_METRICS)
        return {split: {name: row[name] for name in names} for split, row in first.items()}

    names = ("contrastive_weight", "num_candidates", "scale_learning_rate", "freeze_layers")
    recipe = {name: getattr(training_args, name) for name in names}
    return stage.train(
        trainer,
        evaluate,
        recipe=recipe | {"kl_weight": trainer.ranking_loss.kl_weight},
        teacher=args.teacher_name_or_path if trainer.ranking_loss.kl_weight else None,
        datasets=[data_args.dataset_name],
    )


def _check_candidates(train: Rankings, is_taught: bool) -> None:
    """Raises a `ValueError` if a teacher has nothing to compare, and warns if labels have random negatives only."""
    lists = zip(train.queries["documents"][:], train.positives(), strict=True)
    if any(len(rows) > len(positives) for rows, positives in lists):
        return
    message = (
        "No training query has a candidate besides its positives, so that there are no scores to compare, and only "
        "documents of other queries are its negatives: `hf-dse mine` finds harder ones, which teach more."
    )
    if is_taught:
        raise ValueError(message)
    logger.warning(message)


def _score(stage: Stage, train: Rankings) -> Rankings:
    """The training queries, with the teacher's scores if they are needed and missing."""
    args = stage.args
    name, is_scored = (
        " and ".join(filter(None, args.teacher_name_or_path or ())) or "The teacher",
        math.isfinite(spread_of(train)),
    )
    is_needed = stage.has_teacher and stage.training_args.kl_weight != 0
    if is_needed and is_scored:
        known = np.isfinite(np.concatenate(train.queries["teacher_logits"][:]))
        logger.warning(
            f"{name} is not asked: {known.sum():,} of {len(known):,} candidates have scores already, and only these "
            "teach."
        )
    elif stage.has_teacher and not is_needed:
        logger.warning(f"{name} is not asked: with kl_weight=0 the labels alone teach.")
    elif is_needed:
        teachers = stage.load_teachers()
        options: dict[str, Any] = {"max_length": args.teacher_max_length, "windows": args.windows}
        options |= {"weights": args.teacher_weights, "cache_dir": args.cache_dir}
        if any(map(is_bi_encoder, teachers)):
            options["bm25_weight"] = args.teacher_bm25_weight
            logger.info(
                f"An encoder among the teachers scores by its cosine plus {args.teacher_bm25_weight:g} x BM25."
            )
        rows = [row for row, positives in enumerate(train.positives()) if positives][:CHECKED_QUERIES]
        if rows:
            # Before hours of scoring.
            check_scores(
                score_candidates(teachers, train.select(rows), show_progress=False, **options), name, are_raw=True
            )
        train = score_candidates(teachers, train, **options)
    if train.has_scores:
        # Scores that were just made are raw, whatever their range is.
        check_scores(train, name, are_raw=is_needed and not is_scored)
    return train
