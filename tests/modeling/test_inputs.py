# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensors of every wrong kind: they are refused, or have the embeddings of the same texts in the right kind."""

import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import DseConfig, DseForSequenceClassification, DseModel


IDS = torch.arange(4, 28).reshape(2, 12)
ONES = torch.ones_like(IDS)
PAIRS = torch.tensor([[1, 5, 6, 3, 7, 8, 3], [1, 9, 3, 10, 11, 12, 3]])


def make(model_class=DseModel, **fields):
    torch.manual_seed(0)
    sizes = {"vocab_size": 50, "hidden_size": 16, "num_hidden_layers": 2, "num_attention_heads": 2}
    sizes |= {"intermediate_size": 8, "max_position_embeddings": 16, "linformer_length": 5}
    others = {"sep_token_id": 3, "num_labels": 1, "initializer_range": 0.2}
    return model_class(DseConfig(**{**sizes, **others, **fields})).eval()


@pytest.fixture(scope="module")
def model():
    return make()


def embed(model, *args, **inputs):
    with torch.no_grad():
        return model(*args, **inputs).pooler_output


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": IDS[0]}, r"must have the shape \(batch_size, seq_len\), got \(12,\)"),
        ({"input_ids": IDS[None]}, r"must have the shape \(batch_size, seq_len\), got \(1, 2, 12\)"),
        ({"input_ids": IDS[:, :0]}, r"has the shape \(2, 0\): pass at least one text, each with a token"),
        ({"input_ids": torch.ones(1, 17, dtype=torch.long)}, "17 tokens, but this model takes at most 16"),
        ({"input_ids": IDS, "attention_mask": ONES[:, :5]}, "`attention_mask` must have the shape"),
        ({"input_ids": IDS, "attention_mask": ONES[:1]}, "`attention_mask` must have the shape"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 12, 12)}, "n x n masks have no meaning"),
        ({"input_ids": IDS, "attention_mask": ONES * 0.5}, "`attention_mask` must be 1 for tokens and 0 for padding"),
        ({"input_ids": IDS, "attention_mask": ONES * float("nan")}, "`attention_mask` must be 1 for tokens"),
        # Elsewhere the mask is added to attention logits, and 0 for tokens.
        ({"input_ids": IDS, "attention_mask": torch.zeros(2, 12).masked_fill(IDS > 12, -1e9)}, "must be 1 for tokens"),
        ({"input_ids": IDS, "position_ids": ONES[:, :1]}, r"must be integers of the shape \(2, 12\).*\(2, 1\)"),
        ({"input_ids": IDS, "position_ids": ONES * 0.5}, "`position_ids` must be integers .*got torch.float32"),
        ({}, "exactly one of `input_ids` and `inputs_embeds`"),
        ({"input_ids": IDS, "inputs_embeds": torch.ones(2, 12, 16)}, "exactly one of `input_ids` and `inputs_embeds`"),
    ],
)
def test_inputs_that_are_refused(model, inputs, message):
    with pytest.raises(ValueError, match=message):
        embed(model, **inputs)


def test_traces_are_refused(model):
    with pytest.raises(ValueError, match="`torch.jit.trace` keeps one length: use `torch.export`"):
        torch.jit.trace(model, torch.ones(1, 3, dtype=torch.long), strict=False)


@pytest.mark.parametrize("shape", [(2, 12), (1, 12), (12,)])
@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_positions_of_all_shapes(model, shape, padding):
    """The positions that the model would take, for all tokens or with padding before or behind them."""
    mask = ONES.clone()
    if padding != "none":
        mask[:, 7:] = 0
    positions = torch.arange(12)
    if padding == "left":
        mask, positions = mask.flip(1), torch.arange(-5, 7).clamp(min=0)
    told = embed(model, IDS, mask, position_ids=positions.expand(shape))
    torch.testing.assert_close(told, embed(model, IDS, mask))


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": PAIRS[0]}, r"must have the shape \(batch_size, seq_len\), or .*got \(7,\)"),
        ({"input_ids": PAIRS[:0]}, r"got \(0, 7\)"),
        ({"input_ids": PAIRS[:, None].expand(2, 3, 7)}, r"got \(2, 3, 7\)"),
        ({"input_ids": PAIRS[None, None]}, r"got \(1, 1, 2, 7\)"),
        ({"input_ids": PAIRS, "attention_mask": torch.ones(2, 3)}, r"`attention_mask` must have the shape \(2, 7\)"),
        ({"input_ids": PAIRS, "attention_mask": torch.zeros(2, 7)}, "Row 0 holds only one sentence"),
        ({"input_ids": PAIRS + 5}, "holds only one sentence"),
    ],
)
def test_pairs_that_are_refused(inputs, message):
    with pytest.raises(ValueError, match=message):
        make(DseForSequenceClassification)(**inputs)


MODELS = {}


@settings(max_examples=60, deadline=None, derandomize=True, database=None)
@given(
    projection=st.sampled_from(["learned", "conv", "mean", "max", "strided"]),
    layer_type=st.sampled_from(["linear_attention", "chunked_attention", "full_attention"]),
    rows=st.integers(1, 16).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 1), min_size=size, max_size=size), min_size=1, max_size=4)
    ),
    kind=st.sampled_from([torch.bool, torch.long, torch.uint8, torch.float32, torch.float16]),
)
def test_masks_with_holes(projection, layer_type, rows, kind):
    """Masks of any type: each text has the embedding that it has alone."""
    key = (projection, layer_type)
    if key not in MODELS:
        fields = {"layer_types": [layer_type] * 2, "attention_chunk_size": 3}
        MODELS[key] = make(linformer_projection=projection, **fields)
    mask = torch.tensor(rows)
    ids = torch.arange(4, 4 + mask.numel()).reshape(mask.shape) % 46 + 4
    embeddings = embed(MODELS[key], ids, mask.to(kind))
    for row, is_token in enumerate(mask.bool()):
        assert embeddings[row].isfinite().all()
        if is_token.any():
            alone = embed(MODELS[key], ids[row][is_token][None])[0]
            torch.testing.assert_close(embeddings[row], alone, rtol=1e-4, atol=1e-5)
