# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What [`RankingTrainer`] checks and prepares: students, queries, pairs, and the order of the rows."""

from collections.abc import Callable, Iterator, Sequence
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_callback import ExportableState
from transformers.trainer_pt_utils import get_length_grouped_indices

from hf_dse.data.passages import split_text
from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import Rankings, check_positives
from hf_dse.inference.chunks import check_pooling, fit_chunk_size
from hf_dse.student.checkpoint import limit_tokens
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.inputs import plain_rows
from hf_dse.training.losses import PairDistillationLoss
from hf_dse.training.pair_trainer import check_student_length, infer_labels
from hf_dse.training.ranking_losses import mean_spread


class PairHead(TrainerCallback, ExportableState):
    """Scale and bias of the similarities of pairs, as the head belongs to the rankings. Checkpoints keep them."""

    def __init__(self, scale: float = 1.0, bias: float = 0.0):
        self.scale = scale
        self.bias = bias

    def state(self) -> dict:
        return {"args": {"scale": self.scale, "bias": self.bias}, "attributes": {}}


class EpochSampler(Sampler[int]):
    """
    Yields `row + epoch * num_rows` for all rows, in an order that depends only on seed and epoch. With `group_of`,
    which names the group of each row in an epoch, `group_size` rows of a group follow each other.
    """

    def __init__(
        self,
        num_rows: int,
        seed: int,
        strategy: str,
        sizes: list[int] | None,
        batch_size: int,
        group_of: Callable[[int], Sequence[int]] | None = None,
        group_size: int = 1,
    ):
        self.num_rows = num_rows
        self.group_of = group_of
        self.group_size = group_size
        self.seed = seed
        self.strategy = strategy
        self.sizes = sizes
        self.batch_size = batch_size
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[int]:
        generator = torch.Generator().manual_seed((self.seed << 16) + self.epoch)
        rows: Any = range(self.num_rows)
        if self.strategy == "random":
            rows = torch.randperm(self.num_rows, generator=generator).tolist()
            if self.group_of is not None:
                rows = self._grouped(rows, self.group_of(self.epoch), generator)
        elif self.strategy == "group_by_length":
            rows = get_length_grouped_indices(self.sizes, self.batch_size, generator=generator)
        return (row + self.epoch * self.num_rows for row in rows)

    def _grouped(self, rows: list[int], groups: Sequence[int], generator: torch.Generator) -> list[int]:
        members: dict[int, list[int]] = {}
        for row in rows:
            members.setdefault(groups[row], []).append(row)
        units = [
            part[start : start + self.group_size]
            for part in members.values()
            for start in range(0, len(part), self.group_size)
        ]
        order = torch.randperm(len(units), generator=generator).tolist()
        # Whole ones first: they do not begin in one batch and end in the next.
        order.sort(key=lambda number: -len(units[number]))
        return [row for number in order for row in units[number]]


def check_head(model: Any) -> None:
    """Checks that a student has a head with one logit that ranks like its embeddings."""
    if not hasattr(model, "similarity"):
        raise TypeError(
            f"`model` is a `{type(model).__name__}`, and `RankingTrainer` needs a `DseForSequenceClassification`: put "
            "a head on an encoder with `hf_dse.make_pair_model(model)`, or pass the folder or Hub id of the encoder."
        )
    if model.config.similarity == "mlp" or model.config.num_labels != 1:
        raise ValueError(
            f'The student has `similarity="{model.config.similarity}"` and {model.config.num_labels} logits, and a '
            'search needs one logit that follows the similarity of two embeddings: use `similarity="cosine"` or '
            '`"dot"` and `num_labels=1`.'
        )


def limit_rankings(
    args: RankingTrainingArguments, model: Any, processing_class: PreTrainedTokenizerBase
) -> PreTrainedTokenizerBase:
    """
    Sets how many tokens a student reads of a query and of a document: those of a training. The first is in its config,
    the second that of the tokenizer, which is returned.
    """
    length = args.query_max_length or model.config.query_length
    check_student_length(max(args.max_length, length or 0), model)
    model.config.query_length = None if length == args.max_length else length
    model.config.document_length = None
    return limit_tokens(processing_class, model, args.max_length)


def has_lists(rankings: Rankings) -> bool:
    """Whether a query has two candidates with known scores, so that there is something to learn from a teacher."""
    lists = rankings.queries["teacher_logits"][:] if rankings.has_scores else []
    return any(np.isfinite(values).sum() > 1 for values in lists)


def check_targets(rankings: Rankings, args: RankingTrainingArguments, uses_teacher: bool) -> None:
    """Raises a `ValueError` if a query has nothing to learn from."""
    if uses_teacher and not has_lists(rankings):
        raise ValueError(
            "`kl_weight` or `margin_mse_weight` is above 0, but no query has two candidates with teacher scores: "
            "score them with `score_candidates` (or `hf-dse score`), or train on labels only with both weights 0."
        )
    if not uses_teacher and not args.contrastive_weight:
        raise ValueError("There are no teacher scores, so that `contrastive_weight` must be above 0.")
    if args.contrastive_weight and not uses_teacher:
        check_positives(rankings, "The training rankings")
    if uses_teacher:
        scores = rankings.queries["teacher_logits"][:]
        if mean_spread(scores) == 0:
            raise ValueError(
                "The teacher gives all candidates of a query the same score, so nothing can be learned from it: score "
                "them with another teacher, or train on labels alone with both weights 0."
            )
        for row, (logits, positives) in enumerate(zip(scores, rankings.positives(), strict=True)):
            if np.isfinite(logits).sum() < 2 and not (positives and args.contrastive_weight):
                raise ValueError(
                    f"The query {rankings.queries['query_id'][row]!r} has neither two candidates with teacher scores "
                    "nor a positive to learn from: score its candidates, or remove it."
                )
    if args.similarity_weight and not all(
        "embeddings" in part.column_names for part in (rankings.queries, rankings.corpus)
    ):
        raise ValueError(
            "`similarity_weight` needs the embeddings of a bi-encoder, and the training rankings have none: add them "
            "with `embed_rankings`, or name the bi-encoder with `--bi_encoder_name_or_path`."
        )


