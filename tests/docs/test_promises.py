# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What SECURITY.md and docs/reliability.md promise names the tests that hold it."""

import re
from pathlib import Path

import pytest


ROOT = Path(__file__).parents[2]
# The part of a page that promises.
PARTS = {
    "SECURITY.md": ("## What is promised\n", "Not promised:"),
    "docs/reliability.md": ("## After a kill\n", "## Trials\n"),
}
TEST = re.compile(r"`(?:(tests/\w+/test_\w+\.py))?::(test_\w+)`")
# Sentences that introduce what follows.
INTRODUCTIONS = ("In brackets: the tests", "Give the same command again.")


def find_promises(page):
    """The paragraphs, the bullets and the rows of tables, without headings and blocks of output."""
    start, end = PARTS[page]
    text = (ROOT / page).read_text(encoding="utf-8")
    text = text[text.index(start) : text.index(end)]
    text = re.sub(r"^```.*?^```$", "", text, flags=re.MULTILINE | re.DOTALL)
    text = re.sub(r"^(#.*|\|[-: |]+\|\n)", "", text, flags=re.MULTILINE)
    # The first row of a table is its head.
    text = re.sub(r"\n\n\|.*", "\n", text)
    for promise in re.split(r"\n\n+|\n(?=[|-] ?)", text):
        if promise.strip() and not promise.strip().startswith(INTRODUCTIONS):
            yield promise.strip()


@pytest.mark.parametrize("page", PARTS)
def test_each_promise_names_tests_that_exist(page):
    promises = list(find_promises(page))
    assert len(promises) >= 10
    for promise in promises:
        named = TEST.findall(promise)
        assert named, f"no test is named by: {promise}"
        assert re.search(r"`\]$|`\] *$|` \|$", promise), f"the tests stand at the end: {promise}"
        file = ""
        for path, name in named:
            # `::test_name` is in the file before it.
            file = path or file
            assert f"def {name}(" in (ROOT / file).read_text(encoding="utf-8"), f"{page}: {file}::{name}"


def test_what_is_no_name_of_a_test_is_found():
    """A name that is misspelt would not be looked up."""
    for page in PARTS:
        for promise in find_promises(page):
            words = re.findall(r"\btest_\w+(?!\w*\.py)\b", re.sub(r"test_\w+\.py", "", promise))
            assert len(words) == len(TEST.findall(promise)), promise
