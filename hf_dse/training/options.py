# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the trainings, without those that transformers adds to them."""

from dataclasses import dataclass, field
from typing import ClassVar


@dataclass
class PairOptions:
    """How to train."""

    complete: ClassVar[str] = "PairTrainingArguments"

    output_dir: str | None = field(
        default=None,
        metadata={"help": "Folder of the trained model, its results and its checkpoints. Default: trainer_output."},
    )
    num_train_epochs: float = field(default=3.0, metadata={"help": "Passes over the training data."})
    max_steps: int = field(
        default=-1, metadata={"help": "Steps of the optimizer instead of `--num_train_epochs`; below 1: no limit."}
    )
    learning_rate: float = field(default=3e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Training pairs per device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation pairs per device and step."})
    max_length: int = field(
        default=128, metadata={"help": "Maximum number of tokens of a text (student) or of a pair (cross-encoder)."}
    )
    gradient_accumulation_steps: int = field(
        default=1,
        metadata={"help": "Batches of a step of the optimizer, one after the other: a larger batch in less memory."},
    )
    bf16: bool = field(
        default=False,
        metadata={"help": "Compute in bfloat16: faster where the hardware supports it. The weights stay float32."},
    )
    seed: int = field(default=42, metadata={"help": "Random seed."})
    resume_from_checkpoint: str | None = field(
        default=None,
        metadata={"help": "Go on from this checkpoint: a folder, or `last` for the newest one in `--output_dir`."},
    )
    warmup_steps: float = field(
        default=0.1, metadata={"help": "Warmup steps; a value below 1 is a share of all steps."}
    )
    weight_decay: float = field(default=0.01, metadata={"help": "Weight decay."})
    eval_strategy: str | None = field(
        default=None,
        metadata={"help": "When to evaluate: no, steps or epoch. Default: epoch with validation data, otherwise no."},
    )
    save_strategy: str | None = field(
        default=None,
        metadata={
            "help": "When to save: no, steps, epoch or best. Default: epoch if each epoch is evaluated, otherwise "
            "steps."
        },
    )
    save_total_limit: int | None = field(default=1, metadata={"help": "Checkpoints to keep besides the best."})
    load_best_model_at_end: bool | None = field(
        default=None,
        metadata={
            "help": "Keep the best evaluated model, not the last. Default: true when evaluating and saving at the "
            "same steps.",
            "nargs": "?",
            "const": True,
        },
    )
    logging_steps: float = field(
        default=50, metadata={"help": "Steps between log lines; a value below 1 is a share of all steps."}
    )
    ddp_timeout: int = field(
        default=86_400,
        metadata={"help": "Seconds that processes wait for each other; the first one scores and evaluates alone."},
    )
    # A filtered loss would hide that the training has failed.
    logging_nan_inf_filter: bool = field(
        default=False, metadata={"help": "Leave NaN and infinite values out of the logged loss."}
    )
    train_sampling_strategy: str = field(
        default="group_by_length", metadata={"help": "random, sequential, group_by_length or batch_rebalance."}
    )
    remove_unused_columns: bool = field(
        default=False, metadata={"help": "Must stay false: the model has no text inputs."}
    )


@dataclass
class MatryoshkaOptions(PairOptions):
    """Which sizes of the vectors to train."""

    matryoshka_dims: list[int] | None = field(
        default=None,
        metadata={
            "help": "Sizes of the vectors to train, such as: 384 256 128 64. The loss is that of the first numbers of "
            "the vectors, summed over these sizes. Default: the whole vectors alone."
        },
    )
    matryoshka_weights: list[float] | None = field(
        default=None, metadata={"help": "Weight of each of these sizes. Default: 1 for each."}
    )


@dataclass
class DseOptions(MatryoshkaOptions):
    """What a student learns from pairs."""

    complete: ClassVar[str] = "DseTrainingArguments"

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
        metadata={"help": "Weight of a bi-encoder's similarities between the sentences of different pairs."},
    )
    head_learning_rate: float | None = field(
        default=None,
        metadata={"help": "Learning rate of the parameters that conversion adds. Default: `--learning_rate`."},
    )
    scale_learning_rate: float = field(
        default=1e-2, metadata={"help": "Learning rate of scale and bias of a cosine head."}
    )
    calibrate_similarity: bool = field(
        default=True, metadata={"help": "Fit scale and bias of a new cosine or dot head to the targets first."}
    )


