# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The weight of a second score beside the first, BM25 beside the cosine or a reranker, fitted on judged queries."""

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np

from hf_dse.data.rankings import Rankings
from hf_dse.measure.metrics import level_of, measure_run, relevance
from hf_dse.retrieval.index import Index, Run, run_of
from hf_dse.retrieval.options import BM25_WEIGHT


# Weights of BM25 beside the cosine, and shares of a reranker beside the search.
BM25_WEIGHTS = (0.0, 0.05, 0.1, 0.15, 0.2, 0.25, 0.3, 0.35, 0.4, 0.5, 0.6, 0.8, 1.0)
RERANK_WEIGHTS = (0.0, 0.1, 0.2, 0.3, 0.4, 0.5, 0.6, 0.7, 0.8, 0.9, 1.0)
# Fewer judged queries do not tell one weight from another. 200 do not lead the weight of a student of hybrid scores
# away from 0.3, where 0.2 finds 0.4 points more (docs/results.md, What the reranker knows).
FEWEST_QUERIES, MOST_QUERIES = 30, 500
RESAMPLES = 500
ROUNDING = 1e-9


@dataclass(frozen=True)
class Share:
    """
    A `weight` that was fitted, the ends of the 95 % interval of those that are fitted on queries drawn anew, and the
    number of queries. A weight that was chosen has no queries.
    """

    weight: float
    low: float = float("nan")
    high: float = float("nan")
    num_queries: int = 0

    def __str__(self) -> str:
        fitted = f" ({self.low:g} to {self.high:g}, fitted on {self.num_queries} queries)"
        return f"{self.weight:g}{fitted if self.num_queries else ''}"


def fit_share(
    find: Callable[[float], Run],
    weights: Sequence[float],
    default: float,
    judged: Mapping[str, Mapping[str, int]],
    level: int = 1,
) -> Share:
    """
    The weight nearest to the `default` whose mean nDCG@10 for judged queries is within a standard error of that of the
    best weight, so that few queries do not lead far ([Breiman et al.,
    1984](https://doi.org/10.1201/9781315139470)); the default for fewer than 30 queries. `find` is the search with a
    weight.
    """
    if len(judged) < FEWEST_QUERIES:
        return Share(default)
    values = np.array(
        [
            [found["ndcg@10"] for found in measure_run(find(weight), judged, level=level, per_query=True).values()]
            for weight in weights
        ]
    )
    drawn = np.random.default_rng(0).integers(0, len(judged), (RESAMPLES, len(judged)))
    distances = np.abs(np.array(weights) - default)
    chosen = [weights[_choose(values[:, rows], distances)] for rows in drawn]
    low, high = np.quantile(chosen, [0.025, 0.975], method="nearest")
    return Share(weights[_choose(values, distances)], float(low), float(high), len(judged))


def _choose(values: np.ndarray, distances: np.ndarray) -> int:
    """The row nearest to the default that is within a standard error of the best."""
    losses = values[values.mean(axis=1).argmax()] - values
    errors = losses.std(axis=1, ddof=1) / np.sqrt(values.shape[1])
    # One query that gains is one standard error, but for rounding.
    is_near = losses.mean(axis=1) <= errors * (1 + ROUNDING) + ROUNDING
    return int(np.where(is_near, distances, np.inf).argmin())


def fit_bm25(index: Index, rankings: Rankings) -> Share:
    """The best weight of BM25 beside the cosine for judged queries of the corpus of an index."""
    vectors = index.encode_queries(rankings.queries["query"][:])

    def find(weight: float) -> Run:
        return run_of(index.ranked(rankings, 10, weight, vectors=vectors))

    return fit_share(find, BM25_WEIGHTS, BM25_WEIGHT, relevance(rankings), level_of(rankings))


def judged_queries(splits: Mapping[str, Rankings], measured: str | None) -> Rankings | None:
    """
    Judged queries of the validation split, or else of the train split, that search the same corpus as the split to
    measure, if there is one: 500 of them in random order, or all; `None` where there are fewer than 30.
    """
    for name in ("validation", "train"):
        found = splits.get(name)
        if name == measured or found is None:
            continue
        if measured is not None and found.document_ids != splits[measured].document_ids:
            continue
        rows = [row for row, positives in enumerate(found.positives()) if positives]
        if len(rows) >= FEWEST_QUERIES:
            return found.select(np.random.default_rng(0).permutation(rows)[:MOST_QUERIES].tolist())
    return None
