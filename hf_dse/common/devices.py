# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The choice of device and CPU threads, and whether bfloat16 pays there."""

import timeit
from functools import cache, partial

import torch
from transformers.utils import logging


logger = logging.get_logger(__name__)

# A product of two matrices of this size takes less than a millisecond, and 0.1 seconds where bfloat16 is emulated.
SIZE = 256


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Returns the given device; without one, an accelerator if available, otherwise the CPU."""
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


@cache
def bf16_speed() -> float:
    """Returns the speed of a bfloat16 matrix product on this CPU, as a multiple of the speed in float32."""
    seconds = {}
    for dtype in (torch.float32, torch.bfloat16):
        matrix = torch.ones(SIZE, SIZE, dtype=dtype)
        # The fastest of several: other programs may have the cores for a while.
        seconds[dtype] = min(timeit.repeat(partial(torch.mm, matrix, matrix), number=1, repeat=5))
    return seconds[torch.float32] / seconds[torch.bfloat16]


def advise_bf16(device: str | torch.device, option: str) -> None:
    """Warns that `option` asks for bfloat16 on a CPU without instructions for it, which is far slower."""
    if torch.device(device).type == "cpu" and bf16_speed() < 0.5:
        logger.warning(
            f"{option}: this CPU has no instructions for bfloat16, and multiplies matrices {1 / bf16_speed():,.0f} "
            "times as slowly as in float32. Leave the option out."
        )


def end_process_group() -> None:
    """Ends the group of a distributed run, if this is one. A process that exits within its group may abort."""
    if torch.distributed.is_available() and torch.distributed.is_initialized():
        torch.distributed.barrier()
        torch.distributed.destroy_process_group()


def set_threads(threads: int | None) -> None:
    """Sets the number of CPU threads of torch; `None` changes nothing."""
    if threads is not None:
        torch.set_num_threads(threads)
