# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Hard negatives: documents that are like a query, and not known to be relevant."""

import hashlib
import math
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.files import to_path
from hf_dse.common.options import check_at_least
from hf_dse.data.rankings import Rankings, fold, make_rankings
from hf_dse.inference.search import nearest
from hf_dse.mining.arguments import SAMPLINGS
from hf_dse.mining.bm25 import bm25_index
from hf_dse.mining.embeddings import encode_blocks


logger = logging.get_logger(__name__)

# Queries are searched in blocks, which bounds the memory of what is found.
QUERIES_PER_BLOCK = 1024
# The constant of reciprocal rank fusion (Cormack et al., 2009).
FUSION_CONSTANT = 60

# Takes a block of queries and `top_k`, and returns the numbers of texts, the best first; -1 is none.
Search = Callable[[slice, int], np.ndarray]


def mine_candidates(
    rankings: Rankings,
    model: PreTrainedModel | None = None,
    processing_class: PreTrainedTokenizerBase | None = None,
    *,
    bm25: bool = False,
    num_candidates: int = 7,
    range_min: int = 0,
    range_max: int = 100,
    relative_margin: float | None = 0.05,
    score: Callable[[Rankings], Rankings] | None = None,
    sampling: str = "top",
    seed: int = 42,
    cache_dir: str | Path | None = None,
    batch_size: int = 32,
    max_length: int | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Rankings:
    """
    Adds hard negatives to the candidates of each query: the documents that an encoder, BM25 or both find.

    Never mined are the candidates that a query has already, the positives of another query with the same text, and the
    query itself, nor any other document with the text of one of these. Texts are the same if they differ only in case
    and white space. Of documents with the same text only the first can be mined.

    Both searches are merged by reciprocal rank fusion: a document that both find comes first, and their scores, which
    have no common scale, are not compared. What was left out and why is logged at level info.

    Args:
        rankings ([`Rankings`]):
            The queries and the corpus.
        model (`PreTrainedModel`, *optional*):
            Any model that [`encode`] accepts, to search by the cosine of embeddings, with its prompts for queries and
            documents if it has some.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the model.
        bm25 (`bool`, *optional*, defaults to `False`):
            Whether to search with BM25, instead of the model or in addition to it. Documents without a word of the
            query are not found.
        num_candidates (`int`, *optional*, defaults to 7):
            Number of negatives to add to each query.
        range_min (`int`, *optional*, defaults to 0):
            First rank to mine from, counted from 0 over what can be mined. The first ranks have the most documents
            that are relevant and not known to be.
        range_max (`int`, *optional*, defaults to 100):
            Rank to end before.
        relative_margin (`float`, *optional*, defaults to 0.05):
            Drop documents that score above `p - relative_margin * abs(p)`, where `p` is the lowest score of a positive
            of the query: they may be relevant too. This is the margin of NV-Retriever
            ([Moreira et al., 2024](https://huggingface.co/papers/2407.15831)) and of `mine_hard_negatives` of
            sentence-transformers, which also takes the lowest. The scores are those of `score`, otherwise the cosines
            of the model; for BM25 alone there is no margin. Nor is there one for a query without positives. Ranks are
            counted before documents are dropped. `None` drops none.
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
            Texts in a batch of the model.
        max_length (`int`, *optional*):
            Maximum number of tokens per text of the model.
        device (`str` or `torch.device`, *optional*):
            Device of the model. Defaults to its current device.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        [`Rankings`]: the same queries and corpus. The known candidates come first, unchanged, then the mined ones by
        rank with the label 0. A query has fewer than `num_candidates` if there are no more in the range.

    Raises:
        `ValueError`: without a model and BM25, for a model without its tokenizer, a number out of range, an unknown
        sampling, and if all documents are empty.
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
    if model is None and not bm25:
        raise ValueError("There is nothing to search with: pass a model, bm25=True (`--bm25`), or both.")
    if model is not None and processing_class is None:
        raise ValueError("The model needs its tokenizer: pass it as `processing_class`.")
    check_at_least(1, num_candidates=num_candidates)
    check_at_least(0, range_min=range_min)
    if range_max - range_min < num_candidates:
        raise ValueError(
            f"range_min={range_min} and range_max={range_max} leave fewer than num_candidates={num_candidates} "
            "documents: raise range_max."
        )
    if relative_margin is not None and not (math.isfinite(relative_margin) and relative_margin >= 0):
        raise ValueError(f"relative_margin={relative_margin}: it has to be at least 0, or None for no margin.")
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling={sampling!r}: it has to be one of {', '.join(SAMPLINGS)}.")

    texts = _distinct_texts(rankings.corpus["text"])
    own, same = _barred_texts(rankings, texts)
    distinct = rankings.corpus.select(texts.first_rows)["text"]
    searches: list[Search] = []
    vectors = None
    if model is not None and processing_class is not None:
        folder = None if cache_dir is None else to_path(cache_dir)
        options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length, "device": device}
        queries, documents = (
            encode_blocks(model, processing_class, part, prompt_name, folder, show_progress=show_progress, **options)
            for prompt_name, part in (("query", rankings.queries["query"]), ("document", distinct))
        )
        if queries.shape[1] != documents.shape[1]:
            raise ValueError(
                f"The embeddings of queries in {folder} have {queries.shape[1]} numbers, and those of documents "
                f"{documents.shape[1]}: files of it are damaged, delete them and run again."
            )
        vectors = (queries, documents)
        searches.append(_search_vectors(queries, documents, model.device))
    if bm25:
        searches.append(_search_words(rankings.queries["query"], distinct[:]))
    if relative_margin is not None and vectors is None and score is None:
        logger.info("BM25 alone gives positives no score to compare with, so there is no margin: pass a teacher.")

    counts: Counter[str] = Counter()
    pools: list[np.ndarray] = []
    positives = rankings.positives()
    found = _search(searches, own, same, range_max, counts, show_progress)
    for number, ranked in enumerate(found):
        pool = np.array(ranked[range_min:range_max], dtype=np.int32)
        if relative_margin is not None and vectors is not None and score is None:
            query, documents = vectors[0][number], vectors[1]
            similar = [documents[text] @ query for row in positives[number] if (text := texts.of_row[row]) >= 0]
            kept = documents[pool] @ query <= _limit(similar, relative_margin)
            counts["compared"] += len(pool) if similar else 0
            counts["above"] += int((~kept).sum())
            pool = pool[kept]
        if sampling == "random":
            pool = np.random.default_rng([seed, number]).permutation(pool)
        pools.append(texts.first_rows[pool if score is not None else pool[:num_candidates]])
    columns = {name: rankings.queries[name][:] for name in rankings.queries.column_names}
    if score is None:
        mined = [pool.tolist() for pool in pools]
        if rankings.has_scores:
            scores = zip(columns["teacher_logits"], mined, strict=True)
            columns["teacher_logits"] = [_unknown(known) + [None] * len(rows) for known, rows in scores]
    else:
        mined, logits = _score_pools(rankings, pools, score, num_candidates, relative_margin, counts, show_progress)
        columns["teacher_logits"] = logits
    columns["documents"] = [known + rows for known, rows in zip(columns["documents"], mined, strict=True)]
    columns["labels"] = [known + [0.0] * len(rows) for known, rows in zip(columns["labels"], mined, strict=True)]
    logger.info(_report(texts, [len(rows) for rows in mined], counts, num_candidates))
    return make_rankings(columns, rankings.corpus)


@dataclass
class _Texts:
    """The distinct texts of a corpus: their numbers by hash and by row (-1 if it is empty), and their first rows."""

    numbers: dict[bytes, int]
    of_row: np.ndarray
    first_rows: np.ndarray


def _key(text: str) -> bytes:
    """The hash of a text without case and white space, as hashes are smaller than the texts of a corpus."""
    return hashlib.blake2b(fold(text).encode(), digest_size=16).digest()


def _distinct_texts(corpus: Iterable[str]) -> _Texts:
    numbers: dict[bytes, int] = {}
    of_row: list[int] = []
    first_rows: list[int] = []
    for row, text in enumerate(corpus):
        number = numbers.setdefault(_key(text), len(numbers)) if text.strip() else -1
        if number == len(first_rows):
            first_rows.append(row)
        of_row.append(number)
    if not first_rows:
        raise ValueError(f"All {len(of_row)} documents of the corpus are empty: there is nothing to mine.")
    return _Texts(numbers, np.array(of_row), np.array(first_rows))


def _barred_texts(rankings: Rankings, texts: _Texts) -> tuple[list[set[int]], list[set[int]]]:
    """For each query, the texts of its candidates, and those that are the same as the query or its other positives."""
    keys = [_key(query) for query in rankings.queries["query"]]
    relevant: dict[bytes, set[int]] = {}
    for key, rows in zip(keys, rankings.positives(), strict=True):
        relevant.setdefault(key, set()).update(texts.of_row[rows].tolist())
    own = [set(texts.of_row[rows].tolist()) for rows in rankings.queries["documents"]]
    same = [(relevant[key] | {texts.numbers.get(key, -1)}) - known for key, known in zip(keys, own, strict=True)]
    return own, same


def _search_vectors(queries: np.ndarray, documents: np.ndarray, device: torch.device) -> Search:
    corpus = torch.from_numpy(documents).to(device)

    def search(rows: slice, top_k: int) -> np.ndarray:
        return nearest(torch.from_numpy(queries[rows]).to(device), corpus, top_k)[1].cpu().numpy()

    return search


def _search_words(queries: Sequence[str], documents: Sequence[str]) -> Search:
    index = bm25_index(documents)

    def search(rows: slice, top_k: int) -> np.ndarray:
        scores, positions = index(queries[rows], top_k)
        return np.where(scores > 0, positions, -1)

    return search


def _search(
    searches: Sequence[Search],
    own: Sequence[set[int]],
    same: Sequence[set[int]],
    range_max: int,
    counts: Counter[str],
    show_progress: bool,
) -> Iterator[list[int]]:
    """Yields the texts that can be mined for each query, the best first, and at least `range_max` if there are."""
    # Barred texts may take the first ranks.
    depths = [range_max + len(known) + len(others) for known, others in zip(own, same, strict=True)]
    with tqdm(total=len(own), desc="Searching", unit="query", disable=not show_progress) as progress:
        for start in range(0, len(own), QUERIES_PER_BLOCK):
            rows = slice(start, start + QUERIES_PER_BLOCK)
            results = [search(rows, max(depths[rows])) for search in searches]
            for known, others, depth, *found in zip(own[rows], same[rows], depths[rows], *results, strict=True):
                lists = [[text for text in ranked[:depth].tolist() if text >= 0] for ranked in found]
                seen = set().union(*lists)
                counts["own"] += len(seen & known)
                counts["same"] += len(seen & others)
                barred = known | others
                yield _fuse([[text for text in ranked if text not in barred] for ranked in lists])
            progress.update(len(own[rows]))


def _fuse(lists: list[list[int]]) -> list[int]:
    """Merges ranked lists: the best has the largest sum of the reciprocals of its ranks."""
    if len(lists) == 1:
        return lists[0]
    sums: Counter[int] = Counter()
    for ranked in lists:
        for rank, text in enumerate(ranked, start=1):
            sums[text] += 1 / (FUSION_CONSTANT + rank)  # type: ignore[assignment]
    return sorted(sums, key=lambda text: (-sums[text], text))


def _limit(positives: Sequence[float], relative_margin: float | None) -> float:
    """The highest score of a negative."""
    if not len(positives) or relative_margin is None:
        return math.inf
    lowest = min(positives)
    return lowest - relative_margin * abs(lowest)


def _score_pools(
    rankings: Rankings,
    pools: Sequence[np.ndarray],
    score: Callable[[Rankings], Rankings],
    num_candidates: int,
    relative_margin: float | None,
    counts: Counter[str],
    show_progress: bool,
) -> tuple[list[list[int]], list[list[float]]]:
    """
    Takes the first documents of each pool that the teacher scores below the margin. It scores only as many as needed,
    `num_candidates` of each pool at a time. Returns them, and the scores of all candidates of each query.
    """
    columns = {name: rankings.queries[name][:] for name in ("query_id", "query", "documents", "labels")}
    mined: list[list[int]] = [[] for _ in pools]
    logits: list[list[float]] = [[] for _ in pools]
    limits = [math.inf] * len(pools)
    asked = [number for number, known in enumerate(columns["documents"]) if known or len(pools[number])]
    start = 0
    progress = tqdm(total=len(asked), desc="Mining with the teacher", unit="query", disable=not show_progress)
    while asked:
        taken = [pools[number][start : start + num_candidates].tolist() for number in asked]
        known = [columns["documents"][number] if start == 0 else [] for number in asked]
        part: dict[str, list] = {name: [columns[name][number] for number in asked] for name in ("query_id", "query")}
        part["documents"] = [first + rows for first, rows in zip(known, taken, strict=True)]
        scores = score(make_rankings(part, rankings.corpus)).queries["teacher_logits"][:]
        for number, first, rows, values in zip(asked, known, taken, scores, strict=True):
            if start == 0:
                logits[number] = values[: len(first)]
                pairs = zip(logits[number], columns["labels"][number], strict=True)
                limits[number] = _limit([value for value, label in pairs if label > 0], relative_margin)
            for row, value in zip(rows, values[len(first) :], strict=True):
                counts["compared"] += math.isfinite(limits[number])
                counts["above"] += value > limits[number]
                if value <= limits[number] and len(mined[number]) < num_candidates:
                    mined[number].append(row)
                    logits[number].append(value)
        start += num_candidates
        remaining = [n for n in asked if len(mined[n]) < num_candidates and start < len(pools[n])]
        progress.update(len(asked) - len(remaining))
        asked = remaining
    progress.close()
    return mined, logits


def _unknown(values: Iterable[float]) -> list[float | None]:
    return [None if math.isnan(value) else value for value in values]


def _report(texts: _Texts, sizes: Sequence[int], counts: Counter[str], num_candidates: int) -> str:
    empty = int((texts.of_row < 0).sum())
    few = sum(size < num_candidates for size in sizes)
    lines = {
        "documents": len(texts.of_row),
        "  left out, empty": empty,
        "  left out, same text as another": len(texts.of_row) - empty - len(texts.first_rows),
        "queries": len(sizes),
        "found, but candidates already": counts["own"],
        "found, but the same text as the query or a positive": counts["same"],
        "compared with the positives": counts["compared"],
        "  left out, above the margin": counts["above"],
        "mined": sum(sizes),
        f"queries with fewer than {num_candidates}": few,
        "  with none": sum(size == 0 for size in sizes),
    }
    return "\n".join(f"{name:<56}{value:>11,}" for name, value in lines.items())
