# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation on sentence pairs."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.options import PAIR_TASKS, PairTask
from hf_dse.measure.metrics import UndefinedMetricError, correlations, is_constant, score_logits
from hf_dse.retrieval.sentence_transformer import embed, to_sentence_transformer


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

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
    show_progress: bool = True,
) -> dict[str, float]:
    """The metrics of sentence pairs, see `hf_dse.evaluate`. A `SentenceTransformer` needs no `processing_class`."""
    if isinstance(task, str):
        task = PAIR_TASKS[task]
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
    encoder = to_sentence_transformer(model, processing_class, max_length=max_length)
    vectors = embed(encoder, list(row_of), None, batch_size=batch_size, show_progress=show_progress)
    sides = [vectors[[row_of[text] for text in side]] for side in (first, second)]

    metrics: dict[str, float] = {}
    if has_head:
        metrics |= score_logits(_compare(model, *sides), labels, task.problem_type, task.num_labels)
    if not cosine_fits:
        return metrics
    try:
        metrics |= _cosine_metrics(sides, labels, task)
    except UndefinedMetricError as error:
        if not metrics:
            raise
        logger.warning(f"There are no metrics of the cosine: {error}")
    return metrics


def _cosine_metrics(sides: Sequence[np.ndarray], labels: np.ndarray, task: PairTask) -> dict[str, float]:
    """The metrics of the cosine of the two embeddings."""
    u, v = map(torch.from_numpy, sides)
    cosines = torch.nn.functional.cosine_similarity(u, v, dim=1).numpy()
    if task.num_labels == 1:
        return {f"cosine_{name}": score for name, score in correlations(cosines, labels).items()}
    if is_constant(cosines) or not (labels == 1).any():
        raise UndefinedMetricError(
            "The average precision is undefined: all cosines are the same, or no pair has the label 1."
        )
    from sklearn.metrics import average_precision_score

    return {"cosine_ap": float(average_precision_score(labels == 1, cosines))}


def _compare(model: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The logits `(num_pairs, num_labels)` of the head for embeddings `(num_pairs, embedding_size)`."""
    head = next(model.similarity.parameters())
    batches = zip(*(torch.from_numpy(side).split(PAIRS_PER_BATCH) for side in (first, second)), strict=True)
    with evaluating(model), torch.inference_mode():
        logits = [model.similarity(*(part.to(head) for part in pair)).float().cpu() for pair in batches]
    return torch.cat(logits).numpy()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts a model in evaluation mode, and restores the mode of every module at the end."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
