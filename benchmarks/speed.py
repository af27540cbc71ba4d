# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Speed by length: DSE beside softmax attention and other efficient encoders of the same shape, in one run.

    python benchmarks/speed.py [--models bert-sdpa dse-strided] [--lengths 512 2048 8192] [--dtype bfloat16]

All models have the shape of all-MiniLM-L6-v2 (bert-base: the shape of a teacher), random weights and no dropout, and
get the same batch of random tokens without padding. At each length they are timed in turn, round by round. A ratio is
the median over rounds, each of which compares timings of the same round. bigbird takes minutes on a CPU.
"""

import multiprocessing
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from encoders import MINILM, MODELS, Sizes, build
from timing import interleave, make_parser, set_threads, write_results
from torch import nn
from transformers.utils.logging import tqdm

from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device


# The time of shorter inputs is ruled by what does not depend on the length, so it says nothing about the growth.
SHORTEST_FITTED = 1024


@dataclass(frozen=True)
class Job:
    """A batch of one length, and how it is run."""

    length: int
    batch_size: int
    k: int = 128
    dtype: str = "float32"
    device: str = "cpu"
    train: bool = False
    threads: int | None = None
    sizes: Sizes = field(default_factory=lambda: MINILM)

    def build(self, name: str) -> nn.Module:
        """The model of a name with random weights."""
        torch.manual_seed(0)
        dtype, default = getattr(torch, self.dtype), torch.get_default_dtype()
        # Made in float32 and converted, a model would need more memory to load than to run.
        torch.set_default_dtype(dtype)
        try:
            model = build(name, self.length, self.k, self.sizes)
        finally:
            torch.set_default_dtype(default)
        return model.to(self.device, dtype).train(self.train)

    def make_task(self, name: str) -> Callable[[], torch.Tensor]:
        """A function that runs the model once and returns the token states."""
        model = self.build(name)
        generator = torch.Generator().manual_seed(0)
        # 0 is the padding token of all models.
        size, vocab_size = (self.batch_size, self.length), self.sizes["vocab_size"]
        input_ids = torch.randint(1, vocab_size, size, generator=generator).to(self.device)
        if not self.train:
            return torch.inference_mode()(partial(token_states, model, input_ids))
        # The gradient of a sum would vanish in the last layer norm, and with it the work of the backward pass.
        with torch.no_grad():
            states = token_states(model, input_ids)
        gradient = torch.randn(states.shape, generator=generator).to(states)

        def step() -> torch.Tensor:
            states = token_states(model, input_ids)
            states.backward(gradient)
            # Gradients are part of the memory of a step.
            model.zero_grad(set_to_none=True)
            return states

        return step

    def measure_memory(self, name: str) -> float:
        """MB that a pass needs beyond the loaded model, measured on the CPU in a process of its own."""
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            return executor.submit(memory_of_pass, self, name).result()


def token_states(model: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """The states `(batch_size, seq_len, hidden_size)` of tokens `(batch_size, seq_len)`."""
    return model(input_ids).last_hidden_state


def run_speed(args: Any, sizes: Sizes = MINILM) -> dict[str, Any]:
    """
    Times all models at all lengths.

    Args:
        args (`argparse.Namespace`):
            The options of the command.
        sizes (`Mapping[str, int]`, *optional*):
            Sizes of the models. Defaults to the sizes of all-MiniLM-L6-v2.

    Returns:
        `dict[str, Any]`: `rows`, one for each model and length as [`summarize`] makes them or with the reason why it
        was `skipped`; `exponents` of the time and `memory_exponents` by model; `baseline`.
    """
    set_threads(args.threads)
    device = choose_device(None)
    baseline = "bert-sdpa" if "bert-sdpa" in args.models else args.models[0]
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {"device": str(device), "baseline": baseline, "rows": rows}
    for length in tqdm(sorted(set(args.lengths)), desc="Timing", unit="length"):
        batch_size = args.batch_size or max(1, args.batch_tokens // length)
        k, train = args.linformer_length, args.train
        job = Job(length, batch_size, k, args.dtype, str(device), train, torch.get_num_threads(), dict(sizes))
        skipped = too_slow(rows, args.max_seconds)
        tasks: dict[str, Callable[[], object]] = {}
        peaks: dict[str, float | None] = {}
        for name in args.models:
            if name in skipped:
                continue
            # A failure of one architecture, in this number format or at this length, must not end the comparison.
            try:
                task = job.make_task(name)
                peaks[name] = first_run(task, device)
            except (ValueError, RuntimeError) as error:
                skipped[name] = f"fails: {str(error).strip().splitlines()[0]}"
            else:
                tasks[name] = task
        seconds = interleave(tasks, args.rounds, args.min_seconds, device)
        tasks.clear()
        for row in summarize(seconds, length, batch_size, baseline):
            name = row["model"]
            row["peak_memory_mb"] = job.measure_memory(name) if args.memory and device.type == "cpu" else peaks[name]
            rows.append(row)
        rows += [{"model": name, "length": length, "skipped": reason} for name, reason in skipped.items()]
        results["exponents"] = fit_exponents(rows)
        results["memory_exponents"] = fit_exponents(rows, "peak_memory_mb")
        # A length may take as long as all before it.
        write_results(args, results)
    return results


def summarize(
    seconds: Mapping[str, Sequence[float]], length: int, batch_size: int, baseline: str
) -> list[dict[str, Any]]:
    """
    Turns the seconds of batches into rows: `ms`, `ms_min` and `ms_max` of a batch (`ms` is the median),
    `tokens_per_second`, and `speedup`, the median ratio of the baseline's time to the model's in the same round, or
    `None` without a baseline.
    """
    rows = []
    for name, timings in seconds.items():
        speedup = None
        if baseline in seconds:
            speedup = median(base / own for base, own in zip(seconds[baseline], timings, strict=True))
        rows.append(
            {
                "model": name,
                "length": length,
                "batch_size": batch_size,
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
    The exponents e of time = c * length^e for a text, by least squares on logarithms over lengths of at least 1,024,
    of models that were measured at two or more such lengths. Linear attention tends to 1, softmax attention to 2.
    """
    exponents = {}
    for name in dict.fromkeys(row["model"] for row in rows):
        measured = [row for row in rows if row["model"] == name and row.get(column) is not None]
        measured = [row for row in measured if row["length"] >= SHORTEST_FITTED]
        if len(measured) >= 2:
            xs, ys = zip(*((row["length"], row[column] / row["batch_size"]) for row in measured), strict=True)
            exponents[name] = float(np.polyfit(np.log(xs), np.log(ys), deg=1)[0])
    return exponents


