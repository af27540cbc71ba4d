# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments: the options with those of transformers."""

import os
from dataclasses import MISSING, dataclass, fields
from typing import Any, ClassVar

from accelerate.utils import parse_flag_from_env
from transformers import TrainingArguments

from hf_dse.common.options import HfArg, check_at_least
from hf_dse.training.options import DseOptions, GeneralOptions, RankingOptions, StudentOptions


# Fields that a trainer fills in when it knows whether there is something to evaluate on.
OPEN_FIELDS = (
    "eval_strategy",
    "save_strategy",
    "load_best_model_at_end",
    "metric_for_best_model",
    "greater_is_better",
)

# Fields of transformers of which these trainers take the default alone, and why.
REFUSED = dict.fromkeys(
    ("fsdp", "fsdp_config", "deepspeed", "parallelism_config"),
    "these trainers do not divide a model among devices: start one process for each device with torchrun",
)
REFUSED |= {
    "label_smoothing_factor": "these losses smooth no labels: a teacher's scores say how sure a label is",
    "average_tokens_across_devices": "these losses are means over rows and count no tokens",
    "use_cache": "an encoder has no cache",
    "remove_unused_columns": "the model has no inputs that are texts, so that their columns would be removed",
    "label_names": "the trainers name their labels themselves",
    "length_column_name": "the trainers count the lengths themselves",
    "hub_strategy": "checkpoints would be pushed without the code of the model and with the token of the Hub",
    "hub_always_push": "only the end is pushed",
    **dict.fromkeys(("use_liger_kernel", "liger_kernel_config"), "Liger has no kernel for these models"),
    **dict.fromkeys(
        ("bf16_full_eval", "fp16_full_eval"), "a model is evaluated in the precision of its training: use `bf16`"
    ),
    **dict.fromkeys(
        ("batch_eval_metrics", "eval_do_concat_batches"), "the metrics are those of all rows of an evaluation together"
    ),
}
# Options without effect where an evaluation is a search, or a loss alone.
NO_PREDICTIONS = dict.fromkeys(
    ("include_for_metrics", "eval_use_gather_object", "eval_accumulation_steps"),
    "an evaluation of this stage gathers no predictions",
)


@dataclass
class StudentTrainingArguments(StudentOptions, TrainingArguments):  # type: ignore[misc]
    """
    [`~transformers.TrainingArguments`] with defaults for students. `eval_strategy`, `save_strategy` and
    `load_best_model_at_end` follow the data unless they are set: with an `eval_dataset` a trainer evaluates and saves
    after each epoch and keeps the best model.
    """

    refused: ClassVar[dict[str, str]] = REFUSED

    ddp_timeout: int = HfArg(
        default=86_400, help="Seconds that processes wait for each other; the first one scores and evaluates alone."
    )
    # A filtered loss would hide that the training has failed.
    logging_nan_inf_filter: bool = HfArg(default=False, help="Leave NaN and infinite values out of the logged loss.")
    # A checkpoint is pushed by the Trainer without the code of the model, and with the token of the Hub.
    hub_strategy: str = HfArg(default="end", help="When to push to the Hub; only the end has all files of a model.")
    remove_unused_columns: bool = HfArg(default=False, help="Must stay false: the model has no text inputs.")

    def __post_init__(self) -> None:
        for name in ("fsdp", "deepspeed"):
            # On CPUs accelerate would ignore its launcher's setting without a word.
            if parse_flag_from_env(f"ACCELERATE_USE_{name.upper()}"):
                raise ValueError(f"{name} is set by `accelerate launch`: {REFUSED[name]}.")
        for entry in fields(self):
            value, default = getattr(self, entry.name), [] if entry.default is MISSING else entry.default
            if entry.name in self.refused and value != default:
                raise ValueError(f"{entry.name}={value}: {self.refused[entry.name]}. Leave `{entry.name}` out.")
        check_at_least(4, max_length=self.max_length)
        sizes = ("per_device_train_batch_size", "per_device_eval_batch_size", "gradient_accumulation_steps")
        check_at_least(1, **{name: getattr(self, name) for name in sizes})
        if self.max_steps == 0 or (self.max_steps < 0 and self.num_train_epochs <= 0):
            raise ValueError(
                f"num_train_epochs={self.num_train_epochs} and max_steps={self.max_steps} train nothing: set one "
                "above 0."
            )
        self._follow_accelerate()
        given = {name: getattr(self, name) for name in OPEN_FIELDS}
        # The checks of transformers need values: those of a training with an `eval_dataset`.
        self.follow_data(has_eval_dataset=True)
        super().__post_init__()
        vars(self).update(given)
        if self.fp16 and self.device.type == "cpu":
            raise ValueError("fp16 is set, by an argument or by accelerate, and needs a GPU: use `bf16`.")

    def _follow_accelerate(self) -> None:
        """Sets the precision that the settings of accelerate ask for, so that all parts of a training have it."""
        name = "ACCELERATE_MIXED_PRECISION"
        setting = os.environ.get(name, "no").lower()
        if setting not in ("no", "bf16", "fp16"):
            raise ValueError(f"{name}={setting}: these trainers compute in bf16, fp16 or float32 (no).")
        if not self.bf16 and not self.fp16 and setting != "no":
            setattr(self, setting, True)

    @property
    def groups_by_length(self) -> bool:
        """Whether the batches of a training need the lengths of its rows."""
        return self.train_sampling_strategy in ("group_by_length", "batch_rebalance")

    def follow_data(self, has_eval_dataset: bool, loss: str | None = "loss") -> None:
        """Fills in what is not set. `loss` is the name of an evaluation's loss, `None` for pairs without labels."""
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
        if self.load_best_model_at_end or self.lr_scheduler_type in ("reduce_lr_on_plateau", "greedy"):
            self.metric_for_best_model = metric
        if self.greater_is_better is None and self.metric_for_best_model is not None:
            self.greater_is_better = not self.metric_for_best_model.endswith("loss")


