# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that several commands share."""

from dataclasses import dataclass, field

import pytest

from hf_dse.common.options import check_at_least, check_numbers, check_positive, did_you_mean


@dataclass
class Options:
    count: int | None = 1
    sizes: list[int] = field(default_factory=lambda: [1])
    rate: float = 0.5


@pytest.mark.parametrize(
    ("check", "message"),
    [
        (lambda: check_positive(Options(count=0), "count"), "count=0: it has to be at least 1"),
        (lambda: check_positive(Options(sizes=[2, 0]), "sizes"), r"sizes=\[2, 0\]: it has to be at least 1"),
        (lambda: check_positive(Options(sizes=[]), "sizes"), r"sizes=\[\]: it has to be at least 1"),
        (lambda: check_at_least(0, alpha=-0.1, beta=None), "alpha=-0.1: it has to be at least 0"),
        (lambda: check_numbers(Options(rate=float("nan"))), "rate=nan: it has to be a finite number"),
        (lambda: check_numbers(Options(count=2**63)), r"count=9223372036854775808: it has to be below 2 \*\* 63"),
    ],
)
def test_bad_options(check, message):
    with pytest.raises(ValueError, match=message):
        check()


def test_good_options():
    options = Options(count=None)
    check_positive(options, "count", "sizes")
    check_numbers(options)
    check_at_least(1, count=None, size=1)


def test_the_word_that_was_meant():
    assert did_you_mean("learning_rat", ["learning_rate", "seed"]) == " (did you mean 'learning_rate'?)"
    assert did_you_mean("xyz", ["learning_rate"]) == ""
