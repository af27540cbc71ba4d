# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of pairs, measures of rankings against readable definitions, and bootstrap intervals."""

import math

import evaluate
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from transformers import EvalPrediction

from hf_dse import compute_metrics_for, make_rankings
from hf_dse.data.tasks import PAIR_TASKS
from hf_dse.retrieval.metrics import (
    AccuracyF1,
    PearsonSpearman,
    as_run,
    bootstrap_interval,
    ranking_metrics,
    relevance,
)


pytest.importorskip("pytrec_eval")

GRADES = st.sampled_from([-1, 0, 1, 2, 3])
# Few scores, so that there are ties; more documents than 10, so that there are ranks beyond the limits.
SCORES = st.sampled_from([-1.5, 0.0, 0.25, 0.5, 1.0])
DOCUMENTS = st.sampled_from([f"d{number}" for number in range(30)])
QUERY = st.tuples(st.dictionaries(DOCUMENTS, SCORES), st.dictionaries(DOCUMENTS, GRADES, min_size=1))


def by_hand(scores, grades):
    """The measures of one query, from their definitions."""
    ranked = [doc_id for score, doc_id in sorted(((score, doc_id) for doc_id, score in scores.items()), reverse=True)]
    relevant = {doc_id for doc_id, grade in grades.items() if grade > 0}
    hits = [doc_id in relevant for doc_id in ranked]

    def dcg(gains):
        return sum(gain / math.log2(rank + 1) for rank, gain in enumerate(gains[:10], start=1))

    best = sorted((grades[doc_id] for doc_id in relevant), reverse=True)
    gains = [max(grades.get(doc_id, 0), 0) for doc_id in ranked]
    first = next((rank for rank, hit in enumerate(hits, start=1) if hit), math.inf)
    precisions = [sum(hits[:rank]) / rank for rank, hit in enumerate(hits, start=1) if hit]
    return {
        "ndcg@10": dcg(gains) / dcg(best),
        "mrr@10": 1 / first if first <= 10 else 0.0,
        "map": sum(precisions) / len(relevant),
        **{f"recall@{k}": sum(hits[:k]) / len(relevant) for k in (1, 10, 100)},
    }


@given(st.lists(QUERY.filter(lambda query: max(query[1].values()) > 0), min_size=1, max_size=4))
def test_measures_of_rankings(queries):
    run = {f"q{number}": scores for number, (scores, _) in enumerate(queries)}
    qrels = {f"q{number}": grades for number, (_, grades) in enumerate(queries)}
    found = ranking_metrics(run, qrels, per_query=True)
    assert found.keys() == qrels.keys()
    for name, values in found.items():
        assert values == pytest.approx(by_hand(run[name], qrels[name]), abs=1e-9)
    for name, value in ranking_metrics(run, qrels).items():
        assert value == pytest.approx(np.mean([values[name] for values in found.values()]), abs=1e-9)


def test_a_query_that_found_nothing_counts_and_nan_does_not():
    metrics = ranking_metrics({"q": {"a": 1.0}}, {"q": {"a": 1}, "r": {"a": 1}})
    assert metrics["ndcg@10"] == metrics["recall@100"] == 0.5
    with pytest.raises(ValueError, match="score of document 'a' for query 'q' is NaN"):
        ranking_metrics({"q": {"a": math.nan}}, {"q": {"a": 1}})


def judged(labels):
    columns = {"query_id": ["q", "r"], "query": ["a", "b"], "documents": [[0, 1], [0]], "labels": labels}
    return relevance(make_rankings(columns, {"doc_id": ["x", "y"], "text": ["cat", "dog"]}))


def test_relevance_is_checked_before_anything_is_embedded():
    # Unknown is not judged, and a query without a relevant document has no best ranking.
    assert judged([[2, None], [0]]) == {"q": {"x": 2}}
    with pytest.raises(ValueError, match="document 'y' for query 'q' is 1.667: .* need whole grades"):
        judged([[1, 1.667], [1]])
    with pytest.raises(ValueError, match="None of the 2 queries has a relevant document"):
        judged([[0, None], [0]])


def test_only_the_query_itself_is_left_out():
    corpus = {"doc_id": ["1", "2", "3"], "text": ["Of cats. What purrs?", "Cats purr.", "Planes fly."]}
    queries = {"query_id": ["1", "3"], "query": ["What purrs?", "What flies?"], "documents": [[1], [2]]}
    rankings = make_rankings({**queries, "labels": [[1], [1]]}, corpus)
    scores, positions = np.array([[0.9, 0.5, 0.1]] * 2), np.array([[0, 1, 2], [2, 1, 0]])
    assert as_run(rankings, scores, positions, 2) == {"1": {"2": 0.5, "3": 0.1}, "3": {"3": 0.9, "2": 0.5}}
    # Where ids are numbers of rows, a document may have the id of a query that it answers with its own words.
    rows = {"query": ["Cats", "Planes"], "documents": [[0], [1]], "labels": [[1], [0]]}
    rankings = make_rankings(rows, {"text": ["Cats purr.", "Planes fly.", "Rain."]})
    found = as_run(rankings, scores, positions, 3)
    assert {name: list(ids) for name, ids in found.items()} == {"0": ["0", "1", "2"], "1": ["2", "0"]}


