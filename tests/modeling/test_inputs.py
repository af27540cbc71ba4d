# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tensors of every wrong kind: they are refused, or have the embeddings of the same texts in the right kind."""

import pytest
import torch

from hf_dse import DseModel


IDS = torch.arange(4, 28).reshape(2, 12)
ONES = torch.ones_like(IDS)
PAIRS = torch.tensor([[2, 5, 6, 3, 7, 8, 3], [2, 9, 3, 10, 11, 12, 3]])


@pytest.fixture
def model(make_model):
    return make_model(DseModel)


def embed(model, *args, **inputs):
    with torch.no_grad():
        return model(*args, **inputs).pooler_output


@pytest.mark.parametrize(
    ("inputs", "message"),
    [
        ({"input_ids": IDS[0]}, r"must have the shape \(batch_size, seq_len\), got \(12,\)"),
        ({"input_ids": IDS[:, :0]}, r"has the shape \(2, 0\): pass at least one text, each with a token"),
        ({"input_ids": torch.ones(1, 65, dtype=torch.long)}, "65 tokens, but this model takes at most 64"),
        ({"input_ids": IDS, "attention_mask": ONES[:, :5]}, "`attention_mask` must have the shape"),
        ({"input_ids": IDS, "attention_mask": torch.ones(2, 12, 12)}, "n x n masks have no meaning"),
        # Elsewhere the mask is added to attention logits, and 0 for tokens.
        ({"input_ids": IDS, "attention_mask": torch.zeros(2, 12).masked_fill(IDS > 12, -1e9)}, "must be 1 for tokens"),
        ({"input_ids": IDS, "position_ids": ONES[:, :1]}, r"must be integers of the shape \(2, 12\).*\(2, 1\)"),
        ({}, "exactly one of `input_ids` and `inputs_embeds`"),
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
        ({"input_ids": PAIRS[:, None].expand(2, 3, 7)}, r"got \(2, 3, 7\)"),
        ({"input_ids": PAIRS, "attention_mask": torch.zeros(2, 7)}, "Row 0 holds only one sentence"),
        (
            {"input_ids": PAIRS, "token_type_ids": torch.zeros(2, 2, 7)},
            r"`token_type_ids` must have .*\(2, 7\)",
        ),
    ],
)
def test_pairs_that_are_refused(inputs, message, make_model):
    with pytest.raises(ValueError, match=message):
        make_model()(**inputs)


def test_sentences_encoded_alone_keep_their_token_types(make_model):
    model = make_model()
    pairs, types = PAIRS[:, None].repeat(1, 2, 1), torch.zeros(2, 2, 7, dtype=torch.long)
    types[:, 1, 3:] = 1
    logits, embeddings = (model(pairs, token_type_ids=types)[name] for name in ("logits", "embeddings"))
    alone = model.dse(pairs.flatten(0, 1), token_type_ids=types.flatten(0, 1)).pooler_output
    torch.testing.assert_close(embeddings.flatten(0, 1), alone)
    assert not torch.equal(logits, model(pairs).logits)
