# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Where models run: the one choice of device and threads."""

import torch


def default_device() -> torch.device:
    """The accelerator of this machine if there is one, otherwise the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def set_threads(threads: int | None) -> None:
    """Limits the CPU threads of torch; `None` leaves them as they are."""
    if threads is not None:
        torch.set_num_threads(threads)
