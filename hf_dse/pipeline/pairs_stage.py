# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pairs stage: a student learns from labels and the scores of a cross-encoder."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, DatasetDict, concatenate_datasets
from transformers import set_seed
from transformers.utils import logging

from hf_dse.common.options import refuse_options
from hf_dse.data.pairs import DataArguments, check_pairs, load_pairs, mix_pairs, resolve_task
from hf_dse.data.ranking_files import is_ranking_data
from hf_dse.data.tasks import EMBEDDED, PairTask
from hf_dse.evaluation.pairs import evaluate_model
from hf_dse.inference.loading import load_tokenizer
from hf_dse.metrics import UndefinedMetricError, compute_metrics_for
from hf_dse.pipeline.arguments import StudentArguments
from hf_dse.pipeline.inputs import Given, check_bi_encoder, load_bi_encoder, make_once
from hf_dse.pipeline.results import DistillationResult, finish_stage
from hf_dse.student.checkpoint import limit_tokens, load_student
from hf_dse.student.convert import ConvertArguments
from hf_dse.teacher.load import check_labels
from hf_dse.teacher.rerankers import load_reranker, teacher_config
from hf_dse.teacher.score import embed_pairs, score_pairs
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import check_output_dir, locks_output_dir
from hf_dse.training.pair_trainer import DseTrainer, check_student_length
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)

RECIPE_FIELDS = (
    "distillation_alpha",
    "ranking_weight",
    "similarity_weight",
    "scale_learning_rate",
    "matryoshka_dims",
    "matryoshka_weights",
)


@locks_output_dir
def run_pairs(
    args: StudentArguments,
    convert_args: ConvertArguments,
    data_args: DataArguments,
    training_args: DseTrainingArguments,
    base_model: str | None = None,
    given: Given | None = None,
) -> DistillationResult:
    """
    Loads pairs, scores them with the teacher where needed, trains the student, evaluates it on the labelled
    validation and test splits, and writes a complete model folder to `training_args.output_dir`. With several
    processes, only the first one scores, embeds and evaluates.

    Args:
        args ([`StudentArguments`]):
            Student and teacher.
        convert_args ([`ConvertArguments`]):
            How to convert an encoder to a student.
        data_args ([`DataArguments`]):
            The pairs.
        training_args ([`DseTrainingArguments`]):
            The training.
        base_model (`str`, *optional*):
            The source that the model card names. Defaults to `args.model_name_or_path`.
        given ([`Given`], *optional*):
            Loaded models, tokenizers and datasets to use instead of those that the arguments name.

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
    task, pairs = load_task(args, data_args, given)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from, only {', '.join(pairs)}.")

    set_seed(training_args.seed)
    model = load_student(given.model or args.model_name_or_path, convert_args, task.num_labels, task.problem_type)
    tokenizer = given.processing_class or load_tokenizer(args.model_name_or_path)
    # Fail early, not after hours of scoring or training.
    refuse_options(training_args, "needs metrics of parts, and those of pairs are of all", "batch_eval_metrics")
    check_student_length(training_args.max_length, model)
    tokenizer = limit_tokens(tokenizer, model, training_args.max_length)

    def prepare() -> Dataset:
        train = score_parts(args, data_args, training_args, task, pairs["train"], given)
        return embed_train(args, training_args, train)

    train = make_once(prepare, training_args, output_dir)
    labelled = {name: part for name, part in pairs.items() if name != "train" and "label" in part.column_names}
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
    show_progress(trainer)
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()

    def evaluate() -> dict[str, dict[str, float]]:
        metrics: dict[str, dict[str, float]] = {}
        for split, part in labelled.items():
            try:
                metrics[split] = evaluate_model(
                    trainer.model,
                    tokenizer,
                    part,
                    task=task,
                    batch_size=training_args.per_device_eval_batch_size,
                    max_length=training_args.max_length,
                )
            except UndefinedMetricError as error:
                # The training is not lost.
                logger.warning(f"The model is saved, but split {split!r} has no metrics: {error}")
        return metrics

    return finish_stage(
        trainer,
        tokenizer,
        evaluate,
        trained.metrics,
        args,
        convert_args,
        data_args,
        recipe_fields=RECIPE_FIELDS,
        base_model=base_model,
    )


def load_task(args: StudentArguments, data_args: DataArguments, given: Given) -> tuple[PairTask, DatasetDict]:
    """Loads the pairs. Without a task, the number of labels is the number of the teacher's logits."""
    if given.dataset is None and is_ranking_data(data_args):
        raise ValueError(
            "These data are queries with candidates from a corpus, not pairs of sentences: add `--stage ranking`."
        )
    if data_args.task_name is None and data_args.num_labels is None and data_args.dataset_name != EMBEDDED:
        if given.teacher is not None:
            data_args = replace(data_args, num_labels=given.teacher.config.num_labels)
        elif args.teacher_name_or_path is not None:
            config = teacher_config(
                args.teacher_name_or_path, revision=args.teacher_revision, trust_remote_code=args.trust_remote_code
            )
            data_args = replace(data_args, num_labels=config.num_labels)
    if given.dataset is None:
        return resolve_task(data_args), load_pairs(data_args, require_labels=False)
    pairs = check_pairs(given.dataset, data_args, require_labels=False)
    return resolve_task(data_args, given.dataset), pairs


