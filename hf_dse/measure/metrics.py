# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions, computed by scipy and scikit-learn, and intervals of means by the bootstrap."""

from collections.abc import Callable

import numpy as np
from transformers import EvalPrediction

from hf_dse.retrieval.sentence_transformer import check_finite


# Below this ratio of spread to size, predictions differ by rounding errors only.
CONSTANT_SPREAD = 1e-6

CONSTANT_HELP = (
    "Usually this is a collapsed model: lower the learning rate, warm up for longer, or start from a pretrained "
    "encoder instead of random weights."
)


class UndefinedMetricError(ValueError):
    """A metric that has no value for these predictions and labels, such as the correlation of a constant."""


def correlations(predictions: np.ndarray, references: np.ndarray) -> dict[str, float]:
    """`pearson` and `spearman`. Values that are constant, NaN or infinite are an error."""
    from scipy import stats

    predictions, references = predictions.astype(np.float64), references.astype(np.float64)
    for name, values in (("predictions", predictions), ("references", references)):
        check_finite(name, values)
        if is_constant(values):
            raise UndefinedMetricError(
                f"Constant {name}: all {values.size} are {values[0]:.6g}, so the correlation is undefined. "
                + (CONSTANT_HELP if name == "predictions" else "Pass pairs with different gold labels.")
            )
    measures = {"pearson": stats.pearsonr, "spearman": stats.spearmanr}
    return {name: float(measure(predictions, references)[0]) for name, measure in measures.items()}


def compute_metrics_for(problem_type: str, num_labels: int) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    Builds the `compute_metrics` function of a [`~transformers.Trainer`] for sentence pairs.

    Args:
        problem_type (`str`):
            `"regression"` or `"single_label_classification"`, as in the config of the model.
        num_labels (`int`):
            Number of classes, 1 for a regression.

    Returns:
        `Callable`: maps an [`~transformers.EvalPrediction`] with logits of shape `(num_pairs, num_columns)` to
        `pearson` and `spearman` (regression), or to `accuracy` and `f1` (binary: of class 1; else the mean over
        classes). Binary logits may have one column (positive means class 1) or two. Logits that are NaN, infinite or
        constant are an error.
    """

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        logits = prediction.predictions
        # Models that also return hidden states or attentions give a tuple with the logits first.
        logits = logits[0] if isinstance(logits, tuple | list) else logits
        return score_logits(np.asarray(logits), np.asarray(prediction.label_ids), problem_type, num_labels)

    return compute_metrics


def score_logits(logits: np.ndarray, labels: np.ndarray, problem_type: str, num_labels: int) -> dict[str, float]:
    """The metrics of logits, see [`compute_metrics_for`]."""
    logits, labels = logits.reshape(len(logits), -1).astype(np.float64), labels.reshape(-1)
    columns = logits.shape[1]
    allowed = (1,) if problem_type == "regression" else (1, 2) if num_labels == 2 else (num_labels,)
    if columns not in allowed:
        raise ValueError(
            f"The model returns {columns} logits per pair, but this task ({problem_type}, {num_labels} labels) needs "
            f"{' or '.join(map(str, allowed))}: pass a model with num_labels={allowed[-1]}."
        )
    if problem_type == "regression":
        return correlations(logits[:, 0], labels)
    from sklearn.metrics import accuracy_score, f1_score

    check_finite("predictions", logits)
    if len(logits) > 1 and all(map(is_constant, logits.T)):
        raise UndefinedMetricError(
            f"Constant predictions: all {len(logits)} pairs have the same logits. {CONSTANT_HELP}"
        )
    wrong = np.setdiff1d(labels, np.arange(num_labels))
    if wrong.size:
        raise ValueError(
            f"Labels of a task with {num_labels} labels are 0 to {num_labels - 1}, but these occur too: "
            f"{wrong[:5].tolist()}. Pass the num_labels of the data, or a split with gold labels."
        )
    classes = (logits[:, 0] > 0).astype(int) if columns == 1 else logits.argmax(axis=1)
    f1 = f1_score(labels, classes, labels=[1] if num_labels == 2 else None, average="macro", zero_division=0)
    return {"accuracy": float(accuracy_score(labels, classes)), "f1": float(f1)}


def is_constant(values: np.ndarray) -> bool:
    return bool(np.ptp(values) <= CONSTANT_SPREAD * np.abs(values).max())


def bootstrap_interval(differences: np.ndarray, *, seed: int | np.random.Generator = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of paired differences."""
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return float(differences[0]), float(differences[0])
    interval = bootstrap(
        (differences,),
        np.mean,
        n_resamples=10_000,
        # Not all resamples at once in memory.
        batch=100,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)
