# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Speed by length: encoders with their own attention, in exact blocks and with linear attention, in one run.

    python benchmarks/speed.py --models minilm modernbert-base --variants sdpa blocks linear --lengths 512 2048 8192

A model is a shape (minilm, bert-base, granite-small, modernbert-base, bigbird, fnet), or the folder or Hub id of any
encoder, of which only the configuration is read. Weights are random, and there is no dropout. The variants:

- sdpa: as transformers loads the model; eager and flex: with another of its attention functions; function: with ours,
  by `attn_implementation="linformer"`; free: each token gets its own value, at no cost, so that the ratio to this
  variant, named first, is the share of what no attention can exceed;
- blocks: DSE, where layers with a window attend in blocks, exactly, and the other layers to all tokens; linear: the
  other layers attend to k tokens; sliding: to a window; sliding_linear: to both;
- learned, mean: linear with another projection; chunks: chunks of k tokens in the lower two thirds of the
  layers, 4 k tokens in the others.

All get the same random tokens without padding. At each length they are timed in turn, round by round. A ratio is the
median over rounds, each of which compares timings of one round: to the first variant of the same model, and for models
with one variant to the first of all. On a CPU bigbird and eager take minutes.
"""

import ctypes
import multiprocessing
import re
import resource
import sys
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import ProcessPoolExecutor
from contextlib import suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import torch
from encoders import SHAPES, VARIANTS, build
from timing import interleave, make_parser, set_threads, write_results
from torch import nn
from transformers.utils.logging import tqdm

from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device
from hf_dse.common.provenance import describe_machine


# The time of shorter inputs is ruled by what does not depend on the length, so it says nothing about the growth.
SHORTEST_FITTED = 1024

# A model and its variant.
Name = tuple[str, str]


@dataclass(frozen=True)
class Job:
    """A batch of one length, and how it is run."""

    length: int
    batch_size: int
    k: int = 128
    dtype: torch.dtype = torch.float32
    device: str = "cpu"
    train: bool = False
    threads: int | None = None

    def make_task(self, name: Name) -> Callable[[], torch.Tensor]:
        """A function that runs a model once and returns the token states."""
        torch.manual_seed(0)
        model = build(*name, self.length, self.k, self.dtype).to(self.device).train(self.train)
        input_ids = torch.randint(model.config.vocab_size, (self.batch_size, self.length)).to(self.device)
        if not self.train:
            return torch.inference_mode()(partial(token_states, model, input_ids))
        # The gradient of a sum would vanish in the last layer norm, and with it the work of the backward pass.
        with torch.no_grad():
            gradient = torch.randn_like(token_states(model, input_ids))

        def step() -> torch.Tensor:
            states = token_states(model, input_ids)
            states.backward(gradient)
            # Gradients are part of the memory of a step.
            model.zero_grad(set_to_none=True)
            return states

        return step

    def measure_memory(self, name: Name) -> float:
        """MB that a pass needs beyond the loaded model, measured on the CPU in a process of its own."""
        with ProcessPoolExecutor(1, mp_context=multiprocessing.get_context("spawn")) as executor:
            return executor.submit(memory_of_pass, self, name).result()


def token_states(model: nn.Module, input_ids: torch.Tensor) -> torch.Tensor:
    """The states `(batch_size, seq_len, hidden_size)` of tokens `(batch_size, seq_len)`."""
    return model(input_ids).last_hidden_state


def run_speed(args: Any) -> dict[str, Any]:
    """
    Times all models at all lengths.

    Args:
        args (`argparse.Namespace`):
            The options of the command.

    Returns:
        `dict[str, Any]`: `rows`, one for each model, variant and length as [`summarize`] makes them or with the reason
        why it was `skipped`, and `device`.
    """
    set_threads(args.threads)
    device = choose_device(None)
    # flex_attention is compiled for each shape, and beyond the limit it would run without being compiled.
    torch._dynamo.config.recompile_limit = 1024
    names = [(model, variant) for model in args.models for variant in args.variants]
    rows: list[dict[str, Any]] = []
    results: dict[str, Any] = {"device": str(device), "rows": rows}
    for length in tqdm(sorted(set(args.lengths)), desc="Timing", unit="length"):
        batch_size = args.batch_size or max(1, args.batch_tokens // length)
        dtype = torch.bfloat16 if args.bf16 else torch.float32
        job = Job(length, batch_size, args.linformer_length, dtype, str(device), args.train, torch.get_num_threads())
        skipped = too_slow(rows, args.max_seconds)
        torch.compiler.reset()
        tasks: dict[Name, Callable[[], object]] = {}
        peaks: dict[Name, float | None] = {}
        for name in names:
            if name in skipped:
                continue
            # A failure of one architecture, in this number format or at this length, must not end the comparison.
            try:
                task = job.make_task(name)
                peaks[name] = first_run(task, device)
            except Exception as error:
                skipped[name] = f"fails: {(str(error).strip() or repr(error)).splitlines()[0]}"
            else:
                tasks[name] = task
        seconds = interleave(tasks, args.rounds, args.min_seconds, device)
        tasks.clear()
        for name, row in zip(seconds, summarize(seconds, length, batch_size), strict=True):
            row["peak_memory_mb"] = job.measure_memory(name) if args.memory and device.type == "cpu" else peaks[name]
            rows.append(row)
        rows += [
            {"model": model, "variant": variant, "length": length, "skipped": reason}
            for (model, variant), reason in skipped.items()
        ]
        # A length may take as long as all before it.
        write_results(args, results)
    return results


def summarize(seconds: Mapping[Name, Sequence[float]], length: int, batch_size: int) -> list[dict[str, Any]]:
    """
    Turns the seconds of batches into rows: `ms`, `ms_min` and `ms_max` of a batch (`ms` is the median),
    `tokens_per_second`, and `speedup`, the median ratio of the baseline's time to the model's in the same round.
    """
    rows = []
    for name, timings in seconds.items():
        variants = [other for other in seconds if other[0] == name[0]]
        baseline = seconds[variants[0] if len(variants) > 1 else next(iter(seconds))]
        rows.append(
            {
                "model": name[0],
                "variant": name[1],
                "length": length,
                "batch_size": batch_size,
                "ms": 1e3 * median(timings),
                "ms_min": 1e3 * min(timings),
                "ms_max": 1e3 * max(timings),
                "tokens_per_second": batch_size * length / median(timings),
                "speedup": median(base / own for base, own in zip(baseline, timings, strict=True)),
            }
        )
    return rows


def fit_exponents(rows: Sequence[Mapping[str, Any]], column: str = "ms") -> dict[Name, float]:
    """
    The exponents e of time = c * length^e for a text, by least squares on logarithms over lengths of at least 1,024,
    of models that were measured at two or more such lengths. Linear attention tends to 1, softmax attention to 2.
    """
    exponents = {}
    for name in dict.fromkeys((row["model"], row["variant"]) for row in rows):
        measured = [row for row in rows if (row["model"], row["variant"]) == name and row.get(column) is not None]
        measured = [row for row in measured if row["length"] >= SHORTEST_FITTED]
        if len(measured) >= 2:
            xs, ys = zip(*((row["length"], row[column] / row["batch_size"]) for row in measured), strict=True)
            exponents[name] = float(np.polyfit(np.log(xs), np.log(ys), deg=1)[0])
    return exponents


def speed_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table, and a line for each model that was left out at some length."""
    cells, notes = [], []
    for row in rows:
        name = [str(row["length"]), Path(row["model"]).name, row["variant"]]
        if "skipped" in row:
            cells.append([*name, *["-"] * 5])
            notes.append(f"{name[1]} {name[2]} at {name[0]} tokens: {row['skipped']}")
            continue
        memory = row["peak_memory_mb"]
        cells.append(
            [
                *name,
                f"{row['ms']:.1f}",
                f"{row['ms_min']:.1f} to {row['ms_max']:.1f}",
                f"{row['tokens_per_second']:,.0f}",
                f"{row['speedup']:.2f}",
                "-" if memory is None else f"{memory:,.0f}",
            ]
        )
    header = ["tokens", "model", "variant", "ms", "min to max", "tokens/s", "ratio", "MB"]
    return "\n".join([markdown(header, cells, num_left=3), *([""] if notes else []), *notes])


