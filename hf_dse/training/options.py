# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the trainings, without those that transformers adds to them."""

from dataclasses import dataclass
from typing import ClassVar

from hf_dse.common.options import HfArg


@dataclass
class StudentOptions:
    """How to train."""

    complete: ClassVar[str] = "hf_dse.training.arguments.StudentTrainingArguments"

    output_dir: str | None = HfArg(
        default=None, help="Folder of model, results and checkpoints. Default: trainer_output."
    )
    num_train_epochs: float = HfArg(default=3.0, help="Passes over the training data.")
    learning_rate: float = HfArg(default=5e-5, help="The highest learning rate, after the warmup.")
    per_device_train_batch_size: int = HfArg(default=16, help="Training pairs, queries or texts per device and step.")
    per_device_eval_batch_size: int = HfArg(default=64, help="Pairs or texts per device and step of an evaluation.")
    max_length: int = HfArg(default=128, help="Maximum number of tokens of a text.")
    bf16: bool = HfArg(default=False, help="Compute in bfloat16, with weights in float32.")
    seed: int = HfArg(default=42, help="Random seed.")
    resume_from_checkpoint: str | None = HfArg(
        default=None, help="Checkpoint to go on from: a folder, or `last` for the newest of its folder."
    )
    warmup_steps: float = HfArg(default=0.1, help="Warmup steps; below 1 a share of all steps.")
    weight_decay: float = HfArg(default=0.01, help="Weight decay.")
    eval_strategy: str | None = HfArg(
        default=None, help="When to evaluate: no, steps or epoch. Default: epoch with validation data, otherwise no."
    )
    save_strategy: str | None = HfArg(
        default=None, help="When to save: no, steps, epoch or best. Default: when evaluating, otherwise steps."
    )
    save_total_limit: int | None = HfArg(default=1, help="Checkpoints to keep besides the best.")
    load_best_model_at_end: bool | None = HfArg(
        default=None,
        help="Keep the best model, not the last. Default: true when each epoch is evaluated and saved.",
        metadata={"nargs": "?", "const": True},
    )
    logging_steps: float = HfArg(default=50, help="Steps between log lines; below 1 a share of all steps.")
    train_sampling_strategy: str = HfArg(
        default="group_by_length",
        help="How batches are drawn; group_by_length pads less.",
        metadata={"choices": ["random", "sequential", "group_by_length", "batch_rebalance"]},
    )


@dataclass
class DseOptions(StudentOptions):
    """Learning from pairs."""

    complete: ClassVar[str] = "hf_dse.training.arguments.DseTrainingArguments"

    distillation_alpha: float = HfArg(
        default=0.5, help="Weight of the teacher: 0 for labels only, 1 for the teacher only."
    )
    head_learning_rate: float | None = HfArg(
        default=None, help="Learning rate of what conversion adds: head, projection, E and F. Default: the same."
    )
    scale_learning_rate: float = HfArg(
        default=2e-3, help="Learning rate of scale and bias of a cosine or dot head, as a share of the first scale."
    )


@dataclass
class RankingOptions(StudentOptions):
    """Learning from rankings."""

    complete: ClassVar[str] = "hf_dse.training.arguments.RankingTrainingArguments"

    learning_rate: float = HfArg(default=2e-5, help="The highest learning rate, after the warmup.")
    max_length: int = HfArg(default=256, help="Maximum number of tokens of a document.")
    metric_for_best_model: str | None = HfArg(
        default="ndcg@10", help="Which metric of the evaluation chooses the best model."
    )
    train_sampling_strategy: str = HfArg(
        default="random",
        help="How batches are drawn; with group_by_length, few data have the same negatives in each epoch.",
        metadata={"choices": ["random", "sequential", "group_by_length"]},
    )
    query_max_length: int | None = HfArg(
        default=None, help="Maximum number of tokens of a query. Default: the student's, or `--max_length`."
    )
    num_candidates: int = HfArg(
        default=8, help="Candidates per query and step: a positive, and others that each epoch draws anew."
    )
    contrastive_weight: float = HfArg(
        default=1.0, help="Weight of the labels: positives against all other documents of a batch."
    )
    kl_weight: float | None = HfArg(
        default=None, help="Weight of the teacher's distribution over the candidates. Default: 1 with scores, else 0."
    )
    scale_learning_rate: float = HfArg(
        default=2e-3, help="Learning rate of the head's scale, as a share of its first value."
    )
    cached_gradients: int | None = HfArg(
        default=None, help="Texts to embed with gradients at a time, so that large batches fit in memory."
    )
    freeze_layers: int | None = HfArg(
        default=None, help="Do not train the embeddings and so many of the lowest layers. Default: train all."
    )


@dataclass
class GeneralOptions(StudentOptions):
    """Learning from the layers of the source."""

    complete: ClassVar[str] = "hf_dse.training.arguments.GeneralTrainingArguments"

    learning_rate: float = HfArg(default=1e-4, help="The highest learning rate, after the warmup.")
    per_device_train_batch_size: int = HfArg(default=64, help="Training texts per device and step.")
    num_train_epochs: float = HfArg(default=1.0, help="Passes over the training data.")
    hidden_weight: float = HfArg(default=1.0, help="Weight of the hidden states of the layers.")
    sentence_weight: float = HfArg(default=1.0, help="Weight of the cosine of the sentence embeddings.")
