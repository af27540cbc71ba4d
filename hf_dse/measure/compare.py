# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches side by side on the same queries: what they find, and what they cost."""

import math
import time
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.common.settings import settings_of
from hf_dse.data.rankings import Rankings
from hf_dse.measure.metrics import bootstrap_interval, level_of, measure_run, relevance
from hf_dse.measure.shares import RERANK_WEIGHTS, Share, fit_bm25, fit_share
from hf_dse.retrieval.blend import blend
from hf_dse.retrieval.bm25 import import_bm25
from hf_dse.retrieval.index import Index, Run, run_of
from hf_dse.retrieval.options import BM25_WEIGHT, RERANK_TOP, RERANK_WEIGHT
from hf_dse.retrieval.sentence_transformer import embed, length_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from hf_dse.retrieval.rerankers import Reranker

logger = logging.get_logger(__name__)

# `recall@100` needs so many documents.
TOP_K = 100
TIMED_QUERIES = 10

# How the name of a search ends whose reranker does not decide alone.
BLENDED = "blended)"

# What is found for a query: the id of a document, its score, and what a reranker reads of it.
Found = dict[str, list[tuple[str, float, str]]]


@dataclass(frozen=True)
class Search:
    """
    A row of a comparison: what was found, by which `model` (`None`: by words alone), in passages of `chunk_size`
    tokens (0: whole texts), with a share of BM25 or not, and in the order of a reranker of the first `rerank_top` or
    not, blended with the search by `rerank_weight`; the last `share` that was fitted or chosen; how many tokens of a
    text it reads (`None`: all), and what it cost on this machine.
    """

    found: Found = field(repr=False)
    model: str | None = None
    chunk_size: int = 0
    bm25_weight: float = 0.0
    rerank_top: int | None = None
    rerank_weight: float | None = None
    share: Share | None = None
    tokens: int | None = None
    query_ms: float = 0.0
    corpus_seconds: float = 0.0

    @property
    def run(self) -> Run:
        return run_of(self.found)

    @property
    def costs(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "query_ms": self.query_ms, "corpus_seconds": self.corpus_seconds}


def compare_searches(
    models: Mapping[str, "SentenceTransformer"],
    splits: Mapping[str, Rankings],
    *,
    fit_on: Mapping[str, Rankings | None] | None = None,
    **options: Any,
) -> dict[str, dict[str, dict[str, Any]]]:
    """
    The metrics of the searches of [`run_searches`] by their names, for each split, with the `share` of BM25 beside the
    cosine, fitted on the queries that `fit_on` has for the split. Each but the first has its `difference` in nDCG@10
    with the ends `low` and `high` of a 95 % interval.
    """
    judged = {split: relevance(rankings) for split, rankings in splits.items()}
    reads = {name: length_of(model, "document") for name, model in models.items()}
    if len(set(reads.values())) > 1:
        read = ", ".join(f"{name} {tokens or 'all'}" for name, tokens in reads.items())
        logger.warning(
            f"The models read different numbers of tokens of a text: {read}. For a fair comparison add "
            f"`--max_length {min(tokens for tokens in reads.values() if tokens)}`."
        )
    compared: dict[str, dict[str, dict[str, Any]]] = {}
    # Splits may share their corpus.
    indexes: dict[Any, tuple[Index, float]] = {}
    for split, rankings in splits.items():
        size = 0 if rankings.has_passages else rankings.chunk_size or 0
        fitted = (fit_on or {}).get(split)
        searches = run_searches(models, rankings, [size], fit_on=fitted, indexes=indexes, **options)
        runs = {name: search.run for name, search in searches.items()}
        found = compare_runs(runs, judged[split], level_of(rankings))
        compared[split] = {
            name: {**metrics, "share": searches[name].share, "tokens": searches[name].tokens}
            for name, metrics in found.items()
        }
    return compared


