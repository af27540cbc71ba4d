# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bootstrap intervals."""

import numpy as np
import pytest

from hf_dse.measure.intervals import bootstrap_interval


def test_bootstrap_interval():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # The interval of the mean of many values is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == bootstrap_interval(np.full(1, 0.25)) == (0.25, 0.25)
