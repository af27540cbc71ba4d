# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The choice of device and CPU threads."""

import torch


MOST_THREADS = 4096


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """
    Returns the given device; without one, an accelerator if available, otherwise the CPU. Raises a `ValueError` if
    there is no such device.
    """
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    default = accelerator or torch.device("cpu")
    if device is None:
        return default
    try:
        # The values of a tensor on the device "meta" cannot be read.
        torch.zeros(1, device=device).item()
    # torch raises an AssertionError where it was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={str(device)!r} cannot be used: {str(error).splitlines()[0]}. The device of this machine is "
            f"{default}: leave the option out to use it."
        ) from error
    return torch.device(device)


def end_process_group() -> None:
    """Ends the group of a distributed run, if this is one. A process that exits within its group may abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def set_threads(threads: int | None) -> None:
    """Sets the number of CPU threads of torch; `None` changes nothing."""
    if threads is not None:
        # With millions, the process ends by a segmentation fault.
        if threads > MOST_THREADS:
            raise ValueError(f"threads={threads:,}: {MOST_THREADS:,} are the most.")
        torch.set_num_threads(threads)
