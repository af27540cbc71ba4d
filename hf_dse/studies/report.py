# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables of a study: means with their spread, and paired differences with intervals."""

from collections.abc import Sequence
from typing import Any

import numpy as np
import pandas as pd

from hf_dse.common.display import markdown
from hf_dse.measure.metrics import RANKING_METRICS, bootstrap_interval


SEED = "seed"

# A bootstrap interval of fewer pairs means nothing.
FEWEST_PAIRS = 3

# Metrics that the literature gives times 100.
PERCENT = ("pearson", "spearman", "accuracy", "f1", *RANKING_METRICS)

# Metrics with three digits after the point.
FINE = ("loss", "seconds_per_step")


def summarize(results: pd.DataFrame, factors: Sequence[str], metrics: Sequence[str]) -> pd.DataFrame:
    """`n`, the mean and the sample standard deviation (`metric std`) over the seeds, for all other labels."""
    _check_columns(results, metrics)
    others = [factor for factor in factors if factor != SEED]
    columns: dict[str, Any] = {"n": (metrics[0], "size")}
    for metric in metrics:
        columns |= {metric: (metric, "mean"), f"{metric} std": (metric, "std")}
    # Without other labels, the runs are one group.
    groups = results.groupby(others or (lambda row: 0), sort=False, dropna=False)
    return groups.agg(**columns).reset_index(drop=not others)


def comparison_table(results: pd.DataFrame, factors: Sequence[str], metric: str, factor: str, baseline: str) -> str:
    """Differences to a baseline label, between runs that are equal otherwise, with 95 % intervals and verdicts."""
    _check_columns(results, [metric])
    labels = list(dict.fromkeys(results[factor]))
    matches = [label for label in labels if str(label) == str(baseline)]
    if not matches:
        raise ValueError(f"{factor} has no finished runs for {baseline!r}, only for {', '.join(map(str, labels))}.")
    others = [name for name in factors if name != factor]
    # A column that all runs share lets them be paired where there is no other factor.
    values = results.assign(study=0).pivot(index=["study", *others], columns=factor, values=metric)
    rng, (scale, digits) = np.random.default_rng(0), _format_of(metric)
    rows = []
    for label in labels:
        differences = scale * (values[label] - values[matches[0]]).dropna().to_numpy(dtype=float)
        if label == matches[0] or not len(differences):
            continue
        low, high = bootstrap_interval(differences, seed=rng)
        verdict = "not separated"
        if len(differences) < FEWEST_PAIRS:
            verdict = "too few pairs"
        elif low > 0:
            verdict = "higher"
        elif high < 0:
            verdict = "lower"
        mean, least, most = (f"{value:+.{digits}f}" for value in (differences.mean(), low, high))
        interval = f"{least} to {most}" if len(differences) > 1 else "none"
        rows.append([str(label), str(len(differences)), mean, interval, verdict])
    return markdown([factor, "pairs", metric, "95 % interval", "verdict"], rows, num_left=1)


def summary_table(summary: pd.DataFrame, metrics: Sequence[str]) -> str:
    """A summary as a Markdown table, means with their standard deviations."""
    measured = ["n", *metrics, *(f"{name} std" for name in metrics)]
    others = [column for column in summary.columns if column not in measured]
    rows = []
    for row in summary.to_dict("records"):
        cells = [str(row[name]) for name in others] + [str(row["n"])]
        for metric in metrics:
            scale, digits = _format_of(metric)
            spread = row[f"{metric} std"]
            cell = f"{scale * row[metric]:.{digits}f}"
            cells.append(cell if np.isnan(spread) else f"{cell} ± {scale * spread:.{digits}f}")
        rows.append(cells)
    return markdown([*others, "n", *metrics], rows, num_left=len(others))


def _format_of(metric: str) -> tuple[int, int]:
    """The factor that a metric is multiplied by, and its digits after the point."""
    return (100, 2) if metric.endswith(PERCENT) else (1, 3 if metric.endswith(FINE) else 1)


def _check_columns(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ValueError(f"The results have no {missing[0]!r}; they have {', '.join(map(str, table.columns))}.")
