# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders that are timed: any configuration, with random weights, without dropout, and with a kind of attention."""

import copy
from typing import Any

import torch
from torch import nn
from transformers import (
    AttentionInterface,
    AttentionMaskInterface,
    AutoModel,
    BertConfig,
    BigBirdConfig,
    FNetConfig,
    ModernBertConfig,
    PreTrainedConfig,
    PreTrainedModel,
)
from transformers.integrations.sdpa_attention import repeat_kv

from hf_dse import DseConfig
from hf_dse.common.loading import load_config
from hf_dse.convert.convert import set_dropout
from hf_dse.convert.student import exact_kinds
from hf_dse.modeling.modeling_dse import find_attentions


# The sizes of all-MiniLM-L6-v2.
MINILM: dict[str, Any] = {"hidden_size": 384, "num_hidden_layers": 6, "intermediate_size": 1536}

# granite-small is granite-embedding-small-english-r2. bigbird and fnet (a Fourier transform in place of attention)
# have the sizes of minilm, and only their own attention.
SHAPES: dict[str, PreTrainedConfig] = {
    "minilm": BertConfig(**MINILM, num_attention_heads=12),
    "bert-base": BertConfig(),
    "granite-small": ModernBertConfig(hidden_size=384, num_hidden_layers=12, intermediate_size=1536),
    "modernbert-base": ModernBertConfig(),
    "bigbird": BigBirdConfig(**MINILM, num_attention_heads=12, vocab_size=30522),
    "fnet": FNetConfig(**MINILM, vocab_size=30522),
}

# The attention functions of transformers: the encoder's own choice, and others by name.
FUNCTIONS = {"sdpa": None, "eager": "eager", "flex": "flex_attention", "function": "linformer", "free": "free"}
# The new type of layers that attend to all tokens. Layers with a window keep it, in blocks.
KINDS = {
    "blocks": "full_attention",
    "linear": "linear_attention",
    "sliding": "sliding_attention",
    "sliding_linear": "sliding_linear_attention",
}
# Linear layers whose slots are not single tokens.
PROJECTIONS = ("learned", "mean")
VARIANTS = (*FUNCTIONS, *KINDS, *PROJECTIONS, "chunks")

# Beyond the tokens of a text, RoBERTa has positions for padding, and BigBird fills its last block up.
SPARE_POSITIONS = 64


def pass_values(
    module: nn.Module, query: torch.Tensor, key: torch.Tensor, value: torch.Tensor, *args: Any, **kwargs: Any
) -> tuple[torch.Tensor, None]:
    """Attention that costs nothing: each token gets its own value. No attention can be faster."""
    return repeat_kv(value, query.shape[1] // value.shape[1]).transpose(1, 2).contiguous(), None


AttentionInterface.register("free", pass_values)
AttentionMaskInterface.register("free", lambda *args, **kwargs: None)


def dse_config(encoder: PreTrainedConfig, variant: str, length: int, k: int) -> DseConfig:
    """DSE around an encoder. `"chunks"`: chunks of k tokens in the lower two thirds, 4 k slots in the layers above."""
    fields: dict[str, Any] = {"linformer_length": k, "max_position_embeddings": length}
    if variant in PROJECTIONS:
        fields["linformer_projection"] = variant
    elif variant == "chunks":
        num_linear = -(-encoder.num_hidden_layers // 3)
        kinds = ["chunked_attention"] * (encoder.num_hidden_layers - num_linear) + ["linear_attention"] * num_linear
        fields.update(layer_types=kinds, attention_chunk_size=k, linformer_length=4 * k)
    else:
        kinds = exact_kinds(encoder)
        fields["layer_types"] = [KINDS[variant] if kind == "full_attention" else kind for kind in kinds]
    return DseConfig(encoder=encoder, **fields)


def check_variant(encoder: PreTrainedConfig, variant: str) -> None:
    """Raises a `ValueError` for encoders that would keep their own attention, without an error."""
    with torch.device("meta"):
        model = AutoModel.from_config(encoder)
    is_free = model._can_set_attn_implementation() or (encoder.model_type == "mpnet" and variant not in FUNCTIONS)
    if variant != "sdpa" and not (is_free and find_attentions(model)):
        raise ValueError(f"{encoder.model_type} has its own attention only: time it as sdpa.")


def build(model: str, variant: str, length: int, k: int = 128, dtype: torch.dtype = torch.float32) -> PreTrainedModel:
    """An encoder for texts of a length, with random weights; its linear layers have k slots."""
    encoder: Any = copy.deepcopy(SHAPES[model]) if model in SHAPES else load_config(model)
    encoder.max_position_embeddings = max(encoder.max_position_embeddings, length + SPARE_POSITIONS)
    check_variant(encoder, variant)
    # Fused kernels treat dropout differently; without it all do the same work.
    set_dropout(encoder, 0.0, 0.0)
    if variant not in FUNCTIONS:
        return AutoModel.from_config(dse_config(encoder, variant, length, k), dtype=dtype)
    # Read by the function where it works without DSE.
    encoder.linformer_length = k
    return AutoModel.from_config(encoder, attn_implementation=FUNCTIONS[variant], dtype=dtype)
