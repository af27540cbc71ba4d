# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Where models run: the one choice of device and threads."""

import torch


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """The device asked for; without one the accelerator of this machine if it has any, otherwise the CPU."""
    if device is not None:
        return torch.device(device)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def set_threads(threads: int | None) -> None:
    """Limits the CPU threads of torch; `None` leaves them as they are."""
    if threads is not None:
        torch.set_num_threads(threads)
