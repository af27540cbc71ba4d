# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of sentence pairs, by a reranker or a bi-encoder."""

from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset

from hf_dse.data.rankings import FEATURES
from hf_dse.data.tables import check_texts
from hf_dse.retrieval.rerankers import limit_of, load_reranker
from hf_dse.retrieval.reranking import score_texts
from hf_dse.retrieval.sentence_transformer import embed
from hf_dse.teacher.bi_encoders import is_bi_encoder


if TYPE_CHECKING:
    from hf_dse.retrieval.rerankers import Teacher


def score_pairs(
    teacher: "Teacher",
    dataset: Dataset,
    *,
    batch_size: int = 64,
    max_length: int | None = None,
    symmetric: bool = False,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
) -> Dataset:
    """Sentence pairs with a teacher's raw logits, see `hf_dse.score`."""
    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    for name, texts in (("sentence1", first), ("sentence2", second)):
        check_texts(texts, "The pairs", name)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    if is_bi_encoder(teacher):
        vectors = [embed(teacher, texts, None, normalize=True, **options) for texts in (first, second)]
        logits = np.einsum("nd,nd->n", *vectors, dtype=np.float64)[:, None]
    else:
        orders = [list(zip(first, second, strict=True))]
        if symmetric:
            orders.append(list(zip(second, first, strict=True)))
        reranker = load_reranker(teacher)
        pairs = [pair for order in orders for pair in order]
        limit = limit_of(reranker, max_length)
        scores = score_texts(reranker, pairs, max_length=limit, cache_dir=cache_dir, **options)
        logits = np.mean([[scores[pair] for pair in order] for order in orders], axis=0)
    return with_logits(dataset, logits.tolist())


def with_logits(dataset: Dataset, logits: list[list[float]]) -> Dataset:
    """A dataset with the column `teacher_logits`, which replaces an earlier one."""
    if "teacher_logits" in dataset.column_names:
        dataset = dataset.remove_columns("teacher_logits")
    return dataset.add_column("teacher_logits", logits, feature=FEATURES["teacher_logits"])
