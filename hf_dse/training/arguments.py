# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments, with defaults that suit sentence pairs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import torch
from transformers import Trainer, TrainingArguments, get_scheduler
from transformers.trainer_utils import IntervalStrategy, SaveStrategy
from transformers.training_args import OptimizerNames

from hf_dse.common.devices import advise_bf16
from hf_dse.common.options import check_at_least, check_numbers, check_positive
from hf_dse.training.inputs import refuse_sharding
from hf_dse.training.options import AlignOptions, DseOptions, GeneralOptions, PairOptions, RankingOptions


# Fields that the trainer fills in when it knows whether there is something to evaluate on.
OPEN_FIELDS = (
    "eval_strategy",
    "save_strategy",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
)

# Their optimizers look for the layers of a model.
NEED_MODEL = ("galore", "apollo", "lomo", "adalomo")

SAMPLING_STRATEGIES = ("random", "sequential", "group_by_length", "batch_rebalance")


@dataclass
class PairTrainingArguments(PairOptions, TrainingArguments):  # type: ignore[misc]
    """
    Training arguments: [`~transformers.TrainingArguments`] with defaults for sentence pairs.

    `eval_strategy`, `save_strategy` and `load_best_model_at_end` follow the data unless they are set: with an
    `eval_dataset` a trainer evaluates and saves after each epoch and keeps the best model; without one it evaluates
    nothing and saves as [`~transformers.Trainer`] does.
    """

    def __post_init__(self) -> None:
        refuse_sharding(self)
        if self.remove_unused_columns:
            raise ValueError(
                "`remove_unused_columns` must be false: the model has no text inputs, so the Trainer would remove the "
                "text columns before the collator tokenizes them."
            )
        is_teacher = type(self) is PairTrainingArguments
        # The training of a teacher on classes has it.
        if self.label_smoothing_factor and not is_teacher:
            raise ValueError(
                f"`label_smoothing_factor` is {self.label_smoothing_factor}, and these losses smooth no labels: leave "
                "it out."
            )
        if self.label_names not in (None, ["labels"]):
            raise ValueError(f"`label_names` is {self.label_names!r}, and these trainers have 'labels': leave it out.")
        if self.use_liger_kernel and not is_teacher:
            raise ValueError("`use_liger_kernel` is true, and Liger has no kernels for students: leave it out.")
        if self.dataloader_persistent_workers and not self.dataloader_num_workers:
            raise ValueError(
                "`dataloader_persistent_workers` keeps the processes that load data, and there are none: pass "
                "`dataloader_num_workers` too, or leave it out."
            )
        check_at_least(0, dataloader_num_workers=self.dataloader_num_workers)
        if self.max_length < 4:
            raise ValueError(f"`max_length` must be at least 4, got {self.max_length}.")
        check_numbers(self)
        check_positive(self, "gradient_accumulation_steps", "eval_accumulation_steps")
        check_positive(self, "per_device_train_batch_size", "per_device_eval_batch_size")
        if self.train_sampling_strategy not in SAMPLING_STRATEGIES:
            raise ValueError(
                f"`train_sampling_strategy` is {self.train_sampling_strategy!r}, and it has to be one of "
                f"{', '.join(SAMPLING_STRATEGIES)}."
            )
        chosen = {name: getattr(self, name) for name in OPEN_FIELDS}
        do_eval = self.do_eval
        # The checks of transformers need values. They are those of a training with an `eval_dataset`.
        self.fill_open_fields(has_eval_dataset=True)
        try:
            super().__post_init__()
        # Options that are passed on, such as those of `accelerator_config`.
        except TypeError as error:
            raise ValueError(f"The training arguments do not fit: {error}.") from error
        loading: Any = self.accelerator_config
        if loading.dispatch_batches:
            raise ValueError(
                "`dispatch_batches` of `accelerator_config` cuts a batch at its number of rows, and a row may have "
                "several texts: leave it out."
            )
        if self.bf16:
            advise_bf16(self.device, "bf16=True")
        if self.n_gpu > 1 and (self.bf16 or self.fp16):
            raise ValueError(
                f"`Trainer` computes in float32 on {self.n_gpu} GPUs of one process, whatever `bf16` and `fp16` say: "
                "start one process for each GPU with torchrun or `accelerate launch`, or set CUDA_VISIBLE_DEVICES=0."
            )
        self._check_optimizer()
        self._check_scheduler()
        for name, value in chosen.items():
            if value is None:
                setattr(self, name, None)
        if self.eval_strategy is None:
            self.do_eval = do_eval
        self._filled: dict[str, Any] = {}

    @property
    def groups_by_length(self) -> bool:
        """Whether the batches of a training need the lengths of its rows."""
        return self.train_sampling_strategy in ("group_by_length", "batch_rebalance")

    def _check_optimizer(self) -> None:
        """Makes an optimizer, for neither its package nor its options are looked at before the training."""
        try:
            kind, options = Trainer.get_optimizer_cls_and_kwargs(self)
            if kind.__module__.startswith("torch."):
                kind([torch.zeros(1)], **options)
        # `ImportError` names the package.
        except (TypeError, ValueError) as error:
            name = OptimizerNames(self.optim).value
            if not name.startswith(NEED_MODEL):
                raise ValueError(
                    f"The optimizer of `optim={name!r}` and `optim_args={self.optim_args!r}` cannot be made: {error}."
                ) from error

    def _check_scheduler(self) -> None:
        """Makes a scheduler, for its options are not looked at before the training."""
        optimizer = torch.optim.SGD([torch.zeros(1)], lr=1.0)
        try:
            get_scheduler(self.lr_scheduler_type, optimizer, 1, 2, self.lr_scheduler_kwargs)  # type: ignore[arg-type]
        except (TypeError, ValueError) as error:
            raise ValueError(
                f"`lr_scheduler_kwargs` is {self.lr_scheduler_kwargs!r}, which does not fit "
                f"`lr_scheduler_type={str(self.lr_scheduler_type)!r}`: {error}."
            ) from error

    def fill_open_fields(self, has_eval_dataset: bool, loss: str | None = "loss") -> None:
        """
        Fills in `eval_strategy`, `save_strategy`, `load_best_model_at_end` and how models are compared, where they
        are not set. The trainers call it. Values that were set stay, those of an earlier call are replaced.

        Args:
            has_eval_dataset (`bool`):
                Whether there is a dataset to evaluate on during the training.
            loss (`str`, *optional*, defaults to `"loss"`):
                The name of the loss that an evaluation has, or `None` if it has none, as of pairs without labels.

        Raises:
            `ValueError`: if `load_best_model_at_end` is set, but there is nothing to evaluate on, or to compare by.
        """
        for name, value in getattr(self, "_filled", {}).items():
            if getattr(self, name) == value:
                setattr(self, name, None)
        is_open = [name for name in OPEN_FIELDS if getattr(self, name) is None]
        if self.load_best_model_at_end and not has_eval_dataset:
            raise ValueError(
                "`load_best_model_at_end` is true, but there is no `eval_dataset` to compare models on: pass one, or "
                "leave `load_best_model_at_end` out."
            )
        if self.eval_strategy is None:
            follows = self.load_best_model_at_end and self.save_strategy in ("steps", "epoch")
            strategy = str(SaveStrategy(self.save_strategy).value) if follows else "epoch"
            self.eval_strategy = IntervalStrategy(strategy if has_eval_dataset else "no")
        if self.save_strategy is None:
            follows = self.eval_strategy == "epoch" or self.load_best_model_at_end
            self.save_strategy = SaveStrategy(IntervalStrategy(self.eval_strategy).value if follows else "steps")
        if self.load_best_model_at_end is None:
            self.load_best_model_at_end = self._saves_what_it_evaluates() and bool(loss or self.metric_for_best_model)
        needs_metric = self.load_best_model_at_end or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
        if self.metric_for_best_model is None and needs_metric:
            if loss is None:
                raise ValueError(
                    "The `eval_dataset` has no labels, so an evaluation has no loss to compare models by: add labels, "
                    "or leave out `load_best_model_at_end` and a `lr_scheduler_type` that follows the loss."
                )
            self.metric_for_best_model = loss
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better = not self.metric_for_best_model.endswith("loss")
        self.do_eval = self.do_eval or self.eval_strategy != "no"
        self._filled = {name: getattr(self, name) for name in is_open}

    def _saves_what_it_evaluates(self) -> bool:
        """Whether every saved model is evaluated, so that the best one can be kept."""
        if self.eval_strategy == "no":
            return False
        if self.save_strategy == "best" or self.eval_strategy == self.save_strategy == "epoch":
            return True
        if self.eval_strategy != self.save_strategy:
            return False
        eval_steps = self.eval_steps or self.logging_steps
        if eval_steps < 1 or self.save_steps < 1:
            return eval_steps == self.save_steps
        return self.save_steps % eval_steps == 0


