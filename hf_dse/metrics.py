# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions: correlations, accuracy and F1, average precision, measures of rankings."""

import math
from collections.abc import Callable, Mapping
from itertools import chain
from typing import Any, Literal, overload

import datasets
import evaluate
import numpy as np
from transformers import EvalPrediction

from hf_dse.data.rankings import Rankings
from hf_dse.data.tasks import PAIR_TASKS, PairTask


# Below this ratio of spread to size, predictions differ by rounding errors only.
CONSTANT_SPREAD = 1e-6

RESAMPLES = 10_000

# Values of a bootstrap that are in memory at a time.
RESAMPLED_VALUES = 2**22

# What `ranking_metrics` returns.
RANKING_METRICS = ("ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100")

CONSTANT_HELP = (
    "Usually this is a collapsed model: lower the learning rate, warm up for longer, or start from a pretrained "
    "encoder instead of random weights."
)

PEARSON_SPEARMAN_INPUTS = """
Args:
    predictions (`list[float]` of length `num_pairs`): predicted similarities, on any scale.
    references (`list[float]` of length `num_pairs`): gold similarities.

Returns:
    pearson (`float`): Pearson's linear correlation, from -1 to 1.
    spearman (`float`): Spearman's rank correlation, from -1 to 1; ties share their mean rank.

Raises:
    ValueError: fewer than two pairs, a value that is NaN or infinite, or constant predictions or references.

Examples:

    >>> from hf_dse import PearsonSpearman
    >>> metric = PearsonSpearman()
    >>> metric.compute(predictions=[0.1, 0.4, 0.9], references=[0.0, 2.5, 5.0])
    {'pearson': 0.9897..., 'spearman': 1.0}
"""

ACCURACY_F1_INPUTS = """
Args:
    predictions (`list[int]` of length `num_pairs`): predicted classes.
    references (`list[int]` of length `num_pairs`): gold classes.
    allow_constant (`bool`, *optional*, defaults to `False`): allow predictions of a single class.

Returns:
    accuracy (`float`): share of correct predictions, from 0 to 1.
    f1 (`float`): F1 of class 1 (configuration "binary"), or the mean over classes ("macro").

Raises:
    ValueError: no pairs, or predictions of a single class while the references have several classes.

Examples:

    >>> from hf_dse import AccuracyF1
    >>> metric = AccuracyF1("macro")
    >>> metric.compute(predictions=[0, 1, 2, 2], references=[0, 1, 1, 2])
    {'accuracy': 0.75, 'f1': 0.7777...}
"""


# For each query id the scores of the documents found, by their ids.
Run = dict[str, dict[str, float]]


class UndefinedMetricError(ValueError):
    """A metric that has no value for these predictions and labels, such as the correlation of a constant."""


class _OfflineMetric(evaluate.Metric):
    config_name: str

    # A metric on disk keeps its file locked if `_compute` raises an error, and ours may.
    def __init__(self, config_name: str | None = None, keep_in_memory: bool | None = None, **kwargs: Any):
        if keep_in_memory is None:
            keep_in_memory = kwargs.get("num_process", 1) == 1
        super().__init__(config_name, keep_in_memory=keep_in_memory, **kwargs)

    def _build_data_dir(self) -> str:
        # In memory there is no need of a folder, which could not be made without a home that can be written.
        return "" if self.keep_in_memory else super()._build_data_dir()


class PearsonSpearman(_OfflineMetric):
    """Pearson and Spearman correlation of predicted and gold similarities, without downloads."""

    def _info(self) -> evaluate.MetricInfo:
        return evaluate.MetricInfo(
            description="Pearson and Spearman correlation; constant or non-finite predictions are an error.",
            citation="",
            inputs_description=PEARSON_SPEARMAN_INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Value("float64"), "references": datasets.Value("float64")}
            ),
        )

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        x, y = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
        if x.size < 2:
            raise UndefinedMetricError(f"A correlation needs at least 2 pairs, got {x.size}.")
        for name, values in (("predictions", x), ("references", y)):
            check_finite(name, values)
            if np.ptp(values) <= CONSTANT_SPREAD * np.abs(values).max():
                raise UndefinedMetricError(
                    f"Constant {name}: all {values.size} are {values[0]:.6g}, so the correlation is undefined. "
                    + (CONSTANT_HELP if name == "predictions" else "Pass pairs with different gold labels.")
                )
        return {"pearson": _correlation(x, y), "spearman": _correlation(_ranks(x), _ranks(y))}


