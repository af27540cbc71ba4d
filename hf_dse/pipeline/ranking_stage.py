# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The ranking stage: a student learns to search from labels and the scores of a reranker."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import DatasetDict
from transformers import set_seed
from transformers.utils import logging

from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.ranking_files import load_rankings
from hf_dse.data.rankings import Rankings, check_positives
from hf_dse.data.tokenization import token_lengths
from hf_dse.evaluation.retrieval import TOP_K, measure_run, search_corpus
from hf_dse.inference.loading import load_config, load_tokenizer
from hf_dse.metrics import ranking_metrics, relevance
from hf_dse.mining.candidates import mine_candidates
from hf_dse.pipeline.arguments import RankingArguments
from hf_dse.pipeline.inputs import Given, check_bi_encoder, load_bi_encoder, make_once
from hf_dse.pipeline.results import DistillationResult, finish_stage
from hf_dse.student.checkpoint import load_student
from hf_dse.student.convert import ConvertArguments
from hf_dse.teacher.rerankers import load_reranker
from hf_dse.teacher.score_candidates import check_scores, check_teacher, embed_rankings, score_candidates
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.base import check_output_dir, locks_output_dir
from hf_dse.training.progress import show_progress
from hf_dse.training.ranking_data import has_lists, limit_rankings
from hf_dse.training.ranking_trainer import RankingTrainer


logger = logging.get_logger(__name__)

# How many documents are counted to advise on k, and how many of them may have more tokens.
LENGTH_SAMPLE = 1000
LONGER_SHARE = 0.1

RECIPE_FIELDS = (
    "contrastive_weight",
    "kl_weight",
    "margin_mse_weight",
    "similarity_weight",
    "num_candidates",
    "scale_learning_rate",
    "matryoshka_dims",
    "matryoshka_weights",
    "chunk_size",
    "passage_weight",
    "anchor_weight",
    "queries_per_document",
    "freeze_layers",
)


@locks_output_dir
def run_ranking(
    args: RankingArguments,
    convert_args: ConvertArguments,
    data_args: DataArguments,
    training_args: RankingTrainingArguments,
    base_model: str | None = None,
    given: Given | None = None,
) -> DistillationResult:
    """
    Loads queries and a corpus, mines hard negatives and scores the candidates with the teacher where needed, trains
    the student, evaluates it by the search in the corpus on the validation and test splits, and writes a complete
    model folder to `training_args.output_dir`. With several processes, only the first one mines, scores, embeds and
    evaluates.

    Args:
        args ([`RankingArguments`]):
            Student and teacher, and the candidates.
        convert_args ([`ConvertArguments`]):
            How to convert an encoder to a student.
        data_args ([`DataArguments`]):
            The queries and the corpus, as for [`load_rankings`].
        training_args ([`RankingTrainingArguments`]):
            The training.
        base_model (`str`, *optional*):
            The source that the model card names. Defaults to `args.model_name_or_path`.
        given ([`Given`], *optional*):
            Loaded models, tokenizers and rankings to use instead of those that the arguments name.

    Returns:
        [`DistillationResult`]: the student, with its metrics by split.

    Raises:
        `FileExistsError`: if the output folder is not empty.
        `ValueError`: if data, models or options are invalid or do not match.
    """
    given = given or Given()
    output_dir = Path(str(training_args.output_dir))
    checkpoint = check_output_dir(str(output_dir), training_args.resume_from_checkpoint, args.overwrite_output_dir)
    check_bi_encoder(args, training_args)
    splits = load_splits(data_args, given)
    for split, rankings in splits.items():
        if split != "train":
            _check_measurable(split, rankings)
    teacher = given.teacher or args.teacher_name_or_path
    weights = {name: getattr(training_args, name) or 0 for name in ("kl_weight", "margin_mse_weight")}
    if teacher is None and not has_lists(splits["train"]):
        if any(weights.values()):
            raise ValueError(
                f"{', '.join(f'{name}={value}' for name, value in weights.items() if value)}: with this the student "
                "would learn from a teacher: name it with `--teacher_name_or_path`, or train on candidates that "
                "`hf-dse score` has scored."
            )
        check_positives(splits["train"], "Split 'train', without a teacher")
    pairs = None
    if args.pairs_file is not None:
        source = DataArguments(train_file=args.pairs_file, num_labels=1)
        pairs = load_pairs(source, ["train"], require_labels=False)["train"]

    set_seed(training_args.seed)
    model = load_student(given.model or args.model_name_or_path, convert_args, 1, "regression")
    tokenizer = given.processing_class or load_tokenizer(args.model_name_or_path)
    # Fail early, not after hours of mining or scoring.
    tokenizer = limit_rankings(training_args, model, tokenizer)
    is_whole = training_args.chunk_size is None
    if is_whole and given.model is None and load_config(args.model_name_or_path).model_type != "dse":
        advise_length(model, tokenizer, splits["train"], training_args.max_length)

    def prepare() -> DatasetDict:
        train = mine_train(args, training_args, splits["train"], model, tokenizer)
        train = score_train(args, training_args, train, given)
        train = embed_train(args, training_args, train, tokenizer)
        return DatasetDict({"queries": train.queries, "corpus": train.corpus})

    train = Rankings(**make_once(prepare, training_args, output_dir))
    trainer = RankingTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=splits.get("validation"),
        processing_class=tokenizer,
        pairs=pairs,
    )
    show_progress(trainer)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()

    def evaluate() -> dict[str, dict[str, float]]:
        evaluated = {split: rankings for split, rankings in splits.items() if split != "train"}
        with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
            runs = search_corpus(
                trainer.model,
                trainer.tokenizer,
                evaluated,
                TOP_K,
                batch_size=training_args.per_device_eval_batch_size,
                chunks=training_args.chunk_size is not None,
                chunk_size=training_args.chunk_size,
                contextual=True,
            )
        return {split: measure_run(run, evaluated[split]) for split, run in runs.items()}

    return finish_stage(
        trainer,
        trainer.tokenizer,
        evaluate,
        trained.metrics,
        args,
        convert_args,
        data_args,
        recipe_fields=RECIPE_FIELDS,
        base_model=base_model,
    )


