# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by the words of a query: BM25, alone or beside the cosine."""

import math
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.mining.arguments import BM25_WEIGHT


logger = logging.get_logger(__name__)

# Queries are tokenized and searched in blocks of this size, which bounds the memory.
QUERIES_PER_BLOCK = 1024


def bm25_search(
    queries: Sequence[str], corpus: Sequence[str], top_k: int, *, show_progress: bool = False
) -> tuple[np.ndarray, np.ndarray]:
    """
    Finds the texts of a corpus with the best BM25 scores for each query, with the package bm25s and the settings of
    MTEB: Lucene's variant with k1 = 1.5 and b = 0.75, lower case, words of at least two characters, English stop words
    left out, and the English Snowball stemmer. Words of other languages are mostly found as they are.

    Args:
        queries (`Sequence[str]`):
            The queries.
        corpus (`Sequence[str]`):
            The texts to search.
        top_k (`int`):
            Number of texts to find; all if the corpus has fewer.
        show_progress (`bool`, *optional*, defaults to `False`):
            Whether to show progress bars.

    Returns:
        `tuple[np.ndarray, np.ndarray]`: scores (float32) and positions in the corpus (int64), both of shape
        `(num_queries, min(top_k, num_texts))`, the best first; ties are broken by the lower position. A text that
        shares no word with the query has the score 0.

    Raises:
        `ValueError`: if the corpus is empty, or `top_k` is below 1.
        `ImportError`: if bm25s or PyStemmer is not installed.

    Example:

    ```python
    >>> from hf_dse import bm25_search

    >>> scores, positions = bm25_search(["sleeping cat"], ["Rain again.", "A cat sleeps.", "The cat is old."], 2)
    >>> positions.tolist()
    [[1, 2]]
    ```
    """
    if top_k < 1:
        raise ValueError(f"top_k={top_k}: it has to be at least 1.")
    search = bm25_index(corpus)
    size = min(top_k, len(corpus))
    scores, positions = np.empty((len(queries), size), np.float32), np.empty((len(queries), size), np.int64)
    with tqdm(total=len(queries), desc="Searching words", unit="query", disable=not show_progress) as progress:
        for start in range(0, len(queries), QUERIES_PER_BLOCK):
            rows = slice(start, start + QUERIES_PER_BLOCK)
            scores[rows], positions[rows] = search(queries[rows], size)
            progress.update(len(scores[rows]))
    return scores, positions


