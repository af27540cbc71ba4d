# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The documentation is up to date with the code, and its links lead somewhere."""

import re
import subprocess
import sys
from pathlib import Path

import pytest

import hf_dse


ROOT = Path(__file__).parents[1]
PAGES = sorted([*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hf_dse").rglob("README.md")])
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


REFERENCE = ROOT / "docs" / "reference.md"


def test_reference_is_up_to_date():
    # In a process of its own: parsers of the command line change the types of the dataclasses' fields.
    code = "import make_reference; print(make_reference.make_reference(), end='')"
    made = subprocess.run(
        [sys.executable, "-c", code], cwd=ROOT / "docs", check=True, capture_output=True, text=True, encoding="utf-8"
    ).stdout
    assert REFERENCE.read_text(encoding="utf-8") == made, "run `python docs/make_reference.py`"


def test_reference_has_every_public_name_and_argument():
    written = REFERENCE.read_text(encoding="utf-8")
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
