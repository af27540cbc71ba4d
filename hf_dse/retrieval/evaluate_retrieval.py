# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of searches in a corpus, and their comparison on the same queries."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.data.rankings import Rankings
from hf_dse.retrieval.arguments import BM25_WEIGHT
from hf_dse.retrieval.bm25 import bm25_scores, bm25_search, import_bm25
from hf_dse.retrieval.chunks import split_texts
from hf_dse.retrieval.metrics import Run, as_run, bootstrap_interval, mean_metrics, ranking_metrics, relevance
from hf_dse.retrieval.search import as_reranker, nearest
from hf_dse.retrieval.sentence_transformer import embed, load_sentence_transformer, similarity_of


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from hf_dse.retrieval.search import Reranker

logger = logging.get_logger(__name__)

# `recall@100` needs so many documents.
TOP_K = 100
# Documents that a reranker reads for each query.
RERANK_TOP = 100
# Ends the name of a search by vectors and words.
WITH_BM25 = " with BM25"

# The vectors of texts, the row of the document that each is of, and the texts.
Embedded = tuple[np.ndarray, np.ndarray, list[str]]


def evaluate_retrieval(
    model: "SentenceTransformer",
    rankings: Rankings,
    *,
    chunk_size: int | None = None,
    top_k: int = TOP_K,
    batch_size: int = 32,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates a model by the search in a corpus: each query ranks all documents, by the similarity of the model, with
    its prompts. A document that has the id of a query and contains its text is the query itself, and is left out.

    The measures are those of pytrec_eval, which MTEB and BEIR report, and not those of the
    `InformationRetrievalEvaluator` of sentence-transformers, which takes all relevant documents as equally relevant.

    Args:
        model (`SentenceTransformer`):
            The model.
        rankings ([`Rankings`]):
            The queries with the known relevance of documents, and the corpus, as [`load_rankings`] reads them. The
            corpus of lists of candidates is all that are in the lists.
        chunk_size (`int`, *optional*):
            A vector for each chunk of a document of up to so many tokens, of which the best counts, instead of one
            vector for the document.
        top_k (`int`, *optional*, defaults to 100):
            Documents to find for each query. With fewer than 100, `recall@100` is that of fewer, too.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `dict[str, float]`: `num_queries`, those that have a relevant document, and the means over them: `ndcg@10`,
        `mrr@10`, `map`, `recall@1`, `recall@10` and `recall@100`, as fractions of 1.

    Raises:
        `ImportError`: if pytrec_eval is missing.
        `ValueError`: if no query has a relevant document, or a grade is not a whole number.

    Example:

    ```python
    >>> from sentence_transformers import SentenceTransformer
    >>> from hf_dse import evaluate_retrieval, make_rankings

    >>> model = SentenceTransformer("sentence-transformers/all-MiniLM-L6-v2")
    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> evaluate_retrieval(model, rankings, show_progress=False)["ndcg@10"]
    1.0
    ```
    """
    judged = relevance(rankings)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    embedded = embed_corpus(model, rankings, chunk_size, **options)
    run = find_documents(model, rankings, embedded, top_k, **options)
    return {"num_queries": len(judged), **ranking_metrics(run, judged)}


def embed_corpus(
    model: "SentenceTransformer", rankings: Rankings, chunk_size: int | None = None, **options: Any
) -> Embedded:
    """Embeds the documents, each as one text or in chunks. The options are those of [`embed`]."""
    texts = rankings.corpus["text"][:]
    documents = np.arange(len(texts))
    if chunk_size is not None:
        chunks = split_texts(model, texts, chunk_size)
        documents = np.repeat(documents, [len(parts) for parts in chunks])
        texts = [chunk for parts in chunks for chunk in parts]
    return embed(model, texts, **options), documents, texts


def find_documents(
    model: "SentenceTransformer",
    rankings: Rankings,
    embedded: Embedded,
    top_k: int,
    *,
    bm25_weight: float = 0.0,
    **options: Any,
) -> Run:
    """The `top_k` documents with the best vectors for each query. The options are those of [`embed`]."""
    vectors, documents, texts = embedded
    groups = None if len(texts) == len(rankings.corpus) else documents.tolist()
    queries = rankings.queries["query"][:]
    scores, positions = nearest(
        embed(model, queries, "query", **options),
        vectors,
        # One more, because the query itself may be found.
        top_k + 1,
        cosine=similarity_of(model) == "cosine",
        added_scores=bm25_scores(queries, texts, bm25_weight, groups) if bm25_weight else None,
        groups=groups,
        device=model.device,
    )
    return as_run(rankings, scores, documents[positions], top_k)


def compare_searches(
    names: Sequence[str],
    splits: Mapping[str, Rankings],
    *,
    bm25: bool = False,
    bm25_weight: float = BM25_WEIGHT,
    reranker: "CrossEncoder | Reranker | None" = None,
    reranker_name: str = "reranker",
    rerank_top: int = RERANK_TOP,
    chunk_size: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> dict[str, dict[str, dict[str, float]]]:
    """
    Evaluates a model by the search in a corpus, and what it is compared with on the same queries: BM25, the cosine
    and BM25 together with `bm25_weight` (0 for no such row), a reranker of the first `rerank_top` documents that the
    model finds, as in [`search`], and other encoders. The first of the `names`, folders or Hub ids, is the model.
    `chunk_size` is as in [`evaluate_retrieval`], but a reranker reads whole documents. `loading` are options of
    [`load_sentence_transformer`].

    Returns:
        `dict[str, dict[str, dict[str, float]]]`: for each split the metrics of each search, as [`evaluate_retrieval`]
        returns them, the model first. The names tell how vectors are compared. All but the first also have their
        `difference` in nDCG@10 to the model, and the ends `low` and `high` of its 95 % interval, a paired bootstrap
        over the queries ([`bootstrap_interval`]).
    """
    judged = {split: relevance(rankings) for split, rankings in splits.items()}
    if bm25:
        import_bm25()
    # The same for all rows, which are compared by the mean average precision too.
    depth = TOP_K if reranker is None else max(TOP_K, rerank_top)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    runs: dict[str, dict[str, Run]] = {split: {} for split in splits}
    for name in dict.fromkeys(names):
        model = load_sentence_transformer(name, **loading)
        is_first, similarity = name == names[0], similarity_of(model)
        has_both = is_first and bm25 and bm25_weight > 0
        if has_both and similarity == "dot":
            logger.warning(f"{name} is made for dot products, which have no scale to add BM25 to: no row with both.")
            has_both = False
        row = f"{name} ({similarity}{'' if chunk_size is None else ', best of chunks'})"
        embedded: dict[int, Embedded] = {}
        for split, rankings in splits.items():
            # Splits may share their corpus.
            corpus = id(rankings.corpus)
            embedded[corpus] = embedded.get(corpus) or embed_corpus(model, rankings, chunk_size, **options)
            find = partial(find_documents, model, rankings, embedded[corpus], depth, **options)
            found = runs[split]
            found[row] = find()
            if is_first and bm25:
                texts = rankings.queries["query"][:], rankings.corpus["text"][:]
                found["BM25"] = as_run(rankings, *bm25_search(*texts, depth + 1), depth)
            if has_both:
                found[row + WITH_BM25] = find(bm25_weight=bm25_weight)
            if is_first and reranker is not None:
                score = as_reranker(reranker, batch_size)
                again = rerank_run(score, rankings, found[row], rerank_top)
                found[f"{reranker_name} (reranks the top {rerank_top})"] = again
    return {split: compare_runs(found, judged[split]) for split, found in runs.items()}


def rerank_run(score: "Reranker", rankings: Rankings, run: Run, top: int) -> Run:
    """Ranks the first documents of each query by the scores of a reranker. The others follow them as they were."""
    text_of = dict(zip(rankings.corpus["doc_id"][:], rankings.corpus["text"][:], strict=True))
    ranked = {query_id: sorted(found, key=found.__getitem__, reverse=True) for query_id, found in run.items()}
    texts = [[text_of[doc_id] for doc_id in found[:top]] for found in ranked.values()]
    result = {}
    for (query_id, found), scores in zip(ranked.items(), score(rankings.queries["query"][:], texts), strict=True):
        rest = [min(scores, default=0.0) - place for place in range(1, len(found) - len(scores) + 1)]
        result[query_id] = dict(zip(found, [*scores, *rest], strict=True))
    return result


def compare_runs(
    runs: Mapping[str, Run], judged: Mapping[str, Mapping[str, int]], metric: str = "ndcg@10"
) -> dict[str, dict[str, float]]:
    """The metrics of searches on the same queries, and the differences in one to that of the first one."""
    results: dict[str, dict[str, float]] = {}
    base: np.ndarray | None = None
    for name, run in runs.items():
        per_query = ranking_metrics(run, judged, per_query=True)
        gains = np.array([values[metric] for values in per_query.values()])
        results[name] = {"num_queries": len(per_query), **mean_metrics(per_query)}
        if base is None:
            base = gains
        else:
            low, high = bootstrap_interval(gains - base)
            results[name] |= {"difference": float((gains - base).mean()), "low": low, "high": high}
    return results
