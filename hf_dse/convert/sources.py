# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The architectures that can be converted: how their config fields and parameter names map to ours."""

import re
from dataclasses import dataclass, field
from typing import Any

import torch
from transformers import PreTrainedConfig


BERT_FIELDS = {
    name: name
    for name in (
        "vocab_size",
        "hidden_size",
        "num_hidden_layers",
        "num_attention_heads",
        "intermediate_size",
        "hidden_act",
        "hidden_dropout_prob",
        "type_vocab_size",
        "initializer_range",
        "layer_norm_eps",
        "pad_token_id",
    )
}

DISTILBERT_FIELDS = {
    "vocab_size": "vocab_size",
    "hidden_size": "dim",
    "num_hidden_layers": "n_layers",
    "num_attention_heads": "n_heads",
    "intermediate_size": "hidden_dim",
    "hidden_act": "activation",
    "hidden_dropout_prob": "dropout",
    "initializer_range": "initializer_range",
    "pad_token_id": "pad_token_id",
}

DISTILBERT_NAMES = {
    r"^transformer\.layer": "encoder.layer",
    r"attention\.q_lin": "attention.self.query",
    r"attention\.k_lin": "attention.self.key",
    r"attention\.v_lin": "attention.self.value",
    r"attention\.out_lin": "attention.output.dense",
    r"sa_layer_norm": "attention.output.LayerNorm",
    r"ffn\.lin1": "intermediate.dense",
    r"ffn\.lin2": "output.dense",
    r"output_layer_norm": "output.LayerNorm",
}


@dataclass(frozen=True)
class SourceArchitecture:
    """How the config fields and parameter names of an architecture map to ours, which are BERT's."""

    fields: dict[str, str]
    names: dict[str, str] = field(default_factory=dict)
    # RoBERTa starts positions at padding_idx + 1; the rows before are never used for tokens.
    position_offset: bool = False
    constants: dict[str, Any] = field(default_factory=dict)


SOURCES = {
    "bert": SourceArchitecture(BERT_FIELDS),
    "roberta": SourceArchitecture(BERT_FIELDS, position_offset=True),
    "xlm-roberta": SourceArchitecture(BERT_FIELDS, position_offset=True),
    "distilbert": SourceArchitecture(
        DISTILBERT_FIELDS, DISTILBERT_NAMES, constants={"type_vocab_size": 0, "layer_norm_eps": 1e-12}
    ),
}

REFUSED = {
    "mpnet": "its relative position bias (`encoder.relative_attention_bias`), added to n x n attention logits",
    "deberta": "its disentangled attention, whose relative positions are part of n x n attention logits",
    "deberta-v2": "its disentangled attention, whose relative positions are part of n x n attention logits",
    "xlnet": "its relative position encoding (`r`, `r_w_bias`, `r_r_bias`), which is part of n x n attention logits",
}

# Fields of the source that may be overridden: they do not change what the weights compute.
FREE_FIELDS = {"num_hidden_layers", "hidden_dropout_prob", "initializer_range"}


def find_architecture(config: PreTrainedConfig, name_or_path: str) -> SourceArchitecture:
    """The mapping of a source, or a `ValueError` with the reason why it cannot be converted."""
    kind = config.model_type
    known = ", ".join(SOURCES)
    if kind == "dse":
        raise ValueError(f"{name_or_path} is already a DSE model: load it with `AutoModel.from_pretrained`.")
    if kind in REFUSED:
        raise ValueError(
            f"{name_or_path} is of the type {kind!r} and cannot be converted: {REFUSED[kind]}, which has no "
            f"meaning for keys that are projected to k slots. Convert one of: {known}. Any architecture can be the "
            "teacher."
        )
    if kind not in SOURCES:
        raise ValueError(
            f"{name_or_path} is of the type {kind!r}, which cannot be converted exactly. Convert one of: "
            f"{known}. Any architecture can be the teacher."
        )
    if getattr(config, "is_decoder", False):
        raise ValueError(f"{name_or_path} is a decoder (`is_decoder=True`): its causal attention cannot be converted.")
    relative = getattr(config, "position_embedding_type", None)
    if relative not in (None, "absolute"):
        raise ValueError(
            f"{name_or_path} has `position_embedding_type={relative!r}`: relative positions are part of n x n "
            "attention logits and cannot be converted. Convert an encoder with absolute positions."
        )
    return SOURCES[kind]


def rename(state: dict[str, torch.Tensor], architecture: SourceArchitecture) -> dict[str, torch.Tensor]:
    """Weights of a source by our names."""
    renamed = {}
    for name, tensor in state.items():
        for pattern, replacement in architecture.names.items():
            name = re.sub(pattern, replacement, name)
        renamed[name] = tensor
    return renamed
