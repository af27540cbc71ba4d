# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Metrics of predictions for pairs."""

import math

import numpy as np
import pytest
from transformers import EvalPrediction

from hf_dse import compute_metrics_for
from hf_dse.measure.metrics import PearsonSpearman


def test_correlations_and_those_without_a_meaning():
    metric = PearsonSpearman()
    with pytest.raises(ValueError, match="Constant predictions: all 2 are 2.5.*collapsed model"):
        metric.compute(predictions=[2.5, 2.5 + 1e-9], references=[1, 2])
    with pytest.raises(ValueError, match="1 of 3 predictions are NaN or infinite, the first at row 1"):
        metric.compute(predictions=[1, math.nan, 3], references=[1, 2, 3])
    # An error leaves no state behind.
    found = metric.compute(predictions=[1, 2, 3, 3], references=[1, 2, 4, 3])
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
