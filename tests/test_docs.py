# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The documentation is up to date with the code, and its links lead somewhere."""

import importlib.util
import re
from pathlib import Path

import pytest

import hf_dse


ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hf_dse").rglob("README.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


@pytest.fixture(scope="module")
def make_reference():
    spec = importlib.util.spec_from_file_location("make_reference", ROOT / "docs" / "make_reference.py")
    module = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def test_reference_is_up_to_date(make_reference):
    written = make_reference.REFERENCE.read_text(encoding="utf-8")
    assert written == make_reference.make_reference(), "run `python docs/make_reference.py`"


def test_reference_has_every_public_name_and_argument(make_reference):
    written = make_reference.REFERENCE.read_text(encoding="utf-8")
    assert re.findall(r"^## `(\w+)`$", written, re.MULTILINE) == hf_dse.__all__
    _, _, section = written.partition("## `encode`")
    assert "\n- `batch_size` (`int`, *optional*, defaults to 32):\n  Largest number of texts" in section
    # No section and no argument has kept the form of a docstring.
    assert not re.search(r"^(Args|Returns|Raises|Examples?|\w+ \(.+\)):$", written, re.MULTILINE)


@pytest.mark.parametrize("page", PAGES, ids=lambda page: str(page.relative_to(ROOT)))
def test_relative_links_lead_to_files(page):
    text = page.read_text(encoding="utf-8")
    links = [link for link in LINK.findall(text) if not re.match(r"[a-z]+:|#", link)]
    assert [link for link in links if not (page.parent / link.partition("#")[0]).exists()] == []


def test_links_to_headings_lead_to_headings():
    for page in PAGES:
        for link in LINK.findall(page.read_text(encoding="utf-8")):
            name, _, anchor = link.partition("#")
            target = page.parent / name if name else page
            if anchor and target.suffix == ".md" and target.is_file():
                headings = re.findall(r"^#+ (.+)$", target.read_text(encoding="utf-8"), re.MULTILINE)
                anchors = [re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings]
                assert anchor in anchors, f"{page.name}: {link}"
