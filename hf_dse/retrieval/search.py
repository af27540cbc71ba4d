# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search in vectors, alone or with BM25 and a reranker."""

from collections.abc import Callable, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.options import check_at_least
from hf_dse.data.tables import check_rows, is_filled
from hf_dse.retrieval.bm25 import bm25_scores, import_bm25
from hf_dse.retrieval.encoding import check_finite, list_texts
from hf_dse.retrieval.rerankers import load_reranker
from hf_dse.retrieval.reranking import rerank
from hf_dse.retrieval.sentence_transformer import embed, similarity_of, to_sentence_transformer


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)

# Scores that are computed at once (128 MiB).
BLOCK_ELEMENTS = 2**25

# Takes queries and for each a list of texts; returns the score of each text.
Reranker = Callable[[list[str], list[list[str]]], list[list[float]]]


def search(
    model: "SentenceTransformer | str | PathLike",
    queries: Sequence[str],
    texts: Sequence[str],
    *,
    vectors: np.ndarray | None = None,
    groups: Sequence | None = None,
    top_k: int = 10,
    bm25_weight: float = 0.0,
    reranker: "CrossEncoder | Reranker | str | PathLike | None" = None,
    rerank_top: int = 50,
    batch_size: int = 32,
    show_progress: bool = True,
) -> list[list[dict[str, Any]]]:
    """
    Ranks texts for queries: by their vectors, with BM25 added to the cosine, and in the order of a reranker. The
    search is exact.

    Args:
        model (`SentenceTransformer` or `str`):
            The model, or its folder or Hub id. Queries and texts get its prompts.
        queries (`Sequence[str]`):
            The queries.
        texts (`Sequence[str]`):
            The texts. Blank ones are left out.
        vectors (`np.ndarray` of shape `(num_texts, embedding_size)`, *optional*):
            The vectors of the texts by `model.encode_document`. Computed by default.
        groups (`Sequence`, *optional*):
            Which document each text is a passage of: only the best passage of each is returned.
        top_k (`int`, *optional*, defaults to 10):
            Number of texts to return per query.
        bm25_weight (`float`, *optional*, defaults to 0.0):
            Weight of BM25 beside the cosine, see [`bm25_scores`].
        reranker (`CrossEncoder`, `str` or `Callable`, *optional*):
            Orders the best texts of each query: a `CrossEncoder`, or its folder or Hub id, as [`load_reranker`] takes
            them; or a function of the queries and their texts. A longer text has the score of its best window.
        rerank_top (`int`, *optional*, defaults to 50):
            How many texts of each query the reranker reads, at least `top_k`.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `list[list[dict]]`: for each query the best texts, the best first: `score`, `row` (the place in `texts`),
        `text`, and with a reranker `rerank`, its score.

    Example:

    ```python
    >>> from hf_dse import search

    >>> texts = ["Rain again.", "The kitten is asleep.", "My dog sleeps."]
    >>> (hits,) = search("sentence-transformers/all-MiniLM-L6-v2", ["A cat sleeps."], texts, show_progress=False)
    >>> hits[0]["text"]
    'The kitten is asleep.'
    ```
    """
    model = to_sentence_transformer(model)
    queries, texts = list_texts(queries), list_texts(texts)
    check_search(model, queries, bm25_weight)
    check_at_least(1, top_k=top_k, rerank_top=rerank_top)
    for name, values in (("vectors", vectors), ("groups", groups)):
        if values is not None and len(values) != len(texts):
            raise ValueError(f"`{name}` has {len(values)} entries for {len(texts)} texts: pass one for each.")
    if vectors is not None:
        vectors = np.asarray(torch.as_tensor(vectors).cpu())
        check_finite("vectors", vectors)
    kept = np.array([row for row, text in enumerate(texts) if is_filled(text)], dtype=np.int64)
    if len(kept) < len(texts):
        logger.warning(f"{len(texts) - len(kept)} of {len(texts)} texts are blank and are left out.")
        vectors = None if vectors is None else vectors[kept]
        groups = None if groups is None else [groups[row] for row in kept]
    found_in = [texts[row] for row in kept]
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    score: Any = reranker
    if isinstance(reranker, str | PathLike) or hasattr(reranker, "predict"):
        # A head that its checkpoint lacks is refused before the texts are embedded.
        score = partial(rerank, load_reranker(reranker), **options)  # type: ignore[arg-type]
    scores, positions = nearest(
        embed(model, queries, "query", **options),
        embed(model, found_in, **options) if vectors is None else vectors,
        top_k if reranker is None else max(top_k, rerank_top),
        cosine=similarity_of(model) == "cosine",
        added_scores=bm25_scores(queries, found_in, bm25_weight, groups) if bm25_weight else None,
        groups=groups,
        device=model.device,
        show_progress=show_progress,
    )
    positions = kept[positions]
    hits = [
        [{"score": score, "row": row, "text": texts[row]} for score, row in zip(*found, strict=True)]
        for found in zip(scores.tolist(), positions.tolist(), strict=True)
    ]
    if reranker is not None:
        read = [[hit["text"] for hit in found] for found in hits]
        for found, values in zip(hits, score(queries, read), strict=True):
            for hit, value in zip(found, values, strict=True):
                hit["rerank"] = float(value)
            found.sort(key=lambda hit: -hit["rerank"])
    return [found[:top_k] for found in hits]


