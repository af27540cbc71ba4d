# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Intervals of means by the bootstrap."""

import numpy as np


def bootstrap_interval(differences: np.ndarray, *, seed: int | np.random.Generator = 0) -> tuple[float, float]:
    """The 95 % percentile bootstrap interval of the mean of paired differences."""
    from scipy.stats import bootstrap

    if len(differences) < 2:
        return float(differences[0]), float(differences[0])
    interval = bootstrap(
        (differences,),
        np.mean,
        n_resamples=10_000,
        # Not all resamples at once in memory.
        batch=100,
        method="percentile",
        random_state=np.random.default_rng(seed),
    ).confidence_interval
    return float(interval.low), float(interval.high)
