# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The other kinds of linear attention in studies/linear_attentions.py."""

import math
from types import SimpleNamespace

import linear_attentions
import pytest
import torch


@pytest.mark.parametrize("length", [5, 64, 65, 200])
@pytest.mark.parametrize("kind", ["kernel", "decay"])
def test_other_linear_attention_is_a_weighted_mean(kind, length):
    """Weights of all pairs of tokens, one by one, against sums over blocks."""
    torch.manual_seed(0)
    query, key, value = torch.randn(3, 2, 4, length, 8, dtype=torch.float64)
    mask = torch.ones(2, 1, 1, length, dtype=torch.bool)
    mask[1, ..., -2:] = False
    module = SimpleNamespace(linformer_layer=SimpleNamespace(layer_idx=1, num_layers=4))
    outputs, _ = getattr(linear_attentions, f"{kind}_attention")(module, query, key, value, mask)

    places = torch.arange(length)
    weights = (torch.nn.functional.elu(query) + 1) @ (torch.nn.functional.elu(key) + 1).transpose(2, 3)
    weights = weights * mask
    if kind == "decay":
        # Heads forget at rates of 1/4, 1/16, 1/64 and 1/256 in the lowest layer, three quarters of that in the second.
        rates = torch.tensor([0.75 * math.pow(4, -head) for head in (1, 2, 3, 4)])[:, None, None]
        weights = weights * torch.exp(-rates * (places[:, None] - places).abs())
    expected = weights / weights.sum(dim=-1, keepdim=True) @ value
    torch.testing.assert_close(outputs.transpose(1, 2), expected, rtol=0, atol=1e-6)
