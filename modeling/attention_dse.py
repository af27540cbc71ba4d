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
"""Linear attention for any encoder of transformers: an attention and a mask function, registered as `"linformer"`.

`AutoModel.from_pretrained(name, attn_implementation="linformer")` loads an encoder with it. Where the encoder attends
to all tokens, the n tokens of a text attend to k slots (Linformer, [Wang et al., 2020](
https://huggingface.co/papers/2006.04768), equation 7): for each head

    softmax(Q (E K)^T / sqrt(d)) (F V)

where E and F are (k, n). A text of up to k tokens fills the slots one by one, and attention is exact. In a longer text
the first and the last token, the attention sinks of pretrained encoders, have a slot each, and the others share the
k - 2 slots between. A slot counts once, however many tokens it stands for: the encoder was trained on texts of so many
tokens. Where the encoder attends to a window around each token, the window is computed in blocks, exactly. Real tokens
come before padding.

Shapes in comments: B batch (1 without padding), N tokens, K slots, W tokens of the longest slot, H heads, d features
of a head, C tokens of a block, w tokens of a window to either side.
"""

import threading
from collections.abc import Callable
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn
from transformers import AttentionInterface, AttentionMaskInterface
from transformers.integrations.sdpa_attention import repeat_kv, sdpa_attention_forward
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.import_utils import is_torchdynamo_exporting, is_tracing

from .configuration_dse import DseConfig


# Every checkpoint brings its own copy of this file, which must not replace the functions of models that are loaded.
IMPLEMENTATION = "linformer" if __name__ == "hf_dse.modeling.attention_dse" else f"linformer_{__name__}"

# Tokens that attend together in a layer of windows; more would compute more that the mask leaves out.
BLOCK_SIZE = 64

# Arguments of attention functions that change nothing here: rotary positions are in queries and keys, a window is read
# from `LayerAttention`, and the others are about other parts of a model. Any other one would be dropped silently.
HARMLESS = {
    *("sliding_window", "position_ids", "token_type_ids", "deterministic", "num_items_in_batch", "use_cache"),
    *("output_attentions", "output_hidden_states", "output_router_logits", "return_dict"),
}

# The context [B, N, H, d], and the attention weights if they are wanted.
Attended = tuple[torch.Tensor, torch.Tensor | None]


class LayerAttention(NamedTuple):
    """How a layer attends; the attribute `linformer_layer` of its attention module."""

    layer_type: str = "linear_attention"
    num_slots: int = 128
    start: str = "strided"
    window: int = 128
    layer_idx: int = 0
    num_layers: int = 1


class Slots(NamedTuple):
    """Which tokens fill the k rows that keys and values are projected to."""

    tokens: torch.Tensor  # [B, K] the one token of each slot, or [B, K, W] all of them
    bias: torch.Tensor | None  # [B, 1, 1, K] 0, and the lowest float where a slot is empty; None if all are filled
    in_slot: torch.Tensor | None = None  # [B, K, W] False where a slot has fewer than W tokens


# The two functions that transformers calls

PADDED_LEFT = "Linear attention needs padding on the right: set `tokenizer.padding_side = 'right'`."

# Counts the layers that have attended in the forward pass of this thread, and so numbers those without a number.
CALLS = threading.local()


