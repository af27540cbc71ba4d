# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions for pairs, and intervals of their means."""

import math

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_dse import compute_metrics_for
from hf_dse.measure.metrics import bootstrap_interval, correlations


def test_correlations_and_those_without_a_meaning():
    with pytest.raises(ValueError, match="Constant predictions: all 2 are 2.5.*collapsed model"):
        correlations(np.array([2.5, 2.5 + 1e-9]), np.array([1, 2]))
    with pytest.raises(ValueError, match="1 of 3 predictions are NaN or infinite, the first at row 1"):
        correlations(np.array([1, math.nan, 3]), np.array([1, 2, 3]))
    found = correlations(np.array([1, 2, 3, 3]), np.array([1, 2, 4, 3]))
    assert found == pytest.approx({"pearson": 0.9438798, "spearman": 0.9486833})


def compute(num_labels, logits, labels):
    kind = "regression" if num_labels == 1 else "single_label_classification"
    prediction = EvalPrediction(predictions=np.array(logits, dtype=np.float32), label_ids=np.array(labels))
    return compute_metrics_for(kind, num_labels)(prediction)


def test_metrics_of_logits():
    one = compute(2, [[-1.0], [0.5], [2.0], [-1.0]], [0, 1, 0, 1])
    two = compute(2, [[1.0, 0.0], [0.0, 0.5], [1.0, 3.0], [1.0, 0.0]], [0, 1, 0, 1])
    assert one == two == {"accuracy": 0.5, "f1": 0.5}
    # The mean of the F1 of the classes: 2 / 3, 1 and 0.
    three = compute(3, [[1, 0, 0], [1, 0, 0], [0, 1, 0], [0, 1, 0]], [0, 2, 1, 1])
    assert three == {"accuracy": 0.75, "f1": pytest.approx(5 / 9)}
    with pytest.raises(ValueError, match="2 logits per pair.*needs 1"):
        compute(1, [[1, 2], [2, 1]], [0, 1])
    with pytest.raises(ValueError, match=r"0 to 1, but these occur too: \[-100\]"):
        compute(2, [[-1.0], [1.0]], [0, -100])


def test_bootstrap_interval():
    differences = np.random.default_rng(1).normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # The interval of the mean of many values is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == bootstrap_interval(np.full(1, 0.25)) == (0.25, 0.25)
