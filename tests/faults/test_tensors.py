# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensors of every wrong kind: they are refused, or have the embeddings of the same texts in the right kind."""

import re

import pytest
import torch
from bad_input import TINY, no_hang
from counting import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import DseConfig, DseForSequenceClassification, DseModel


FUZZ = settings(max_examples=100, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=1000, deadline=None, derandomize=True, database=None)

IDS = torch.arange(4, 28).reshape(2, 12)
ONES = torch.ones_like(IDS)


def make(model_class=DseModel, **fields):
    torch.manual_seed(0)
    return model_class(
        DseConfig(
            **{**TINY, "linformer_length": 5, "sep_token_id": 3, "num_labels": 1, "initializer_range": 0.2, **fields}
        )
    ).eval()


@pytest.fixture(scope="module")
def model():
    return make()


@pytest.fixture(scope="module")
def pair_model():
    return make(DseForSequenceClassification)


def embed(model, *args, **inputs):
    with torch.no_grad(), no_hang():
        return model(*args, **inputs).pooler_output


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        (
            {"input_ids": IDS + 100},
            "`input_ids` must be from 0 to 49, got 104 to 127: use the tokenizer",
        ),
        ({"input_ids": IDS - 5}, "`input_ids` must be from 0 to 49, got -1 to 22"),
        ({"input_ids": IDS.float()}, "`input_ids` must be integers .*got torch.float32"),
        ({"input_ids": IDS.bool()}, "`input_ids` must be integers .*got torch.bool"),
        ({"input_ids": IDS, "token_type_ids": ONES * 2}, "`token_type_ids` must be from 0 to 1, got 2 to 2"),
        ({"input_ids": IDS, "token_type_ids": ONES.float()}, "`token_type_ids` must be integers"),
        ({"input_ids": IDS[0]}, r"must have the shape \(batch_size, seq_len\), got \(12,\)"),
        ({"input_ids": IDS[None]}, r"must have the shape \(batch_size, seq_len\), got \(1, 2, 12\)"),
        ({"input_ids": IDS[:, :0]}, r"has the shape \(2, 0\): pass at least one text, each with a token"),
        ({"input_ids": IDS[:0]}, r"has the shape \(0, 12\): pass at least one text"),
        ({"input_ids": torch.ones(1, 17, dtype=torch.long)}, "17 tokens, but this model takes at most 16"),
        ({"input_ids": IDS, "attention_mask": ONES[:, :5]}, "`attention_mask` must have the shape"),
        ({"input_ids": IDS, "attention_mask": ONES[:1]}, "`attention_mask` must have the shape"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 12, 12)}, "n x n masks have no meaning"),
        ({"input_ids": IDS, "attention_mask": ONES * 0.5}, "`attention_mask` must be 1 for tokens and 0 for padding"),
        ({"input_ids": IDS, "attention_mask": ONES * 2}, "`attention_mask` must be 1 for tokens"),
        ({"input_ids": IDS, "attention_mask": ONES * float("nan")}, "`attention_mask` must be 1 for tokens"),
        # What is added to attention logits elsewhere is the opposite: 0 for tokens.
        ({"input_ids": IDS, "attention_mask": torch.zeros(2, 12).masked_fill(IDS > 12, -1e9)}, "must be 1 for tokens"),
        ({"input_ids": IDS, "position_ids": ONES[:, :5]}, r"`position_ids` must have the shape .*got \(2, 5\)"),
        ({"input_ids": IDS, "position_ids": ONES[:, :1]}, r"of the input, \(2, 12\), or one row .*got \(2, 1\)"),
        ({"input_ids": IDS, "position_ids": torch.ones(3, 12)}, r"`position_ids` must have the shape .*got \(3, 12\)"),
        ({"input_ids": IDS, "position_ids": ONES[None]}, r"`position_ids` must have the shape .*got \(1, 2, 12\)"),
        ({"input_ids": IDS, "position_ids": torch.tensor(1)}, r"`position_ids` must have the shape .*got \(\)"),
        ({"input_ids": IDS, "position_ids": ONES.bool()}, "`position_ids` must be integers .*got torch.bool"),
        ({"input_ids": IDS, "position_ids": ONES * 16}, "`position_ids` must be from 0 to 15, got 16 to 16"),
        ({"input_ids": IDS, "position_ids": -ONES}, "`position_ids` must be from 0 to 15, got -1 to -1"),
        ({"input_ids": IDS, "position_ids": ONES * 15.5}, "`position_ids` must be from 0 to 15, got 15.5 to 15.5"),
        ({"input_ids": IDS, "position_ids": ONES * float("nan")}, "`position_ids` must be from 0 to 15, got nan"),
        ({}, "exactly one of `input_ids` and `inputs_embeds`"),
        ({"input_ids": IDS, "inputs_embeds": torch.ones(2, 12, 16)}, "exactly one of `input_ids` and `inputs_embeds`"),
    ],
)
def test_inputs_that_are_refused(model, inputs, message):
    with pytest.raises(ValueError, match=message):
        embed(model, **inputs)


@pytest.mark.parametrize("dtype", [torch.bool, torch.int32, torch.uint8, torch.float32, torch.bfloat16])
def test_masks_of_all_types(model, dtype):
    mask = ONES.clone()
    mask[0, 7:] = 0
    assert torch.equal(embed(model, IDS, mask.to(dtype)), embed(model, IDS, mask))
    assert torch.equal(embed(model, IDS.int(), mask), embed(model, IDS, mask))


