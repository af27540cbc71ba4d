# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Timing in turn, and the file of a benchmark's numbers."""

import argparse
import json
import time
from collections.abc import Callable, Mapping
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from hf_dse.common.files import write_atomically
from hf_dse.common.provenance import describe_machine


PACKAGES = ("hf-dse", "torch", "transformers", "sentence-transformers", "numpy")


def interleave(
    tasks: Mapping[str, Callable[[], object]],
    rounds: int,
    min_seconds: float = 0.0,
    device: torch.device | None = None,
) -> dict[str, list[float]]:
    """
    Times tasks in turn: every round times each task once, so that a machine that slows down hits all alike.

    Args:
        tasks (`Mapping[str, Callable]`):
            Tasks by name. A task should have run once before.
        rounds (`int`):
            Timings of each task.
        min_seconds (`float`, *optional*, defaults to 0.0):
            A timing repeats its task until this time has passed.
        device (`torch.device`, *optional*):
            Device of the tasks; an accelerator is waited for after each call.

    Returns:
        `dict[str, list[float]]`: for each task the seconds of a call in each round.
    """
    is_cpu = device is None or device.type == "cpu"
    if not is_cpu:
        torch.accelerator.synchronize(device)
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            calls, elapsed = 0, 0.0
            start = time.perf_counter()
            while not calls or elapsed < min_seconds:
                task()
                if not is_cpu:
                    torch.accelerator.synchronize(device)
                calls, elapsed = calls + 1, time.perf_counter() - start
            seconds[name].append(elapsed / calls)
    return seconds


def make_parser(description: str | None) -> argparse.ArgumentParser:
    """A parser with the options that all benchmarks have."""
    parser = argparse.ArgumentParser(description=description, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--threads", type=int, help="CPU threads; default: torch's")
    parser.add_argument("--output", type=Path, help="JSON file for the numbers")
    return parser


def set_threads(number: int | None) -> None:
    """Sets the CPU threads of torch; `None` leaves them as they are."""
    if number is not None:
        torch.set_num_threads(number)


def write_results(args: argparse.Namespace, results: Mapping[str, Any]) -> None:
    """Writes the numbers, the options and the machine to `args.output`, if it is given."""
    if args.output is None:
        return
    report = {
        "machine": describe_machine(),
        "threads": torch.get_num_threads(),
        "versions": {name: version(name) for name in PACKAGES},
        **results,
    }
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    args.output.parent.mkdir(parents=True, exist_ok=True)
    write_atomically(args.output, lambda file: file.write(text.encode()))
