# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The site of docs/ and its charts: `make docs` and `make charts`."""

import html
import importlib.metadata
import json
import os
import re
import subprocess
import sys
from html.parser import HTMLParser
from pathlib import Path

import pytest
import yaml


ROOT = Path(__file__).parents[2]
FIGURES = ROOT / "docs" / "figures"
# The colour of docs/make_charts.py.
GREY = "#7a7a7a"


class Page(HTMLParser):
    """The files that a browser fetches to show a page."""

    def __init__(self, path):
        super().__init__()
        self.fetched = []
        self.feed(path.read_text(encoding="utf-8"))

    def handle_starttag(self, tag, attrs):
        attributes = dict(attrs)
        if tag != "a" and (tag != "link" or attributes.get("rel") not in ("canonical", "prev", "next")):
            self.fetched += filter(None, [attributes.get("src"), attributes.get("href")])


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    pytest.importorskip("material", reason="the site needs `pip install hf-dse[docs]`")
    folder = tmp_path_factory.mktemp("docs") / "site"
    command = [sys.executable, "-m", "mkdocs", "build", "--strict", "--site-dir", str(folder)]
    env = os.environ | {"NO_MKDOCS_2_WARNING": "1"}
    result = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, encoding="utf-8", env=env)
    assert result.returncode == 0, result.stderr
    return folder


def test_pages_fetch_nothing_from_elsewhere(site):
    for path in site.rglob("*.html"):
        page = Page(path)
        assert page.fetched and not [link for link in page.fetched if re.match(r"\w+:|//", link)], path
    for path in site.rglob("*.css"):
        assert not re.search(r"(url\(|@import)[\"' ]*(https?:)?//", path.read_text(encoding="utf-8")), path


def test_the_site_has_what_pages_link_to_outside_of_docs(site):
    text = (site / "repository" / "examples" / "index.html").read_text(encoding="utf-8")
    assert 'href="02_distill.py.html"' in text
    text = (site / "repository" / "examples" / "02_distill.py.html").read_text(encoding="utf-8")
    assert "Distil a teacher's scores into a student" in html.unescape(text)
    assert 'href="repository/CHANGELOG.html"' in (site / "index.html").read_text(encoding="utf-8")
    text = (site / "repository" / "index.html").read_text(encoding="utf-8")
    assert 'href="hf_dse/index.html"' in text and 'href="modeling/index.html"' in text


def test_the_search_keeps_all_words_as_they_are(site):
    index = json.loads((site / "search" / "search_index.json").read_text(encoding="utf-8"))
    # Otherwise the search leaves out "which", or compares "serve" with "serv".
    assert index["config"]["pipeline"] == ["trimmer"]


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


def test_charts_and_drawings_are_on_pages_and_readable_on_any_background():
    pages = "".join(path.read_text(encoding="utf-8") for path in [ROOT / "README.md", *ROOT.glob("docs/**/*.md")])
    for path in [*FIGURES.iterdir(), *(ROOT / "docs" / "drawings").iterdir()]:
        assert f"{path.parent.name}/{path.name})" in pages, path.name
        text = path.read_text(encoding="utf-8")
        # Texts are grey, and nothing is drawn in black or white.
        assert re.search(rf"fill[:=]\"? ?{GREY}", text), path.name
        assert not re.search(r"(fill|stroke)[:=]\"? ?(#fff|#000|white|black)", text), path.name


def test_the_citation_is_of_this_version():
    citation = yaml.safe_load((ROOT / "CITATION.cff").read_text(encoding="utf-8"))
    assert {"cff-version", "message", "title", "authors"} <= set(citation) and len(citation["references"]) == 2
    page = (ROOT / "docs" / "citation.md").read_text(encoding="utf-8")
    assert citation["version"] == importlib.metadata.version("hf-dse")
    for entry in [citation, *citation["references"]]:
        assert f"{{{entry['title']}}}" in page
    assert f"version = {{{citation['version']}}}" in page
