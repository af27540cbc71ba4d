# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The mean of the weights of several students."""

import math
from collections.abc import Sequence

import torch
from transformers import PreTrainedModel

from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.student.checkpoint import has_head


# Config fields of the files and of training, not of what is computed, and those that affect only the head.
NEUTRAL_FIELDS = {
    "_name_or_path",
    "architectures",
    "auto_map",
    "dtype",
    "sentence_transformers",
    "transformers_version",
    "id2label",
    "label2id",
    "hidden_dropout_prob",
    "attention_probs_dropout_prob",
    "initializer_range",
}

HEAD_FIELDS = {"problem_type", "similarity", "similarity_hidden_size"}

# And those that say nothing of a projection without weights.
PROJECTION_FIELDS = {"linformer_init", "linformer_sharing"}

HEAD = "similarity."

ENCODER = "dse."


def merge_models(
    models: Sequence[DseModel | DseForSequenceClassification], weights: Sequence[float] | None = None
) -> DseModel | DseForSequenceClassification:
    """
    Averages the weights of models with the same initial encoder.

    Args:
        models (`Sequence[DseModel | DseForSequenceClassification]`):
            Models with equal configurations. The first one is changed in place and returned. If it has a head, the
            head is averaged over the models with a head.
        weights (`Sequence[float]`, *optional*):
            One weight per model; they are divided by their sum. Defaults to equal weights.

    Returns:
        [`DseModel`] or [`DseForSequenceClassification`]: the first model, with merged weights.

    Raises:
        `ValueError`: for fewer than two models, invalid weights, or models with different configurations.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import convert_encoder, merge_models

    >>> # Such as students of several seeds; here two that differ in one weight.
    >>> students = [convert_encoder("sentence-transformers/all-MiniLM-L6-v2") for _ in range(2)]
    >>> weights = [student.embeddings.LayerNorm.weight for student in students]
    >>> _ = torch.nn.init.ones_(weights[0]), torch.nn.init.zeros_(weights[1])
    >>> merge_models(students).embeddings.LayerNorm.weight[:3].tolist()
    [0.5, 0.5, 0.5]
    ```
    """
    if len(models) < 2:
        raise ValueError(f"Merging needs at least two models, got {len(models)}.")
    weights = [1.0] * len(models) if weights is None else list(weights)
    if len(weights) != len(models):
        raise ValueError(f"{len(models)} models need {len(models)} weights, got {len(weights)}.")
    if not all(math.isfinite(weight) and weight >= 0 for weight in weights) or sum(weights) == 0:
        raise ValueError(f"The weights must be finite numbers of at least 0, and not all 0, got {weights}.")
    first, *others = models
    for number, other in enumerate(others, start=2):
        _check_compatible(first, other, number)

    # Buffers, which count the pairs that a head was fitted to, stay: a merged head is a trained one.
    states = [{name.removeprefix(ENCODER): tensor for name, tensor in model.named_parameters()} for model in models]
    with torch.no_grad():
        for name, tensor in first.named_parameters():
            name = name.removeprefix(ENCODER)
            parts = [(weight, state[name]) for weight, state in zip(weights, states, strict=True) if name in state]
            total = sum(weight for weight, _ in parts)
            if total > 0:
                mean = sum(weight / total * part.to(tensor.device, torch.float64) for weight, part in parts)
                tensor.copy_(torch.as_tensor(mean))
    return first


def _check_compatible(first: PreTrainedModel, other: PreTrainedModel, number: int) -> None:
    """Raises an error for models with different configurations or weights of different shapes."""
    # The fields and weights of the head matter only if both models have one.
    both = has_head(first) and has_head(other)
    ignored = NEUTRAL_FIELDS if both else NEUTRAL_FIELDS | HEAD_FIELDS
    if not first.config.is_projection_learned:
        ignored = ignored | PROJECTION_FIELDS
    fields = [
        {name: value for name, value in model.config.to_dict().items() if name not in ignored}
        for model in (first, other)
    ]
    shapes = [
        {
            name.removeprefix(ENCODER): tuple(tensor.shape)
            for name, tensor in model.state_dict().items()
            if both or not name.startswith(HEAD)
        }
        for model in (first, other)
    ]
    for kind, (mine, theirs) in (("configuration", fields), ("weights", shapes)):
        different = sorted(name for name in mine.keys() | theirs.keys() if mine.get(name) != theirs.get(name))
        if different:
            values = "; ".join(f"{name}: {mine.get(name)} and {theirs.get(name)}" for name in different)
            raise ValueError(
                f"Model {number} has another {kind} than the first one ({values}). Merge models that were "
                "converted from the same encoder with the same options."
            )
