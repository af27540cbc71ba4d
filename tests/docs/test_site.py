# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The site of docs/ and its charts: `make docs` and `make charts`."""

import html
import importlib.metadata
import os
import re
import subprocess
import sys
from pathlib import Path

import pytest
import yaml


ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"


def test_the_site_is_complete_and_fetches_nothing_from_elsewhere(tmp_path):
    pytest.importorskip("material", reason="the site needs `pip install hf-dse[docs]`")
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(tmp_path)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", env=env)
    assert result.returncode == 0, result.stderr
    # What pages link to outside of docs/ is there too.
    text = (tmp_path / "repository" / "examples" / "02_distill.py.html").read_text(encoding="utf-8")
    assert "Distil a teacher's scores into a student" in html.unescape(text)
    assert 'href="repository/CHANGELOG.html"' in (tmp_path / "index.html").read_text(encoding="utf-8")
    other = r"<(?:script|img|link(?=[^>]*rel=\W?(?:stylesheet|icon|preconnect)))[^>]+(?:src|href)=\W?(?:https?:)?//"
    for path in tmp_path.rglob("*.html"):
        assert not re.search(other, path.read_text(encoding="utf-8")), path


@pytest.mark.slow
def test_charts_show_the_stored_numbers(tmp_path):
    pytest.importorskip("matplotlib")
    command = [sys.executable, str(ROOT / "docs" / "make_charts.py"), str(tmp_path)]
    subprocess.run(command, cwd=ROOT, check=True)
    drawn = {path.name for path in tmp_path.iterdir()}
    assert drawn == {path.name for path in FIGURES.iterdir() if "=" not in path.name}
    constraints = (ROOT / "constraints.txt").read_text(encoding="utf-8").splitlines()
    if f"matplotlib=={importlib.metadata.version('matplotlib')}" in constraints:
        for path in tmp_path.iterdir():
            assert path.read_bytes() == (FIGURES / path.name).read_bytes(), f"{path.name}: run `make charts`"


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and len(citation["references"]) == 2
    page = (ROOT / "docs" / "citation.md").read_text(encoding="utf-8")
    assert citation["version"] == importlib.metadata.version("hf-dse")
    for entry in [citation, *citation["references"]]:
        assert f"{{{entry['title']}}}" in page
    assert f"version = {{{citation['version']}}}" in page