def exponent_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The exponents as a Markdown table, empty without any; with a column for the memory where it was measured."""
    columns = {"time": fit_exponents(rows), "memory": fit_exponents(rows, "peak_memory_mb")}
    columns = {what: of for what, of in columns.items() if of}
    names = columns.get("time", {})
    cells = [
        [Path(name[0]).name, name[1], *(f"{of[name]:.2f}" if name in of else "-" for of in columns.values())]
        for name in names
    ]
    header = ["model", "variant", *(f"{what} grows with length to the power of" for what in columns)]
    return f"\n{markdown(header, cells, num_left=2)}" if cells else ""


def too_slow(rows: Sequence[Mapping[str, Any]], max_seconds: float) -> dict[Name, str]:
    """Models that took too long for a batch, with the reason for leaving them out from now on."""
    return {
        (row["model"], row["variant"]): f"left out, a batch took {row['ms'] / 1e3:.1f} s at {row['length']} tokens"
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


def memory_of_pass(job: Job, name: Name) -> float:
    """MB that a pass adds to the peak of this process."""
    set_threads(job.threads)
    return added_memory(job.make_task(name))


def added_memory(task: Callable[[], object]) -> float:
    """MB that a task adds to the peak of this process."""
    # Weights may need more memory to be made than to be used. Linux lets the peak begin again.
    with suppress(OSError, AttributeError):
        ctypes.CDLL(None).malloc_trim(0)
        Path("/proc/self/clear_refs").write_text("5")
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
    parser.add_argument("--models", nargs="+", default=["minilm"], help=f"{', '.join(SHAPES)}, folders or Hub ids")
    parser.add_argument("--variants", nargs="+", default=["sdpa", "blocks", "linear"], choices=VARIANTS)
    parser.add_argument("--lengths", type=int, nargs="+", default=[128, 512, 2048], help="tokens of a text")
    parser.add_argument("--linformer_length", type=int, default=128, help="projected length k")
    parser.add_argument("--batch_tokens", type=int, default=2048, help="tokens of a batch, at least one text")
    parser.add_argument("--batch_size", type=int, help="texts of a batch at every length instead")
    parser.add_argument("--bf16", action="store_true", help="weights and states in bfloat16")
    parser.add_argument("--rounds", type=int, default=3, help="timings of each model; the median counts")
    parser.add_argument("--min_seconds", type=float, default=0.5, help="seconds of a timing, which repeats the batch")
    parser.add_argument("--max_seconds", type=float, default=60.0, help="slower models are left out at more tokens")
    parser.add_argument("--train", action="store_true", help="time forward and backward pass")
    parser.add_argument("--memory", action="store_true", help="on a CPU, measure the memory too, in new processes")
    args = parser.parse_args(argv)
    rows = run_speed(args)["rows"]
    what = f"{'bfloat16' if args.bf16 else 'float32'}, k = {args.linformer_length:,}, {args.rounds} rounds"
    print(f"{describe_machine()}, {torch.get_num_threads()} threads, {what}{', training' * args.train}\n")
    print(speed_table(rows))
    print(exponent_table(rows))


if __name__ == "__main__":
    main()
