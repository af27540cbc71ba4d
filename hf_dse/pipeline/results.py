# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Results of a stage: the student, its metrics and its recipe."""

import json
from dataclasses import asdict, dataclass
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from hf_dse.common.files import write_atomically
from hf_dse.common.provenance import describe_command, describe_machine


# The last file that a stage writes.
RESULTS_FILE = "results.json"

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
    recipe = {
        **{name: getattr(training_args, name) for name in names},
        "learning_rate": training_args.learning_rate,
        "num_train_epochs": training_args.num_train_epochs,
        "train_batch_size": training_args.train_batch_size
        * training_args.gradient_accumulation_steps
        * training_args.world_size,
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