def linformer_mask(
    batch_size: int,
    q_length: int,
    kv_length: int,
    attention_mask: torch.Tensor | None = None,
    use_vmap: bool = False,
    **kwargs: Any,
) -> torch.Tensor | None:
    """
    The mask of the real tokens, `(batch_size, 1, 1, kv_length)`, never n x n; `None` without padding. A
    `ValueError` for keys of another text, a mask function of the model (`use_vmap`), and padding on the left.
    """
    CALLS.count = 0
    if q_length != kv_length:
        raise ValueError(f"Linear attention is for encoders: {q_length} queries have {kv_length} keys.")
    if use_vmap:
        raise ValueError(
            "Linear attention cannot keep a mask function, such as that of packed texts or of the chains of ESMC: "
            'pass one text per row, or load the model with `attn_implementation="sdpa"`.'
        )
    if attention_mask is None:
        return None
    is_token = attention_mask.bool()
    if is_tracing(is_token):
        # In the graph, unlike a question about a value. Slices of n - 1 tokens would refuse texts of two.
        is_first = torch.arange(kv_length, device=is_token.device) < is_token.sum(dim=1, keepdim=True)
        torch._assert_async((is_token == is_first).all(), PADDED_LEFT)
        return is_token[:, None, None]
    lengths, order = read_padding(is_token)
    if order is not None:
        raise ValueError(PADDED_LEFT)
    return None if lengths is None else is_token[:, None, None]


def linformer_attention_forward(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    attention_mask: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
    **kwargs: Any,
) -> Attended:
    """
    The attention of one layer.

    Args:
        module (`nn.Module`):
            The attention module. Its `linformer_layer`, a [`LayerAttention`], says how it attends. Without it, a layer
            that has a window keeps it, and the others have `config.linformer_length` slots, by default 128.
        query (`torch.Tensor` of shape `(batch_size, num_heads, seq_len, head_dim)`):
            Queries, rotated where the encoder has rotary positions.
        key, value (`torch.Tensor` of shape `(batch_size, num_key_value_heads, seq_len, head_dim)`):
            Keys and values.
        attention_mask (`torch.Tensor` of shape `(batch_size, 1, 1, seq_len)`, *optional*):
            True for real tokens, which come first.
        scaling (`float`, *optional*):
            Factor of the logits. Defaults to `head_dim ** -0.5`.
        dropout (`float`, *optional*, defaults to 0.0):
            Dropout of the attention weights.

    Returns:
        `tuple`: the context `(batch_size, seq_len, num_heads, head_dim)`, and the attention weights if
        `output_attentions` asks for them, `(batch_size, num_heads, seq_len, k)`.

    Raises:
        `ValueError`: for a mask of n x n, a causal layer, and each argument that would change the attention and that
        slots cannot honour, such as `position_bias` (T5), `softcap` (T5Gemma) or `s_aux` (attention sinks).
    """
    if attention_mask is not None and (attention_mask.shape[-2] != 1 or attention_mask.dtype != torch.bool):
        raise ValueError(
            "Linear attention needs the boolean mask of the real tokens, (batch_size, 1, 1, seq_len): n x n masks "
            f"have no meaning after projection to slots. Got {attention_mask.dtype}, {tuple(attention_mask.shape)}."
        )
    name = type(module).__name__
    if kwargs.pop("is_causal", False) or getattr(module, "is_causal", False):
        raise ValueError(f"Linear attention is for encoders, and {name} is causal: it can teach.")
    # Nothing is asked for by None or False.
    given = {key for key, value in kwargs.items() if value is not None and value is not False}
    if dropped := sorted(given - HARMLESS):
        raise ValueError(
            f"Linear attention cannot honour `{'`, `'.join(dropped)}` of {name}: load the model with "
            '`attn_implementation="sdpa"` or `"eager"`. It can teach.'
        )
    layer = read_layer(module, kwargs.get("sliding_window"))
    function = attend_eagerly if wants_weights(module, kwargs) else attend_fast
    attend = partial(function, module, scaling=scaling, dropout=dropout)
    inputs = LayerInputs(query, key, value, read_lengths(attention_mask))
    attended = LAYER_TYPES[layer.layer_type](inputs, layer, getattr(module, "linformer", None), attend)
    record(module, inputs, attended[0])
    return attended