@dataclass
class RankingOptions(MatryoshkaOptions):
    """What a student learns from rankings."""

    complete: ClassVar[str] = "RankingTrainingArguments"

    learning_rate: float = field(default=2e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Queries per device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Texts per batch of an evaluation."})
    max_length: int = field(default=256, metadata={"help": "Maximum number of tokens of a document."})
    metric_for_best_model: str | None = field(
        default="ndcg@10", metadata={"help": "Which metric of the evaluation chooses the best model."}
    )
    train_sampling_strategy: str = field(
        default="random",
        metadata={
            "help": "random, sequential or group_by_length. Grouped, a small data set has the same batches in each "
            "epoch, and so the same negatives."
        },
    )
    # Each process may have another number of forward passes, and nothing in a buffer changes.
    ddp_broadcast_buffers: bool | None = field(
        default=False, metadata={"help": "Whether processes share buffers in each forward pass."}
    )
    query_max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum number of tokens of a query, if that is not max_length. The student keeps it."},
    )
    num_candidates: int = field(default=8, metadata={"help": "Candidates per query and step, a positive first."})
    contrastive_weight: float = field(
        default=1.0, metadata={"help": "Weight of the labels: positives against all other documents of a batch."}
    )
    kl_weight: float | None = field(
        default=None,
        metadata={
            "help": "Weight of the teacher's distribution over the candidates. Default: 1 with teacher scores, else 0."
        },
    )
    margin_mse_weight: float = field(
        default=0.0, metadata={"help": "Weight of the teacher's margins between a positive and other candidates."}
    )
    similarity_weight: float = field(
        default=0.0, metadata={"help": "Weight of a bi-encoder's cosines between texts of different queries."}
    )
    pairs_weight: float = field(
        default=1.0, metadata={"help": "Weight of a pair of sentences that is mixed with the queries."}
    )
    distillation_alpha: float = field(
        default=0.5, metadata={"help": "For these pairs, weight of the teacher: 0 labels only, 1 teacher only."}
    )
    scale_learning_rate: float = field(
        default=2e-3, metadata={"help": "Learning rate of the head's scale, as a share of its first value."}
    )
    cached_gradients: int | None = field(
        default=None,
        metadata={"help": "Texts to embed with gradients at a time, so that a large batch needs little memory."},
    )
    eval_corpus_size: int = field(
        default=5000, metadata={"help": "Documents to rank in an evaluation during the training."}
    )
    chunk_size: int | None = field(
        default=None,
        metadata={
            "help": "Train many vectors a document, one for each chunk of at most this many tokens, pooled from one "
            "pass over the document; the best counts. Default: one vector a document."
        },
    )
    passage_weight: float | None = field(
        default=None,
        metadata={
            "help": "With `--chunk_size`, weight of the chunks with a query's `evidence` against the others of their "
            "document. Without evidence it is the chunk that the bi-encoder finds best. Default: 1 with the column "
            "`evidence`, else 0."
        },
    )
    anchor_weight: float = field(
        default=0.0,
        metadata={
            "help": "With `--chunk_size`, weight of the cosine distance of a chunk read with its document from the "
            "same chunk read alone by the bi-encoder."
        },
    )
    queries_per_document: int = field(
        default=1,
        metadata={
            "help": "Queries with the same relevant document that come into a batch together, so that their document "
            "is read once; a divisor of the batch size is best."
        },
    )
    freeze_layers: int | None = field(
        default=None,
        metadata={
            "help": "Do not train the embeddings and so many of the lowest layers: less time and memory. Default: "
            "train everything."
        },
    )


@dataclass
class GeneralOptions(PairOptions):
    """What a student learns from the layers of its source."""

    complete: ClassVar[str] = "GeneralTrainingArguments"

    learning_rate: float = field(default=1e-4, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Training texts per device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation texts per device and step."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Number of epochs."})
    hidden_weight: float = field(default=1.0, metadata={"help": "Weight of the hidden states of the layers."})
    embedding_weight: float = field(default=0.0, metadata={"help": "Weight of the output of the embeddings."})
    relation_weight: float = field(
        default=1.0, metadata={"help": "Weight of the relations of queries, keys and values in the last layer."}
    )
    sentence_weight: float = field(default=1.0, metadata={"help": "Weight of the cosine of the sentence embeddings."})
    relation_heads: int | None = field(
        default=None,
        metadata={"help": "Heads of the relations; a divisor of both hidden sizes. Default: the teacher's."},
    )
    layer_mapping: list[str] = field(
        default_factory=lambda: ["uniform"],
        metadata={"help": "uniform, last, or the teacher layer (from 1) of each student layer, as in: 2 4 6."},
    )
    progressive: bool = field(
        default=False,
        metadata={"help": "Train one layer after the other on its hidden states, then all layers on all losses."},
    )
    teacher_chunk_length: int | None = field(
        default=None,
        metadata={
            "help": "The teacher reads texts in chunks of this many tokens, and the student learns the mean of their "
            "embeddings. Needs hidden, embedding and relation weights of 0."
        },
    )


@dataclass
class AlignOptions(PairOptions):
    """What a student learns from the vectors of a larger bi-encoder."""

    complete: ClassVar[str] = "AlignTrainingArguments"

    learning_rate: float = field(default=1e-4, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=32, metadata={"help": "Training texts per device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation texts per device and step."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "Number of epochs."})
    metric_for_best_model: str | None = field(
        default="teacher_cosine", metadata={"help": "Which metric of the evaluation chooses the best model."}
    )
    projection_learning_rate: float | None = field(
        default=None, metadata={"help": "Learning rate of the linear layer. Default: `--learning_rate`."}
    )
