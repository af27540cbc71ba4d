# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The encoders that are compared by speed: DSE and its peers in one shape, with random weights."""

from collections.abc import Callable
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import torch
from torch import nn
from transformers import (
    AutoModel,
    BertConfig,
    BigBirdConfig,
    FNetConfig,
    LongformerConfig,
    ModernBertConfig,
    NystromformerConfig,
)

from hf_dse.inference.loading import load_config
from hf_dse.modeling import DseConfig
from hf_dse.student.sources import BERT_FIELDS, SOURCES


# The size of BERT base and of most cross-encoders, whatever the shape of the other models.
CROSS_ENCODER = "bert-base"

LANDMARKS = 64

LONGFORMER_WINDOW = 512

BIG_BIRD_BLOCK = 64


@dataclass(frozen=True)
class Shape:
    """What the compared models have in common. The defaults are the shape of all-MiniLM-L6-v2."""

    hidden_size: int = 384
    num_hidden_layers: int = 6
    num_attention_heads: int = 12
    intermediate_size: int = 1536
    vocab_size: int = 30522
    linformer_length: int = 128


def read_shape(name_or_path: str | None) -> Shape:
    """
    Reads the sizes of an encoder.

    Args:
        name_or_path (`str`, *optional*):
            Folder or Hub name. Defaults to all-MiniLM-L6-v2.

    Returns:
        `Shape`: its sizes.

    Raises:
        `ValueError`: if the config lacks a size.
    """
    if name_or_path is None:
        return Shape()
    config = load_config(name_or_path)
    names = SOURCES[config.model_type].fields if config.model_type in SOURCES else BERT_FIELDS
    sizes = {}
    for ours in ("hidden_size", "num_hidden_layers", "num_attention_heads", "intermediate_size", "vocab_size"):
        if not isinstance(getattr(config, names[ours], None), int):
            raise ValueError(
                f"{name_or_path} is of the type {config.model_type!r}, whose config has no number `{names[ours]}`: "
                "name an encoder such as BERT."
            )
        sizes[ours] = getattr(config, names[ours])
    return Shape(**sizes)


