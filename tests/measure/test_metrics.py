# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions and rankings, and intervals of their means."""

import logging
import math
from itertools import permutations

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_dse import compute_metrics_for, make_rankings
from hf_dse.measure.metrics import PearsonSpearman, bootstrap_interval, correlations, level_of, measure_run, relevance


pytest.importorskip("pytrec_eval")


def test_correlations_and_those_without_a_meaning():
    with pytest.raises(ValueError, match="Constant predictions: all 2 are 2.5.*collapsed model"):
        correlations(np.array([2.5, 2.5 + 1e-9]), np.array([1, 2]))
    with pytest.raises(ValueError, match="1 of 3 predictions are NaN or infinite, the first at row 1"):
        correlations(np.array([1, math.nan, 3]), np.array([1, 2, 3]))
    found = correlations(np.array([1, 2, 3, 3]), np.array([1, 2, 4, 3]))
    assert found == pytest.approx({"pearson": 0.9438798, "spearman": 0.9486833})
    metric = PearsonSpearman()
    with pytest.raises(ValueError, match="Constant predictions"):
        metric.compute(predictions=[2.5, 2.5], references=[1, 2])
    # An error leaves no state behind.
    assert metric.compute(predictions=[1, 2, 3, 3], references=[1, 2, 4, 3]) == found


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


def test_bootstrap_interval():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # The interval of the mean of many values is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == (0.25, 0.25)
    # A single value has no interval, not one of width 0.
    assert np.isnan(bootstrap_interval(np.full(1, 0.25))).all()


def test_measures_of_rankings():
    """`test_evaluate.py` compares them with MTEB. The first relevant document of `r` is at rank 11."""
    run = {"q": {"a": 1.0}, "r": {f"d{rank}": -float(rank) for rank in range(1, 12)}}
    found = measure_run(run, {"q": {"a": 1, "b": 1}, "r": {"d11": 1}, "s": {"a": 1}}, per_query=True)
    assert [found[name]["mrr@10"] for name in "qrs"] == [1, 0, 0]
    assert [found[name]["recall@100"] for name in "qrs"] == [0.5, 1, 0]
    assert found["r"]["map"] == pytest.approx(1 / 11)
    with pytest.raises(ValueError, match="A score of the query 'q' is NaN"):
        measure_run({"q": {"a": math.nan}}, {"q": {"a": 1}})


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


def test_a_document_is_as_relevant_as_its_best_passage():
    corpus = {"doc_id": ["x#1", "x#2", "x#3", "y#1"], "text": list("abcd"), "passage_of": ["x", "x", "x", "y"]}
    documents, labels = [[0, 1, 2, 3], [3, 0, 1]], [[1, 2, None, 0], [1, None, 0]]
    columns = {"query_id": ["q", "r"], "query": ["a", "b"], "documents": documents}
    assert relevance(make_rankings({**columns, "labels": labels}, corpus)) == {
        "q": {"x": 2, "y": 0},
        "r": {"y": 1, "x": 0},
    }
    # Of each document the best label has to be a grade.
    relevance(make_rankings({**columns, "labels": [[0.5, 1, None, 0], [1, None, 0]]}, corpus))
    with pytest.raises(ValueError, match="document 'x' for query 'q' is 1.5"):
        relevance(make_rankings({**columns, "labels": [[1, 1.5, None, 0], [1, None, 0]]}, corpus))


