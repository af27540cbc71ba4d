# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches side by side on the same queries: what they find, and what they cost."""

import math
import time
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.data.rankings import Rankings
from hf_dse.retrieval.arguments import BM25, BM25_WEIGHT, RERANK_TOP, WITH_BM25
from hf_dse.retrieval.bm25 import Bm25Index, bm25_scores, import_bm25
from hf_dse.retrieval.evaluation import TOP_K, embed_corpus, find_documents
from hf_dse.retrieval.metrics import Run, as_run, bootstrap_interval, ranking_metrics, relevance
from hf_dse.retrieval.sentence_transformer import embed, length_of, similarity_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from hf_dse.retrieval.search import Reranker

logger = logging.get_logger(__name__)

# Within the name of a search by a reranker.
RERANKS = " (reranks the top "
# Queries that are embedded one at a time to measure it.
TIMED_QUERIES = 10


@dataclass(frozen=True)
class Search:
    """
    What a search found, by which model, how many tokens of a text it reads (`None`: all), and what it cost on this
    machine.
    """

    run: Run
    model: str | None = None
    tokens: int | None = None
    query_ms: float = 0.0
    corpus_seconds: float = 0.0

    @property
    def costs(self) -> dict[str, Any]:
        return {"tokens": self.tokens, "query_ms": self.query_ms, "corpus_seconds": self.corpus_seconds}