def bm25_scores(
    queries: Sequence[str], corpus: Sequence[str], weight: float = BM25_WEIGHT, groups: Sequence | None = None
) -> Callable[[slice], np.ndarray]:
    """
    BM25 as a part of a search by embeddings, known as hybrid search: `weight` times the BM25 score of a text, divided
    by the best BM25 score of all texts for the same query. [`rank`] and [`rank_groups`] add it to the cosine of every
    text, as their `added_scores`. [Bruch et al., 2022](https://huggingface.co/papers/2210.11934) found such weighted
    sums better than a fusion of ranks. BM25 is that of [`bm25_search`].

    The words of a question are seldom all in one passage of a long document. For passages, `groups` tells which
    document each is from: half of what is added is of the whole document, half of the passage.

    Args:
        queries (`Sequence[str]`):
            The queries.
        corpus (`Sequence[str]`):
            The texts.
        weight (`float`, *optional*, defaults to 0.3):
            What is added to the cosine of the text with the best BM25 score. For passages of long documents 0.6 is a
            better start.
        groups (`Sequence`, *optional*):
            What each text is a passage of, as in [`rank_groups`]. Passages of a document are in their order.

    Returns:
        `Callable[[slice], np.ndarray]`: takes a slice of the queries, and returns an array (float32) of shape
        `(num_rows, num_texts)` with numbers from 0 to `weight`. They are computed when it is called, so that only a
        block is in memory. For a query that shares no word with the corpus they are 0.

    Raises:
        `ValueError`: if the corpus is empty, the weight is negative, NaN or infinite, or there is not one group for
        each text.
        `ImportError`: if bm25s or PyStemmer is not installed.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_dse import bm25_scores, rank

    >>> queries, texts = ["error 4711"], ["Rain again.", "Error 4711: no paper.", "It is an error."]
    >>> added = bm25_scores(queries, texts)
    >>> added(slice(0, 1)).round(2)
    array([[0.  , 0.3 , 0.15]], dtype=float32)
    >>> query_vectors, text_vectors = np.array([[0.6, 0.8]]), np.array([[1.0, 0.0], [0.8, 0.6], [0.6, 0.8]])
    >>> scores, positions = rank(query_vectors, text_vectors, added_scores=added, show_progress=False)
    >>> positions.tolist()
    [[1, 2, 0]]
    ```
    """
    if not 0 <= weight < math.inf:
        raise ValueError(f"weight={weight}: it has to be a finite number of at least 0.")
    if groups is not None:
        if len(groups) != len(corpus):
            raise ValueError(f"There are {len(groups)} groups for {len(corpus)} texts: pass one for each text.")
        parts: dict[Any, list[str]] = {}
        for text, group in zip(corpus, groups, strict=True):
            parts.setdefault(group, []).append(text)
        # Where each document is one passage, one index serves both.
        if len(parts) < len(corpus):
            number = {group: position for position, group in enumerate(parts)}
            of_passages = bm25_scores(queries, corpus, weight / 2)
            of_documents = bm25_scores(queries, [" ".join(texts) for texts in parts.values()], weight / 2)
            document_of = np.array([number[group] for group in groups])
            return lambda rows: of_passages(rows) + of_documents(rows)[:, document_of]
    search = _index(corpus)

    def added_scores(rows: slice) -> np.ndarray:
        block = queries[rows]
        added = np.empty((len(block), len(corpus)), np.float32)
        for row, scores in zip(added, search(block), strict=True):
            best = scores.max()
            # [`rank`] refuses what overflows.
            with np.errstate(over="ignore", invalid="ignore"):
                row[:] = scores / best * weight if best > 0 else 0.0
        return added

    return added_scores


def bm25_index(corpus: Sequence[str]) -> Callable[[Sequence[str], int], tuple[np.ndarray, np.ndarray]]:
    """Indexes a corpus once for several searches. The result takes a block of queries and `top_k`."""
    score = _index(corpus)

    def search(queries: Sequence[str], top_k: int) -> tuple[np.ndarray, np.ndarray]:
        found = [_best(scores, min(top_k, len(corpus))) for scores in score(queries)]
        scores, positions = zip(*found, strict=True)
        return np.stack(scores), np.stack(positions)

    return search


def import_bm25() -> tuple[Any, Any]:
    """The packages of BM25; to fail early, before a corpus is embedded."""
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        raise ImportError("BM25 needs bm25s and PyStemmer: `pip install hf-dse[ranking]`.") from error
    return bm25s, Stemmer


def _index(corpus: Sequence[str]) -> Callable[[Sequence[str]], Iterator[np.ndarray]]:
    """Indexes a corpus. The result yields the scores of all its texts for each of a block of queries."""
    bm25s, stemmer = import_bm25()
    if not len(corpus):
        raise ValueError("The corpus is empty: there is nothing to search.")
    options: dict[str, Any] = {
        "stopwords": "en",
        "stemmer": stemmer.Stemmer("english"),
        # It has one bar for each of four steps.
        "show_progress": False,
    }
    logger.info(f"Indexing the words of {len(corpus):,} texts")
    tokens = bm25s.tokenize(list(corpus), **options)
    index = bm25s.BM25()
    # Without any word there is nothing to index, and each score is 0.
    if tokens.vocab:
        index.index(tokens, show_progress=False)

    def score(queries: Sequence[str]) -> Iterator[np.ndarray]:
        for words in bm25s.tokenize(list(queries), return_ids=False, **options):
            if tokens.vocab:
                yield index.get_scores_from_ids(index.get_tokens_ids(words))
            else:
                yield np.zeros(len(corpus), np.float32)

    return score


def _best(scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of a row, the best first; ties are broken by the lower position, also those for the last place."""
    least = np.partition(scores, -top_k)[-top_k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    above = above[np.argsort(-scores[above], kind="stable")]
    positions = np.concatenate([above, equal[: top_k - len(above)]])
    return scores[positions], positions