def attend_rows_first(
    module: Any, hidden_states: torch.Tensor, attention_mask: torch.Tensor | None = None, **kwargs: Any
) -> tuple[torch.Tensor, torch.Tensor | None]:
    """
    The forward pass of a layer of BERT, where choosing or averaging tokens commutes with W_K and W_V: they get k rows,
    E X, instead of all tokens.
    """
    layer = module.linformer_layer
    is_recorded = getattr(module, "linformer_record", None) is not None
    if is_recorded or fits(hidden_states.shape[1], layer.num_slots):
        return type(module).forward(module, hidden_states, attention_mask, **kwargs)
    linformer, lengths = getattr(module, "linformer", None), read_lengths(attention_mask)
    states = hidden_states[:, None]
    key_rows, value_rows, bias = project(LayerInputs(states, states, states, lengths), layer, linformer)
    key, value = module.key(key_rows[:, 0]), module.value(value_rows[:, 0])
    if linformer is not None:
        # E (X W + b) has the bias once for each row sum of E, which is the projection of ones.
        ones = torch.ones_like(states[..., :1])
        key_sums, value_sums, _ = project(LayerInputs(ones, ones, ones, lengths), layer, linformer)
        key = key + (key_sums[:, 0] - 1) * module.key.bias
        value = value + (value_sums[:, 0] - 1) * module.value.bias
    query, key, value = (
        states.unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)
        for states in (module.query(hidden_states), key, value)
    )
    function = attend_eagerly if wants_weights(module, kwargs) else attend_fast
    dropout = module.dropout.p if module.training else 0.0
    context, weights = function(module, query, key, value, bias, scaling=module.scaling, dropout=dropout)
    return context.flatten(2), weights


def attend_with_relative_bias(
    module: Any,
    hidden_states: torch.Tensor,
    attention_mask: torch.Tensor | None = None,
    position_bias: Any = None,
    output_attentions: bool = False,
    **kwargs: Any,
) -> tuple[Any, ...]:
    """
    The forward pass of a layer of MPNet, whose logits have a bias by the distance of two tokens: it is looked up for
    the chosen tokens, so that there is no n x n table. `position_bias` is the encoder, which has them by distance.
    """
    layer, num_tokens = module.linformer_layer, hidden_states.shape[1]
    query, key, value = (
        project_of(hidden_states).unflatten(-1, (module.num_attention_heads, -1)).transpose(1, 2)
        for project_of in (module.q, module.k, module.v)
    )
    inputs = LayerInputs(query, key, value, read_lengths(attention_mask))
    places = torch.arange(num_tokens, device=query.device)
    if layer.layer_type == "full_attention" or fits(num_tokens, layer.num_slots):
        tokens, bias = places[None], token_bias(inputs, mask_of(count_tokens(inputs), num_tokens))
    else:
        slots = stride_slots(layer, torch.sym_min(layer.num_slots, num_tokens), inputs)
        tokens, bias = slots.tokens, slots.bias
        key, value = take_tokens(key, tokens), take_tokens(value, tokens)
    buckets = position_bias.relative_position_bucket(tokens[:, None] - places[:, None])  # [B, N, K]
    relative = position_bias.relative_attention_bias(buckets).movedim(-1, 1).to(query.dtype)  # [B, H, N, K]
    function = attend_eagerly if output_attentions else attend_fast
    bias = relative if bias is None else relative + bias
    dropout = module.dropout.p if module.training else 0.0
    context, weights = function(module, query, key, value, bias, dropout=dropout)
    record(module, inputs, context)
    context = module.o(context.flatten(2))
    return (context, weights) if output_attentions else (context,)


def read_layer(module: Any, sliding_window: int | None) -> LayerAttention:
    """
    How a layer attends. In a bare model: as its source where that is local, otherwise to slots. Modules without a
    number get it when they attend for the first time; those that serve several layers (ALBERT), at each call.
    """
    config, layer = module.config, getattr(module, "linformer_layer", None)
    CALLS.count = getattr(CALLS, "count", 0) + 1
    number = (CALLS.count - 1) % config.num_hidden_layers
    if layer is None:
        num_slots = getattr(config, "linformer_length", None) or 128
        if num_slots < 3:
            raise ValueError(
                "`linformer_length` must be at least 3, because the first and the last token keep slots of their own, "
                f"got {num_slots}."
            )
        if (layer_idx := getattr(module, "layer_idx", None)) is None:
            layer_idx = module.linformer_idx = getattr(module, "linformer_idx", number)
        # transformers passes a window to flash attention, whose bounds are exclusive.
        kind, window = ("linear_attention", 0) if sliding_window is None else ("sliding_attention", sliding_window - 1)
        layer = LayerAttention(kind, num_slots, "strided", window, layer_idx, config.num_hidden_layers)
    return layer._replace(layer_idx=number) if hasattr(config, "num_hidden_groups") else layer


