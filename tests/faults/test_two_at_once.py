# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Two processes with one folder, and processes that another one started and that end with it."""

import os
import re
import signal
import subprocess
import sys
import time

import numpy as np
import psutil
import pytest
import yaml
from harness import kill_after, run, slow, start, wait_for

from hf_dse.common.files import LOCK_FILE, folder_in_one_step, locked
from hf_dse.studies.runs import read_results


NUMBER = rb"-?\d+\.\d+(?:e-?\d+)?"


@pytest.fixture
def study(assets, tmp_path):
    """A study file, and the command line of the study."""

    def make(**options):
        defaults = {
            "model_name_or_path": str(assets / "encoder"),
            "dataset_name": str(assets / "pairs"),
            "num_labels": 1,
            "distillation_alpha": 0.0,
            "linformer_length": 4,
            "max_length": 24,
            "max_steps": 2,
            "eval_strategy": "no",
            "save_strategy": "no",
            "report_to": "none",
            "use_cpu": True,
        }
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump({"options": {**defaults, **options}, "factors": {"seed": [1, 2]}}))
        return ["study", str(file), "--output_dir", str(tmp_path / "runs")]

    return make


CHILD = "import time; from hf_dse_cli import end_with_parent; end_with_parent(); print(flush=True); time.sleep(600)"
PARENT = f"""
import os, subprocess, sys, time
os.environ.update({{sys.argv[1]: sys.argv[2] or str(os.getpid())}})
child = subprocess.Popen([sys.executable, "-c", {CHILD!r}], stdout=subprocess.PIPE)
child.stdout.readline()
print(child.pid, flush=True)
time.sleep(600)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
@pytest.mark.parametrize("variable", [("HF_DSE_PARENT", ""), ("LOCAL_RANK", "0")])
def test_a_process_ends_with_the_one_that_started_it(variable):
    parent = subprocess.Popen([sys.executable, "-c", PARENT, *variable], stdout=subprocess.PIPE)
    child = psutil.Process(int(parent.stdout.readline()))
    parent.kill()
    parent.communicate()
    child.wait(10)


@pytest.mark.skipif(sys.platform != "linux", reason="on Linux only")
def test_a_process_whose_parent_has_already_ended_does_not_begin():
    environment = os.environ | {"HF_DSE_PARENT": str(2**22 + 1)}
    command = [sys.executable, "-m", "hf_dse_cli", "distill"]
    process = subprocess.run(command, env=environment, capture_output=True, text=True)
    assert process.returncode == 1
    assert process.stderr == "hf-dse: the process that started this one has ended\n"


@pytest.mark.slow
def test_the_trainings_of_a_killed_study_end_with_it(study, tmp_path):
    line = study(max_steps=1_000_000)
    process = start(line, tmp_path / "log")
    wait_for(lambda: list(tmp_path.glob(f"runs/*/training/{LOCK_FILE}")), process)
    (training,) = psutil.Process(process.pid).children()
    assert kill_after(process, 0) == -signal.SIGKILL
    training.wait(10)
    # The folder is free again.
    (folder,) = tmp_path.glob("runs/*/training")
    with locked(folder):
        pass


def test_a_second_training_in_a_folder_is_refused(commands, undisturbed, tmp_path):
    command, log = commands["distill"], tmp_path / "log"
    output = tmp_path / command.output
    first = start(command.line(output), tmp_path / "first.log")
    wait_for((output / "checkpoint-3").exists, first)
    os.kill(first.pid, signal.SIGSTOP)
    for options in (["--overwrite_output_dir", "true"], ["--resume_from_checkpoint", "last"]):
        assert run([*command.line(output), *options], log) == 2
        error = f"{output} is in use by another process: wait until that ends, or name another output."
        assert log.read_text().splitlines()[-1] == f"hf-dse distill: error: {error}"
    os.kill(first.pid, signal.SIGCONT)
    first.join()
    assert command.read(command.place(output)) == undisturbed("distill").content


@pytest.mark.parametrize("name", ["score", slow("mine")])
def test_two_processes_share_a_cache(name, commands, undisturbed, tmp_path):
    command = commands[name]
    outputs = [tmp_path / f"{number}-{command.output}" for number in range(2)]
    processes = [start(command.line(output), f"{output}.log") for output in outputs]
    for process, output in zip(processes, outputs, strict=True):
        process.join()
        assert process.exitcode == 0
        # What the other process has done already is missing in a batch, which may change the last digit of the others.
        found, expected = output.read_bytes(), undisturbed(name).content
        assert re.sub(NUMBER, b"", found) == re.sub(NUMBER, b"", expected)
        numbers = [list(map(float, re.findall(NUMBER, content))) for content in (found, expected)]
        np.testing.assert_allclose(*numbers, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", ["export", slow("encode npy")])
def test_two_processes_write_one_output(name, commands, undisturbed, tmp_path):
    """Without an error, or with one that names the output; it is whole in any case."""
    command = commands[name]
    output = tmp_path / command.output
    processes = [start(command.line(output), tmp_path / f"{number}.log") for number in range(3)]
    for number, process in enumerate(processes):
        process.join()
        log = (tmp_path / f"{number}.log").read_text()
        assert process.exitcode == 0 or f"error: {output} is in use by another process" in log
    assert any(process.exitcode == 0 for process in processes)
    assert command.read(output) == undisturbed(name).content
    assert [path for path in tmp_path.iterdir() if path.name.startswith(".")] == []


def test_what_another_process_exported_meanwhile_stays(assets, tmp_path):
    target = tmp_path / "model"
    with pytest.raises(FileExistsError, match="model is not empty: name another folder"):
        with folder_in_one_step(target, overwrite=False) as new:
            (new / "config.json").write_text("second")
            target.mkdir()
            (target / "config.json").write_text("first")
    assert (target / "config.json").read_text() == "first"
    assert [path.name for path in tmp_path.iterdir()] == ["model"]


@pytest.mark.slow
def test_two_studies_share_their_runs(study, tmp_path):
    line = [*study(), "--results_file", str(tmp_path / "results.parquet")]
    processes = [start(line, tmp_path / f"{number}.log") for number in range(2)]
    for number, process in enumerate(processes):
        process.join()
        log = (tmp_path / f"{number}.log").read_text()
        assert process.exitcode == 0 or "is in use by another process" in log
    assert run(line, tmp_path / "log") == 0
    results = read_results(tmp_path / "results.parquet")
    assert sorted(results["seed"]) == [1, 2]


@pytest.mark.slow
def test_the_processes_of_a_killed_launcher_end_with_it(commands, tmp_path):
    output = tmp_path / "out"
    line = [*commands["distill"].line(output), "--max_steps", "1000000"]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "hf_dse_cli", *line]
    launcher = subprocess.Popen(launch, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    deadline = time.monotonic() + 120
    while not (output / "checkpoint-3").exists():
        assert launcher.poll() is None and time.monotonic() < deadline
        time.sleep(0.1)
    trainings = psutil.Process(launcher.pid).children(recursive=True)
    launcher.kill()
    launcher.wait()
    assert len(trainings) >= 2
    assert psutil.wait_procs(trainings, timeout=15)[1] == []


@pytest.mark.slow
def test_processes_of_a_launcher_share_a_cached_stage(assets, tmp_path):
    recipe = {**yaml.safe_load((assets / "recipe.yaml").read_text()), "stage_cache_dir": str(tmp_path / "stages")}
    (tmp_path / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    line = ["distill", "--config", str(tmp_path / "recipe.yaml"), "--output_dir", str(tmp_path / "out")]
    launch = [sys.executable, "-m", "torch.distributed.run", "--nproc_per_node", "2", "-m", "hf_dse_cli", *line]
    subprocess.run(launch, check=True, capture_output=True, timeout=180)
    assert (tmp_path / "out" / "2-pairs" / "model" / "model.safetensors").is_file()
    assert len(list(tmp_path.glob("stages/1-general-*/model"))) == 1
