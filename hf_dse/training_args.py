# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments with the defaults of sentence-pair training, and what guards a training."""

import math
import shutil
from dataclasses import dataclass, field
from pathlib import Path

from transformers import TrainerCallback, TrainingArguments


@dataclass
class PairTrainingArguments(TrainingArguments):
    """[`~transformers.TrainingArguments`] with defaults that suit fine-tuning an encoder on sentence pairs."""

    learning_rate: float = field(default=3e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Training pairs of a device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation pairs of a device and step."})
    warmup_steps: float = field(default=0.1, metadata={"help": "Warmup steps; below 1 the share of all steps."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    eval_strategy: str = field(default="epoch", metadata={"help": "When to evaluate: no, steps or epoch."})
    save_strategy: str = field(default="epoch", metadata={"help": "When to save: no, steps, epoch or best."})
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints to keep besides the best."})
    load_best_model_at_end: bool = field(
        default=True,
        metadata={
            "help": "Keep the best evaluated model, not the last. Needs evaluating and saving at the same time."
        },
    )
    logging_steps: float = field(default=50, metadata={"help": "Steps between log lines; below 1 a share of all."})
    # A filtered loss would hide that the training has failed.
    logging_nan_inf_filter: bool = field(default=False, metadata={"help": "Leave NaN and inf out of the logged loss."})
    train_sampling_strategy: str = field(
        default="group_by_length", metadata={"help": "random, sequential, group_by_length or batch_rebalance."}
    )
    remove_unused_columns: bool = field(default=False, metadata={"help": "Has to stay false: batches are texts."})

    def __post_init__(self) -> None:
        if self.remove_unused_columns:
            raise ValueError(
                "`remove_unused_columns` must be false: the model takes no texts, so they would be removed before "
                "they become batches."
            )
        if self.eval_strategy != self.save_strategy and self.save_strategy != "best":
            self.load_best_model_at_end = False
        super().__post_init__()


@dataclass
class DseTrainingArguments(PairTrainingArguments):
    """
    [`~transformers.TrainingArguments`] for [`DseTrainer`].

    Args:
        distillation_alpha (`float`, *optional*, defaults to 0.5):
            Weight of the teacher's scores in the loss: 0 for labels only, 1 for the teacher only.
        ranking_weight (`float`, *optional*, defaults to 0.0):
            Weight of a CoSENT ranking loss that is added in regressions, see [`~hf_dse.losses.ranking_loss`].
        ranking_scale (`float`, *optional*, defaults to 4.0):
            Scale of the ranking loss: 20 for cosines from 0 to 1 is 4 for labels from 0 to 5.
        similarity_weight (`float`, *optional*, defaults to 0.0):
            Weight of the [`~hf_dse.losses.similarity_loss`] that is added: the student keeps the similarities that a
            bi-encoder, usually its source, finds between the sentences of different pairs.
        head_learning_rate (`float`, *optional*):
            Learning rate of what conversion made new: the similarity head, the embedding's linear layer and
            Linformer's E and F. Defaults to `learning_rate`.
        scale_learning_rate (`float`, *optional*, defaults to 0.01):
            Learning rate of scale and bias of a cosine head. They have to follow the embeddings: at the rate of
            fine-tuning they stay where they start, scores above `scale + bias` cannot be reached, and the best pairs
            are pressed together below.
        calibrate_similarity (`bool`, *optional*, defaults to `True`):
            Whether scale and bias of a new cosine or dot head start from a least-squares fit to the training targets.
    """

    learning_rate: float = field(default=5e-5, metadata={"help": "The initial learning rate."})
    distillation_alpha: float = field(
        default=0.5, metadata={"help": "Weight of the teacher: 0 for labels only, 1 for the teacher only."}
    )
    ranking_weight: float = field(
        default=0.0, metadata={"help": "Weight of a CoSENT ranking loss, added to the squared errors of a regression."}
    )
    ranking_scale: float = field(
        default=4.0, metadata={"help": "Scale of the ranking loss: 20 divided by the range of the labels."}
    )
    similarity_weight: float = field(
        default=0.0,
        metadata={"help": "Weight of keeping a bi-encoder's similarities between the sentences of different pairs."},
    )
    head_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the parameters that conversion made new."}
    )
    scale_learning_rate: float = field(
        default=1e-2, metadata={"help": "Learning rate of scale and bias of a cosine head."}
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
        if self.ranking_weight < 0.0 or self.ranking_scale <= 0.0:
            raise ValueError(
                f"`ranking_weight` must be at least 0 and `ranking_scale` above 0, got {self.ranking_weight} and "
                f"{self.ranking_scale}."
            )
        for name in ("head_learning_rate", "scale_learning_rate", "similarity_weight"):
            value = getattr(self, name)
            if value is not None and value < 0:
                raise ValueError(f"`{name}` must not be negative, got {value}.")


class FiniteLossCallback(TrainerCallback):
    """Stops a training whose loss is no longer a number."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        for name, value in (logs or {}).items():
            # train_loss is all there is of a training that ends before its first log line.
            if (name == "loss" or name.endswith("_loss")) and not math.isfinite(value):
                raise ValueError(
                    f"The training diverged: {name} is {value} at step {state.global_step}. Lower `learning_rate` "
                    f"(now {args.learning_rate}), lengthen the warmup, or train in float32."
                )


def check_output_dir(output_dir: str, resume_from_checkpoint: str | bool | None, overwrite: bool) -> str | None:
    """
    Finds the checkpoint to resume from, and refuses to write over earlier work.

    Args:
        output_dir (`str`):
            The folder to train into.
        resume_from_checkpoint (`str` or `bool`, *optional*):
            A checkpoint folder, or `True` or `"last"` for the newest complete one in `output_dir`.
        overwrite (`bool`):
            Whether a folder that is not empty may be used; checkpoints in it are deleted then.

    Returns:
        `str`, *optional*: the checkpoint to resume from.

    Raises:
        `FileExistsError`: if the folder is not empty, and neither resuming nor overwriting was asked for.
        `FileNotFoundError`: if there is no checkpoint to resume from.
    """
    folder, resume = Path(output_dir), str(resume_from_checkpoint or "false")
    if resume.lower() in ("true", "last"):
        # What the Trainer writes last; a checkpoint without it was cut short by a kill.
        states = list(folder.glob("checkpoint-*/trainer_state.json"))
        if not states:
            raise FileNotFoundError(f"{output_dir} holds no checkpoint to resume from: start without resuming.")
        return str(max((state.parent for state in states), key=lambda path: int(path.name.split("-")[1])))
    if resume.lower() != "false":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"{resume}: there is no such checkpoint to resume from.")
        return resume
    if folder.is_dir() and any(folder.iterdir()):
        if not overwrite:
            raise FileExistsError(
                f"The output folder {output_dir} is not empty: choose another one, continue its training with "
                "`--resume_from_checkpoint last`, or pass `--overwrite_output_dir`."
            )
        for checkpoint in folder.glob("checkpoint-*"):
            # Each process of a distributed training comes here, and one of them is first.
            shutil.rmtree(checkpoint, ignore_errors=True)
    return None
