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
"""Where tokens go: the real ones first, then into the slots or chunks of each layer. There are no weights here.

All of it is computed once a forward, before the first layer. Shapes in comments: B batch (1 without padding), N
tokens, K slots, W tokens of the longest slot, C tokens of a chunk, L layers.
"""

from collections.abc import Callable
from typing import Any, NamedTuple

import torch
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.utils.import_utils import is_torchdynamo_exporting, is_tracing

from .configuration_dse import DseConfig


class DseOrder(NamedTuple):
    """The order in which the real tokens of each text come first."""

    tokens: torch.Tensor  # [B, N] the token at each place of this order
    places: torch.Tensor  # [B, N] the place of each token in it


class DseSlots(NamedTuple):
    """Which tokens fill the k rows that keys and values are projected to."""

    num_slots: int  # slots in use, min(k, N)
    segments: torch.Tensor | Any = None  # [B, K, W] the tokens of each slot
    in_segment: torch.Tensor | Any = None  # [B, K, W, 1] False where a slot has fewer than W tokens
    sizes: torch.Tensor | Any = None  # [B, K] number of tokens of each slot
    selected: torch.Tensor | Any = None  # [L, B, K] the one token of each slot, in each layer


class DseLayout(NamedTuple):
    """Padding, slots and chunks of the texts of a batch, whose real tokens come first."""

    bias: torch.Tensor | None  # added to attention logits: [B, 1, 1, N], for slots [B, 1, 1, K]
    is_token: torch.Tensor | None = None  # [B, N, 1] the mask m; None where there is no padding
    slots: DseSlots | Any = None  # None where every token has a slot of its own
    chunk_size: int | None = None  # None where all tokens are in one chunk; bias is [B * N / C, 1, 1, 2 + C] otherwise
    ends: torch.Tensor | None = None  # [B, 2] the first and the last token of each text, keys of all of its chunks


# Padding


def read_shape(input_ids: torch.Tensor | None, inputs_embeds: torch.Tensor | None) -> torch.Size:
    """Shape of the tokens of the input."""
    if input_ids is not None and inputs_embeds is None:
        return input_ids.shape
    if inputs_embeds is not None and input_ids is None:
        return inputs_embeds.shape[:-1]
    raise ValueError("Give exactly one of `input_ids` and `inputs_embeds`.")


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


def take_tokens(states: torch.Tensor, tokens: torch.Tensor) -> torch.Tensor:
    """Picks tokens [B, ...] of states [B, N, *]; returns [B, ..., *]."""
    batch = torch.arange(states.shape[0], device=states.device)
    return states[batch.view(-1, *[1] * (tokens.dim() - 1)), tokens]


