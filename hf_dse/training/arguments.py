# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments: the options with those of transformers."""

import math
import os
from dataclasses import dataclass, field
from typing import Any

from transformers import TrainingArguments

from hf_dse.common.devices import advise_bf16
from hf_dse.common.options import check_at_least, check_positive
from hf_dse.training.options import DseOptions, GeneralOptions, RankingOptions, StudentOptions


# Fields that a trainer fills in when it knows whether there is something to evaluate on.
OPEN_FIELDS = (
    "eval_strategy",
    "save_strategy",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
)

# The loss weights of the general stage.
PARTS = ("hidden", "embedding", "relation", "sentence")


@dataclass
class StudentTrainingArguments(StudentOptions, TrainingArguments):  # type: ignore[misc]
    """
    [`~transformers.TrainingArguments`] with defaults for students. `eval_strategy`, `save_strategy` and
    `load_best_model_at_end` follow the data unless they are set: with an `eval_dataset` a trainer evaluates and saves
    after each epoch and keeps the best model; without one it evaluates nothing and saves as
    [`~transformers.Trainer`] does.
    """

    ddp_timeout: int = field(
        default=86_400,
        metadata={"help": "Seconds that processes wait for each other; the first one scores and evaluates alone."},
    )
    # A filtered loss would hide that the training has failed.
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Leave NaN and infinite values out of the logged loss."}
    )
    # A checkpoint is pushed by the Trainer without the code of the model, and with the token of the Hub.
    hub_strategy: str = field(
        default="end", metadata={"help": "When to push to the Hub; only the end has all files of a model."}
    )
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Must stay false: the model has no text inputs."}
    )

    def __post_init__(self) -> None:
        if self.remove_unused_columns:
            raise ValueError(
                "`remove_unused_columns` must be false: the model has no text inputs, so the Trainer would remove the "
                "text columns before the collator tokenizes them."
            )
        if self.label_smoothing_factor:
            raise ValueError(
                f"`label_smoothing_factor` is {self.label_smoothing_factor}, and these losses smooth no labels: leave "
                "it out."
            )
        sharded = next((name for name in ("fsdp", "deepspeed") if getattr(self, name) or _is_launched(name)), None)
        if sharded is not None:
            raise ValueError(
                f"{sharded} is set, by an argument or by `accelerate launch`, and these trainers do not divide a "
                "model among devices: leave it out, and start one process for each device with torchrun, which "
                "divides the batches."
            )
        check_positive(self, "gradient_accumulation_steps")
        check_positive(self, "per_device_train_batch_size", "per_device_eval_batch_size")
        check_at_least(4, max_length=self.max_length)
        is_open = [name for name in OPEN_FIELDS if getattr(self, name) is None]
        # The checks of transformers need values: those of a training with an `eval_dataset`.
        self.follow_data(has_eval_dataset=True)
        super().__post_init__()
        for name in is_open:
            setattr(self, name, None)
        loading: Any = self.accelerator_config
        if loading.dispatch_batches:
            raise ValueError(
                "`dispatch_batches` of `accelerator_config` cuts a batch at its number of rows, and a row may have "
                "several texts: leave it out."
            )
        if self.bf16:
            advise_bf16(self.device, "bf16=True")

    @property
    def groups_by_length(self) -> bool:
        """Whether the batches of a training need the lengths of its rows."""
        return self.train_sampling_strategy in ("group_by_length", "batch_rebalance")

    def follow_data(self, has_eval_dataset: bool, loss: str | None = "loss") -> None:
        """
        Fills in when to evaluate and to save, which model to keep and by which metric, where they are not set.

        Args:
            has_eval_dataset (`bool`):
                Whether there is a dataset to evaluate on during the training.
            loss (`str`, *optional*, defaults to `"loss"`):
                The name of the loss that an evaluation has, or `None` if it has none, as of pairs without labels.
        """
        if self.load_best_model_at_end and not has_eval_dataset:
            raise ValueError(
                "`load_best_model_at_end` is true, but there is no `eval_dataset` to compare models on: pass one, or "
                "leave `load_best_model_at_end` out."
            )
        if self.eval_strategy is None:
            self.eval_strategy = "epoch" if has_eval_dataset else "no"
        if self.save_strategy is None:
            self.save_strategy = "steps" if self.eval_strategy == "no" else self.eval_strategy
        metric = self.metric_for_best_model or loss
        if self.load_best_model_at_end is None:
            saves_best = self.save_strategy == "best" or self.eval_strategy == self.save_strategy == "epoch"
            self.load_best_model_at_end = self.eval_strategy != "no" and saves_best and metric is not None
        compares = self.load_best_model_at_end or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy")
        if compares and metric is None:
            raise ValueError(
                "The `eval_dataset` has no labels, so an evaluation has no loss to compare models by: add labels, or "
                "leave out `load_best_model_at_end` and a `lr_scheduler_type` that follows the loss."
            )
        if compares:
            self.metric_for_best_model = metric
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better = not self.metric_for_best_model.endswith("loss")


@dataclass
class DseTrainingArguments(DseOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`DseTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.distillation_alpha)
        check_weights(similarity_weight=self.similarity_weight)


@dataclass
class RankingTrainingArguments(RankingOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`RankingTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    # Each process may have another number of forward passes, and nothing in a buffer changes.
    ddp_broadcast_buffers: bool | None = field(
        default=False, metadata={"help": "Whether processes share buffers in each forward pass."}
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_positive(self, "cached_gradients", "eval_corpus_size", "queries_per_document")
        check_at_least(2, num_candidates=self.num_candidates)
        check_at_least(4, query_max_length=self.query_max_length)
        check_at_least(0, freeze_layers=self.freeze_layers)
        check_alpha(self.distillation_alpha)
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
        check_some_weight(
            contrastive_weight=self.contrastive_weight,
            kl_weight=1.0 if self.kl_weight is None else self.kl_weight,
            margin_mse_weight=self.margin_mse_weight,
        )
        check_weights(similarity_weight=self.similarity_weight, pairs_weight=self.pairs_weight)


@dataclass
class GeneralTrainingArguments(GeneralOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`GeneralTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_some_weight(**{f"{name}_weight": getattr(self, f"{name}_weight") for name in PARTS})


def _is_launched(name: str) -> bool:
    """Whether `accelerate launch` was told to divide the model."""
    return os.environ.get(f"ACCELERATE_USE_{name.upper()}", "").lower() in ("true", "1")


def check_alpha(alpha: float) -> None:
    """Raises a `ValueError` for a weight of the teacher that is not between 0 and 1."""
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got {alpha}.")


def check_weights(**weights: float) -> None:
    """Raises a `ValueError` for a weight of a loss that is negative or not finite."""
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"`{name}` must be a finite number of at least 0, got {weight}.")


def check_some_weight(**weights: float) -> None:
    """The same for weights that must not all be 0."""
    check_weights(**weights)
    if not any(weights.values()):
        names = ", ".join(f"`{name}`" for name in weights)
        raise ValueError(f"All loss weights are 0, so there is nothing to learn: set one of {names} above 0.")
