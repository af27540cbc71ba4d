# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search by the words of a query with bm25s: BM25, alone or beside the cosine."""

import math
import re
import unicodedata
from collections.abc import Callable, Sequence
from itertools import pairwise
from typing import Any

import numpy as np
from transformers.utils import logging

from hf_dse.retrieval.arguments import BM25_WEIGHT


logger = logging.get_logger(__name__)

HAN = "\u3005-\u3007\u3400-\u9fff\uf900-\ufaff\U00020000-\U0003ffff"
# Scripts without spaces between words: Thai, Lao, Myanmar, Khmer, Japanese and Chinese.
UNSPACED = re.compile(f"[\u0e00-\u0eff\u1000-\u109f\u1780-\u17ff\u3040-\u30ff{HAN}]+")
# As in scikit-learn, words of one letter do not count; a Chinese character is a word.
TOKEN = rf"\S\S+|[{HAN}]"


class _Letters(dict[int, str | None]):
    """For `str.translate`: what is not part of a word becomes a space, and invisible format characters vanish."""

    def __missing__(self, code: int) -> str | None:
        character = chr(code)
        category = unicodedata.category(character)
        # Letters, their marks, numbers, and the underscore.
        is_part = category[0] in "LMN" or category == "Pc"
        self[code] = character if is_part else None if category == "Cf" else " "
        return self[code]


_LETTERS = _Letters()


def split_words(text: str) -> str:
    """The words of a text in the normal form NFKC; pairs and single characters for scripts without spaces."""
    text = unicodedata.normalize("NFKC", text).translate(_LETTERS)
    return UNSPACED.sub(lambda match: f" {' '.join([*map(''.join, pairwise(match[0])), *match[0]])} ", text)


class Bm25Index:
    """Lucene's BM25 of the words of a corpus, with the settings of MTEB: k1 = 1.5, b = 0.75, English stop words."""

    def __init__(self, corpus: Sequence[str]):
        bm25s, stemmer = import_bm25()
        self.num_texts = len(corpus)
        self.tokenize = bm25s.tokenize
        words = {"token_pattern": TOKEN, "stopwords": "en", "stemmer": stemmer.Stemmer("english")}
        self.options: dict[str, Any] = {**words, "show_progress": False}
        tokens = self.tokenize([split_words(text) for text in corpus], **self.options)
        self.index = bm25s.BM25()
        self.has_words = bool(tokens.vocab)
        if self.has_words:
            self.index.index(tokens, show_progress=False)

    def words(self, queries: Sequence[str]) -> list[list[int]]:
        """The numbers of the words of each query that occur in the corpus."""
        if not self.has_words:
            return [[] for _ in queries]
        words = self.tokenize([split_words(query) for query in queries], return_ids=False, **self.options)
        return [self.index.get_tokens_ids(found) for found in words]

    def scores(self, words: list[int]) -> np.ndarray:
        """The scores (float32) of all texts for the words of a query."""
        return self.index.get_scores_from_ids(words) if words else np.zeros(self.num_texts, np.float32)


def bm25_search(queries: Sequence[str], corpus: Sequence[str], top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best scores (float32) and their positions (int64), `(num_queries, top_k)`; 0 without a shared word."""
    index, shape = Bm25Index(corpus), (len(queries), min(top_k, len(corpus)))
    scores, positions = np.empty(shape, np.float32), np.empty(shape, np.int64)
    for row, words in enumerate(index.words(queries)):
        scores[row], positions[row] = _best(index.scores(words), shape[1])
    return scores, positions


def bm25_scores(
    queries: Sequence[str], corpus: Sequence[str], weight: float = BM25_WEIGHT, groups: Sequence | None = None
) -> Callable[[slice], np.ndarray]:
    """
    BM25 as a part of a search by embeddings, known as hybrid search: `weight` times the BM25 score of a text, divided
    by the best BM25 score of all texts for the same query. [`search`] adds it to the cosine of every text.
    [Bruch et al., 2022](https://huggingface.co/papers/2210.11934) found such weighted sums better than a fusion of
    ranks.

    Args:
        queries (`Sequence[str]`):
            The queries.
        corpus (`Sequence[str]`):
            The texts.
        weight (`float`, *optional*, defaults to 0.3):
            Added to the cosine of the text with the best BM25 score. For passages of long documents 0.6 is a better
            start.
        groups (`Sequence`, *optional*):
            The document that each text is a passage of. Half of what is added is then the score of the whole document,
            because the words of a question are seldom all in one passage.

    Returns:
        `Callable[[slice], np.ndarray]`: takes a slice of the queries, and returns an array (float32) of shape
        `(num_rows, num_texts)` with numbers from 0 to `weight`. Only such a block is in memory.

    Example:

    ```python
    >>> from hf_dse import bm25_scores

    >>> added = bm25_scores(["error 4711"], ["Rain again.", "Error 4711: no paper.", "It is an error."])
    >>> added(slice(0, 1)).round(2)
    array([[0.  , 0.3 , 0.15]], dtype=float32)
    ```
    """
    if not 0 <= weight < math.inf:
        raise ValueError(f"weight={weight}: it has to be a finite number of at least 0.")
    parts: dict[Any, list[str]] = {}
    for text, group in zip(corpus, range(len(corpus)) if groups is None else groups, strict=True):
        parts.setdefault(group, []).append(text)
    # Where each document is one passage, one index serves both.
    if groups is not None and len(parts) < len(corpus):
        number = {group: position for position, group in enumerate(parts)}
        document_of = np.array([number[group] for group in groups])
        of_passages = bm25_scores(queries, corpus, weight / 2)
        of_documents = bm25_scores(queries, [" ".join(texts) for texts in parts.values()], weight / 2)
        return lambda rows: of_passages(rows) + of_documents(rows)[:, document_of]
    index = Bm25Index(corpus)
    words = index.words(queries)
    without = words.count([])
    if without > len(words) / 2:
        logger.warning(f"{without} of {len(words)} queries share no word with the texts: BM25 adds nothing to them.")

    def added_scores(rows: slice) -> np.ndarray:
        scores = np.stack([index.scores(found) for found in words[rows]])
        best = scores.max(axis=1, keepdims=True)
        return scores / np.where(best > 0, best, 1) * np.float32(weight)

    return added_scores


def import_bm25() -> tuple[Any, Any]:
    """The packages of BM25. Call it before a corpus is embedded."""
    try:
        import bm25s
        import Stemmer
    except ImportError as error:
        raise ImportError("BM25 needs bm25s and PyStemmer: `pip install hf-dse[ranking]`.") from error
    return bm25s, Stemmer


def _best(scores: np.ndarray, top_k: int) -> tuple[np.ndarray, np.ndarray]:
    """The best of a row, the best first; ties are broken by the lower position, also those for the last place."""
    least = np.partition(scores, -top_k)[-top_k]
    above, equal = np.flatnonzero(scores > least), np.flatnonzero(scores == least)
    above = above[np.argsort(-scores[above], kind="stable")]
    positions = np.concatenate([above, equal[: top_k - len(above)]])
    return scores[positions], positions
