# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a conversion."""

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Literal

from hf_dse.common.options import HfArg


if TYPE_CHECKING:
    from hf_dse.common.settings import TextSettings


# The choices of `DseConfig`, repeated because its module needs torch.
LAYER_TYPES = (
    "linear_attention",
    "sliding_attention",
    "sliding_linear_attention",
    "chunked_attention",
    "full_attention",
)

# Options that also apply to a DSE model.
PROMPTS = ("query_prompt", "document_prompt")

# Options that also apply to a DSE model that is loaded again: how it is trained, not what it computes.
LATER_OPTIONS = (*PROMPTS, "hidden_dropout_prob", "attention_probs_dropout_prob")


@dataclass
class ConvertOptions:
    """How an encoder is converted to a student, by fields of `DseConfig`."""

    linformer_length: list[int] = HfArg(
        default_factory=lambda: [128],
        help="Projected length k, in tokens: shorter texts are exact. One for all layers, or one per layer.",
    )
    linformer_projection: Literal["learned", "mean", "strided"] | None = HfArg(
        default=None, help="How n tokens become k rows. Default: learned; strided for rotary or relative positions."
    )
    linformer_init: Literal["mean", "strided"] = HfArg(default="mean", help="Initial weights of learned projections.")
    linformer_sharing: Literal["none", "headwise", "key_value", "layerwise"] = HfArg(
        default="key_value", help="Which parts share E and F."
    )
    layer_types: list[str] | None = HfArg(
        default=None,
        help="Attention of the layers: one kind for all, or one per layer. Default: linear_attention, and "
        "sliding_attention where the source attends to a window.",
        metadata={"choices": list(LAYER_TYPES)},
    )
    sliding_window: int | None = HfArg(
        default=None, help="Tokens before and after a token in layers with a window. Default: the source's, or 64."
    )
    attention_chunk_size: int = HfArg(
        default=512,
        help="Tokens of a chunk in layers of chunked_attention, which also attend to both ends of the text.",
    )
    num_hidden_layers: int | None = HfArg(
        default=None, help="Layers of the student; evenly spaced layers of the source are kept."
    )
    max_position_embeddings: int | None = HfArg(
        default=None, help="Longest text, in tokens; beyond the source's limit its positions go on or start again."
    )
    pooling_mode: Literal["mean", "cls"] | None = HfArg(
        default=None,
        help="How token vectors become one. Default: as sentence-transformers does with the source, or mean.",
    )
    projection_dim: int | None = HfArg(
        default=None, help="Dimensions of a new linear layer of the embedding. Default: no such layer."
    )
    normalize_embeddings: bool | None = HfArg(
        default=None, help="Scale embeddings to length 1. Default: as the source's sentence-transformers modules do."
    )
    query_prompt: str | None = HfArg(
        default=None, help="Text before each query, such as 'query: '. Default: the source's prompt; '' for none."
    )
    document_prompt: str | None = HfArg(default=None, help="Text before each document in a search, in the same way.")
    similarity: Literal["cosine", "dot", "mlp"] | None = HfArg(
        default=None,
        help="How two embeddings are compared. Default: as sentence-transformers does, or by their cosine.",
    )
    similarity_hidden_size: int = HfArg(default=512, help="Hidden size of the mlp similarity.")
    hidden_dropout_prob: float | None = HfArg(default=None, help="Dropout. Default: the source's.")
    attention_probs_dropout_prob: float | None = HfArg(
        default=None, help="Dropout of attention, which makes long texts slow on a CPU. Default: 0 after a conversion."
    )

    def __post_init__(self) -> None:
        kinds, defaults = self.layer_types or [], type(self).__dataclass_fields__
        has_window = not kinds or any("sliding" in kind for kind in kinds)
        needs = {
            "attention_chunk_size": ("`layer_types` of chunked_attention", "chunked_attention" in kinds),
            "sliding_window": ("`layer_types` with a window", has_window),
            "similarity_hidden_size": ("`similarity` mlp", self.similarity == "mlp"),
        }
        for name, (need, is_met) in needs.items():
            if not is_met and getattr(self, name) != defaults[name].default:
                raise ValueError(f"{name}={getattr(self, name)} needs {need}: add that, or leave `{name}` out.")

    def with_prompts(self, settings: "TextSettings") -> "TextSettings":
        """The settings of a model with the prompts given here in place of its own."""
        given = {"query": self.query_prompt, "document": self.document_prompt}
        known = settings.prompts | {name: text for name, text in given.items() if text is not None}
        return replace(settings, prompts={name: text for name, text in known.items() if text})