def sample_queries(logits: Sequence[np.ndarray], uses_teacher: bool, seed: int) -> list[int]:
    """The rows of queries in a random order, of those with two scores if the teacher counts."""
    order = torch.randperm(len(logits), generator=torch.Generator().manual_seed(seed)).tolist()
    return [row for row in order if not uses_teacher or np.isfinite(logits[row]).sum() > 1]


def read_pairs(pairs: Dataset, args: RankingTrainingArguments) -> tuple[PairDistillationLoss, Dataset]:
    """The loss of pairs of sentences, by the targets that they have, and their columns."""
    pairs = plain_rows(pairs)
    num_labels, problem_type = infer_labels(pairs)
    if num_labels > 2:
        raise ValueError(f"The pairs have {num_labels} classes, and a student that ranks has one logit: pass scores.")
    names = [name for name in ("sentence1", "sentence2", "label", "teacher_logits") if name in pairs.column_names]
    alpha = args.distillation_alpha if {"label", "teacher_logits"} <= set(names) else float("label" not in names)
    # The name in transformers of binary cross-entropy on one logit.
    problem_type = "multi_label_classification" if num_labels == 2 else problem_type
    return PairDistillationLoss(alpha, problem_type), pairs.select_columns(names)


def smaller_corpus(rankings: Rankings, size: int, seed: int) -> Rankings:
    """The queries with a corpus of at most `size` documents: all candidates, and a sample of the others."""
    candidates = {row for rows in rankings.queries["documents"][:] for row in rows}
    others = np.setdiff1d(np.arange(len(rankings.corpus)), list(candidates))
    sample = np.random.default_rng(seed).permutation(others)[: max(0, size - len(candidates))]
    return keep_documents(rankings, sample.tolist())


def check_chunks(rankings: Rankings, args: RankingTrainingArguments, model: Any, tokenizer: Any) -> float:
    """
    Checks what a training of chunks needs: a student that can be pooled over them, documents, and evidence or anchors.

    Returns:
        `float`: the `passage_weight`.
    """
    check_pooling(model, tokenizer)
    fit_chunk_size(args.chunk_size, args.max_length, (model.config.prompts or {}).get("document", ""), tokenizer)
    if args.world_size > 1:
        raise ValueError("Chunks (`chunk_size`) are trained in one process: start without `torchrun`.")
    blank = [row for row, text in enumerate(rankings.corpus["text"][:]) if not text.strip()]
    if blank:
        raise ValueError(
            f"{len(blank)} of {len(rankings.corpus)} documents are empty, so they have no chunks, the first is "
            f"{rankings.corpus['doc_id'][blank[0]]!r}: remove them."
        )
    passage_weight = float(rankings.has_evidence) if args.passage_weight is None else args.passage_weight
    has_anchors = "chunk_embeddings" in rankings.corpus.column_names
    advice = (
        "add them with `embed_rankings(..., chunk_size=...)`, or name the bi-encoder with `--bi_encoder_name_or_path`."
    )
    if args.anchor_weight and not has_anchors:
        raise ValueError(f"`anchor_weight` needs the vectors of plain chunks, and the rankings have none: {advice}")
    if passage_weight and not (rankings.has_evidence or has_anchors):
        raise ValueError(
            "`passage_weight` needs the column `evidence`, the passages that answer the queries, or the vectors of "
            f"plain chunks, and the rankings have neither: {advice}"
        )
    if has_anchors:
        size = len(rankings.corpus[0]["chunk_embeddings"][0])
        if args.anchor_weight and size != model.config.projection_dim:
            raise ValueError(
                f"`anchor_weight` compares vectors of the student, which have {model.config.projection_dim} numbers, "
                f"with those of the bi-encoder, which have {size}: take another bi-encoder."
            )
        row = rankings.corpus[0]
        count = len(split_text(row["text"], tokenizer, int(args.chunk_size or 0)))
        if len(row["chunk_embeddings"]) != count:
            raise ValueError(
                f"The first document has {count} chunks of chunk_size={args.chunk_size}, and vectors of "
                f"{len(row['chunk_embeddings'])}: embed the rankings with this chunk size and the student's tokenizer."
            )
    return passage_weight


def freeze(model: Any, num_layers: int | None) -> None:
    """Takes the gradient from the embeddings and the lowest layers of a student, and from an E that these share."""
    if num_layers is None:
        return
    encoder = model.base_model.encoder
    layers = encoder.layer
    if num_layers >= len(layers):
        raise ValueError(f"freeze_layers={num_layers} leaves none of the {len(layers)} layers to train: take fewer.")
    for module in (model.base_model.embeddings, *layers[:num_layers]):
        module.requires_grad_(False)
    if encoder.linformer is not None and "linear_attention" in model.config.layer_types[:num_layers]:
        encoder.linformer.requires_grad_(False)