@dataclass
class DseTrainingArguments(DseOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`DseTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    def __post_init__(self) -> None:
        super().__post_init__()
        check_alpha(self.distillation_alpha)


@dataclass
class RankingTrainingArguments(RankingOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`RankingTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    refused: ClassVar[dict[str, str]] = {
        **REFUSED,
        **NO_PREDICTIONS,
        "prediction_loss_only": "an evaluation is a search, which has no loss",
    }

    # Each process may have another number of forward passes, and nothing in a buffer changes.
    ddp_broadcast_buffers: bool | None = HfArg(
        default=False, help="Whether processes share buffers in each forward pass."
    )

    def __post_init__(self) -> None:
        super().__post_init__()
        check_at_least(1, cached_gradients=self.cached_gradients)
        check_at_least(2, num_candidates=self.num_candidates)
        check_at_least(4, query_max_length=self.query_max_length)
        check_at_least(0, freeze_layers=self.freeze_layers)
        check_weights(self, "contrastive_weight", "kl_weight")
        allowed = ("random", "sequential", "group_by_length")
        if self.train_sampling_strategy not in allowed:
            raise ValueError(
                f"train_sampling_strategy={self.train_sampling_strategy!r}: for rankings it has to be "
                f"{' or '.join(map(repr, allowed))}."
            )
        loading: Any = self.accelerator_config
        if loading.dispatch_batches:
            raise ValueError(
                "`dispatch_batches` cuts a batch at its queries, which have several documents: leave it out."
            )


@dataclass
class GeneralTrainingArguments(GeneralOptions, StudentTrainingArguments):  # type: ignore[misc]
    """Training arguments of [`GeneralTrainer`]: its options, and those of [`~transformers.TrainingArguments`]."""

    refused: ClassVar[dict[str, str]] = {**REFUSED, **NO_PREDICTIONS}

    def __post_init__(self) -> None:
        super().__post_init__()
        check_weights(self, "hidden_weight", "sentence_weight")


def check_alpha(alpha: float) -> None:
    """Raises a `ValueError` for a weight of the teacher that is not between 0 and 1."""
    if not 0.0 <= alpha <= 1.0:
        raise ValueError(f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got {alpha}.")


def check_weights(args: Any, *names: str) -> None:
    """Raises a `ValueError` if a weight of a loss is negative, or all are 0; `None` follows the data."""
    check_at_least(0, **{name: getattr(args, name) for name in names})
    if not any(getattr(args, name) != 0 for name in names):
        raise ValueError(
            f"All loss weights are 0, so there is nothing to learn: set one of {', '.join(names)} above 0."
        )
