# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pairs stage: a student learns from labels and a teacher's scores of sentence pairs."""

from collections.abc import Callable
from dataclasses import replace
from functools import cache
from typing import Any

from datasets import Dataset, DatasetDict
from transformers.utils import logging

from hf_dse.convert.student import limit_tokens
from hf_dse.data.options import EMBEDDED, PairTask
from hf_dse.data.pairs import DataArguments, load_pairs, read_pairs, resolve_task
from hf_dse.data.ranking_files import is_ranking_data
from hf_dse.data.report import class_names
from hf_dse.data.tokenization import warn_of_texts
from hf_dse.measure.evaluate import evaluate_pairs
from hf_dse.measure.metrics import UndefinedMetricError, compute_metrics_for
from hf_dse.retrieval.rerankers import check_labels, limit_of, overhead
from hf_dse.stages.shared import DistillationResult, Metrics, Stage
from hf_dse.teacher.bi_encoders import is_bi_encoder
from hf_dse.teacher.score import score_pairs
from hf_dse.training.base import check_batches
from hf_dse.training.pair_trainer import DseTrainer, name_classes


logger = logging.get_logger(__name__)


def run_pairs(stage: Stage) -> DistillationResult:
    """Scores pairs where needed, trains the student, and evaluates it on the labelled validation and test splits."""
    args, data_args, training_args = stage.args, stage.data_args, stage.training_args
    find_teacher = cache(lambda: _load_teacher(stage))
    task, pairs = _load_task(stage, find_teacher)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from, only {', '.join(pairs)}.")
    train = pairs["train"]
    check_batches(training_args, len(train))
    has_labels = "label" in train.column_names
    if training_args.distillation_alpha < 1 and not has_labels:
        raise ValueError(
            "The training pairs have no column 'label': pass `--distillation_alpha 1` to learn from the teacher's "
            "scores alone, or name their column with `--label_column`."
        )
    num_unlabelled = train["label"][:].count(None) if has_labels else 0
    if num_unlabelled:
        found = f"{num_unlabelled:,} of {len(train):,} training pairs have no label"
        if not stage.has_teacher and "teacher_logits" not in train.column_names:
            raise ValueError(
                f"{found}: name a cross-encoder with `--teacher`, add its scores (`hf-dse score`), or remove them."
            )
        logger.warning(f"{found}: the teacher's scores alone teach them.")
    is_regression = task.problem_type == "regression"
    labelled = {name: part for name, part in pairs.items() if name != "train" and "label" in part.column_names}
    for split, part in labelled.items():
        if is_regression and len(set(part["label"])) == 1:
            raise ValueError(
                f"Split {split!r}: all labels are {part['label'][0]}, so that correlations with them are undefined. "
                "Leave the split out, or pass pairs with different labels."
            )
    stage.check_metric("loss", *(("pearson", "spearman") if is_regression else ("accuracy", "f1")))

    model = stage.load_student(task.num_labels, task.problem_type)
    # Before hours of scoring.
    tokenizer = limit_tokens(stage.load_tokenizer(), model, training_args.max_length)
    texts = [text for name in ("sentence1", "sentence2") for text in train[name][:]]
    warn_of_texts(tokenizer, texts, training_args.max_length)

    is_taught = training_args.distillation_alpha > 0 or bool(num_unlabelled)
    if is_taught:
        train = stage.make_once(lambda: _score(stage, pairs["train"], task, find_teacher))
    elif stage.has_teacher:
        logger.warning("The teacher is not asked: with distillation_alpha=0 the labels alone teach.")
    name_classes(model.config, class_names(train, task.class_names))
    # The training has the memory of the teacher.
    find_teacher.cache_clear()
    if "validation" in labelled and not training_args.prediction_loss_only:
        training_args.metric_for_best_model = training_args.metric_for_best_model or task.metric_for_best_model
    trainer = DseTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=labelled.get("validation"),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(task.problem_type, task.num_labels),
    )

    def evaluate() -> Metrics:
        metrics: Metrics = {}
        options: dict[str, Any] = {"max_length": training_args.max_length}
        options["batch_size"] = training_args.per_device_eval_batch_size
        for split, part in labelled.items():
            try:
                metrics[split] = evaluate_pairs(trainer.model, tokenizer, part, task=task, **options)
            except UndefinedMetricError as error:
                # The training is not lost.
                logger.warning(f"The model is saved, but split {split!r} has no metrics: {error}")
        return metrics

    # An mlp has no scale.
    scale = ["scale_learning_rate"] * (model.config.similarity != "mlp")
    names = ("distillation_alpha", "head_learning_rate", *scale)
    return stage.train(
        trainer,
        evaluate,
        recipe={name: getattr(training_args, name) for name in names},
        teacher=args.teacher_name_or_path if is_taught else None,
        datasets=[data_args.task_name or data_args.dataset_name],
    )


def _load_teacher(stage: Stage) -> Any:
    """The cross-encoder, if there is one. That a bare encoder is named is a mistake more often than a wish."""
    for teacher in stage.teachers:
        if is_bi_encoder(teacher):
            name = teacher if isinstance(teacher, str) else "The teacher"
            raise ValueError(
                f"{name} is a bi-encoder, and the teacher of pairs has to be a cross-encoder: name another, or add "
                "the cosines of the bi-encoder to the pairs with `score` (`hf-dse score`), and leave the teacher out."
            )
    return next(iter(stage.load_teachers()), None)


def _load_task(stage: Stage, find_teacher: Callable[[], Any]) -> tuple[PairTask, DatasetDict]:
    """Loads the pairs. Without a task, the number of labels is the number of the teacher's logits."""
    data_args: DataArguments = stage.data_args
    if stage.dataset is None and is_ranking_data(data_args):
        raise ValueError("These data are queries with candidates, not pairs of sentences: add `--stage ranking`.")
    if data_args.task_name is None and data_args.num_labels is None and data_args.dataset_name != EMBEDDED:
        teacher = find_teacher()
        if teacher is not None:
            data_args = replace(data_args, num_labels=teacher.num_labels)
    task = resolve_task(data_args)
    if stage.dataset is None:
        return task, load_pairs(data_args, require_labels=False)
    parts: Any = stage.dataset
    return task, read_pairs(parts, data_args, require_labels=False)[0]


def _score(stage: Stage, pairs: Dataset, task: PairTask, find_teacher: Callable[[], Any]) -> Dataset:
    """The training pairs, with the teacher's scores if these are missing."""
    args = stage.args
    is_scored = "teacher_logits" in pairs.column_names
    if is_scored and args.teacher_name_or_path is not None:
        logger.warning(
            f"{args.teacher_name_or_path} is not asked: all pairs have scores already, in the column `teacher_logits`."
        )
    teacher = None if is_scored else find_teacher()
    if teacher is None:
        return pairs
    check_labels(teacher, task)
    # The teacher reads as many tokens of both sentences as the student, up to its own limit.
    length = min(2 * stage.training_args.max_length + overhead(teacher), limit_of(teacher, None))
    return score_pairs(teacher, pairs, task=task, max_length=length, cache_dir=args.cache_dir)
