# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A study: which trainings it consists of, and running those that are missing."""

import hashlib
import json
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor, as_completed
from dataclasses import dataclass
from datetime import datetime, timezone
from pathlib import Path
from typing import Any

import pandas as pd
import torch
import yaml
from filelock import FileLock
from transformers.utils.logging import tqdm

from hf_dse.common.display import one_line
from hf_dse.common.files import locked, read_yaml, to_path, write_atomically
from hf_dse.common.provenance import code_commit, describe_machine
from hf_dse.training.base import RESULTS_FILE, complete_checkpoints


@dataclass(frozen=True)
class Training:
    """One training of a study: the label of each factor, and the options of `hf-dse distill` that belong to them."""

    labels: dict[str, Any]
    options: dict[str, Any]

    @property
    def key(self) -> str:
        """Identifies the options, in whatever order and under whatever labels they are given."""
        return hashlib.sha256(json.dumps(self.options, sort_keys=True).encode()).hexdigest()[:12]

    @property
    def title(self) -> str:
        return one_line(", ".join(f"{name} {label}" for name, label in self.labels.items()))

    @property
    def folder(self) -> str:
        """A readable name for the run's folder."""
        words = "-".join(str(label) for label in self.labels.values())
        return f"{re.sub(r'[^A-Za-z0-9.]+', '-', words).strip('-')[:80]}-{self.key}"


def load_study(path: str | Path) -> list[Training]:
    """
    Reads a YAML file: shared `options`, and `factors` with a list of values, or labels with their options, which
    replace those of earlier factors and shared ones. Returns a run for every combination of labels; the last factor
    changes fastest. Some may have the same options.
    """
    content = read_yaml(to_path(path))
    options, factors = (content.get(name) or {} for name in ("options", "factors"))
    are_mappings = isinstance(options, dict) and isinstance(factors, dict)
    if set(content) - {"options", "factors"} or not factors or not are_mappings:
        raise ValueError(f"{path}: a study has the keys `options` and `factors`, and at least one factor.")
    runs = [Training({}, options)]
    for factor, labels in factors.items():
        if isinstance(labels, list) and all(isinstance(label, str | int | float) for label in labels):
            labels = {label: {factor: label} for label in labels}
        is_grid = isinstance(labels, dict) and all(isinstance(value, dict | None) for value in labels.values())
        if not is_grid or not labels:
            raise ValueError(f"{path}: the factor {factor!r} has to be a list of values, or labels with options.")
        runs = [
            Training({**run.labels, factor: label}, {**run.options, **(chosen or {})})
            for run in runs
            for label, chosen in labels.items()
        ]
    return runs


