# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What trainers do with what they are given: datasets with a format, and arguments that they do not take."""

import os
from collections.abc import Mapping
from typing import Any

from datasets import Dataset


# Arguments of `Trainer` that a trainer with a loss of its own does not take, and why.
OWN_LOSS = {
    "compute_loss_func": "it has a loss of its own; override `compute_loss` in a subclass for another one",
    "model_init": "pass the student, or its folder or Hub id, as `model`, and a new trainer for each trial",
}

# The same for one that makes batches and metrics itself.
OWN_BATCHES = OWN_LOSS | {
    "data_collator": "it sets its own, which makes of texts what its loss needs",
    "compute_metrics": "it sets its own metrics; compute others with the trained student",
}

# Training arguments that divide a model among devices, and what `accelerate launch` sets for them.
SHARDING = {
    "fsdp": "ACCELERATE_USE_FSDP",
    "deepspeed": "ACCELERATE_USE_DEEPSPEED",
    "parallelism_config": "ACCELERATE_USE_PARALLELISM_CONFIG",
}


def refuse_sharding(args: Any) -> None:
    """
    Raises a `ValueError` for a training that divides the model among devices. On CPUs it would be ignored. On GPUs the
    training would fail, or its checkpoints would have the code of FSDP instead of that of the model.
    """
    for name, variable in SHARDING.items():
        is_launched = os.environ.get(variable, "").lower() in ("true", "1")
        if getattr(args, name) or is_launched:
            given = f"{variable}, as by `accelerate launch`," if is_launched else f"`{name}`"
            raise ValueError(
                f"{given} is set, and these trainers do not divide a model among devices: leave it out, and start one "
                "process for each device with torchrun, which divides the batches."
            )


def refuse_arguments(trainer: str, refused: Mapping[str, str], given: dict[str, Any]) -> None:
    """Raises a `TypeError` for an argument that a trainer would ignore; one that is `None` is removed."""
    for name, reason in refused.items():
        if given.pop(name, None) is not None:
            raise TypeError(f"`{trainer}` takes no `{name}`: {reason}.")


def plain_rows(dataset: Any) -> Any:
    """A dataset, or each of several, without the format of `with_format`: its rows are numbers, texts and lists."""
    if isinstance(dataset, Mapping):
        return {name: plain_rows(part) for name, part in dataset.items()}
    # What a transform makes of the rows is not in the data.
    is_formatted = isinstance(dataset, Dataset) and dataset.format["type"] not in (None, "custom")
    return dataset.with_format(None) if is_formatted else dataset
