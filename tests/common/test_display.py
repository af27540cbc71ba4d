# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables, and texts from outside."""

import pytest

from hf_dse.common.display import format_table, harmless, markdown, one_line


@pytest.mark.parametrize(
    ("text", "shown"),
    [("a\x1b[31mb", "a\ufffd[31mb"), ("a\n\tb", "a b"), ("\ud800", "\ufffd"), ("مرحبا é 👩‍🔬", "مرحبا é 👩‍🔬")],
)
def test_one_line(text, shown):
    assert one_line(text) == shown
    assert harmless("a\n\tb") == "a\n\tb"


def test_tables():
    results = {"test": {"num_pairs": 3, "pearson": 0.80301}, "train": {"f1": 1.0}}
    assert format_table(results).splitlines() == [
        "split  num_pairs  pearson      f1",
        "test           3    80.30",
        "train                      100.00",
    ]
    assert markdown(["a", "b"], [["x", "1"]], 1) == "| a | b |\n| --- | --: |\n| x | 1 |"
