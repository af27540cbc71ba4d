# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every command with one line that says how to go on, and what is done is kept."""

import os
import random
import signal

import pytest
from harness import run, slow_but, start, wait_for

from hf_dse_cli import GO_ON


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
        advice = GO_ON.get(word, "give the same command to start again")
        assert f"hf-dse {word}: interrupted; {advice}" in log.read_text().splitlines()
        assert "Traceback" not in log.read_text()
        assert run(command.line(output) + command.again(output), log) == 0, log.read_text()
        assert command.read(command.place(output)) == straight.content


@pytest.mark.slow
@pytest.mark.parametrize("name", ["evaluate", "search"])
def test_ctrl_c_amid_work_on_texts(name, assets, tmp_path):
    """Commands whose only result is what they print, and the index of a folder."""
    (tmp_path / "texts").mkdir()
    text = "".join(f"The old cat {number} sat in a house.\n\n" for number in range(50_000))
    (tmp_path / "texts" / "long.txt").write_text(text)
    rows = (f'{{"sentence1": "cat {row}", "sentence2": "a dog", "label": {row % 6}}}\n' for row in range(50_000))
    (tmp_path / "test.jsonl").write_text("".join(rows))
    model = f"--model {assets}/student"
    words = {
        "evaluate": f"evaluate {model} --test_file {tmp_path}/test.jsonl --num_labels 1 --split test",
        "search": f"search --corpus {tmp_path}/texts --query cat {model} --chunk_size 16",
    }[name]
    log = tmp_path / "log"
    process = start(words.split(), log)
    try:
        wait_for(lambda: log.exists() and "Loading" in log.read_text(), process)
        process.join(2)
        assert process.exitcode is None, log.read_text()
        os.kill(process.pid, signal.SIGINT)
        process.join(60)
    finally:
        process.kill()
    assert process.exitcode == 130, log.read_text()
    advice = GO_ON.get(name, "give the same command to start again")
    assert f"hf-dse {name}: interrupted; {advice}" in log.read_text().splitlines()
    assert "Traceback" not in log.read_text()
