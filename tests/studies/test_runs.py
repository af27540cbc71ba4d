# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Studies: the grid, and running it with real trainings, once each."""

import json
import os
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack
from pathlib import Path

import pytest
import yaml

from hf_dse.cli.training import parse_stages
from hf_dse.common.files import locked
from hf_dse.studies.runs import append_row, convergence, expand, finished_runs, load_study, read_results, run_study
from hf_dse_cli import main


STUDIES = Path(__file__).parents[2] / "studies"

# Studies -> how many of their runs are in the results of this project.
FINISHED = {"depth": 30, "five_tasks": 16, "length_concatenated": 52, "length_hidden": 29, "stsb": 45, "ranking": 21}


@pytest.fixture
def write(tmp_path):
    def make(content):
        path = tmp_path / "grid.yaml"
        path.write_text(content if isinstance(content, str) else yaml.safe_dump(content, sort_keys=False))
        return path

    return make


@pytest.fixture
def tiny_study(tmp_path, write, save_bert, monkeypatch):
    """Two attentions of a tiny encoder, and others if they are given, with some seeds."""
    save_bert(tmp_path / "encoder", num_hidden_layers=1)
    monkeypatch.setenv("TINY", str(tmp_path))

    def make(seeds=(1, 2), others=None, **options):
        defaults = {
            "model_name_or_path": "${TINY}/encoder",
            "dataset_name": "embedded",
            "max_train_samples": 16,
            "max_eval_samples": 16,
            "max_length": 64,
            "max_steps": 2,
            "distillation_alpha": 1.0,
            "eval_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
        }
        attention = {"linear": {"linformer_length": 4}, "softmax": {"layer_types": "full_attention"}, **(others or {})}
        return write({"options": {**defaults, **options}, "factors": {"attention": attention, "seed": list(seeds)}})

    return make


@pytest.fixture
def command(tmp_path):
    program = [sys.executable, "-m", "hf_dse_cli", "study"]
    return lambda file: [*program, str(file), "--output_dir", str(tmp_path / "runs")]


def test_every_combination_is_a_run(write):
    attention = {"linear": {"linformer_length": 8, "learning_rate": 1e-3}, "softmax": None}
    factors = {"attention": attention, "num_hidden_layers": [6, 3], "seed": [1]}
    runs = load_study(write({"options": {"learning_rate": 1e-4, "seed": 0}, "factors": factors}))
    labels = [tuple(run.labels.values()) for run in runs]
    assert labels == [("linear", 6, 1), ("linear", 3, 1), ("softmax", 6, 1), ("softmax", 3, 1)]
    assert runs[0].options == {"learning_rate": 1e-3, "seed": 1, "linformer_length": 8, "num_hidden_layers": 6}
    assert runs[3].options == {"learning_rate": 1e-4, "seed": 1, "num_hidden_layers": 3}
    assert len({run.key for run in runs}) == len({run.folder for run in runs}) == 4


def test_a_run_is_known_by_its_options_alone(write):
    contents = [
        {"options": {"a": 1, "b": 2}, "factors": {"seed": [1]}},
        {"options": {"b": 2}, "factors": {"what": {"x": {"a": 1, "seed": 1}}}},
        {"options": {"b": 2, "a": 1}, "factors": {"seed": [2]}},
    ]
    first, second, third = (load_study(write(content))[0] for content in contents)
    assert first.key == second.key != third.key


@pytest.mark.parametrize(
    ("content", "message"),
    [
        ("factors: {seed: [1]}\nfactor: {}", "has the keys `options` and `factors`"),
        ("options: [a]\nfactors: {seed: [1]}", "has the keys `options` and `factors`"),
        ("factors: {x: {a: 1}}", "the factor 'x' has to be"),
    ],
)
def test_files_that_are_not_studies(write, content, message):
    with pytest.raises(ValueError, match=message):
        load_study(write(content))


