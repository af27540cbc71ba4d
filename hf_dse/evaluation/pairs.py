# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of students, encoders and cross-encoders on a sentence-pair task."""

from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.data.tasks import PAIR_TASKS, PairTask
from hf_dse.inference.encoding import encode_pairs, evaluating
from hf_dse.inference.search import similarity_of
from hf_dse.metrics import _score, average_precision
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.teacher.score import score_pairs


# Batch size of the student's head, in pairs of embeddings.
PAIRS_PER_BATCH = 4096


def evaluate_model(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    dataset: datasets.Dataset,
    *,
    task: PairTask | str,
    batch_size: int = 32,
    max_length: int | None = None,
    truncate_dim: int | None = None,
    precision: str = "float32",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates a model on labelled sentence pairs.

    Args:
        model (`PreTrainedModel`):
            A student ([`DseForSequenceClassification`]), an encoder without a head ([`DseModel`] or any other; see
            [`encode`] for its embedding), or a cross-encoder (any other model for sequence classification).
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2` and `label`, as returned by [`load_pairs`].
        task (`PairTask` or `str`):
            The task, or the name of a known one.
        batch_size (`int`, *optional*, defaults to 32):
            Sentences (or pairs, for a cross-encoder) per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per sentence (or pair). Defaults to the `model_max_length` of the
            tokenizer.
        truncate_dim (`int`, *optional*):
            Keep only so many numbers of each embedding, see [`encode`].
        precision (`str`, *optional*, defaults to `"float32"`):
            Of the embeddings of both sentences, see [`quantize`].
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `dict[str, float]`: the metrics of the logits, if the model has a head: `pearson` and `spearman`, or `accuracy`
        and `f1`. Students and encoders also have metrics of the cosine of the two embeddings: `cosine_pearson` and
        `cosine_spearman`, or, for symmetric tasks with two classes (1 means similar), the average precision
        `cosine_ap`, which needs no threshold. All are fractions of 1.

    Raises:
        `ValueError`: if labels are missing, the logits do not fit the task, an encoder without a head is evaluated on
        a task that the cosine cannot score, smaller embeddings are asked of a cross-encoder or cut ones of a head that
        needs all of their numbers, or predictions are NaN, infinite or constant.
    """
    if isinstance(task, str):
        if task not in PAIR_TASKS:
            raise ValueError(f"Unknown task {task!r}: pass one of {', '.join(PAIR_TASKS)}, or a `PairTask`.")
        task = PAIR_TASKS[task]
    check_labelled(dataset)
    labels = np.asarray(dataset["label"])
    has_head = type(model).__name__.endswith("ForSequenceClassification")
    options: dict[str, Any] = {"batch_size": batch_size, "device": device, "show_progress": show_progress}
    if has_head and model.config.model_type != "dse":
        if truncate_dim is not None or precision != "float32":
            raise ValueError(
                f"{type(model).__name__} scores pairs of texts and has no vectors that could be smaller: leave out "
                "`truncate_dim` and `precision`."
            )
        pairs = dataset.select_columns(["sentence1", "sentence2"])
        options |= {"processing_class": processing_class, "max_length": max_length, "column": "logits"}
        logits = np.asarray(score_pairs(model, pairs, **options)["logits"])
        return _score(logits, labels, task.problem_type, task.num_labels)

    cosine_fits = task.num_labels == 1 or (task.num_labels == 2 and task.symmetric)
    if not (has_head or cosine_fits):
        raise ValueError(
            f"Cosine similarity cannot score task {task.name!r}: pass a model with a classification head "
            "(`DseForSequenceClassification`), or `symmetric=True` if class 1 means similar."
        )
    if has_head and model.config.similarity == "mlp" and truncate_dim not in (None, model.config.projection_dim):
        raise ValueError(
            f"truncate_dim={truncate_dim}: the mlp head of the model needs all {model.config.projection_dim} numbers "
            "of a vector: leave it out."
        )
    first, second = encode_pairs(
        model,
        processing_class,
        dataset["sentence1"][:],
        dataset["sentence2"][:],
        max_length=max_length,
        truncate_dim=truncate_dim,
        precision=precision,
        normalize=precision != "float32" and similarity_of(model) == "cosine",
        **options,
    )

    metrics: dict[str, float] = {}
    if has_head:
        metrics |= _score(_compare(model, first, second), labels, task.problem_type, task.num_labels)
    if cosine_fits:
        cosine = cosines(first, second)
        if task.num_labels == 1:
            scores = _score(cosine, labels, "regression", 1)
            metrics |= {f"cosine_{name}": score for name, score in scores.items()}
        else:
            metrics["cosine_ap"] = average_precision(cosine, labels)
    return metrics


def check_labelled(dataset: datasets.Dataset) -> None:
    """Raises a `ValueError` if the pairs lack a sentence or labels."""
    missing = [name for name in ("sentence1", "sentence2", "label") if name not in dataset.column_names]
    if missing:
        raise ValueError(
            f"The pairs have no column {missing[0]!r}, only {', '.join(dataset.column_names)}: pass a split with gold "
            "labels, loaded by `load_pairs`."
        )


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the cosine of each pair of rows, shape `(num_pairs,)`; it is 0 for rows of zeros."""
    norms = np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1)
    return np.einsum("pd,pd->p", first, second) / np.maximum(norms, np.finfo(np.float32).tiny)


def _compare(model: DseForSequenceClassification, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the logits `(num_pairs, num_labels)` of the head for embeddings `(num_pairs, embedding_size)`."""
    head = next(model.similarity.parameters())
    logits = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(first), PAIRS_PER_BATCH):
            pair = (torch.from_numpy(side[start : start + PAIRS_PER_BATCH]).to(head) for side in (first, second))
            logits.append(model.similarity(*pair).float().cpu().numpy())
    return np.concatenate(logits)