def speed_table(rows: Sequence[Mapping[str, Any]], baseline: str) -> str:
    """The rows as a Markdown table, and a line for each model that was left out at some length."""
    cells, notes = [], []
    for row in rows:
        if "skipped" in row:
            cells.append([str(row["length"]), row["model"], *["-"] * 5])
            notes.append(f"{row['model']} at {row['length']} tokens: {row['skipped']}")
            continue
        memory = row["peak_memory_mb"]
        cells.append(
            [
                str(row["length"]),
                row["model"],
                f"{row['ms']:.1f}",
                f"{row['ms_min']:.1f} to {row['ms_max']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                "-" if row["speedup"] is None else f"{row['speedup']:.2f}",
                "-" if memory is None else f"{memory:,.0f}",
            ]
        )
    header = ["tokens", "model", "ms", "min to max", "tokens/s", f"x {baseline}", "MB"]
    return "\n".join([markdown(header, cells, num_left=2), *([""] if notes else []), *notes])


def exponent_table(time: Mapping[str, float], memory: Mapping[str, float]) -> str:
    """The exponents as a Markdown table; without a column for the memory where it was not measured."""
    columns = {"time": time, "memory": memory} if memory else {"time": time}
    header = ["model", *(f"{what} grows with length to the power of" for what in columns)]
    rows = [[name, *(f"{of[name]:.2f}" if name in of else "-" for of in columns.values())] for name in time]
    return markdown(header, rows, num_left=1)


def too_slow(rows: Sequence[Mapping[str, Any]], max_seconds: float) -> dict[str, str]:
    """Models that took too long for a batch, with the reason for leaving them out from now on."""
    return {
        row["model"]: f"left out, a batch took {row['ms'] / 1e3:.1f} s at {row['length']} tokens"
        for row in rows
        if "skipped" not in row and row["ms"] > 1e3 * max_seconds
    }


def first_run(task: Callable[[], object], device: torch.device) -> float | None:
    """Runs a task for the first time; on a GPU, returns the MB that it needs beyond what was there before."""
    task()
    if device.type != "cuda":
        return None
    before = torch.cuda.memory_allocated(device)
    torch.cuda.reset_peak_memory_stats(device)
    task()
    return (torch.cuda.max_memory_allocated(device) - before) / 2**20


def memory_of_pass(job: Job, name: str) -> float:
    """MB that a pass adds to the peak of this process."""
    set_threads(job.threads)
    task = job.make_task(name)
    before = peak_bytes()
    task()
    return (peak_bytes() - before) / 2**20


def peak_bytes() -> int:
    """The most memory that this process has held so far."""
    # On Linux `ru_maxrss` also counts the memory of the parent process at the start.
    status = Path("/proc/self/status")
    if status.is_file() and (peak := re.search(r"VmHWM:\s+(\d+) kB", status.read_text())):
        return 1024 * int(peak[1])
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss * (1 if sys.platform == "darwin" else 1024)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("--models", nargs="+", default=["bert-sdpa", "dse-learned", "dse-strided"], choices=MODELS)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048], help="tokens of a text")
    parser.add_argument("--linformer_length", type=int, default=128, help="projected length k")
    parser.add_argument("--batch_tokens", type=int, default=2048, help="tokens of a batch, at least one text")
    parser.add_argument("--batch_size", type=int, help="texts of a batch at every length instead")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--rounds", type=int, default=3, help="timings of each model; the median counts")
    parser.add_argument("--min_seconds", type=float, default=0.5, help="seconds of a timing, which repeats the batch")
    parser.add_argument("--max_seconds", type=float, default=60.0, help="slower models are left out at more tokens")
    parser.add_argument("--train", action="store_true", help="time forward and backward pass")
    parser.add_argument("--memory", action="store_true", help="on a CPU, measure the memory too, in new processes")
    args = parser.parse_args(argv)
    results = run_speed(args)
    print(speed_table(results["rows"], results["baseline"]))
    if results["exponents"]:
        print(f"\n{exponent_table(results['exponents'], results['memory_exponents'])}")


if __name__ == "__main__":
    main()
