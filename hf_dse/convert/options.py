# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a conversion."""

from dataclasses import dataclass, field
from typing import ClassVar


# Options that also apply to a DSE model that is loaded again: how it is trained, not what it computes.
DROPOUT = ("hidden_dropout_prob", "attention_probs_dropout_prob")

# Options that also apply to the model of the stage before.
LATER_OPTIONS = ("query_prompt", "document_prompt", *DROPOUT)


@dataclass
class ConvertOptions:
    """How an encoder is converted to a student, by fields of `DseConfig`."""

    complete: ClassVar[str] = "hf_dse.convert.convert.ConvertArguments"

    linformer_length: list[int] = field(
        default_factory=lambda: [128],
        metadata={
            "help": "Projected length k, in tokens: shorter texts are exact. One for all layers, or one per layer."
        },
    )
    linformer_projection: str | None = field(
        default=None,
        metadata={
            "help": "How n tokens are projected to k rows. Default: learned, or strided where positions are rotary or "
            "relative.",
            "choices": ["learned", "conv", "mean", "max", "strided"],
        },
    )
    linformer_init: str = field(
        default="mean",
        metadata={
            "help": "Initial weights of learned and conv projections.",
            "choices": ["mean", "strided", "random"],
        },
    )
    linformer_sharing: str = field(
        default="key_value",
        metadata={"help": "Which parts share E and F.", "choices": ["none", "headwise", "key_value", "layerwise"]},
    )
    layer_types: list[str] | None = field(
        default=None,
        metadata={
            "help": "Attention of the layers: one kind for all, or one per layer. Default: linear_attention, and "
            "sliding_attention where the source attends to a window.",
            "choices": [
                "linear_attention",
                "sliding_attention",
                "sliding_linear_attention",
                "chunked_attention",
                "full_attention",
            ],
        },
    )
    sliding_window: int | None = field(
        default=None,
        metadata={"help": "Tokens before and after a token in layers with a window. Default: the source's, or 64."},
    )
    attention_chunk_size: int = field(
        default=512,
        metadata={
            "help": "Tokens of a chunk in layers of chunked_attention, which attend to their chunk and both ends of "
            "the text."
        },
    )
    num_hidden_layers: int | None = field(
        default=None, metadata={"help": "Layers of the student; evenly spaced layers of the source are kept."}
    )
    keep_layers: list[int] | None = field(
        default=None, metadata={"help": "Which layers of the source are kept, counted from 0."}
    )
    max_position_embeddings: int | None = field(
        default=None,
        metadata={"help": "Longest text, in tokens; beyond the source's limit its positions are extended."},
    )
    position_extension: str = field(
        default="dynamic",
        metadata={
            "help": "Positions beyond the source's limit: dynamic, where a longer text spans the source's table, or "
            "tile, where they start again.",
            "choices": ["dynamic", "tile"],
        },
    )
    pooling_mode: str | None = field(
        default=None,
        metadata={
            "help": "How token vectors become one. Default: as the source says (sentence-transformers), or mean.",
            "choices": ["mean", "cls", "max"],
        },
    )
    pooling_layers: int = field(
        default=1, metadata={"help": "Number of last layers to concatenate before pooling (DSE: 4)."}
    )
    projection_dim: int | None = field(
        default=None,
        metadata={"help": "Dimensions of a new linear layer of the embedding. Default: no such layer."},
    )
    normalize_embeddings: bool | None = field(
        default=None,
        metadata={"help": "Scale embeddings to length 1. Default: as the source's sentence-transformers modules do."},
    )
    query_prompt: str | None = field(
        default=None,
        metadata={
            "help": "Text before each query in a search, such as 'query: '. Default: the source's prompt; '' for none."
        },
    )
    document_prompt: str | None = field(
        default=None, metadata={"help": "Text before each document in a search, in the same way."}
    )
    similarity: str | None = field(
        default=None,
        metadata={
            "help": "How two embeddings are compared. Default: as the source's sentence-transformers settings say, "
            "else by their cosine.",
            "choices": ["cosine", "dot", "mlp"],
        },
    )
    similarity_hidden_size: int = field(default=512, metadata={"help": "Hidden size of the mlp similarity."})
    hidden_dropout_prob: float | None = field(default=None, metadata={"help": "Dropout. Default: the source's."})
    attention_probs_dropout_prob: float | None = field(
        default=None,
        metadata={
            "help": "Dropout of attention. Default: 0 for a converted encoder, whatever its source has. On a CPU "
            "torch's fast attention has no dropout, and the other needs much more memory and time for long texts."
        },
    )
    random_init: bool = field(
        default=False, metadata={"help": "Use random weights (a lower bound for comparisons, not for training)."}
    )