def read_lengths(attention_mask: torch.Tensor | None) -> torch.Tensor | None:
    """Real tokens of each text [B, 1], by a mask [B, 1, 1, N]."""
    return None if attention_mask is None else attention_mask[:, 0, 0].sum(dim=-1, keepdim=True)


def record(module: Any, inputs: "LayerInputs", context: torch.Tensor) -> None:
    """Hands what attention gets and returns to the list `linformer_record` of a module, if there is one."""
    if (entries := getattr(module, "linformer_record", None)) is not None:
        entries.append((inputs, context))


def wants_weights(module: nn.Module, kwargs: dict[str, Any]) -> bool:
    return bool(kwargs.get("output_attentions", getattr(module.config, "output_attentions", False)))


# Attention by the kernels of torch, which give no weights.
attend_fast = partial(sdpa_attention_forward, is_causal=False)


def attend_eagerly(
    module: nn.Module,
    query: torch.Tensor,
    key: torch.Tensor,
    value: torch.Tensor,
    bias: torch.Tensor | None,
    scaling: float | None = None,
    dropout: float = 0.0,
) -> Attended:
    """The same attention with its weights, `(batch_size, num_heads, seq_len, k)`."""
    groups = query.shape[1] // key.shape[1]
    key, value = repeat_kv(key, groups), repeat_kv(value, groups)
    weights = query @ key.transpose(2, 3) * (query.shape[-1] ** -0.5 if scaling is None else scaling)
    weights = (weights if bias is None else weights + bias).softmax(dim=-1)
    context = nn.functional.dropout(weights, p=dropout, training=module.training) @ value
    return context.transpose(1, 2).contiguous(), weights


# The types of layers


class LayerInputs(NamedTuple):
    """Inputs of an attention function: queries, keys, values [B, H, N, d], and the real tokens of each text [B, 1]."""

    query: torch.Tensor
    key: torch.Tensor
    value: torch.Tensor
    lengths: torch.Tensor | None

    @property
    def num_tokens(self) -> int:
        return self.key.shape[2]


def full_attention(inputs: LayerInputs, layer: LayerAttention, linformer: Any, attend: Callable) -> Attended:
    """Every token attends to all others."""
    bias = None if inputs.lengths is None else token_bias(inputs, mask_of(inputs.lengths, inputs.num_tokens))
    return attend(*inputs[:3], bias)


def linear_attention(inputs: LayerInputs, layer: LayerAttention, linformer: Any, attend: Callable) -> Attended:
    """Every token attends to k slots."""
    if linformer is None and fits(inputs.num_tokens, layer.num_slots):
        return full_attention(inputs, layer, linformer, attend)
    key, value, bias = project(inputs, layer, linformer)
    return attend(inputs.query, key, value, bias)


def sliding_attention(inputs: LayerInputs, layer: LayerAttention, linformer: Any, attend: Callable) -> Attended:
    """Every token attends to the tokens at most `window` before and after it."""
    if fits(inputs.num_tokens, layer.window + 1):
        return full_attention(inputs, layer, linformer, attend)
    return attend_in_blocks(inputs, max(BLOCK_SIZE, layer.window), layer.window, None, attend)


