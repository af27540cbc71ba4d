# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Hard negatives: documents that are like a query, and not known to be relevant. `mine_hard_negatives` of
sentence-transformers (6.2) has no BM25, leaves out queries without a positive, and takes the query itself, unlabelled
candidates, and positives in another case as negatives.
"""

import math
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from datasets import Dataset
from transformers.utils import logging

from hf_dse.common.loading import check_loading
from hf_dse.data.arguments import DataArguments
from hf_dse.data.ranking_files import load_corpus
from hf_dse.data.rankings import Rankings, fold, make_rankings
from hf_dse.data.reading import to_rankings
from hf_dse.data.tables import is_filled
from hf_dse.retrieval.arguments import QUERY_KINDS, SAMPLINGS
from hf_dse.retrieval.bm25 import Bm25Index, note_without_words
from hf_dse.retrieval.index import embed_once
from hf_dse.retrieval.queries import make_queries
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import to_sentence_transformer
from hf_dse.teacher.bi_encoders import to_units


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# The constant of reciprocal rank fusion (Cormack et al., 2009).
FUSION_CONSTANT = 60


def mine(
    data: Rankings | Dataset | DataArguments | str | PathLike,
    model: "SentenceTransformer | str | PathLike | None" = None,
    *,
    bm25: bool = False,
    split: str = "train",
    queries_from: str = "none",
    num_queries: int | None = None,
    num_negatives: int = 15,
    range_max: int = 100,
    relative_margin: float | None = 0.05,
    sampling: str = "top",
    seed: int = 42,
    max_length: int | None = None,
    cache_dir: str | PathLike | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> Rankings:
    """
    Adds hard negatives to the candidates of each query, like `hf-dse mine`: the documents that an encoder, BM25 or
    both find.

    Never mined are the candidates that a query has already, the positives of another query with the same text, the
    query itself, and their copies up to case and white space. Both searches are merged by reciprocal rank fusion.

    Args:
        data ([`Rankings`], [`DataArguments`] or `str`):
            The queries and the corpus, or their name, as [`load_rankings`] reads them. With `queries_from` the corpus
            alone, or its name, as [`load_corpus`] reads it.
        model (`SentenceTransformer` or `str`, *optional*):
            The encoder to search with, or its folder or Hub id: by the cosine of embeddings, with its prompts for
            queries and documents.
        bm25 (`bool`, *optional*, defaults to `False`):
            Whether to search with BM25, instead of the encoder or in addition to it.
        split (`str`, *optional*, defaults to `"train"`):
            The split of named data.
        queries_from (`str`, *optional*, defaults to `"none"`):
            `"first_sentences"` or `"sentences"`: make queries from the corpus, see [`make_queries`].
        num_queries (`int`, *optional*):
            Number of queries to make. Defaults to all.
        num_negatives (`int`, *optional*, defaults to 15):
            Number of negatives to add to each query.
        range_max (`int`, *optional*, defaults to 100):
            How many of the first ranks to mine from, counted over what can be mined.
        relative_margin (`float`, *optional*, defaults to 0.05):
            Drop documents with a cosine above `p - relative_margin * abs(p)`, where `p` is the lowest cosine of a
            positive of the query, as [NV-Retriever](https://huggingface.co/papers/2407.15831) does. BM25 alone has no
            margin. `None` or a number below 0 drops none.
        sampling (`str`, *optional*, defaults to `"top"`):
            `"top"`: the first in the range. `"random"`: any in the range.
        seed (`int`, *optional*, defaults to 42):
            Random seed of the sampling, and of made queries.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text, for a named encoder. Defaults to its own limit.
        cache_dir (`str` or `Path`, *optional*):
            Folder of embeddings, from which an interrupted run continues. Defaults to none.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.
        loading (*optional*):
            `trust_remote_code`, `dtype` and `device` of an encoder that is loaded.

    Returns:
        [`Rankings`]: the same queries and corpus. The known candidates come first, unchanged, then the mined ones by
        rank with the label 0. A query has fewer than `num_negatives` if there are no more in the range.

    Example:

    ```python
    >>> from hf_dse import make_rankings, mine

    >>> corpus = {"text": ["Planes fly by lift.", "Planes are loud.", "Cats purr.", "planes  fly by lift."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> mined = mine(rankings, bm25=True, show_progress=False)
    >>> mined.queries["documents"][0], mined.queries["labels"][0]
    ([0, 1], [1.0, 0.0])
    ```
    """
    check_loading("mine", loading)
    if model is None and not bm25:
        raise ValueError("There is nothing to search with: pass a model, bm25=True (`--bm25`), or both.")
    if not 1 <= num_negatives <= range_max:
        raise ValueError(f"num_negatives={num_negatives}: it has to be from 1 to range_max={range_max}.")
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling={sampling!r}: it has to be one of {', '.join(SAMPLINGS)}.")
    if num_queries is not None and queries_from == "none":
        raise ValueError(f"num_queries={num_queries}: add `--queries_from {'|'.join(QUERY_KINDS)}`.")
    if queries_from == "none":
        rankings = to_rankings(data, split)
    else:
        documents = data if isinstance(data, Dataset) else load_corpus(data)  # type: ignore[arg-type]
        rankings = make_queries(documents, queries_from, num_queries=num_queries, seed=seed)
    encoder = None if model is None else to_sentence_transformer(model, max_length=max_length, **loading)
    corpus, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    text_of, texts = pd.factorize(np.array([fold(text) if is_filled(text) else None for text in corpus], dtype=object))
    first_rows = np.flatnonzero(~pd.Series(text_of).duplicated() & (text_of >= 0))
    barred = _barred_texts(rankings, text_of, pd.Index(texts))
    distinct = [corpus[row] for row in first_rows]
    # Barred texts may take the first ranks.
    depth = range_max + max(map(len, barred))
    searches: list[np.ndarray] = []
    if encoder is not None:
        options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
        entries = (
            embed_once(encoder, queries, cache_dir, "query", **options),
            embed_once(encoder, distinct, cache_dir, **options),
        )
        query_vectors, vectors = (to_units(np.concatenate([part for _, part in found])) for found in entries)
        device = encoder.device
        searches.append(nearest(query_vectors, vectors, depth, device=device, show_progress=show_progress)[1])
    if bm25:
        scores, positions = Bm25Index(distinct).search(queries, depth)
        note_without_words(int((scores[:, 0] == 0).sum()), len(queries))
        searches.append(np.where(scores > 0, positions, -1))
    mined: list[list[int]] = []
    for number, (positives, texts, *found) in enumerate(zip(rankings.positives(), barred, *searches, strict=True)):
        lists = [ranked[: range_max + len(texts)].tolist() for ranked in found]
        ranked = _fuse([[text for text in ranked if text >= 0 and text not in texts] for ranked in lists])
        pool = np.array(ranked[:range_max], dtype=np.int64)
        known = text_of[positives]
        known = known[known >= 0]
        if encoder is not None and len(known) and relative_margin is not None and relative_margin >= 0:
            lowest = float((vectors[known] @ query_vectors[number]).min())
            pool = pool[vectors[pool] @ query_vectors[number] <= lowest - relative_margin * abs(lowest)]
        if sampling == "random":
            pool = np.random.default_rng([seed, number]).permutation(pool)
        mined.append(first_rows[pool[:num_negatives]].tolist())
    columns = {name: rankings.queries[name][:] for name in rankings.queries.column_names}
    added: dict[str, list[list]] = {"documents": mined, "labels": [[0.0] * len(rows) for rows in mined]}
    added["teacher_logits"] = [[math.nan] * len(rows) for rows in mined]
    for name in added.keys() & columns.keys():
        columns[name] = [[*known, *new] for known, new in zip(columns[name], added[name], strict=True)]
    if not any(mined):
        logger.warning("Nothing was mined: lower `--relative_margin`, or raise `--range_max`.")
    num_short = sum(len(rows) < num_negatives for rows in mined)
    logger.info(f"{num_short:,} of {len(mined):,} queries have fewer than {num_negatives} negatives.")
    return make_rankings(columns, rankings.corpus)


def _barred_texts(rankings: Rankings, text_of: np.ndarray, texts: pd.Index) -> list[set[int]]:
    """For each query, the texts of its candidates, of the positives of the same query, and of the query."""
    keys = [fold(query) for query in rankings.queries["query"]]
    barred: dict[str, set[int]] = {key: {number} for key, number in zip(keys, texts.get_indexer(keys), strict=True)}
    for key, rows in zip(keys, rankings.positives(), strict=True):
        barred[key].update(text_of[rows].tolist())
    own = (text_of[rows].tolist() for rows in rankings.queries["documents"])
    return [barred[key].union(texts) for key, texts in zip(keys, own, strict=True)]


def _fuse(lists: list[list[int]]) -> list[int]:
    """Merges ranked lists: the best has the largest sum of the reciprocals of its ranks."""
    sums: dict[int, float] = {}
    for ranked in lists:
        for rank, text in enumerate(ranked, start=1):
            sums[text] = sums.get(text, 0.0) + 1 / (FUSION_CONSTANT + rank)
    return lists[0] if len(lists) == 1 else sorted(sums, key=lambda text: (-sums[text], text))
