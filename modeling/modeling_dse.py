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

A layer attends from the n tokens of a text to k slots (Linformer, [Wang et al., 2020](
https://huggingface.co/papers/2006.04768), equation 7): for each head

    softmax(Q (E K)^T / sqrt(d)) (F V),    E K = (E X) W_K + b_K,    F V = (F X) W_V + b_V,

where E and F are (k, n). Left of W_K and W_V they leave k rows to multiply with, not n. E and F fill the slots with
chosen or pooled tokens, and may have learned parts that are added to this start. `layout_dse.py` says which tokens go
to which slot. All layers get texts whose real tokens come first.

Shapes in comments: B batch, N tokens, K slots, W tokens of the longest slot, C tokens of a chunk, H heads, G groups of
features with an E of their own, D hidden size.
"""

import json
import os
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import initialization as init
from transformers.activations import ACT2FN
from transformers.modeling_layers import GradientCheckpointingLayer
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import ALL_ATTENTION_FUNCTIONS, PreTrainedModel
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring
from transformers.utils.generic import can_return_tuple, merge_with_config_defaults
from transformers.utils.import_utils import is_torchdynamo_exporting, is_tracing
from transformers.utils.output_capturing import capture_outputs

from .configuration_dse import DseConfig
from .layout_dse import (
    DseLayout,
    DseSlots,
    count_tokens,
    lay_out,
    mask_of,
    read_padding,
    read_shape,
    restore_order,
    take_tokens,
)
from .pairs_dse import (
    DseClassificationHead,
    DsePairOutput,
    check_labels,
    first_line,
    get_problem_type,
    split_pairs,
)


# The fixed start of a projection: what fills the k slots, from states [B, N, D] to [B, K, D]


def fill_with_tokens(hidden_states: torch.Tensor, slots: DseSlots, layer_idx: int) -> torch.Tensor:
    """Row i of E is 1 at the token that the layer selects for slot i."""
    return take_tokens(hidden_states, slots.selected[layer_idx])


def fill_with_mean(hidden_states: torch.Tensor, slots: DseSlots, layer_idx: int) -> torch.Tensor:
    """Row i of E is 1 / c at the c tokens of slot i."""
    tokens = take_tokens(hidden_states, slots.segments) * slots.in_segment  # [B, K, W, D]
    return tokens.sum(dim=2) / slots.sizes[..., None]


def fill_with_max(hidden_states: torch.Tensor, slots: DseSlots, layer_idx: int) -> torch.Tensor:
    """The largest value of each feature among the tokens of slot i: not linear, so there is no such E."""
    tokens = take_tokens(hidden_states, slots.segments)  # [B, K, W, D]
    return tokens.masked_fill(~slots.in_segment, torch.finfo(tokens.dtype).min).amax(dim=2)


def fill_with_nothing(hidden_states: torch.Tensor, slots: DseSlots, layer_idx: int) -> float:
    """All of E is random and learned."""
    return 0.0


FILLINGS: dict[str, Callable] = {
    "strided": fill_with_tokens,
    "mean": fill_with_mean,
    "max": fill_with_max,
    "random": fill_with_nothing,
}


class DseLinformer(nn.Module):
    """The learned parts of E and F: a weight for each slot and token, `(groups, k, max_position_embeddings)`."""

    def __init__(self, config: DseConfig, num_slots: int):
        super().__init__()
        # CODEPATH: checkpoints converted with `linformer_sharing="none"` have an E and an F for each head
        self.num_groups = config.num_attention_heads if config.linformer_sharing == "none" else 1
        self.is_random = config.linformer_start == "random"
        shape = self.weight_shape(config, num_slots)
        # The variance of theorem 2, where E starts at random.
        self.initial_std = shape[1] ** -0.5
        self.key = nn.Parameter(torch.empty(shape))
        shares_key_value = config.linformer_sharing in ("key_value", "layerwise")
        self.value = None if shares_key_value else nn.Parameter(torch.empty(shape))

    def weight_shape(self, config: DseConfig, num_slots: int) -> tuple[int, ...]:
        return self.num_groups, num_slots, config.max_position_embeddings

    def forward(self, hidden_states: torch.Tensor, layout: DseLayout, of_values: bool = False) -> torch.Tensor:
        """E (m * X) [B, K, D], or F (m * X) of values, with X [B, N, D] and the mask m of the real tokens."""
        if layout.is_token is not None:
            hidden_states = hidden_states * layout.is_token
        weight = self.cut_weight(self.weight(of_values), layout.slots.num_slots, hidden_states.shape[1])
        groups = hidden_states.unflatten(2, (self.num_groups, -1)).transpose(1, 2)  # [B, G, N, D / G]
        return torch.matmul(weight, groups).transpose(1, 2).flatten(2)

    def weight(self, of_values: bool) -> torch.Tensor:
        """F where values have their own, otherwise E. For `forward` alone, where offloaded weights are loaded."""
        return self.key if self.value is None or not of_values else self.value

    def cut_weight(self, weight: torch.Tensor, num_slots: int, num_tokens: int) -> torch.Tensor:
        """The first rows and columns of E, `(groups, num_slots, num_tokens)`."""
        if not is_torchdynamo_exporting():
            return weight[:, :num_slots, :num_tokens]
        # A slice is contiguous for some lengths only, so the graph would be for these or for all others.
        weight = weight.index_select(1, torch.arange(num_slots, device=weight.device))
        return weight.index_select(2, torch.arange(num_tokens, device=weight.device))


class DseConvolution(DseLinformer):
    """E and F with the structure of a convolution: a weight for each place in a slot, `(groups, width)`."""

    def weight_shape(self, config: DseConfig, num_slots: int) -> tuple[int, ...]:
        # The first and the last token have slots of their own.
        return self.num_groups, max(1, -(-(config.max_position_embeddings - 2) // (num_slots - 2)))

    def forward(self, hidden_states: torch.Tensor, layout: DseLayout, of_values: bool = False) -> torch.Tensor:
        places = take_tokens(hidden_states, layout.slots.segments) * layout.slots.in_segment  # [B, K, W, D]
        places = places.unflatten(-1, (self.num_groups, -1))
        weight = self.weight(of_values)[:, : places.shape[2]]
        return torch.einsum("gw,bkwgd->bkgd", weight, places).flatten(2)


LINFORMERS: dict[str, type[DseLinformer]] = {"learned": DseLinformer, "conv": DseConvolution}


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
    """Multi-head attention to all tokens of a text: layers of the type `"full_attention"`."""

    def __init__(self, config: DseConfig, layer_idx: int):
        super().__init__()
        self.config = config
        self.layer_idx = layer_idx
        self.head_dim = config.hidden_size // config.num_attention_heads
        self.scaling = self.head_dim**-0.5
        self.attention_dropout = config.attention_probs_dropout_prob
        self.is_causal = False
        self.query = nn.Linear(config.hidden_size, config.hidden_size)
        self.key = nn.Linear(config.hidden_size, config.hidden_size)
        self.value = nn.Linear(config.hidden_size, config.hidden_size)

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: DseLayout,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        """
        Args:
            hidden_states (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
                X; the real tokens of each text come first.
            layout (`DseLayout`):
                Padding, slots and chunks.
            linformer (`DseLinformer`, *optional*):
                E and F, where all layers share them.

        Returns:
            `tuple`: the context of each token, `(batch_size, seq_len, hidden_size)`, and the attention weights, if the
            implementation has them, `(batch_size, num_heads, seq_len, n)` with n tokens, k slots or the tokens of a
            chunk.
        """
        query = self.query(hidden_states)
        key, value = self.project(hidden_states, layout, linformer)
        query, key, value = (
            states.unflatten(-1, (-1, self.head_dim)).transpose(1, 2)  # [B, H, N or K, D / H]
            for states in (query, key, value)
        )
        attention_interface: Callable = ALL_ATTENTION_FUNCTIONS.get_interface(
            self.config._attn_implementation, eager_attention_forward
        )
        attn_output, attn_weights = attention_interface(
            self,
            query,
            key,
            value,
            layout.bias,
            dropout=self.attention_dropout if self.training else 0.0,
            scaling=self.scaling,
            **kwargs,
        )
        return attn_output.flatten(2).contiguous(), attn_weights

    def project(
        self, hidden_states: torch.Tensor, layout: DseLayout, linformer: DseLinformer | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys K = X W_K + b_K and values V of all tokens, `(batch_size, seq_len, hidden_size)`."""
        return self.key(hidden_states), self.value(hidden_states)


class DseChunkedAttention(DseSelfAttention):
    """Attention to the chunk of a token, and to both ends of its text: layers of the type `"chunked_attention"`."""

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: DseLayout,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        if layout.chunk_size is None:
            return super().forward(hidden_states, layout, **kwargs)
        batch_size, num_tokens, hidden_size = hidden_states.shape
        chunks = nn.functional.pad(hidden_states, (0, 0, 0, -num_tokens % layout.chunk_size))
        chunks = chunks.reshape(-1, layout.chunk_size, hidden_size)  # [B * N / C, C, D]
        attn_output, attn_weights = super().forward(chunks, layout, **kwargs)
        attn_output = attn_output.reshape(batch_size, -1, hidden_size)[:, :num_tokens]
        if attn_weights is not None:  # [B * N / C, H, C, 2 + C]
            attn_weights = attn_weights.unflatten(0, (batch_size, -1)).transpose(1, 2).flatten(2, 3)[:, :, :num_tokens]
        return attn_output, attn_weights

    def project(
        self, hidden_states: torch.Tensor, layout: DseLayout, linformer: DseLinformer | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys and values of both ends and a chunk, `(batch_size * num_chunks, 2 + chunk_size, hidden_size)`."""
        key, value = super().project(hidden_states, layout, linformer)
        if layout.ends is None:
            return key, value
        return add_ends(key, layout.ends), add_ends(value, layout.ends)


def add_ends(chunks: torch.Tensor, ends: torch.Tensor) -> torch.Tensor:
    """Puts the ends [B, 2] of a text before each of its chunks [B * N / C, C, D]; returns [B * N / C, 2 + C, D]."""
    of_text = take_tokens(chunks.reshape(ends.shape[0], -1, chunks.shape[2]), ends)
    num_chunks = chunks.shape[0] // ends.shape[0]
    return torch.cat([of_text.repeat_interleave(num_chunks, dim=0), chunks], dim=1)


class DseLinearAttention(DseSelfAttention):
    """Attention to k slots: layers of the type `"linear_attention"`."""

    def __init__(self, config: DseConfig, layer_idx: int):
        super().__init__(config, layer_idx)
        self.fill_slots = FILLINGS[config.linformer_start]
        # With an E for each head, X is multiplied with W_K first: that tells the features of the heads apart.
        self.is_per_head = config.linformer_sharing == "none"
        self.linformer = None
        # CODEPATH: checkpoints converted with `linformer_sharing="layerwise"` have one E = F, which the encoder owns
        if config.is_projection_learned and config.linformer_sharing != "layerwise":
            self.linformer = LINFORMERS[config.linformer_projection](config, config.projected_lengths[layer_idx])

    def project(
        self, hidden_states: torch.Tensor, layout: DseLayout, linformer: DseLinformer | None
    ) -> tuple[torch.Tensor, torch.Tensor]:
        """Keys E K and values F V of the slots, `(batch_size, num_slots, hidden_size)`."""
        if layout.slots is None:
            return super().project(hidden_states, layout, linformer)
        linformer = linformer or self.linformer
        fill = partial(self.fill_slots, slots=layout.slots, layer_idx=self.layer_idx)
        if linformer is None:
            states = fill(hidden_states)
            return self.key(states), self.value(states)
        if self.is_per_head:
            key, value = self.key(hidden_states), self.value(hidden_states)
            key = fill(key) + linformer(key, layout)
            return key, fill(value) + linformer(value, layout, of_values=True)
        start = fill(hidden_states)
        key_states = value_states = start + linformer(hidden_states, layout)
        if linformer.value is not None:
            value_states = start + linformer(hidden_states, layout, of_values=True)
        return self.key(key_states), self.value(value_states)


LAYER_TYPES: dict[str, type[DseSelfAttention]] = {
    "linear_attention": DseLinearAttention,
    "chunked_attention": DseChunkedAttention,
    "full_attention": DseSelfAttention,
}


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
        layer_types: Any = config.layer_types
        self.self = LAYER_TYPES[layer_types[layer_idx]](config, layer_idx)
        self.output = DseSelfOutput(config)

    def forward(
        self,
        hidden_states: torch.Tensor,
        layout: DseLayout,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> tuple[torch.Tensor, torch.Tensor | None]:
        attn_output, attn_weights = self.self(hidden_states, layout, linformer, **kwargs)
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
        layout: DseLayout,
        linformer: DseLinformer | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> torch.Tensor:
        hidden_states, _ = self.attention(hidden_states, layout, linformer, **kwargs)
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
        token_type_ids: torch.Tensor | None = None,
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
        self.config = config
        self.layer = nn.ModuleList([DseLayer(config, layer_idx) for layer_idx in range(config.num_hidden_layers)])
        self.linformer = None
        lengths = dict(zip(config.layer_types or [], config.projected_lengths, strict=True))
        is_shared = config.linformer_sharing == "layerwise" and "linear_attention" in lengths
        # CODEPATH: checkpoints converted with `linformer_sharing="layerwise"` have one E = F for all layers
        if config.is_projection_learned and is_shared:
            self.linformer = LINFORMERS[config.linformer_projection](config, lengths["linear_attention"])

    def forward(
        self,
        hidden_states: torch.Tensor,
        lengths: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> list[torch.Tensor]:
        """Returns the hidden states of the last `pooling_layers` layers, each `(batch_size, seq_len, hidden_size)`."""
        layouts = lay_out(self.config, hidden_states, lengths)
        last_states: list[torch.Tensor] = []
        for layer, layout in zip(self.layer, layouts, strict=True):
            hidden_states = layer(hidden_states, layout, self.linformer, **kwargs)
            last_states = [*last_states, hidden_states][-self.config.pooling_layers :]
        return last_states


def save_pooling(config: DseConfig, folder: str | os.PathLike) -> None:
    """
    Writes `modules.json` and `1_Pooling/config.json`, by which sentence-transformers, and the tools that read its
    files, get the `pooler_output` of [`DseModel`].
    """
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * config.normalize_embeddings
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    pooling = {
        "word_embedding_dimension": config.embedding_size,
        "pooling_mode_cls_token": config.pooling_mode == "cls",
        "pooling_mode_mean_tokens": config.pooling_mode == "mean",
        "pooling_mode_max_tokens": config.pooling_mode == "max",
        # Tools that pool themselves expect these keys, too.
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": False,
        "include_prompt": True,
    }
    path = Path(folder) / paths[1] / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(pooling, indent=2) + "\n", encoding="utf-8")
    (Path(folder) / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")


@auto_docstring
class DsePreTrainedModel(PreTrainedModel):
    config: DseConfig
    base_model_prefix = "dse"
    _input_embed_layer = "word_embeddings"
    supports_gradient_checkpointing = True
    _no_split_modules = ["DseEmbeddings", "DseLayer"]
    _supports_sdpa = True
    _supports_attention_backend = True
    # Packed rows of several texts would be mixed by the projection along the sequence.
    _supports_flash_attn = False
    _supports_flex_attn = False
    _can_record_outputs = {"hidden_states": DseLayer, "attentions": DseSelfAttention}

    def get_correct_attn_implementation(self, requested_attention: str | None, is_init_check: bool = False) -> str:
        if requested_attention == "vllm":
            raise ValueError(
                "vLLM attends to all tokens, but DSE to slots: serve a graph (`hf-dse export --format onnx`) instead."
            )
        return super().get_correct_attn_implementation(requested_attention, is_init_check)

    def save_pretrained(self, save_directory: str | os.PathLike, *args: Any, **kwargs: Any) -> None:
        """
        Saves the model, and how sentence-transformers pools its token vectors.

        Args:
            save_directory (`str` or `os.PathLike`):
                The folder.
            args:
                Further arguments of [`~transformers.PreTrainedModel.save_pretrained`], but for `push_to_hub`.
            kwargs:
                The same by name.
        """
        if kwargs.get("push_to_hub"):
            raise ValueError("`push_to_hub=True` would leave files out: use `model.push_to_hub(repo_id)`.")
        super().save_pretrained(save_directory, *args, **kwargs)
        if args[0] if args else kwargs.get("is_main_process", True):
            save_pooling(self.config, save_directory)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, DseLinformer):
            for weight in module.parameters():
                if module.is_random:
                    init.normal_(weight, mean=0.0, std=module.initial_std)
                else:
                    init.zeros_(weight)
        elif isinstance(module, DseClassificationHead) and module.kind != "mlp":
            init.ones_(module.scale)
            init.zeros_(module.bias)
            init.zeros_(module.moments)
            init.copy_(module.start, first_line(len(module.scale)))


@auto_docstring(
    custom_intro="""
    The bare DSE encoder: texts in, one sentence embedding each (`pooler_output`) beside the token states out. An
    embedding never depends on the other texts of a batch or on its padding.
    """
)
class DseModel(DsePreTrainedModel):
    # The head of a checkpoint for sentence pairs is not a part of the encoder.
    _keys_to_ignore_on_load_unexpected = [r"^similarity\."]

    def __init__(self, config: DseConfig):
        # Arguments of `from_pretrained` replace fields after the fields of the file were checked.
        config.validate()
        super().__init__(config)
        self.embeddings = DseEmbeddings(config)
        self.encoder = DseEncoder(config)
        self.projection = (
            # CODEPATH: checkpoints that were whitened or converted with a `projection_dim` have a projection
            nn.Linear(config.pooled_size, config.projection_dim) if config.projection_dim else None
        )
        self.post_init()

    @can_return_tuple
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
        if torch.jit.is_tracing():
            raise ValueError("`torch.jit.trace` keeps one length: use `torch.export`, or `hf-dse export`.")
        shape = read_shape(input_ids, inputs_embeds)
        self.check_shapes(shape, attention_mask)
        if position_ids is not None and (position_ids.is_floating_point() or position_ids.shape[-1:] != shape[1:]):
            raise ValueError(
                f"`position_ids` must be integers of the shape {tuple(shape)}, got {position_ids.dtype} of the shape "
                f"{tuple(position_ids.shape)}."
            )
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "inputs_embeds": inputs_embeds,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
        }
        lengths, order = read_padding(attention_mask)
        # Layers and pooling get the real tokens first, and what they return is in the order of the input again.
        if order is not None:
            for name, tokens in inputs.items():
                if tokens is not None:
                    inputs[name] = take_tokens(tokens.expand(*shape, *tokens.shape[2:]), order.tokens)
        outputs = self.encode(**inputs, lengths=lengths, return_dict=True, **kwargs)
        return outputs if order is None else restore_order(outputs, order, self.config.layer_types or [])

    # The last layer's states are not the last hidden state where several layers are pooled, or there is a projection.
    @merge_with_config_defaults
    @capture_outputs(tie_last_hidden_states=False)
    def encode(
        self,
        input_ids: torch.Tensor | None,
        token_type_ids: torch.Tensor | None,
        position_ids: torch.Tensor | None,
        inputs_embeds: torch.Tensor | None,
        lengths: torch.Tensor | None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        """The forward pass of texts whose real tokens come first, `lengths` of them or all."""
        if inputs_embeds is None:
            inputs_embeds = self.embeddings.word_embeddings(input_ids)
        if position_ids is None:
            position_ids = self.fit_positions(inputs_embeds, lengths)
        hidden_states = self.embeddings(inputs_embeds, position_ids, token_type_ids)
        last_states = self.encoder(hidden_states, lengths, **kwargs)
        # Tools that pool the last hidden state themselves get the sentence embedding, too.
        hidden_states = torch.cat(last_states, dim=-1)
        if self.projection is not None:
            hidden_states = self.projection(hidden_states)
        embeddings = self.pool(hidden_states, lengths)
        # CODEPATH: checkpoints converted from sentence-transformers models that end in `Normalize`
        if self.config.normalize_embeddings:
            embeddings = nn.functional.normalize(embeddings, dim=-1)
        return BaseModelOutputWithPooling(last_hidden_state=hidden_states, pooler_output=embeddings)

    def check_shapes(self, shape: torch.Size, attention_mask: torch.Tensor | None) -> None:
        if len(shape) != 2:
            raise ValueError(
                f"`input_ids` must have the shape (batch_size, seq_len), got {tuple(shape)}. For pairs use "
                "`DseForSequenceClassification`."
            )
        if 0 in shape:
            raise ValueError(f"The input has the shape {tuple(shape)}: pass at least one text, each with a token.")
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

    def fit_positions(self, inputs_embeds: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """Positions `(batch_size or 1, seq_len)`; in a text longer than the table they span it, or start again."""
        num_tokens, num_positions = inputs_embeds.shape[1], self.config.original_max_position_embeddings
        positions = torch.arange(num_tokens, device=inputs_embeds.device)[None]
        if num_positions is None or (num_tokens <= num_positions and not is_tracing(inputs_embeds)):
            return positions
        # CODEPATH: checkpoints converted with `position_extension="tile"`, the others are "dynamic"
        if self.config.position_extension == "tile":
            return positions % num_positions
        last = (count_tokens(inputs_embeds, lengths) - 1).clamp(min=1)
        scale = ((num_positions - 1) / last).clamp(max=1.0)
        return (positions * scale).clamp(max=num_positions - 1)

    def pool(self, hidden_states: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """Token states `(batch_size, seq_len, size)` to one vector each, `(batch_size, size)`."""
        # CODEPATH: checkpoints converted with `pooling_mode="cls"`
        if self.config.pooling_mode == "cls":
            return hidden_states[:, 0]
        is_max = self.config.pooling_mode == "max"
        if lengths is None:
            return hidden_states.amax(dim=1) if is_max else hidden_states.mean(dim=1)
        is_token = mask_of(lengths, hidden_states.shape[1])[..., None]  # [B, N, 1]
        if is_max:
            # A text without tokens has the embedding 0, as with the mean.
            return torch.where(lengths > 0, hidden_states.masked_fill(~is_token, -torch.inf).amax(dim=1), 0.0)
        # In float16 the sum over thousands of tokens would overflow.
        wide = torch.promote_types(hidden_states.dtype, torch.float32)
        total = (hidden_states * is_token).sum(dim=1, dtype=wide)
        return (total / lengths.clamp(min=1)).to(hidden_states.dtype)


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
    ) -> DsePairOutput:
        r"""
        input_ids (`torch.LongTensor` of shape `(batch_size, seq_len)` or `(batch_size, 2, seq_len)`, *optional*):
            Pairs encoded by `tokenizer(first, second)`, or the two sentences of each pair encoded alone.
        attention_mask (`torch.Tensor` of the shape of `input_ids`, *optional*):
            1 for tokens, 0 for padding.
        token_type_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
            0 for the first sentence, 1 for the second. Without them a pair is split at its separator tokens.
        labels (`torch.Tensor` of shape `(batch_size,)`, *optional*):
            With one label: a score (mean squared error), or 0 and 1 if `config.problem_type` is
            `"multi_label_classification"` (binary cross-entropy). With several: a class (cross-entropy), or numbers
            of shape `(batch_size, num_labels)` if `config.problem_type` says so.
        """
        shape = read_shape(input_ids, inputs_embeds)
        if attention_mask is not None and attention_mask.shape != shape:
            raise ValueError(
                f"`attention_mask` must have the shape {tuple(shape)} of the input, got {tuple(attention_mask.shape)}."
            )
        if 0 in shape or len(shape) not in (2, 3) or (len(shape) == 3 and shape[1] != 2):
            raise ValueError(
                "The input must have the shape (batch_size, seq_len), or (batch_size, 2, seq_len) for sentences that "
                f"were encoded alone, got {tuple(shape)}."
            )
        if len(shape) == 2:
            inputs = split_pairs(self.config, input_ids, attention_mask, token_type_ids, inputs_embeds)
        else:
            given = {"input_ids": input_ids, "attention_mask": attention_mask, "inputs_embeds": inputs_embeds}
            inputs = {name: tokens.flatten(0, 1) for name, tokens in given.items() if tokens is not None}
        outputs = self.dse(**inputs, return_dict=True, **kwargs)
        embeddings = outputs.pooler_output.unflatten(0, (-1, 2))  # [B, 2, D]
        if labels is not None:
            labels = labels.to(embeddings.device)
            check_labels(self.config, labels, len(embeddings))
        logits = self.similarity(embeddings[:, 0], embeddings[:, 1], labels)
        loss: Any = None if labels is None else self.compute_loss(logits, labels)
        return DsePairOutput(
            loss=loss,
            logits=logits,
            embeddings=embeddings,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def compute_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The task loss of the DSE paper: squared error, binary cross-entropy or cross-entropy."""
        problem_type = get_problem_type(self.config)
        if problem_type == "regression":
            return nn.functional.mse_loss(logits, labels.view_as(logits).to(logits.dtype))
        if problem_type == "multi_label_classification":
            return nn.functional.binary_cross_entropy_with_logits(logits, labels.view_as(logits).to(logits.dtype))
        return nn.functional.cross_entropy(logits, labels.view(-1))


__all__ = ["DseForSequenceClassification", "DseModel", "DsePairOutput", "DsePreTrainedModel"]