@pytest.mark.parametrize("ids", ["abc", "zbc"])
@pytest.mark.parametrize("place", range(3))
def test_copies_of_a_relevant_document_are_relevant(ids, place, warnings):
    """Neither names nor places of copies may move a measure."""
    columns = {"query": ["q", "other"], "documents": [[place, 3], [3]], "labels": [[2, 0], [1]]}
    corpus = {"doc_id": [*ids, "d"], "text": ["Cats purr."] * 3 + ["Dogs bark."]}
    logging.Logger.warning_once.cache_clear()
    grades = relevance(make_rankings(columns, corpus))
    assert "2 documents without a judgement, or with a lower one, have the text of a relevant one" in warnings[-1]
    assert grades == {"q0": {**dict.fromkeys(ids, 2), "d": 0}, "q1": {"d": 1}}
    run = {"q0": dict.fromkeys([*ids, "d"], 1.0), "q1": {"d": 1.0}}
    assert measure_run(run, grades)["ndcg@10"] == 1
    # Copies that are judged in other ways have the best grade; blank texts are none.
    labels, texts = [[0, 1]], {"doc_id": list("abcd"), "text": ["Cats purr."] * 2 + [" "] * 2}
    asked = {"query": ["q"], "documents": [[0, 1]], "labels": labels}
    logging.Logger.warning_once.cache_clear()
    assert relevance(make_rankings(asked, texts)) == {"q0": {"a": 1, "b": 1}}
    assert "1 documents without a judgement, or with a lower one" in warnings[-1]
    assert relevance(make_rankings({**asked, "documents": [[0, 2]]}, texts)) == {"q0": {"a": 0, "c": 1}}
    passages = {"doc_id": list("vwxyz"), "text": ["a", "b", "a", "b", "a"], "passage_of": ["m", "m", "n", "n", "o"]}
    assert relevance(make_rankings({**asked, "documents": [[4, 0]]}, passages)) == {"q0": {"o": 0, "m": 1, "n": 1}}


def test_the_lowest_relevant_grade():
    """As `trec_eval -l`: nDCG has all gains, and the other measures count what is relevant."""
    corpus = {"doc_id": list("abc"), "text": ["one", "two", "three"]}
    columns = {"query": ["q", "r"], "documents": [[0, 1, 2], [0]], "labels": [[1, 2, 3], [1]]}
    rankings = make_rankings(columns, corpus, relevance_threshold=1.5)
    grades, run = relevance(rankings), {"q0": {"a": 3.0, "b": 2.0, "c": 1.0}}
    assert grades == {"q0": {"a": 1, "b": 2, "c": 3}} and level_of(rankings) == 2
    found, all_grades = measure_run(run, grades, level=level_of(rankings)), measure_run(run, grades)
    assert (found["mrr@10"], found["recall@10"], found["recall@1"]) == (0.5, 1, 0) and all_grades["mrr@10"] == 1
    gains = [[grade / math.log2(rank) for rank, grade in enumerate(part, start=2)] for part in ([1, 2, 3], [3, 2, 1])]
    assert found["ndcg@10"] == all_grades["ndcg@10"] == pytest.approx(sum(gains[0]) / sum(gains[1]))
    with pytest.raises(ValueError, match="None of the 2 queries has a relevant document .a label of 4 or more."):
        relevance(make_rankings(columns, corpus, relevance_threshold=4))


@pytest.mark.parametrize("ids", list(permutations(["a", "b", "10", "9"])))
def test_equal_scores_keep_the_order_of_the_run(ids):
    """pytrec_eval alone would rank them by their ids."""
    # A score of float32 that is hardly larger is larger, in the last place of the run too.
    run = {"q": dict(zip(ids, [0.5, 0.5, 0.5, 0.5 + 2**-24], strict=True))}
    found = [measure_run(run, {"q": {name: 1}})["mrr@10"] for name in ids]
    assert found == pytest.approx([1 / 2, 1 / 3, 1 / 4, 1])


def test_many_equal_scores_and_what_is_not_in_the_run():
    run = {"q": {f"d{number}": 0.0 for number in range(150)}}
    judged = {"q": {"d99": 1, "d100": 1, "elsewhere": 1}}
    assert measure_run(run, judged)["recall@100"] == pytest.approx(1 / 3)
    # Queries that were not searched, or found nothing, count 0; those without judgements do not count.
    assert measure_run({"r": {}, "other": {"x": 1.0}}, {"r": {"x": 1}, "s": {"x": 1}})["ndcg@10"] == 0