def restore_order(
    outputs: BaseModelOutputWithPooling, order: DseOrder, layer_types: list[str]
) -> BaseModelOutputWithPooling:
    """Puts token states and attention weights, whose real tokens come first, back into the order of the input."""
    if outputs.last_hidden_state is not None:
        outputs.last_hidden_state = take_tokens(outputs.last_hidden_state, order.places)
    if outputs.hidden_states is not None:
        # Some layers may not be wanted.
        outputs.hidden_states = tuple(
            None if states is None else take_tokens(states, order.places) for states in outputs.hidden_states
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
        weights = take_tokens(weights.transpose(1, axis), order.places).transpose(1, axis)
    return weights


def count_tokens(states: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
    """Real tokens of each text [B, 1]; without padding all N tokens of the states, [1, 1]."""
    if lengths is not None:
        return lengths
    return torch.full((1, 1), states.shape[1], dtype=torch.long, device=states.device)


def mask_of(lengths: torch.Tensor, num_tokens: int) -> torch.Tensor:
    """The mask [B, N] of texts whose real tokens come first."""
    return torch.arange(num_tokens, device=lengths.device) < lengths


def mask_bias(is_open: torch.Tensor, dtype: torch.dtype) -> torch.Tensor:
    """The bias of attention logits, [B, 1, 1, N]: 0 where they count, the lowest float where they do not."""
    bias = torch.zeros(is_open.shape, dtype=dtype, device=is_open.device)
    return bias.masked_fill(~is_open, torch.finfo(dtype).min)[:, None, None]


# The types of layers


def lay_out_full(
    config: DseConfig, num_slots: int, hidden_states: torch.Tensor, lengths: torch.Tensor | None
) -> DseLayout:
    """Every token attends to all others: only padding is left out."""
    if lengths is None:
        return DseLayout(None)
    is_token = mask_of(lengths, hidden_states.shape[1])
    return DseLayout(mask_bias(is_token, hidden_states.dtype), is_token[..., None])


def lay_out_chunks(
    config: DseConfig, num_slots: int, hidden_states: torch.Tensor, lengths: torch.Tensor | None
) -> DseLayout:
    """
    Every token attends to its chunk of C tokens, and to the attention sinks of pretrained encoders, the first and the
    last token of the text. The last chunk is filled up with padding.
    """
    batch_size, num_tokens = hidden_states.shape[:2]
    if fits(num_tokens, config.attention_chunk_size):
        return lay_out_full(config, num_slots, hidden_states, lengths)
    # An exported graph is for all lengths: short texts need no whole chunk.
    chunk_size = torch.sym_min(config.attention_chunk_size, num_tokens)
    lengths = count_tokens(hidden_states, lengths).expand(batch_size, -1)
    ends = torch.cat([torch.zeros_like(lengths), (lengths - 1).clamp(min=0)], dim=1)
    tokens = torch.arange(num_tokens + -num_tokens % chunk_size, device=lengths.device).view(1, -1, chunk_size)
    chunks = tokens[..., 0] // chunk_size
    # In the chunk that they are in they are keys already.
    is_apart = ends[:, None] // chunk_size != chunks[..., None]
    is_open = torch.cat([is_apart, tokens < lengths[..., None]], dim=2).flatten(0, 1)
    return DseLayout(mask_bias(is_open, hidden_states.dtype), chunk_size=chunk_size, ends=ends)


def lay_out_slots(
    config: DseConfig, num_slots: int, hidden_states: torch.Tensor, lengths: torch.Tensor | None
) -> DseLayout:
    """
    Every token attends to k slots. A text of up to k tokens has one of them in each slot. In a longer text the first
    and the last token, the attention sinks of pretrained encoders, have a slot each, and the others share the k - 2
    slots between.
    """
    num_tokens, dtype = hidden_states.shape[1], hidden_states.dtype
    if not config.is_projection_learned and fits(num_tokens, num_slots):
        return lay_out_full(config, num_slots, hidden_states, lengths)
    is_token = None if lengths is None else mask_of(lengths, num_tokens)[..., None]
    kinds = {config.linformer_projection, config.linformer_start}
    if kinds == {"learned", "random"}:
        # A random E mixes all tokens into all slots, however few they are.
        return DseLayout(None, is_token, DseSlots(num_slots))

    lengths = count_tokens(hidden_states, lengths)
    # An exported graph is for all lengths: it must not be told which of the two is less.
    slots = DseSlots(torch.sym_min(num_slots, num_tokens))
    is_open = mask_of(lengths, slots.num_slots)
    bias = mask_bias(is_open, dtype)
    if kinds & {"mean", "max", "conv"}:
        slots = cut_segments(slots, lengths, num_slots, num_tokens)
    # A slot that stands for c tokens weighs as much as c of them (Bolya et al., 2022: proportional attention).
    wide = torch.promote_types(dtype, torch.float32)
    if kinds & {"mean", "max"}:
        bias = bias + slots.sizes.to(wide).log().to(dtype)[:, None, None]
    if "strided" in kinds:
        slots = select_tokens(slots, lengths, num_slots, config.num_hidden_layers)
        share = (lengths - 2).to(wide) / (num_slots - 2)
        places = torch.arange(slots.num_slots, device=lengths.device)
        is_inner = (lengths > num_slots) & (places > 0) & (places < num_slots - 1)
        bias = bias + torch.where(is_inner, share, 1.0).log().to(dtype)[:, None, None]
    return DseLayout(bias, is_token, slots)


def cut_segments(slots: DseSlots, lengths: torch.Tensor, num_slots: int, num_tokens: int) -> DseSlots:
    """Cuts the m tokens between the ends into k - 2 segments: token j of them goes to floor(j (k - 2) / m)."""
    edges = torch.arange(slots.num_slots + 1, device=lengths.device)[None]
    # Segment i starts at ceil(i m / (k - 2)).
    starts = 1 + ((edges - 1).clamp(min=0) * (lengths - 2) + num_slots - 3) // (num_slots - 2)
    starts = torch.where((lengths <= num_slots) | (edges == 0), edges, starts.minimum(lengths))  # [B, K + 1]
    # A closed slot holds a token too, which nobody looks at.
    sizes = starts.diff(dim=1).clamp(min=1)
    # One token a slot is a length of its own to an exported graph.
    width = torch.sym_max(2 if is_torchdynamo_exporting() else 1, -(-(num_tokens - 2) // (num_slots - 2)))
    steps = torch.arange(width, device=lengths.device)
    tokens = (starts[:, :-1, None] + steps).clamp(max=num_tokens - 1)
    return slots._replace(segments=tokens, in_segment=(steps < sizes[..., None])[..., None], sizes=sizes)


def select_tokens(slots: DseSlots, lengths: torch.Tensor, num_slots: int, num_layers: int) -> DseSlots:
    """
    Selects evenly spaced tokens between the ends. Layer i of L selects those at (2i + 1) / 2L of their segments, so
    that together the layers see more of a long text.
    """
    places = torch.arange(slots.num_slots, device=lengths.device)
    inner = (places - 1).clamp(min=0)
    offsets = torch.arange(1, 2 * num_layers, 2, device=lengths.device)[:, None, None]  # [L, 1, 1]
    tokens = 1 + (inner * 2 * num_layers + offsets) * (lengths - 2) // (2 * num_layers * (num_slots - 2))
    is_own = (lengths <= num_slots) | (places == 0)
    return slots._replace(selected=torch.where(is_own, places, tokens.minimum(lengths - 1)))


def fits(num_tokens: int, size: int) -> bool:
    """Whether texts are so short that attention is exact. Never in an exported graph, which is for all lengths."""
    return not is_torchdynamo_exporting() and num_tokens <= size


LAYOUTS: dict[str, Callable[..., DseLayout]] = {
    "linear_attention": lay_out_slots,
    "chunked_attention": lay_out_chunks,
    "full_attention": lay_out_full,
}


def lay_out(config: DseConfig, hidden_states: torch.Tensor, lengths: torch.Tensor | None) -> list[DseLayout]:
    """
    The layout of each layer; layers of the same type and projected length share one.

    Args:
        config ([`DseConfig`]):
            The model.
        hidden_states (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            States of texts whose real tokens come first; gives shape, device and precision.
        lengths (`torch.Tensor` of shape `(batch_size, 1)`, *optional*):
            Real tokens of each text; without it there is no padding.

    Returns:
        `list[DseLayout]`: one for each layer.
    """
    kinds = list(zip(config.layer_types or [], config.projected_lengths, strict=True))
    layouts = {kind: LAYOUTS[kind[0]](config, kind[1], hidden_states, lengths) for kind in dict.fromkeys(kinds)}
    return [layouts[kind] for kind in kinds]
