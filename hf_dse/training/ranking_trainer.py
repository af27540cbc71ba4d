# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a reranker into an embedding model on queries with candidates."""

import math
from functools import partial
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.trainer import TRAINER_STATE_NAME
from transformers.trainer_utils import TrainOutput, get_last_checkpoint
from transformers.utils import logging

from hf_dse.data.chunk_batches import ChunkCollator
from hf_dse.data.ranking_batches import RankingCollator, RankingRows
from hf_dse.data.ranking_rows import read_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.data.tokenization import lengths, token_lengths
from hf_dse.inference.chunks import encode_corpus
from hf_dse.inference.encoding import encode_query, evaluating
from hf_dse.inference.loading import load_tokenizer
from hf_dse.inference.search import rank_groups
from hf_dse.metrics import as_run, ranking_metrics, relevance
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.pairs_dse import fit_similarity, measure
from hf_dse.student.checkpoint import load_student
from hf_dse.student.convert import ConvertArguments
from hf_dse.training.arguments import RankingTrainingArguments
from hf_dse.training.base import StudentTrainer, read_state, resuming
from hf_dse.training.cached_gradients import PART_SIZE, embed_in_parts
from hf_dse.training.chunk_vectors import best_of_chunks, chunks_loss, embed_chunks
from hf_dse.training.gathering import gather_lists
from hf_dse.training.inputs import OWN_BATCHES, plain_rows
from hf_dse.training.losses import PairDistillationLoss, cosine_loss
from hf_dse.training.matryoshka import check_sizes, matryoshka_loss
from hf_dse.training.pair_trainer import CALIBRATION_PAIRS
from hf_dse.training.ranking_data import (
    EpochSampler,
    PairHead,
    check_chunks,
    check_head,
    check_targets,
    freeze,
    has_lists,
    limit_rankings,
    read_pairs,
    sample_queries,
    smaller_corpus,
)
from hf_dse.training.ranking_losses import LOGIT_SPREAD, RankingLoss, are_of_different_queries, mean_spread


logger = logging.get_logger(__name__)

# Queries to whose candidates the first scale of the head is fitted, and how many of them are embedded at a time.
START_QUERIES = 128
START_BATCH = 16

# What the losses on chunks need of a batch.
CHUNK_TARGETS = ("chunk_documents", "is_evidence", "chunk_embeddings")

# Scale of a cosine without a teacher, as usual for contrastive losses.
LABEL_SCALE = 20.0


class RankingTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] for queries with candidates, with the [`RankingLoss`].

    The head of the student, `scale * similarity + bias`, estimates the teacher's raw logit. Its scale starts where the
    student's logits spread as much over the candidates of a query as the teacher's do, and is learned; the bias, which
    no ranking depends on, is set before and after the training. Documents of other queries in the batch are negatives,
    those of other processes too, unless they are known to be relevant.

    Args:
        model ([`DseForSequenceClassification`] or `str`):
            The student, with one logit and `similarity="cosine"` or `"dot"`. A string is the folder or Hub id of a DSE
            model, or of an encoder, which is converted with the defaults of [`convert_encoder`]. The prompts of its
            config are put before queries and documents.
        args ([`RankingTrainingArguments`], *optional*):
            Training arguments. Defaults to `RankingTrainingArguments("tmp_trainer")`.
        train_dataset ([`Rankings`] or `datasets.Dataset`):
            Queries with candidates, or rows that [`read_rankings`] takes. With a `similarity_weight` queries and
            corpus need the column `embeddings` of [`embed_rankings`].
        eval_dataset ([`Rankings`], *optional*):
            Queries to search with and a corpus. With it the student is evaluated and saved after each epoch and the
            one with the best `ndcg@10` is kept, unless `args` says otherwise.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. Defaults to the one of `model` if that is a string.
        pairs (`datasets.Dataset`, *optional*):
            Pairs of sentences with a `label`, `teacher_logits` or both, to mix with the queries. They have a scale and
            a bias of their own, which are fitted before the training and fixed.
        kwargs:
            Other arguments of [`~transformers.Trainer`].

    Raises:
        `TypeError`: for the arguments or datasets of another trainer, or a model without a head.
        `ValueError`: if a query has nothing to learn from, or the head has several logits or is an MLP.

    Example:

    ```python
    >>> from hf_dse import RankingTrainer, RankingTrainingArguments, make_rankings

    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> queries = {"query": ["How do planes fly?", "Which animal purrs?"], "documents": [[0, 1], [1, 0]]}
    >>> trainer = RankingTrainer(
    ...     model="sentence-transformers/all-MiniLM-L6-v2",
    ...     args=RankingTrainingArguments("outputs", num_train_epochs=1, report_to="none"),
    ...     train_dataset=make_rankings({**queries, "labels": [[1, 0], [1, 0]]}, corpus),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    arguments_class = RankingTrainingArguments
    refused = OWN_BATCHES
    args: RankingTrainingArguments
    train_dataset: RankingRows

    def __init__(
        self,
        model: DseForSequenceClassification | str,
        args: RankingTrainingArguments | None = None,
        train_dataset: Rankings | Dataset | None = None,
        eval_dataset: Rankings | None = None,
        processing_class: PreTrainedTokenizerBase | str | None = None,
        pairs: Dataset | None = None,
        **kwargs: Any,
    ):
        args = self.check_args(args, kwargs)
        if isinstance(model, str):
            processing_class = model if processing_class is None else processing_class
            # A new head starts from random numbers.
            set_seed(args.seed)
            model = load_student(model, ConvertArguments(), 1, "regression")
        check_head(model)
        check_sizes(args, model)
        if processing_class is None:
            raise ValueError(
                "`RankingTrainer` needs `processing_class`, the tokenizer of the student: pass the tokenizer, or the "
                "folder or Hub id of the student as `model`."
            )
        # What loads a checkpoint reads as much of a text as the training.
        processing_class = limit_rankings(args, model, load_tokenizer(processing_class))
        self.tokenizer = processing_class
        self.prompts = dict(getattr(model.config, "prompts", None) or {})
        if isinstance(train_dataset, Dataset):
            train_dataset = read_rankings(plain_rows(train_dataset), where="The training rows")
        self._check_datasets(train_dataset, eval_dataset)
        seed = args.seed if args.data_seed is None else args.data_seed
        rows = None
        self.pair_head, self.pair_loss = PairHead(), PairDistillationLoss()
        if train_dataset is not None:
            kl_weight = float(has_lists(train_dataset)) if args.kl_weight is None else args.kl_weight
            self.uses_teacher = kl_weight + args.margin_mse_weight > 0
            check_targets(train_dataset, args, self.uses_teacher)
            if args.chunk_size is not None:
                self.passage_weight = check_chunks(train_dataset, args, model, processing_class)
            if pairs is not None:
                self.pair_loss, pairs = read_pairs(pairs, args)
            rows = RankingRows(train_dataset, args.num_candidates, seed, pairs)
            self.temperature = mean_spread(rows.logits) / LOGIT_SPREAD if self.uses_teacher else 1.0
            self.ranking_loss = RankingLoss(
                args.contrastive_weight, kl_weight, args.margin_mse_weight, self.temperature
            )
        self.sampler_seed = seed
        if eval_dataset is not None:
            eval_dataset = smaller_corpus(eval_dataset, args.eval_corpus_size, args.seed)
        freeze(model, args.freeze_layers)
        collate: Any = RankingCollator
        if args.chunk_size is not None:
            collate = partial(ChunkCollator, chunk_size=args.chunk_size)
        super().__init__(
            model=model,
            args=args,
            train_dataset=rows,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=collate(
                processing_class,
                max_length=args.max_length,
                query_max_length=model.config.query_length,
                prompts=self.prompts,
            ),
            **kwargs,
        )
        self.add_callback(self.pair_head)

    @classmethod
    def _check_datasets(cls, train_dataset: Any = None, eval_dataset: Any = None, test_dataset: Any = None) -> None:
        if test_dataset is not None:
            raise TypeError("`RankingTrainer` has no predictions: rank a corpus with `evaluate(rankings)`.")
        for name, dataset in (("train_dataset", train_dataset), ("eval_dataset", eval_dataset)):
            if not isinstance(dataset, Rankings | RankingRows | None):
                raise TypeError(
                    f"`{name}` is a `{type(dataset).__name__}`, and `{cls.__name__}` needs `Rankings`: load them with "
                    "`load_rankings`, or make them with `make_rankings` or `read_rankings`."
                )

    def _get_train_sampler(self, train_dataset: Any = None) -> EpochSampler:
        rows, args = self.train_dataset, self.args
        sizes = None
        if args.train_sampling_strategy == "group_by_length":
            of_document = token_lengths(self.tokenizer, rows.corpus["text"][:])
            longest = [max(of_document[row] for row in documents) for documents in rows.documents]
            sizes = [min(size, args.max_length) for size in longest]
            if rows.pairs is not None:
                sizes += lengths(rows.pairs, self.tokenizer, max_length=args.max_length)["length"][:]
        batch_size = args.train_batch_size * args.gradient_accumulation_steps
        group_of = rows.first_documents if args.queries_per_document > 1 else None
        return EpochSampler(
            len(rows),
            self.sampler_seed,
            args.train_sampling_strategy,
            sizes,
            batch_size,
            group_of,
            args.queries_per_document,
        )

    def get_decay_parameter_names(self, model: nn.Module) -> list[str]:
        names = super().get_decay_parameter_names(model)
        return [name for name in names if not name.endswith("similarity.scale")]

    def own_rate(self, name: str) -> float | None:
        # Adam changes a number by about the learning rate, whatever its size.
        is_scale = name.endswith("similarity.scale")
        return self.args.scale_learning_rate * abs(self.model.similarity.scale.item()) if is_scale else None

    # The loss

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor:
        vectors = self._embed(model, inputs)
        pairs = vectors.pop("pair", None)
        num_pairs = 0
        if pairs is not None:
            num_pairs = len(pairs) // 2
            # A process may have no queries.
            vectors = {"query": pairs[:0].detach(), "document": pairs[:0].detach(), **vectors}
        lists, all_pairs = gather_lists(self.accelerator, vectors, inputs, num_pairs)
        if lists and self.args.chunk_size is not None:
            lists |= {name: inputs[name] for name in CHUNK_TARGETS if name in inputs}
        num_rows = all_pairs + (len(lists["documents"]) if lists else 0)
        # Every parameter has a part in every loss, as distributed training needs it.
        loss = sum(0.0 * parameter.sum() for parameter in self.model.similarity.parameters())
        with torch.autocast(self.args.device.type, enabled=False):
            if lists:
                # The mean over all rows; that of the queries is the same in all processes.
                loss = loss + len(lists["documents"]) / num_rows * self._lists_loss(lists)
            if pairs is not None:
                share = self.accelerator.num_processes * num_pairs / num_rows
                loss = loss + self.args.pairs_weight * share * self._pairs_loss(pairs, inputs)
        return loss

    def _embed(self, model: nn.Module, inputs: dict[str, Any]) -> dict[str, torch.Tensor]:
        """The embeddings of the texts of each kind, `(num_texts, embedding_size)`; of documents, those of chunks."""
        vectors: dict[str, torch.Tensor] = {}
        # The longest texts come last: they need every parameter that others need.
        kinds = [kind for kind in ("query", "pair", "document") if f"{kind}_input_ids" in inputs]
        # An encoder, or a model that is not trained yet, has not the precision that accelerate gives.
        with self.accelerator.autocast():
            for kind in kinds:
                ids, mask = (inputs[f"{kind}_{name}"].flatten(0, -2) for name in ("input_ids", "attention_mask"))
                size = self.args.cached_gradients if model.training else None
                if kind == "document" and self.args.chunk_size is not None:
                    batch_size = size or self.args.train_batch_size
                    vectors[kind] = embed_chunks(self.model, inputs, batch_size, bool(size))
                else:
                    vectors[kind] = embed_in_parts(model, ids, mask, size or PART_SIZE, bool(size))
        return vectors

    def similarities(self, queries: torch.Tensor, documents: torch.Tensor) -> torch.Tensor:
        """What the head compares: cosines or dot products of all queries and documents, `(Q, D)`."""
        if self.model.similarity.kind == "cosine":
            queries, documents = (nn.functional.normalize(part, dim=-1) for part in (queries, documents))
        return queries @ documents.mT

    def best_of_documents(self, similarities: torch.Tensor, inputs: dict[str, torch.Tensor]) -> torch.Tensor:
        """The similarities of queries and documents, `(Q, D)`, where a document has one vector or many."""
        if self.args.chunk_size is None:
            return similarities
        return best_of_chunks(similarities, inputs["chunk_documents"], len(inputs["document_ids"]))

    def _lists_loss(self, lists: dict[str, torch.Tensor]) -> torch.Tensor:
        sizes = self.args.matryoshka_dims, self.args.matryoshka_weights
        vectors = lists["query"], lists["document"]
        return matryoshka_loss(partial(self._vectors_loss, lists), vectors, self.model, *sizes)

    def _vectors_loss(
        self, lists: dict[str, torch.Tensor], queries: torch.Tensor, documents: torch.Tensor
    ) -> torch.Tensor:
        lists = {**lists, "query": queries, "document": documents}
        # All losses are the same for any bias.
        similarities = self.similarities(lists["query"], lists["document"])
        logits = self.model.similarity.scale * self.best_of_documents(similarities, lists)
        names = ("documents", "labels", "teacher_logits", "document_ids", "positives")
        loss = self.ranking_loss(logits, *(lists[name] for name in names))
        if self.args.chunk_size is not None:
            chunk_logits = self.model.similarity.scale * similarities / self.temperature
            loss = loss + chunks_loss(chunk_logits, lists, self.passage_weight, self.args.anchor_weight)
        if self.args.similarity_weight:
            student, source = (
                torch.cat([lists[f"{kind}{ending}"] for kind in ("query", "document")])
                for ending in ("", "_embeddings")
            )
            kept = cosine_loss(student, source, are_of_different_queries(lists["documents"], len(lists["document"])))
            loss = loss + self.args.similarity_weight * kept
        return loss

    def _pairs_loss(self, vectors: torch.Tensor, inputs: dict[str, Any]) -> torch.Tensor:
        def loss_of(vectors: torch.Tensor) -> torch.Tensor:
            first, second = vectors.unflatten(0, (-1, 2)).unbind(1)
            similarity = self.similarities(first[:, None], second[:, None])[:, 0]  # [P, 1]
            logits = self.pair_head.scale * similarity + self.pair_head.bias
            return self.pair_loss(logits, inputs.get("pair_labels"), inputs.get("pair_teacher_logits"))

        sizes = self.args.matryoshka_dims, self.args.matryoshka_weights
        return matryoshka_loss(loss_of, [vectors], self.model, *sizes)

    # Start and end

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        if resume_from_checkpoint:
            last = get_last_checkpoint(self.args.output_dir) if resume_from_checkpoint is True else None
            folder = last or str(resume_from_checkpoint)
            state: Any = read_state(folder)
            with resuming(folder, TRAINER_STATE_NAME):
                values = state.stateful_callbacks[PairHead.__name__]["args"]
                self.pair_head.scale, self.pair_head.bias = float(values["scale"]), float(values["bias"])
        else:
            self.fit_head(fit_scale=True)
            self.fit_pair_head()
        result = super().train(resume_from_checkpoint, *args, **kwargs)
        self.fit_head(fit_scale=False)
        return result

    @torch.no_grad()
    def fit_head(self, fit_scale: bool) -> None:
        """
        Fits the head to a sample of queries: the scale to how much the teacher's logits spread over the candidates of
        a query, and the bias to their mean. Without a teacher, a cosine has the scale 20, and a dot product the scale
        that is equivalent to it.
        """
        head, rows = self.model.similarity, self.train_dataset
        num_queries = START_QUERIES if self.args.chunk_size is None else START_BATCH
        sample = sample_queries(rows.logits, self.uses_teacher, self.args.seed)[:num_queries]
        found: list[np.ndarray] = []
        targets: list[np.ndarray] = []
        norms: list[float] = []
        with evaluating(self.model):
            for start in range(0, len(sample), START_BATCH):
                batch = self._prepare_inputs(
                    self.data_collator([rows[row] for row in sample[start : start + START_BATCH]])
                )
                vectors = self._embed(self.model, batch)
                matrix = self.similarities(vectors["query"], vectors["document"])
                matrix = self.best_of_documents(matrix, batch).cpu().double()
                if not matrix.isfinite().all():
                    raise ValueError(
                        "The similarities of the student are not finite, so it cannot be trained: its weights are "
                        "damaged, or its precision is too low."
                    )
                documents, logits = (batch[name].cpu() for name in ("documents", "teacher_logits"))
                is_unknown = (documents < 0) | ~logits.isfinite()
                own = matrix.gather(1, documents.clamp(min=0)).masked_fill(is_unknown, math.nan)
                found += list(own.numpy())
                targets += list(logits.double().numpy())
                norms.append(float(vectors["query"].norm(dim=1).mean() * vectors["document"].norm(dim=1).mean()))
        if self.uses_teacher:
            if fit_scale:
                head.scale.fill_(mean_spread(targets) / max(mean_spread(found), 1e-6))
            target, similarity = (float(np.nanmean(np.concatenate(values))) for values in (targets, found))
            head.bias.fill_(target - head.scale.item() * similarity)
        elif fit_scale:
            head.scale.fill_(LABEL_SCALE if head.kind == "cosine" else LABEL_SCALE / float(np.mean(norms)))
        # Labels change it no more.
        head.is_open = False
        logger.info(f"The head has the scale {head.scale.item():.4g} and the bias {head.bias.item():.4g}.")

    @torch.no_grad()
    def fit_pair_head(self) -> None:
        """Fits scale and bias of the pairs, if there are any, to their targets by least squares."""
        pairs = self.train_dataset.pairs
        if pairs is None:
            return
        generator = torch.Generator().manual_seed(self.args.seed)
        sample = torch.randperm(len(pairs), generator=generator)[:CALIBRATION_PAIRS].tolist()
        similarities, targets = [], []
        with evaluating(self.model):
            for start in range(0, len(sample), self.args.eval_batch_size):
                features = [pairs[row] for row in sample[start : start + self.args.eval_batch_size]]
                batch = self._prepare_inputs(self.data_collator(features))
                first, second = self._embed(self.model, batch)["pair"].unflatten(0, (-1, 2)).unbind(1)
                similarities.append(self.similarities(first[:, None], second[:, None])[:, 0, 0].cpu().double())
                names = [name for name in ("labels", "teacher_logits") if f"pair_{name}" in batch]
                known = {name: batch[f"pair_{name}"].cpu() for name in names}
                targets.append(self.pair_loss.targets(1, **known))
        moments = measure(torch.cat(similarities), torch.cat(targets))
        scale, bias = fit_similarity(moments, "regression", torch.ones(1).to(moments))
        self.pair_head.scale, self.pair_head.bias = scale.item(), bias.item()
        logger.info(f"Pairs have the scale {scale.item():.4g} and the bias {bias.item():.4g}.")

    # Evaluation

    def evaluate(  # type: ignore[override]
        self,
        eval_dataset: Rankings | None = None,
        ignore_keys: list[str] | None = None,
        metric_key_prefix: str = "eval",
    ) -> dict[str, float]:
        """
        Ranks the documents of the corpus for each query, by cosine or by the head of a dot product. All processes
        compute the same.

        Returns:
            `dict[str, float]`: the means of [`ranking_metrics`], as in `eval_ndcg@10`.
        """
        rankings: Any = self.eval_dataset if eval_dataset is None else eval_dataset
        if rankings is None:
            raise ValueError("There are no queries to evaluate on: pass `eval_dataset`.")
        self._check_datasets(eval_dataset=rankings)
        shown = not self.args.disable_tqdm and self.args.process_index == 0
        options: dict[str, Any] = {"batch_size": self.args.eval_batch_size, "show_progress": shown}
        options |= {"model": self.model, "processing_class": self.tokenizer}
        size = self.args.chunk_size
        chunks: dict[str, Any] = {"chunks": size is not None, "chunk_size": size, "contextual": True}
        with torch.autocast(self.args.device.type, torch.bfloat16, enabled=self.args.bf16):
            queries = encode_query(texts=rankings.queries["query"][:], **options)
            texts = rankings.corpus["text"][:]
            documents, rows, _ = encode_corpus(texts=texts, **chunks, **options)
        options = {"device": self.args.device, "show_progress": shown}
        if self.model.similarity.kind == "dot":
            options["head"] = self.model
        # One more, for the query itself may be found.
        hits: Any = np.array(rank_groups(queries, documents, rows.tolist(), top_k=101, **options))
        run = as_run(rankings, hits[..., 0], rows[hits[..., 1].astype(int)], 100)
        return self.report(ranking_metrics(run, relevance(rankings)), metric_key_prefix)
