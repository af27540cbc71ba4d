# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of a stage: the student, its metrics and its recipe."""

import json
from collections.abc import Callable, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel, PreTrainedTokenizerBase, Trainer, TrainingArguments
from transformers.utils import logging

from hf_dse.common.files import write_atomically
from hf_dse.common.hub import pin
from hf_dse.common.provenance import describe_command, describe_machine
from hf_dse.publish.export import export_model
from hf_dse.publish.push import push_model
from hf_dse.training.base import RESULTS_FILE


logger = logging.get_logger(__name__)

MODEL_FOLDER = "model"


@dataclass(frozen=True)
class DistillationResult:
    """
    The result of a distillation.

    Args:
        model (`PreTrainedModel`):
            The trained student.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        metrics (`dict[str, dict[str, float]]`):
            Metrics of each labelled split except train, as [`evaluate_model`] returns them.
        path (`pathlib.Path`):
            The model folder, complete with code, tokenizer and model card.
    """

    model: PreTrainedModel
    processing_class: PreTrainedTokenizerBase
    metrics: dict[str, dict[str, float]]
    path: Path


def describe_recipe(training_args: TrainingArguments, *names: str) -> dict[str, Any]:
    """Returns the training settings for the model card: common ones, and the fields `names`."""
    loading: Any = training_args.accelerator_config
    # With `split_batches` the processes share a batch.
    num_batches = 1 if loading.split_batches else training_args.world_size
    recipe = {
        **{name: getattr(training_args, name) for name in names if getattr(training_args, name) is not None},
        "learning_rate": training_args.learning_rate,
        "num_train_epochs": training_args.num_train_epochs,
        "train_batch_size": training_args.train_batch_size * training_args.gradient_accumulation_steps * num_batches,
        "precision": "bf16" if training_args.bf16 else "fp16" if training_args.fp16 else "float32",
        "seed": training_args.seed,
        "machine": describe_machine(),
    }
    command = describe_command()
    return recipe if command is None else {**recipe, "command": command}


def write_results(output_dir: Path, results: dict[str, Any], *arguments: Any) -> None:
    """Writes results and their arguments (dataclasses or dictionaries) to `results.json`, as the last file."""
    recipe: dict[str, Any] = {}
    for part in arguments:
        recipe |= part if isinstance(part, dict) else asdict(part)
    text = json.dumps({**results, "recipe": recipe}, indent=2)
    write_atomically(output_dir / RESULTS_FILE, lambda file: file.write(text.encode()))


def finish_stage(
    trainer: Trainer,
    tokenizer: PreTrainedTokenizerBase,
    evaluate: Callable[[], dict[str, dict[str, float]]],
    training: dict[str, float],
    *arguments: Any,
    recipe_fields: Sequence[str],
    base_model: str | None,
) -> DistillationResult:
    """
    Evaluates a student that learned from a cross-encoder, writes its model folder and its results, and pushes it if
    asked: in the first of several processes, whose metrics all of them return.

    Args:
        trainer (`Trainer`):
            What trained the student.
        tokenizer (`PreTrainedTokenizerBase`):
            Its tokenizer.
        evaluate (`Callable`):
            Returns the metrics of the student by split.
        training (`dict[str, float]`):
            The metrics of the training.
        arguments:
            The arguments of the stage, of its conversion, and of its data.
        recipe_fields (`Sequence[str]`):
            Training arguments that the model card names beside the common ones.
        base_model (`str`, *optional*):
            The source that the model card names. Defaults to the model that the stage began with.

    Returns:
        [`DistillationResult`].
    """
    args, _, data_args = arguments
    model: Any = trainer.model
    training_args: Any = trainer.args
    output_dir = Path(training_args.output_dir)
    metrics: dict[str, dict[str, float]] = {}
    if training_args.process_index == 0:
        if training_args.device.type == "cuda":
            peak = torch.cuda.max_memory_allocated(training_args.device)
            training = {**training, "peak_gpu_memory_mb": peak / 2**20}
        metrics = evaluate()
        recipe = describe_recipe(training_args, *recipe_fields)
        export_model(
            model,
            tokenizer,
            output_dir / MODEL_FOLDER,
            metrics=metrics,
            base_model=base_model or args.model_name_or_path or None,
            teacher=args.teacher_name_or_path and pin(args.teacher_name_or_path, args.teacher_revision),
            datasets=[data_args.task_name or data_args.dataset_name],
            recipe=recipe,
            max_length=getattr(training_args, "longest", training_args.max_length),
            model_id=training_args.hub_model_id or output_dir.name,
            overwrite=True,
        )
        write_results(output_dir, {"metrics": metrics, "training": training}, *arguments, recipe)
        push_result(training_args)
    if training_args.world_size > 1:
        (metrics,) = broadcast_object_list([metrics])
    return DistillationResult(model, tokenizer, metrics, output_dir / MODEL_FOLDER)


def push_result(training_args: Any) -> None:
    """Publishes the model of a stage on the Hub if `push_to_hub` asks for it."""
    if not training_args.push_to_hub:
        return
    output_dir = Path(training_args.output_dir)
    commit = push_model(
        output_dir / MODEL_FOLDER,
        training_args.hub_model_id or output_dir.name,
        revision=training_args.hub_revision,
        token=training_args.hub_token,
    )
    logger.info(f"Pushed to {commit}")
