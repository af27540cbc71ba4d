# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors whose first numbers are good vectors too, by losses on these first numbers."""

from collections.abc import Callable, Sequence
from typing import Any

import torch
from transformers import PreTrainedModel

from hf_dse.inference.quantization import truncate


def matryoshka_loss(
    loss: Callable[..., torch.Tensor],
    vectors: Sequence[torch.Tensor],
    model: PreTrainedModel,
    dims: Sequence[int] | None = None,
    weights: Sequence[float] | None = None,
) -> torch.Tensor:
    """
    The weighted sum of a loss on the first numbers of the vectors, for several sizes (Matryoshka representations,
    [Kusupati et al., 2022](https://huggingface.co/papers/2205.13147)). Cut vectors are normalized again where those of
    the model are.

    Args:
        loss (`Callable`):
            Takes vectors and returns a scalar.
        vectors (`Sequence[torch.Tensor]`):
            Its arguments, each of shape `(..., embedding_size)`.
        model (`PreTrainedModel`):
            The model of the vectors.
        dims (`Sequence[int]`, *optional*):
            How many numbers to keep, for each size. Defaults to all numbers, which is the loss itself.
        weights (`Sequence[float]`, *optional*):
            The weight of each size. Defaults to 1 for each.

    Returns:
        `torch.Tensor`: a scalar.

    Raises:
        `ValueError`: if the vectors have fewer numbers.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import DseConfig, DseModel, matryoshka_loss

    >>> model = DseModel(DseConfig(vocab_size=8, hidden_size=4, num_hidden_layers=1, num_attention_heads=1))
    >>> matryoshka_loss(torch.sum, [torch.tensor([[1.0, 2.0, 3.0, 4.0]])], model, dims=[4, 2], weights=[1.0, 0.5])
    tensor(11.5000)
    ```
    """
    if dims is None:
        return loss(*vectors)
    parts = [
        weight * loss(*(truncate(part, size, model) for part in vectors))
        for size, weight in zip(dims, weights or [1.0] * len(dims), strict=True)
    ]
    return torch.stack(parts).sum()


def check_sizes(args: Any, model: PreTrainedModel) -> None:
    """Raises a `ValueError` if a student has no vectors of the `matryoshka_dims`, or a head that needs whole ones."""
    if args.matryoshka_dims is None:
        return
    config: Any = model.config
    if config.similarity == "mlp":
        raise ValueError(
            f"matryoshka_dims={args.matryoshka_dims}: the mlp head of the student compares all numbers of a vector. "
            'Take `similarity="cosine"` or "dot", or leave it out.'
        )
    if max(args.matryoshka_dims) > config.projection_dim:
        raise ValueError(
            f"matryoshka_dims={args.matryoshka_dims}: the vectors of the student have {config.projection_dim} "
            "numbers, so no size can be larger."
        )
