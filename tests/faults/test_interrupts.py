# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ctrl-C ends every command with one line that says how to go on, and what is done is kept."""

import random
import signal

import pytest
from harness import run, slow_but

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