def run_searches(
    models: Mapping[str, "SentenceTransformer"],
    rankings: Rankings,
    chunk_sizes: Sequence[int],
    *,
    bm25: bool = False,
    bm25_weight: float | None = None,
    fit_on: Rankings | None = None,
    indexes: dict[Any, tuple[Index, float]] | None = None,
    depth: int = 0,
    **options: Any,
) -> dict[str, Search]:
    """
    The searches of each model in each unit by their names: by the similarity, with BM25 where that is the cosine, and
    by BM25 alone. The weight of BM25 is the one that is given, or fitted for each model `fit_on` other judged queries
    of the corpus, or that which the folder of a model has kept, or 0.3.
    """
    if bm25:
        import_bm25()
    results: dict[str, Search] = {}
    indexes = {} if indexes is None else indexes
    for (name, model), size in product(models.items(), chunk_sizes):
        key = name, size, id(rankings.corpus)
        if key not in indexes:
            start = time.perf_counter()
            index = Index.of(model, rankings, size, **options)
            # They are made now.
            _ = index.vectors
            indexes[key] = index, time.perf_counter() - start
        index, seconds = indexes[key]
        unit = f"passages of {size}" if size else "whole texts" if len(chunk_sizes) > 1 else ""
        row = f"{name} ({', '.join(filter(None, (index.similarity, unit)))})"
        length, ms = length_of(model, "document"), _embedding_ms(index, rankings)
        by_model: dict[str, Any] = {"model": name, "tokens": min(size, length or size) if size else length}
        how: dict[str, Any] = {"vectors": index.encode_queries(rankings.queries["query"][:])}
        results[row] = _search(index, rankings, depth, how, ms, corpus_seconds=seconds, **by_model)
        if bm25:
            start = time.perf_counter()
            # They are made now, too.
            _ = index.words
            of_words = time.perf_counter() - start
            words = f"BM25 ({unit})" if unit else "BM25"
            if words not in results:
                results[words] = _search(index, rankings, depth, {"by_words": True}, corpus_seconds=of_words)
            # Dot products have no scale to add BM25 to.
            if index.similarity == "cosine":
                # Both need the index of the words.
                by_model["corpus_seconds"] = seconds + results[words].corpus_seconds
                if bm25_weight is None and fit_on is not None:
                    share = fit_bm25(index, fit_on)
                else:
                    kept = settings_of(model.transformers_model).bm25_weight if bm25_weight is None else bm25_weight
                    share = Share(BM25_WEIGHT if kept is None else kept)
                how["bm25_weight"] = share.weight
                results[f"{row} with BM25"] = _search(index, rankings, depth, how, ms, share=share, **by_model)
    return results


def search_again(search: Search, rankings: Rankings, depth: int, indexes: Mapping[Any, tuple[Index, float]]) -> Search:
    """The same search of a model for other queries of its corpus, in the indexes of [`run_searches`]."""
    index = next(
        index for (name, size, _), (index, _) in indexes.items() if (name, size) == (search.model, search.chunk_size)
    )
    return _search(index, rankings, depth, {"bm25_weight": search.bm25_weight}, model=search.model)


def _search(
    index: Index, rankings: Rankings, depth: int, how: dict[str, Any], ms: float = 0.0, **facts: Any
) -> Search:
    """A search by options of [`Index.ranked`], and other `facts`. The embedding of a query takes `ms`."""
    start = time.perf_counter()
    ranked = index.ranked(rankings, max(TOP_K, depth), **how)
    facts["query_ms"] = ms + 1000 * (time.perf_counter() - start) / len(rankings)
    found = {
        query_id: [(name, score, index.read(place)) for name, score, place in hits]
        for query_id, hits in ranked.items()
    }
    return Search(found, chunk_size=index.chunk_size, bm25_weight=how.get("bm25_weight", 0.0), **facts)


def _embedding_ms(index: Index, rankings: Rankings) -> float:
    """The time to embed a query alone."""
    timed = rankings.queries["query"][:TIMED_QUERIES]
    start = time.perf_counter()
    for query in timed:
        embed(index.model, [query], "query", warn=False, show_progress=False)
    return 1000 * (time.perf_counter() - start) / len(timed)


