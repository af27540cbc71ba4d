# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The gain to expect for a task: between the search that needs no training and the reranker beside it, the ceiling.
"""

from collections.abc import Sequence
from dataclasses import dataclass
from functools import partial
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.common.loading import loading_options, named
from hf_dse.common.options import check_at_least
from hf_dse.data.options import DataArguments
from hf_dse.data.ranking_files import choose_split, load_rankings, to_arguments, to_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.measure.compare import (
    BLENDED,
    Search,
    compare_runs,
    gain_of,
    rerank_search,
    run_searches,
    search_again,
)
from hf_dse.measure.metrics import level_of, measure_run, relevance
from hf_dse.measure.shares import judged_queries
from hf_dse.retrieval.options import RERANK_TOP, check_reranking
from hf_dse.retrieval.rerankers import limit_of, load_reranker, rerank
from hf_dse.retrieval.sentence_transformer import length_of, limit_length, to_sentence_transformer


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)

# An interval of fewer queries means nothing.
FEWEST_QUERIES = 10
# Judged queries on which the weight of a reranker is fitted, which has to read texts for them.
READ_QUERIES = 200


@dataclass(frozen=True)
class Assessment:
    """
    The result of [`assess`]; `gain` is the difference in nDCG@10 and the ends of its 95 % interval, NaN for a single
    query, which has none.
    """

    searches: dict[str, dict[str, Any]]
    found: dict[str, Search]
    best: str
    unit: str = ""
    ceiling: str | None = None
    gain: tuple[float, float, float] | None = None

    @property
    def pays(self) -> bool:
        """Whether the reranker is better than all else by more than chance: only then is there something to distil."""
        return self.gain is not None and self.gain[1] > 0 and self.num_queries >= FEWEST_QUERIES

    def shares_of_ceiling(self) -> dict[str, float]:
        """
        For each other model, which part it has of what the reranker adds to the first model, all by their best search:
        (the model - the first) / (the ceiling - the first), in nDCG@10. Empty without a reranker that adds something.
        """
        best: dict[str, float] = {}
        for name, search in self.found.items():
            if search.model is not None and search.rerank_top is None:
                best[search.model] = max(best.get(search.model, 0.0), self.searches[name]["ndcg@10"])
        first, *others = best
        gain = 0.0 if self.ceiling is None else self.searches[self.ceiling]["ndcg@10"] - best[first]
        return {name: (best[name] - best[first]) / gain for name in others} if gain > 0 else {}

    @property
    def num_queries(self) -> int:
        """The judged queries that were searched."""
        return self.searches[self.best]["num_queries"]

    def __str__(self) -> str:
        values = {name: 100 * self.searches[name]["ndcg@10"] for name in self.found}
        best = f"{self.best}, nDCG@10 {values[self.best]:.1f}"
        highest = max(
            (name for name, search in self.found.items() if search.rerank_top is None), key=values.__getitem__
        )
        if values[highest] > values[self.best]:
            best += f" ({highest} has {values[highest]:.1f}, which may be chance)"
        if self.gain is None:
            return f"The best without a reranker is {best}."
        number = self.num_queries
        if number == 1:
            gain = f"{100 * self.gain[0]:+.1f} points, 1 query, which has no interval"
        else:
            gain = "{:+.1f} points, 95 % interval {:+.1f} to {:+.1f}".format(*(100 * value for value in self.gain))
            gain += f", {number} queries"
        if number < FEWEST_QUERIES:
            return (
                f"The judged queries are too few to tell whether the reranker is better ({gain}): judge 50, or more."
            )
        if self.pays:
            return f"Distil: the reranker is better ({gain}) than the best without it, {best}."
        return f"There is nothing to distil from this reranker: it is not clearly better ({gain}) than {best}."


def assess(
    model: "SentenceTransformer | str | PathLike",
    data: Rankings | DataArguments | str | PathLike,
    *,
    split: str | None = None,
    fit_on: Rankings | None = None,
    reranker: "CrossEncoder | str | PathLike | None" = None,
    compare_with: Sequence["SentenceTransformer | str | PathLike"] = (),
    chunk_size: int | None = None,
    rerank_top: Sequence[int] | None = None,
    bm25_weight: float | None = None,
    rerank_weight: float | None = None,
    windows: str = "first",
    reranker_max_length: int | None = None,
    max_length: int | None = None,
    max_queries: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> Assessment:
    """
    Tells whether there is something to distil: compares a model, BM25, both together, other models, and the reranker
    on the best documents of both, alone and blended with their scores. The last is the ceiling of what its student can
    reach. All embedding models read as many tokens of a text as the one that reads the fewest; the reranker has its
    own limit for a pair. The weights of BM25, for each model, and of the reranker are fitted on 500 and 200 judged
    queries of another split of the corpus, validation or else train, where there are at least 30.

    Args:
        model (`SentenceTransformer` or `str`):
            The model to search with, or its folder or Hub id.
        data ([`Rankings`], [`DataArguments`] or `str`):
            Judged queries and their corpus, or their name, as [`load_rankings`] reads them; or those that
            [`make_queries`] makes.
        split (`str`, *optional*):
            The split of named data. Defaults to test, or else validation.
        fit_on ([`Rankings`], *optional*):
            Judged queries of the same corpus to fit the weights on. Defaults to those of another split of named data.
        reranker (`CrossEncoder` or `str`, *optional*):
            The reranker, or its folder or Hub id.
        compare_with (`Sequence`, *optional*):
            Other models, such as a student.
        chunk_size (`int`, *optional*):
            Compare passages of at most so many tokens with whole texts; 0: whole texts alone. Defaults to 128 for a
            folder of files and to 0 for other data.
        rerank_top (`Sequence[int]`, *optional*):
            How many documents of a query the reranker reads. Defaults to 20 and 100.
        bm25_weight (`float`, *optional*):
            Weight of BM25 beside the cosine, see `Index.search`. Defaults to the fitted one, else to that which the
            folder of a model has kept, else to 0.3.
        rerank_weight (`float`, *optional*):
            Share of the reranker's score beside the search's, see `Index.search`. Defaults to the fitted one, else to
            0.5.
        windows (`str`, *optional*, defaults to `"first"`):
            How the reranker reads longer documents: the `"first"` window, or the `"best"` score of all windows.
        reranker_max_length (`int`, *optional*):
            Maximum number of tokens of a query with a document. Defaults to the limit of the reranker.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text. Defaults to the least that an embedding model reads.
        max_queries (`int`, *optional*):
            Draw so many of the judged queries. Defaults to all.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.
        loading (*optional*):
            `trust_remote_code`, `dtype`, `device` and `backend` of models that are loaded, see
            [`to_sentence_transformer`]. The `dtype` defaults to `"auto"`.

    Returns:
        `Assessment`: `searches`, the metrics and costs of each by its name; `found`, what each found, with its
        `model`, `chunk_size`, `bm25_weight` and `rerank_weight`; `best`, the name of the best without the reranker;
        the `unit` of the corpus; with a reranker `ceiling`, the best search with it, and the `gain` over `best` with
        its interval. `pays` tells whether there is something to distil, and `str` says it.

    Example:

    ```python
    >>> from hf_dse import assess, make_rankings

    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> queries = {"query": ["How do planes fly?", "Which animal purrs?"], "documents": [[0], [1]]}
    >>> rankings = make_rankings({**queries, "labels": [[1], [1]]}, corpus)
    >>> found = assess("sentence-transformers/all-MiniLM-L6-v2", rankings, show_progress=False)
    >>> found.searches["BM25"]["ndcg@10"]
    1.0
    ```
    """
    # One in the place of several; a text has a method `encode`, as a model has.
    is_one = isinstance(compare_with, PathLike) or hasattr(compare_with, "encode")
    others: list[Any] = [compare_with] if is_one else [*compare_with]
    rerank_top = [rerank_top] if isinstance(rerank_top, int) else rerank_top
    loading = loading_options("assess", loading, model, reranker, *others)
    reading = {"reranker_max_length": reranker_max_length, "windows": None if windows == "first" else windows}
    check_reranking(reranker, rerank_top=rerank_top, rerank_weight=rerank_weight, **reading)
    rerank_top = RERANK_TOP if rerank_top is None else rerank_top
    check_at_least(1, max_queries=max_queries, max_length=max_length, rerank_top=min(rerank_top, default=0))
    if not isinstance(data, Rankings):
        splits = load_rankings(to_arguments(data, chunk_size=chunk_size))
        split = split or choose_split(splits)
        if split not in splits:
            raise ValueError(f"There is no split {split!r}, only {', '.join(splits)}.")
        data, fit_on = splits[split], fit_on or judged_queries(splits, split)
        chunk_size = None
    rankings = to_rankings(data, None, chunk_size)
    judged = relevance(rankings)
    rows = [row for row, query_id in enumerate(rankings.queries["query_id"][:]) if query_id in judged]
    rankings = rankings.select(sorted(np.random.default_rng(0).permutation(rows)[:max_queries].tolist()))
    judged = {query_id: judged[query_id] for query_id in rankings.queries["query_id"][:]}
    models: dict[str, SentenceTransformer] = {}
    for given in (model, *others):
        name = fspath(given) if isinstance(given, str | PathLike) else f"model {len(models) + 1}"
        models[name] = to_sentence_transformer(given, **named(given, loading))
    limit = max_length or min(
        filter(None, (length_of(loaded, "document") for loaded in models.values())), default=None
    )
    if limit is not None:
        for loaded in models.values():
            # A query is as long as in a search.
            limit_length(loaded, limit, queries=max_length is not None)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    cross_encoder = None if reranker is None else load_reranker(reranker, **named(reranker, loading))
    # Whole texts too, where passages are searched.
    sizes = [0] if rankings.has_passages else list(dict.fromkeys((0, rankings.chunk_size or 0)))
    indexes: dict[Any, Any] = {}
    how: dict[str, Any] = {"bm25": True, "bm25_weight": bm25_weight, "indexes": indexes}
    how["depth"] = 0 if cross_encoder is None else max(rerank_top)
    found = run_searches(models, rankings, sizes, fit_on=fit_on, **how, **options)

    def ndcg_of(name: str) -> float:
        return measure_run(found[name].run, judged)["ndcg@10"]

    first = next(iter(models))
    own = [name for name, search in found.items() if search.model in (first, None)]
    of_others = [name for name in found if name not in own]
    reranked: list[str] = []
    if cross_encoder is not None:
        # What it orders is the best search of the first model, with BM25 where there is one.
        of_first = [name for name in own if found[name].model == first]
        mixed = [name for name in of_first if found[name].bm25_weight] or of_first
        score = partial(rerank, cross_encoder, windows=windows, max_length=reranker_max_length, **options)
        called = fspath(reranker) if isinstance(reranker, str | PathLike) else "reranker"
        limited = limit_of(cross_encoder, reranker_max_length)
        tokens = limited if limited < 10**9 else None
        searched = found[max(mixed, key=ndcg_of)]
        fitted = None
        if fit_on is not None and rerank_weight is None:
            read = fit_on.select(range(min(len(fit_on), READ_QUERIES)))
            fitted = read, search_again(searched, read, max(rerank_top), indexes)
            logger.info(
                f"The reranker also reads the texts that {len(read)} other judged queries find, to fit its share: "
                "`--rerank_weight 0.5` leaves that out."
            )
        blending: dict[str, Any] = {"weight": rerank_weight, "fit_on": fitted, "tokens": tokens}
        orders = dict(rerank_search(score, called, rankings, searched, rerank_top, **blending))
        found = found | orders
        # The bare order may throw away what the search knew.
        reranked = [name for name in orders if name.endswith(BLENDED)]
    runs = {name: search.run for name, search in found.items()}
    compared = compare_runs(runs, judged, level_of(rankings))
    searches = {name: {**values, "share": found[name].share, **found[name].costs} for name, values in compared.items()}
    best = max(own, key=ndcg_of)
    if of_others and gain_of(runs[best], runs[(other := max(of_others, key=ndcg_of))], judged)[1] > 0:
        best = other
    ceiling = max(reranked, key=ndcg_of, default=None)
    gain = gain_of(runs[best], runs[ceiling], judged) if ceiling else None
    # The last index has the passages, if there are any.
    return Assessment(searches, found, best, list(indexes.values())[-1][0].unit, ceiling, gain)
