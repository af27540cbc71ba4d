# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: a student learns the layers of its teacher, an encoder with softmax attention, on plain text."""

import copy
import math
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed
from transformers.utils import logging

from .data import read_texts, token_lengths
from .encoding import check_max_length, pad, tokenize
from .modeling import DseModel
from .trainer import ReproducibleTrainer
from .training_args import PairTrainingArguments


logger = logging.get_logger(__name__)

# Relations of longer texts are computed in blocks of this many rows.
RELATION_BLOCK = 512
PROJECTIONS_FILE = "distillation.safetensors"
PARTS = ("hidden", "embedding", "relation", "sentence")


@dataclass
class TextArguments:
    """Which texts to learn from."""

    train_file: str = field(
        metadata={"help": "Texts without labels: .txt, one a line, or a csv, json, jsonl or parquet file."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Texts to evaluate on, in the same formats."})
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Keep only the first training texts."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Keep only the first validation texts."})
    max_seq_length: int = field(default=128, metadata={"help": "Maximum tokens of a text."})

    def __post_init__(self) -> None:
        for name in ("max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: it has to be at least 1; leave it out to keep every text.")


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
        _check_weights({name: getattr(self, f"{name}_weight") for name in PARTS})
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


def _check_weights(weights: Mapping[str, float]) -> None:
    for name, weight in weights.items():
        if not 0 <= weight < math.inf:
            raise ValueError(f"`{name}_weight` must be a number from 0 on, got {weight}.")
    if not any(weights.values()):
        names = ", ".join(f"`{name}_weight`" for name in weights)
        raise ValueError(f"All weights are 0, so there is nothing to learn: set one of {names} above 0.")


