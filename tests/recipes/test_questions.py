# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""recipes/long/questions.py: the order in which the questions of a document come together."""

import sys
from pathlib import Path

import pytest


LONG = Path(__file__).parents[2] / "recipes" / "long"


@pytest.fixture
def group(monkeypatch):
    monkeypatch.setattr(sys, "path", [str(LONG), *sys.path])
    from questions import group

    return group


def test_questions_of_a_document_come_together(group):
    rows = [{"query": f"question {number}", "document_ids": [f"d{number % 7}", "d9"]} for number in range(60)]
    ordered = group(rows, 4)
    assert sorted(row["query"] for row in ordered) == sorted(row["query"] for row in rows)
    assert ordered != rows and ordered == group(rows, 4)
    # Two groups of four of each of seven documents, and then what is left of them.
    first = [row["document_ids"][0] for row in ordered]
    assert all(len(set(first[start : start + 4])) == 1 for start in range(0, 56, 4))
    assert first[:56] != sorted(first[:56])
