# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training arguments, with defaults that suit sentence pairs."""

import math
from collections.abc import Mapping
from dataclasses import dataclass, field

from transformers import TrainingArguments


@dataclass
class PairTrainingArguments(TrainingArguments):
    """[`~transformers.TrainingArguments`] with defaults that suit fine-tuning an encoder on sentence pairs."""

    learning_rate: float = field(default=3e-5, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=16, metadata={"help": "Training pairs of a device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation pairs of a device and step."})
    max_length: int = field(
        default=128, metadata={"help": "Maximum tokens of a text (student) or of a pair (cross-encoder)."}
    )
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
        if self.max_length < 4:
            raise ValueError(f"`max_length` must be at least 4, got {self.max_length}.")
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
            Weight of a CoSENT ranking loss that is added in regressions, see [`~hf_dse.training.losses.ranking_loss`].
        ranking_scale (`float`, *optional*, defaults to 4.0):
            Scale of the ranking loss: 20 for cosines from 0 to 1 is 4 for labels from 0 to 5.
        similarity_weight (`float`, *optional*, defaults to 0.0):
            Weight of the [`~hf_dse.training.losses.similarity_loss`] that is added: the student keeps the similarities
            that a bi-encoder, usually its source, finds between the sentences of different pairs.
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


PARTS = ("hidden", "embedding", "relation", "sentence")


@dataclass
class GeneralTrainingArguments(PairTrainingArguments):
    """
    [`~transformers.TrainingArguments`] for [`GeneralTrainer`].

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
            Heads into which queries, keys and values are split anew. Defaults to the teacher's.
        layer_mapping (`list[str]`, *optional*, defaults to `["uniform"]`):
            Which teacher layer each student layer learns from, see [`map_layers`].
        progressive (`bool`, *optional*, defaults to `False`):
            Whether the layers are trained one after the other before all are, see [`ProgressiveCallback`].
        teacher_chunk_length (`int`, *optional*):
            Tokens of the chunks in which the teacher reads a text, for students that read more than their teacher
            can: the sentence embedding to learn is then the [`chunk_mean`]. Layers of chunks are not those of a
            text, so the other weights have to be 0.
    """

    learning_rate: float = field(default=1e-4, metadata={"help": "The initial learning rate."})
    per_device_train_batch_size: int = field(default=64, metadata={"help": "Training texts of a device and step."})
    per_device_eval_batch_size: int = field(default=64, metadata={"help": "Evaluation texts of a device and step."})
    num_train_epochs: float = field(default=1.0, metadata={"help": "How often every text is seen."})
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
        metadata={"help": "Train layer after layer on its hidden states, in the end all on everything."},
    )
    teacher_chunk_length: int | None = field(
        default=None,
        metadata={
            "help": "The teacher reads texts in chunks of so many tokens, and the student learns the mean of their "
            "embeddings. Needs hidden, embedding and relation weights of 0."
        },
    )

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
                    "`teacher_chunk_length`: a teacher that reads chunks has a sentence embedding to learn from, but "
                    "no layers: set "
                    + " and ".join(f"`{name}_weight`" for name, weight in layers.items() if weight)
                    + " to 0."
                )


def check_weights(weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"`{name}_weight` must be a number from 0 on, got {weight}.")
    if not any(weights.values()):
        names = ", ".join(f"`{name}_weight`" for name in weights)
        raise ValueError(f"All weights are 0, so there is nothing to learn: set one of {names} above 0.")