def test_bootstrap_interval(monkeypatch):
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # The interval of the mean of many values is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == bootstrap_interval(np.full(1, 0.25)) == (0.25, 0.25)
    monkeypatch.setattr("hf_dse.retrieval.metrics.RESAMPLED_VALUES", 1000)
    assert bootstrap_interval(differences) == (low, high)


@pytest.mark.parametrize(
    ("predictions", "references", "match"),
    [
        ([2.5, 2.5, 2.5], [1, 2, 3], "Constant predictions: all 3 are 2.5.*collapsed model"),
        ([2.5, 2.5 + 1e-9], [1, 2], "Constant predictions"),
        ([1, 2, 3], [2, 2, 2], "Constant references.*different gold labels"),
        ([1, float("nan"), 3], [1, 2, 3], "1 of 3 predictions are NaN or infinite, the first at row 1"),
        ([1, 2, 3], [1, 2, float("inf")], "1 of 3 references are NaN"),
        ([1], [1], "at least 2 pairs"),
    ],
)
def test_meaningless_correlations_are_errors(predictions, references, match):
    metric = PearsonSpearman()
    with pytest.raises(ValueError, match=match):
        metric.compute(predictions=predictions, references=references)
    # An error leaves no state behind.
    found = metric.compute(predictions=[1, 2, 3, 3], references=[1, 2, 4, 3])
    assert found == pytest.approx({"pearson": 0.9438798, "spearman": 0.9486833})


def test_metrics_are_evaluate_metrics():
    for metric in (PearsonSpearman(), AccuracyF1(), AccuracyF1("macro")):
        assert isinstance(metric, evaluate.Metric)
        metric.add_batch(predictions=[0, 1], references=[0, 1])
        metric.add(prediction=1, reference=0)
        assert len(metric.compute()) == 2
    both = evaluate.combine([AccuracyF1("binary"), AccuracyF1("macro")])
    assert "accuracy_f1_0_f1" in both.compute(predictions=[0, 1, 1], references=[0, 1, 0])


def test_classes():
    assert AccuracyF1().compute(predictions=[1, 1, 0, 0], references=[1, 0, 1, 0]) == {"accuracy": 0.5, "f1": 0.5}
    assert AccuracyF1().compute(predictions=[0, 0], references=[0, 0]) == {"accuracy": 1.0, "f1": 0.0}
    with pytest.raises(ValueError, match="Constant predictions: all 3 are class 1"):
        AccuracyF1().compute(predictions=[1, 1, 1], references=[0, 1, 1])
    with pytest.raises(ValueError, match="'micro'.*'binary' or 'macro'"):
        AccuracyF1("micro")


def compute(task, logits, labels, num_labels=None):
    prediction = EvalPrediction(predictions=np.array(logits, dtype=np.float32), label_ids=np.array(labels))
    return compute_metrics_for(task, num_labels)(prediction)


def test_compute_metrics_for_tasks():
    for task in ("regression", "stsb", PAIR_TASKS["stsb"]):
        found = compute(task, [[0.0], [1.0], [2.0]], [0.0, 2.0, 4.0])
        assert found == pytest.approx({"pearson": 1.0, "spearman": 1.0})
    one = compute("mrpc", [[-1.0], [0.5], [2.0]], [0, 1, 0])
    two = compute("mrpc", [[1.0, 0.0], [0.0, 0.5], [1.0, 3.0]], [0, 1, 0])
    assert one == two == {"accuracy": pytest.approx(2 / 3), "f1": pytest.approx(2 / 3)}
    logits = [[3, 1, 0], [0, 2, 1], [0, 1, 2], [0, 1, 2]]
    assert compute("mnli", logits, [0, 1, 1, 2])["f1"] == pytest.approx(7 / 9)
    assert compute("single_label_classification", logits, [0, 1, 1, 2], 3)["accuracy"] == 0.75
    # In a training, one class alone is not an error.
    assert compute("mrpc", [[1.0], [2.0], [3.0]], [1, 1, 0])["accuracy"] == pytest.approx(2 / 3)
    prediction = EvalPrediction(predictions=(np.array([[0.0], [1.0]]), np.zeros((2, 3))), label_ids=np.array([0, 1]))
    assert compute_metrics_for("regression")(prediction)["pearson"] == 1.0


@pytest.mark.parametrize(
    ("task", "logits", "labels", "match"),
    [
        ("regression", [[1, 2], [2, 1]], [0, 1], "2 logits per pair.*needs 1"),
        ("mrpc", [[1, 2, 3], [2, 1, 3]], [0, 1], "3 logits per pair.*needs 1 or 2"),
        ("mrpc", [[1.0], [1.0]], [0, 1], "Constant predictions: all 2 pairs have the same logits"),
        ("mrpc", [[np.nan], [1.0]], [0, 1], "1 of 2 predictions are NaN"),
        ("mrpc", [[-1.0], [1.0]], [0, -100], r"0 to 1, but these occur too: \[-100\]"),
        ("cola", [[1.0]], [1], "Unknown task or problem type 'cola'.*stsb"),
        ("single_label_classification", [[1.0]], [1], "needs num_labels of at least 2, got None"),
    ],
)
def test_errors_of_compute_metrics(task, logits, labels, match):
    with pytest.raises(ValueError, match=match):
        compute(task, logits, labels)
