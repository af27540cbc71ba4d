# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Comparison of the search by a model with that by BM25, other encoders and a reranker."""

from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.data.rankings import Rankings, make_rankings
from hf_dse.evaluation.arguments import ComparisonArguments
from hf_dse.evaluation.retrieval import TOP_K, embed_splits, find_documents, mean_metrics
from hf_dse.inference.arguments import ChunkArguments, ModelArguments, SizeArguments
from hf_dse.inference.loading import load_model
from hf_dse.inference.search import similarity_of
from hf_dse.metrics import Run, as_run, bootstrap_interval, ranking_metrics, relevance
from hf_dse.mining.bm25 import bm25_scores, bm25_search, import_bm25
from hf_dse.teacher.rerankers import load_reranker
from hf_dse.teacher.score_candidates import score_candidates


if TYPE_CHECKING:
    from hf_dse.teacher.rerankers import Teacher

logger = logging.get_logger(__name__)

# Ends the name of a search by both.
WITH_BM25 = " with BM25"


def compare_searches(
    model_args: ModelArguments,
    args: ComparisonArguments,
    chunk_args: ChunkArguments,
    splits: Mapping[str, Rankings],
    size_args: SizeArguments | None = None,
) -> dict[str, dict[str, dict[str, float]]]:
    """
    Evaluates a model by the search in a corpus, and what it is compared with on the same queries.

    Args:
        model_args ([`ModelArguments`]):
            The model. Other encoders run with the same options.
        args ([`ComparisonArguments`]):
            What it is compared with.
        chunk_args ([`ChunkArguments`]):
            Whether encoders make a vector for each chunk of a document.
        splits (`Mapping[str, Rankings]`):
            The queries and the corpus of each split.
        size_args ([`SizeArguments`], *optional*):
            How large the vectors are, those of the other encoders too.

    Returns:
        `dict[str, dict[str, dict[str, float]]]`: for each split the metrics of each search, as [`evaluate_retrieval`]
        returns them, the model first. The names tell how vectors are compared. For BM25 there are two searches: BM25
        alone, and the cosine of the model with BM25 ([`bm25_scores`]), which a model for dot products does not have.
        All but the first also have their `difference` in nDCG@10 to the model, and the ends `low` and `high` of its
        95 % interval, the bootstrap over the queries ([`bootstrap_interval`]).

    Raises:
        `ValueError`: if a model scores pairs of texts, or as [`evaluate_retrieval`].
        `ImportError`: for BM25 without its packages.
    """
    if args.bm25:
        import_bm25()
    if args.rerank is not None:
        source: dict[str, Any] = {"dtype": model_args.dtype, "trust_remote_code": model_args.trust_remote_code}
        reranker = load_reranker(args.rerank, device=model_args.device, **source)
    size_args = size_args or SizeArguments()
    kinds = [f"best of {'contextual ' if chunk_args.contextual else ''}chunks"] if chunk_args.chunks else []
    sizes = [] if size_args.truncate_dim is None else [f"{size_args.truncate_dim} numbers"]
    sizes += [] if size_args.precision == "float32" else [size_args.precision]
    # The same for all rows, which are compared by the mean average precision too.
    depth = TOP_K if args.rerank is None else max(TOP_K, args.rerank_top)
    runs: dict[str, dict[str, Run]] = {split: {} for split in splits}
    with_bm25: dict[str, dict[str, Run]] = {split: {} for split in splits}
    for name in dict.fromkeys([model_args.model_name_or_path, *args.compare_with]):
        # A revision is that of the model.
        revision = model_args.model_revision if name == model_args.model_name_or_path else "main"
        model, tokenizer = load_model(replace(model_args, model_name_or_path=name, model_revision=revision))
        options: dict[str, Any] = {"batch_size": model_args.batch_size, "max_length": model_args.max_length}
        options |= {"truncate_dim": size_args.truncate_dim, "precision": size_args.precision, **asdict(chunk_args)}
        similarity = similarity_of(model)
        has_both = args.bm25 and args.bm25_weight > 0 and name == model_args.model_name_or_path
        if has_both and similarity == "dot":
            logger.warning(f"{name} is made for dot products, which have no scale to add BM25 to: no row with both.")
            has_both = False
        row = f"{name} ({', '.join([similarity, *kinds, *sizes])})"
        for split, embedded, texts in embed_splits(model, tokenizer, splits, **options):
            find = partial(find_documents, model, splits[split], *embedded)
            runs[split][row] = find(depth)
            if has_both:
                groups = embedded[2].tolist() if chunk_args.chunks else None
                added_scores = bm25_scores(_texts(splits[split])[0], texts, args.bm25_weight, groups)
                with_bm25[split][row + WITH_BM25] = find(depth, added_scores=added_scores)
    for split, rankings in splits.items():
        own = next(iter(runs[split].values()))
        if args.bm25:
            runs[split]["BM25"] = as_run(
                rankings, *bm25_search(*_texts(rankings), depth + 1, show_progress=True), depth
            )
            runs[split] |= with_bm25[split]
        if args.rerank is not None:
            name = f"{args.rerank} (reranks the top {args.rerank_top})"
            # All of a document, as a search with a reranker reads it.
            options = {"batch_size": model_args.batch_size, "windows": "best"}
            runs[split][name] = rerank(reranker, rankings, own, args.rerank_top, **options)
    return {split: compare_runs(runs[split], rankings) for split, rankings in splits.items()}