def check_search(model: "SentenceTransformer", queries: Sequence[str], bm25_weight: float) -> None:
    """Fails for models, queries and options that do not fit, before a corpus is embedded."""
    check_rows(queries, is_filled, "The queries", "the query is {}, not a text")
    is_dot = similarity_of(model) == "dot"
    if bm25_weight:
        import_bm25()
        if is_dot:
            raise ValueError("BM25 is added to the cosine, and this model is made for dot products: leave it out.")


@torch.inference_mode()
def nearest(
    queries: np.ndarray,
    documents: np.ndarray,
    top_k: int,
    *,
    cosine: bool = False,
    added_scores: Callable[[slice], np.ndarray] | None = None,
    groups: Sequence | np.ndarray | None = None,
    device: str | torch.device = "cpu",
    show_progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """
    The largest dot products or cosines (float32) and their positions (int64), `(num_queries, top_k)`, exactly. Of
    equal scores the lower position comes first. Of each of the `groups` only the best document is found.
    """
    if not len(documents):
        raise ValueError("There are no texts to search in.")
    if queries.shape[1:] != documents.shape[1:]:
        raise ValueError(
            f"The vectors of the queries have the size {queries.shape[1]}, and those of the texts "
            f"{documents.shape[1]}: embed both with one model."
        )
    vectors, corpus = (torch.as_tensor(part, dtype=torch.float32, device=device) for part in (queries, documents))
    if cosine:
        vectors, corpus = nn.functional.normalize(vectors, dim=-1), nn.functional.normalize(corpus, dim=-1)
    numbers = None if groups is None else np.unique(np.asarray(groups), return_inverse=True)[1]
    if numbers is not None and numbers.max() + 1 == len(corpus):
        # Groups of one text each leave nothing out.
        numbers = None
    top_k = min(top_k, len(corpus) if numbers is None else int(numbers.max()) + 1)
    # Several of the best parts may be of one group.
    depth = top_k if numbers is None else min(4 * top_k, len(corpus))
    scores, positions = np.empty((len(vectors), top_k), np.float32), np.empty((len(vectors), top_k), np.int64)
    size = max(1, BLOCK_ELEMENTS // len(corpus))
    # Under autocast, close documents would have equal scores.
    with (
        torch.autocast(vectors.device.type, enabled=False),
        tqdm(total=len(vectors), desc="Searching", unit="query", disable=not show_progress) as progress,
    ):
        for start in range(0, len(vectors), size):
            rows = slice(start, min(start + size, len(vectors)))
            products = vectors[rows] @ corpus.T
            if added_scores is not None:
                products += torch.as_tensor(added_scores(rows)).to(products)
            values, where = _best(products, depth)
            while numbers is not None:
                first = [np.sort(np.unique(numbers[row], return_index=True)[1])[:top_k] for row in where]
                if all(len(places) == top_k for places in first):
                    values, where = (np.take_along_axis(part, np.stack(first), axis=1) for part in (values, where))
                    break
                depth = min(4 * depth, len(corpus))
                values, where = _best(products, depth)
            scores[rows], positions[rows] = values, where
            progress.update(rows.stop - rows.start)
    return scores, positions


def _best(scores: torch.Tensor, number: int) -> tuple[np.ndarray, np.ndarray]:
    values, positions = scores.topk(number, dim=1)
    positions, order = positions.sort(dim=1)
    values, best = values.gather(1, order).sort(dim=1, descending=True, stable=True)
    return values.cpu().numpy(), positions.gather(1, best).cpu().numpy()
