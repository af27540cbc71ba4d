# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of the candidates of queries, by a reranker or a bi-encoder with BM25, and checks of these scores."""

import math
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging

from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import Rankings
from hf_dse.teacher.arguments import WINDOWS
from hf_dse.teacher.bi_encoders import is_bi_encoder, similarities
from hf_dse.teacher.rerankers import limit_of, load_reranker, overhead, reads_messages
from hf_dse.teacher.score import score_texts, with_logits


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from hf_dse.teacher.rerankers import Teacher

logger = logging.get_logger(__name__)

# Documents that are tokenized together.
DOCUMENTS_AT_ONCE = 1000

# A text may have a few more tokens between the other text of a template than alone.
TEMPLATE_MARGIN = 8


def score_candidates(
    teacher: "Teacher",
    rankings: Rankings,
    *,
    batch_size: int = 64,
    max_length: int | None = None,
    windows: str = "first",
    bm25_weight: float = 0.0,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
) -> Rankings:
    """Queries with the scores of their candidates, see `hf_dse.score`."""
    if windows not in WINDOWS:
        raise ValueError(f"windows={windows!r}: it has to be {' or '.join(map(repr, WINDOWS))}.")
    if not any(rankings.queries["documents"][:]):
        raise ValueError("The queries have no candidates to score: mine them with `mine` or `hf-dse mine`.")
    options: dict[str, Any] = {"batch_size": batch_size, "windows": windows}
    options |= {"cache_dir": cache_dir, "show_progress": show_progress}
    if is_bi_encoder(teacher):
        scores = similarities(teacher, rankings, bm25_weight=bm25_weight, **options)
    else:
        if bm25_weight:
            raise ValueError(
                f"bm25_weight={bm25_weight} is an option of bi-encoders: pass a loaded `SentenceTransformer` "
                "(`--bi_encoder`), or leave it out."
            )
        needed = keep_documents(rankings)
        texts = needed.corpus["text"][:]
        lists = [[texts[row] for row in rows] for rows in needed.queries["documents"][:]]
        queries = rankings.queries["query"][:]
        scores = rerank(load_reranker(teacher), queries, lists, max_length=max_length, **options)
    return Rankings(with_logits(rankings.queries, scores), rankings.corpus)


def rerank(
    reranker: "CrossEncoder",
    queries: Sequence[str],
    texts: Sequence[Sequence[str]],
    *,
    windows: str = "best",
    max_length: int | None = None,
    **options: Any,
) -> list[list[float]]:
    """
    The scores of the texts of each query, such as those that a search found. Those of a query that leaves no room for
    a text are NaN, and no room for any query is an error. `options` are of `score_texts`.
    """
    if reranker.num_labels not in (1, 2):
        raise ValueError(
            f"The teacher has {reranker.num_labels} logits, and a reranker has 1, or 2 for irrelevant and relevant: "
            "use a teacher that was trained for ranking."
        )
    limit = limit_of(reranker, max_length)
    parts = _windows(reranker, queries, texts, limit, windows)
    pairs = [(query, part) for query, lists in zip(queries, parts, strict=True) for read in lists for part in read]
    logits = score_texts(reranker, pairs, max_length=limit, truncation="only_second", **options)
    # Of two logits, the second one is that of "relevant".
    scores = {pair: values[-1] - (values[0] if len(values) == 2 else 0.0) for pair, values in logits.items()}
    return [
        [max((scores[query, part] for part in read), default=math.nan) for read in lists]
        for query, lists in zip(queries, parts, strict=True)
    ]


def _windows(
    reranker: "CrossEncoder",
    queries: Sequence[str],
    texts: Sequence[Sequence[str]],
    max_length: int,
    windows: str,
) -> list[list[list[str]]]:
    """For each query, the windows of each of its documents that are scored."""
    tokenizer = reranker.tokenizer
    if windows == "first" and not tokenizer.is_fast:
        # Only fast tokenizers tell which characters a token stands for.
        return [[[document] for document in documents] for documents in texts]
    # The tokens of a query and a document together.
    room = max_length - overhead(reranker) - (TEMPLATE_MARGIN if reads_messages(reranker) else 0)
    parts: list[list[list[str]]] = []
    num_long, too_long = 0, []
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    query_sizes = [len(ids) for ids in tokenizer(list(queries), **options)["input_ids"]] if queries else []
    # Each document that is too long for a query is tokenized once: where its tokens begin and end.
    least, spans = room - max(query_sizes, default=0), {}
    distinct = list(dict.fromkeys(text for documents in texts for text in documents))
    for start in range(0, len(distinct), DOCUMENTS_AT_ONCE):
        block = distinct[start : start + DOCUMENTS_AT_ONCE]
        found = tokenizer(block, return_offsets_mapping=True, **options)["offset_mapping"]
        spans.update({text: np.array(of) for text, of in zip(block, found, strict=True) if len(of) > least})
    for query, size_of_query, documents in zip(queries, query_sizes, texts, strict=True):
        length = room - size_of_query
        if documents and length < 1:
            too_long.append(f"{query[:60]!r}, {size_of_query} tokens")
            parts.append([[] for _ in documents])
            continue
        parts.append([[document] for document in documents])
        for row, document in enumerate(documents):
            offsets = spans.get(document, ())
            size = len(offsets)
            if size > length:
                num_long += 1
                starts = [0] if windows == "first" else [*range(0, size - length, length), size - length]
                parts[-1][row] = [document[offsets[start][0] : offsets[start + length - 1][1]] for start in starts]
    if too_long:
        message = (
            f"{len(too_long)} of {len(queries)} queries leave no room for a document in the max_length={max_length} "
            f"of the reranker ({too_long[0]}): shorten them, or use a reranker that reads more"
        )
        if len(too_long) == len(queries):
            raise ValueError(f"{message}.")
        logger.warning(f"{message}. Their documents get no scores.")
    if num_long and windows == "first":
        logger.warning(
            f"{num_long} candidates are longer than what max_length={max_length} leaves next to their query, and only "
            "their first window is scored: raise the teacher's max_length, or pass windows='best'."
        )
    return parts


def check_scores(rankings: Rankings, name: str, *, are_raw: bool) -> None:
    """Raises a `ValueError` if all scores are equal; warns of wrong signs, and of sigmoids if not raw."""
    scores = np.concatenate(rankings.queries["teacher_logits"][:])
    known = scores[~np.isnan(scores)]
    if not known.size or np.ptp(known) == 0:
        raise ValueError(f"{name}: all {known.size} scores are equal, so there is nothing to learn from them.")
    if not are_raw and known.min() >= 0 and known.max() <= 1:
        logger.warning(
            f"{name}: all scores lie between {known.min():.3g} and {known.max():.3g}, as after a sigmoid: distil raw "
            "logits, which `hf-dse score` writes. Cosines are fine."
        )
    shares = []
    for row in zip(rankings.queries["teacher_logits"][:], rankings.queries["labels"][:], strict=True):
        scores, labels = map(np.array, row)
        relevant, rest = (scores[part & ~np.isnan(scores)] for part in (labels > 0, ~(labels > 0)))
        if relevant.size and rest.size:
            differences = relevant[:, None] - rest
            shares.append(np.mean((differences > 0) + 0.5 * (differences == 0)))
    if shares and np.mean(shares) < 0.5:
        logger.warning(
            f"{name}: over {len(shares)} queries, a relevant document scores higher than another candidate in only "
            f"{100 * np.mean(shares):.0f} % of the cases: is this a teacher for this task, and the sign right?"
        )
