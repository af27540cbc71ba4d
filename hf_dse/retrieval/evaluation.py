# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation on sentence pairs and by searches in a corpus, and comparison of searches on the same queries."""

from collections.abc import Mapping, Sequence
from functools import partial
from typing import TYPE_CHECKING, Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.arguments import PAIR_TASKS, PairTask
from hf_dse.data.rankings import Rankings
from hf_dse.data.tables import is_blank
from hf_dse.retrieval.arguments import BM25_WEIGHT
from hf_dse.retrieval.bm25 import bm25_scores, bm25_search, import_bm25
from hf_dse.retrieval.encoding import encode, evaluating
from hf_dse.retrieval.metrics import (
    Run,
    UndefinedMetricError,
    as_run,
    bootstrap_interval,
    correlations,
    is_constant,
    mean_metrics,
    ranking_metrics,
    relevance,
    score_logits,
)
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import embed, load_sentence_transformer, similarity_of, split_texts


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

    from hf_dse.retrieval.search import Reranker

logger = logging.get_logger(__name__)

# Batch size of the student's head, in pairs of embeddings.
PAIRS_PER_BATCH = 4096
# `recall@100` needs so many documents.
TOP_K = 100
# Ends the name of a search by vectors and words.
WITH_BM25 = " with BM25"

# The vectors of texts, the row of the document that each is of, and the texts.
Embedded = tuple[np.ndarray, np.ndarray, list[str]]


