# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Speed by length: DSE beside softmax attention and other efficient encoders of the same shape, in one run."""

import multiprocessing
import re
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import asdict, dataclass, replace
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers.utils.logging import tqdm

from hf_dse.bench.arguments import SpeedArguments
from hf_dse.bench.encoders import BUILDERS, MODULES, Shape, count_flops, dse_config, read_shape
from hf_dse.bench.timing import interleave, write_results
from hf_dse.common.devices import choose_device, set_threads
from hf_dse.common.display import markdown, plot_lines


MATMUL = "matmul"

# Shorter inputs are ruled by what does not depend on the length, so they say nothing about the growth.
SHORTEST_FITTED = 1024


def run_speed(args: SpeedArguments) -> dict[str, Any]:
    """
    Times all models at all lengths, and writes `results.json` and `plot.png` after each length.

    All models have random weights, no dropout and the same shape, as far as their architectures allow, and get the
    same batch of random tokens without padding. At each length they are timed in turn, round by round, together with
    a square matrix product. A ratio is the median over rounds, each of which compares timings of the same round.

    Args:
        args (`SpeedArguments`):
            What to time, and how.

    Returns:
        `dict[str, Any]`: `rows`, one for each model and length as [`summarize_speed`] makes them or with the reason
        why it was `skipped`; `exponents` of the time and `memory_exponents` by model; `shape`, `baseline`, `left_out`
        (packages that are missing) and the rate of matrix products at each length, `matmul_gflops`.

    Raises:
        `ImportError`: if no model is installed.
        `ValueError`: if the config of `shape_from` lacks a size.

    Example:

    ```python
    >>> from hf_dse.bench.speed import SpeedArguments, run_speed, speed_table

    >>> args = SpeedArguments(lengths=[256], models=["bert-sdpa", "dse-mean"], batch_size=1, rounds=1, min_seconds=0)
    >>> results = run_speed(args)
    >>> print(speed_table(results["rows"], results["baseline"]))
    | tokens | model | ...
    ```
    """
    set_threads(args.threads)
    device = choose_device(args.device)
    left_out = [name for name in args.models if name in MODULES and find_spec(MODULES[name]) is None]
    models = [name for name in args.models if name not in left_out]
    if not models:
        raise ImportError(f"{', '.join(left_out)}: not installed. Install them with `pip install hf-dse[bench]`.")
    shape = replace(read_shape(args.shape_from), linformer_length=args.linformer_length)
    baseline = "bert-sdpa" if "bert-sdpa" in models else models[0]
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {"shape": asdict(shape), "device": str(device), "baseline": baseline}
    results.update(left_out=left_out, matmul_gflops={}, rows=rows)
    for length in tqdm(sorted(set(args.lengths)), desc="Timing", unit="length"):
        batch_size = args.batch_size or max(1, args.batch_tokens // length)
        job = Job(shape, length, batch_size, args.dtype, str(device), args.train, torch.get_num_threads())
        size = args.matmul_size or (2048 if device.type == "cpu" else 8192)
        matrix = torch.randn(size, size, dtype=job.torch_dtype, device=device)
        tasks: dict[str, Callable[[], object]] = {MATMUL: partial(torch.mm, matrix, matrix)}
        skipped = _too_slow(rows, args.max_seconds)
        peaks: dict[str, float | None] = {}
        for name in models:
            if name in skipped:
                continue
            # What one architecture cannot do, in this number format or at this length, must not end the comparison.
            try:
                task = job.make_task(name)
                peaks[name] = _first_run(task, device)
            except (ValueError, RuntimeError) as error:
                skipped[name] = f"fails: {str(error).strip().splitlines()[0]}"
            else:
                tasks[name] = task
        tasks[MATMUL]()
        seconds = interleave(tasks, args.rounds, args.min_seconds, device)
        tasks.clear()
        rate = 2 * size**3 / median(seconds[MATMUL])
        results["matmul_gflops"][str(length)] = rate / 1e9
        for row in summarize_speed(seconds, length, batch_size, baseline):
            name = row["model"]
            row["flop_share"] = None
            if name.startswith("dse-"):
                config = dse_config(shape, length, name.removeprefix("dse-"))
                # In training every product has two more, for the gradients of its factors.
                flops = count_flops(config, batch_size, length) * (3 if args.train else 1)
                row["flop_share"] = flops / median(row["seconds"]) / rate
            row["peak_memory_mb"] = job.measure_memory(name) if args.memory and device.type == "cpu" else peaks[name]
            rows.append(row)
        rows += [{"model": name, "length": length, "skipped": reason} for name, reason in skipped.items()]
        results["exponents"] = fit_exponents(rows)
        results["memory_exponents"] = fit_exponents(rows, "peak_memory_mb")
        write_results(args.output_dir, args, results)
        lines = {name: _line(rows, name) for name in models if _line(rows, name)[0]}
        plot_lines(
            {_title(args): lines},
            f"{args.output_dir}/plot.png",
            "tokens of a text",
            "milliseconds for a text",
            "model",
        )
    return results


@dataclass(frozen=True)
class Job:
    """One length: a batch of it, and how it is run."""

    shape: Shape
    length: int
    batch_size: int
    dtype: str = "float32"
    device: str = "cpu"
    train: bool = False
    threads: int = 1

    @property
    def torch_dtype(self) -> torch.dtype:
        return getattr(torch, self.dtype)

    def build(self, name: str) -> nn.Module:
        """The model of that name with random weights."""
        torch.manual_seed(0)
        default = torch.get_default_dtype()
        # Made in float32 and converted, a model would need more memory to load than to run.
        torch.set_default_dtype(self.torch_dtype)
        try:
            model = BUILDERS[name](self.shape, self.length)
        finally:
            torch.set_default_dtype(default)
        return model.to(self.device, self.torch_dtype).train(self.train)

    def make_task(self, name: str) -> Callable[[], object]:
        """A function that runs the model once; what it returns are the token states."""
        model = self.build(name)
        size = (self.batch_size, self.length)
        generator = torch.Generator().manual_seed(0)
        # 0 is the padding token of all models.
        input_ids = torch.randint(1, self.shape.vocab_size, size, generator=generator).to(self.device)
        if not self.train:
            return torch.inference_mode()(partial(token_states, model, input_ids))
        # The gradient of a sum would vanish in the last layer norm, and with it the work of the backward pass.
        with torch.no_grad():
            states = token_states(model, input_ids)
        gradient = torch.randn(states.shape, generator=generator).to(states)

        def step() -> torch.Tensor:
            states = token_states(model, input_ids)
            states.backward(gradient)
            # They are part of the memory of a step.
            model.zero_grad(set_to_none=True)
            return states

        return step

    def measure_memory(self, name: str) -> float:
        """MB that a pass needs beyond the loaded model, measured on the CPU in a process of its own."""
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            return executor.submit(_memory_of_pass, self, name).result()


def token_states(model: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """What a model makes of tokens `(batch_size, seq_len)`: states `(batch_size, seq_len, hidden_size)`."""
    outputs = model(input_ids)
    return outputs if isinstance(outputs, torch.Tensor) else outputs.last_hidden_state


def summarize_speed(
    seconds: Mapping[str, Sequence[float]], length: int, batch_size: int, baseline: str
) -> list[dict[str, Any]]:
    """
    Turns timings into rows.

    Args:
        seconds (`Mapping[str, Sequence[float]]`):
            Seconds of a batch in each round, by model, as [`interleave`] returns them.
        length (`int`):
            Tokens of each text.
        batch_size (`int`):
            Texts in a batch.
        baseline (`str`):
            The model that the others are compared with.

    Returns:
        `list[dict]`: for each model its `seconds`, their median, minimum and maximum in `ms`, `ms_min` and `ms_max`,
        `tokens_per_second`, and `speedup`, the median ratio of the baseline's time to its own in the same round
        (`None` without a baseline).
    """
    rows = []
    for name, timings in seconds.items():
        if name == MATMUL:
            continue
        speedup = None
        if baseline in seconds:
            speedup = median(base / own for base, own in zip(seconds[baseline], timings, strict=True))
        rows.append(
            {
                "model": name,
                "length": length,
                "batch_size": batch_size,
                "seconds": list(timings),
                "ms": 1e3 * median(timings),
                "ms_min": 1e3 * min(timings),
                "ms_max": 1e3 * max(timings),
                "tokens_per_second": batch_size * length / median(timings),
                "speedup": speedup,
            }
        )
    return rows


def fit_exponents(rows: Sequence[Mapping[str, Any]], column: str = "ms") -> dict[str, float]:
    """
    Fits the growth of the time or memory for a text: the exponent e of time = c * length^e, by least squares on
    logarithms, over lengths of at least 1,024. Linear attention tends to 1, softmax attention to 2.

    Args:
        rows (`Sequence[Mapping]`):
            What [`summarize_speed`] returns, for all lengths.
        column (`str`, *optional*, defaults to `"ms"`):
            What is to be fitted, of a batch: `"ms"` or `"peak_memory_mb"`.

    Returns:
        `dict[str, float]`: the exponents of models that were measured at two or more such lengths.
    """
    exponents = {}
    for name in dict.fromkeys(row["model"] for row in rows):
        xs, ys = _line([row for row in rows if row["length"] >= SHORTEST_FITTED], name, column)
        if len(xs) >= 2:
            exponents[name] = float(np.polyfit(np.log(xs), np.log(ys), deg=1)[0])
    return exponents


def speed_table(rows: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """The rows as a Markdown table, and a line for each model that was left out at some length."""
    header = ["tokens", "model", "ms", "min to max", "tokens/s", f"x {baseline}", "of matmul", "MB"]
    cells, notes = [], []
    for row in rows:
        if "skipped" in row:
            cells.append([str(row["length"]), row["model"], *["-"] * 6])
            notes.append(f"{row['model']} at {row['length']} tokens: {row['skipped']}")
            continue
        share, memory = row["flop_share"], row["peak_memory_mb"]
        cells.append(
            [
                str(row["length"]),
                row["model"],
                f"{row['ms']:.1f}",
                f"{row['ms_min']:.1f} to {row['ms_max']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                "-" if row["speedup"] is None else f"{row['speedup']:.2f}",
                "-" if share is None else f"{100 * share:.0f} %",
                "-" if memory is None else f"{memory:,.0f}",
            ]
        )
    return "\n".join([markdown(header, cells, num_left=2), *([""] if notes else []), *notes])


def exponent_table(time: Mapping[str, float], memory: Mapping[str, float]) -> str:
    """The exponents as a Markdown table; without a column for the memory where it was not measured."""
    columns = {"time": time, "memory": memory} if memory else {"time": time}
    header = ["model", *(f"{what} grows with length to the power of" for what in columns)]
    rows = [[name, *(f"{of[name]:.2f}" if name in of else "-" for of in columns.values())] for name in time]
    return markdown(header, rows, num_left=1)


def _title(args: SpeedArguments) -> str:
    return f"{'forward and backward' if args.train else 'forward'}, {args.dtype}, k = {args.linformer_length}"


def _line(rows: Sequence[Mapping[str, Any]], name: str, column: str = "ms") -> tuple[list[int], list[float]]:
    """Lengths at which a model was measured, and its milliseconds (or another column) for a text at each."""
    measured = [row for row in rows if row["model"] == name and row.get(column) is not None]
    return [row["length"] for row in measured], [row[column] / row["batch_size"] for row in measured]


def _too_slow(rows: Sequence[Mapping[str, Any]], max_seconds: float) -> dict[str, str]:
    """Models that took too long for a batch, with the reason for leaving them out from now on."""
    reasons: dict[str, str] = {}
    for row in rows:
        if "skipped" not in row and row["ms"] > 1e3 * max_seconds:
            reasons[row["model"]] = f"left out, a batch took {row['ms'] / 1e3:.1f} s at {row['length']} tokens"
    return reasons


def _first_run(task: Callable[[], object], device: torch.device) -> float | None:
    """Runs a task for the first time; on a GPU, returns the MB that it needs beyond what was there before."""
    if device.type != "cuda":
        task()
        return None
    task()
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    task()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def _memory_of_pass(job: Job, name: str) -> float:
    set_threads(job.threads)
    task = job.make_task(name)
    before = _peak_bytes()
    task()
    return (_peak_bytes() - before) / 2**20


def _peak_bytes() -> int:
    """The most memory that this process has held so far."""
    # On Linux `ru_maxrss` also counts what the parent process held when it started this one.
    status = Path("/proc/self/status")
    if status.is_file():
        peak = re.search(r"VmHWM:\s+(\d+) kB", status.read_text())
        if peak is not None:
            return 1024 * int(peak[1])
    import resource

    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)
