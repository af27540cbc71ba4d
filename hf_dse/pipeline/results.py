# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of a stage: the student, its metrics and its recipe."""

import json
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

import torch
from accelerate.utils import broadcast_object_list
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.files import write_atomically
from hf_dse.common.provenance import describe_command, describe_machine
from hf_dse.publish.export import export_model
from hf_dse.publish.push import push_model
from hf_dse.training.arguments import StudentTrainingArguments
from hf_dse.training.base import RESULTS_FILE
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)

MODEL_FOLDER = "model"

Metrics = dict[str, dict[str, float]]


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
            Metrics of each labelled split except train, as [`evaluate_pairs`] or [`evaluate_retrieval`] returns them.
        path (`pathlib.Path`):
            The model folder, complete with code, tokenizer and model card.
    """

    model: PreTrainedModel
    processing_class: PreTrainedTokenizerBase
    metrics: Metrics
    path: Path


def train_stage(
    trainer: Any,
    tokenizer: PreTrainedTokenizerBase,
    evaluate: Callable[[], Metrics],
    arguments: Sequence[Any],
    *,
    base_model: str | None,
    teacher: str | None,
    dataset: str | None,
    recipe: Mapping[str, Any],
) -> DistillationResult:
    """
    Trains a student, from the checkpoint in the training arguments if there is one. Then the first of several
    processes evaluates the student by `evaluate`, writes its model folder with `base_model`, `teacher`, `dataset` and
    `recipe` in the card, and the results with the `arguments` of the stage, and pushes the folder if asked.
    """
    training_args = trainer.args
    show_progress(trainer)
    training = trainer.train(resume_from_checkpoint=training_args.resume_from_checkpoint).metrics
    trainer.save_state()
    student = getattr(trainer.model, "student", trainer.model).eval()
    output_dir = Path(str(training_args.output_dir))
    path, metrics = output_dir / MODEL_FOLDER, {}
    if training_args.process_index == 0:
        training |= peak_memory(training_args.device)
        metrics = evaluate()
        recipe = {name: value for name, value in recipe.items() if value is not None} | common_recipe(training_args)
        name = training_args.hub_model_id or output_dir.name
        export_model(
            student,
            tokenizer,
            path,
            metrics=metrics or None,
            base_model=base_model,
            teacher=teacher,
            datasets=[dataset],
            recipe=recipe,
            model_id=name,
            overwrite=True,
        )
        options = {name: value for part in arguments for name, value in asdict(part).items()}
        results = {"metrics": metrics, "training": training, "recipe": {**options, **recipe}}
        # The last file, which says that the stage is complete.
        text = json.dumps(results, indent=2)
        write_atomically(output_dir / RESULTS_FILE, lambda file: file.write(text.encode()))
        if training_args.push_to_hub:
            commit = push_model(path, name, revision=training_args.hub_revision, token=training_args.hub_token)
            logger.info(f"Pushed to {commit}")
    if training_args.world_size > 1:
        (metrics,) = broadcast_object_list([metrics])
    return DistillationResult(student, tokenizer, metrics, path)


def common_recipe(training_args: StudentTrainingArguments) -> dict[str, Any]:
    """The settings of any training that a model card names."""
    loading: Any = training_args.accelerator_config
    # With `split_batches` the processes share a batch.
    num_batches = 1 if loading.split_batches else training_args.world_size
    recipe = {
        "learning_rate": training_args.learning_rate,
        "num_train_epochs": training_args.num_train_epochs,
        "train_batch_size": training_args.train_batch_size * training_args.gradient_accumulation_steps * num_batches,
        "precision": "bf16" if training_args.bf16 else "fp16" if training_args.fp16 else "float32",
        "seed": training_args.seed,
        "machine": describe_machine(),
    }
    command = describe_command()
    return recipe if command is None else {**recipe, "command": command}


def peak_memory(device: torch.device) -> dict[str, float]:
    """The most memory that this process has had, in MB."""
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    memory = {"peak_memory_mb": peak / (2**20 if sys.platform == "darwin" else 2**10)}
    if device.type == "cuda":
        memory["peak_gpu_memory_mb"] = torch.cuda.max_memory_allocated(device) / 2**20
    return memory
