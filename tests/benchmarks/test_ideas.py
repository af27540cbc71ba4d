# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Both sides of each idea compute the same."""

import ideas
import pytest
import torch


@pytest.mark.parametrize("make", [ideas.compare_windows_and_slots, ideas.compare_passes, ideas.compare_layers])
def test_both_sides_of_an_idea_have_the_same_values(monkeypatch, make):
    monkeypatch.setattr(ideas, "compare", lambda _, tasks: [task() for task in tasks.values()])
    monkeypatch.setattr(ideas, "BATCH_TOKENS", 1000)
    with torch.inference_mode():
        torch.testing.assert_close(*make(500, torch.float32), rtol=1e-4, atol=1e-5)
