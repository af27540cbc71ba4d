# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of the candidates of queries, by a reranker or a bi-encoder with BM25, and checks of these scores."""

import math
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from transformers.utils import logging

from hf_dse.data.rankings import FEATURES, Rankings, ranking_rows
from hf_dse.retrieval.rerankers import load_reranker
from hf_dse.retrieval.reranking import rerank
from hf_dse.teacher.bi_encoders import is_bi_encoder, similarities
from hf_dse.teacher.options import WINDOWS


if TYPE_CHECKING:
    from hf_dse.retrieval.rerankers import Teacher

logger = logging.get_logger(__name__)


def score_candidates(
    teacher: "Teacher",
    rankings: Rankings,
    *,
    max_length: int | None = None,
    windows: str = "first",
    bm25_weight: float = 0.0,
    **options: Any,
) -> Rankings:
    """Queries with the scores of their candidates, see `hf_dse.score`. `options` are of [`score_texts`]."""
    if windows not in WINDOWS:
        raise ValueError(f"windows={windows!r}: it has to be {' or '.join(map(repr, WINDOWS))}.")
    if not any(rankings.queries["documents"][:]):
        raise ValueError("The queries have no candidates to score: mine them with `mine` or `hf-dse mine`.")
    options["windows"] = windows
    if is_bi_encoder(teacher):
        scores = similarities(teacher, rankings, bm25_weight=bm25_weight, **options)
    else:
        if bm25_weight:
            raise ValueError(
                f"bm25_weight={bm25_weight} is an option of bi-encoders: pass a loaded `SentenceTransformer` "
                "(`--bi_encoder`), or leave it out."
            )
        rows = ranking_rows(rankings)
        scores = rerank(load_reranker(teacher), rows["query"], rows["documents"], max_length=max_length, **options)
    scored = replace(rankings, queries=with_logits(rankings.queries, scores))
    return judge_best_passages(scored)


def judge_best_passages(rankings: Rankings) -> Rankings:
    """Labels only the passage of a relevant document that the teacher ranks first, where there are scores."""
    if not rankings.has_passages or not rankings.has_scores:
        return rankings
    documents, lists = rankings.document_ids, []
    columns = (rankings.queries[name][:] for name in ("documents", "labels", "teacher_logits"))
    for rows, labels, scores in zip(*columns, strict=True):
        labels = list(labels)
        relevant: dict[str, float] = {}
        for row, label in zip(rows, labels, strict=True):
            if label > 0:
                relevant[documents[row]] = max(label, relevant.get(documents[row], label))
        for document, label in relevant.items():
            # A passage that is judged irrelevant stays so.
            places = [place for place, row in enumerate(rows) if documents[row] == document and labels[place] != 0]
            best = max(places, key=lambda place: -math.inf if math.isnan(scores[place]) else scores[place])
            for place in places:
                labels[place] = label if place == best else math.nan
        lists.append(labels)
    queries = rankings.queries.remove_columns("labels").add_column("labels", lists, feature=FEATURES["labels"])
    return replace(rankings, queries=queries)


def with_logits(dataset: Dataset, logits: list[list[float]]) -> Dataset:
    """A dataset with the column `teacher_logits`, which replaces an earlier one."""
    if "teacher_logits" in dataset.column_names:
        dataset = dataset.remove_columns("teacher_logits")
    return dataset.add_column("teacher_logits", logits, feature=FEATURES["teacher_logits"])


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