def compare_searches(
    models: Mapping[str, "SentenceTransformer"], splits: Mapping[str, Rankings], **options: Any
) -> dict[str, dict[str, dict[str, Any]]]:
    """
    The metrics of the searches of [`run_searches`] by their names, for each split. Each but the first has its
    `difference` in nDCG@10 with the ends `low` and `high` of a 95 % interval.
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
    for split, searches in run_searches(models, splits, **options).items():
        found = compare_runs({name: search.run for name, search in searches.items()}, judged[split])
        compared[split] = {name: {**metrics, "tokens": searches[name].tokens} for name, metrics in found.items()}
    return compared


def run_searches(
    models: Mapping[str, "SentenceTransformer"],
    splits: Mapping[str, Rankings],
    *,
    bm25: bool = False,
    bm25_weight: float = BM25_WEIGHT,
    reranker: "Reranker | None" = None,
    reranker_name: str = "reranker",
    reranker_tokens: int | None = None,
    rerank_top: Sequence[int] = RERANK_TOP,
    chunk_size: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> dict[str, dict[str, Search]]:
    """
    The searches of each split by their names: those of each model, with BM25 where it compares by the cosine, BM25,
    and the reranker of the best of the first model's last search.
    """
    if bm25:
        import_bm25()
    depth = max(TOP_K, *rerank_top)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    results: dict[str, dict[str, Search]] = {split: {} for split in splits}
    for name, model in models.items():
        similarity, tokens = similarity_of(model), None if chunk_size else length_of(model, "document")
        find = partial(find_documents, cosine=similarity == "cosine", device=model.device)
        row = f"{name} ({similarity}{'' if chunk_size is None else ', best of chunks'})"
        # Splits may share their corpus.
        corpora: dict[int, tuple[Any, float]] = {}
        for split, rankings in splits.items():
            key, found, queries = id(rankings.corpus), results[split], rankings.queries["query"][:]
            if key not in corpora:
                start = time.perf_counter()
                embedded = embed_corpus(model, rankings, chunk_size, **options)
                corpora[key] = embedded, time.perf_counter() - start
            (texts, documents, passages), seconds = corpora[key]
            vectors, ms = embed(model, queries, "query", **options), _embedding_ms(model, queries)
            start = time.perf_counter()
            run = find(rankings, vectors, texts, documents, depth)
            found[row] = last = Search(run, name, tokens, ms + _ms_each(start, queries), seconds)
            if bm25 and BM25 not in found:
                found[BM25] = _bm25(rankings, depth)
            # Dot products have no scale to add BM25 to.
            if bm25 and similarity == "cosine":
                added = bm25_scores(queries, passages, bm25_weight, documents)
                start = time.perf_counter()
                run = find(rankings, vectors, texts, documents, depth, added_scores=added)
                # Both need the index of the words.
                seconds += found[BM25].corpus_seconds
                found[row + WITH_BM25] = last = Search(run, name, tokens, ms + _ms_each(start, queries), seconds)
            if reranker is not None and name == next(iter(models)):
                which = "both" if last.run is not found[row].run else "the search"
                for top, search in _rerank(reranker, rankings, last, rerank_top, reranker_tokens).items():
                    found[f"{reranker_name}{RERANKS}{top} of {which})"] = search
    return results


def _ms_each(start: float, queries: Sequence[str]) -> float:
    return 1000 * (time.perf_counter() - start) / len(queries)


def _embedding_ms(model: "SentenceTransformer", queries: Sequence[str]) -> float:
    """The time to embed a query alone."""
    timed = queries[:TIMED_QUERIES]
    start = time.perf_counter()
    for query in timed:
        embed(model, [query], "query", warn=False, show_progress=False)
    return _ms_each(start, timed)


def _bm25(rankings: Rankings, depth: int) -> Search:
    queries, start = rankings.queries["query"][:], time.perf_counter()
    index = Bm25Index(rankings.corpus["text"][:])
    seconds, start = time.perf_counter() - start, time.perf_counter()
    run = as_run(rankings, *index.search(queries, depth + 1), depth)
    return Search(run, None, None, _ms_each(start, queries), seconds)


def _rerank(
    score: "Reranker", rankings: Rankings, search: Search, tops: Sequence[int], tokens: int | None
) -> dict[int, Search]:
    """
    The searches of a reranker that orders the first documents of each query. The others follow as they were, and all
    of a query that the reranker could not read.
    """
    text_of = dict(zip(rankings.corpus["doc_id"][:], rankings.corpus["text"][:], strict=True))
    ranked = {query_id: sorted(found, key=found.__getitem__, reverse=True) for query_id, found in search.run.items()}
    texts = [[text_of[doc_id] for doc_id in found[: max(tops)]] for found in ranked.values()]
    start = time.perf_counter()
    scores = score(rankings.queries["query"][:], texts)
    scores = [[-float(place) for place in range(len(row))] if any(map(math.isnan, row)) else row for row in scores]
    ms_each = 1000 * (time.perf_counter() - start) / max(1, sum(map(len, texts)))
    results = {}
    for top in tops:
        run: Run = {}
        for (query_id, found), values in zip(ranked.items(), scores, strict=True):
            first = values[:top]
            rest = [min(first, default=0.0) - place for place in range(1, len(found) - len(first) + 1)]
            run[query_id] = dict(zip(found, [*first, *rest], strict=True))
        query_ms = search.query_ms + ms_each * float(np.mean([len(found[:top]) for found in texts]))
        results[top] = Search(run, search.model, tokens, query_ms, search.corpus_seconds)
    return results


def compare_runs(runs: Mapping[str, Run], judged: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """The metrics of searches on the same queries, and the differences in nDCG@10 to the first one."""
    first, results = next(iter(runs)), {}
    for name, run in runs.items():
        results[name] = {"num_queries": len(judged), **ranking_metrics(run, judged)}
        if name != first:
            results[name] |= dict(zip(("difference", "low", "high"), gain_of(runs[first], run, judged), strict=True))
    return results


def gain_of(before: Run, after: Run, judged: Mapping[str, Mapping[str, int]]) -> tuple[float, float, float]:
    """The mean difference in nDCG@10 on the same queries, and the ends of its 95 % interval."""
    measured = (ranking_metrics(run, judged, per_query=True).values() for run in (before, after))
    first, second = (np.array([values["ndcg@10"] for values in part]) for part in measured)
    return float((second - first).mean()), *bootstrap_interval(second - first)
