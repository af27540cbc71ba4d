# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of BM25 beside the cosine, fitted on judged queries."""

from dataclasses import replace

import numpy as np
import pytest

from hf_dse import Index, make_rankings
from hf_dse.measure.metrics import measure_run, relevance
from hf_dse.measure.shares import (
    BM25_WEIGHTS,
    FEWEST_QUERIES,
    MOST_QUERIES,
    Share,
    fit_bm25,
    fit_share,
    judged_queries,
)


pytest.importorskip("bm25s")
pytest.importorskip("pytrec_eval")


def judged(number):
    return {f"q{row}": {"right": 1} for row in range(number)}


def find_best(best, number=60):
    """A search whose right document is the farther down, the farther a weight is from the best."""

    def find(weight):
        rank = round(10 * abs(weight - best))
        names = [*(f"wrong {place}" for place in range(rank)), "right"]
        return {query: {name: -float(place) for place, name in enumerate(names)} for query in judged(number)}

    return find


@pytest.mark.parametrize("best", [0.0, 0.3, 0.8])
def test_the_best_weight_is_found(best):
    share = fit_share(find_best(best), [0.0, 0.3, 0.5, 0.8], 0.3, judged(60))
    assert share == Share(best, best, best, 60)
    assert str(share) == f"{best:g} ({best:g} to {best:g}, fitted on 60 queries)" and str(Share(0.3)) == "0.3"


def test_what_few_queries_cannot_tell_stays_at_the_default():
    """One query of 40 is better with another weight."""

    def find(weight):
        return {
            query: {"wrong": 1.0 - (weight == 0.8 and query == "q0"), "right": 0.5 + 0.1 * (query != "q0")}
            for query in judged(40)
        }

    # A single query, and any fewer than 30.
    assert fit_share(find_best(0.8, 1), [0.0, 0.3, 0.8], 0.3, judged(1)) == fit_share(
        find_best(0.8, 29), [0.0, 0.3, 0.8], 0.3, judged(29)
    )
    assert str(fit_share(find_best(0.8, 29), [0.0, 0.3, 0.8], 0.3, judged(29))) == "0.3"
    share = fit_share(find, [0.0, 0.3, 0.8], 0.3, judged(40))
    assert share.weight == 0.3 and (share.low, share.high) == (0.3, 0.8)


@pytest.fixture
def rankings():
    """Queries of a word that one text has, in the words of many."""
    texts = [f"{'cat dog mat house old new'.split()[row % 6]} number {row} sat on it" for row in range(60)]
    rows = list(range(40))
    columns = {"query_id": [f"q{row}" for row in rows], "query": [f"number {row}" for row in rows]}
    return make_rankings({**columns, "documents": [[row] for row in rows], "labels": [[1]] * 40}, {"text": texts})


def test_bm25_is_fitted_to_the_search(rankings, assets):
    index = Index.of(str(assets / "encoder"), rankings, show_progress=False)
    share, qrels = fit_bm25(index, rankings), relevance(rankings)
    values = {weight: measure_run(index.run(rankings, 10, weight), qrels)["ndcg@10"] for weight in BM25_WEIGHTS}
    assert values[share.weight] >= max(values.values()) - 0.05 and values[share.weight] > values[0.0] + 0.2
    assert share.num_queries == 40 and share.low <= share.weight <= share.high


def test_other_judged_queries_of_the_corpus(rankings):
    splits = {"test": rankings.select(range(5)), "train": rankings, "validation": rankings.select(range(5, 40))}
    found = judged_queries(splits, "test")
    assert len(found) == 35 and set(found.queries["query_id"]) <= set(splits["validation"].queries["query_id"])
    # Some of many.
    many = splits | {"validation": rankings.select([*range(40)] * 13)}
    assert len(judged_queries(many, "test")) == MOST_QUERIES
    # Too few of validation, and then of train.
    splits["validation"] = rankings.select(range(5))
    assert len(judged_queries(splits, "test")) == 40
    splits["train"] = rankings.select(range(FEWEST_QUERIES - 1))
    assert judged_queries(splits, "test") is None
    # Another corpus has other weights, and what is measured is not fitted.
    splits = {"test": rankings, "train": replace(rankings.select(range(35)), corpus=rankings.corpus.select(range(50)))}
    assert judged_queries(splits, "test") is None and judged_queries({"train": rankings}, "train") is None
    assert np.isnan(Share(0.3).low)
