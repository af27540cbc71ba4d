# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Encoders that are compared by speed: DSE and others in one shape, with random weights and without dropout."""

from collections.abc import Callable, Mapping
from typing import Any

from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    BigBirdConfig,
    FNetConfig,
    ModernBertConfig,
    NystromformerConfig,
    PreTrainedConfig,
)

from hf_dse import DseConfig


Sizes = Mapping[str, int]

# Layers of all-MiniLM-L6-v2, and of BERT base, the size of most cross-encoders.
MINILM = {
    "vocab_size": 30522,
    "hidden_size": 384,
    "num_hidden_layers": 6,
    "num_attention_heads": 12,
    "intermediate_size": 1536,
}
BERT_BASE = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}

LANDMARKS = 64
BIG_BIRD_BLOCK = 64


def bert_fields(length: int, sizes: Sizes = MINILM) -> dict[str, Any]:
    """Fields of a BERT's configuration for texts of a length."""
    return {
        **sizes,
        "max_position_embeddings": length,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        # Fused attention kernels treat dropout differently; without it all models do the same work.
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 0,
    }


def dse_config(kind: str, length: int, k: int = 128, sizes: Sizes = MINILM) -> DseConfig:
    """
    DSE with a projection to k rows. `"chunked"`: chunks of k tokens in the lower two thirds of the layers, strided to
    4 k rows in the others.
    """
    fields = bert_fields(length, sizes)
    if kind != "chunked":
        return DseConfig(**fields, linformer_projection=kind, linformer_length=k)
    num_linear = -(-sizes["num_hidden_layers"] // 3)
    kinds = ["chunked_attention"] * (sizes["num_hidden_layers"] - num_linear) + ["linear_attention"] * num_linear
    fields.update(layer_types=kinds, attention_chunk_size=k, linformer_projection="strided", linformer_length=4 * k)
    return DseConfig(**fields)


def modernbert_config(length: int, sizes: Sizes) -> ModernBertConfig:
    """ModernBERT: a window of 128 tokens, every third layer full attention."""
    fields = bert_fields(length, sizes)
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act"):
        del fields[name]
    # Its feed-forward layer is gated and has three matrices instead of two.
    fields["intermediate_size"] = 2 * sizes["intermediate_size"] // 3
    # Its default special tokens are outside a smaller vocabulary.
    fields.update(bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0)
    return ModernBertConfig(**fields)


def nystromformer_config(length: int, sizes: Sizes) -> NystromformerConfig:
    """Nystromformer with 64 landmarks, each the mean of an equal part of the input."""
    if length % min(LANDMARKS, length):
        raise ValueError(f"Nystromformer needs a multiple of its {LANDMARKS} landmarks, not {length} tokens.")
    # Any segment length but the input's fails, or is full attention where it equals the landmarks.
    landmarks = {"segment_means_seq_len": length, "num_landmarks": min(LANDMARKS, length)}
    return NystromformerConfig(**bert_fields(length, sizes), **landmarks)


def big_bird_config(length: int, sizes: Sizes) -> BigBirdConfig:
    """BigBird with blocks of 64 tokens, three of them random; up to 704 tokens it uses full attention."""
    fields = bert_fields(length, sizes)
    fields["max_position_embeddings"] = -(-length // BIG_BIRD_BLOCK) * BIG_BIRD_BLOCK
    return BigBirdConfig(**fields, block_size=BIG_BIRD_BLOCK)


def fnet_config(length: int, sizes: Sizes) -> FNetConfig:
    """FNet: a Fourier transform in place of attention."""
    fields = bert_fields(length, sizes)
    for name in ("num_attention_heads", "attention_probs_dropout_prob"):
        del fields[name]
    return FNetConfig(**fields)


def bert_config(length: int, sizes: Sizes) -> BertConfig:
    return BertConfig(**bert_fields(length, sizes))


KINDS = ("learned", "mean", "strided", "max", "conv", "chunked")
CONFIGS: dict[str, Callable[[int, Sizes], PreTrainedConfig]] = {
    "bert-sdpa": bert_config,
    "bert-eager": bert_config,
    "bert-base": lambda length, sizes: bert_config(length, {**sizes, **BERT_BASE}),
    "bert-linformer": bert_config,
    "modernbert": modernbert_config,
    "modernbert-linformer": modernbert_config,
    "bigbird": big_bird_config,
    "nystromformer": nystromformer_config,
    "fnet": fnet_config,
}
MODELS = (*(f"dse-{kind}" for kind in KINDS), *CONFIGS)


def build(name: str, length: int, k: int = 128, sizes: Sizes = MINILM) -> nn.Module:
    """
    The encoder of a name, for texts of a length; DSE has k rows, and so has an encoder of transformers that is loaded
    with linear attention, `-linformer`.
    """
    if name not in CONFIGS:
        return AutoModel.from_config(dse_config(name.removeprefix("dse-"), length, k, sizes))
    attentions = {"bert-eager": "eager", "bert-sdpa": "sdpa", "bert-base": "sdpa", "modernbert": "sdpa"}
    attention = "linformer" if name.endswith("-linformer") else attentions.get(name)
    config = CONFIGS[name](length, sizes)
    config.linformer_length = k
    return AutoModel.from_config(config, attn_implementation=attention)
