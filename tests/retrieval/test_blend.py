# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Several scores as one."""

import numpy as np
import pytest

from hf_dse.retrieval.blend import blend, mean_spread


@pytest.fixture
def parts():
    generator = np.random.default_rng(0)
    return [[(scale * generator.normal(size=n) + zero).tolist() for n in (3, 5)] for scale, zero in ((9, 4), (0.1, 2))]


def test_each_score_counts_by_its_spread(parts):
    first, second = parts
    spreads = [np.mean([np.std(row) for row in part]) for part in parts]
    for row, one, other in zip(blend(parts, [3, 1]), first, second, strict=True):
        deviations = [
            (np.array(values) - np.mean(values)) / spread for values, spread in zip((one, other), spreads, strict=True)
        ]
        assert row == pytest.approx(spreads[0] * (0.75 * deviations[0] + 0.25 * deviations[1]))
    assert mean_spread(blend([first, first])) == pytest.approx(spreads[0])
    # Whatever the scale and the zero of a score are.
    moved = [[1000 * value - 7 for value in row] for row in second]
    np.testing.assert_allclose(np.concatenate(blend([first, moved])), np.concatenate(blend(parts)), rtol=1e-9)


def test_a_score_without_weight_or_spread_counts_nothing(parts):
    first, second = parts
    assert blend(parts, [1, 0]) == first and blend(parts, [0, 1]) == second
    order = [np.argsort(row).tolist() for row in blend([first, [[1.0] * 3, [2.0] * 5]])]
    assert order == [np.argsort(row).tolist() for row in first]
    assert blend([[[]], [[]]]) == [[]] and blend([[[5.0]], [[1.0]]]) == [[0.0]]


def test_a_text_that_one_could_not_read_has_no_score():
    nan = float("nan")
    rows = blend([[[1.0, nan, 3.0], [nan, nan]], [[1.0, 2.0, 3.0], [1.0, 2.0]]])
    assert np.isnan(rows[0]).tolist() == [False, True, False] and np.isnan(rows[1]).all()
    assert rows[0][2] == -rows[0][0] > 0


@pytest.mark.parametrize("weights", [[1], [0, 0], [1, -1], [1, float("nan")]])
def test_weights_are_checked(parts, weights):
    with pytest.raises(ValueError, match="for 2 scores: pass a finite weight of at least 0 for each"):
        blend(parts, weights)
