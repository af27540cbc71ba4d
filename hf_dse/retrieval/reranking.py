# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores by a reranker of the texts of queries, and of any pairs: kept on disk, from which a run continues."""

import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.cache import key_of, open_cache
from hf_dse.common.files import to_path
from hf_dse.data.tokenization import length_batches, token_lengths, warn_of_texts
from hf_dse.retrieval.rerankers import Pair, limit_of, overhead, raw_logits
from hf_dse.retrieval.sentence_transformer import fingerprint_of, prompt_of


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

logger = logging.get_logger(__name__)

# A function of queries and their texts that returns a score of each text.
Reranker = Callable[[list[str], list[list[str]]], list[list[float]]]

# Documents that are tokenized together.
DOCUMENTS_AT_ONCE = 1000

# A text may have a few more tokens between the other text of a template than alone.
TEMPLATE_MARGIN = 8


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
    The scores of the texts of each query, such as a search finds. They are NaN where a query leaves no room for a
    text, and it is an error if every query does so. `options` are of `score_texts`.
    """
    if reranker.num_labels not in (1, 2):
        raise ValueError(
            f"The reranker has {reranker.num_labels} logits, and needs 1, or 2 for irrelevant and relevant: use one "
            "that was trained for ranking."
        )
    limit = limit_of(reranker, max_length)
    parts = _windows(reranker, queries, texts, limit, windows)
    pairs = [(query, part) for query, lists in zip(queries, parts, strict=True) for read in lists for part in read]
    logits = score_texts(reranker, pairs, max_length=limit, truncation="only_second", **options)
    # The second of two logits is that of "relevant".
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
    if not tokenizer.is_fast:
        if windows == "best":
            raise ValueError(
                f"windows='best' needs a fast tokenizer, and that of the reranker is a {type(tokenizer).__name__}: "
                "pass windows='first' (`--windows first`), or use another reranker."
            )
        # Only fast tokenizers tell which characters a token stands for.
        return [[[document] for document in documents] for documents in texts]
    # The tokens of a query and a document together.
    room = max_length - overhead(reranker) - (TEMPLATE_MARGIN if "message" in reranker.modalities else 0)
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
            "their first window is scored: raise the reranker's max_length, or pass windows='best'."
        )
    return parts


def score_texts(
    reranker: "CrossEncoder",
    pairs: Sequence[Pair],
    *,
    max_length: int,
    truncation: str = "longest_first",
    batch_size: int = 32,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
) -> dict[Pair, list[float]]:
    """The raw logits of pairs of texts, each once: kept ones, and others in batches, each of which is kept at once."""
    if "message" in reranker.modalities:
        # A chat template makes one text of both.
        truncation = "longest_first"
    path, settings = None, None
    if cache_dir is not None:
        path = to_path(cache_dir) / "scores.sqlite"
        settings = [fingerprint_of(reranker), prompt_of(reranker, None), max_length, truncation]
    keys = {pair: key_of([settings, pair]) for pair in pairs}
    with open_cache(path) as cache:
        pair_of = {key: pair for pair, key in keys.items()}
        scores = {pair_of[key]: np.frombuffer(value, "<f8").tolist() for key, value in cache.read(pair_of)}
        unknown = [pair for pair in keys if pair not in scores]
        added = overhead(reranker) - reranker.tokenizer.num_special_tokens_to_add(pair=True)
        texts = [first for first, _ in unknown], [second for _, second in unknown]
        warn_of_texts(reranker.tokenizer, [*texts[0], *texts[1]])
        sizes = [size + added for size in token_lengths(reranker.tokenizer, *texts)]
        num_cut = sum(size > max_length for size in sizes)
        if num_cut and truncation == "longest_first":
            logger.warning(
                f"{num_cut} of {len(unknown)} pairs are longer than {max_length} tokens and were truncated: raise the "
                "reranker's max_length, or use one with more positions, if the ends of the texts matter."
            )
        with tqdm(total=len(unknown), desc="Scoring", unit="pair", disable=not show_progress) as progress:
            for rows in length_batches([min(size, max_length) for size in sizes], batch_size):
                batch = [unknown[row] for row in rows]
                logits = raw_logits(reranker, batch, max_length, truncation)
                damaged = (~logits.isfinite().all(dim=-1)).nonzero()
                if len(damaged):
                    raise ValueError(
                        f"The reranker's score of the pair {batch[int(damaged[0])]!r} is NaN or infinite: its weights "
                        "are damaged, or its precision is too low (float16 overflows easily)."
                    )
                cache.write({keys[pair]: row.numpy().tobytes() for pair, row in zip(batch, logits, strict=True)})
                scores.update(zip(batch, logits.tolist(), strict=True))
                progress.update(len(batch))
    return scores
