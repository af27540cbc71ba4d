# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a reranker into an embedding model on queries with candidates."""

import math
from dataclasses import dataclass, replace
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, TrainerCallback, TrainerState
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_callback import ExportableState
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.common.settings import TextSettings, set_settings, settings_of
from hf_dse.convert.convert import name_of_layers
from hf_dse.convert.student import limit_tokens
from hf_dse.data.collators import RankingCollator, RankingRows
from hf_dse.data.rankings import Rankings, read_rankings
from hf_dse.data.tokenization import lengths, token_lengths
from hf_dse.measure.evaluate import evaluating
from hf_dse.measure.metrics import level_of, measure_run, relevance
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.modeling_dse import find_attentions
from hf_dse.retrieval.blend import mean_spread
from hf_dse.retrieval.index import Index
from hf_dse.teacher.score import judge_best_passages
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.base import (
    EpochSampler,
    Optimizers,
    StudentTrainer,
    check_head_learns,
    facts_of,
    is_of_head,
    plain_rows,
    read_tokenizer,
)
from hf_dse.training.losses import LOGIT_SPREAD, PairDistillationLoss, RankingLoss
from hf_dse.training.pair_trainer import check_pair_targets, match_scores
from hf_dse.training.steps import PART_SIZE, forward_in_parts, gather_lists


logger = logging.get_logger(__name__)

# Queries to whose candidates the first scale of the head is fitted.
START_QUERIES = 128

# Less than that, similarities do not differ.
LEAST_SPREAD = 1e-5

# Scale of a cosine without a teacher, as usual for contrastive losses.
LABEL_SCALE = 20.0

# Documents of the corpus of an evaluation, besides the candidates up to this number.
EVAL_CORPUS = 5000

# The texts of a batch. The longest come last: they need every parameter that others need.
KINDS = ("query", "pair", "document")


@dataclass(eq=False)
class PairHead(TrainerCallback, ExportableState):
    """Scale and bias of the similarities of pairs, as the head belongs to the rankings. Checkpoints keep them."""

    scale: float = 1.0
    bias: float = 0.0

    def state(self) -> dict:
        return {"args": vars(self), "attributes": {}}


class RankingTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] for queries with candidates, with the [`RankingLoss`].

    The head of the student, `scale * similarity + bias`, estimates the teacher's raw logit. Its scale starts where the
    student's logits spread as much over the candidates of a query as the teacher's do, and is learned. Documents of
    other queries in the batch, also of other processes, are negatives unless they are known to be relevant. Batches
    that are accumulated do not share documents: for more negatives take a larger batch in parts (`cached_gradients`).

    Args:
        model ([`DseForSequenceClassification`]):
            The student, such as `make_pair_model(convert_encoder(name), num_labels=1)`: with one logit and
            `similarity="cosine"` or `"dot"`. The prompts of its source are put before the texts.
        args ([`RankingTrainingArguments`], *optional*):
            Training arguments. Defaults to `RankingTrainingArguments()`.
        train_dataset ([`Rankings`] or `datasets.Dataset`):
            Queries with candidates, or rows in a format that [`load_rankings`] reads.
        eval_dataset ([`Rankings`] or `datasets.Dataset`, *optional*):
            Queries to search with and a corpus. The student with the best `ndcg@10` is kept. Of more than 5,000
            documents, the candidates and a sample of the others are ranked, so that values are higher than those of
            [`evaluate`].
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. It is required.
        pairs (`datasets.Dataset`, *optional*):
            Pairs of sentences with a `label` that is a score, `teacher_logits` or both, to mix with the queries. They
            have a scale and a bias of their own, which are fitted before the training and fixed.
        callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`].

    Example:

    ```python
    >>> from hf_dse import RankingTrainer, RankingTrainingArguments, convert_encoder, make_pair_model, make_rankings

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> queries = {"query": ["How do planes fly?", "Which animal purrs?"], "documents": [[0, 1], [1, 0]]}
    >>> trainer = RankingTrainer(
    ...     model=make_pair_model(convert_encoder(name), num_labels=1),
    ...     args=RankingTrainingArguments("outputs", num_train_epochs=1, report_to="none"),
    ...     train_dataset=make_rankings({**queries, "labels": [[1, 0], [1, 0]]}, corpus),
    ...     processing_class=name,
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    args: RankingTrainingArguments
    train_dataset: RankingRows

    def __init__(
        self,
        model: DseForSequenceClassification,
        args: RankingTrainingArguments | None = None,
        train_dataset: Rankings | Dataset | None = None,
        eval_dataset: Rankings | Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | str | PathLike | None = None,
        pairs: Dataset | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
    ):
        args = args or RankingTrainingArguments()
        tokenizer = read_tokenizer(model, processing_class)
        if model.config.similarity == "mlp" or model.config.num_labels != 1:
            raise ValueError(
                f'The student has `similarity="{model.config.similarity}"` and {model.config.num_labels} logits: a '
                'search needs `similarity="cosine"` or `"dot"` and `num_labels=1`.'
            )
        train_dataset = as_rankings(train_dataset, "The training rows")
        eval_dataset = as_rankings(eval_dataset, "The evaluation rows")
        # What loads a checkpoint reads as much of a text as the training.
        if train_dataset is not None:
            train_dataset.check_unit()
            train_dataset = judge_best_passages(train_dataset)
        size = None if train_dataset is None else train_dataset.chunk_size
        self.tokenizer = limit_rankings(args, model, tokenizer, size)
        self.pair_head, self.pair_loss = PairHead(), PairDistillationLoss()
        rows = None
        if train_dataset is not None:
            kl_weight = check_targets(train_dataset, args)
            if pairs is not None:
                columns = ("sentence1", "sentence2", "label", "teacher_logits")
                names = [name for name in columns if name in pairs.column_names]
                pairs = plain_rows(pairs).select_columns(names)
                # Half of each, or all of what there is.
                has_both = {"label", "teacher_logits"} <= set(names)
                self.pair_loss = PairDistillationLoss(0.5 if has_both else float("label" not in names))
                check_pair_targets(pairs, "pairs", model.config)
                pairs = match_scores(pairs, self.pair_loss.alpha, model.config)
            seed = args.seed if args.data_seed is None else args.data_seed
            rows = RankingRows(train_dataset, args.num_candidates, seed, pairs, self.tokenizer)
            temperature = mean_spread(rows.logits) / LOGIT_SPREAD if kl_weight else 1.0
            self.ranking_loss = RankingLoss(args.contrastive_weight, kl_weight, temperature)
        if eval_dataset is not None:
            # Before the training.
            relevance(eval_dataset)
            eval_dataset = smaller_corpus(eval_dataset, EVAL_CORPUS, args.seed)
        freeze(model, args.freeze_layers)
        super().__init__(
            model=model,
            args=args,
            train_dataset=rows,
            eval_dataset=eval_dataset,
            processing_class=self.tokenizer,
            data_collator=RankingCollator(
                self.tokenizer,
                max_length=args.max_length,
                query_max_length=settings_of(model).lengths.get("query_length"),
                prompts=settings_of(model).prompts,
            ),
            callbacks=callbacks,
            optimizers=optimizers,
        )
        self.add_callback(self.pair_head)

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        rows, args = self.train_dataset, self.args
        sizes = None
        if args.train_sampling_strategy == "group_by_length":
            of_document = token_lengths(self.tokenizer, rows.corpus["text"][:])
            longest = [max(of_document[row] for row in documents) for documents in rows.documents]
            sizes = [min(size, args.max_length) for size in longest]
            if rows.pairs is not None:
                sizes += lengths(rows.pairs, self.tokenizer, max_length=args.max_length)["length"][:]
        return EpochSampler(self, len(rows), sizes, shift=True)

    def data_facts(self) -> dict[str, Any]:
        rows = self.train_dataset
        columns: dict[str, Any] = {"documents": rows.documents, "labels": rows.labels}
        lists = Dataset.from_dict({name: [part.tolist() for part in parts] for name, parts in columns.items()})
        parts = [part for part in (lists, rows.queries, rows.corpus, rows.pairs) if part is not None]
        return facts_of(*parts, scores=[row.tolist() for row in rows.logits])

    def _track_num_input_tokens(self, inputs: dict[str, Any]) -> None:
        kinds = [kind for kind in KINDS if f"{kind}_input_ids" in inputs]
        names = ("input_ids", "attention_mask")
        super()._track_num_input_tokens(
            {name: torch.cat([inputs[f"{kind}_{name}"].flatten() for kind in kinds]) for name in names}
        )

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        return [name for name in super().get_decay_parameter_names(model) if not is_of_head(name, "scale")]

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        vectors = self._embed(model, inputs)
        pairs = vectors.pop("pair", None)
        num_pairs = 0 if pairs is None else len(pairs) // 2
        lists, all_pairs = gather_lists(self.accelerator, vectors, inputs, num_pairs)
        num_rows = all_pairs + (len(lists["documents"]) if lists else 0)
        # Every parameter has a part in every loss, as distributed training needs it.
        loss: Any = sum(0.0 * parameter.sum() for parameter in self.model.similarity.parameters())
        with torch.autocast(self.args.device.type, enabled=False):
            if lists:
                # The mean over all rows; that of the queries is the same in all processes.
                loss = loss + len(lists["documents"]) / num_rows * self._lists_loss(lists)
            if pairs is not None:
                share = self.accelerator.num_processes * num_pairs / num_rows
                loss = loss + share * self._pairs_loss(pairs, inputs)
        return loss

    def _embed(self, model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The embeddings of the texts of each kind."""
        vectors: dict[str, torch.Tensor] = {}
        size = self.args.cached_gradients if model.training else None
        # An encoder, or a model that is not trained yet, has not the precision that accelerate gives.
        with self.accelerator.autocast():
            for kind in KINDS:
                if f"{kind}_input_ids" in inputs:
                    ids, mask = (inputs[f"{kind}_{name}"].flatten(0, -2) for name in ("input_ids", "attention_mask"))
                    vectors[kind] = forward_in_parts(model, ids, mask, size or PART_SIZE, bool(size))
        return vectors

    def similarities(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        """Cosines or dot products, as the head compares, `(Q, D)`."""
        if self.model.similarity.kind == "cosine":
            queries, documents = (nn.functional.normalize(part, dim=-1) for part in (queries, documents))
        return queries @ documents.mT

    def _lists_loss(self, lists: dict[str, torch.Tensor]) -> torch.Tensor:
        # All losses are the same for any bias.
        logits = self.model.similarity.scale * self.similarities(lists["query"], lists["document"])
        names = ("documents", "labels", "teacher_logits", "document_ids", "positives")
        return self.ranking_loss(logits, *(lists[name] for name in names))

    def _pairs_loss(self, vectors: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        similarity = self.model.similarity.compare(*vectors.unflatten(0, (-1, 2)).unbind(1))
        logits = self.pair_head.scale * similarity[:, None] + self.pair_head.bias
        return self.pair_loss(logits, inputs.get("pair_labels"), inputs.get("pair_teacher_logits"))

    def _train(self, checkpoint: str | None, *args: Any, **kwargs: Any) -> TrainOutput:
        check_head_learns(self.model)
        if checkpoint is None:
            self.fit_head(fit_scale=True)
            if self.train_dataset.pairs is not None:
                collate: Any = self.data_collator
                line = self.fit_line(self.train_dataset.pairs, collate.pair_collator, self.pair_loss)
                self.pair_head.scale, self.pair_head.bias = (value.item() for value in line)
                logger.info(f"Pairs have the scale {self.pair_head.scale:.4g} and the bias {self.pair_head.bias:.4g}.")
        else:
            state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
            head: Any = state.stateful_callbacks[PairHead.__name__]
            vars(self.pair_head).update(head["args"])
        result = super()._train(checkpoint, *args, **kwargs)
        self.fit_head(fit_scale=False)
        return result

    @torch.no_grad()
    def fit_head(self, fit_scale: bool) -> None:
        """
        Fits scale and bias to spread and mean of the teacher's logits; without a teacher the scale of cosines is 20.
        """
        head, rows = self.model.similarity, self.train_dataset
        uses_teacher = self.ranking_loss.kl_weight > 0
        order = torch.randperm(len(rows.logits), generator=torch.Generator().manual_seed(self.args.seed)).tolist()
        # Queries with two scores alone, if the teacher counts.
        sample = [row for row in order if not uses_teacher or np.isfinite(rows.logits[row]).sum() > 1]
        batch = self._prepare_inputs(self.data_collator([rows[row] for row in sample[:START_QUERIES]]))
        with evaluating(self.model):
            vectors = self._embed(self.model, batch)
        scale, bias = head.scale.item(), head.bias.item()
        if uses_teacher:
            matrix = self.similarities(vectors["query"], vectors["document"]).cpu().double()
            documents, targets = batch["documents"].cpu(), batch["teacher_logits"].cpu().double()
            is_unknown = (documents < 0) | ~targets.isfinite()
            found = matrix.gather(1, documents.clamp(min=0)).masked_fill(is_unknown, math.nan)
            # Texts that the student reads alike differ by rounding errors.
            if fit_scale and not mean_spread(found.numpy()) > LEAST_SPREAD:
                raise ValueError(
                    f"num_candidates={self.args.num_candidates}: no drawn query has two candidates with a teacher's "
                    f"score that differ in the {self.args.max_length} tokens that are read. Draw more, score the "
                    "others too, or raise `max_length`."
                )
            if fit_scale:
                scale = mean_spread(targets.numpy()) / mean_spread(found.numpy())
            bias = (targets.nanmean() - scale * found.nanmean()).item()
        elif fit_scale and head.kind == "dot":
            query, document = (vectors[kind].norm(dim=1).mean().item() for kind in ("query", "document"))
            scale = LABEL_SCALE / (query * document)
        elif fit_scale:
            scale = LABEL_SCALE
        head.calibrate(scale, bias)
        logger.info(f"The head has the scale {scale:.4g} and the bias {bias:.4g}.")

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Rankings | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """The mean metrics of a search in the corpus, as `eval_ndcg@10`. All processes compute the same."""
        rankings: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        relevant = relevance(rankings)
        options: dict[str, Any] = {"processing_class": self.tokenizer, "batch_size": self.args.eval_batch_size}
        options["show_progress"] = not self.args.disable_tqdm and self.args.process_index == 0
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16):
            run = Index.of(self.model, rankings, **options).run(rankings)
        values = measure_run(run, relevant, level=level_of(rankings))
        metrics = {f"{metric_key_prefix}_{name}": value for name, value in values.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics


def as_rankings(rows: Any, where: str, relevance_threshold: float | None = None) -> Rankings | None:
    """Rankings, made of the rows of a data set; a threshold replaces that of rankings."""
    if rows is None or (isinstance(rows, Rankings) and relevance_threshold is None):
        return rows
    if isinstance(rows, Rankings):
        return replace(rows, relevance_threshold=relevance_threshold)
    if not isinstance(rows, Dataset):
        raise TypeError(f"{where} have to be `Rankings` or a `datasets.Dataset`, got {type(rows).__name__}.")
    return read_rankings(plain_rows(rows), where=where, relevance_threshold=relevance_threshold)


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
    own = {} if length in (None, args.max_length) else {"query_length": length}
    size = settings.chunk_size if chunk_size is None else chunk_size
    set_settings(model, TextSettings(settings.prompts, own, size))
    return tokenizer


def spread_of(rankings: Rankings) -> float:
    """The mean spread of the teacher's scores of a query; NaN if no query has two, so that they teach nothing."""
    return mean_spread(rankings.queries["teacher_logits"][:] if rankings.has_scores else [])


def check_targets(rankings: Rankings, args: RankingTrainingArguments) -> float:
    """
    Raises a `ValueError` if the queries have nothing to learn from; returns the weight of the teacher's distribution,
    by default 1 for candidates with scores.
    """
    spread = spread_of(rankings)
    kl_weight = float(math.isfinite(spread)) if args.kl_weight is None else args.kl_weight
    if not kl_weight:
        if not args.contrastive_weight:
            raise ValueError("There are no teacher scores, so that `contrastive_weight` must be above 0.")
        if without := [row for row, positives in enumerate(rankings.positives()) if not positives]:
            raise ValueError(
                f"The training rankings: {len(without)} of {len(rankings)} queries have no relevant document (a label "
                f"{rankings.relevant_labels}), the first is {rankings.queries['query_id'][without[0]]!r}: remove "
                "them, or train on the teacher's scores only."
            )
    elif math.isnan(spread):
        raise ValueError(
            f"kl_weight={kl_weight}, but no query has two candidates with teacher scores: name a teacher with "
            "`--teacher`, score them with `score` (`hf-dse score`), or train on labels only with the weight 0."
        )
    elif spread == 0:
        raise ValueError("The teacher gives all candidates of a query the same score: use another, or labels alone.")
    return kl_weight


def smaller_corpus(rankings: Rankings, size: int, seed: int) -> Rankings:
    """The queries with a corpus of at most `size` documents: all candidates, and a sample of the others."""
    candidates = {row for rows in rankings.queries["documents"][:] for row in rows}
    others = np.setdiff1d(np.arange(len(rankings.corpus)), list(candidates))
    sample = np.random.default_rng(seed).permutation(others)[: max(0, size - len(candidates))]
    if len(sample) < len(others):
        ranked, whole = len(candidates) + len(sample), len(rankings.corpus)
        logger.warning(
            f"The evaluations of this training rank {ranked:,} of the {whole:,} texts of the corpus, all candidates "
            "and a sample of the others: their values compare checkpoints, and are higher than those of `evaluate`, "
            "which ranks all."
        )
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
