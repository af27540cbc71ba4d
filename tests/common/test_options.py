# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks that several commands share."""

from dataclasses import dataclass

import pytest

from hf_dse.common.options import check_at_least, check_numbers, did_you_mean


@dataclass
class Options:
    rate: float = 0.5


def test_bad_options():
    with pytest.raises(ValueError, match="alpha=-0.1: it has to be at least 0"):
        check_at_least(0, beta=None, alpha=-0.1)
    check_at_least(1, size=1)
    with pytest.raises(ValueError, match="rate=nan: it has to be a finite number"):
        check_numbers(Options(rate=float("nan")))
    check_numbers(Options())


def test_the_word_that_was_meant():
    assert did_you_mean("learning_rat", ["learning_rate", "seed"]) == " (did you mean 'learning_rate'?)"
    assert did_you_mean("xyz", ["learning_rate"]) == ""
