# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Layerwise distillation: a student and its teacher, an encoder with softmax attention."""

import copy
import math
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn

from hf_dse.modeling import DseModel
from hf_dse.training.arguments import PARTS, check_weights
from hf_dse.training.layerwise_losses import chunk_mean, hidden_loss, relation_loss, to_full_precision


def map_layers(mapping: Sequence[str], num_student_layers: int, num_teacher_layers: int) -> list[int]:
    """
    Maps each student layer to the teacher layer that it learns from. The embeddings, layer 0, always learn from the
    embeddings.

    Args:
        mapping (`Sequence[str]`):
            `["uniform"]`: student layer m of M learns from layer m * N / M, rounded down, of N: g(m) of
            [TinyBERT](https://huggingface.co/papers/1909.10351), and the layer that [`convert_encoder`] copies.
            `["last"]`: from the last M layers. Otherwise one number per student layer.
        num_student_layers (`int`):
            Layers M of the student.
        num_teacher_layers (`int`):
            Layers N of the teacher.

    Returns:
        `list[int]`: the teacher layer of each student layer, counted from 1.

    Raises:
        `ValueError`: for another word, or numbers that are no layers of the teacher.

    Example:

    ```python
    >>> from hf_dse import map_layers

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
                f'`layer_mapping` "last" needs a teacher with at least {num_student_layers} layers, as many as the '
                f'student, but it has {num_teacher_layers}: choose "uniform".'
            )
        return list(range(num_teacher_layers - num_student_layers + 1, num_teacher_layers + 1))
    if not words or not all(word.isdecimal() for word in words):
        raise ValueError(f"`layer_mapping` must be {choices}; got {' '.join(words) or 'nothing'}.")
    layers = [int(word) for word in words]
    fits = len(layers) == num_student_layers and all(1 <= layer <= num_teacher_layers for layer in layers)
    if not fits or layers != sorted(layers):
        raise ValueError(
            f"`layer_mapping` must be {choices}: {num_student_layers} numbers from 1 to {num_teacher_layers} in "
            f"ascending order; got {' '.join(words)}."
        )
    return layers


class LayerwiseDistillation(nn.Module):
    """
    A student and its teacher. The loss is the weighted sum of up to four parts:

    | Part             | Between                                | What                                                |
    |------------------|----------------------------------------|-----------------------------------------------------|
    | `hidden_loss`    | each student layer, its teacher layer  | [`hidden_loss`], the sum divided by the number of   |
    |                  |                                        | layers: its scale does not depend on the depth      |
    | `embedding_loss` | the outputs of the embeddings          | [`hidden_loss`]                                     |
    | `relation_loss`  | the last student layer, its teacher    | [`relation_loss`] of queries, of keys and of        |
    |                  | layer                                  | values, added                                       |
    | `sentence_loss`  | the sentence embeddings                | 1 - cosine                                          |

    If the widths differ, linear layers without bias project the states of the student to the size of the teacher, one
    for each layer, one for the embeddings and one for the sentence embedding. For equal widths there are none: the
    student starts from the weights of the teacher, so their features correspond. For the same reason, if the
    projection of the student (`projection_dim`) accepts the sentence embedding of the teacher, the target is that
    embedding after a frozen copy of the initial projection.

    Attention maps of n x k and n x n cannot be compared; relations are computed before the length projection, where
    the student has n rows too.

    Args:
        student ([`DseModel`]):
            The model to train.
        teacher ([`DseModel`]):
            Usually `convert_encoder(source, layer_types="full_attention")`. It is frozen, in evaluation mode, and
            moved to the device of the inputs. It is no submodule, so it is neither trained nor saved.
        layer_mapping (`Sequence[str]`, *optional*, defaults to `("uniform",)`):
            See [`map_layers`].
        hidden_weight, embedding_weight, relation_weight, sentence_weight (`float`, *optional*):
            Weights of the four parts, 1, 0, 1 and 1 by default. Parts of weight 0 are not computed.
        relation_heads (`int`, *optional*):
            Relation heads. Defaults to the attention heads of the teacher.

    Raises:
        `ValueError`: if the weights are negative or all 0, if only relations would train a learned length
            projection, if layers or relation heads are invalid, or the vocabularies differ.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import LayerwiseDistillation, convert_encoder

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> model = LayerwiseDistillation(
    ...     student=convert_encoder(source, num_hidden_layers=3),
    ...     teacher=convert_encoder(source, layer_types="full_attention"),
    ... )
    >>> batch = AutoTokenizer.from_pretrained(source)("A cat sleeps.", return_tensors="pt")
    >>> sorted(model(batch["input_ids"], batch["attention_mask"]))
    ['hidden_loss', 'loss', 'relation_loss', 'sentence_loss']
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
        check_weights(weights)
        ours, theirs = student.config, teacher.config
        if ours.vocab_size != theirs.vocab_size:
            raise ValueError(
                f"The student has a vocabulary of {ours.vocab_size} tokens and the teacher one of "
                f"{theirs.vocab_size}: choose a teacher with the same tokenizer."
            )
        self.weights = {f"{name}_loss": weight for name, weight in weights.items() if weight > 0}
        self.layer_mapping = map_layers(layer_mapping, ours.num_hidden_layers, theirs.num_hidden_layers)
        self.relation_heads = theirs.num_attention_heads if relation_heads is None else relation_heads
        if relation_weight > 0:
            self._check_relations(student, theirs.hidden_size)

        self.student = student
        # Not through nn.Module, which would register it as a submodule.
        object.__setattr__(self, "teacher", teacher.eval().requires_grad_(False))
        self.projections = nn.ModuleDict()
        if ours.hidden_size != theirs.hidden_size:
            names = [f"hidden_{layer}" for layer in range(1, ours.num_hidden_layers + 1) if hidden_weight > 0]
            names += ["embedding"] if embedding_weight > 0 else []
            for name in names:
                self.projections[name] = nn.Linear(ours.hidden_size, theirs.hidden_size, bias=False)
        # The initial projection of the student also projects the targets.
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
        # Queries, keys and values are compared before E and F, so E and F of that layer have no gradient.
        is_learned = any("linformer." in name for name, _ in student.named_parameters())
        if is_learned and not {"hidden_loss", "sentence_loss"} & set(self.weights):
            raise ValueError(
                "Relations alone do not train the learned length projection (E and F) of the student: set "
                "`hidden_weight` or `sentence_weight` above 0, or convert with a `linformer_projection` that has no "
                "parameters (mean, max or strided)."
            )

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """The Trainer calls it for its option of the same name."""
        self.student.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """The same for transformers below 5.23, which has only this name for it."""
        self.student.gradient_checkpointing_enable(**kwargs)

    def get_input_embeddings(self) -> nn.Module:
        """Those of the student, to which the Trainer adds the noise of `neftune_noise_alpha`."""
        return self.student.get_input_embeddings()

    def train_only(self, layer: int | None) -> None:
        """
        Restricts the training to one layer and its hidden states.

        Args:
            layer (`int`, *optional*):
                The student layer, counted from 1, with its length projection; the first layer also with the
                embeddings and a shared (`"layerwise"`) E. `None` trains all parameters.
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
                The same texts in chunks, for a teacher with a lower limit. Then only the sentence loss can have a
                weight.
            chunk_attention_mask (`torch.Tensor` of shape `(num_chunks, chunk_len)`, *optional*):
                The attention mask of the chunks.
            chunk_texts (`torch.Tensor` of shape `(num_chunks,)`, *optional*):
                The text, from 0 to `batch_size - 1`, of each chunk.

        Returns:
            `dict[str, torch.Tensor]`: the scalars `loss` and, unweighted, those of `hidden_loss`, `embedding_loss`,
            `relation_loss` and `sentence_loss` whose weight is above 0. While a single layer is trained, `loss` is
            its hidden loss; in evaluation mode it is always the full loss.
        """
        if self.teacher.device != input_ids.device:
            self.teacher.to(input_ids.device)
        inputs = {"input_ids": input_ids, "attention_mask": attention_mask}
        ours: Sequence[torch.Tensor] = ()
        theirs: Sequence[torch.Tensor] = ()
        if chunk_input_ids is not None and chunk_attention_mask is not None and chunk_texts is not None:
            if set(self.weights) != {"sentence_loss"}:
                raise ValueError(
                    f"With chunks only `sentence_loss` is possible, but the losses are {', '.join(self.weights)}: set "
                    "the other weights to 0."
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
            embeddings = to_full_precision(self._project("sentence", output.pooler_output))
            cosine = nn.functional.cosine_similarity(embeddings, to_full_precision(target_embeddings))
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
            # Computed from the inputs of the layers, because inside a linear layer keys and values have k rows.
            of_student = getattr(student.attention.self, name)(ours[-2])
            of_teacher = getattr(teacher.attention.self, name)(theirs[mapped - 1])
            losses.append(relation_loss(of_student, of_teacher, mask, self.relation_heads))
        return torch.stack(losses).sum()
