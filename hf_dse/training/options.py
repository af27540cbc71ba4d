# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the trainings, without those that transformers adds to them."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class StudentOptions:
    """How to train."""

    complete: ClassVar[str] = "hf_dse.training.arguments.StudentTrainingArguments"

    output_dir: str | None = field(
        default=None, metadata={"help": "Folder of model, results and checkpoints. Default: trainer_output."}
    )
    num_train_epochs: float = field(default=3.0, metadata={"help": "Passes over the training data."})
    max_steps: int = field(
        default=-1, metadata={"help": "Optimizer steps instead of `--num_train_epochs`; below 1: no limit."}
    )
    learning_rate: float = field(default=5e-5, metadata={"help": "The highest learning rate, after the warmup."})
    per_device_train_batch_size: int = field(
        default=16, metadata={"help": "Training pairs, queries or texts per device and step."}
    )
    per_device_eval_batch_size: int = field(
        default=64, metadata={"help": "Pairs or texts per device and step of an evaluation."}
    )
    max_length: int = field(default=128, metadata={"help": "Maximum number of tokens of a text."})
    gradient_accumulation_steps: int = field(
        default=1, metadata={"help": "Batches per optimizer step: a larger batch in less memory."}
    )
    bf16: bool = field(default=False, metadata={"help": "Compute in bfloat16, with weights in float32."})
    seed: int = field(default=42, metadata={"help": "Random seed."})
    resume_from_checkpoint: str | None = field(
        default=None, metadata={"help": "Checkpoint to go on from: a folder, or `last` for the newest of its folder."}
    )
    warmup_steps: float = field(default=0.1, metadata={"help": "Warmup steps; below 1 a share of all steps."})
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    eval_strategy: str | None = field(
        default=None,
        metadata={"help": "When to evaluate: no, steps or epoch. Default: epoch with validation data, otherwise no."},
    )
    save_strategy: str | None = field(
        default=None,
        metadata={"help": "When to save: no, steps, epoch or best. Default: when evaluating, otherwise steps."},
    )
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints to keep besides the best."})
    load_best_model_at_end: bool | None = field(
        default=None,
        metadata={
            "help": "Keep the best model, not the last. Default: true when each epoch is evaluated and saved.",
            "nargs": "?",
            "const": True,
        },
    )
    logging_steps: float = field(
        default=50, metadata={"help": "Steps between log lines; below 1 a share of all steps."}
    )
    train_sampling_strategy: str = field(
        default="group_by_length",
        metadata={
            "help": "How batches are drawn; group_by_length pads less.",
            "choices": ["random", "sequential", "group_by_length", "batch_rebalance"],
        },
    )


@dataclass
class DseOptions(StudentOptions):
    """What a student learns from pairs."""

    complete: ClassVar[str] = "hf_dse.training.arguments.DseTrainingArguments"

    distillation_alpha: float = field(
        default=0.5, metadata={"help": "Weight of the teacher: 0 for labels only, 1 for the teacher only."}
    )
    similarity_weight: float = field(
        default=0.0, metadata={"help": "Weight of a bi-encoder's cosines between sentences of different pairs."}
    )
    head_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of what conversion adds: head, projection, E and F. Default: the same."},
    )
    scale_learning_rate: float = field(
        default=2e-3,
        metadata={"help": "Learning rate of scale and bias of a cosine or dot head, as a share of the first scale."},
    )


@dataclass
class RankingOptions(StudentOptions):
    """What a student learns from rankings."""

    complete: ClassVar[str] = "hf_dse.training.arguments.RankingTrainingArguments"

    learning_rate: float = field(default=2e-5, metadata={"help": "The highest learning rate, after the warmup."})
    max_length: int = field(default=256, metadata={"help": "Maximum number of tokens of a document."})
    metric_for_best_model: str | None = field(
        default="ndcg@10", metadata={"help": "Which metric of the evaluation chooses the best model."}
    )
    train_sampling_strategy: str = field(
        default="random",
        metadata={
            "help": "How batches are drawn; with group_by_length, few data have the same negatives in each epoch.",
            "choices": ["random", "sequential", "group_by_length"],
        },
    )
    query_max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum number of tokens of a query. Default: the student's, or `--max_length`."},
    )
    num_candidates: int = field(
        default=8,
        metadata={"help": "Candidates per query and step: a positive, and others that each epoch draws anew."},
    )
    contrastive_weight: float = field(
        default=1.0, metadata={"help": "Weight of the labels: positives against all other documents of a batch."}
    )
    kl_weight: float | None = field(
        default=None,
        metadata={"help": "Weight of the teacher's distribution over the candidates. Default: 1 with scores, else 0."},
    )
    margin_mse_weight: float = field(
        default=0.0, metadata={"help": "Weight of the teacher's margins between a positive and other candidates."}
    )
    similarity_weight: float = field(
        default=0.0, metadata={"help": "Weight of a bi-encoder's cosines between texts of different queries."}
    )
    distillation_alpha: float = field(
        default=0.5, metadata={"help": "For pairs among the queries: 0 learns labels only, 1 the teacher only."}
    )
    scale_learning_rate: float = field(
        default=2e-3, metadata={"help": "Learning rate of the head's scale, as a share of its first value."}
    )
    cached_gradients: int | None = field(
        default=None,
        metadata={"help": "Texts to embed with gradients at a time, so that large batches fit in memory."},
    )
    queries_per_document: int = field(
        default=1,
        metadata={"help": "Queries of the same document per batch, which reads it once; a divisor of the batch size."},
    )
    freeze_layers: int | None = field(
        default=None,
        metadata={"help": "Do not train the embeddings and so many of the lowest layers. Default: train all."},
    )


@dataclass
class GeneralOptions(StudentOptions):
    """What a student learns from the layers of its source."""

    complete: ClassVar[str] = "hf_dse.training.arguments.GeneralTrainingArguments"

    learning_rate: float = field(default=1e-4, metadata={"help": "The highest learning rate, after the warmup."})
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Training texts per device and step."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Passes over the training data."})
    hidden_weight: float = field(default=1.0, metadata={"help": "Weight of the hidden states of the layers."})
    embedding_weight: float = field(default=0.0, metadata={"help": "Weight of the output of the embeddings."})
    relation_weight: float = field(
        default=1.0, metadata={"help": "Weight of the relations of queries, keys and values in the last layer."}
    )
    attention_weight: float = field(
        default=0.0, metadata={"help": "Weight of the outputs of the attention of the layers."}
    )
    sentence_weight: float = field(default=1.0, metadata={"help": "Weight of the cosine of the sentence embeddings."})
