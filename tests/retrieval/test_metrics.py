# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of pairs, measures of rankings, and bootstrap intervals."""

import math

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_dse import compute_metrics_for, make_rankings
from hf_dse.retrieval.metrics import PearsonSpearman, as_run, bootstrap_interval, ranking_metrics, relevance


pytest.importorskip("pytrec_eval")


def test_measures_of_rankings():
    """`test_evaluation.py` compares them with MTEB. The first relevant document of `r` is at rank 11."""
    run = {"q": {"a": 1.0}, "r": {f"d{rank}": -float(rank) for rank in range(1, 12)}}
    found = ranking_metrics(run, {"q": {"a": 1, "b": 1}, "r": {"d11": 1}, "s": {"a": 1}}, per_query=True)
    assert [found[name]["mrr@10"] for name in "qrs"] == [1, 0, 0]
    assert [found[name]["recall@100"] for name in "qrs"] == [0.5, 1, 0]
    assert found["r"]["map"] == pytest.approx(1 / 11)
    with pytest.raises(ValueError, match="A score of the query 'q' is NaN"):
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
    # Without ids, a document that begins with a query of the same row is not the query itself.
    rows = {"query": ["Cats", "Planes"], "documents": [[0], [1]], "labels": [[1], [0]]}
    rankings = make_rankings(rows, {"text": ["Cats purr.", "Planes fly.", "Rain."]})
    found = as_run(rankings, scores, positions, 3)
    assert {name: list(ids) for name, ids in found.items()} == {"q0": ["0", "1", "2"], "q1": ["2", "1", "0"]}


def test_bootstrap_interval():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # The interval of the mean of many values is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == bootstrap_interval(np.full(1, 0.25)) == (0.25, 0.25)


def test_correlations_and_those_without_a_meaning():
    metric = PearsonSpearman()
    with pytest.raises(ValueError, match="Constant predictions: all 2 are 2.5.*collapsed model"):
        metric.compute(predictions=[2.5, 2.5 + 1e-9], references=[1, 2])
    with pytest.raises(ValueError, match="1 of 3 predictions are NaN or infinite, the first at row 1"):
        metric.compute(predictions=[1, math.nan, 3], references=[1, 2, 3])
    # An error leaves no state behind.
    found = metric.compute(predictions=[1, 2, 3, 3], references=[1, 2, 4, 3])
    assert found == pytest.approx({"pearson": 0.9438798, "spearman": 0.9486833})


def compute(num_labels, logits, labels):
    kind = "regression" if num_labels == 1 else "single_label_classification"
    prediction = EvalPrediction(predictions=np.array(logits, dtype=np.float32), label_ids=np.array(labels))
    return compute_metrics_for(kind, num_labels)(prediction)


def test_metrics_of_logits():
    one = compute(2, [[-1.0], [0.5], [2.0], [-1.0]], [0, 1, 0, 1])
    two = compute(2, [[1.0, 0.0], [0.0, 0.5], [1.0, 3.0], [1.0, 0.0]], [0, 1, 0, 1])
    assert one == two == {"accuracy": 0.5, "f1": 0.5}
    # The mean of the F1 of the classes: 2 / 3, 1 and 0.
    three = compute(3, [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]], [0, 2, 1, 1])
    assert three == {"accuracy": 0.75, "f1": pytest.approx(5 / 9)}
    with pytest.raises(ValueError, match="2 logits per pair.*needs 1"):
        compute(1, [[1, 2], [2, 1]], [0, 1])
    with pytest.raises(ValueError, match=r"0 to 1, but these occur too: \[-100\]"):
        compute(2, [[-1.0], [1.0]], [0, -100])