def rerank_search(
    score: "Reranker",
    name: str,
    rankings: Rankings,
    search: Search,
    tops: Sequence[int] = RERANK_TOP,
    *,
    weight: float | None = None,
    fit_on: tuple[Rankings, Search] | None = None,
    **facts: Any,
) -> Iterator[tuple[str, Search]]:
    """
    Yields the searches of a reranker that orders the first documents of each query, alone and blended with the search,
    by their names. The others follow as they were, and all of a query that the reranker could not read. The weight of
    the reranker is the one that is given, or fitted `fit_on` other judged queries and the same search of them, or 0.5.
    """
    scores, seconds = _score(score, rankings, search, max(tops))
    fitted = None if weight is not None or fit_on is None else _score(score, *fit_on, max(tops))[0]
    which = "both" if search.bm25_weight else "the search"
    for top in tops:
        share = Share(RERANK_WEIGHT if weight is None else weight)
        if fitted is not None and fit_on is not None:
            queries, searched = fit_on
            runs = {one: run_of(_reorder(searched, fitted, top, one)) for one in RERANK_WEIGHTS}
            share = fit_share(runs.__getitem__, RERANK_WEIGHTS, RERANK_WEIGHT, relevance(queries), level_of(queries))
        ms = search.query_ms + 1000 * seconds * float(np.mean([len(row[:top]) for row in scores]))
        options: dict[str, Any] = {"rerank_top": top, "query_ms": ms, **facts}
        for own, ending in ((Share(1.0), ")"), (share, f", {BLENDED}")):
            found = _reorder(search, scores, top, own.weight)
            reranked = replace(search, found=found, rerank_weight=own.weight, share=own, **options)
            yield f"{name} (reranks the top {top} of {which}{ending}", reranked


def _score(score: "Reranker", rankings: Rankings, search: Search, top: int) -> tuple[list[list[float]], float]:
    """The scores of the first documents of each query, NaN for all where one has none, and the seconds for each."""
    texts = [[text for *_, text in hits[:top]] for hits in search.found.values()]
    start = time.perf_counter()
    scores = score(rankings.queries["query"][:], texts)
    scores = [[math.nan] * len(row) if any(map(math.isnan, row)) else row for row in scores]
    return scores, (time.perf_counter() - start) / max(1, sum(map(len, texts)))


def _reorder(search: Search, scores: list[list[float]], top: int, weight: float) -> Found:
    """What was found, its first documents by their scores blended with those of the search."""
    own = [[score for _, score, _ in hits[:top]] for hits in search.found.values()]
    blended = blend([[row[:top] for row in scores], own], [weight, 1 - weight])
    found: Found = {}
    for (query_id, hits), values in zip(search.found.items(), blended, strict=True):
        values = [-float(place) if math.isnan(value) else value for place, value in enumerate(values)]
        first = sorted(zip(hits[:top], values, strict=True), key=lambda pair: -pair[1])
        lowest = min(values, default=0.0)
        rest = [(hit, lowest - place) for place, hit in enumerate(hits[len(first) :], start=1)]
        found[query_id] = [(hit[0], value, hit[2]) for hit, value in (*first, *rest)]
    return found


def compare_runs(
    runs: Mapping[str, Run], judged: Mapping[str, Mapping[str, int]], level: int = 1
) -> dict[str, dict[str, float]]:
    """The metrics of searches on the same queries, and the differences in nDCG@10 to the first one."""
    first, results = next(iter(runs)), {}
    for name, run in runs.items():
        results[name] = {"num_queries": len(judged), **measure_run(run, judged, level=level)}
        if name != first:
            results[name] |= dict(zip(("difference", "low", "high"), gain_of(runs[first], run, judged), strict=True))
    return results


def gain_of(before: Run, after: Run, judged: Mapping[str, Mapping[str, int]]) -> tuple[float, float, float]:
    """The mean difference in nDCG@10 on the same queries, and the ends of its 95 % interval, NaN of a single query."""
    measured = (measure_run(run, judged, per_query=True).values() for run in (before, after))
    first, second = (np.array([values["ndcg@10"] for values in part]) for part in measured)
    return float((second - first).mean()), *bootstrap_interval(second - first)
