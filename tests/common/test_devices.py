# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The choice of a device, and the advice on bfloat16, as far as a CPU can tell."""

import pytest
import torch

from hf_dse.common import devices
from hf_dse.common.devices import advise_bf16, choose_device, set_threads


def test_devices():
    default = choose_device()
    assert choose_device("cpu") == torch.device("cpu")
    for name in ("meta", "cuda:99", "nonsense"):
        with pytest.raises(
            ValueError, match=f"device='{name}' cannot be used: .*The device of this machine is {default}"
        ):
            choose_device(name)


def test_threads():
    before = torch.get_num_threads()
    set_threads(None)
    assert torch.get_num_threads() == before
    set_threads(before + 1)
    assert torch.get_num_threads() == before + 1
    set_threads(before)


@pytest.mark.parametrize(("speed", "is_slow"), [(0.1, True), (1.4, False)])
def test_bfloat16_is_advised_against_where_it_is_slow(speed, is_slow, monkeypatch, warnings):
    assert devices.bf16_speed() > 0
    monkeypatch.setattr(devices, "bf16_speed", lambda: speed)
    advise_bf16("cpu", "--dtype bfloat16")
    assert len(warnings) == is_slow
    if is_slow:
        assert (
            "--dtype bfloat16: this CPU has no instructions for bfloat16" in warnings[0] and "10 times" in warnings[0]
        )
