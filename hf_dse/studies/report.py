# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables and plots of a study: means with their spread, and paired differences and correlations with intervals."""

from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pandas as pd

from hf_dse.common.display import STYLE, line_style, markdown, save_figure
from hf_dse.retrieval.metrics import RANKING_METRICS, bootstrap_interval


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
    rows = []
    groups = results.groupby(others, sort=False, dropna=False) if others else [((), results)]
    for labels, group in groups:
        row = dict(zip(others, labels, strict=True))
        row["n"] = len(group)
        for metric in metrics:
            row[metric], row[f"{metric} std"] = group[metric].mean(), group[metric].std(ddof=1)
        rows.append(row)
    return pd.DataFrame(rows)


def compare(results: pd.DataFrame, factors: Sequence[str], metric: str, factor: str, baseline: object) -> pd.DataFrame:
    """Differences to a baseline label, between runs that are equal otherwise, with 95 % intervals and verdicts."""
    _check_columns(results, [metric])
    labels = list(dict.fromkeys(results[factor]))
    matches = [label for label in labels if str(label) == str(baseline)]
    if not matches:
        raise ValueError(f"{factor} has no finished runs for {baseline!r}, only for {', '.join(map(str, labels))}.")
    others = [name for name in factors if name != factor]
    # A column that all runs share lets them be paired where there is no other factor.
    values = results.assign(study=0).pivot(index=["study", *others], columns=factor, values=metric)
    rng = np.random.default_rng(0)
    rows = []
    for label in labels:
        if label == matches[0]:
            continue
        differences = (values[label] - values[matches[0]]).dropna().to_numpy(dtype=float)
        if not len(differences):
            continue
        low, high = bootstrap_interval(differences, seed=rng)
        verdict = "not separated"
        if len(differences) < FEWEST_PAIRS:
            verdict = "too few pairs"
        elif low > 0:
            verdict = "higher"
        elif high < 0:
            verdict = "lower"
        row = {"pairs": len(differences), "difference": differences.mean(), "low": low, "high": high}
        rows.append({factor: label, **row, "verdict": verdict})
    return pd.DataFrame(rows)


def correlate(results: pd.DataFrame, metric: str, factor: str) -> dict[str, tuple[float, float, float]]:
    """Correlations of a metric with a factor of numbers, by their names, with the ends of 95 % intervals."""
    from scipy import stats

    _check_columns(results, [metric, factor])
    table = results[[factor, metric]].dropna()
    if not pd.api.types.is_numeric_dtype(table[factor]) or table[factor].nunique() < 2:
        raise ValueError(f"A correlation needs at least two numbers as labels of {factor}.")
    found = {}
    for name, function in (("spearman", stats.spearmanr), ("pearson", stats.pearsonr)):
        resampled = stats.bootstrap(
            (table[factor], table[metric]),
            lambda x, y, function=function: function(x, y).statistic,
            n_resamples=2_000,
            paired=True,
            vectorized=False,
            method="percentile",
            rng=0,
        )
        found[name] = (function(table[factor], table[metric]).statistic, *resampled.confidence_interval)
    return found


def correlation_text(correlation: dict[str, tuple[float, float, float]], metric: str, factor: str) -> str:
    """A correlation as a sentence."""
    parts = [
        f"{method.capitalize()} {value:+.2f} (95 % interval {low:+.2f} to {high:+.2f})"
        for method, (value, low, high) in correlation.items()
    ]
    return f"Correlation of {factor} with {metric}: {', '.join(parts)}."


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


def comparison_table(comparison: pd.DataFrame, metric: str) -> str:
    """A comparison as a Markdown table, differences with their intervals."""
    scale, digits = _format_of(metric)
    rows = [
        [
            str(row.iloc[0]),
            str(row["pairs"]),
            f"{scale * row['difference']:+.{digits}f}",
            f"{scale * row['low']:+.{digits}f} to {scale * row['high']:+.{digits}f}",
            row["verdict"],
        ]
        for _, row in comparison.iterrows()
    ]
    return markdown([comparison.columns[0], "pairs", metric, "95 % interval", "verdict"], rows, num_left=1)


def plot(summary: pd.DataFrame, metric: str, x: str, path: str | Path, *, lines: str | None = None) -> Path:
    """Draws the means of a summary by the factor `x`, with their deviations, and a line per label of `lines`."""
    from matplotlib import rc_context
    from matplotlib.figure import Figure

    drawn = [x] if lines is None else [x, lines]
    _check_columns(summary, [metric, *drawn])
    if summary.duplicated(drawn).any():
        raise ValueError(f"Several rows have the same {' and '.join(drawn)}: draw other factors as lines, or select.")
    scale, _ = _format_of(metric)
    is_numeric = pd.api.types.is_numeric_dtype(summary[x])
    if not is_numeric:
        # Numbers among words, such as sizes and "softmax", are words.
        summary = summary.astype({x: str})
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        groups = [(None, summary)] if lines is None else list(summary.groupby(lines, sort=False))
        for number, (label, group) in enumerate(groups):
            group = group.sort_values(x) if is_numeric else group
            axes.errorbar(
                group[x],
                scale * group[metric],
                yerr=scale * group[f"{metric} std"].fillna(0.0),
                label=None if label is None else str(label),
                capsize=3,
                **line_style(number),
            )
        if is_numeric:
            values = sorted(summary[x].unique())
            if 0 < 16 * values[0] <= values[-1]:
                axes.set_xscale("log", base=2)
            axes.set_xticks(values, [str(value) for value in values])
        axes.set_xlabel(x)
        axes.set_ylabel(metric + (" x 100" if scale == 100 else ""))
        axes.grid()
        if lines is not None:
            axes.legend(title=lines)
        return save_figure(figure, path)


def _format_of(metric: str) -> tuple[int, int]:
    """The factor that a metric is multiplied by, and its digits after the point."""
    return (100, 2) if metric.endswith(PERCENT) else (1, 3 if metric.endswith(FINE) else 1)


def _check_columns(table: pd.DataFrame, columns: Sequence[str]) -> None:
    missing = [column for column in columns if column not in table.columns]
    if missing:
        raise ValueError(f"The results have no {missing[0]!r}; they have {', '.join(map(str, table.columns))}.")
