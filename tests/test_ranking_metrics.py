# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Measures of rankings: against readable definitions, and at the limits."""

import math

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from hf_dse import ranking_metrics


pytest.importorskip("pytrec_eval")

GRADES = st.sampled_from([-1, 0, 1, 2, 3])
# Few scores, so that there are ties; more documents than 10, so that there are ranks beyond the limits.
SCORES = st.sampled_from([-1.5, 0.0, 0.25, 0.5, 1.0])
DOCUMENTS = st.sampled_from([f"d{number}" for number in range(30)])
QUERY = st.tuples(st.dictionaries(DOCUMENTS, SCORES), st.dictionaries(DOCUMENTS, GRADES, min_size=1))


def reference(scores, grades):
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


@given(st.lists(QUERY, min_size=1, max_size=4))
def test_definitions(queries):
    run = {f"q{number}": scores for number, (scores, _) in enumerate(queries)}
    qrels = {f"q{number}": grades for number, (_, grades) in enumerate(queries)}
    expected = {name: reference(run[name], qrels[name]) for name in qrels if max(qrels[name].values()) > 0}
    if not expected:
        with pytest.raises(ValueError, match="None of the"):
            ranking_metrics(run, qrels)
        return
    found = ranking_metrics(run, qrels, per_query=True)
    assert found.keys() == expected.keys()
    for name, values in expected.items():
        assert found[name] == pytest.approx(values, abs=1e-9)
    means = ranking_metrics(run, qrels)
    for name, value in means.items():
        assert value == pytest.approx(np.mean([values[name] for values in expected.values()]), abs=1e-9)


def test_a_query_that_found_nothing_counts():
    metrics = ranking_metrics({"q": {"a": 1.0}}, {"q": {"a": 1.0}, "r": {"a": 1.0}})
    assert metrics["ndcg@10"] == metrics["recall@100"] == 0.5


def test_unknown_relevance_is_no_judgement():
    run = {"q": {"a": 3.0, "b": 2.0}, "r": {"a": 1.0}}
    metrics = ranking_metrics(run, {"q": {"a": math.nan, "b": 1.0}, "r": {"a": math.nan}}, per_query=True)
    assert metrics.keys() == {"q"}
    assert metrics["q"]["mrr@10"] == 0.5


@pytest.mark.parametrize(
    ("run", "qrels", "message"),
    [
        ({"q": {"a": math.nan}}, {"q": {"a": 1}}, "score of document 'a' for query 'q' is NaN"),
        ({"q": {"a": 1.0}}, {"q": {"a": 0.5}}, "is 0.5: measures of rankings need whole grades"),
        ({"q": {"a": 1.0}}, {}, "None of the 0 queries"),
        ({1: {"a": 1.0}}, {"1": {"a": 1}}, "1 is the id of a query or document, and ids have to be strings"),
        ({"q": {"2": 1.0}}, {"q": {2: 1}}, "2 is the id of a query or document, and ids have to be strings"),
    ],
)
def test_errors(run, qrels, message):
    with pytest.raises(ValueError, match=message):
        ranking_metrics(run, qrels)