def run_study(
    runs: Sequence[Training],
    results_file: str | Path,
    output_dir: str | Path,
    *,
    jobs: int = 1,
    flags: str = "",
) -> pd.DataFrame:
    """
    Runs what is missing in the results, `jobs` trainings at a time, each in its own process with an equal share of the
    CPU cores and, with GPUs, one GPU; `flags` are further options for this machine. Returns the rows of the study's
    runs.
    """
    results_file, output_dir = Path(results_file), Path(output_dir)
    threads = max(1, (os.cpu_count() or 1) // max(1, jobs))
    finished = finished_runs(results_file)
    missing = list({run.key: run for run in runs if run.key not in finished}.values())
    slots = list(range(jobs))

    def work(run: Training) -> None:
        slot, folder = slots.pop(), output_dir / run.folder
        try:
            with locked(folder):
                # Another study may have finished it meanwhile.
                if run.key not in finished_runs(results_file):
                    append_row(results_file, train(run, folder, slot, threads, flags))
        finally:
            slots.append(slot)

    progress = tqdm(total=len(runs), initial=len(runs) - len(missing), desc="Runs", unit="run")
    failed = []
    with progress, ThreadPoolExecutor(jobs) as pool:
        try:
            futures = {pool.submit(work, run): run for run in missing}
            for future in as_completed(futures):
                if error := future.exception():
                    failed.append(f"{futures[future].title}: {error}")
                    progress.write(f"FAILED {failed[-1]}")
                progress.update()
        finally:
            # After Ctrl-C, which ends the trainings of the moment too, no other one begins.
            pool.shutdown(cancel_futures=True)
    if failed:
        raise ValueError(
            f"{len(failed)} of {len(runs)} runs failed; give the same command to try again.\n" + "\n".join(failed)
        )
    return select_results(runs, read_results(results_file))


def train(run: Training, folder: Path, slot: int, threads: int, flags: str) -> dict[str, Any]:
    """Runs one training to its end and returns its row."""
    config, training, log = folder / "config.yaml", folder / "training", folder / "log.txt"
    config.write_text(yaml.safe_dump(expand(run.options), sort_keys=False), encoding="utf-8")
    command = [sys.executable, "-m", "hf_dse_cli", "distill", "--config", str(config), "--output_dir", str(training)]
    is_resumed = any(complete_checkpoints(stage) for stage in [training, *training.glob("*/")])
    again = ["--resume_from_checkpoint", "last"] if is_resumed else ["--overwrite_output_dir", "true"]
    environment = os.environ | {"OMP_NUM_THREADS": str(threads), "TOKENIZERS_PARALLELISM": "false"}
    if torch.cuda.is_available():
        environment["CUDA_VISIBLE_DEVICES"] = str(slot % torch.cuda.device_count())
    with log.open("w", encoding="utf-8") as output:
        process = subprocess.run(
            [*command, *shlex.split(flags), *again], stdout=output, stderr=subprocess.STDOUT, env=environment
        )
    if process.returncode != 0:
        lines = re.split(r"[\r\n]+", log.read_text(encoding="utf-8", errors="replace"))
        last = next((line for line in reversed(lines) if line.strip()), "no output")
        raise RuntimeError(f"exit code {process.returncode}, {last} (see {log})")
    # The last of several stages has the metrics.
    last_stage = max(training.glob(f"**/{RESULTS_FILE}"), key=lambda path: path.parent.name).parent
    results = json.loads((last_stage / RESULTS_FILE).read_text())
    row = {
        **run.labels,
        **{f"{split}.{name}": value for split, part in results["metrics"].items() for name, value in part.items()},
        **convergence(json.loads((last_stage / "trainer_state.json").read_text()), results["training"]),
        "run": run.key,
        "options": json.dumps(run.options, sort_keys=True),
        "flags": flags,
        "peak_memory_mb": results["training"]["peak_memory_mb"],
        "machine": describe_machine(),
        "threads": threads,
        "commit": code_commit(),
        "finished": datetime.now(timezone.utc).isoformat(timespec="seconds"),
    }
    if is_resumed:
        # Only the last part of the training has been measured.
        del row["seconds_per_step"]
    return row


def convergence(state: dict[str, Any], training: dict[str, float]) -> dict[str, float]:
    """
    `seconds_per_step` of a training without its evaluations, and `steps_to_95`: the first step at which Pearson (or
    else accuracy) on the validation split was 95 % of its last value, if that is above 0.
    """
    evaluations = [entry for entry in state["log_history"] if "eval_runtime" in entry]
    seconds = training["train_runtime"] - sum(entry["eval_runtime"] for entry in evaluations)
    measured = {"seconds_per_step": seconds / max(1, state["global_step"])}
    for name in ("eval_pearson", "eval_accuracy"):
        curve = [(entry["step"], entry[name]) for entry in evaluations if name in entry]
        if len(curve) > 1 and curve[-1][1] > 0:
            reached = [step for step, value in curve if value >= 0.95 * curve[-1][1]]
            return {**measured, "steps_to_95": reached[0]}
    return measured


def expand(options: dict[str, Any]) -> dict[str, Any]:
    """Puts environment variables in the place of `${NAME}`."""
    text = json.dumps(options, ensure_ascii=False)
    missing = [name for name in re.findall(r"\$\{(\w+)\}", text) if name not in os.environ]
    if missing:
        where = next(name for name, value in options.items() if f"${{{missing[0]}}}" in json.dumps(value))
        raise ValueError(f"The study needs the environment variable {missing[0]}, for `{where}`: set it.")
    return json.loads(re.sub(r"\$\{(\w+)\}", lambda match: json.dumps(os.environ[match[1]])[1:-1], text))


def read_results(results_file: str | Path) -> pd.DataFrame:
    """The rows of a results file; none where there is no file."""
    path = to_path(results_file)
    return pd.read_parquet(path) if path.is_file() else pd.DataFrame()


def finished_runs(results_file: str | Path) -> set[str]:
    """The keys of the runs that a results file holds."""
    return set(read_results(results_file).get("run", ()))


def append_row(results_file: Path, row: dict[str, Any]) -> None:
    """Adds a row to a results file, which stays whole whatever happens and may have several writers."""
    results_file.parent.mkdir(parents=True, exist_ok=True)
    with FileLock(f"{results_file}.lock"):
        table = pd.concat([read_results(results_file), pd.DataFrame([row])], ignore_index=True)
        # A column of numbers and words becomes one of words.
        for name in (name for name in table if pd.api.types.is_object_dtype(table[name])):
            if table[name].dropna().map(type).nunique() > 1:
                table[name] = table[name].map(str, na_action="ignore")
        write_atomically(results_file, lambda file: table.to_parquet(file, index=False))


def select_results(runs: Sequence[Training], results: pd.DataFrame) -> pd.DataFrame:
    """The rows of a study's runs, in its order and under its labels, as far as they are finished."""
    found = {row["run"]: row for row in results.to_dict("records")}
    return pd.DataFrame([found[run.key] | run.labels for run in runs if run.key in found])