def _texts(rankings: Rankings) -> tuple[list[str], list[str]]:
    """The queries and the documents."""
    return rankings.queries["query"][:], rankings.corpus["text"][:]


def rerank(teacher: "Teacher", rankings: Rankings, run: Run, top_n: int, **options: Any) -> Run:
    """
    Ranks the first documents of each query again by the scores of a reranker. The others follow them as they were.

    Args:
        teacher (`str`, `PreTrainedModel` or `CrossEncoder`):
            The reranker, as for [`score_candidates`].
        rankings ([`Rankings`]):
            The queries and the corpus.
        run (`dict[str, dict[str, float]]`):
            For each query id the scores of the documents found, by their ids.
        top_n (`int`):
            Documents of each query to rank again.
        options:
            Other arguments of [`score_candidates`].
    """
    row_of = {doc_id: row for row, doc_id in enumerate(rankings.corpus["doc_id"][:])}
    columns = {name: rankings.queries[name][:] for name in ("query_id", "query")}
    ranked = [sorted(run[query_id], key=run[query_id].__getitem__, reverse=True) for query_id in columns["query_id"]]
    documents = [[row_of[doc_id] for doc_id in found[:top_n]] for found in ranked]
    scored = score_candidates(teacher, make_rankings({**columns, "documents": documents}, rankings.corpus), **options)
    result = {}
    for query_id, found, logits in zip(columns["query_id"], ranked, scored.queries["teacher_logits"][:], strict=True):
        rest = [min(logits, default=0.0) - place for place in range(1, len(found) - len(logits) + 1)]
        result[query_id] = dict(zip(found, [*logits, *rest], strict=True))
    return result


def compare_runs(runs: Mapping[str, Run], rankings: Rankings, metric: str = "ndcg@10") -> dict[str, dict[str, float]]:
    """The metrics of searches on the same queries, and the differences in one to that of the first one."""
    results: dict[str, dict[str, float]] = {}
    base: np.ndarray | None = None
    judged = relevance(rankings)
    for name, run in runs.items():
        per_query = ranking_metrics(run, judged, per_query=True)
        gains = np.array([values[metric] for values in per_query.values()])
        results[name] = mean_metrics(per_query)
        if base is None:
            base = gains
        else:
            low, high = bootstrap_interval(gains - base)
            results[name] |= {"difference": float((gains - base).mean()), "low": low, "high": high}
    return results