def load_augmented(files: list[str], data_args: DataArguments) -> Dataset:
    """Loads pairs from `hf-dse augment` with the options in `data_args`, except those for the labelled pairs."""
    own: dict[str, Any] = {"dataset_name": None, "validation_file": None, "test_file": None, "max_train_samples": None}
    # No column has the name "", so labels of other tasks are ignored.
    own |= {"sentence1_column": None, "sentence2_column": None, "label_column": ""}
    if data_args.task_name is None:
        own["num_labels"] = data_args.num_labels or 1
    parts = [load_pairs(replace(data_args, train_file=file, **own), require_labels=False)["train"] for file in files]
    return concatenate_datasets(parts)


def score_parts(
    args: StudentArguments,
    data_args: DataArguments,
    training_args: DseTrainingArguments,
    task: PairTask,
    train: Dataset,
    given: Given,
) -> Dataset:
    """Returns the labelled and augmented training pairs, with the teacher's scores added where needed and missing."""
    parts = {"train": train}
    if args.augmented_file:
        parts["augmented"] = load_augmented(args.augmented_file, data_args)
    needed = [name for name in parts if name != "train" or training_args.distillation_alpha > 0]
    unscored = [name for name in needed if "teacher_logits" not in parts[name].column_names]
    has_teacher = given.teacher is not None or args.teacher_name_or_path is not None
    if needed and not unscored and has_teacher:
        logger.warning(
            f"{args.teacher_name_or_path or 'The teacher'} is not asked: all pairs have scores already, in the column "
            "`teacher_logits`. The model card names it as their teacher; for new scores leave this column out."
        )
    if unscored and has_teacher:
        teacher = given.teacher or str(args.teacher_name_or_path)
        source: dict[str, Any] = {"revision": args.teacher_revision, "trust_remote_code": args.trust_remote_code}
        device = training_args.device
        reranker = load_reranker(teacher, given.teacher_processing_class, device, dtype=args.teacher_dtype, **source)
        check_labels(teacher_config(teacher, **source) if isinstance(teacher, str) else teacher.config, task)
        # The teacher reads as many tokens of both sentences as the student, up to its own limit.
        limits = [2 * training_args.max_length + reranker.template_tokens, reranker.check_max_length(None)]
        for name in unscored:
            parts[name] = score_pairs(
                reranker,
                parts[name],
                max_length=min(limit for limit in limits if limit is not None),
                symmetric=task.symmetric,
                cache_dir=args.score_cache_dir,
            )
    if "augmented" not in parts:
        return parts["train"]
    return mix_pairs(parts["train"], parts["augmented"], args.labelled_weight, args.augmented_weight)


def embed_train(args: StudentArguments, training_args: DseTrainingArguments, train: Dataset) -> Dataset:
    """Returns the training pairs, with the embeddings of the bi-encoder if there is one."""
    if args.bi_encoder_name_or_path is None:
        return train
    encoder, tokenizer, max_length = load_bi_encoder(args, training_args.max_length, training_args.device)
    with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
        return embed_pairs(
            encoder,
            train,
            processing_class=tokenizer,
            max_length=max_length,
            device=training_args.device,
        )