@pytest.mark.slow
def test_a_study_runs_once_and_reports(tiny_study, tmp_path, monkeypatch, capsys):
    # A number may be a variable, too.
    monkeypatch.setenv("STEPS", "2")
    # One run fails after the start, which does not stop the others.
    options = {"eval_strategy": "steps", "eval_steps": 1, "max_steps": "${STEPS}"}
    file = str(tiny_study(others={"wrong": {"linformer_length": 0}}, **options))
    where = ["--output_dir", str(tmp_path / "runs")]
    line = ["study", file, *where, "--jobs", "2", "--flags=--bf16"]
    assert main(line) == 2
    error = capsys.readouterr().err
    assert "2 of 6 runs failed" in error and "attention wrong, seed 1: exit code 2" in error
    assert "linformer_length" in error

    results = read_results(tmp_path / "results.parquet")
    found = sorted(zip(results["attention"], results["seed"], strict=True))
    assert found == [("linear", 1), ("linear", 2), ("softmax", 1), ("softmax", 2)]
    assert results["test.pearson"].between(-1, 1).all() and results["test.pearson"].nunique() > 1
    assert (results["peak_memory_mb"] > 50).all() and set(results["threads"]) == {max(1, os.cpu_count() // 2)}
    assert set(results["flags"]) == {"--bf16"} and "bf16" not in json.loads(results["options"][0])
    # A variable stays one: the row is the same on every machine.
    assert json.loads(results["options"][0])["model_name_or_path"] == "${TINY}/encoder"
    # Nothing is run again.
    file = str(tiny_study(**options))
    assert main(["study", file, *where]) == 0
    assert "4 runs are in" in capsys.readouterr().out
    assert list(read_results(tmp_path / "results.parquet")["finished"]) == list(results["finished"])
    report = ["study", "report", file, "--metrics", "test.pearson", "--baseline", "attention=softmax"]
    assert main(report) == 0
    out = capsys.readouterr().out
    assert "| attention | n | test.pearson |" in out and "too few pairs" in out


def test_wrong_options_are_found_before_the_first_run(tiny_study, tmp_path, monkeypatch, capsys):
    file = str(tiny_study(seeds=[1], others={"wrong": {"linformer_lenght": 8}}))
    assert main(["study", file, "--output_dir", str(tmp_path / "runs")]) == 2
    error = capsys.readouterr().err
    assert "attention wrong, seed 1: " in error and "did you mean 'linformer_length'?" in error
    file = str(tiny_study())
    assert main(["study", file, "--flags=--bf61 true"]) == 2
    assert "did you mean '--bf16'?" in capsys.readouterr().err
    assert main(["study", "report", file]) == 2
    assert "There is no finished run to report on" in capsys.readouterr().err
    monkeypatch.delenv("TINY")
    assert main(["study", file]) == 2
    assert "needs the environment variable TINY" in capsys.readouterr().err
    assert not (tmp_path / "runs").exists() and not (tmp_path / "results.parquet").exists()


@pytest.mark.parametrize("path", sorted(STUDIES.glob("*.yaml")), ids=lambda path: path.stem)
def test_the_studies_of_this_project(path, monkeypatch):
    for name in re.findall(r"\$\{(\w+)\}", path.read_text()):
        monkeypatch.setenv(name, name)
    runs = load_study(path)
    for run in {run.key: run for run in runs}.values():
        assert parse_stages(["--output_dir", "out"], expand(run.options))
    finished = finished_runs(STUDIES / "results.parquet")
    if path.stem in FINISHED:
        assert sum(run.key in finished for run in runs) == FINISHED[path.stem]


@pytest.mark.slow
def test_a_killed_study_goes_on_without_repeating_a_run(tiny_study, tmp_path, command):
    file, results = tiny_study(seeds=(1, 2, 3)), tmp_path / "results.parquet"
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command(file), **quiet, start_new_session=True)
    try:
        deadline = time.monotonic() + 240
        while len(read_results(results)) < 2:
            assert process.poll() is None and time.monotonic() < deadline
            time.sleep(0.1)
    finally:
        # As when the machine goes down: the study and the training that it runs.
        os.killpg(process.pid, signal.SIGKILL)
        process.communicate()
    before = read_results(results)
    assert 2 <= len(before) < 6
    subprocess.run([*command(file), "--jobs", "2"], check=True, capture_output=True)
    after = read_results(results)
    assert len(after) == 6 and after["run"].nunique() == 6
    assert list(after["finished"][: len(before)]) == list(before["finished"])


def test_a_run_that_another_study_makes_is_reported(tiny_study, tmp_path):
    runs, out = load_study(tiny_study()), tmp_path / "runs"
    with ExitStack() as stack:
        for run in runs:
            stack.enter_context(locked(out / run.folder))
        with pytest.raises(
            ValueError, match=f"(?s){len(runs)} of {len(runs)} runs failed.*is in use by another process"
        ):
            run_study(runs, tmp_path / "results.parquet", out)


@pytest.mark.slow
def test_ctrl_c_ends_the_trainings_and_begins_no_other(tiny_study, tmp_path, command):
    file = tiny_study(max_steps=100_000)
    process = subprocess.Popen(command(file), stderr=subprocess.PIPE, start_new_session=True)
    deadline = time.monotonic() + 240
    while not list(tmp_path.glob("runs/*/training/_lock")):
        assert process.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    # As the terminal does: to the study and to the training.
    os.killpg(process.pid, signal.SIGINT)
    error = process.communicate(timeout=120)[1].decode()
    assert process.returncode == 130 and "interrupted" in error
    assert len(list(tmp_path.glob("runs/*/log.txt"))) == 1
    with pytest.raises(ProcessLookupError):
        os.killpg(process.pid, 0)


def test_labels_may_be_numbers_and_words(tmp_path):
    """Such as a k that is 4, 8, or softmax; a study has its own labels again."""
    file = tmp_path / "results.parquet"
    for number, label in enumerate((4, "softmax", 8)):
        append_row(file, {"k": label, "run": str(number), "test.pearson": number / 10})
    assert read_results(file)["k"].tolist() == ["4", "softmax", "8"]
    assert read_results(file)["test.pearson"].tolist() == [0.0, 0.1, 0.2]


@pytest.mark.slow
def test_writers_of_one_file_do_not_lose_rows(tmp_path):
    program = (
        "import sys; from pathlib import Path; from hf_dse.studies.runs import append_row\n"
        "for i in range(5): append_row(Path(sys.argv[1]), {'run': f'{sys.argv[2]}-{i}'})"
    )
    file = tmp_path / "rows.parquet"
    writers = [subprocess.Popen([sys.executable, "-c", program, str(file), name]) for name in "ab"]
    assert [writer.wait() for writer in writers] == [0, 0]
    assert sorted(read_results(file)["run"]) == sorted(f"{name}-{i}" for name in "ab" for i in range(5))
    # Later rows may have other columns.
    append_row(file, {"run": "c", "test.f1": 0.5})
    assert read_results(file)["test.f1"].notna().sum() == 1


def test_convergence_is_the_first_step_near_the_last_value():
    log = [{"step": 10, "loss": 1.0}]
    log += [
        {"step": step, "eval_pearson": value, "eval_runtime": 2.0}
        for step, value in ((10, 0.5), (20, 0.77), (30, 0.7), (40, 0.8))
    ]
    state = {"log_history": log, "global_step": 40}
    assert convergence(state, {"train_runtime": 28.0}) == {"seconds_per_step": 0.5, "steps_to_95": 20}
    # A student that ends without any correlation has not converged.
    log[-1]["eval_pearson"] = -0.1
    assert convergence(state, {"train_runtime": 28.0}) == {"seconds_per_step": 0.5}
    state["log_history"] = log[:2]
    assert convergence(state, {"train_runtime": 22.0}) == {"seconds_per_step": 0.5}
