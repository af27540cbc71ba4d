# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The choice of device and CPU threads."""

import torch


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Returns the given device; without one, an accelerator if available, otherwise the CPU."""
    if device is not None:
        return torch.device(device)
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    return accelerator or torch.device("cpu")


def end_process_group() -> None:
    """Ends the group of a distributed run, if this is one. A process that exits within its group may abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def set_threads(threads: int | None) -> None:
    """Sets the number of CPU threads of torch; `None` changes nothing."""
    if threads is not None:
        torch.set_num_threads(threads)
