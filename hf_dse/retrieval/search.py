# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exact search in vectors."""

import platform
from collections.abc import Callable
from functools import cache
from pathlib import Path

import numpy as np
import torch
from transformers.utils.logging import tqdm


# Scores that are in memory at a time.
BLOCK_ELEMENTS = 2**25
# Vectors that are multiplied together for few queries.
BLOCK_VECTORS, FEW_QUERIES = 1024, 16
# The largest error of a score in float32, as a share of the best one.
ROUNDING = 1e-5


@torch.inference_mode()
def nearest(
    queries: np.ndarray,
    documents: np.ndarray,
    top_k: int,
    *,
    added_scores: Callable[[slice], np.ndarray] | None = None,
    groups: np.ndarray | None = None,
    device: str | torch.device = "cpu",
    show_progress: bool = False,
) -> tuple[np.ndarray, np.ndarray]:
    """
    The largest dot products (float32) and their positions (int64), `(num_queries, top_k)`, exactly. Of equal scores
    the lower position comes first. Of each of the `groups`, numbers from 0, only the best document is found.
    """
    if not len(documents):
        raise ValueError("There are no texts to search in.")
    if queries.shape[1:] != documents.shape[1:]:
        raise ValueError(
            f"The vectors of the queries have the size {queries.shape[1]}, and those of the texts "
            f"{documents.shape[1]}: embed both with one model."
        )
    vectors, corpus = (torch.as_tensor(part, dtype=torch.float32, device=device) for part in (queries, documents))
    num_groups = len(corpus) if groups is None else int(groups.max()) + 1
    # Groups of one text each leave nothing out.
    numbers = None if num_groups == len(corpus) else groups
    top_k = min(top_k, num_groups)
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
            products = _products(vectors[rows], corpus)
            added = None
            if added_scores is not None:
                added = torch.as_tensor(added_scores(rows)).to(products)
                products += added
            values, where = _best(products, vectors[rows], corpus, added, depth)
            while numbers is not None:
                first = [np.sort(np.unique(numbers[row], return_index=True)[1])[:top_k] for row in where]
                if all(len(places) == top_k for places in first):
                    values, where = (np.take_along_axis(part, np.stack(first), axis=1) for part in (values, where))
                    break
                depth = min(4 * depth, len(corpus))
                values, where = _best(products, vectors[rows], corpus, added, depth)
            scores[rows], positions[rows] = values, where
            progress.update(rows.stop - rows.start)
    return scores, positions


def _products(queries: torch.Tensor, corpus: torch.Tensor) -> torch.Tensor:
    """`queries @ corpus.T`; of few queries block by block, where that is faster."""
    if len(queries) > FEW_QUERIES or corpus.device.type != "cpu" or not _prefers_blocks():
        return queries @ corpus.T
    number = len(corpus) // BLOCK_VECTORS
    blocks, rest = corpus.split([number * BLOCK_VECTORS, len(corpus) % BLOCK_VECTORS])
    blocks = blocks.reshape(number, BLOCK_VECTORS, corpus.shape[1])
    products = torch.bmm(blocks, queries.T.expand(number, -1, -1)).flatten(0, 1)
    return torch.cat([products, rest @ queries.T]).T.contiguous()


@cache
def _prefers_blocks() -> bool:
    """
    Whether few vectors are multiplied faster with the blocks of a large matrix than with all of it: in half of the
    time on AMD, and in twice the time on Intel (docs/results.md).
    """
    linux = Path("/proc/cpuinfo")
    return "AuthenticAMD" in platform.processor() + (linux.read_text() if linux.is_file() else "")


def _best(
    products: torch.Tensor, queries: torch.Tensor, corpus: torch.Tensor, added: torch.Tensor | None, number: int
) -> tuple[np.ndarray, np.ndarray]:
    """
    The best of each row, and of equal scores the lower positions. A product of matrices rounds equal vectors
    differently by their place, so those that may be among the best are computed again, in float64.
    """
    least = products.topk(number, dim=1).values[:, -1:]
    may_be = products >= least - ROUNDING * products.abs().amax(dim=1, keepdim=True)
    values, positions = [], []
    for row, query in enumerate(queries):
        places = may_be[row].nonzero().flatten()
        exact = (corpus[places].double() * query.double()).sum(dim=1)
        scores = (exact if added is None else exact + added[row, places]).float()
        order = scores.argsort(descending=True, stable=True)[:number]
        values.append(scores[order].cpu().numpy())
        positions.append(places[order].cpu().numpy())
    return np.stack(values), np.stack(positions)