@dataclass
class DseTrainingArguments(DseOptions, PairTrainingArguments):  # type: ignore[misc]
    """
    Training arguments of [`DseTrainer`].

    Args:
        distillation_alpha (`float`, *optional*, defaults to 0.5):
            Weight of the teacher's scores in the loss: 0 for labels only, 1 for the teacher only.
        ranking_weight (`float`, *optional*, defaults to 0.0):
            Weight of a CoSENT ranking loss that is added in regressions, see [`ranking_loss`].
        ranking_scale (`float`, *optional*, defaults to 4.0):
            Scale of the ranking loss: 20 for cosines from 0 to 1 is 4 for labels from 0 to 5.
        similarity_weight (`float`, *optional*, defaults to 0.0):
            Weight of the [`similarity_loss`] that is added: the student keeps the similarities that a bi-encoder,
            usually its source, finds between the sentences of different pairs.
        head_learning_rate (`float`, *optional*):
            Learning rate of the parameters that conversion adds: the similarity head, the embedding's linear layer
            and Linformer's E and F. Defaults to `learning_rate`.
        scale_learning_rate (`float`, *optional*, defaults to 0.01):
            Learning rate of scale and bias of a cosine head. They have to follow the embeddings: at the learning
            rate of fine-tuning they hardly change, and no score can be above `scale + bias`.
        calibrate_similarity (`bool`, *optional*, defaults to `True`):
            Whether scale and bias of a new cosine or dot head start from a least-squares fit to the training targets.
        matryoshka_dims (`list[int]`, *optional*):
            Sizes of the vectors to train: the loss is the sum of that of the first numbers of the vectors over these
            sizes, see [Kusupati et al., 2022](https://huggingface.co/papers/2205.13147). Name the whole size too if it
            is to be trained. Not for mlp heads. By default the whole vectors alone.
        matryoshka_weights (`list[float]`, *optional*):
            The weight of each of these sizes. Defaults to 1 for each.
    """

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.distillation_alpha <= 1.0:
            raise ValueError(
                f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got "
                f"{self.distillation_alpha}."
            )
        if self.ranking_weight < 0.0 or self.ranking_scale <= 0.0:
            raise ValueError(
                f"`ranking_weight` must be at least 0 and `ranking_scale` above 0, got {self.ranking_weight} and "
                f"{self.ranking_scale}."
            )
        for name in ("head_learning_rate", "scale_learning_rate", "similarity_weight"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must not be negative, got {value}.")
        check_matryoshka(self.matryoshka_dims, self.matryoshka_weights)


@dataclass
class RankingTrainingArguments(RankingOptions, PairTrainingArguments):  # type: ignore[misc]
    """
    Training arguments of [`RankingTrainer`].

    Args:
        query_max_length (`int`, *optional*):
            Maximum number of tokens of a query, which the checkpoint stores as `query_length`. Defaults to that of the
            student if it has one, and to `max_length`, that of a document.
        num_candidates (`int`, *optional*, defaults to 8):
            Candidates of a query in a step: one of its positives, and others that are drawn anew in each epoch.
        contrastive_weight (`float`, *optional*, defaults to 1.0):
            Weight of the labels: a positive against the other candidates and the documents of the other queries.
        kl_weight (`float`, *optional*):
            Weight of the teacher's distribution over the candidates of a query. Defaults to 1 for rankings with
            teacher scores, and to 0 for others.
        margin_mse_weight (`float`, *optional*, defaults to 0.0):
            Weight of the teacher's margins between a positive and the other candidates.
        similarity_weight (`float`, *optional*, defaults to 0.0):
            Weight of the cosines that a bi-encoder, usually the source, finds between texts of different queries.
        pairs_weight (`float`, *optional*, defaults to 1.0):
            Weight of a pair of sentences, where a query has the weight 1, if pairs are mixed with the queries.
        distillation_alpha (`float`, *optional*, defaults to 0.5):
            Weight of the teacher's scores against the labels of these pairs.
        scale_learning_rate (`float`, *optional*, defaults to 0.002):
            Learning rate of the scale of the head, as a share of its first value: scales of cosines are about 10 to
            100, those of dot products far smaller.
        cached_gradients (`int`, *optional*):
            Texts that are embedded with gradients at a time, see `embed_in_parts`: large batches in little memory.
            By default all at once.
        eval_corpus_size (`int`, *optional*, defaults to 5000):
            Documents that each query is ranked against in an evaluation during the training: all candidates of
            `eval_dataset`, and as many others of its corpus as there is room for.
        chunk_size (`int`, *optional*):
            Maximum tokens of a chunk. With it a document has a vector for each of its chunks, pooled from one pass
            over the document as by [`encode_chunks`] with `contextual=True`, and the best of them counts. A document
            longer than `max_length` is read in overlapping windows. By default a document has one vector.
        passage_weight (`float`, *optional*):
            With `chunk_size`, weight of the chunks that a query should find against the others of their document:
            those with its `evidence`, or else the one that the bi-encoder of [`embed_rankings`] finds best. Defaults
            to 1 for rankings with evidence, and to 0 for others.
        anchor_weight (`float`, *optional*, defaults to 0.0):
            With `chunk_size`, weight of the cosine distance of each chunk from the same chunk read alone by the
            bi-encoder of [`embed_rankings`].
        queries_per_document (`int`, *optional*, defaults to 1):
            Queries with the same relevant document that are put into a batch together, in a random order of such
            groups. Their document is read once.
        freeze_layers (`int`, *optional*):
            How many of the lowest layers are not trained, nor are the embeddings. By default everything is trained.
        matryoshka_dims (`list[int]`, *optional*):
            Sizes of the vectors to train: the loss is the sum of that of the first numbers of the vectors over these
            sizes, see [Kusupati et al., 2022](https://huggingface.co/papers/2205.13147). Name the whole size too if it
            is to be trained. Not for mlp heads. By default the whole vectors alone.
        matryoshka_weights (`list[float]`, *optional*):
            The weight of each of these sizes. Defaults to 1 for each.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, cached_gradients=self.cached_gradients, eval_corpus_size=self.eval_corpus_size)
        check_at_least(2, num_candidates=self.num_candidates)
        check_at_least(4, query_max_length=self.query_max_length)
        if self.train_sampling_strategy not in ("random", "sequential", "group_by_length"):
            raise ValueError(
                f"`train_sampling_strategy` is {self.train_sampling_strategy!r}, and for rankings it is 'random', "
                "'sequential' or 'group_by_length'."
            )
        if self.queries_per_document > 1 and self.train_sampling_strategy != "random":
            raise ValueError(
                f"queries_per_document={self.queries_per_document} groups queries by their document, and "
                f"`train_sampling_strategy` is {self.train_sampling_strategy!r}: it has to be 'random'."
            )
        self._check_chunks()
        if not 0.0 <= self.distillation_alpha <= 1.0:
            raise ValueError(
                f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got "
                f"{self.distillation_alpha}."
            )
        weights = {name: getattr(self, f"{name}_weight") for name in ("contrastive", "kl", "margin_mse")}
        check_weights({name: 1.0 if weight is None else weight for name, weight in weights.items()})
        for name in ("similarity_weight", "pairs_weight", "scale_learning_rate"):
            if not 0 <= getattr(self, name) < math.inf:
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {getattr(self, name)}.")
        check_matryoshka(self.matryoshka_dims, self.matryoshka_weights)

    def _check_chunks(self) -> None:
        check_at_least(1, chunk_size=self.chunk_size, queries_per_document=self.queries_per_document)
        check_at_least(0, freeze_layers=self.freeze_layers)
        for name in ("passage_weight", "anchor_weight"):
            weight = getattr(self, name) or 0
            if not 0 <= weight < math.inf:
                raise ValueError(f"`{name}` must be a finite number of at least 0, got {weight}.")
            if weight and self.chunk_size is None:
                raise ValueError(f"{name}={weight} is that of chunks: pass their `chunk_size` too.")
        if self.chunk_size is not None and self.similarity_weight:
            raise ValueError(
                f"similarity_weight={self.similarity_weight} compares documents with one vector, and with "
                f"chunk_size={self.chunk_size} they have many: take `anchor_weight` instead."
            )


PARTS = ("hidden", "embedding", "relation", "sentence")


@dataclass
class GeneralTrainingArguments(GeneralOptions, PairTrainingArguments):  # type: ignore[misc]
    """
    Training arguments of [`GeneralTrainer`].

    Args:
        hidden_weight (`float`, *optional*, defaults to 1.0):
            Weight of the squared error of the layers' hidden states, see [`hidden_loss`].
        embedding_weight (`float`, *optional*, defaults to 0.0):
            Weight of the same for the output of the embeddings.
        relation_weight (`float`, *optional*, defaults to 1.0):
            Weight of the relations between the tokens in the last layer, see [`relation_loss`].
        sentence_weight (`float`, *optional*, defaults to 1.0):
            Weight of the cosine distance of the sentence embeddings.
        relation_heads (`int`, *optional*):
            Heads into which queries, keys and values are split for the relations. Defaults to the attention heads of
            the teacher.
        layer_mapping (`list[str]`, *optional*, defaults to `["uniform"]`):
            Which teacher layer each student layer learns from, see [`map_layers`].
        progressive (`bool`, *optional*, defaults to `False`):
            Whether the layers are trained one after the other before all are, see [`ProgressiveCallback`].
        teacher_chunk_length (`int`, *optional*):
            Tokens of the chunks in which the teacher reads a text, for students with a longer limit than their
            teacher: the sentence embedding to learn is then the [`chunk_mean`]. The hidden states of chunks are not
            those of the whole text, so the other weights must be 0.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights({name: getattr(self, f"{name}_weight") for name in PARTS})
        if self.relation_heads is not None and self.relation_heads < 1:
            raise ValueError(f"`relation_heads` must be at least 1, got {self.relation_heads}.")
        if self.progressive and self.hidden_weight == 0:
            raise ValueError("`progressive` trains layers on their hidden states: `hidden_weight` must be above 0.")
        if self.teacher_chunk_length is not None:
            layers = {name: getattr(self, f"{name}_weight") for name in PARTS if name != "sentence"}
            if any(layers.values()):
                raise ValueError(
                    "With `teacher_chunk_length` the student can only learn the sentence embedding, not the layers: "
                    "set " + " and ".join(f"`{name}_weight`" for name, weight in layers.items() if weight) + " to 0."
                )


def check_matryoshka(dims: list[int] | None, weights: list[float] | None) -> None:
    """Raises a `ValueError` if `matryoshka_dims` are no sizes, or `matryoshka_weights` are not those of them."""
    if dims is None:
        if weights is not None:
            raise ValueError(f"matryoshka_weights={weights} are those of `matryoshka_dims`: name these sizes too.")
        return
    if not dims or min(dims) < 1 or len(set(dims)) < len(dims):
        raise ValueError(f"matryoshka_dims={dims}: they have to be different sizes of at least 1.")
    if weights is not None:
        if len(weights) != len(dims):
            raise ValueError(f"matryoshka_weights={weights}: there are {len(dims)} sizes, which need a weight each.")
        check_weights({f"matryoshka_{size}": weight for size, weight in zip(dims, weights, strict=True)})


@dataclass
class AlignTrainingArguments(AlignOptions, PairTrainingArguments):  # type: ignore[misc]
    """
    Training arguments of [`AlignTrainer`].

    Args:
        projection_learning_rate (`float`, *optional*):
            Learning rate of the linear layer between the vectors of the student and those of the teacher. Defaults to
            `learning_rate`.
    """

    def __post_init__(self) -> None:
        super().__post_init__()
        rate = self.projection_learning_rate
        if rate is not None and rate < 0:
            raise ValueError(f"`projection_learning_rate` must not be negative, got {rate}.")


def check_weights(weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"`{name}_weight` must be a finite number of at least 0, got {weight}.")
    if not any(weights.values()):
        names = ", ".join(f"`{name}_weight`" for name in weights)
        raise ValueError(f"All loss weights are 0, so there is nothing to learn: set one of {names} above 0.")
