# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks and preparations of [`RankingTrainer`]: students, queries and pairs."""

from typing import Any

import numpy as np
from datasets import Dataset
from transformers import PreTrainedTokenizerBase

from hf_dse.common.settings import TextSettings, set_settings, settings_of
from hf_dse.convert.convert import name_of_layers
from hf_dse.convert.student import limit_tokens
from hf_dse.data.rankings import Rankings, read_rankings
from hf_dse.modeling.modeling_dse import find_attentions
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.base import plain_rows
from hf_dse.training.ranking_losses import mean_spread


def as_rankings(rows: Any, where: str) -> Rankings | None:
    """Rankings, made of the rows of a data set."""
    if rows is None or isinstance(rows, Rankings):
        return rows
    if not isinstance(rows, Dataset):
        raise TypeError(f"{where} have to be `Rankings` or a `datasets.Dataset`, got {type(rows).__name__}.")
    return read_rankings(plain_rows(rows), where=where)


def limit_rankings(
    args: RankingTrainingArguments,
    model: Any,
    processing_class: PreTrainedTokenizerBase,
    chunk_size: int | None = None,
) -> PreTrainedTokenizerBase:
    """
    Sets how many tokens a student reads: of a query in its settings, of a document in the tokenizer it returns; and
    the tokens of the passages that it learns to search.
    """
    settings = settings_of(model)
    length = args.query_max_length or settings.lengths.get("query_length")
    tokenizer = limit_tokens(processing_class, model, args.max_length)
    if length is not None:
        limit_tokens(processing_class, model, length)
    lengths = {} if length in (None, args.max_length) else {"query_length": length}
    size = settings.chunk_size if chunk_size is None else chunk_size
    set_settings(model, TextSettings(settings.prompts, lengths, size))
    return tokenizer


def has_lists(rankings: Rankings) -> bool:
    """Whether a query has two candidates with known scores, so that there is something to learn from a teacher."""
    lists = rankings.queries["teacher_logits"][:] if rankings.has_scores else []
    return any(np.isfinite(values).sum() > 1 for values in lists)


def check_targets(rankings: Rankings, args: RankingTrainingArguments) -> float:
    """
    Raises a `ValueError` if the queries have nothing to learn from; returns the weight of the teacher's distribution,
    by default 1 for candidates with scores.
    """
    is_scored = has_lists(rankings)
    kl_weight = float(is_scored) if args.kl_weight is None else args.kl_weight
    if not kl_weight:
        if not args.contrastive_weight:
            raise ValueError("There are no teacher scores, so that `contrastive_weight` must be above 0.")
        if without := [row for row, positives in enumerate(rankings.positives()) if not positives]:
            raise ValueError(
                f"The training rankings: {len(without)} of {len(rankings)} queries have no relevant document (a label "
                f"above 0), the first is {rankings.queries['query_id'][without[0]]!r}: remove them, or train on the "
                "teacher's scores only."
            )
    elif not is_scored:
        raise ValueError(
            f"kl_weight={kl_weight}, but no query has two candidates with teacher scores: name a teacher with "
            "`--teacher`, score them with `score` (`hf-dse score`), or train on labels only with the weight 0."
        )
    elif mean_spread(rankings.queries["teacher_logits"][:]) == 0:
        raise ValueError("The teacher gives all candidates of a query the same score: use another, or labels alone.")
    return kl_weight


def smaller_corpus(rankings: Rankings, size: int, seed: int) -> Rankings:
    """The queries with a corpus of at most `size` documents: all candidates, and a sample of the others."""
    candidates = {row for rows in rankings.queries["documents"][:] for row in rows}
    others = np.setdiff1d(np.arange(len(rankings.corpus)), list(candidates))
    sample = np.random.default_rng(seed).permutation(others)[: max(0, size - len(candidates))]
    return rankings.keep_documents(sample.tolist())


def freeze(model: Any, num_layers: int | None) -> None:
    """Takes the gradient from the embeddings and the lowest layers of a student, and from an E that these share."""
    if num_layers is None:
        return
    encoder, depth = model.base_model.encoder, model.config.num_hidden_layers
    if num_layers >= depth:
        raise ValueError(f"freeze_layers={num_layers} leaves none of the {depth} layers to train: take fewer.")
    layers = encoder.get_submodule(name_of_layers(encoder, find_attentions(encoder)[0]))
    if len(layers) != depth:
        raise ValueError(
            f"freeze_layers={num_layers}: the {depth} layers of an encoder of the type {encoder.config.model_type!r} "
            "share their weights, so that none can be frozen alone. Leave `freeze_layers` out."
        )
    # `embeddings`, `embeddings_project` or `embed_tokens`, but not the `embedding_projection` of Gemma's output.
    embeddings = [module for name, module in encoder.named_children() if name.startswith(("embeddings", "embed_"))]
    for module in (*embeddings, *layers[:num_layers]):
        module.requires_grad_(False)
