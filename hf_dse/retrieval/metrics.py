# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions and rankings, computed by scipy, scikit-learn and pytrec_eval."""

import math
from collections.abc import Callable, Mapping
from typing import Any

import datasets
import evaluate
import numpy as np
from transformers import EvalPrediction

from hf_dse.data.rankings import Rankings
from hf_dse.data.tasks import PAIR_TASKS, PairTask


# Below this ratio of spread to size, predictions differ by rounding errors only.
CONSTANT_SPREAD = 1e-6

# Values of a bootstrap that are in memory at a time.
RESAMPLED_VALUES = 2**22

# The measures of `ranking_metrics`.
RANKING_METRICS = ("ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100")

CONSTANT_HELP = (
    "Usually this is a collapsed model: lower the learning rate, warm up for longer, or start from a pretrained "
    "encoder instead of random weights."
)

# For each query id the scores of the documents found, by their ids.
Run = dict[str, dict[str, float]]


class UndefinedMetricError(ValueError):
    """A metric that has no value for these predictions and labels, such as the correlation of a constant."""


class _OfflineMetric(evaluate.Metric):
    config_name: str

    # On disk, a metric would keep its file locked after an error of `_compute`, and would need a folder.
    def __init__(self, config_name: str | None = None, keep_in_memory: bool = True, **kwargs: Any):
        super().__init__(config_name, keep_in_memory=keep_in_memory, **kwargs)

    def _build_data_dir(self) -> str:
        return "" if self.keep_in_memory else super()._build_data_dir()

    def _describe(self, description: str, dtype: str) -> evaluate.MetricInfo:
        features = datasets.Features({name: datasets.Value(dtype) for name in ("predictions", "references")})
        return evaluate.MetricInfo(description=description, citation="", features=features)


class PearsonSpearman(_OfflineMetric):
    """
    Pearson and Spearman correlation of predicted and gold similarities, without downloads. Constant values, and values
    that are NaN or infinite, are an error.
    """

    def _info(self) -> evaluate.MetricInfo:
        return self._describe("Pearson and Spearman correlation.", "float64")

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        from scipy import stats

        x, y = np.asarray(predictions, dtype=np.float64), np.asarray(references, dtype=np.float64)
        if x.size < 2:
            raise UndefinedMetricError(f"A correlation needs at least 2 pairs, got {x.size}.")
        for name, values in (("predictions", x), ("references", y)):
            check_finite(name, values)
            if is_constant(values):
                raise UndefinedMetricError(
                    f"Constant {name}: all {values.size} are {values[0]:.6g}, so the correlation is undefined. "
                    + (CONSTANT_HELP if name == "predictions" else "Pass pairs with different gold labels.")
                )
        return {"pearson": float(stats.pearsonr(x, y)[0]), "spearman": float(stats.spearmanr(x, y)[0])}