@pytest.mark.parametrize("shape", [(2, 12), (1, 12), (12,)])
@pytest.mark.parametrize("dtype", [torch.long, torch.int32, torch.float32])
@pytest.mark.parametrize("padding", ["none", "right", "left"])
def test_positions_of_all_shapes_and_types(model, shape, dtype, padding):
    """The positions that the model would take, for all tokens or with padding before or behind them."""
    mask = ONES.clone()
    if padding != "none":
        mask[:, 7:] = 0
    positions = torch.arange(12)
    if padding == "left":
        mask, positions = mask.flip(1), torch.arange(-5, 7).clamp(min=0)
    told = embed(model, IDS, mask, position_ids=positions.to(dtype).expand(shape))
    torch.testing.assert_close(told, embed(model, IDS, mask))


@pytest.mark.parametrize("pooling_mode", ["mean", "max", "cls"])
def test_a_row_of_padding_only_changes_no_other(pooling_mode):
    model = make(pooling_mode=pooling_mode)
    mask = ONES.clone()
    mask[0] = 0
    embeddings = embed(model, IDS, mask)
    assert embeddings.isfinite().all()
    torch.testing.assert_close(embeddings[1:], embed(model, IDS[1:]))


def test_the_limit_of_tokens(model):
    ids = torch.arange(4, 20)[None]
    assert embed(model, ids).isfinite().all()
    torch.testing.assert_close(embed(model, ids[:, :1]), embed(model, ids, (torch.arange(16) < 1)[None]))


PAIRS = torch.tensor([[1, 5, 6, 3, 7, 8, 3], [1, 9, 3, 10, 11, 12, 3]])


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": PAIRS[0]}, r"must have the shape \(batch_size, seq_len\), or .*got \(7,\)"),
        ({"input_ids": PAIRS[:0]}, r"got \(0, 7\)"),
        ({"input_ids": PAIRS[:, :0]}, r"got \(2, 0\)"),
        ({"input_ids": PAIRS[:, None].expand(2, 3, 7)}, r"got \(2, 3, 7\)"),
        ({"input_ids": PAIRS[None, None]}, r"got \(1, 1, 2, 7\)"),
        ({"input_ids": PAIRS, "attention_mask": torch.ones(2, 3)}, r"`attention_mask` must have the shape \(2, 7\)"),
        ({"input_ids": PAIRS, "attention_mask": torch.zeros(2, 7)}, "Row 0 holds only one sentence"),
        ({"input_ids": PAIRS + 5}, "holds only one sentence"),
        ({"input_ids": PAIRS + 100 * (PAIRS == 6)}, "`input_ids` must be from 0 to 49, got"),
    ],
)
def test_pairs_that_are_refused(pair_model, inputs, message):
    with pytest.raises(ValueError, match=message):
        pair_model(**inputs)


@pytest.mark.parametrize("labels", [torch.ones(1), torch.ones(3), torch.ones(2, 2)])
def test_labels_of_another_number_than_the_pairs(pair_model, labels):
    """One label for two pairs would count for both."""
    shape = re.escape(str(tuple(labels.shape)))
    message = rf"`num_labels=1` needs `labels` of the shape .* of the shape {shape}: pass one for each pair"
    with pytest.raises(ValueError, match=message):
        pair_model(PAIRS, labels=labels)


MODELS = {}


def check_mask(projection, pooling_mode, layer_type, rows, kind):
    """Masks with holes, of any type: each text has the embedding that it has alone."""
    tried()
    key = (projection, pooling_mode, layer_type)
    if key not in MODELS:
        fields = {"layer_types": [layer_type] * 2, "attention_chunk_size": 3}
        MODELS[key] = make(linformer_projection=projection, pooling_mode=pooling_mode, **fields)
    model = MODELS[key]
    mask = torch.tensor(rows)
    ids = torch.arange(4, 4 + mask.numel()).reshape(mask.shape) % 46 + 4
    embeddings = embed(model, ids, mask.to(kind))
    for row, is_token in enumerate(mask.bool()):
        assert embeddings[row].isfinite().all()
        if is_token.any():
            torch.testing.assert_close(
                embeddings[row], embed(model, ids[row][is_token][None])[0], rtol=1e-4, atol=1e-5
            )


MASKS = {
    "projection": st.sampled_from(["learned", "conv", "mean", "max", "strided"]),
    "pooling_mode": st.sampled_from(["mean", "max", "cls"]),
    "layer_type": st.sampled_from(["linear_attention", "chunked_attention", "full_attention"]),
    "rows": st.integers(1, 16).flatmap(
        lambda size: st.lists(st.lists(st.integers(0, 1), min_size=size, max_size=size), min_size=1, max_size=4)
    ),
    "kind": st.sampled_from([torch.bool, torch.long, torch.uint8, torch.float32, torch.float16]),
}


@FUZZ
@given(**MASKS)
def test_masks_with_holes(projection, pooling_mode, layer_type, rows, kind):
    check_mask(projection, pooling_mode, layer_type, rows, kind)


@pytest.mark.slow
@LONG
@given(**MASKS)
def test_many_masks_with_holes(projection, pooling_mode, layer_type, rows, kind):
    check_mask(projection, pooling_mode, layer_type, rows, kind)
