# Copyright 2026 The hf-dse authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""PyTorch DSE model: a BERT encoder with Linformer attention that embeds sentences one by one.

Shapes in comments: B batch, N tokens, K slots, W tokens of the longest slot, H heads, D hidden size, P embedding size.
"""

from collections.abc import Callable
from typing import NamedTuple

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling, SequenceClassifierOutput
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.import_utils import is_tracing
from transformers.utils.output_capturing import capture_outputs

from .configuration_dse import DseConfig


class DsePadding(NamedTuple):
    """What the layers need to know about the padding of a batch; `None` in place of it means that there is none."""

    lengths: torch.LongTensor  # [B, 1] real tokens of each text
    order: torch.LongTensor  # [B, N] positions of the tokens, the real ones first
    bias: torch.Tensor  # [B, 1, 1, N] added to attention logits: 0 for real tokens, the lowest float for padding


class DseSlots(NamedTuple):
    """Which tokens of a text share a slot, that is a row of the projected keys and values."""

    tokens: torch.LongTensor  # [B or 1, K, W] positions of the tokens of each slot
    is_token: torch.BoolTensor  # [B or 1, K, W] False where a slot holds fewer than W tokens
    stands_for: torch.Tensor  # [B or 1, K] number of tokens that a slot represents; 0 closes it


def mask_bias(is_token: torch.BoolTensor, dtype: torch.dtype) -> torch.Tensor:
    """What is added to attention logits: 0 for real tokens, the lowest float for padding."""
    bias = torch.zeros(is_token.shape, dtype=dtype, device=is_token.device)
    return bias.masked_fill(~is_token, torch.finfo(dtype).min)


def describe_padding(attention_mask: torch.Tensor, dtype: torch.dtype) -> DsePadding:
    is_token = attention_mask.bool()
    bias = mask_bias(is_token, dtype)[:, None, None, :]
    return DsePadding(is_token.sum(dim=1, keepdim=True), order_tokens(is_token), bias)


def count_tokens(num_tokens: int, padding: DsePadding | None, device: torch.device) -> torch.LongTensor:
    """Real tokens of each text [B, 1]; without padding all N of them, [1, 1]."""
    if padding is None:
        return torch.full((1, 1), num_tokens, dtype=torch.long, device=device)
    return padding.lengths


def order_tokens(is_token: torch.BoolTensor) -> torch.LongTensor:
    """Positions of the tokens [B, N], the real ones first, otherwise in order."""
    # Not a sort: the sorts of ONNX keep no order among equals.
    num_before = is_token.cumsum(dim=1) - is_token.long()
    positions = torch.arange(is_token.shape[1], device=is_token.device).expand(is_token.shape)
    ranks = torch.where(is_token, num_before, is_token.sum(dim=1, keepdim=True) + positions - num_before)
    return torch.zeros_like(ranks).scatter(1, ranks, positions)


def assign_slots(
    num_tokens: int,
    num_slots: int,
    padding: DsePadding | None,
    like: torch.Tensor,
    keep_ends: bool,
    stride_offset: tuple[int, int] | None = None,
) -> DseSlots:
    """
    Assigns the l real tokens of each text to k slots. With l <= k, slot i holds token i. Else the tokens are cut into
    k segments of nearly equal length; with `keep_ends` the first and the last token stand alone and the others share
    the k - 2 slots between them.

    Args:
        num_tokens (`int`):
            Padded length N of the batch.
        num_slots (`int`):
            Projected length k.
        padding (`DsePadding`, *optional*):
            Padding of the batch; without it every text has N tokens.
        like (`torch.Tensor`):
            Gives device and precision.
        keep_ends (`bool`):
            Whether the ends stand alone.
        stride_offset (`tuple[int, int]`, *optional*):
            With a fraction (a, b), a slot holds only the token at a / b of its segment: `"strided"` projection.
    """
    device, dtype = like.device, torch.promote_types(like.dtype, torch.float32)
    lengths = count_tokens(num_tokens, padding, device)
    ends = 1 if keep_ends else 0
    inner_slots, inner_lengths = num_slots - 2 * ends, (lengths - 2 * ends).clamp(min=0)
    # An exported graph is for all lengths: it must not be told which of the two is less.
    slots = torch.arange(torch.sym_min(num_slots, num_tokens), device=device)[None]  # [1, K]
    inner = (slots - ends).clamp(0, inner_slots - 1)

    if stride_offset is not None:
        numerator, denominator = stride_offset
        start = (inner * denominator + numerator) * inner_lengths // (denominator * inner_slots)
        count = torch.ones_like(start)
        stands_for = (inner_lengths.to(dtype) / inner_slots).expand(start.shape)
        width = 1
    else:
        start = (inner * inner_lengths + inner_slots - 1) // inner_slots
        count = ((inner + 1) * inner_lengths + inner_slots - 1) // inner_slots - start
        stands_for = count.to(dtype)
        # One token a slot is a length of its own to an exported graph.
        width = torch.sym_max(2 if torch.compiler.is_exporting() else 1, -(-(num_tokens - 2 * ends) // inner_slots))
    if keep_ends:
        is_end = (slots == 0) | (slots == num_slots - 1)
        start = torch.where(is_end, slots.clamp(max=1) * (lengths - 1), start + 1)
        count = count.masked_fill(is_end, 1)
        stands_for = stands_for.masked_fill(is_end, 1.0)

    is_short = lengths <= num_slots
    is_open = slots < lengths
    start = torch.where(is_short, slots, start)
    count = torch.where(is_short, is_open.long(), count)
    stands_for = torch.where(is_short, is_open.to(dtype), stands_for)

    step = torch.arange(width, device=device)
    tokens = (start[..., None] + step).clamp(0, num_tokens - 1)
    is_token = step < count[..., None]
    if padding is not None:
        tokens = padding.order.gather(1, tokens.flatten(1)).view(tokens.shape)
    return DseSlots(tokens, is_token, stands_for)


def gather_tokens(hidden_states: torch.Tensor, tokens: torch.LongTensor) -> torch.Tensor:
    """Picks tokens [B or 1, K, W] out of hidden states [B, N, D]; returns [B, K, W, D]."""
    batch = torch.arange(hidden_states.shape[0], device=hidden_states.device)
    return hidden_states[batch[:, None, None], tokens]


def move_tokens_first(hidden_states: torch.Tensor, padding: DsePadding) -> torch.Tensor:
    """Hidden states [B, N, D], those of the real tokens first."""
    return gather_tokens(hidden_states, padding.order[:, None])[:, 0]


def cut_chunks(
    hidden_states: torch.Tensor, padding: DsePadding | None, chunk_size: int
) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Cuts the real tokens of each text into chunks, C tokens in all but the last.

    Returns the chunks [B * N / C, C, D] and what is added to the logits of their tokens [B * N / C, 1, 1, C].
    """
    batch_size, num_tokens, hidden_size = hidden_states.shape
    # An exported graph is for all lengths: short texts need no whole chunk.
    chunk_size = torch.sym_min(chunk_size, num_tokens)
    lengths = count_tokens(num_tokens, padding, hidden_states.device)
    if padding is not None:
        hidden_states = move_tokens_first(hidden_states, padding)
    hidden_states = nn.functional.pad(hidden_states, (0, 0, 0, -num_tokens % chunk_size))
    is_token = torch.arange(hidden_states.shape[1], device=hidden_states.device) < lengths
    bias = mask_bias(is_token, hidden_states.dtype).expand(batch_size, -1)
    return hidden_states.reshape(-1, chunk_size, hidden_size), bias.reshape(-1, 1, 1, chunk_size)


