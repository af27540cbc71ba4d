# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Benchmarks: speed by length, the cost of ranking, the error of projected attention; and what they share."""

import json
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch

from ..data import write_atomically
from ..export import describe_command, describe_machine, package_versions
from ..studies.report import COLORS, MARKERS


PACKAGES = ("hf-dse", "torch", "transformers", "numpy", "linformer", "linformer-pytorch", "faiss-cpu")

# label of a line -> its x and y values
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


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
    seconds: dict[str, list[float]] = {name: [] for name in tasks}
    for _ in range(rounds):
        for name, task in tasks.items():
            calls, elapsed = 0, 0.0
            start = time.perf_counter()
            while not calls or elapsed < min_seconds:
                task()
                if not is_cpu:
                    torch.accelerator.synchronize()
                calls, elapsed = calls + 1, time.perf_counter() - start
            seconds[name].append(elapsed / calls)
    return seconds


def set_threads(threads: int | None) -> None:
    """Limits the CPU threads of torch; `None` leaves them as they are."""
    if threads is not None:
        torch.set_num_threads(threads)


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
        if isinstance(value, str) and Path(value).expanduser().exists():
            options[name] = Path(value).name
    report = {
        "command": describe_command(),
        "options": options,
        "machine": describe_machine(),
        "threads": torch.get_num_threads(),
        "versions": package_versions(PACKAGES),
        **results,
    }
    path = Path(output_dir).expanduser() / "results.json"
    text = json.dumps(report, indent=2, allow_nan=False) + "\n"
    write_atomically(path, lambda file: file.write(text.encode()))
    return path


def plot_lines(panels: Mapping[str, Lines], output_dir: str, x: str, y: str, legend: str | None = None) -> Path | None:
    """
    Draws `plot.png` with logarithmic axes, if matplotlib is installed. Every line has its own marker.

    Args:
        panels (`Mapping[str, Lines]`):
            The lines of each panel, by its title; they share the axes and the legend.
        output_dir (`str`):
            Folder of the plot.
        x (`str`):
            Label of the x axis.
        y (`str`):
            Label of the y axis.
        legend (`str`, *optional*):
            Title of the legend.

    Returns:
        `Path`, *optional*: the file; `None` without matplotlib.
    """
    try:
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(2.6 + 3.8 * len(panels), 4.4), layout="constrained")
    ticks = sorted({value for lines in panels.values() for xs, _ in lines.values() for value in xs})
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(row, panels.items(), strict=True):
        for number, (label, (xs, ys)) in enumerate(lines.items()):
            axes.plot(
                xs,
                ys,
                label=label,
                color=COLORS[number % len(COLORS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle=["-", "--", "-.", ":"][number % 4],
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks], rotation=45)
        axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_title(title)
        axes.grid(alpha=0.3)
    row[0].set_ylabel(y)
    row[-1].legend(title=legend, loc="center left", bbox_to_anchor=(1.0, 0.5))
    path = Path(output_dir).expanduser() / "plot.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