class AccuracyF1(_OfflineMetric):
    """
    Accuracy and F1 of predicted classes, without downloads.

    Args:
        config_name (`str`, *optional*, defaults to `"binary"`):
            `"binary"` for the F1 of class 1, `"macro"` for the mean F1 over the classes that occur.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name == "default":
            self.config_name = "binary"
        if self.config_name not in ("binary", "macro"):
            raise ValueError(f"Unknown configuration {self.config_name!r} of AccuracyF1: use 'binary' or 'macro'.")
        return evaluate.MetricInfo(
            description="Accuracy and F1; predictions of one single class are an error unless allowed.",
            citation="",
            inputs_description=ACCURACY_F1_INPUTS,
            features=datasets.Features(
                {"predictions": datasets.Value("int64"), "references": datasets.Value("int64")}
            ),
        )

    def _compute(
        self, predictions: list[int], references: list[int], allow_constant: bool = False
    ) -> dict[str, float]:
        x, y = np.asarray(predictions, dtype=np.int64), np.asarray(references, dtype=np.int64)
        if x.size == 0:
            raise ValueError("Accuracy needs at least 1 pair, got none.")
        if not allow_constant and x.size > 1 and np.ptp(x) == 0 and np.ptp(y) > 0:
            raise UndefinedMetricError(
                f"Constant predictions: all {x.size} are class {x[0]}, while the references have several classes. "
                + CONSTANT_HELP
            )
        classes = np.array([1]) if self.config_name == "binary" else np.union1d(x, y)
        hits = np.array([np.sum((x == c) & (y == c)) for c in classes], dtype=np.float64)
        total = np.array([np.sum(x == c) + np.sum(y == c) for c in classes], dtype=np.float64)
        # The F1 of a class without predictions and references is 0, as in other libraries.
        f1 = np.divide(2 * hits, total, out=np.zeros_like(hits), where=total > 0)
        return {"accuracy": float(np.mean(x == y)), "f1": float(f1.mean())}


def compute_metrics_for(
    task: PairTask | str, num_labels: int | None = None
) -> Callable[[EvalPrediction], dict[str, float]]:
    """
    Builds the `compute_metrics` function of a [`~transformers.Trainer`] for a pair task.

    Args:
        task (`PairTask` or `str`):
            A task, the name of a known task, or a problem type: `"regression"` or `"single_label_classification"`.
        num_labels (`int`, *optional*):
            Number of classes. Required with `"single_label_classification"`; a task has its own.

    Returns:
        `Callable`: maps an [`~transformers.EvalPrediction`] with logits of shape `(num_pairs, num_columns)` to
        `pearson` and `spearman` (regression), or to `accuracy` and `f1` (binary: of class 1; else the mean over
        classes). Binary logits may have one column (positive means class 1) or two.

    Raises:
        ValueError: an unknown task or problem type. The returned function raises it for logits that are NaN,
            infinite, constant, or have another number of columns than the task.
    """
    problem_type, num_labels = _problem(task, num_labels)

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        logits = prediction.predictions
        # Models that also return hidden states or attentions give a tuple with the logits first.
        logits = logits[0] if isinstance(logits, tuple | list) else logits
        return _score(np.asarray(logits), np.asarray(prediction.label_ids), problem_type, num_labels, strict=False)

    return compute_metrics


def _problem(task: PairTask | str, num_labels: int | None) -> tuple[str, int]:
    if not isinstance(task, str):
        return task.problem_type, task.num_labels
    if task == "regression":
        return task, 1
    if task == "single_label_classification":
        if num_labels is None or num_labels < 2:
            raise ValueError(f"Problem type {task!r} needs num_labels of at least 2, got {num_labels}.")
        return task, num_labels
    if task not in PAIR_TASKS:
        known = ", ".join([*PAIR_TASKS, "regression", "single_label_classification"])
        raise ValueError(f"Unknown task or problem type {task!r}: use one of {known}.")
    return PAIR_TASKS[task].problem_type, PAIR_TASKS[task].num_labels


def _score(
    logits: np.ndarray, labels: np.ndarray, problem_type: str, num_labels: int, strict: bool = True
) -> dict[str, float]:
    logits = logits.reshape(len(logits), -1).astype(np.float64)  # [P, C]
    columns = logits.shape[1]
    allowed = (1,) if problem_type == "regression" else (1, 2) if num_labels == 2 else (num_labels,)
    if columns not in allowed:
        raise ValueError(
            f"The model returns {columns} logits per pair, but this task ({problem_type}, {num_labels} labels) needs "
            f"{' or '.join(map(str, allowed))}: pass a model with num_labels={allowed[-1]}."
        )
    check_finite("predictions", logits)
    if problem_type == "regression":
        return PearsonSpearman().compute(predictions=logits[:, 0], references=labels.reshape(-1))
    if len(logits) > 1 and np.all(np.ptp(logits, axis=0) <= CONSTANT_SPREAD * np.abs(logits).max()):
        raise UndefinedMetricError(
            f"Constant predictions: all {len(logits)} pairs have the same logits. {CONSTANT_HELP}"
        )
    classes = labels.reshape(-1)
    if not np.isin(classes, np.arange(num_labels)).all():
        wrong = np.setdiff1d(classes, np.arange(num_labels))
        raise ValueError(
            f"Labels of a task with {num_labels} labels are 0 to {num_labels - 1}, but these occur too: "
            f"{wrong[:5].tolist()}. Pass the num_labels of the data, or a split with gold labels."
        )
    predictions = (logits[:, 0] > 0) if columns == 1 else logits.argmax(axis=1)
    # Early in a training a classifier may predict the majority class only. That is an error at the end only.
    return AccuracyF1("binary" if num_labels == 2 else "macro").compute(
        predictions=predictions.astype(np.int64), references=classes.astype(np.int64), allow_constant=not strict
    )


def average_precision(scores: np.ndarray, labels: np.ndarray) -> float:
    """Mean precision over the positives, from the highest score down; equal scores are one step."""
    check_finite("predictions", scores)
    if np.ptp(scores) <= CONSTANT_SPREAD * np.abs(scores).max():
        raise UndefinedMetricError(
            f"Constant predictions: all {len(scores)} cosines are {scores[0]:.6g}. {CONSTANT_HELP}"
        )
    if not (labels == 1).any():
        raise UndefinedMetricError(
            "No pair has label 1, so there is no precision to average: pass pairs of both classes."
        )
    order = np.argsort(-scores, kind="stable")
    hits = np.cumsum(labels[order] == 1)
    last = np.append(np.diff(scores[order]) != 0, True)  # the last of each group of equal scores
    precision = hits[last] / (np.flatnonzero(last) + 1)
    return float(np.sum(np.diff(hits[last], prepend=0) * precision) / hits[-1])


@overload
def ranking_metrics(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, float]],
    *,
    per_query: Literal[False] = False,
) -> dict[str, float]: ...


@overload
def ranking_metrics(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, float]], *, per_query: Literal[True]
) -> dict[str, dict[str, float]]: ...


def ranking_metrics(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, float]], *, per_query: bool = False
) -> dict[str, Any]:
    """
    Measures of rankings, those of trec_eval: the values that MTEB and BEIR report.

    Args:
        run (`Mapping[str, Mapping[str, float]]`):
            For each query id the scores of the documents found, by their ids. Equal scores rank the document with the
            later id first. A query that is missing found nothing.
        qrels (`Mapping[str, Mapping[str, float]]`):
            For each query id how relevant documents are, by their ids: above 0 if they are, in whole grades; NaN if
            unknown. Queries without a relevant document are left out, for they have no best ranking.
        per_query (`bool`, *optional*, defaults to `False`):
            Whether to return the values of each query instead of their means.

    Returns:
        `dict[str, float]`: `ndcg@10`, `mrr@10`, `map` (of all documents found), `recall@1`, `recall@10` and
        `recall@100`, as fractions of 1. With `per_query`, such a dictionary for each query id.

    Raises:
        `ImportError`: if pytrec_eval is missing.
        `ValueError`: if no query has a relevant document, a grade is no whole number, a score NaN, or an id no string.

    Example:

    ```python
    >>> from hf_dse import ranking_metrics

    >>> metrics = ranking_metrics({"q": {"a": 0.9, "b": 0.8, "c": 0.1}}, {"q": {"b": 1}})
    >>> metrics["mrr@10"], round(metrics["ndcg@10"], 3), metrics["recall@1"]
    (0.5, 0.631, 0.0)
    ```
    """
    try:
        import pytrec_eval
    except ImportError as error:
        raise ImportError(
            "Measures of rankings need pytrec_eval: `pip install hf-dse[ranking]` (package pytrec-eval-terrier)."
        ) from error
    wrong = [key for part in (run, qrels) for key in chain(part, *part.values()) if not isinstance(key, str)]
    if wrong:
        raise ValueError(f"{wrong[0]!r} is the id of a query or document, and ids have to be strings.")
    grades = {query_id: _grades(query_id, labels) for query_id, labels in qrels.items()}
    grades = {query_id: labels for query_id, labels in grades.items() if any(grade > 0 for grade in labels.values())}
    if not grades:
        raise ValueError(
            f"None of the {len(qrels)} queries has a relevant document (above 0): nothing can be measured."
        )
    found = {
        query_id: {doc_id: float(score) for doc_id, score in run.get(query_id, {}).items()} for query_id in grades
    }
    for query_id, scores in found.items():
        unknown = [doc_id for doc_id, score in scores.items() if math.isnan(score)]
        if unknown:
            raise ValueError(f"The score of document {unknown[0]!r} for query {query_id!r} is NaN.")
    evaluator = pytrec_eval.RelevanceEvaluator(grades, {"ndcg_cut.10", "recip_rank", "map", "recall.1,10,100"})
    measured = {
        query_id: {
            "ndcg@10": values["ndcg_cut_10"],
            # trec_eval's has no limit: the rank is beyond 10 if it is below 1 / 10.
            "mrr@10": values["recip_rank"] if values["recip_rank"] > 1 / 11 else 0.0,
            "map": values["map"],
            **{f"recall@{k}": values[f"recall_{k}"] for k in (1, 10, 100)},
        }
        for query_id, values in evaluator.evaluate(found).items()
    }
    if per_query:
        return measured
    return {name: float(np.mean([values[name] for values in measured.values()])) for name in RANKING_METRICS}


def as_run(rankings: Rankings, scores: np.ndarray, positions: np.ndarray, top_k: int) -> Run:
    """
    Names what was found, and leaves out queries that are documents themselves, unless these are relevant for them.

    Args:
        rankings ([`Rankings`]):
            The queries and the corpus.
        scores (`np.ndarray` of shape `(num_queries, num_found)`):
            The scores of documents, the best first.
        positions (`np.ndarray` of shape `(num_queries, num_found)`):
            Their rows in the corpus.
        top_k (`int`):
            Documents to keep for each query.
    """
    ids = rankings.corpus["doc_id"][:]
    row_of = {doc_id: row for row, doc_id in enumerate(ids)}
    run = {}
    columns = rankings.queries["query_id"][:], rankings.queries["query"][:], rankings.positives()
    for number, (query_id, query, relevant) in enumerate(zip(*columns, strict=True)):
        own = row_of.get(query_id)
        if own is not None and (own in relevant or query not in rankings.corpus["text"][own]):
            own = None
        found = zip(positions[number].tolist(), scores[number].tolist(), strict=True)
        run[query_id] = dict([(ids[row], score) for row, score in found if row != own][:top_k])
    return run


def relevance(rankings: Rankings) -> dict[str, dict[str, float]]:
    """For each query id the labels of its candidates, by their ids."""
    ids = rankings.corpus["doc_id"][:]
    columns = (rankings.queries[name][:] for name in ("query_id", "documents", "labels"))
    return {
        query_id: {ids[row]: label for row, label in zip(rows, labels, strict=True)}
        for query_id, rows, labels in zip(*columns, strict=True)
    }


def _grades(query_id: str, labels: Mapping[str, float]) -> dict[str, int]:
    known = {doc_id: float(label) for doc_id, label in labels.items() if not math.isnan(label)}
    wrong = [doc_id for doc_id, label in known.items() if not label.is_integer()]
    if wrong:
        raise ValueError(
            f"The relevance of document {wrong[0]!r} for query {query_id!r} is {known[wrong[0]]}: measures of "
            "rankings need whole grades, such as 0, 1 and 2."
        )
    return {doc_id: int(label) for doc_id, label in known.items()}


def bootstrap_interval(
    differences: np.ndarray, *, resamples: int = RESAMPLES, seed: int | np.random.Generator = 0
) -> tuple[float, float]:
    """
    The 95 % percentile bootstrap of a mean of paired differences
    ([Efron and Tibshirani, 1993](https://doi.org/10.1201/9780429246593), section 13.3).

    Args:
        differences (`np.ndarray` of shape `(num_pairs,)`):
            A difference for each pair, such as between two models on the same query.
        resamples (`int`, *optional*, defaults to 10,000):
            Number of samples of the pairs, each drawn with replacement.
        seed (`int` or `np.random.Generator`, *optional*, defaults to 0):
            What draws them.

    Returns:
        `tuple[float, float]`: the ends of the interval.
    """
    rng = np.random.default_rng(seed)
    size = max(1, RESAMPLED_VALUES // len(differences))
    means = np.concatenate(
        [
            rng.choice(differences, (min(size, resamples - start), len(differences))).mean(axis=1)
            for start in range(0, resamples, size)
        ]
    )
    low, high = np.quantile(means, [0.025, 0.975])
    return float(low), float(high)


def check_finite(name: str, values: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(values)} {name} are NaN or infinite, the first at row {wrong[0]}, so there "
            "is no valid score. Check the learning rate and the precision (fp16 overflows easily)."
        )


def _correlation(x: np.ndarray, y: np.ndarray) -> float:
    # Scaled first, so that products of tiny or huge values do not under- or overflow.
    x, y = x - x.mean(), y - y.mean()
    x, y = x / np.abs(x).max(), y / np.abs(y).max()
    return float(np.clip(x @ y / np.sqrt((x @ x) * (y @ y)), -1.0, 1.0))


def _ranks(values: np.ndarray) -> np.ndarray:
    _, inverse, counts = np.unique(values, return_inverse=True, return_counts=True)
    # The mean rank of a group of ties is its last rank minus half its size.
    return (np.cumsum(counts) - (counts - 1) / 2)[inverse]
