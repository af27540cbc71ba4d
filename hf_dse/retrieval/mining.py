# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Hard negatives: documents that are like a query, and not known to be relevant.

`mine_hard_negatives` of sentence-transformers (6.2) is not called. It does not search with BM25, and leaves out
queries without a positive. It takes as negatives documents whose label is unknown, texts that differ from a positive
in case or white space alone, and the query itself. It reads its cache by the name of a model, also after another
training. With a teacher it scores all `range_max` candidates of a query, where a few are enough.
"""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import torch
from torch import nn
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.files import to_path
from hf_dse.data.rankings import Rankings, fold, make_rankings
from hf_dse.retrieval.arguments import SAMPLINGS
from hf_dse.retrieval.bm25 import Bm25Index
from hf_dse.retrieval.kept_vectors import embed_once
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import embed


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# Queries are searched in blocks, which bounds the memory of what is found.
QUERIES_PER_BLOCK = 1024
# The constant of reciprocal rank fusion (Cormack et al., 2009).
FUSION_CONSTANT = 60

# Takes a block of queries and `top_k`, and returns the numbers of texts, the best first; -1 is none.
Search = Callable[[slice, int], np.ndarray]


def mine_candidates(
    rankings: Rankings,
    encoder: "SentenceTransformer | None" = None,
    *,
    bm25: bool = False,
    num_negatives: int = 15,
    range_min: int = 0,
    range_max: int = 100,
    relative_margin: float | None = 0.05,
    score: Callable[[Rankings], Rankings] | None = None,
    sampling: str = "top",
    seed: int = 42,
    cache_dir: str | Path | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> Rankings:
    """
    Adds hard negatives to the candidates of each query: the documents that an encoder, BM25 or both find.

    Never mined are the candidates that a query has already, the positives of another query with the same text, and the
    query itself, nor any other document with the text of one of these. Texts are the same if they differ only in case
    and white space. Of documents with the same text only the first can be mined.

    Both searches are merged by reciprocal rank fusion: a document that both find comes first, and their scores, which
    have no common scale, are not compared.

    Args:
        rankings ([`Rankings`]):
            The queries and the corpus.
        encoder (`SentenceTransformer`, *optional*):
            Searches by the cosine of embeddings, with its prompts for queries and documents.
        bm25 (`bool`, *optional*, defaults to `False`):
            Whether to search with BM25, instead of the encoder or in addition to it. Documents without a word of the
            query are not found.
        num_negatives (`int`, *optional*, defaults to 15):
            Number of negatives to add to each query.
        range_min (`int`, *optional*, defaults to 0):
            First rank to mine from, counted from 0 over what can be mined. The first ranks have the most documents
            that are relevant and not known to be.
        range_max (`int`, *optional*, defaults to 100):
            Rank to end before.
        relative_margin (`float`, *optional*, defaults to 0.05):
            Drop documents that score above `p - relative_margin * abs(p)`, where `p` is the lowest score of a positive
            of the query: they may be relevant too. This is the margin of NV-Retriever
            ([Moreira et al., 2024](https://huggingface.co/papers/2407.15831)). The scores are those of `score`,
            otherwise the cosines of the encoder; there is no margin for BM25 alone, and none for a query without
            positives. Ranks are counted before documents are dropped. `None` drops none.
        score (`Callable`, *optional*):
            The teacher for the margin, a function that adds `teacher_logits` to rankings. It scores as many documents
            of a query as are needed, the known candidates included, and its scores stay in the result.
        sampling (`str`, *optional*, defaults to `"top"`):
            `"top"`: the first in the range. `"random"`: any in the range.
        seed (`int`, *optional*, defaults to 42):
            Random seed of the sampling.
        cache_dir (`str` or `Path`, *optional*):
            Folder of embeddings, from which an interrupted run continues. Defaults to none.
        batch_size (`int`, *optional*, defaults to 32):
            Texts in a batch of the encoder.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        [`Rankings`]: the same queries and corpus. The known candidates come first, unchanged, then the mined ones by
        rank with the label 0. A query has fewer than `num_negatives` if there are no more in the range.

    Raises:
        `ValueError`: without an encoder and BM25, for a number out of range, and if all documents are blank.
        `ImportError`: for BM25 without its packages.

    Example:

    ```python
    >>> from hf_dse import make_rankings, mine_candidates

    >>> corpus = {"text": ["Planes fly by lift.", "Planes are loud.", "Cats purr.", "planes  fly by lift."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> mined = mine_candidates(rankings, bm25=True, show_progress=False)
    >>> mined.queries["documents"][0], mined.queries["labels"][0]
    ([0, 1], [1.0, 0.0])
    ```
    """
    if encoder is None and not bm25:
        raise ValueError("There is nothing to search with: pass an encoder, bm25=True (`--bm25`), or both.")
    if range_min < 0 or num_negatives < 1 or range_max - range_min < num_negatives:
        raise ValueError(
            f"range_min={range_min} and range_max={range_max} leave fewer than num_negatives={num_negatives} "
            "documents: raise range_max."
        )
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling={sampling!r}: it has to be one of {', '.join(SAMPLINGS)}.")

    corpus, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    number_of, text_of, first_rows = _distinct_texts(corpus)
    barred = _barred_texts(rankings, number_of, text_of)
    distinct = [corpus[row] for row in first_rows]
    searches: list[Search] = []
    if encoder is not None:
        folder = None if cache_dir is None else to_path(cache_dir)
        vectors = [
            _unit_vectors(encoder, texts, prompt_name, folder, batch_size, show_progress)
            for prompt_name, texts in (("query", queries), ("document", distinct))
        ]
        device = encoder.device
        searches.append(lambda rows, depth: nearest(vectors[0][rows], vectors[1], depth, device=device)[1])
    if bm25:
        index = Bm25Index(distinct)
        searches.append(lambda rows, depth: _found_words(*index.search(queries[rows], depth)))

    counts: Counter[str] = Counter()
    pools: list[list[int]] = []
    positives = rankings.positives()
    for number, ranked in enumerate(_search(searches, barred, range_max, show_progress)):
        pool = np.array(ranked[range_min:range_max], dtype=np.int64)
        known = text_of[positives[number]]
        if score is None and encoder is not None and relative_margin is not None and (known >= 0).any():
            query, documents = vectors[0][number], vectors[1]
            limit = _limit(documents[known[known >= 0]] @ query, relative_margin)
            kept = documents[pool] @ query <= limit
            counts["compared"] += len(pool)
            counts["above"] += int((~kept).sum())
            pool = pool[kept]
        if sampling == "random":
            pool = np.random.default_rng([seed, number]).permutation(pool)
        pools.append(first_rows[pool].tolist())
    columns = {name: rankings.queries[name][:] for name in rankings.queries.column_names}
    if score is None:
        mined = [pool[:num_negatives] for pool in pools]
        if rankings.has_scores:
            columns["teacher_logits"] = [
                [*known, *[math.nan] * len(rows)] for known, rows in zip(columns["teacher_logits"], mined, strict=True)
            ]
    else:
        mined, logits = _score_pools(rankings, pools, score, num_negatives, relative_margin, counts, show_progress)
        columns["teacher_logits"] = logits
    columns["documents"] = [[*known, *rows] for known, rows in zip(columns["documents"], mined, strict=True)]
    columns["labels"] = [[*known, *[0.0] * len(rows)] for known, rows in zip(columns["labels"], mined, strict=True)]
    sizes = [len(rows) for rows in mined]
    logger.info(
        f"Mined {sum(sizes):,} negatives for {len(sizes):,} queries in {len(distinct):,} distinct texts of "
        f"{len(corpus):,} documents. {counts['above']:,} of {counts['compared']:,} that were compared with the "
        f"positives are above the margin. {sum(size < num_negatives for size in sizes):,} queries have fewer than "
        f"{num_negatives} negatives, {sizes.count(0):,} have none."
    )
    return make_rankings(columns, rankings.corpus)


def _key(text: str) -> bytes:
    """The hash of a text without case and white space: a corpus has more memory than its hashes."""
    return hashlib.blake2b(fold(text).encode(), digest_size=16).digest()


def _distinct_texts(corpus: Sequence[str]) -> tuple[dict[bytes, int], np.ndarray, np.ndarray]:
    """The numbers of the distinct texts by their hashes and by row (-1 for a blank one), and their first rows."""
    number_of: dict[bytes, int] = {}
    text_of = np.array([number_of.setdefault(_key(text), len(number_of)) if text.strip() else -1 for text in corpus])
    if not number_of:
        raise ValueError(f"All {len(corpus)} documents of the corpus are blank: there is nothing to mine.")
    numbers, rows = np.unique(text_of, return_index=True)
    return number_of, text_of, rows[numbers >= 0]


def _barred_texts(rankings: Rankings, number_of: dict[bytes, int], text_of: np.ndarray) -> list[set[int]]:
    """For each query, the texts of its candidates, of the positives of the same query, and of the query."""
    keys = [_key(query) for query in rankings.queries["query"]]
    barred: dict[bytes, set[int]] = {key: {number_of.get(key, -1)} for key in keys}
    for key, rows in zip(keys, rankings.positives(), strict=True):
        barred[key].update(text_of[rows].tolist())
    own = (text_of[rows].tolist() for rows in rankings.queries["documents"])
    return [barred[key].union(texts) for key, texts in zip(keys, own, strict=True)]


def _unit_vectors(
    encoder: "SentenceTransformer",
    texts: list[str],
    prompt_name: str,
    folder: Path | None,
    batch_size: int,
    show_progress: bool,
) -> np.ndarray:
    if folder is None:
        vectors = embed(encoder, texts, prompt_name, batch_size=batch_size, show_progress=show_progress)
    else:
        entries, _ = embed_once(
            encoder, texts, folder, prompt_name, batch_size=batch_size, show_progress=show_progress
        )
        vectors = np.concatenate([part for _, part in entries])
    return nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy()


def _found_words(scores: np.ndarray, positions: np.ndarray) -> np.ndarray:
    return np.where(scores > 0, positions, -1)


def _search(
    searches: Sequence[Search], barred: Sequence[set[int]], range_max: int, show_progress: bool
) -> Iterator[list[int]]:
    """Yields the texts that can be mined for each query, the best first, and at least `range_max` if there are."""
    with tqdm(total=len(barred), desc="Searching", unit="query", disable=not show_progress) as progress:
        for start in range(0, len(barred), QUERIES_PER_BLOCK):
            rows = slice(start, start + QUERIES_PER_BLOCK)
            # Barred texts may take the first ranks.
            results = [search(rows, range_max + max(map(len, barred[rows]))) for search in searches]
            for texts, *found in zip(barred[rows], *results, strict=True):
                lists = [ranked[: range_max + len(texts)].tolist() for ranked in found]
                yield _fuse([[text for text in ranked if text >= 0 and text not in texts] for ranked in lists])
            progress.update(len(barred[rows]))


def _fuse(lists: list[list[int]]) -> list[int]:
    """Merges ranked lists: the best has the largest sum of the reciprocals of its ranks."""
    sums: dict[int, float] = {}
    for ranked in lists:
        for rank, text in enumerate(ranked, start=1):
            sums[text] = sums.get(text, 0.0) + 1 / (FUSION_CONSTANT + rank)
    return lists[0] if len(lists) == 1 else sorted(sums, key=lambda text: (-sums[text], text))


def _limit(positives: np.ndarray, relative_margin: float | None) -> float:
    """The highest score of a negative."""
    if not len(positives) or relative_margin is None:
        return math.inf
    lowest = float(min(positives))
    return lowest - relative_margin * abs(lowest)


def _score_pools(
    rankings: Rankings,
    pools: Sequence[list[int]],
    score: Callable[[Rankings], Rankings],
    num_negatives: int,
    relative_margin: float | None,
    counts: Counter[str],
    show_progress: bool,
) -> tuple[list[list[int]], list[list[float]]]:
    """
    Takes the first documents of each pool that the teacher scores below the margin. It scores only as many as needed,
    `num_negatives` of each pool at a time. Returns them, and the scores of all candidates of each query.
    """
    columns = {name: rankings.queries[name][:] for name in ("query_id", "query", "documents", "labels")}
    mined: list[list[int]] = [[] for _ in pools]
    logits: list[list[float]] = [[] for _ in pools]
    limits = [math.inf] * len(pools)
    asked = [number for number, known in enumerate(columns["documents"]) if known or pools[number]]
    start = 0
    progress = tqdm(total=len(asked), desc="Mining with the teacher", unit="query", disable=not show_progress)
    while asked:
        known = [columns["documents"][number] if start == 0 else [] for number in asked]
        taken = [pools[number][start : start + num_negatives] for number in asked]
        part: dict[str, list] = {name: [columns[name][number] for number in asked] for name in ("query_id", "query")}
        part["documents"] = [[*first, *rows] for first, rows in zip(known, taken, strict=True)]
        scores = score(make_rankings(part, rankings.corpus)).queries["teacher_logits"][:]
        for number, first, rows, values in zip(asked, known, taken, scores, strict=True):
            if start == 0:
                logits[number] = values[: len(first)]
                pairs = zip(logits[number], columns["labels"][number], strict=True)
                limits[number] = _limit(np.array([value for value, label in pairs if label > 0]), relative_margin)
            for row, value in zip(rows, values[len(first) :], strict=True):
                counts["compared"] += math.isfinite(limits[number])
                counts["above"] += value > limits[number]
                if value <= limits[number] and len(mined[number]) < num_negatives:
                    mined[number].append(row)
                    logits[number].append(value)
        start += num_negatives
        remaining = [n for n in asked if len(mined[n]) < num_negatives and start < len(pools[n])]
        progress.update(len(asked) - len(remaining))
        asked = remaining
    progress.close()
    return mined, logits