def map_layers(mapping: Sequence[str], num_student_layers: int, num_teacher_layers: int) -> list[int]:
    """
    Chooses the teacher layer that each student layer learns from. The embeddings, layer 0, always learn from the
    embeddings.

    Args:
        mapping (`Sequence[str]`):
            `["uniform"]`: student layer m of M learns from layer m * N / M, rounded down, of N: g(m) of
            [TinyBERT](https://huggingface.co/papers/1909.10351), and the layer that [`convert_encoder`] makes it of.
            `["last"]`: from the last M layers. Else one number for each student layer.
        num_student_layers (`int`):
            Layers M of the student.
        num_teacher_layers (`int`):
            Layers N of the teacher.

    Returns:
        `list[int]`: for each student layer a teacher layer, counted from 1.

    Raises:
        `ValueError`: for another word, or numbers that do not fit the layers.

    Example:

    ```python
    >>> from hf_dse.general import map_layers

    >>> map_layers(["uniform"], 3, 12)
    [4, 8, 12]
    ```
    """
    choices = '"uniform", "last", or the teacher layer of each student layer, such as 2 4 6'
    words = [str(word) for word in mapping]
    if words == ["uniform"]:
        numbers = range(1, num_student_layers + 1)
        return [max(1, number * num_teacher_layers // num_student_layers) for number in numbers]
    if words == ["last"]:
        if num_student_layers > num_teacher_layers:
            raise ValueError(
                f'`layer_mapping` "last" needs a teacher of at least {num_student_layers} layers, those of the '
                f'student, but it has {num_teacher_layers}: choose "uniform".'
            )
        return list(range(num_teacher_layers - num_student_layers + 1, num_teacher_layers + 1))
    if not words or not all(word.isdecimal() for word in words):
        raise ValueError(f"`layer_mapping` must be {choices}; got {' '.join(words) or 'nothing'}.")
    layers = [int(word) for word in words]
    fits = len(layers) == num_student_layers and all(1 <= layer <= num_teacher_layers for layer in layers)
    if not fits or layers != sorted(layers):
        raise ValueError(
            f"`layer_mapping` must be {choices}: {num_student_layers} numbers from 1 to {num_teacher_layers}, none "
            f"below the one before; got {' '.join(words)}."
        )
    return layers


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Squared error of hidden states ([TinyBERT](https://huggingface.co/papers/1909.10351), equations 8 and 9, with the
    projection already applied): the mean over features, then over the real tokens of a text, then over texts. A long
    text counts as much as a short one, so the loss does not depend on how a batch is cut into smaller ones.

    Args:
        student (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            Hidden states of the student, projected to the size of the teacher's.
        teacher (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            Hidden states of the teacher.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.

    Returns:
        `torch.Tensor`: a scalar.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse.general import hidden_loss

    >>> hidden_loss(torch.ones(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[1, 0]]))
    tensor(1.)
    ```
    """
    return _mean_over_texts((_full(student) - _full(teacher)).square().mean(dim=-1), mask)


def relation_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor, num_heads: int) -> torch.Tensor:
    """
    Divergence of token relations ([MiniLM](https://huggingface.co/papers/2002.10957),
    [MiniLMv2](https://huggingface.co/papers/2012.15828)). Queries (or keys, or values) X are split into relation
    heads, whatever the attention heads were; the relations of a head are softmax(X X^T / sqrt(d)) with the d features
    of that head, so student and teacher may differ in width. The loss is KL(teacher || student), averaged over heads
    and the real tokens of a text, then over texts.

    Above 512 tokens the rows are handled in blocks and computed again in the backward pass: memory grows with 512 * n
    instead of n * n, and the result is the same.

    Args:
        student (`torch.Tensor` of shape `(batch_size, seq_len, student_size)`):
            Queries, keys or values of all heads of the student.
        teacher (`torch.Tensor` of shape `(batch_size, seq_len, teacher_size)`):
            The same of the teacher.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.
        num_heads (`int`):
            Relation heads; they have to divide both sizes.

    Returns:
        `torch.Tensor`: a scalar.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse.general import relation_loss

    >>> values = torch.randn(1, 3, 8)
    >>> relation_loss(values, values, torch.ones(1, 3), num_heads=2)
    tensor(0.)
    ```
    """
    num_tokens, is_padding = student.shape[1], ~mask.bool()
    student, teacher = (states.unflatten(-1, (num_heads, -1)).transpose(1, 2) for states in (student, teacher))
    blocks = []
    for start in range(0, num_tokens, RELATION_BLOCK):
        rows = slice(start, start + RELATION_BLOCK)
        inputs = (student[:, :, rows], student, teacher[:, :, rows], teacher, is_padding)
        if num_tokens <= RELATION_BLOCK:
            blocks.append(_row_divergence(*inputs))
        else:
            blocks.append(recompute(_row_divergence, *inputs, use_reentrant=False, preserve_rng_state=False))
    return _mean_over_texts(torch.cat(blocks, dim=1), mask)


def _row_divergence(
    student_rows: torch.Tensor,
    student: torch.Tensor,
    teacher_rows: torch.Tensor,
    teacher: torch.Tensor,
    is_padding: torch.Tensor,
) -> torch.Tensor:
    """KL divergence of some rows of the relations, averaged over heads, `(batch_size, num_rows)`."""
    with torch.autocast(student.device.type, enabled=False):
        logs = []
        for rows, states in ((student_rows, student), (teacher_rows, teacher)):
            logits = torch.matmul(_full(rows), _full(states).mT) * states.shape[-1] ** -0.5  # [B, H, R, N]
            # Not infinity: the difference of two would be NaN.
            logits = logits.masked_fill(is_padding[:, None, None], torch.finfo(logits.dtype).min)
            logs.append(logits.log_softmax(dim=-1))
        of_student, of_teacher = logs
        divergence = nn.functional.kl_div(of_student, of_teacher, reduction="none", log_target=True)
    return divergence.sum(dim=-1).mean(dim=1)


def chunk_mean(embeddings: torch.Tensor, weights: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    """
    Sentence embeddings of texts that were read in chunks: the mean of the chunks' embeddings, scaled to length 1 and
    weighted by their tokens.

    Args:
        embeddings (`torch.Tensor` of shape `(num_chunks, embedding_size)`):
            Embeddings of the chunks.
        weights (`torch.Tensor` of shape `(num_chunks,)`):
            Number of tokens of each chunk.
        texts (`torch.Tensor` of shape `(num_chunks,)`):
            The text of each chunk, counted from 0; every text has one.

    Returns:
        `torch.Tensor` of shape `(batch_size, embedding_size)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse.general import chunk_mean

    >>> chunks = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> chunk_mean(chunks, torch.tensor([3, 1, 5]), torch.tensor([0, 0, 1]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]])
    ```
    """
    units, weights = nn.functional.normalize(_full(embeddings), dim=-1), weights.to(torch.float32)
    size = int(texts.max()) + 1
    sums = units.new_zeros(size, units.shape[-1]).index_add_(0, texts, units * weights[:, None])
    return sums / weights.new_zeros(size).index_add_(0, texts, weights)[:, None]


def _full(states: torch.Tensor) -> torch.Tensor:
    """At least float32: half precision would drown the small differences that the losses are about."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def _mean_over_texts(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """Values of tokens `(batch_size, seq_len)` to their mean over real tokens, and of this over texts."""
    is_token = mask.bool()
    return (values.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)).mean()


class LayerwiseDistillation(nn.Module):
    """
    A student together with what it learns from. The loss is the weighted sum of up to four parts:

    | Part             | Between                                | What                                                |
    |------------------|----------------------------------------|-----------------------------------------------------|
    | `hidden_loss`    | each student layer, its teacher layer  | [`hidden_loss`], the sum divided by the number of   |
    |                  |                                        | layers: its scale does not depend on the depth      |
    | `embedding_loss` | the outputs of the embeddings          | [`hidden_loss`]                                     |
    | `relation_loss`  | the last student layer, its teacher    | [`relation_loss`] of queries, of keys and of        |
    |                  | layer                                  | values, added                                       |
    | `sentence_loss`  | the sentence embeddings                | 1 - cosine                                          |

    Where the widths differ, linear layers without bias project what the student has to the teacher's size, one for
    each layer, one for the embeddings and one for the sentence embedding. Equal widths have none: such a student
    starts from the teacher's own weights, so its features already are the teacher's. For the same reason a student
    whose own projection (`projection_dim`) fits the teacher's sentence embedding learns that embedding as its
    projection shows it at the start, a copy that stays as it is.

    Attention maps cannot be compared, n x k with n x n; relations are taken before the length projection, where the
    student has n rows as well.

    Args:
        student ([`DseModel`]):
            What is trained.
        teacher ([`DseModel`]):
            Usually `convert_encoder(source, layer_types="full_attention")`. It is frozen, in evaluation mode, and
            follows the inputs to their device; it is no submodule, so it is neither trained nor saved.
        layer_mapping (`Sequence[str]`, *optional*, defaults to `("uniform",)`):
            See [`map_layers`].
        hidden_weight, embedding_weight, relation_weight, sentence_weight (`float`, *optional*):
            Weights of the four parts, 1, 0, 1 and 1 by default. Parts of weight 0 are not computed.
        relation_heads (`int`, *optional*):
            Relation heads. Defaults to the attention heads of the teacher.

    Raises:
        `ValueError`: if the weights are negative or all 0, if relations alone are to teach a learned length
            projection, if layers or relation heads do not fit, or the vocabularies differ.

    Example:

    ```python
    >>> from hf_dse import convert_encoder
    >>> from hf_dse.general import LayerwiseDistillation

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> model = LayerwiseDistillation(  # doctest: +SKIP
    ...     student=convert_encoder(source, num_hidden_layers=3),
    ...     teacher=convert_encoder(source, layer_types="full_attention"),
    ... )
    ```
    """

    student: DseModel
    teacher: DseModel

    def __init__(
        self,
        student: DseModel,
        teacher: DseModel,
        *,
        layer_mapping: Sequence[str] = ("uniform",),
        hidden_weight: float = 1.0,
        embedding_weight: float = 0.0,
        relation_weight: float = 1.0,
        sentence_weight: float = 1.0,
        relation_heads: int | None = None,
    ):
        super().__init__()
        weights = dict(zip(PARTS, (hidden_weight, embedding_weight, relation_weight, sentence_weight), strict=True))
        _check_weights(weights)
        ours, theirs = student.config, teacher.config
        if ours.vocab_size != theirs.vocab_size:
            raise ValueError(
                f"The student has a vocabulary of {ours.vocab_size} tokens and the teacher one of "
                f"{theirs.vocab_size}: both have to read the same tokens, so take a teacher of the same tokenizer."
            )
        self.weights = {f"{name}_loss": weight for name, weight in weights.items() if weight > 0}
        self.layer_mapping = map_layers(layer_mapping, ours.num_hidden_layers, theirs.num_hidden_layers)
        self.relation_heads = theirs.num_attention_heads if relation_heads is None else relation_heads
        if relation_weight > 0:
            self._check_relations(student, theirs.hidden_size)

        self.student = student
        # Set past nn.Module, which would make it a submodule.
        object.__setattr__(self, "teacher", teacher.eval().requires_grad_(False))
        self.projections = nn.ModuleDict()
        if ours.hidden_size != theirs.hidden_size:
            names = [f"hidden_{layer}" for layer in range(1, ours.num_hidden_layers + 1) if hidden_weight > 0]
            names += ["embedding"] if embedding_weight > 0 else []
            for name in names:
                self.projections[name] = nn.Linear(ours.hidden_size, theirs.hidden_size, bias=False)
        # What the student begins with is also how its teacher is read.
        is_shared = student.projection is not None and student.projection.in_features == theirs.projection_dim
        self.target_projection = copy.deepcopy(student.projection).requires_grad_(False) if is_shared else None
        if ours.projection_dim != theirs.projection_dim and sentence_weight > 0 and not is_shared:
            self.projections["sentence"] = nn.Linear(ours.projection_dim, theirs.projection_dim, bias=False)
        self.trained_layer: int | None = None
        self.trainable = {name for name, parameter in self.named_parameters() if parameter.requires_grad}

    def _check_relations(self, student: DseModel, teacher_size: int) -> None:
        size, heads = student.config.hidden_size, self.relation_heads
        if heads < 1 or size % heads or teacher_size % heads:
            raise ValueError(
                f"`relation_heads` must divide the hidden sizes of student ({size}) and teacher ({teacher_size}), got "
                f"{heads}: choose a divisor of {math.gcd(size, teacher_size)}."
            )
        # Queries, keys and values are compared before E and F, so E and F of their layer get no gradient from it.
        is_learned = any("linformer." in name for name, _ in student.named_parameters())
        if is_learned and not {"hidden_loss", "sentence_loss"} & set(self.weights):
            raise ValueError(
                "Relations alone do not train the learned length projection (E and F) of the student: set "
                "`hidden_weight` or `sentence_weight` above 0, or convert with a `linformer_projection` that has no "
                "parameters (mean, max or strided)."
            )

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """What the Trainer calls for its option of that name."""
        self.student.activation_checkpointing_enable(**kwargs)

    def train_only(self, layer: int | None) -> None:
        """
        Restricts the training to one layer and its hidden states.

        Args:
            layer (`int`, *optional*):
                The student layer, counted from 1; with it goes its length projection, and with the first layer what
                all layers share, the embeddings and a `"layerwise"` E. `None` trains everything again.
        """
        self.trained_layer = layer
        chosen = [""] if layer is None else [f"student.encoder.layer.{layer - 1}.", f"projections.hidden_{layer}."]
        if layer == 1:
            chosen += ["student.embeddings.", "student.encoder.linformer."]
        for name, parameter in self.named_parameters():
            parameter.requires_grad_(name in self.trainable and name.startswith(tuple(chosen)))

    def forward(
        self,
        input_ids: torch.Tensor,
        attention_mask: torch.Tensor,
        chunk_input_ids: torch.Tensor | None = None,
        chunk_attention_mask: torch.Tensor | None = None,
        chunk_texts: torch.Tensor | None = None,
    ) -> dict[str, torch.Tensor]:
        """
        Args:
            input_ids (`torch.Tensor` of shape `(batch_size, seq_len)`):
                Token ids.
            attention_mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
                1 for tokens, 0 for padding.
            chunk_input_ids (`torch.Tensor` of shape `(num_chunks, chunk_len)`, *optional*):
                The same texts in chunks, for a teacher that reads no longer ones. Then only the sentence loss can
                have a weight.
            chunk_attention_mask (`torch.Tensor` of shape `(num_chunks, chunk_len)`, *optional*):
                Their mask.
            chunk_texts (`torch.Tensor` of shape `(num_chunks,)`, *optional*):
                The text, from 0 to `batch_size - 1`, of each chunk.

        Returns:
            `dict[str, torch.Tensor]`: the scalars `loss` and, unweighted, those of `hidden_loss`, `embedding_loss`,
            `relation_loss` and `sentence_loss` whose weight is above 0. While one layer is trained alone, `loss` is
            its hidden loss; in evaluation mode it is always everything.
        """
        if self.teacher.device != input_ids.device:
            self.teacher.to(input_ids.device)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        ours: Sequence[torch.Tensor] = ()
        theirs: Sequence[torch.Tensor] = ()
        if chunk_input_ids is not None and chunk_attention_mask is not None and chunk_texts is not None:
            if set(self.weights) != {"sentence_loss"}:
                raise ValueError(
                    f"Chunks have no layers to learn from: of {', '.join(self.weights)} keep sentence_loss."
                )
            with torch.no_grad():
                chunks = self.teacher(chunk_input_ids, attention_mask=chunk_attention_mask).pooler_output
                chunks = self._project_target(chunks)
                target_embeddings = chunk_mean(chunks, chunk_attention_mask.sum(dim=-1), chunk_texts)
            output = self.student(**inputs)
        else:
            with torch.no_grad():
                target = self.teacher(**inputs, output_hidden_states=True)
                target_embeddings = self._project_target(target.pooler_output)
            output = self.student(**inputs, output_hidden_states=True)
            # The output of the embeddings comes first, then that of each layer.
            ours, theirs = output.hidden_states, target.hidden_states

        only = self.trained_layer if self.training else None
        losses = {}
        if "hidden_loss" in self.weights:
            of_layers = [
                hidden_loss(self._project(f"hidden_{layer}", ours[layer]), theirs[mapped], attention_mask)
                for layer, mapped in enumerate(self.layer_mapping, start=1)
                if only in (None, layer)
            ]
            losses["hidden_loss"] = torch.stack(of_layers).mean()
        if "embedding_loss" in self.weights and only is None:
            losses["embedding_loss"] = hidden_loss(self._project("embedding", ours[0]), theirs[0], attention_mask)
        if "relation_loss" in self.weights and only is None:
            losses["relation_loss"] = self._relations(ours, theirs, attention_mask)
        if "sentence_loss" in self.weights and only is None:
            embeddings = _full(self._project("sentence", output.pooler_output))
            cosine = nn.functional.cosine_similarity(embeddings, _full(target_embeddings))
            losses["sentence_loss"] = 1 - cosine.mean()
        loss = torch.stack([self.weights[name] * value for name, value in losses.items()]).sum()
        return {"loss": loss, **losses}

    def _project(self, name: str, states: torch.Tensor) -> torch.Tensor:
        return self.projections[name](states) if name in self.projections else states

    def _project_target(self, embeddings: torch.Tensor) -> torch.Tensor:
        return embeddings if self.target_projection is None else self.target_projection(embeddings)

    def _relations(
        self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        mapped = self.layer_mapping[-1]
        student, teacher = self.student.encoder.layer[-1], self.teacher.encoder.layer[mapped - 1]
        losses = []
        for name in ("query", "key", "value"):
            # Computed again from the inputs of the layers: inside a linear layer keys and values have k rows.
            of_student = getattr(student.attention.self, name)(ours[-2])
            of_teacher = getattr(teacher.attention.self, name)(theirs[mapped - 1])
            losses.append(relation_loss(of_student, of_teacher, mask, self.relation_heads))
        return torch.stack(losses).sum()


class ProgressiveCallback(TrainerCallback):
    """
    Progressive knowledge transfer ([MobileBERT](https://huggingface.co/papers/2004.02984)) for a student of M layers:
    the training is divided into M + 1 equal parts. In part m layer m is trained, on its hidden states alone, on top of
    layers that stay as they are; in the last part everything is, on all losses. The learning rate follows its one
    schedule over all parts.

    The part follows from the step, so a resumed run goes on in the right one.
    """

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        num_parts = len(model.layer_mapping) + 1
        if state.max_steps < num_parts:
            raise ValueError(
                f"`progressive` divides the training into {num_parts} parts, one for each student layer and one for "
                f"all, but it has only {state.max_steps} steps: train longer."
            )

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        num_layers = len(model.layer_mapping)
        part = 1 + state.global_step * (num_layers + 1) // state.max_steps
        layer = part if part <= num_layers else None
        if layer != model.trained_layer:
            model.train_only(layer)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        # Another callback may have ended the training in any part.
        model.train_only(None)


class TextCollator:
    """
    Tokenizes texts. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a text; `n_truncated` counts the texts that were cut.
        chunk_length (`int`, *optional*):
            Tokens of a chunk, special tokens included. A text has the whole number of chunks next to what
            `max_length` leaves of it.

    A call takes rows with a `text` and returns `input_ids` and `attention_mask` of shape `(batch_size, seq_len)`; with
    a chunk length also `chunk_input_ids` and `chunk_attention_mask` of shape `(num_chunks, chunk_len)` and
    `chunk_texts` of shape `(num_chunks,)`, the row of each chunk.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int, chunk_length: int | None = None):
        self.processing_class = processing_class
        self.max_length = max_length
        self.chunk_length = chunk_length
        self.n_truncated = 0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        features, cut = tokenize(self.processing_class, [row["text"] for row in rows], self.max_length)
        if cut and not self.n_truncated:
            logger.warning(
                f"{cut} of {len(rows)} texts of this batch are longer than {self.max_length} tokens and were cut: "
                "raise `max_seq_length` if their ends matter. Later ones are only counted."
            )
        self.n_truncated += cut
        batch = pad(self.processing_class, features, torch.device("cpu"))
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        return inputs | (self._chunks([row["text"] for row in rows]) if self.chunk_length is not None else {})

    def _chunks(self, texts: list[str]) -> dict[str, torch.Tensor]:
        encoded = self.processing_class(
            texts, truncation=True, max_length=self.chunk_length, return_overflowing_tokens=True, verbose=False
        )
        of_text = encoded.pop("overflow_to_sample_mapping")
        num_special = self.processing_class.num_special_tokens_to_add()
        num_chunks = max(1, round((self.max_length - num_special) / ((self.chunk_length or 0) - num_special)))
        first = {text: chunk for chunk, text in reversed(list(enumerate(of_text)))}
        kept = [chunk for chunk, text in enumerate(of_text) if chunk - first[text] < num_chunks]
        features = [{name: values[chunk] for name, values in encoded.items()} for chunk in kept]
        batch = pad(self.processing_class, features, torch.device("cpu"))
        return {
            "chunk_input_ids": batch["input_ids"],
            "chunk_attention_mask": batch["attention_mask"],
            "chunk_texts": torch.tensor([of_text[chunk] for chunk in kept]),
        }


class GeneralTrainer(ReproducibleTrainer):
    """
    [`~transformers.Trainer`] for [`LayerwiseDistillation`]. It logs the parts of the loss beside `loss`, and evaluates
    to `eval_loss` and the same parts. A checkpoint is a model folder of the student; projections of the distillation
    lie beside it in `distillation.safetensors`.

    Args:
        model ([`LayerwiseDistillation`]):
            Student and teacher.
        args ([`GeneralTrainingArguments`]):
            Training arguments. The weights of the losses and the layers are those of `model`.
        train_dataset (`datasets.Dataset`, *optional*):
            Texts, in the column `text`.
        eval_dataset (`datasets.Dataset`, *optional*):
            The same for evaluation.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of student and teacher.
        max_seq_length (`int`, *optional*, defaults to 128):
            Maximum tokens of a text.
        kwargs:
            Anything else that [`~transformers.Trainer`] takes.

    Raises:
        `ValueError`: without a tokenizer, or for several devices in one process.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse.general import GeneralTrainer, GeneralTrainingArguments, LayerwiseDistillation

    >>> trainer = GeneralTrainer(  # doctest: +SKIP
    ...     model=LayerwiseDistillation(student, teacher),
    ...     args=GeneralTrainingArguments("outputs", eval_strategy="no"),
    ...     train_dataset=Dataset.from_dict({"text": ["A cat sleeps.", "Rain again."]}),
    ...     processing_class=tokenizer,
    ... )
    >>> trainer.train()  # doctest: +SKIP
    ```
    """

    # The loss is the mean over a batch.
    loss_is_scaled_for_ga = False
    args: GeneralTrainingArguments
    model: LayerwiseDistillation

    def __init__(
        self,
        model: LayerwiseDistillation,
        args: GeneralTrainingArguments,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        max_seq_length: int = 128,
        **kwargs: Any,
    ):
        if processing_class is None:
            raise ValueError("`GeneralTrainer` needs `processing_class`, the tokenizer of student and teacher.")
        if args.n_gpu > 1:
            raise ValueError(
                f"One process cannot use {args.n_gpu} devices here, for there is one teacher: start a process for "
                "each with `accelerate launch` or torchrun."
            )
        if args.train_sampling_strategy in ("group_by_length", "batch_rebalance"):
            train_dataset, eval_dataset = (
                None if part is None else _with_lengths(part, processing_class, max_seq_length)
                for part in (train_dataset, eval_dataset)
            )
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=TextCollator(processing_class, max_seq_length, args.teacher_chunk_length),
            # Without metrics the Trainer would keep nothing but the loss.
            compute_metrics=lambda result: dict(zip(model.weights, np.mean(result.predictions, axis=0), strict=True)),
            **kwargs,
        )
        # For each part of the loss its sum over the steps since the last line of the log, and their number.
        self._logged_parts: dict[str, torch.Tensor] = {}
        if args.progressive:
            self.add_callback(ProgressiveCallback)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        losses = model(**inputs)
        for name in losses.keys() & self.model.weights.keys():
            part = torch.stack([losses[name].detach(), losses[name].new_ones(())])
            step = part / self.current_gradient_accumulation_steps
            self._logged_parts[name] = self._logged_parts.get(name, 0.0) + step
        return (losses["loss"], losses) if return_outputs else losses["loss"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            for name in sorted(self._logged_parts):
                total, steps = self.accelerator.reduce(self._logged_parts.pop(name), reduction="mean").tolist()
                logs[name] = total / steps
        super().log(logs, start_time)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            losses = model(**inputs)
        if prediction_loss_only:
            return losses["loss"], None, None
        # A row for each text, so that the mean over rows is that over texts, however they were batched.
        parts = torch.stack([losses[name] for name in self.model.weights]).repeat(len(inputs["input_ids"]), 1)
        return losses["loss"], parts, parts

    @contextmanager
    def _as_student(self) -> Iterator[LayerwiseDistillation]:
        """Lets the Trainer write and read checkpoints of the student alone."""
        distillation, self.model = self.model, self.model.student
        try:
            yield distillation
        finally:
            self.model = distillation

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        with self._as_student() as distillation:
            super()._save(output_dir)
        if distillation.projections and self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            save_file(distillation.projections.state_dict(), folder / PROJECTIONS_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with self._as_student():
            super()._load_from_checkpoint(resume_from_checkpoint)
        self._load_projections(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        with self._as_student():
            super()._load_best_model()
        self._load_projections(str(self.state.best_model_checkpoint))

    def _load_projections(self, folder: str) -> None:
        if self.model.projections:
            self.model.projections.load_state_dict(load_file(Path(folder) / PROJECTIONS_FILE))


def _with_lengths(dataset: Dataset, processing_class: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    if "length" in dataset.column_names:
        return dataset
    sizes = token_lengths(processing_class, dataset["text"][:])
    return dataset.add_column("length", [min(size, max_length) for size in sizes])


def load_texts(path: str, text_column: str = "text", max_samples: int | None = None) -> Dataset:
    """
    Reads the texts of a file and leaves out the empty ones.

    Args:
        path (`str`):
            A .txt file with a text in each line, or a csv, json, jsonl or parquet file.
        text_column (`str`, *optional*, defaults to `"text"`):
            Column of the texts in a table.
        max_samples (`int`, *optional*):
            Keep only so many, the first.

    Returns:
        `Dataset`: the column `text`.

    Raises:
        `FileNotFoundError`: if there is no such file.
        `ValueError`: if there is no such column, no text, or one that is not a string.
    """
    texts = read_texts(path, text_column)[text_column]
    kept = [text for text in texts if text.strip()]
    if len(kept) < len(texts):
        logger.warning(f"{path}: left out {len(texts) - len(kept)} of {len(texts)} texts, which are empty.")
    if not kept:
        raise ValueError(f"{path} holds no text: give a file with one text a line, or a row.")
    return Dataset.from_dict({"text": kept[:max_samples]})


def train_general(
    teacher: DseModel,
    student: DseModel,
    tokenizer: PreTrainedTokenizerBase,
    text_args: TextArguments,
    training_args: GeneralTrainingArguments,
    checkpoint: str | None = None,
) -> dict[str, float]:
    """
    Trains a student on the layers, relations and sentence embeddings of its teacher, and prints which teacher layer
    each student layer learns from. With a validation file the best student is kept, else the last.

    Args:
        teacher ([`DseModel`]):
            The source encoder with softmax attention.
        student ([`DseModel`]):
            Its conversion; afterwards it holds the trained weights, in evaluation mode.
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer of both.
        text_args ([`TextArguments`]):
            The texts.
        training_args ([`GeneralTrainingArguments`]):
            Losses, layers, and everything else.
        checkpoint (`str`, *optional*):
            Folder of a checkpoint to resume from.

    Returns:
        `dict[str, float]`: the metrics of the training and, with a validation file, `eval_loss` and the `eval_*` of
        its parts.

    Raises:
        `ValueError`: for texts, limits, weights or layers that do not fit, or a loss that is not finite.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder
    >>> from hf_dse.general import GeneralTrainingArguments, TextArguments, train_general

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> student = convert_encoder(source, num_hidden_layers=3)  # doctest: +SKIP
    >>> train_general(  # doctest: +SKIP
    ...     teacher=convert_encoder(source, layer_types="full_attention"),
    ...     student=student,
    ...     tokenizer=AutoTokenizer.from_pretrained(source),
    ...     text_args=TextArguments("sentences.txt"),
    ...     training_args=GeneralTrainingArguments("outputs"),
    ... )
    ```
    """
    check_max_length(training_args.teacher_chunk_length or text_args.max_seq_length, teacher, tokenizer)
    check_max_length(text_args.max_seq_length, student, tokenizer)
    train = load_texts(text_args.train_file, text_args.text_column, text_args.max_train_samples)
    validation = None
    if text_args.validation_file is not None:
        validation = load_texts(text_args.validation_file, text_args.text_column, text_args.max_eval_samples)
    elif training_args.eval_strategy != "no":
        logger.warning("There is no `validation_file`: nothing is evaluated, and the last student is kept.")
        training_args.eval_strategy, training_args.load_best_model_at_end = "no", False

    # Projections start from random numbers.
    set_seed(training_args.seed)
    model = LayerwiseDistillation(
        student,
        teacher,
        layer_mapping=training_args.layer_mapping,
        hidden_weight=training_args.hidden_weight,
        embedding_weight=training_args.embedding_weight,
        relation_weight=training_args.relation_weight,
        sentence_weight=training_args.sentence_weight,
        relation_heads=training_args.relation_heads,
    )
    if training_args.process_index == 0:
        pairs = ", ".join(f"{layer} from {mapped}" for layer, mapped in enumerate(model.layer_mapping, start=1))
        print(f"Student layers learn from teacher layers: {pairs}")
    trainer = GeneralTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
        max_seq_length=text_args.max_seq_length,
    )
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    trainer.save_state()
    if validation is not None:
        metrics.update(trainer.evaluate())
    student.eval()
    return metrics