def join_chunks(chunks: torch.Tensor, shape: tuple[int, int, int], padding: DsePadding | None) -> torch.Tensor:
    """The inverse of `cut_chunks`: chunks [B * N / C, C, D] to states of the shape [B, N, D]."""
    batch_size, num_tokens, size = shape
    ordered = chunks.reshape(batch_size, -1, size)[:, :num_tokens]
    if padding is None:
        return ordered
    return torch.zeros_like(ordered).scatter(1, padding.order[..., None].expand(ordered.shape), ordered)


class DseLinformer(nn.Module):
    """
    The learned part of a Linformer projection: E for the keys and F for the values
    ([Wang et al., 2020](https://huggingface.co/papers/2006.04768), equation 7), added to the fixed start of the layer.
    `"learned"` keeps one weight per (slot, token), `"conv"` one per place in a slot.
    """

    def __init__(self, config: DseConfig, num_slots: int):
        super().__init__()
        self.kind = config.linformer_projection
        self.num_slots = num_slots
        self.is_random = config.linformer_init == "random"
        # CODEPATH: checkpoints converted with `linformer_keep_ends=False` have no slots of their own for the ends
        ends = 2 if config.linformer_keep_ends else 0
        # CODEPATH: checkpoints converted with `linformer_sharing="none"` have a projection per head
        groups = config.num_attention_heads if config.linformer_sharing == "none" else 1
        if self.kind == "learned":
            shape = (groups, num_slots, config.max_position_embeddings)
            self.random_std = num_slots**-0.5
        else:
            width = max(1, -(-(config.max_position_embeddings - ends) // (num_slots - ends)))
            shape = (groups, width)
            self.random_std = width**-0.5
        self.key = nn.Parameter(torch.empty(shape))
        shares_key_value = config.linformer_sharing in ("key_value", "layerwise")
        self.value = None if shares_key_value else nn.Parameter(torch.empty(shape))

    def forward(
        self,
        weight: torch.Tensor,
        hidden_states: torch.Tensor,
        segments: DseSlots | None,
        padding: DsePadding | None,
    ) -> torch.Tensor:
        """
        Args:
            weight (`torch.Tensor`):
                `self.key` or `self.value`; its first axis divides the features of `hidden_states` into groups.
            hidden_states (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
                What is projected.
            segments (`DseSlots`, *optional*):
                Where the kernel of `"conv"` is applied, and how many slots are in use (default: all).
            padding (`DsePadding`, *optional*):
                Padding of the batch.

        Returns:
            `torch.Tensor` of shape `(batch_size, num_slots, hidden_size)`.
        """
        batch_size, num_tokens, hidden_size = hidden_states.shape
        groups = weight.shape[0]
        if self.kind == "conv":
            places = gather_tokens(hidden_states, segments.tokens) * segments.is_token[..., None]  # [B, K, W, D]
            places = places.unflatten(-1, (groups, -1))
            projected = torch.einsum("gw,bkwgd->bkgd", weight[:, : segments.tokens.shape[2]], places)
            return projected.flatten(2)
        num_slots = self.num_slots if segments is None else segments.tokens.shape[1]
        if padding is not None:
            is_token = torch.arange(num_tokens, device=hidden_states.device) < padding.lengths
            hidden_states = move_tokens_first(hidden_states, padding) * is_token[..., None]
        grouped = hidden_states.view(batch_size, num_tokens, groups, -1).transpose(1, 2)  # [B, G, N, D / G]
        if torch.compiler.is_exporting():
            # A slice is contiguous for some lengths only, so the graph would be for these or for all others.
            weight = weight.index_select(1, torch.arange(num_slots, device=weight.device))
            weight = weight.index_select(2, torch.arange(num_tokens, device=weight.device))
        else:
            weight = weight[:, :num_slots, :num_tokens]
        projected = torch.matmul(weight, grouped)
        return projected.transpose(1, 2).reshape(batch_size, num_slots, hidden_size)


def eager_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float,
    dropout: float = 0.0,
    **kwargs: Unpack[TransformersKwargs],
) -> tuple[torch.Tensor, torch.Tensor]:
    attn_weights = torch.matmul(query, key.transpose(2, 3)) * scaling
    if attention_mask is not None:
        attn_weights = attn_weights + attention_mask
    attn_weights = nn.functional.softmax(attn_weights, dim=-1)
    attn_weights = nn.functional.dropout(attn_weights, p=dropout, training=module.training)
    attn_output = torch.matmul(attn_weights, value).transpose(1, 2).contiguous()
    return attn_output, attn_weights


class DseSelfAttention(nn.Module):
    """
    Multi-head attention of n tokens to k slots (`"linear_attention"`), to those of their own chunk
    (`"chunked_attention"`) or to all n (`"full_attention"`).
    """

    def __init__(self, config: DseConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        self.is_linear = config.layer_types[layer_idx] == "linear_attention"
        is_chunked = config.layer_types[layer_idx] == "chunked_attention"
        self.chunk_size = config.attention_chunk_size if is_chunked else None
        lengths = config.linformer_length
        self.num_slots = lengths[layer_idx] if isinstance(lengths, list) else lengths
        has_parameters = config.linformer_projection in ("learned", "conv")
        self.start = config.linformer_init if has_parameters else config.linformer_projection
        # In every layer the strided slots see other tokens, so that together the layers see more of a long text.
        self.stride_offset = (2 * layer_idx + 1, 2 * config.num_hidden_layers)

        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)
        is_own = self.is_linear and has_parameters and config.linformer_sharing != "layerwise"
        self.linformer = DseLinformer(config, self.num_slots) if is_own else None

    def forward(
        self,
        hidden_states: torch.Tensor,
        padding: DsePadding | None = None,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        num_tokens = hidden_states.shape[1]
        if self.chunk_size is None or (not torch.compiler.is_exporting() and num_tokens <= self.chunk_size):
            return self.attend(hidden_states, padding, linformer, **kwargs)

        chunks, bias = cut_chunks(hidden_states, padding, self.chunk_size)
        attn_output, attn_weights = self.attend(chunks, padding=DsePadding(None, None, bias), **kwargs)
        attn_output = join_chunks(attn_output, hidden_states.shape, padding)
        if attn_weights is not None:
            shape = (hidden_states.shape[0], num_tokens, self.config.num_attention_heads * chunks.shape[1])
            attn_weights = join_chunks(attn_weights.transpose(1, 2).flatten(2), shape, padding)
            attn_weights = attn_weights.unflatten(2, (self.config.num_attention_heads, -1)).transpose(1, 2)
        return attn_output, attn_weights

    def attend(
        self,
        hidden_states: torch.Tensor,
        padding: DsePadding | None = None,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        input_shape = hidden_states.shape[:-1]
        hidden_shape = (*input_shape, -1, self.head_dim)
        query = self.query(hidden_states).view(hidden_shape).transpose(1, 2)  # [B, H, N, D / H]
        key, value, bias = self.project_key_value(hidden_states, padding, linformer or self.linformer)
        key = key.view(*key.shape[:-1], -1, self.head_dim).transpose(1, 2)  # [B, H, K, D / H]
        value = value.view(*value.shape[:-1], -1, self.head_dim).transpose(1, 2)

        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        attn_output, attn_weights = attention_interface(
            self,
            query,
            key,
            value,
            bias,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return attn_output.reshape(*input_shape, -1).contiguous(), attn_weights

    def project_key_value(
        self, hidden_states: torch.Tensor, padding: DsePadding | None, linformer: DseLinformer | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor | None]:
        """Keys and values of the slots, `(batch_size, num_slots, hidden_size)`, and what is added to their logits."""
        num_tokens, dtype = hidden_states.shape[1], hidden_states.dtype
        is_short = not torch.compiler.is_exporting() and num_tokens <= self.num_slots
        if not self.is_linear or (linformer is None and is_short):
            return self.key(hidden_states), self.value(hidden_states), None if padding is None else padding.bias

        segments, slots, bias = None, None, None
        # E from a random start mixes all tokens into all slots, however few they are; any other fills them in order.
        if self.start != "random" or linformer.kind == "conv":
            layout = (num_tokens, self.num_slots, padding, hidden_states, self.config.linformer_keep_ends)
            slots = segments = assign_slots(*layout, self.stride_offset if self.start == "strided" else None)
            if self.start == "strided" and linformer is not None and linformer.kind == "conv":
                segments = assign_slots(*layout)
            # A slot that stands for c tokens weighs as much as c of them (Bolya et al., 2022: proportional attention).
            weights = slots.stands_for.clamp(max=1.0) if self.start == "random" else slots.stands_for
            bias = weights.clamp(min=1.0).log().to(dtype).masked_fill(weights == 0, torch.finfo(dtype).min)
            bias = bias[:, None, None, :]

        if linformer is None:
            slot_states = self.fill_slots(hidden_states, slots)
            return self.key(slot_states), self.value(slot_states), bias

        value_weight = linformer.key if linformer.value is None else linformer.value
        # CODEPATH: checkpoints converted with `linformer_sharing="none"`, whose heads project their own features
        if self.config.linformer_sharing == "none":
            key, value = self.key(hidden_states), self.value(hidden_states)
            key = self.fill_slots(key, slots) + linformer(linformer.key, key, segments, padding)
            value = self.fill_slots(value, slots) + linformer(value_weight, value, segments, padding)
            return key, value, bias
        # Projecting the sequence before the features leaves them k rows to work on instead of n.
        start = self.fill_slots(hidden_states, slots)
        key_states = start + linformer(linformer.key, hidden_states, segments, padding)
        value_states = key_states
        if linformer.value is not None:
            value_states = start + linformer(linformer.value, hidden_states, segments, padding)
        return self.key(key_states), self.value(value_states), bias

    def fill_slots(self, hidden_states: torch.Tensor, slots: DseSlots | None) -> torch.Tensor | float:
        """The fixed start of the projection, `(batch_size, num_slots, hidden_size)`; 0 where there is none."""
        if self.start == "random":
            return 0.0
        tokens = gather_tokens(hidden_states, slots.tokens)  # [B, K, W, D]
        if self.start == "strided":
            return tokens[:, :, 0]
        is_token = slots.is_token[..., None]
        if self.start == "max":
            tokens = tokens.masked_fill(~is_token, torch.finfo(tokens.dtype).min).amax(dim=2)
            return tokens.masked_fill(~is_token.any(dim=2), 0.0)
        return (tokens * is_token).sum(dim=2) / is_token.sum(dim=2).clamp(min=1)


class DseSelfOutput(nn.Module):
    def __init__(self, config: DseConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden_states = self.dropout(self.dense(hidden_states))
        return self.LayerNorm(hidden_states + residual)


class DseAttention(nn.Module):
    def __init__(self, config: DseConfig, layer_idx: int):
        super().__init__()
        self.self = DseSelfAttention(config, layer_idx)
        self.output = DseSelfOutput(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        padding: DsePadding | None = None,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        attn_output, attn_weights = self.self(hidden_states, padding, linformer, **kwargs)
        return self.output(attn_output, hidden_states), attn_weights


class DseIntermediate(nn.Module):
    def __init__(self, config: DseConfig):
        super().__init__()
        self.dense = nn.Linear(config.hidden_size, config.intermediate_size)
        self.act_fn = ACT2FN[config.hidden_act]

    def forward(self, hidden_states: torch.Tensor) -> torch.Tensor:
        return self.act_fn(self.dense(hidden_states))


class DseOutput(nn.Module):
    def __init__(self, config: DseConfig):
        super().__init__()
        self.dense = nn.Linear(config.intermediate_size, config.hidden_size)
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(self, hidden_states: torch.Tensor, residual: torch.Tensor) -> torch.Tensor:
        hidden_states = self.dropout(self.dense(hidden_states))
        return self.LayerNorm(hidden_states + residual)


class DseLayer(GradientCheckpointingLayer):
    def __init__(self, config: DseConfig, layer_idx: int):
        super().__init__()
        self.attention = DseAttention(config, layer_idx)
        self.intermediate = DseIntermediate(config)
        self.output = DseOutput(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        padding: DsePadding | None = None,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        hidden_states, _ = self.attention(hidden_states, padding, linformer, **kwargs)
        return self.output(self.intermediate(hidden_states), hidden_states)


class DseEmbeddings(nn.Module):
    """Sum of word, position and token type embeddings."""

    def __init__(self, config: DseConfig):
        super().__init__()
        self.word_embeddings = nn.Embedding(config.vocab_size, config.hidden_size, padding_idx=config.pad_token_id)
        num_positions = config.original_max_position_embeddings or config.max_position_embeddings
        self.position_embeddings = nn.Embedding(num_positions, config.hidden_size)
        self.token_type_embeddings = (
            # CODEPATH: checkpoints converted from DistilBERT have no token types, those from BERT and RoBERTa do
            nn.Embedding(config.type_vocab_size, config.hidden_size) if config.type_vocab_size else None
        )
        self.LayerNorm = nn.LayerNorm(config.hidden_size, eps=config.layer_norm_eps)
        self.dropout = nn.Dropout(config.hidden_dropout_prob)

    def forward(
        self,
        inputs_embeds: torch.Tensor,
        position_ids: torch.Tensor,
        token_type_ids: torch.LongTensor | None = None,
    ) -> torch.Tensor:
        if position_ids.is_floating_point():
            before = position_ids.long().clamp(max=self.position_embeddings.num_embeddings - 2)
            share = (position_ids - before)[..., None].to(inputs_embeds.dtype)
            positions = torch.lerp(self.position_embeddings(before), self.position_embeddings(before + 1), share)
        else:
            positions = self.position_embeddings(position_ids)
        embeddings = inputs_embeds + positions
        if self.token_type_embeddings is not None:
            if token_type_ids is None:
                token_type_ids = torch.zeros(inputs_embeds.shape[:2], dtype=torch.long, device=inputs_embeds.device)
            embeddings = embeddings + self.token_type_embeddings(token_type_ids)
        return self.dropout(self.LayerNorm(embeddings))


class DseEncoder(nn.Module):
    def __init__(self, config: DseConfig):
        super().__init__()
        self.layer = nn.ModuleList([DseLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers)])
        is_layerwise = config.linformer_sharing == "layerwise" and config.linformer_projection in ("learned", "conv")
        is_layerwise = is_layerwise and "linear_attention" in config.layer_types
        lengths = config.linformer_length
        if is_layerwise and isinstance(lengths, list):
            lengths = lengths[config.layer_types.index("linear_attention")]
        self.linformer = DseLinformer(config, lengths) if is_layerwise else None
        self.pooling_layers = config.pooling_layers

    def forward(
        self, hidden_states: torch.Tensor, padding: DsePadding | None, **kwargs: Unpack[TransformersKwargs]
    ) -> list[torch.Tensor]:
        """Returns the hidden states of the last `pooling_layers` layers."""
        last_states = []
        for idx, layer in enumerate(self.layer):
            hidden_states = layer(hidden_states, padding, self.linformer, **kwargs)
            if idx >= len(self.layer) - self.pooling_layers:
                last_states.append(hidden_states)
        return last_states


@auto_docstring
class DsePreTrainedModel(PreTrainedModel):
    config: DseConfig
    base_model_prefix = "dse"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DseEmbeddings", "DseLayer"]
    _supports_sdpa = True
    _supports_attention_backend = True
    # Packed rows of several texts would be mixed by the projection along the sequence.
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_record_outputs = {"hidden_states": DseLayer, "attentions": DseSelfAttention}

    @torch.no_grad()
    def _init_weights(self, module: nn.Module):
        super()._init_weights(module)
        if isinstance(module, DseLinformer):
            for weight in (module.key, module.value):
                if weight is not None and module.is_random:
                    init.normal_(weight, mean=0.0, std=module.random_std)
                elif weight is not None:
                    init.zeros_(weight)
        elif isinstance(module, DseClassificationHead) and module.kind != "mlp":
            # Equal scales would give equal logits, and the encoder no gradient.
            num_labels = module.scale.shape[0]
            init.copy_(module.scale, torch.linspace(-1.0 if num_labels > 1 else 1.0, 1.0, num_labels))
            init.zeros_(module.bias)


@auto_docstring(
    custom_intro="""
    The bare DSE encoder: texts in, one sentence embedding each (`pooler_output`) beside the token states out. An
    embedding never depends on the other texts of a batch or on its padding.
    """
)
class DseModel(DsePreTrainedModel):
    # The head of a checkpoint for sentence pairs is no part of the encoder.
    _keys_to_ignore_on_load_unexpected = [r"^similarity\."]

    def __init__(self, config: DseConfig):
        super().__init__(config)
        self.embeddings = DseEmbeddings(config)
        self.encoder = DseEncoder(config)
        pooled_size = config.pooling_layers * config.hidden_size
        has_projection = config.projection_dim is not None and config.projection_dim != pooled_size
        self.projection = nn.Linear(pooled_size, config.projection_dim) if has_projection else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.embeddings.word_embeddings

    def set_input_embeddings(self, value: nn.Module):
        self.embeddings.word_embeddings = value

    @merge_with_config_defaults
    @capture_outputs
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        if (input_ids is None) == (inputs_embeds is None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        shape = input_ids.shape if inputs_embeds is None else inputs_embeds.shape[:-1]
        if len(shape) != 2:
            raise ValueError(
                f"`input_ids` must have the shape (batch_size, seq_len), got {tuple(shape)}. For pairs use "
                "`DseForSequenceClassification`."
            )
        if attention_mask is not None and attention_mask.shape != shape:
            raise ValueError(
                f"`attention_mask` must have the shape (batch_size, seq_len) of the input, {tuple(shape)}, got "
                f"{tuple(attention_mask.shape)}: n x n masks have no meaning after projection to k slots."
            )
        if shape[1] > self.config.max_position_embeddings:
            raise ValueError(
                f"The input has {shape[1]} tokens, but this model takes at most {self.config.max_position_embeddings} "
                "(`max_position_embeddings`, the size of its position table and of learned projections). Truncate "
                f"with `tokenizer(..., truncation=True, max_length={self.config.max_position_embeddings})`, or "
                f"convert an encoder with `convert_encoder(..., max_position_embeddings={shape[1]})`."
            )
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        # Most batches of one text have no padding; nothing then depends on the mask.
        if attention_mask is not None and not is_tracing(attention_mask) and attention_mask.all():
            attention_mask = None
        if attention_mask is None:
            padding = None
            ranks = torch.arange(shape[1], device=inputs_embeds.device)[None]
        else:
            padding = describe_padding(attention_mask, inputs_embeds.dtype)
            # Positions count real tokens, so left padding changes nothing either.
            ranks = (attention_mask.bool().cumsum(dim=1) - 1).clamp(min=0)
        if position_ids is None:
            position_ids = self.fit_positions(ranks, count_tokens(shape[1], padding, inputs_embeds.device))

        hidden_states = self.embeddings(inputs_embeds, position_ids, token_type_ids)
        last_states = self.encoder(hidden_states, padding, **kwargs)
        embeddings = self.pool(torch.cat(last_states, dim=-1), padding)
        if self.projection is not None:
            embeddings = self.projection(embeddings)
        return BaseModelOutputWithPooling(last_hidden_state=last_states[-1], pooler_output=embeddings)

    def fit_positions(self, ranks: torch.LongTensor, lengths: torch.LongTensor) -> torch.Tensor:
        """Positions `(batch_size, seq_len)`; in a text longer than the table they span it, or start again."""
        num_positions = self.config.original_max_position_embeddings
        is_short = num_positions is None or not is_tracing(ranks) and ranks.shape[1] <= num_positions
        if num_positions is None or is_short:
            return ranks
        # CODEPATH: checkpoints converted with `position_extension="tile"`
        if self.config.position_extension == "tile":
            return ranks % num_positions
        scale = ((num_positions - 1) / (lengths - 1).clamp(min=1)).clamp(max=1.0)
        return (ranks * scale).clamp(max=num_positions - 1)

    def pool(self, hidden_states: torch.Tensor, padding: DsePadding | None) -> torch.Tensor:
        """Token states `(batch_size, seq_len, size)` to one vector each, `(batch_size, size)`."""
        # CODEPATH: checkpoints converted with `pooling_mode="cls"`
        if self.config.pooling_mode == "cls":
            if padding is None:
                return hidden_states[:, 0]
            return gather_tokens(hidden_states, padding.order[:, None, :1])[:, 0, 0]
        # CODEPATH: checkpoints converted with `pooling_mode="max"`
        if self.config.pooling_mode == "max":
            if padding is not None:
                hidden_states = hidden_states.masked_fill(padding.bias[:, 0, 0, :, None] < 0, -torch.inf)
            return hidden_states.amax(dim=1)
        if padding is None:
            return hidden_states.mean(dim=1)
        is_token = (padding.bias[:, 0, 0, :, None] == 0).to(hidden_states.dtype)  # [B, N, 1]
        return (hidden_states * is_token).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)


class DseClassificationHead(nn.Module):
    """Two embeddings to logits: a learned scale and bias of their cosine or dot product, or the head of DSE."""

    def __init__(self, config: DseConfig):
        super().__init__()
        self.kind = config.similarity
        if self.kind == "mlp":
            self.dense = nn.Linear(4 * config.projection_dim, config.similarity_hidden_size)
            self.out_proj = nn.Linear(config.similarity_hidden_size, config.num_labels)
        else:
            self.scale = nn.Parameter(torch.empty(config.num_labels))
            self.bias = nn.Parameter(torch.empty(config.num_labels))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Embeddings of shape `(batch_size, projection_dim)` to logits of shape `(batch_size, num_labels)`."""
        if self.kind == "mlp":
            features = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
            return self.out_proj(nn.functional.relu(self.dense(features)))
        if self.kind == "cosine":
            similarity = nn.functional.cosine_similarity(first, second, dim=-1)
        else:
            similarity = (first * second).sum(dim=-1)
        return similarity[:, None] * self.scale + self.bias


@auto_docstring(
    custom_intro="""
    DSE for sentence pairs: embeds both sentences of a pair alone and compares the embeddings. Takes what
    `tokenizer(first, second)` returns, like any model for sequence classification, and splits it inside; or a batch of
    shape `(batch_size, 2, seq_len)`, two sentences each.
    """
)
class DseForSequenceClassification(DsePreTrainedModel):
    # The loss is the mean over a batch: gradient accumulation has to scale it.
    accepts_loss_kwargs = False

    def __init__(self, config: DseConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dse = DseModel(config)
        self.similarity = DseClassificationHead(config)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> SequenceClassifierOutput:
        r"""
        input_ids (`torch.LongTensor` of shape `(batch_size, seq_len)` or `(batch_size, 2, seq_len)`, *optional*):
            Pairs encoded by `tokenizer(first, second)`, or the two sentences of each pair encoded alone.
        attention_mask (`torch.Tensor` of the shape of `input_ids`, *optional*):
            1 for tokens, 0 for padding.
        token_type_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
            0 for the first sentence, 1 for the second. Without them a pair is split at its separator tokens.
        labels (`torch.Tensor` of shape `(batch_size,)`, *optional*):
            With one label: a score (mean squared error), or 0 and 1 if `config.problem_type` is
            `"multi_label_classification"` (binary cross-entropy). With several: a class (cross-entropy).
        """
        inputs = input_ids if inputs_embeds is None else inputs_embeds
        if inputs is None or (input_ids is not None and inputs_embeds is not None):
            raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
        sentence_dim = inputs.dim() if inputs_embeds is None else inputs.dim() - 1
        if sentence_dim == 3:
            if inputs.shape[1] != 2:
                raise ValueError(
                    f"Inputs of three axes must have the shape (batch_size, 2, seq_len), got {tuple(inputs.shape)}."
                )
            sentences = inputs.flatten(0, 1)
            mask = None if attention_mask is None else attention_mask.flatten(0, 1)
        else:
            sentences, mask = self.split_pairs(inputs, input_ids, attention_mask, token_type_ids)
        names = {"input_ids": sentences} if inputs_embeds is None else {"inputs_embeds": sentences}
        outputs = self.dse(attention_mask=mask, return_dict=True, **names, **kwargs)
        logits = self.similarity(outputs.pooler_output[0::2], outputs.pooler_output[1::2])

        loss = None
        if labels is not None:
            loss = self.compute_loss(logits, labels.to(logits.device))
        return SequenceClassifierOutput(
            loss=loss, logits=logits, hidden_states=outputs.hidden_states, attentions=outputs.attentions
        )

    def compute_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The task loss of the DSE paper: squared error, binary cross-entropy or cross-entropy."""
        problem_type = self.config.problem_type
        if problem_type is None:
            problem_type = "regression" if self.num_labels == 1 else "single_label_classification"
        if problem_type == "regression":
            return nn.functional.mse_loss(logits.view(-1), labels.view(-1).to(logits.dtype))
        if problem_type == "multi_label_classification":
            return nn.functional.binary_cross_entropy_with_logits(logits, labels.view_as(logits).to(logits.dtype))
        return nn.functional.cross_entropy(logits, labels.view(-1))

    def split_pairs(
        self,
        inputs: torch.Tensor,
        input_ids: torch.LongTensor | None,
        attention_mask: torch.Tensor | None,
        token_type_ids: torch.LongTensor | None,
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """
        Splits pairs `[CLS] a [SEP] b [SEP]` into the sentences `[CLS] a [SEP]` and `[CLS] b [SEP]`.

        Args:
            inputs (`torch.Tensor` of shape `(batch_size, seq_len)` or `(batch_size, seq_len, hidden_size)`):
                What is split: token ids or their embeddings.
            input_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
                Token ids, needed where there are no token types.
            attention_mask (`torch.Tensor` of shape `(batch_size, seq_len)`, *optional*):
                1 for tokens, 0 for padding.
            token_type_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
                1 for the tokens of the second sentence.

        Returns:
            `tuple[torch.Tensor, torch.Tensor]`: sentences of shape `(2 * batch_size, new_len, ...)`, the two of a pair
            one after the other, right-padded, and their mask.

        Raises:
            `ValueError`: if a row is not a pair, or cannot be split without doubt.
        """
        shape, checks = inputs.shape[:2], not is_tracing(inputs)
        is_token = torch.ones(shape, device=inputs.device) if attention_mask is None else attention_mask
        is_token = is_token.bool()
        if token_type_ids is not None and (not checks or (token_type_ids * is_token).any()):
            is_second = is_token & (token_type_ids == 1)
            is_first = is_token & ~is_second
        elif input_ids is None:
            raise ValueError("Pairs given as `inputs_embeds` need `token_type_ids`, 1 for the second sentence.")
        # CODEPATH: checkpoints made without a tokenizer know no separator
        elif self.config.sep_token_id is None:
            raise ValueError(
                "Pairs without `token_type_ids` are split at their separators, but the config has no `sep_token_id`: "
                "set it to that of the tokenizer (`convert_encoder` does)."
            )
        else:
            is_separator = is_token & (input_ids == self.config.sep_token_id)
            num_before = is_separator.cumsum(dim=1) - is_separator.long()
            is_first = is_token & (num_before == 0)
            is_second = is_token & (num_before >= self.config.num_pair_separators)
            if checks:
                self.check_separators(is_separator)
        if checks and not is_second.any(dim=1).all():
            self.raise_single_sentence(is_second.any(dim=1))

        opens = is_token & (is_token.cumsum(dim=1) == 1)
        members = torch.stack([is_first, is_second | opens], dim=1).flatten(0, 1)  # [2B, N]
        order = order_tokens(members)
        mask = members.gather(1, order)
        if checks:
            order = order[:, : int(mask.sum(dim=1).max())]
            mask = mask[:, : order.shape[1]]
        pair = torch.arange(order.shape[0], device=order.device)[:, None] // 2
        return inputs[pair, order], mask.long()

    def check_separators(self, is_separator: torch.BoolTensor):
        num_separators = is_separator.sum(dim=1)
        expected = self.config.num_pair_separators + 1
        if (num_separators < expected).any():
            self.raise_single_sentence(num_separators >= expected)
        is_unclear = num_separators > expected
        # CODEPATH: checkpoints converted from RoBERTa have two separators side by side between the sentences
        if self.config.num_pair_separators == 2:
            is_unclear |= ~(is_separator[:, 1:] & is_separator[:, :-1]).any(dim=1)
        if is_unclear.any():
            row = int(is_unclear.nonzero()[0])
            raise ValueError(
                f"Row {row} holds {int(num_separators[row])} separator tokens (`sep_token_id` "
                f"{self.config.sep_token_id}) that are not those of one pair, so it cannot be split without doubt. "
                "Remove them from the text, give `token_type_ids`, or encode the two sentences alone and stack them "
                "to the shape (batch_size, 2, seq_len)."
            )

    def raise_single_sentence(self, is_pair: torch.BoolTensor):
        row = int((~is_pair).nonzero()[0])
        raise ValueError(
            f"Row {row} holds only one sentence, but {type(self).__name__} compares two. Encode pairs with "
            "`tokenizer(first, second)`, or embed single sentences with `AutoModel` (`DseModel`)."
        )


__all__ = ["DseForSequenceClassification", "DseModel", "DsePreTrainedModel"]
