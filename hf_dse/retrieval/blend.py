# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Several scores of the same texts as one: a reranker beside a search, or teachers beside each other."""

import math
from collections.abc import Iterable, Sequence

import numpy as np


# For each query the scores of its texts.
Scores = Sequence[Sequence[float]]


def mean_spread(lists: Iterable[Sequence[float] | np.ndarray]) -> float:
    """The mean standard deviation within lists of scores, in which NaN is unknown; NaN without a list of two."""
    known = (values[np.isfinite(values)] for values in (np.asarray(row, float) for row in lists))
    return float(np.mean([values.std() for values in known if len(values) > 1] or [math.nan]))


def blend(parts: Sequence[Scores], weights: Sequence[float] | None = None) -> list[list[float]]:
    """
    The weighted mean of several scores of the texts of each query, on the scale of the first that counts.

    Scales and zeros of scores differ, so each counts as its difference to the query's mean, divided by its mean spread
    within a query over all of them: a text that is one spread above the others by each is so by all. Scores without
    spread count nothing.

    Args:
        parts (`Sequence`):
            One or several lists of scores for each query and text; NaN where there is none, as in the result.
        weights (`Sequence[float]`, *optional*):
            A weight of at least 0 for each. Defaults to equal weights.
    """
    weights = weights_for(weights, len(parts))
    counted = [(part, weight) for part, weight in zip(parts, weights, strict=True) if weight]
    if len(counted) == 1:
        return [list(map(float, row)) for row in counted[0][0]]
    spreads = [mean_spread(part) for part, _ in counted]
    unit = next((spread for spread in spreads if spread > 0), 1.0)
    pairs = zip((weight for _, weight in counted), spreads, strict=True)
    scales = np.array([weight / sum(weights) * unit / spread if spread > 0 else 0.0 for weight, spread in pairs])
    blended = []
    for rows in zip(*(part for part, _ in counted), strict=True):
        values = np.array(rows, dtype=np.float64)
        if values.size:
            mean = np.nanmean(values, axis=1, keepdims=True) if np.isfinite(values).any(axis=1).all() else 0.0
            values -= mean
        blended.append((scales @ values).tolist())
    return blended


def weights_for(weights: Sequence[float] | None, number: int) -> list[float]:
    """The weights of so many scores, equal ones by default."""
    weights = [1.0] * number if weights is None else list(weights)
    if len(weights) != number or not all(0 <= weight < math.inf for weight in weights) or not any(weights):
        raise ValueError(
            f"weights={weights} for {number} scores: pass a finite weight of at least 0 for each, and one above 0."
        )
    return weights
