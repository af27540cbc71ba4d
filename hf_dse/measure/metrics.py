# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions (scipy, scikit-learn) and of rankings (pytrec_eval), and intervals of their means."""

import math
from collections.abc import Callable, Mapping
from functools import partial
from typing import Any

import datasets
import evaluate
import numpy as np
from transformers import EvalPrediction
from transformers.utils import logging

from hf_dse.common.loading import import_extra
from hf_dse.data.rankings import Rankings
from hf_dse.data.tables import is_filled
from hf_dse.retrieval.sentence_transformer import check_finite


logger = logging.get_logger(__name__)

RANKING_METRICS = ("ndcg@10", "mrr@10", "map", "recall@1", "recall@10", "recall@100")


# Below this ratio of spread to size, predictions differ by rounding errors only.
CONSTANT_SPREAD = 1e-6

CONSTANT_HELP = (
    "Usually this is a collapsed model: lower the learning rate, warm up for longer, or start from a pretrained "
    "encoder instead of random weights."
)


class UndefinedMetricError(ValueError):
    """A metric that has no value for these predictions and labels, such as the correlation of a constant."""


class PearsonSpearman(evaluate.Metric):
    """Pearson and Spearman correlation of predicted and gold similarities, without downloads."""

    # On disk, a metric would keep its file locked after an error of `_compute`.
    def __init__(self, config_name: str | None = None, keep_in_memory: bool = True, **kwargs: Any):
        super().__init__(config_name, keep_in_memory=keep_in_memory, **kwargs)

    def _info(self) -> evaluate.MetricInfo:
        features = datasets.Features({name: datasets.Value("float64") for name in ("predictions", "references")})
        return evaluate.MetricInfo(description=str(self.__doc__), citation="", features=features)

    def _compute(self, predictions: list[float], references: list[float]) -> dict[str, float]:
        return correlations(np.asarray(predictions), np.asarray(references))


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
    return partial(score_logits, problem_type=problem_type, num_labels=num_labels)


def score_logits(prediction: EvalPrediction, problem_type: str, num_labels: int) -> dict[str, float]:
    """The metrics of logits, see [`compute_metrics_for`]."""
    logits, labels = prediction.predictions, np.asarray(prediction.label_ids).reshape(-1)
    # Models that also return hidden states or attentions give a tuple with the logits first.
    logits = np.asarray(logits[0] if isinstance(logits, tuple | list) else logits)
    logits = logits.reshape(len(logits), -1).astype(np.float64)
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


def relevance(rankings: Rankings) -> dict[str, dict[str, int]]:
    """
    The grades of documents by query id. Call it before a corpus is embedded, because it checks the grades. Documents
    with one text have its best grade for a query, as in the judgements "with dupes" of TREC's Deep Learning track.
    """
    ids, copies = rankings.document_ids, _copies(rankings)
    grades: dict[str, dict[str, int]] = {}
    num_added = 0
    columns = (rankings.queries[name][:] for name in ("query_id", "documents", "labels"))
    for query_id, rows, labels in zip(*columns, strict=True):
        known: dict[str, float] = {}
        for row, label in zip(rows, labels, strict=True):
            # A document is as relevant as its best passage.
            if not math.isnan(label):
                known[ids[row]] = max(label, known.get(ids[row], label))
        wrong = next((doc_id for doc_id, label in known.items() if not label.is_integer()), None)
        if wrong is not None:
            raise ValueError(
                f"The relevance of document {wrong!r} for query {query_id!r} is {known[wrong]}: measures of rankings "
                "need whole grades, such as 0, 1 and 2."
            )
        if any(map(rankings.is_relevant, known.values())):
            best = {
                copy: known[name] for name in sorted(known, key=known.__getitem__) for copy in copies.get(name, ())
            }
            num_added += sum(label > max(0, known.get(copy, 0)) for copy, label in best.items())
            known |= {copy: label for copy, label in best.items() if label > 0}
            grades[query_id] = {doc_id: int(label) for doc_id, label in known.items()}
    if not grades:
        raise ValueError(
            f"None of the {len(rankings)} queries has a relevant document (a label {rankings.relevant_labels}): "
            "nothing can be measured."
        )
    if num_added:
        logger.warning_once(
            f"{num_added} documents without a judgement, or with a lower one, have the text of a relevant one, and "
            "count as it does, whatever their ids and order; remove copies from the corpus for the numbers of BEIR."
        )
    return grades


def _copies(rankings: Rankings) -> dict[str, list[str]]:
    """The ids of the documents with the text of a candidate, by its id, where there are several."""
    texts: dict[str, str] = {}
    for name, text in zip(rankings.document_ids, rankings.corpus["text"][:], strict=True):
        # A document is all its passages, in their order.
        texts[name] = f"{texts[name]}\n{text}" if name in texts else text
    names: dict[str, list[str]] = {}
    for name, text in texts.items():
        names.setdefault(text, []).append(name)
    return {name: found for text, found in names.items() if found[1:] and is_filled(text) for name in found}


def level_of(rankings: Rankings) -> int:
    """The lowest grade that is relevant, which [`measure_run`] takes."""
    return math.ceil(rankings.relevance_threshold or 1)


def measure_run(
    run: Mapping[str, Mapping[str, float]],
    qrels: Mapping[str, Mapping[str, int]],
    *,
    level: int = 1,
    per_query: bool = False,
) -> dict[str, Any]:
    """
    The means of `RANKING_METRICS` by pytrec_eval, as MTEB and BEIR report, or the values of each query id. Of equal
    scores the first in the run is first, as in the search; pytrec_eval alone would sort them by their ids. Grades from
    `level` on are relevant; nDCG has the gains of all grades, as in TREC.
    """
    (pytrec_eval,) = import_extra("ranking", "pytrec_eval")
    found = {}
    for query_id in qrels:
        scores = run.get(query_id, {})
        if any(map(math.isnan, scores.values())):
            raise ValueError(f"A score of the query {query_id!r} is NaN.")
        ranked = sorted(scores, key=scores.__getitem__, reverse=True)
        found[query_id] = {doc_id: float(len(ranked) - rank) for rank, doc_id in enumerate(ranked)}
    names = {"ndcg_cut.10", "recip_rank", "map", "recall.1,10,100"}
    evaluator = pytrec_eval.RelevanceEvaluator(dict(qrels), names, level)
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
    if per_query:
        return measured
    return {name: float(np.mean([values[name] for values in measured.values()])) for name in RANKING_METRICS}


def bootstrap_interval(differences: np.ndarray, *, seed: int | np.random.Generator = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of paired differences, which a single one lacks (NaN)."""
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return math.nan, math.nan
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