class AccuracyF1(_OfflineMetric):
    """
    Accuracy and F1 of predicted classes, without downloads. Predictions of one class alone are an error unless
    `allow_constant=True`.

    Args:
        config_name (`str`, *optional*, defaults to `"binary"`):
            `"binary"` for the F1 of class 1, `"macro"` for the mean F1 over the classes that occur.
    """

    def _info(self) -> evaluate.MetricInfo:
        if self.config_name == "default":
            self.config_name = "binary"
        if self.config_name not in ("binary", "macro"):
            raise ValueError(f"Unknown configuration {self.config_name!r} of AccuracyF1: use 'binary' or 'macro'.")
        return self._describe("Accuracy and F1.", "int64")

    def _compute(
        self, predictions: list[int], references: list[int], allow_constant: bool = False
    ) -> dict[str, float]:
        from sklearn.metrics import f1_score

        x, y = np.asarray(predictions, dtype=np.int64), np.asarray(references, dtype=np.int64)
        if not allow_constant and x.size > 1 and np.ptp(x) == 0 and np.ptp(y) > 0:
            raise UndefinedMetricError(
                f"Constant predictions: all {x.size} are class {x[0]}, while the references have several classes. "
                + CONSTANT_HELP
            )
        labels = [1] if self.config_name == "binary" else None
        f1 = f1_score(y, x, labels=labels, average="macro", zero_division=0)
        return {"accuracy": float(np.mean(x == y)), "f1": float(f1)}


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
        `ValueError`: for an unknown task or problem type. The returned function raises it for logits that are NaN,
        infinite, constant, or have another number of columns than the task.
    """
    if task == "regression":
        kind = ("regression", 1)
    elif task == "single_label_classification":
        if num_labels is None or num_labels < 2:
            raise ValueError(f"Problem type {task!r} needs num_labels of at least 2, got {num_labels}.")
        kind = (task, num_labels)
    else:
        if isinstance(task, str) and task not in PAIR_TASKS:
            known = ", ".join([*PAIR_TASKS, "regression", "single_label_classification"])
            raise ValueError(f"Unknown task or problem type {task!r}: use one of {known}.")
        known_task = PAIR_TASKS[task] if isinstance(task, str) else task
        kind = (known_task.problem_type, known_task.num_labels)

    def compute_metrics(prediction: EvalPrediction) -> dict[str, float]:
        logits = prediction.predictions
        # Models that also return hidden states or attentions give a tuple with the logits first.
        logits = logits[0] if isinstance(logits, tuple | list) else logits
        return score_logits(np.asarray(logits), np.asarray(prediction.label_ids), *kind, strict=False)

    return compute_metrics


def score_logits(
    logits: np.ndarray, labels: np.ndarray, problem_type: str, num_labels: int, strict: bool = True
) -> dict[str, float]:
    """
    The metrics of logits. A classifier that predicts one class alone is an error if `strict`: early in a training it
    is not.
    """
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
    if len(logits) > 1 and all(map(is_constant, logits.T)):
        raise UndefinedMetricError(
            f"Constant predictions: all {len(logits)} pairs have the same logits. {CONSTANT_HELP}"
        )
    classes = labels.reshape(-1)
    wrong = np.setdiff1d(classes, np.arange(num_labels))
    if wrong.size:
        raise ValueError(
            f"Labels of a task with {num_labels} labels are 0 to {num_labels - 1}, but these occur too: "
            f"{wrong[:5].tolist()}. Pass the num_labels of the data, or a split with gold labels."
        )
    predictions = (logits[:, 0] > 0) if columns == 1 else logits.argmax(axis=1)
    return AccuracyF1("binary" if num_labels == 2 else "macro").compute(
        predictions=predictions.astype(np.int64), references=classes.astype(np.int64), allow_constant=not strict
    )


def is_constant(values: np.ndarray) -> bool:
    return bool(np.ptp(values) <= CONSTANT_SPREAD * np.abs(values).max())


def check_finite(name: str, values: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(values)} {name} are NaN or infinite, the first at row {wrong[0]}, so there "
            "is no valid score. Check the learning rate and the precision (fp16 overflows easily)."
        )


def relevance(rankings: Rankings) -> dict[str, dict[str, int]]:
    """
    For each query id the grades of its documents, by their ids: above 0 if a document is relevant. Unknown labels are
    left out, and so are queries without a relevant document, which have no best ranking. Call it before a corpus is
    embedded: it raises a `ValueError` where nothing can be measured, and for grades that are not whole numbers.
    """
    ids = rankings.corpus["doc_id"][:]
    grades: dict[str, dict[str, int]] = {}
    columns = (rankings.queries[name][:] for name in ("query_id", "documents", "labels"))
    for query_id, rows, labels in zip(*columns, strict=True):
        known = {ids[row]: label for row, label in zip(rows, labels, strict=True) if not math.isnan(label)}
        wrong = next((doc_id for doc_id, label in known.items() if not label.is_integer()), None)
        if wrong is not None:
            raise ValueError(
                f"The relevance of document {wrong!r} for query {query_id!r} is {known[wrong]}: measures of rankings "
                "need whole grades, such as 0, 1 and 2."
            )
        if any(label > 0 for label in known.values()):
            grades[query_id] = {doc_id: int(label) for doc_id, label in known.items()}
    if not grades:
        raise ValueError(
            f"None of the {len(rankings)} queries has a relevant document (above 0): nothing can be measured."
        )
    return grades


def as_run(rankings: Rankings, scores: np.ndarray, positions: np.ndarray, top_k: int) -> Run:
    """
    Names what was found: `scores` of documents, the best first, and `positions`, their rows in the corpus, both of
    shape `(num_queries, num_found)`. A document that is the query itself is left out, unless it is relevant.
    """
    ids, texts = rankings.corpus["doc_id"][:], rankings.corpus["text"]
    row_of = {doc_id: row for row, doc_id in enumerate(ids)}
    run = {}
    columns = rankings.queries["query_id"][:], rankings.queries["query"][:], rankings.positives()
    for query_id, query, relevant, *found in zip(*columns, positions.tolist(), scores.tolist(), strict=True):
        own = row_of.get(query_id)
        if own is not None and (own in relevant or query not in texts[own]):
            own = None
        run[query_id] = dict([(ids[row], score) for row, score in zip(*found, strict=True) if row != own][:top_k])
    return run


def ranking_metrics(
    run: Mapping[str, Mapping[str, float]], qrels: Mapping[str, Mapping[str, int]], *, per_query: bool = False
) -> dict[str, Any]:
    """
    Measures of rankings by pytrec_eval (trec_eval), the values that MTEB and BEIR report. `qrels` are the grades of
    [`relevance`]. Equal scores rank the document with the later id first, and a query without a run found nothing.

    Returns:
        `dict[str, float]`: the means of `ndcg@10`, `mrr@10`, `map` (of all documents found), `recall@1`, `recall@10`
        and `recall@100`, as fractions of 1; with `per_query`, such a dictionary for each query id.
    """
    try:
        import pytrec_eval
    except ImportError as error:
        raise ImportError(
            "Measures of rankings need pytrec_eval: `pip install hf-dse[ranking]` (package pytrec-eval-terrier)."
        ) from error
    found = {query_id: {doc_id: float(score) for doc_id, score in run.get(query_id, {}).items()} for query_id in qrels}
    for query_id, scores in found.items():
        unknown = next((doc_id for doc_id, score in scores.items() if math.isnan(score)), None)
        if unknown is not None:
            raise ValueError(f"The score of document {unknown!r} for query {query_id!r} is NaN.")
    evaluator = pytrec_eval.RelevanceEvaluator(dict(qrels), {"ndcg_cut.10", "recip_rank", "map", "recall.1,10,100"})
    measured = {
        query_id: {
            "ndcg@10": values["ndcg_cut_10"],
            # The reciprocal rank of trec_eval has no limit: below 1 / 10 the rank is beyond 10.
            "mrr@10": values["recip_rank"] if values["recip_rank"] > 1 / 11 else 0.0,
            "map": values["map"],
            **{f"recall@{k}": values[f"recall_{k}"] for k in (1, 10, 100)},
        }
        for query_id, values in evaluator.evaluate(found).items()
    }
    return measured if per_query else mean_metrics(measured)


def mean_metrics(per_query: Mapping[str, Mapping[str, float]]) -> dict[str, float]:
    """The means over the queries."""
    return {name: float(np.mean([values[name] for values in per_query.values()])) for name in RANKING_METRICS}


def bootstrap_interval(
    differences: np.ndarray, *, resamples: int = 10_000, seed: int | np.random.Generator = 0
) -> tuple[float, float]:
    """
    The 95 % percentile bootstrap interval of the mean of paired differences, such as those between two models on the
    same queries. The seed is a number or a generator.
    """
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return float(differences[0]), float(differences[0])
    interval = bootstrap(
        (differences,),
        np.mean,
        n_resamples=resamples,
        batch=max(1, RESAMPLED_VALUES // len(differences)),
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)