def sliding_linear_attention(inputs: LayerInputs, layer: LayerAttention, linformer: Any, attend: Callable) -> Attended:
    """Every token attends to the tokens around it and to k slots of the text, in one softmax."""
    if linformer is None and fits(inputs.num_tokens, layer.num_slots):
        return full_attention(inputs, layer, linformer, attend)
    key, value, bias = project(inputs, layer, linformer)
    lengths = count_tokens(inputs)
    # A text of up to k tokens is in its slots, token by token.
    near = inputs._replace(lengths=torch.where(lengths > layer.num_slots, lengths, 0))
    extra = key, value, key.new_zeros(1, 1, key.shape[2]) if bias is None else bias[:, 0]
    return attend_in_blocks(near, max(BLOCK_SIZE, layer.window), layer.window, extra, attend)


def chunked_attention(inputs: LayerInputs, layer: LayerAttention, linformer: Any, attend: Callable) -> Attended:
    """Every token attends to its chunk of `window` tokens, and to the first and the last token of the text."""
    num_tokens, size = inputs.num_tokens, layer.window
    if fits(num_tokens, size):
        return full_attention(inputs, layer, linformer, attend)
    # An exported graph is for all lengths: short texts need no whole chunk.
    size = torch.sym_min(size, num_tokens)
    lengths = count_tokens(inputs)
    ends = torch.cat([torch.zeros_like(lengths), (lengths - 1).clamp(min=0)], dim=1)  # [B, 2]
    chunks = torch.arange((num_tokens + size - 1) // size, device=lengths.device)
    # In the chunk that they are in they are keys already.
    is_apart = ends[:, None] // size != chunks[:, None]  # [B, N / C, 2]
    extra = (take_tokens(inputs.key, ends), take_tokens(inputs.value, ends), mask_bias(is_apart, inputs.key.dtype))
    return attend_in_blocks(inputs, size, 0, extra, attend)


LAYER_TYPES: dict[str, Callable[..., Attended]] = {
    "full_attention": full_attention,
    "linear_attention": linear_attention,
    "sliding_attention": sliding_attention,
    "sliding_linear_attention": sliding_linear_attention,
    "chunked_attention": chunked_attention,
}


# Blocks


def attend_in_blocks(
    inputs: LayerInputs, size: int, window: int, extra: tuple[torch.Tensor, ...] | None, attend: Callable
) -> Attended:
    """
    Blocks of C tokens attend to the tokens at most `window` before and after each, or without a window to their own
    block. `extra`: keys and values that all blocks have beside, [B, H, K, d], and their bias, [B, N / C or 1, K].
    """
    batch_size, num_heads, num_tokens, head_dim = inputs.query.shape
    lengths = count_tokens(inputs)
    query, key, value = (cut_blocks(states, size) for states in inputs[:3])  # [B, H, N / C, C, d]
    num_blocks = query.shape[2]
    tokens = torch.arange(num_blocks, device=key.device)[:, None] * size
    tokens = tokens + torch.arange(-window, size + window, device=key.device)  # [N / C, w + C + w]
    is_open = ((tokens >= 0) & (tokens < lengths[..., None]))[:, :, None]  # [B, N / C, 1, w + C + w]
    if window:
        key, value = add_neighbours(key, window), add_neighbours(value, window)
        rows = torch.arange(window, window + size, device=key.device)[:, None]
        is_near = (rows - torch.arange(size + 2 * window, device=key.device)).abs() <= window
        is_open = is_open & is_near  # [B, N / C, C, w + C + w]
    bias = mask_bias(is_open, query.dtype)
    query, key, value = (states.transpose(1, 2).flatten(0, 1) for states in (query, key, value))
    if extra is not None:
        key = torch.cat([extra[0].repeat_interleave(num_blocks, dim=0), key], dim=2)
        value = torch.cat([extra[1].repeat_interleave(num_blocks, dim=0), value], dim=2)
        bias = torch.cat([extra[2][:, :, None].expand(*bias.shape[:3], -1), bias], dim=3)
    bias = bias.expand(batch_size, *bias.shape[1:]).flatten(0, 1)[:, None]
    context, weights = attend(query, key, value, bias)  # [B * N / C, C, H, d]
    context = context.reshape(batch_size, -1, num_heads, head_dim)[:, :num_tokens]
    if weights is not None:
        weights = weights.unflatten(0, (batch_size, -1)).transpose(1, 2).flatten(2, 3)[:, :, :num_tokens]
    return context, weights


def cut_blocks(states: torch.Tensor, size: int) -> torch.Tensor:
    """Tokens [B, H, N, d] as blocks [B, H, N / C, C, d]; the last is filled up."""
    states = nn.functional.pad(states, (0, 0, 0, -states.shape[2] % size))
    return states.reshape(*states.shape[:2], -1, size, states.shape[3])


def add_neighbours(blocks: torch.Tensor, window: int) -> torch.Tensor:
    """Adds the last tokens of the block before and the first of the block after: [B, H, N / C, w + C + w, d]."""
    before = nn.functional.pad(blocks[:, :, :-1, -window:], (0, 0, 0, 0, 1, 0))
    after = nn.functional.pad(blocks[:, :, 1:, :window], (0, 0, 0, 0, 0, 1))
    return torch.cat([before, blocks, after], dim=3)


# Slots


def project(inputs: LayerInputs, layer: LayerAttention, linformer: Any) -> tuple:
    """Keys E K and values F V of the slots, both [B, H, K, d], and what is added to their logits, [B, 1, 1, K]."""
    _, key, value, lengths = inputs
    # An exported graph is for all lengths: it must not be told which of the two is less.
    num_slots = torch.sym_min(layer.num_slots, inputs.num_tokens)
    make_slots, fill = STARTS[layer.start]
    slots = make_slots(layer, num_slots, inputs)

    def project_states(states: torch.Tensor, of_values: bool) -> torch.Tensor:
        rows = fill(states, slots)
        if linformer is None:
            return rows
        if lengths is not None:
            states = states * mask_of(lengths, inputs.num_tokens)[:, None, :, None]
        return rows + linformer(states, num_slots, of_values)

    key_slots = project_states(key, False)
    # Before W_K and W_V both have the same rows, if they share E.
    is_same = value is key and (linformer is None or linformer.value is None)
    return key_slots, key_slots if is_same else project_states(value, True), slots.bias


def stride_slots(layer: LayerAttention, num_slots: int, inputs: LayerInputs) -> Slots:
    """
    Evenly spaced tokens between the ends. Layer i of L selects those at (2i + 1) / 2L of their segments, so that
    together the layers see more of a long text.
    """
    most, parts = layer.num_slots, 2 * layer.num_layers
    lengths = count_tokens(inputs)
    places = torch.arange(num_slots, device=lengths.device)
    inner = (places - 1).clamp(min=0)
    tokens = 1 + (inner * parts + 2 * layer.layer_idx + 1) * (lengths - 2) // (parts * (most - 2))
    is_own = (lengths <= most) | (places == 0)
    return Slots(torch.where(is_own, places, tokens.minimum(lengths - 1)), token_bias(inputs, places < lengths))


def cut_slots(layer: LayerAttention, num_slots: int, inputs: LayerInputs) -> Slots:
    """The m tokens between the ends in k - 2 segments: token j of them goes to floor(j (k - 2) / m)."""
    most, num_tokens = layer.num_slots, inputs.num_tokens
    lengths = count_tokens(inputs)
    edges = torch.arange(num_slots + 1, device=lengths.device)[None]
    # Segment i starts at ceil(i m / (k - 2)).
    starts = 1 + ((edges - 1).clamp(min=0) * (lengths - 2) + most - 3) // (most - 2)
    starts = torch.where((lengths <= most) | (edges == 0), edges, starts.minimum(lengths))  # [B, K + 1]
    # An empty slot holds a token, too, which nobody looks at.
    sizes = starts.diff(dim=1).clamp(min=1)
    # One token per slot is a length of its own to an exported graph.
    width = torch.sym_max(2 if is_torchdynamo_exporting() else 1, (num_tokens + most - 5) // (most - 2))
    steps = torch.arange(width, device=lengths.device)
    bias = token_bias(inputs, edges[:, :-1] < lengths)
    tokens = (starts[:, :-1, None] + steps).clamp(max=num_tokens - 1)
    return Slots(tokens, bias, steps < sizes[..., None])


def fill_with_tokens(states: torch.Tensor, slots: Slots) -> torch.Tensor:
    """Row i of E is 1 at the token of slot i."""
    return take_tokens(states, slots.tokens)


def fill_with_mean(states: torch.Tensor, slots: Slots) -> torch.Tensor:
    """Row i of E is 1 / c at the c tokens of slot i."""
    in_slot: Any = slots.in_slot
    tokens = take_tokens(states, slots.tokens) * in_slot[:, None, ..., None]  # [B, H, K, W, d]
    return tokens.sum(dim=3) / in_slot.sum(dim=-1)[:, None, :, None]


STARTS: dict[str, tuple[Callable[..., Slots], Callable]] = {
    "strided": (stride_slots, fill_with_tokens),
    "mean": (cut_slots, fill_with_mean),
}


class DseLinformer(nn.Module):
    """The learned parts of E and F: a weight for each slot and token, `(groups, k, max_position_embeddings)`."""

    def __init__(self, config: DseConfig, num_slots: int, num_heads: int):
        super().__init__()
        # CODEPATH: checkpoints converted with `linformer_sharing="none"` have an E and an F for each head
        shape: Any = num_heads if config.linformer_sharing == "none" else 1, num_slots, config.max_position_embeddings
        self.key = nn.Parameter(torch.empty(shape))
        shares_key_value = config.linformer_sharing in ("key_value", "layerwise")
        self.value = None if shares_key_value else nn.Parameter(torch.empty(shape))

    def forward(self, states: torch.Tensor, num_slots: int, of_values: bool = False) -> torch.Tensor:
        """E K [B, H, K, d] of keys, or F V of values, [B, H, N, d] with zeros for padding."""
        # F where values have their own, otherwise E.
        weight: torch.Tensor = self.value if of_values and self.value is not None else self.key
        num_tokens = states.shape[2]
        if not is_torchdynamo_exporting():
            return torch.matmul(weight[:, :num_slots, :num_tokens], states)
        # A slice is contiguous for some lengths only, so the graph would be for these or for all others.
        weight = weight.index_select(1, torch.arange(num_slots, device=weight.device))
        return torch.matmul(weight.index_select(2, torch.arange(num_tokens, device=weight.device)), states)


# Padding


class DseOrder(NamedTuple):
    """The order in which the real tokens of each text come first."""

    tokens: torch.Tensor  # [B, N] the token at each place of this order
    places: torch.Tensor  # [B, N] the place of each token in it


def read_shape(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Size:
    """Shape of the tokens of the input."""
    if (input_ids is None) == (inputs_embeds is None):
        raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")
    return input_ids.shape if inputs_embeds is None else inputs_embeds.shape[:-1]  # type: ignore[union-attr]


def read_padding(attention_mask: torch.Tensor | None) -> tuple[torch.Tensor | None, DseOrder | None]:
    """
    Real tokens of each text [B, 1], `None` without padding, and the order that puts them first, `None` where they are
    first already. A traced graph is for all masks, so it has both.
    """
    if attention_mask is None:
        return None, None
    is_token = attention_mask.bool()
    lengths = is_token.sum(dim=1, keepdim=True)
    if is_tracing(attention_mask):
        return lengths, order_tokens(is_token)
    # One transfer from the device for all questions.
    is_first = (is_token == mask_of(lengths, is_token.shape[1])).all()
    is_mask = (attention_mask == is_token).all()
    all_real, all_first, is_mask = torch.stack([is_token.all(), is_first, is_mask]).tolist()
    if not is_mask:
        raise ValueError("`attention_mask` must be 1 for tokens and 0 for padding, and it has other values.")
    return None if all_real else lengths, None if all_first else order_tokens(is_token)


def order_tokens(is_token: torch.Tensor) -> DseOrder:
    """The order [B, N] of the tokens in which the real ones come first and nothing else changes."""
    # Not a sort: the sorts of ONNX keep no order among equals.
    num_before = is_token.cumsum(dim=1) - is_token.long()
    positions = torch.arange(is_token.shape[1], device=is_token.device).expand(is_token.shape)
    places = torch.where(is_token, num_before, is_token.sum(dim=1, keepdim=True) + positions - num_before)
    return DseOrder(torch.zeros_like(places).scatter(1, places, positions), places)


def restore_order(
    outputs: BaseModelOutputWithPooling, order: DseOrder, layer_types: list[str]
) -> BaseModelOutputWithPooling:
    """Puts token states and attention weights, whose real tokens come first, back into the order of the input."""
    outputs.last_hidden_state = take_rows(outputs.last_hidden_state, order.places)  # type: ignore[arg-type]
    if outputs.hidden_states is not None:
        # Some layers may not be wanted.
        outputs.hidden_states = tuple(
            None if states is None else take_rows(states, order.places) for states in outputs.hidden_states
        )
    if outputs.attentions is not None:
        # Slots and chunks count real tokens, so only full attention has keys that stand for tokens of the input.
        axes = [(2, 3) if kind == "full_attention" else (2,) for kind in layer_types]
        outputs.attentions = tuple(
            restore_axes(weights, order, of_layer) for weights, of_layer in zip(outputs.attentions, axes, strict=False)
        )
    return outputs


def restore_axes(weights: torch.Tensor, order: DseOrder, axes: tuple[int, ...]) -> torch.Tensor:
    for axis in axes:
        weights = take_rows(weights.transpose(1, axis), order.places).transpose(1, axis)
    return weights


def take_rows(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Picks tokens [B, ...] of states [B, N, *]; returns [B, ..., *]."""
    batch = torch.arange(states.shape[0], device=states.device)
    return states[batch.view(-1, *[1] * (tokens.dim() - 1)), tokens]


# Small tools


def take_tokens(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Picks tokens [B, ...] of states [B, H, N, d]; returns [B, H, ..., d]."""
    if tokens.shape[0] == 1:
        return states.index_select(2, tokens.flatten()).unflatten(2, tokens.shape[1:])
    return take_rows(states.transpose(1, 2), tokens).movedim(-2, 1)


def count_tokens(inputs: LayerInputs) -> torch.Tensor:
    """Real tokens of each text [B, 1]; without padding all N tokens, [1, 1]."""
    if inputs.lengths is not None:
        return inputs.lengths
    # Summed, because the compiler fails on slots that it knows to be a function of N.
    return torch.ones((1, inputs.num_tokens), dtype=torch.long, device=inputs.key.device).sum(dim=1, keepdim=True)


def mask_of(lengths: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """The mask [B, N] of texts whose real tokens come first."""
    return torch.arange(num_tokens, device=lengths.device) < lengths


def token_bias(inputs: LayerInputs, is_open: torch.Tensor) -> torch.Tensor | None:
    """The bias [B, 1, 1, K] of keys [B, K] that stand for tokens; none without padding, where all do."""
    return None if inputs.lengths is None else mask_bias(is_open, inputs.key.dtype)[:, None, None]


def mask_bias(is_open: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """0 where attention is open, the lowest float where it is not."""
    return torch.zeros(is_open.shape, dtype=dtype, device=is_open.device).masked_fill(~is_open, torch.finfo(dtype).min)


def fits(num_tokens: int, size: int) -> bool:
    """Whether texts are so short that attention is exact. Never in an exported graph, which is for all lengths."""
    return not is_torchdynamo_exporting() and num_tokens <= size


AttentionInterface.register(IMPLEMENTATION, linformer_attention_forward)
AttentionMaskInterface.register(IMPLEMENTATION, linformer_mask)