def _check_measurable(split: str, rankings: Rankings) -> None:
    """Fails before the training where a split cannot be measured after it."""
    try:
        ranking_metrics({}, relevance(rankings))
    except ValueError as error:
        raise ValueError(f"Split {split!r}: {error} Correct its labels, or leave the split out.") from error


def advise_length(model: Any, tokenizer: Any, train: Rankings, max_length: int) -> None:
    """Warns if many documents have more tokens than the converted student has rows of keys and values for them."""
    rows = zip(model.config.projected_lengths, model.config.layer_types, strict=True)
    k = min((length for length, kind in rows if kind == "linear_attention"), default=max_length)
    sizes = token_lengths(tokenizer, train.corpus["text"][:LENGTH_SAMPLE])
    num_longer = sum(size > k for size in sizes)
    if k < max_length and num_longer > LONGER_SHARE * len(sizes):
        logger.warning(
            f"{num_longer} of {len(sizes)} documents have more than k = {k} tokens, so the student finds them worse "
            f"than its source until it has learned to: with `--linformer_length {max_length}` it starts as its source."
        )


def load_splits(data_args: DataArguments, given: Given) -> dict[str, Rankings]:
    """The rankings of each split, of which train is required."""
    splits: Any = given.dataset
    if splits is None:
        splits = load_rankings(data_args)
    elif not isinstance(splits, Mapping):
        splits = {"train": splits}
    wrong = next((part for part in splits.values() if not isinstance(part, Rankings)), None)
    if wrong is not None:
        raise TypeError(
            f"The ranking stage needs `Rankings`, and a split is a `{type(wrong).__name__}`: load it with "
            "`load_rankings`, or make it with `make_rankings` or `read_rankings`."
        )
    if "train" not in splits:
        raise ValueError(f"There is no train split to learn from, only {', '.join(splits)}.")
    return dict(splits)


def mine_train(
    args: RankingArguments,
    training_args: RankingTrainingArguments,
    train: Rankings,
    model: Any,
    tokenizer: Any,
) -> Rankings:
    """The training queries, with negatives if no query has a candidate besides its positives."""
    has_others = any(not label > 0 for labels in train.queries["labels"][:] for label in labels)
    if has_others or args.num_negatives == 0:
        return train
    max_length = training_args.max_length
    if args.bi_encoder_name_or_path is not None:
        model, tokenizer, max_length = load_bi_encoder(args, max_length, training_args.device)
    with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
        return mine_candidates(
            train,
            model,
            tokenizer,
            bm25=args.bm25,
            num_candidates=args.num_negatives,
            range_max=max(100, args.num_negatives),
            relative_margin=None if args.relative_margin < 0 else args.relative_margin,
            seed=training_args.seed,
            batch_size=training_args.per_device_eval_batch_size,
            max_length=max_length,
            cache_dir=args.score_cache_dir,
            device=training_args.device,
        )


def score_train(
    args: RankingArguments, training_args: RankingTrainingArguments, train: Rankings, given: Given
) -> Rankings:
    """The training queries, with the teacher's scores if they are needed and missing."""
    teacher, name = given.teacher or args.teacher_name_or_path, str(args.teacher_name_or_path or "The teacher")
    if training_args.kl_weight == 0 and training_args.margin_mse_weight <= 0:
        teacher = None
    is_scored = has_lists(train)
    if teacher is not None and is_scored:
        known = np.isfinite(np.concatenate(train.queries["teacher_logits"][:]))
        logger.warning(
            f"{name} is not asked: {known.sum():,} of {len(known):,} candidates have scores already, and only these "
            "teach. The model card names it as their teacher; for new scores leave their column out."
        )
    elif teacher is not None:
        reranker = load_reranker(
            teacher,
            given.teacher_processing_class,
            training_args.device,
            revision=args.teacher_revision,
            trust_remote_code=args.trust_remote_code,
            dtype=args.teacher_dtype,
        )
        options: dict[str, Any] = {"max_length": args.teacher_max_length, "cache_dir": args.score_cache_dir}
        check_teacher(reranker, train, name, **options)
        train = score_candidates(reranker, train, windows=args.windows, **options)
    if train.has_scores:
        # Those that were just made are raw, whatever their range is.
        check_scores(train, name, are_raw=teacher is not None and not is_scored)
    return train


def embed_train(
    args: RankingArguments, training_args: RankingTrainingArguments, train: Rankings, student_tokenizer: Any
) -> Rankings:
    """The training queries, with the embeddings of the bi-encoder if there is one."""
    if args.bi_encoder_name_or_path is None:
        return train
    encoder, tokenizer, max_length = load_bi_encoder(args, training_args.max_length, training_args.device)
    with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
        return embed_rankings(
            encoder,
            train,
            processing_class=tokenizer,
            max_length=max_length,
            chunk_size=training_args.chunk_size,
            chunk_processing_class=student_tokenizer,
            device=training_args.device,
        )
