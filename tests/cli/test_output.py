# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: their own notes and results, of the libraries progress only, with `--quiet` results only."""

import logging
import os
import shutil
import subprocess
import sys
import warnings as python_warnings

import pytest
from transformers.utils import logging as library

from hf_dse.cli import output


CUTS = ("Warning", "LOAD REPORT", "[torch.onnx]", "W1", "[transformers]", "WARNING:")


def run(*words):
    """Runs a command in a new process, and returns what it wrote to stdout and to stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-m", "hf_dse_cli", *map(str, words)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert not [word for word in CUTS if word in done.stdout + done.stderr], done.stdout + done.stderr
    return done.stdout, done.stderr


# More options of the commands of conftest.py, and how their results begin.
COMMANDS = {
    "distill": (
        "--max_steps 2 --logging_steps 1 --eval_strategy steps --eval_steps 1",
        "split       pearson",
    ),
    "mine": ("--relative_margin -1", "10 queries with "),
    "evaluate": ("--test_file RANKINGS --bm25", "test: each query ranks all "),
    "export": ("--format onnx --int8", "onnx/model.onnx "),
}


@pytest.mark.slow
@pytest.mark.parametrize("command", COMMANDS)
def test_nothing_but_our_own_output(command, commands, good, tmp_path):
    more, result = COMMANDS[command]
    more = more.replace("RANKINGS", str(good / "rankings.jsonl"))
    line = [*commands["encode"][:2], *more.split()] if command == "evaluate" else [*commands[command], *more.split()]
    out, err = run(command, *line)
    assert out.startswith(result)
    # Notes are on stderr. In a file, bars of quick work are not there at all, except for that of the Trainer.
    if command == "distill":
        assert "'eval_pearson'" in err and "Next: `hf-dse" in err
    else:
        assert not [word for word in ("{'", "it/s]", "\x1b", "%|") if word in err]
    shutil.rmtree(tmp_path / "out", ignore_errors=True)
    assert run("--quiet", command, *line) == (out, "")


def test_libraries_are_as_they_were_afterwards(capsys):
    def speak():
        python_warnings.warn("of a library", FutureWarning, stacklevel=1)
        logging.getLogger("another").warning("of another")
        library.get_logger("transformers.some").warning("of transformers")

    def state():
        handlers = logging.getLogger("transformers").handlers[:]
        return logging.getLogger().level, library.get_verbosity(), python_warnings.filters[:], set(handlers)

    before = state()
    with output.hide_libraries():
        speak()
        library.get_logger("transformers.some").error("an error")
        # The Trainer reads it.
        assert library.get_verbosity() == before[1]
    assert capsys.readouterr().err == "an error\n"
    with output.hide_libraries(is_quiet=True):
        print("of any kind", file=sys.stderr)
    assert capsys.readouterr().err == "" and state() == before
