# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every command with one line that says how to go on, and what is done is kept."""

import os
import random
import signal
import subprocess
import sys
import time

import psutil
import pytest
import yaml
from counting import tried
from harness import run, slow_but, start, wait_for
from hub import WRITER, Hub

from hf_dse.common.files import LOCK_FILE


ADVICE = {
    "distill": "add `--resume_from_checkpoint last` to go on from its last checkpoint",
    "teacher": "add `--resume_from_checkpoint last` to go on from its last checkpoint",
    "score": "what is finished is kept, and the same command goes on from there",
    "mine": "what is finished is kept, and the same command goes on from there",
    "augment": "what is finished is kept, and the same command goes on from there",
    "search": "what is finished is kept, and the same command goes on from there",
}


def hear_ctrl_c():
    """In a new process: one of a shell that runs in the background would ignore it."""
    signal.signal(signal.SIGINT, signal.SIG_DFL)


@pytest.mark.parametrize("name", slow_but("distill"))
def test_ctrl_c(name, commands, undisturbed, tmp_path):
    command, straight = commands[name], undisturbed(name)
    choose = random.Random(name)
    for number in range(3):
        output, log = tmp_path / str(number) / command.output, tmp_path / f"{number}.log"
        output.parent.mkdir()
        kill_at = choose.randint(1, straight.changes)
        code = run(command.line(output), log, folder=output.parent, kill_at=kill_at, by=signal.SIGINT)
        assert code == 130, log.read_text()
        word = name.split()[0]
        advice = ADVICE.get(word, "give the same command to start again")
        assert log.read_text().splitlines()[-1] == f"hf-dse {word}: interrupted; {advice}"
        assert "Traceback" not in log.read_text()
        assert run(command.line(output) + command.again(output), log) == 0, log.read_text()
        assert command.read(command.place(output)) == straight.content


@pytest.mark.slow
@pytest.mark.parametrize(("name", "seconds"), [("study", 2), ("encode", 2), ("encode", 4)])
def test_ctrl_c_ends_other_processes(name, seconds, assets, tmp_path):
    """The trainings of a study, and the processes of Ray, which starts for some seconds."""
    if name == "study":
        options = {
            "model_name_or_path": str(assets / "encoder"),
            "dataset_name": str(assets / "pairs"),
            "num_labels": 1,
        }
        options |= {"linformer_length": 4, "max_length": 24, "max_steps": 1_000_000, "distillation_alpha": 0.0}
        file = tmp_path / "study.yaml"
        file.write_text(yaml.safe_dump({"options": options, "factors": {"seed": [1, 2]}}))
        words, begun, advice = f"{file} --output_dir {tmp_path}/out", f"out/*/training/{LOCK_FILE}", ADVICE["score"]
    else:
        pytest.importorskip("ray")
        words = f"--model_name_or_path {assets}/student --engine ray --input {assets}/shards --output {tmp_path}/out"
        begun, advice = f"out/{LOCK_FILE}", "give the same command to start again"
    command = [sys.executable, "-m", "hf_dse_cli", name, *words.split()]
    with (tmp_path / "log").open("w") as log:
        process = subprocess.Popen(command, stdout=log, stderr=log, preexec_fn=hear_ctrl_c)
    try:
        while not list(tmp_path.glob(begun)):
            assert process.poll() is None
            time.sleep(0.05)
        time.sleep(seconds)
        others = psutil.Process(process.pid).children(recursive=True)
        process.send_signal(signal.SIGINT)
        assert process.wait(120) == 130, (tmp_path / "log").read_text()
        assert psutil.wait_procs(others, timeout=30)[1] == []
    finally:
        process.kill()
    lines = (tmp_path / "log").read_text().splitlines()
    assert f"hf-dse {name}: interrupted; {advice}" in lines and not any("Traceback" in line for line in lines)


@pytest.mark.slow
@pytest.mark.parametrize("name", ["bench", "evaluate", "search"])
def test_ctrl_c_amid_work_on_texts(name, assets, tmp_path):
    """Commands whose only result is what they print, and the index of a folder."""
    (tmp_path / "texts").mkdir()
    text = "".join(f"The old cat {number} sat in a house.\n\n" for number in range(50_000))
    (tmp_path / "texts" / "long.txt").write_text(text)
    rows = (f'{{"sentence1": "cat {row}", "sentence2": "a dog", "label": {row % 6}}}\n' for row in range(50_000))
    (tmp_path / "test.jsonl").write_text("".join(rows))
    model = f"--model_name_or_path {assets}/student"
    words = {
        "bench": f"bench --lengths 64 --min_seconds 60 --output_dir {tmp_path}/out",
        "evaluate": f"evaluate {model} --test_file {tmp_path}/test.jsonl --num_labels 1 --split test",
        "search": f"search --corpus {tmp_path}/texts --query cat {model} --chunk_size 16",
    }[name]
    log = tmp_path / "log"
    process = start(words.split(), log)
    try:
        wait_for(lambda: (log.exists() and "Loading" in log.read_text()) or name == "bench", process)
        process.join(2)
        assert process.exitcode is None, log.read_text()
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
    finally:
        process.kill()
    assert process.exitcode == 130, log.read_text()
    tried()
    advice = ADVICE.get(name, "give the same command to start again")
    assert log.read_text().splitlines()[-1] == f"hf-dse {name}: interrupted; {advice}"
    assert "Traceback" not in log.read_text()


@pytest.mark.slow
def test_ctrl_c_amid_a_push_changes_nothing_on_the_hub(assets):
    words = f"push --model_name_or_path {assets}/student --repo_id user/m"
    command = [sys.executable, "-m", "hf_dse_cli", *words.split()]
    with Hub() as hub:
        environment = os.environ | {"HF_ENDPOINT": hub.url, "HF_TOKEN": WRITER, "HF_HUB_OFFLINE": "0"}
        streams = {"stdout": subprocess.DEVNULL, "stderr": subprocess.PIPE, "text": True}
        process = subprocess.Popen(command, env=environment, preexec_fn=hear_ctrl_c, **streams)
        while not any("/preupload/" in request for request in hub.requests):
            assert process.poll() is None
            time.sleep(0.001)
        process.send_signal(signal.SIGINT)
        errors = process.communicate(timeout=60)[1]
        assert process.returncode == 130, errors
        tried()
        assert errors.splitlines()[-1] == "hf-dse push: interrupted; give the same command to start again"
        assert "Traceback" not in errors
        for repo in hub.repos.values():
            assert all(not commit.files.keys() - {".gitattributes"} for commit in repo.branches["main"])
        assert subprocess.run(command, env=environment, capture_output=True).returncode == 0
        assert "model.safetensors" in hub.repos["user/m"].branches["main"][-1].files
