# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of embedding models on a sentence-pair task."""

from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.data.tasks import PAIR_TASKS, PairTask
from hf_dse.retrieval.encoding import encode, evaluating
from hf_dse.retrieval.metrics import UndefinedMetricError, is_constant, score_logits
from hf_dse.retrieval.sentence_transformer import embed


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Batch size of the student's head, in pairs of embeddings.
PAIRS_PER_BATCH = 4096


def evaluate_pairs(
    model: "PreTrainedModel | SentenceTransformer",
    processing_class: PreTrainedTokenizerBase | None,
    dataset: datasets.Dataset,
    task: PairTask | str,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates a model on labelled sentence pairs.

    Args:
        model (`PreTrainedModel` or `SentenceTransformer`):
            A student ([`DseForSequenceClassification`]), an encoder without a head ([`DseModel`] or any other; see
            [`encode`] for its embedding), or a `SentenceTransformer`, whose head is not read. For a cross-encoder,
            [`score_pairs`] and [`compute_metrics_for`] do the same.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the model; `None` for a `SentenceTransformer`, which has its own.
        dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2` and `label`, as returned by [`load_pairs`].
        task (`PairTask` or `str`):
            The task, or the name of a known one.
        batch_size (`int`, *optional*, defaults to 32):
            Sentences per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per sentence. Defaults to the `model_max_length` of the tokenizer.
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `dict[str, float]`: the metrics of the logits, if the model has a head: `pearson` and `spearman`, or `accuracy`
        and `f1`. Also metrics of the cosine of the two embeddings: `cosine_pearson` and `cosine_spearman`, or, for
        symmetric tasks with two classes (1 means similar), the average precision `cosine_ap`, which needs no
        threshold. All are fractions of 1.

    Raises:
        `ValueError`: if labels are missing, the logits do not fit the task, a model without a head is evaluated on
        a task that the cosine cannot score, or predictions are NaN, infinite or constant.
    """
    if isinstance(task, str):
        if task not in PAIR_TASKS:
            raise ValueError(f"Unknown task {task!r}: pass one of {', '.join(PAIR_TASKS)}, or a `PairTask`.")
        task = PAIR_TASKS[task]
    if "label" not in dataset.column_names:
        raise ValueError(
            f"The pairs have no column 'label', only {', '.join(dataset.column_names)}: pass a split with gold labels."
        )
    labels = np.asarray(dataset["label"])
    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    has_head = type(model).__name__ == "DseForSequenceClassification"
    cosine_fits = task.num_labels == 1 or (task.num_labels == 2 and task.symmetric)
    if not (has_head or cosine_fits):
        raise ValueError(
            f"Cosine similarity cannot score task {task.name!r}: pass a model with a classification head "
            "(`DseForSequenceClassification`), or `symmetric=True` if class 1 means similar."
        )
    # Each distinct sentence is embedded once.
    row_of = {text: row for row, text in enumerate(dict.fromkeys([*first, *second]))}
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    if isinstance(model, PreTrainedModel):
        options |= {"max_length": max_length, "device": device}
        vectors = encode(model, processing_class, list(row_of), **options)  # type: ignore[arg-type]
    else:
        vectors = embed(model, list(row_of), None, **options)
    sides = [vectors[[row_of[text] for text in side]] for side in (first, second)]

    metrics: dict[str, float] = {}
    if has_head:
        metrics |= score_logits(_compare(model, *sides), labels, task.problem_type, task.num_labels)
    if cosine_fits:
        similarity = cosines(*sides)
        if task.num_labels == 1:
            scores = score_logits(similarity, labels, "regression", 1)
            metrics |= {f"cosine_{name}": score for name, score in scores.items()}
        else:
            metrics["cosine_ap"] = average_precision(similarity, labels)
    return metrics


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean precision over the positives, from the highest score down; equal scores are one step."""
    from sklearn.metrics import average_precision_score

    if is_constant(scores) or not (labels == 1).any():
        raise UndefinedMetricError(
            "The average precision is undefined: all scores are the same, or no pair has the label 1."
        )
    return float(average_precision_score(labels == 1, scores))


def cosines(first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The cosine of each pair of rows, shape `(num_pairs,)`; it is 0 for rows of zeros."""
    sides = torch.from_numpy(first), torch.from_numpy(second)
    return torch.nn.functional.cosine_similarity(*sides, dim=1).numpy()


def _compare(model: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """Returns the logits `(num_pairs, num_labels)` of the head for embeddings `(num_pairs, embedding_size)`."""
    head = next(model.similarity.parameters())
    logits = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(first), PAIRS_PER_BATCH):
            pair = (torch.from_numpy(side[start : start + PAIRS_PER_BATCH]).to(head) for side in (first, second))
            logits.append(model.similarity(*pair).float().cpu().numpy())
    return np.concatenate(logits)
