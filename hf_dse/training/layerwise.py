# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Layerwise distillation: losses between a student and its teacher, an encoder with softmax attention."""

import copy
from collections.abc import Sequence
from typing import Any

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from hf_dse.modeling import DseModel
from hf_dse.training.arguments import PARTS, GeneralTrainingArguments


# Relations of longer texts are computed in blocks of this many rows.
RELATION_BLOCK = 512


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Squared error of hidden states ([TinyBERT](https://huggingface.co/papers/1909.10351), equations 8 and 9, with the
    projection already applied): the mean over features, then over the real tokens of a text, then over texts. Long and
    short texts have the same weight, so the loss does not depend on the batch size.

    Args:
        student, teacher (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            Hidden states, those of the student projected to the size of the teacher's.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.

    Returns:
        `torch.Tensor`: a scalar.
    """
    return _mean_over_texts((to_full_precision(student) - to_full_precision(teacher)).square().mean(dim=-1), mask)


def relation_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor, num_heads: int) -> torch.Tensor:
    """
    Divergence of token relations ([MiniLM](https://huggingface.co/papers/2002.10957),
    [MiniLMv2](https://huggingface.co/papers/2012.15828)). Queries (or keys, or values) X are split into relation
    heads, independently of the attention heads; the relations of a head are softmax(X X^T / sqrt(d)) with its d
    features, so student and teacher may differ in width. The loss is KL(teacher || student), averaged over heads
    and the real tokens of a text, then over texts.

    Above 512 tokens the rows are computed in blocks, and again in the backward pass: memory grows with 512 * n instead
    of n * n, and the result is the same.

    Args:
        student, teacher (`torch.Tensor` of shape `(batch_size, seq_len, size)`):
            Queries, keys or values of all heads.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.
        num_heads (`int`):
            Number of relation heads, a divisor of both sizes.

    Returns:
        `torch.Tensor`: a scalar.
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
            logits = (
                torch.matmul(to_full_precision(rows), to_full_precision(states).mT) * states.shape[-1] ** -0.5
            )  # [B, H, R, N]
            # Not infinity, because the difference of two infinities is NaN.
            logits = logits.masked_fill(is_padding[:, None, None], torch.finfo(logits.dtype).min)
            logs.append(logits.log_softmax(dim=-1))
        of_student, of_teacher = logs
        divergence = nn.functional.kl_div(of_student, of_teacher, reduction="none", log_target=True)
    return divergence.sum(dim=-1).mean(dim=1)


def to_full_precision(states: torch.Tensor) -> torch.Tensor:
    """Converts to at least float32, because half precision is too coarse for the small differences of the losses."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def _mean_over_texts(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of values `(batch_size, seq_len)` over the real tokens of each text, then over texts."""
    is_token = mask.bool()
    return (values.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)).mean()


def map_layers(mapping: Sequence[str], num_student_layers: int, num_teacher_layers: int) -> list[int]:
    """
    Maps each student layer to the teacher layer that it learns from, counted from 1. The embeddings, layer 0, always
    learn from the embeddings.

    `["uniform"]`: student layer m of M learns from layer m * N / M, rounded down, of N: g(m) of
    [TinyBERT](https://huggingface.co/papers/1909.10351), and the layer that [`convert_encoder`] copies. `["last"]`:
    from the last M layers. Otherwise one number per student layer.
    """
    words = [str(word) for word in mapping]
    if words == ["uniform"]:
        numbers = range(1, num_student_layers + 1)
        return [max(1, number * num_teacher_layers // num_student_layers) for number in numbers]
    if words == ["last"] and num_student_layers <= num_teacher_layers:
        return list(range(num_teacher_layers - num_student_layers + 1, num_teacher_layers + 1))
    layers = [int(word) for word in words if word.isdecimal()]
    fits = len(layers) == len(words) == num_student_layers
    if not fits or not all(1 <= layer <= num_teacher_layers for layer in layers) or layers != sorted(layers):
        raise ValueError(
            '`layer_mapping` must be "uniform", "last" for a student with at most as many layers as its teacher, or '
            f"the teacher layer of each student layer: {num_student_layers} numbers from 1 to {num_teacher_layers} in "
            f"ascending order; got {' '.join(words) or 'nothing'}."
        )
    return layers


class LayerwiseDistillation(nn.Module):
    """
    A student and its teacher. The loss is the weighted sum of up to four parts:

    - `hidden_loss`: [`hidden_loss`] of each student layer and its teacher layer, averaged over the layers, so that its
      scale does not depend on the depth.
    - `embedding_loss`: [`hidden_loss`] of the outputs of the embeddings.
    - `relation_loss`: [`relation_loss`] of queries, of keys and of values in the last student layer and its teacher
      layer, added. Attention maps of n x k and n x n cannot be compared; relations are computed before the length
      projection, where the student has n rows too.
    - `sentence_loss`: 1 - cosine of the sentence embeddings.

    Student and teacher have the same width: the student starts from the weights of the teacher, so their features
    correspond. If only the student has a projection (`projection_dim`), the target is the teacher's sentence embedding
    after a frozen copy of the initial projection.

    Args:
        student ([`DseModel`]):
            The model to train.
        teacher ([`DseModel`]):
            Usually `convert_encoder(source, layer_types="full_attention")`. It is frozen, in evaluation mode, and
            moved to the device of the inputs. It is not a submodule, so it is neither trained nor saved.
        args ([`GeneralTrainingArguments`]):
            The weights of the four parts, and `layer_mapping`. Parts of weight 0 are not computed.
    """

    student: DseModel
    teacher: DseModel

    def __init__(self, student: DseModel, teacher: DseModel, args: GeneralTrainingArguments):
        super().__init__()
        ours, theirs = student.config, teacher.config
        # The initial projection of the student also projects the targets, unless the teacher has its own.
        is_shared = student.projection is not None and teacher.projection is None
        for name in ("vocab_size", "hidden_size") if is_shared else ("vocab_size", "hidden_size", "embedding_size"):
            if getattr(ours, name) != getattr(theirs, name):
                raise ValueError(
                    f"The student has a `{name}` of {getattr(ours, name)} and the teacher one of "
                    f"{getattr(theirs, name)}: the teacher has to be the encoder that the student was converted from."
                )
        weights = {f"{name}_loss": getattr(args, f"{name}_weight") for name in PARTS}
        self.weights: dict[str, float] = {name: weight for name, weight in weights.items() if weight > 0}
        # Queries, keys and values are compared before E and F, so E and F of that layer have no gradient.
        is_learned = any("linformer." in name for name, _ in student.named_parameters())
        if is_learned and not {"hidden_loss", "sentence_loss"} & set(self.weights):
            raise ValueError(
                "Relations and embeddings alone do not train the learned length projection (E and F) of the student: "
                "set `hidden_weight` or `sentence_weight` above 0, or convert with another `linformer_projection` "
                "(mean, max or strided)."
            )
        self.layer_mapping = map_layers(args.layer_mapping, ours.num_hidden_layers, theirs.num_hidden_layers)
        self.student = student
        # Not through nn.Module, which would register it as a submodule.
        object.__setattr__(self, "teacher", teacher.eval().requires_grad_(False))
        projection: Any = student.projection
        self.target_projection = copy.deepcopy(projection).requires_grad_(False) if is_shared else None

    def activation_checkpointing_enable(self, **kwargs: Any) -> None:
        """The Trainer calls it for its option of the same name."""
        self.student.activation_checkpointing_enable(**kwargs)

    def gradient_checkpointing_enable(self, **kwargs: Any) -> None:
        """The same for transformers below 5.23, which has only this name for it."""
        self.student.gradient_checkpointing_enable(**kwargs)

    def get_input_embeddings(self) -> nn.Module:
        """Those of the student, to which the Trainer adds the noise of `neftune_noise_alpha`."""
        return self.student.get_input_embeddings()

    def forward(
        self, input_ids: torch.Tensor, attention_mask: torch.Tensor, return_loss: bool = True
    ) -> dict[str, torch.Tensor]:
        """
        The scalars `loss` and, unweighted, those of `hidden_loss`, `embedding_loss`, `relation_loss` and
        `sentence_loss` whose weight is above 0, of token ids and their mask, `(batch_size, seq_len)`. `return_loss`
        tells the Trainer that a batch without labels has a loss; it always has.
        """
        if self.teacher.device != input_ids.device:
            self.teacher.to(input_ids.device)  # type: ignore[arg-type]
        inputs: dict[str, Any] = {"input_ids": input_ids, "attention_mask": attention_mask}
        with torch.no_grad():
            target = self.teacher(**inputs, output_hidden_states=True)
            embeddings = target.pooler_output
            embeddings = embeddings if self.target_projection is None else self.target_projection(embeddings)
        output = self.student(**inputs, output_hidden_states=True)
        # The output of the embeddings comes first, then that of each layer.
        ours, theirs = output.hidden_states, target.hidden_states
        losses = {}
        if "hidden_loss" in self.weights:
            layers = enumerate(self.layer_mapping, start=1)
            of_layers = [hidden_loss(ours[layer], theirs[mapped], attention_mask) for layer, mapped in layers]
            losses["hidden_loss"] = torch.stack(of_layers).mean()
        if "embedding_loss" in self.weights:
            losses["embedding_loss"] = hidden_loss(ours[0], theirs[0], attention_mask)
        if "relation_loss" in self.weights:
            losses["relation_loss"] = self._relations(ours, theirs, attention_mask)
        if "sentence_loss" in self.weights:
            pair = to_full_precision(output.pooler_output), to_full_precision(embeddings)
            losses["sentence_loss"] = 1 - nn.functional.cosine_similarity(*pair).mean()
        loss = torch.stack([self.weights[name] * value for name, value in losses.items()]).sum()
        return {"loss": loss, **losses}

    def _relations(
        self, ours: Sequence[torch.Tensor], theirs: Sequence[torch.Tensor], mask: torch.Tensor
    ) -> torch.Tensor:
        mapped = self.layer_mapping[-1]
        student: Any = self.student.encoder.layer[-1]
        teacher: Any = self.teacher.encoder.layer[mapped - 1]
        losses = []
        for name in ("query", "key", "value"):
            # Computed from the inputs of the layers, because inside a linear layer keys and values have k rows.
            of_student = getattr(student.attention.self, name)(ours[-2])
            of_teacher = getattr(teacher.attention.self, name)(theirs[mapped - 1])
            losses.append(relation_loss(of_student, of_teacher, mask, self.teacher.config.num_attention_heads))
        return torch.stack(losses).sum()
