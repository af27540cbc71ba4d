# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of sentence pairs, by a reranker or a bi-encoder, and those kept on disk, from which a run continues."""

import sqlite3
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import Dataset
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.cache import key_of, open_cache
from hf_dse.common.files import to_path
from hf_dse.data.rankings import FEATURES
from hf_dse.data.tables import check_texts
from hf_dse.data.tokenization import is_unknown, length_batches, token_lengths, warn_of_read
from hf_dse.retrieval.sentence_transformer import embed, fingerprint_of, prompt_of
from hf_dse.teacher.bi_encoders import is_bi_encoder
from hf_dse.teacher.rerankers import Pair, limit_of, load_reranker, overhead, raw_logits, reads_messages


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    from hf_dse.teacher.rerankers import Teacher


logger = logging.get_logger(__name__)


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


def _warn_of_unknown(reranker: "CrossEncoder", texts: list[str]) -> None:
    suspects = [text for text in texts if not text.isascii()]
    found = reranker.tokenizer(suspects, verbose=False)["input_ids"] if suspects else []
    num_unknown = sum(is_unknown(reranker.tokenizer, *read) for read in zip(suspects, found, strict=True))
    warn_of_read(len(texts), num_unknown)


def score_texts(
    reranker: "CrossEncoder",
    pairs: Sequence[Pair],
    *,
    max_length: int,
    truncation: str = "longest_first",
    batch_size: int = 64,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = False,
) -> dict[Pair, list[float]]:
    """The raw logits of pairs of texts, each once: kept ones, and others in batches, each of which is kept at once."""
    if reads_messages(reranker):
        # A template makes one text of both.
        truncation = "longest_first"
    path, settings = None, None
    if cache_dir is not None:
        path = to_path(cache_dir) / "scores.sqlite"
        settings = [fingerprint_of(reranker), prompt_of(reranker, None), max_length, truncation]
    keys = {pair: key_of([settings, pair]) for pair in pairs}
    with open_cache(path) as cache:
        found = {pair: value for pair, key in keys.items() if (value := cache.read(key)) is not None}
        # Eight bytes per number.
        if not all(len(value) == 8 * reranker.num_labels for value in found.values()):
            raise sqlite3.DatabaseError(f"a score is not {reranker.num_labels} numbers")
        scores = {pair: np.frombuffer(value, "<f8").tolist() for pair, value in found.items()}
        if not all(np.isfinite(values).all() for values in scores.values()):
            raise sqlite3.DatabaseError("a score is not a finite number")
        unknown = [pair for pair in keys if pair not in scores]
        added = overhead(reranker) - reranker.tokenizer.num_special_tokens_to_add(pair=True)
        texts = [first for first, _ in unknown], [second for _, second in unknown]
        _warn_of_unknown(reranker, [*texts[0], *texts[1]])
        sizes = [size + added for size in token_lengths(reranker.tokenizer, *texts)]
        num_cut = sum(size > max_length for size in sizes)
        if num_cut and truncation == "longest_first":
            logger.warning(
                f"{num_cut} of {len(unknown)} pairs are longer than {max_length} tokens and were truncated: raise the "
                "teacher's max_length, or use a teacher with more positions, if the ends of the texts matter."
            )
        with tqdm(total=len(unknown), desc="Scoring", unit="pair", disable=not show_progress) as progress:
            for rows in length_batches([min(size, max_length) for size in sizes], batch_size):
                batch = [unknown[row] for row in rows]
                logits = raw_logits(reranker, batch, max_length, truncation)
                damaged = (~logits.isfinite().all(dim=-1)).nonzero()
                if len(damaged):
                    raise ValueError(
                        f"The teacher's score of the pair {batch[int(damaged[0])]!r} is NaN or infinite: its weights "
                        "are damaged, or its precision is too low (float16 overflows easily)."
                    )
                cache.write({keys[pair]: row.numpy().tobytes() for pair, row in zip(batch, logits, strict=True)})
                scores.update(zip(batch, logits.tolist(), strict=True))
                progress.update(len(batch))
    return scores
