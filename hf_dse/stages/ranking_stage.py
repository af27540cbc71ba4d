# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The ranking stage: a student learns to search from labels and the scores of a teacher."""

from typing import Any

import numpy as np
import torch
from transformers import set_seed
from transformers.utils import logging

from hf_dse.common.display import format_table
from hf_dse.common.loading import load_tokenizer
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.student import load_student
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.ranking_files import load_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.measure.compare import compare_searches
from hf_dse.measure.rankings import RANKING_METRICS, relevance
from hf_dse.retrieval.bm25 import has_bm25
from hf_dse.retrieval.sentence_transformer import to_sentence_transformer
from hf_dse.stages.options import RankingStageOptions
from hf_dse.stages.shared import (
    DistillationResult,
    Given,
    Metrics,
    check_metric,
    has_teacher,
    load_source,
    load_teacher,
    make_once,
    train_stage,
)
from hf_dse.teacher.score_candidates import check_scores, score_candidates
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.ranking_data import as_rankings, check_targets, has_lists, limit_rankings
from hf_dse.training.ranking_trainer import RankingTrainer


logger = logging.get_logger(__name__)

# Judged queries on which a teacher is measured before it scores all.
CHECKED_QUERIES = 50

RECIPE_FIELDS = (
    "contrastive_weight",
    "num_candidates",
    "scale_learning_rate",
    "freeze_layers",
)


def run_ranking(
    args: RankingStageOptions,
    convert_args: ConvertOptions,
    data_args: DataArguments,
    training_args: RankingTrainingArguments,
    given: Given,
) -> DistillationResult:
    """Scores candidates where needed, trains the student, and evaluates its search in the corpus."""
    check_metric(training_args, *RANKING_METRICS)
    splits: Any = load_rankings(data_args) if given.dataset is None else given.dataset
    if "train" not in splits:
        raise ValueError(f"There is no train split to learn from, only {', '.join(splits)}.")
    splits = {name: as_rankings(part, f"The split {name!r}") for name, part in splits.items()}
    train = splits.pop("train")
    for split, rankings in splits.items():
        try:
            relevance(rankings)
        except ValueError as error:
            raise ValueError(f"Split {split!r}: {error} Correct its labels, or leave the split out.") from error
    train.check_unit()
    _check_candidates(train, has_teacher(args, given))
    if not has_teacher(args, given):
        check_targets(train, training_args)
    pairs = None
    if args.pairs_file is not None:
        source = DataArguments(train_file=args.pairs_file, num_labels=1)
        pairs = load_pairs(source, ["train"], require_labels=False)["train"]

    set_seed(training_args.seed)
    model = load_student(given.model or args.model_name_or_path, convert_args, 1, "regression")
    # Before hours of scoring.
    tokenizer = limit_rankings(training_args, model, given.processing_class or load_tokenizer(args.model_name_or_path))

    trainer = RankingTrainer(
        model=model,
        args=training_args,
        train_dataset=make_once(lambda: _score(args, training_args, train, given), training_args),
        eval_dataset=splits.get("validation"),
        processing_class=tokenizer,
        pairs=pairs,
    )

    def evaluate() -> Metrics:
        if not splits:
            return {}
        with _autocast(training_args):
            encoders = {"student": to_sentence_transformer(trainer.model, tokenizer)}
            if given.model is None:
                encoders[args.model_name_or_path] = load_source(args, training_args)
            size = training_args.per_device_eval_batch_size
            found = compare_searches(encoders, splits, bm25=has_bm25(), batch_size=size)
        for split, rows in found.items():
            logger.info(f"{split}\n{format_table(rows, 'search')}")
        first = {split: next(iter(rows.values())) for split, rows in found.items()}
        return {split: {name: row[name] for name in row if name != "tokens"} for split, row in first.items()}

    return train_stage(
        trainer,
        evaluate,
        (args, convert_args, data_args),
        base_model=given.base_model,
        teacher=args.teacher_name_or_path,
        datasets=[data_args.task_name or data_args.dataset_name],
        recipe={name: getattr(training_args, name) for name in RECIPE_FIELDS}
        | {"kl_weight": trainer.ranking_loss.kl_weight},
    )


def _check_candidates(train: Rankings, is_taught: bool) -> None:
    """Raises a `ValueError` if a teacher has nothing to compare, and warns if labels have random negatives only."""
    if any(not label > 0 for labels in train.queries["labels"][:] for label in labels):
        return
    message = (
        "No training query has a candidate besides its positives, so that there are no scores to compare, and only "
        "documents of other queries are its negatives: `hf-dse mine` finds harder ones, which teach more."
    )
    if is_taught:
        raise ValueError(message)
    logger.warning(message)


def _score(
    args: RankingStageOptions, training_args: RankingTrainingArguments, train: Rankings, given: Given
) -> Rankings:
    """The training queries, with the teacher's scores if they are needed and missing."""
    name, is_scored = str(args.teacher_name_or_path or "The teacher"), has_lists(train)
    is_needed = has_teacher(args, given) and training_args.kl_weight != 0
    if is_needed and is_scored:
        known = np.isfinite(np.concatenate(train.queries["teacher_logits"][:]))
        logger.warning(
            f"{name} is not asked: {known.sum():,} of {len(known):,} candidates have scores already, and only these "
            "teach."
        )
    elif is_needed:
        teacher: Any = load_teacher(args, given, training_args.device)
        options: dict[str, Any] = {"max_length": args.teacher_max_length, "windows": args.windows}
        options["cache_dir"] = args.cache_dir
        rows = [row for row, positives in enumerate(train.positives()) if positives][:CHECKED_QUERIES]
        if rows:
            # Before hours of scoring.
            check_scores(
                score_candidates(teacher, train.select(rows), show_progress=False, **options), name, are_raw=True
            )
        train = score_candidates(teacher, train, **options)
    if train.has_scores:
        # Scores that were just made are raw, whatever their range is.
        check_scores(train, name, are_raw=is_needed and not is_scored)
    return train


def _autocast(training_args: RankingTrainingArguments) -> torch.autocast:
    return torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16)