def evaluate_pairs(
    model: "PreTrainedModel | SentenceTransformer",
    processing_class: PreTrainedTokenizerBase | None,
    dataset: datasets.Dataset,
    task: PairTask | str,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates a model on labelled sentence pairs.

    Args:
        model (`PreTrainedModel` or `SentenceTransformer`):
            A student ([`DseForSequenceClassification`]), any encoder without a head (see [`encode`]), or a
            `SentenceTransformer`, whose head is not read.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the model; `None` for a `SentenceTransformer`, which has its own.
        dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2` and `label`, as returned by [`load_pairs`].
        task (`PairTask` or `str`):
            The task, or the name of a known one.
        batch_size (`int`, *optional*, defaults to 32):
            Sentences per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per sentence. Defaults to the `model_max_length` of the tokenizer.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `dict[str, float]`: the metrics of the logits, if the model has a head: `pearson` and `spearman`, or `accuracy`
        and `f1`. Also metrics of the cosine of the two embeddings: `cosine_pearson` and `cosine_spearman`, or, for
        symmetric tasks with two classes (1 means similar), the average precision `cosine_ap`, which needs no
        threshold. All are fractions of 1.
    """
    if isinstance(task, str):
        task = PAIR_TASKS[task]
    labels = np.asarray(dataset["label"])
    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    has_head = type(model).__name__ == "DseForSequenceClassification"
    cosine_fits = task.num_labels == 1 or (task.num_labels == 2 and task.symmetric)
    if not (has_head or cosine_fits):
        raise ValueError(
            f"Cosine similarity cannot score task {task.name!r}: pass a model with a classification head "
            "(`DseForSequenceClassification`), or `symmetric=True` if class 1 means similar."
        )
    # Each distinct sentence is embedded once.
    row_of = {text: row for row, text in enumerate(dict.fromkeys([*first, *second]))}
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    if isinstance(model, PreTrainedModel):
        vectors = encode(model, processing_class, list(row_of), max_length=max_length, **options)  # type: ignore[arg-type]
    else:
        vectors = embed(model, list(row_of), None, **options)
    sides = [vectors[[row_of[text] for text in side]] for side in (first, second)]

    metrics: dict[str, float] = {}
    if has_head:
        metrics |= score_logits(_compare(model, *sides), labels, task.problem_type, task.num_labels)
    if not cosine_fits:
        return metrics
    try:
        metrics |= _cosine_metrics(sides, labels, task)
    except UndefinedMetricError as error:
        if not metrics:
            raise
        logger.warning(f"There are no metrics of the cosine: {error}")
    return metrics


def _cosine_metrics(sides: Sequence[np.ndarray], labels: np.ndarray, task: PairTask) -> dict[str, float]:
    """The metrics of the cosine of the two embeddings."""
    u, v = map(torch.from_numpy, sides)
    cosines = torch.nn.functional.cosine_similarity(u, v, dim=1).numpy()
    if task.num_labels == 1:
        return {f"cosine_{name}": score for name, score in correlations(cosines, labels).items()}
    if is_constant(cosines) or not (labels == 1).any():
        raise UndefinedMetricError(
            "The average precision is undefined: all cosines are the same, or no pair has the label 1."
        )
    from sklearn.metrics import average_precision_score

    return {"cosine_ap": float(average_precision_score(labels == 1, cosines))}


def _compare(model: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The logits `(num_pairs, num_labels)` of the head for embeddings `(num_pairs, embedding_size)`."""
    head = next(model.similarity.parameters())
    logits = []
    with evaluating(model), torch.inference_mode():
        for start in range(0, len(first), PAIRS_PER_BATCH):
            pair = (torch.from_numpy(side[start : start + PAIRS_PER_BATCH]).to(head) for side in (first, second))
            logits.append(model.similarity(*pair).float().cpu().numpy())
    return np.concatenate(logits)


def evaluate_retrieval(
    model: "SentenceTransformer",
    rankings: Rankings,
    *,
    chunk_size: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates a model by the search in a corpus, with the measures of MTEB and BEIR. A document that has the id of a
    query and contains its text is the query itself, and is left out. The `InformationRetrievalEvaluator` of
    sentence-transformers takes all relevant documents as equally relevant.

    Args:
        model (`SentenceTransformer`):
            The model.
        rankings ([`Rankings`]):
            The queries with the known relevance of documents, and the corpus, as [`load_rankings`] reads them.
        chunk_size (`int`, *optional*):
            Embed chunks of a document of up to so many tokens, of which the best counts, instead of its first tokens.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `dict[str, float]`: `num_queries`, those that have a relevant document, and the means over them: `ndcg@10`,
        `mrr@10`, `map`, `recall@1`, `recall@10` and `recall@100`, as fractions of 1.

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
    run = find_documents(model, rankings, embedded, TOP_K, **options)
    return {"num_queries": len(judged), **ranking_metrics(run, judged)}


def embed_corpus(
    model: "SentenceTransformer", rankings: Rankings, chunk_size: int | None = None, **options: Any
) -> Embedded:
    """Embeds the documents that are not blank, each as one text or in chunks. The options are those of [`embed`]."""
    texts = rankings.corpus["text"][:]
    documents = np.array([row for row, text in enumerate(texts) if not is_blank(text)], dtype=np.int64)
    if len(documents) < len(texts):
        logger.warning(f"{len(texts) - len(documents)} of {len(texts)} documents are blank and are left out.")
    texts = [texts[row] for row in documents]
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
    """The `top_k` best documents of each query. The options are those of [`embed`]."""
    vectors, documents, texts = embedded
    groups = None if len(texts) == len(set(documents)) else documents.tolist()
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
    reranker: "Reranker | None" = None,
    reranker_name: str = "reranker",
    rerank_top: int = 100,
    chunk_size: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> dict[str, dict[str, dict[str, float]]]:
    """
    The metrics of searches by their names, for each split: the first model, BM25, both, a reranker, and other models.
    Each but the first has its `difference` in nDCG@10 with the ends `low` and `high` of a 95 % interval.
    """
    judged = {split: relevance(rankings) for split, rankings in splits.items()}
    if bm25:
        import_bm25()
    depth = max(TOP_K, rerank_top)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    runs: dict[str, dict[str, Run]] = {split: {} for split in splits}
    for name in dict.fromkeys(names):
        model = load_sentence_transformer(name, **loading)
        is_first, similarity = name == names[0], similarity_of(model)
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
                # Dot products have no scale to add BM25 to.
                if similarity == "cosine":
                    found[row + WITH_BM25] = find(bm25_weight=bm25_weight)
            if is_first and reranker is not None:
                again = rerank_run(reranker, rankings, found[row], rerank_top)
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


def compare_runs(runs: Mapping[str, Run], judged: Mapping[str, Mapping[str, int]]) -> dict[str, dict[str, float]]:
    """The metrics of searches on the same queries, and the differences in nDCG@10 to the first one."""
    first = next(iter(runs))
    results: dict[str, dict[str, float]] = {}
    gains: dict[str, np.ndarray] = {}
    for name, run in runs.items():
        per_query = ranking_metrics(run, judged, per_query=True)
        results[name] = {"num_queries": len(per_query), **mean_metrics(per_query)}
        gains[name] = np.array([values["ndcg@10"] for values in per_query.values()])
        if name != first:
            differences = gains[name] - gains[first]
            low, high = bootstrap_interval(differences)
            results[name] |= {"difference": float(differences.mean()), "low": low, "high": high}
    return results
