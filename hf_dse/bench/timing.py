# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Timing in turn, and the report of a benchmark."""

import json
import time
from collections.abc import Callable, Mapping
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from hf_dse.common.files import to_path, write_atomically
from hf_dse.common.provenance import describe_command, describe_machine, package_versions


PACKAGES = ("hf-dse", "torch", "transformers", "numpy", "linformer", "linformer-pytorch", "faiss-cpu")


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
            What is timed, by name. A task should have run once before.
        rounds (`int`):
            How often each task is timed.
        min_seconds (`float`, *optional*, defaults to 0.0):
            A timing repeats its task until this time has passed.
        device (`torch.device`, *optional*):
            Where the tasks run; an accelerator is waited for after each call.

    Returns:
        `dict[str, list[float]]`: for each task the seconds of a call, one number for each round.
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


def write_results(output_dir: str, args: Any, results: Mapping[str, Any]) -> Path:
    """
    Writes `results.json`: what was measured, with which options, on what.

    Args:
        output_dir (`str`):
            Folder, made if there is none.
        args (dataclass or sequence of dataclasses):
            The options, `output_dir` among them. Of local paths only the last part is kept.
        results (`Mapping[str, Any]`):
            What was measured.

    Returns:
        `Path`: the file.
    """
    options: dict[str, Any] = {}
    for part in args if isinstance(args, list | tuple) else [args]:
        options.update(asdict(part))
    del options["output_dir"]
    for name, value in options.items():
        options[name] = [_name(part) for part in value] if isinstance(value, list) else _name(value)
    report = {
        "command": describe_command(),
        "options": options,
        "machine": describe_machine(),
        "threads": torch.get_num_threads(),
        "versions": package_versions(PACKAGES),
        **results,
    }
    path = to_path(output_dir) / "results.json"
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def _name(value: Any) -> Any:
    """The last part of a local path; other values as they are."""
    return Path(value).name if isinstance(value, str) and to_path(value).exists() else value
