# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments with the defaults of sentence-pair training."""

from dataclasses import dataclass, field

from transformers import TrainingArguments


@dataclass
class PairTrainingArguments(TrainingArguments):
    """[`~transformers.TrainingArguments`] with defaults that suit fine-tuning an encoder on sentence pairs."""

    learning_rate: float = field(default=2e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Training pairs of a device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation pairs of a device and step."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warmup steps; below 1 the share of all steps."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    eval_strategy: str = field(default="epoch", metadata={"help": "When to evaluate: no, steps or epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to save: no, steps, epoch or best."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints to keep besides the best."})
    load_best_model_at_end: bool = field(default=True, metadata={"help": "Keep the best epoch, not the last."})
    logging_steps: float = field(default=50, metadata={"help": "Steps between log lines."})
    # A filtered loss would hide that the training has failed.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Leave NaN and inf out of the logged loss."})
    train_sampling_strategy: str = field(
        default="group_by_length", metadata={"help": "random, sequential, group_by_length or batch_rebalance."}
    )
    remove_unused_columns: bool = field(default=False, metadata={"help": "Has to stay false: batches are texts."})


@dataclass
class DseTrainingArguments(PairTrainingArguments):
    """
    [`~transformers.TrainingArguments`] for [`DseTrainer`].

    Args:
        distillation_alpha (`float`, *optional*, defaults to 0.5):
            Weight of the teacher's scores in the loss: 0 for labels only, 1 for the teacher only.
        head_learning_rate (`float`, *optional*):
            Learning rate of what conversion made new: the similarity head, the embedding's linear layer and
            Linformer's E and F. Defaults to `learning_rate`.
        calibrate_similarity (`bool`, *optional*, defaults to `True`):
            Whether scale and bias of a new cosine or dot head start from a least-squares fit to the training targets.
            A small learning rate alone moves them too slowly.
    """

    distillation_alpha: float = field(
        default=0.5, metadata={"help": "Weight of the teacher: 0 for labels only, 1 for the teacher only."}
    )
    head_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the parameters that conversion made new."}
    )
    calibrate_similarity: bool = field(
        default=True, metadata={"help": "Fit scale and bias of a new cosine or dot head to the targets first."}
    )

    def __post_init__(self):
        super().__post_init__()
        if not 0.0 <= self.distillation_alpha <= 1.0:
            raise ValueError(
                f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got "
                f"{self.distillation_alpha}."
            )
        if self.head_learning_rate is not None and self.head_learning_rate < 0:
            raise ValueError(f"`head_learning_rate` must not be negative, got {self.head_learning_rate}.")