def dse_config(shape: Shape, length: int, kind: str) -> DseConfig:
    """
    DSE with one of its projections to k rows; `"chunked"`: in chunks of k tokens in the lower two thirds of its
    layers, and strided to 4 k rows in the others; `"funnel"`: in such chunks in the lower half, and a funnel of 4 k
    rows in the upper half.
    """
    fields, k = bert_fields(shape, length), shape.linformer_length
    if kind not in ("chunked", "funnel"):
        return DseConfig(**fields, linformer_projection=kind, linformer_length=k)
    num_linear = -(-shape.num_hidden_layers // (3 if kind == "chunked" else 2))
    kinds = ["chunked_attention"] * (shape.num_hidden_layers - num_linear) + ["linear_attention"] * num_linear
    fields.update(layer_types=kinds, attention_chunk_size=k, linformer_projection="strided", linformer_length=4 * k)
    return DseConfig(**fields, funnel_layers=num_linear if kind == "funnel" else 0)


def build_dse(shape: Shape, length: int, kind: str) -> nn.Module:
    """DSE of one kind."""
    return AutoModel.from_config(dse_config(shape, length, kind))


class QueryOnly(nn.Module):
    """Gives each token its own query in place of what it attends to."""

    def __init__(self, query: nn.Module):
        super().__init__()
        self.query = query

    def forward(self, hidden_states: torch.Tensor, *args: Any, **kwargs: Any) -> tuple[torch.Tensor, None]:
        return self.query(hidden_states), None


def build_no_attention(shape: Shape, length: int) -> nn.Module:
    """`dse-strided` with attention left out: embeddings, query and output layers, feed-forward layers and norms."""
    model: Any = build_dse(shape, length, kind="strided")
    for layer in model.encoder.layer:
        layer.attention.self = QueryOnly(layer.attention.self.query)
    return model


def build_bert(shape: Shape, length: int, attention: str) -> nn.Module:
    """BERT with softmax attention: the fused kernel (`"sdpa"`) or plain matrix products (`"eager"`)."""
    return AutoModel.from_config(BertConfig(**bert_fields(shape, length)), attn_implementation=attention)


def build_bert_base(shape: Shape, length: int) -> nn.Module:
    """BERT of 12 layers of 768, the size of a teacher, with the vocabulary of the others."""
    sizes = {"hidden_size": 768, "num_hidden_layers": 12, "num_attention_heads": 12, "intermediate_size": 3072}
    return build_bert(replace(shape, **sizes), length, attention="sdpa")


def build_modernbert(shape: Shape, length: int) -> nn.Module:
    """ModernBERT: a window of 128 tokens, every third layer full attention."""
    # Its feed-forward layer is gated and has three matrices instead of two.
    fields = {**bert_fields(shape, length), "intermediate_size": 2 * shape.intermediate_size // 3}
    for name in ("hidden_dropout_prob", "attention_probs_dropout_prob", "hidden_act"):
        del fields[name]
    # Its default special tokens are outside of a smaller vocabulary.
    fields.update(bos_token_id=0, eos_token_id=0, cls_token_id=0, sep_token_id=0)
    return AutoModel.from_config(ModernBertConfig(**fields), attn_implementation="sdpa")


def build_nystromformer(shape: Shape, length: int) -> nn.Module:
    """Nystromformer with 64 landmarks, each the mean of an equal part of the input."""
    landmarks = min(LANDMARKS, length)
    if length % landmarks:
        raise ValueError(f"Nystromformer needs a multiple of its {LANDMARKS} landmarks, not {length} tokens.")
    # Any other segment length than that of the input fails, or is full attention where it equals the landmarks.
    return AutoModel.from_config(
        NystromformerConfig(**bert_fields(shape, length), segment_means_seq_len=length, num_landmarks=landmarks)
    )


def build_longformer(shape: Shape, length: int) -> nn.Module:
    """Longformer with its published window of 512 tokens, to which it pads, and without global tokens."""
    fields = bert_fields(shape, length)
    # Its positions begin after the padding index.
    fields["max_position_embeddings"] = _round_up(length, LONGFORMER_WINDOW) + 2
    return AutoModel.from_config(LongformerConfig(**fields, attention_window=LONGFORMER_WINDOW))


def build_big_bird(shape: Shape, length: int) -> nn.Module:
    """BigBird with blocks of 64 tokens, three of them random; up to 704 tokens it uses full attention."""
    fields = bert_fields(shape, length)
    fields["max_position_embeddings"] = _round_up(length, BIG_BIRD_BLOCK)
    return AutoModel.from_config(BigBirdConfig(**fields, block_size=BIG_BIRD_BLOCK))


def build_fnet(shape: Shape, length: int) -> nn.Module:
    """FNet: a Fourier transform in place of attention."""
    fields = bert_fields(shape, length)
    for name in ("num_attention_heads", "attention_probs_dropout_prob"):
        del fields[name]
    return AutoModel.from_config(FNetConfig(**fields))


def build_linformer(shape: Shape, length: int) -> nn.Module:
    """The package `linformer` (lucidrains); its feed-forward layer always has four times the hidden size."""
    from linformer import Linformer

    encoder = Linformer(
        dim=shape.hidden_size,
        seq_len=length,
        depth=shape.num_hidden_layers,
        k=shape.linformer_length,
        heads=shape.num_attention_heads,
    )
    return nn.Sequential(nn.Embedding(shape.vocab_size, shape.hidden_size), encoder)


def build_linformer_pytorch(shape: Shape, length: int) -> nn.Module:
    """The package `linformer-pytorch` (tatp22), which loops over heads."""
    from linformer_pytorch import Linformer

    encoder = Linformer(
        input_size=length,
        channels=shape.hidden_size,
        dim_k=shape.linformer_length,
        dim_ff=shape.intermediate_size,
        nhead=shape.num_attention_heads,
        depth=shape.num_hidden_layers,
        dropout=0.0,
        dropout_ff=0.0,
        parameter_sharing="kv",
    )
    return nn.Sequential(nn.Embedding(shape.vocab_size, shape.hidden_size), encoder)


BUILDERS: dict[str, Callable[[Shape, int], nn.Module]] = {
    "bert-sdpa": partial(build_bert, attention="sdpa"),
    "dse-learned": partial(build_dse, kind="learned"),
    "dse-mean": partial(build_dse, kind="mean"),
    "dse-strided": partial(build_dse, kind="strided"),
    "dse-max": partial(build_dse, kind="max"),
    "dse-conv": partial(build_dse, kind="conv"),
    "dse-chunked": partial(build_dse, kind="chunked"),
    "dse-funnel": partial(build_dse, kind="funnel"),
    "no-attention": build_no_attention,
    "bert-eager": partial(build_bert, attention="eager"),
    "modernbert": build_modernbert,
    "nystromformer": build_nystromformer,
    "longformer": build_longformer,
    "bigbird": build_big_bird,
    "fnet": build_fnet,
    "linformer": build_linformer,
    "linformer-pytorch": build_linformer_pytorch,
    CROSS_ENCODER: build_bert_base,
}

# Models that need a package of their own, and the module of that package.
MODULES = {"linformer": "linformer", "linformer-pytorch": "linformer_pytorch"}


def bert_fields(shape: Shape, length: int) -> dict[str, Any]:
    return {
        "vocab_size": shape.vocab_size,
        "hidden_size": shape.hidden_size,
        "num_hidden_layers": shape.num_hidden_layers,
        "num_attention_heads": shape.num_attention_heads,
        "intermediate_size": shape.intermediate_size,
        "max_position_embeddings": length,
        "hidden_act": "gelu",
        "hidden_dropout_prob": 0.0,
        # Fused attention kernels differ in what they do about dropout; without it all do the same work.
        "attention_probs_dropout_prob": 0.0,
        "pad_token_id": 0,
    }


def _round_up(number: int, multiple: int) -> int:
    return -(-number // multiple) * multiple


def count_flops(config: DseConfig, batch_size: int, length: int) -> int:
    """
    Counts the floating-point operations of the matrix products in a forward pass of [`DseModel`]; a product of
    `(a, b)` and `(b, c)` has 2abc. Softmax, norms, activations and gathered tokens, which are far fewer, are left out.

    A layer of hidden size d and intermediate size f, that attends from n tokens to s slots, has for each text

        4nd² (query, output) + 4sd² (key, value) + 4nsd (logits, context) + 4ndf (feed-forward)

    with s = n in full attention and in projections without parameters for n <= k, otherwise s = min(k, n); in chunks s
    is their size and the two ends of the text, whose keys and values are those of their own chunk. Learned
    projections add 2snd, and convolutions 2swd with a kernel of w > 1 tokens, for E, and the same for F if it is not
    E. With `linformer_sharing="none"` key and value are computed for n rows. In a funnel n is s itself.

    Args:
        config (`DseConfig`):
            The model, with `linformer_init` other than `"random"` and without a linear layer after the pooling.
        batch_size (`int`):
            Texts in a batch.
        length (`int`):
            Tokens of each text.

    Returns:
        `int`: the number of operations.
    """
    n, d, f = length, config.hidden_size, config.intermediate_size
    has_parameters = config.linformer_projection in ("learned", "conv")
    total = 0
    for layer, (kind, k) in enumerate(zip(config.layer_types or [], config.projected_lengths, strict=True)):
        if layer == config.num_hidden_layers - config.funnel_layers:
            n = min(k, n)
        is_projected = kind == "linear_attention" and (has_parameters or n > k)
        is_cut = kind == "chunked_attention" and n > config.attention_chunk_size
        # The last chunk is filled up.
        queries = -(-n // config.attention_chunk_size) * config.attention_chunk_size if is_cut else n
        s = min(k, n) if is_projected else 2 + config.attention_chunk_size if is_cut else n
        rows = s if is_projected and not (has_parameters and config.linformer_sharing == "none") else queries
        total += 2 * (queries + n) * d * d + 4 * rows * d * d + 4 * queries * s * d + 4 * n * d * f
        if is_projected and has_parameters:
            width = n if config.linformer_projection == "learned" else max(1, -(-(n - 2) // (k - 2)))
            matrices = 1 if config.linformer_sharing in ("key_value", "layerwise") else 2
            # A kernel of one token scales it, which is no matrix product.
            total += matrices * 2 * s * width * d if width > 1 else 0
    return batch_size * total
