# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""studies/gpu.py: its commands, and how it goes on; `make gpu SMALL=1` runs its small form on a CPU."""

import importlib
from argparse import ArgumentParser
from pathlib import Path

import gpu
import pytest
from test_commands import parse


ROOT = Path(__file__).parents[2]


@pytest.fixture
def places(tmp_path):
    return {"OUT": str(tmp_path), "DATA": str(tmp_path / "data"), "ENCODER": "encoder", "ROOT": str(ROOT)}


@pytest.mark.parametrize("small", [False, True], ids=["full", "small"])
@pytest.mark.parametrize("name", gpu.PIECES)
def test_commands(name, small, places, monkeypatch):
    program, script, *argv = gpu.make_words(name, places, small)
    if program == "hf-dse":
        parse([script, *argv])
    elif "benchmarks" in script:
        parse_args = ArgumentParser.parse_args

        def parse_and_exit(self, argv):
            parse_args(self, argv)
            # With code 0; wrong options are code 2.
            self.exit()

        monkeypatch.setattr(ArgumentParser, "parse_args", parse_and_exit)
        with pytest.raises(SystemExit, match="^0$"):
            importlib.import_module(Path(script).stem).main(argv)
    else:
        assert Path(script).is_file()


def test_a_training_goes_on_from_its_last_whole_checkpoint(places, tmp_path, make_checkpoint):
    starts, goes_on = ["--overwrite_output_dir", "true"], ["--resume_from_checkpoint", "last"]
    assert gpu.make_words("student", places, False)[-2:] == starts
    state = make_checkpoint(tmp_path / "student" / "checkpoint-50")
    assert gpu.make_words("student", places, False)[-2:] == starts
    state.write_text("{}")
    assert gpu.make_words("student", places, False)[-2:] == goes_on
