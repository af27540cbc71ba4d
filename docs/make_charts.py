# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Draws the charts of docs/figures from stored numbers: `python docs/make_charts.py`. Charts of studies show
studies/results.parquet; the others show tables of studies/notebook.md.
"""

import re
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from statistics import fmean
from typing import Any

import pandas as pd
from matplotlib import rc_context
from matplotlib.figure import Figure
from matplotlib.ticker import LogLocator

from hf_dse.studies.report import summarize
from hf_dse.studies.runs import load_study, read_results, select_results


# label of a line -> its x and y values
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]

ROOT = Path(__file__).parents[1]
UNITS = {"ms": 1e-3, "s": 1.0, "min": 60.0, "h": 3600.0}
# A grey for white and black pages.
GREY = "#7a7a7a"

# Okabe and Ito's colours, which colour-blind readers can tell apart, with grey for their black.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", GREY]

MARKERS = "osD^vPX<>ph*d8H"

# Grey on no background, for light and dark pages and for print. The texts of an SVG are kept as texts, and each run
# makes the same one.
STYLE: Any = {
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], GREY),
    **{"grid.color": GREY, "grid.alpha": 0.3, "legend.framealpha": 0, "legend.edgecolor": GREY},
    **{"savefig.transparent": True, "svg.fonttype": "none", "svg.hashsalt": "hf-dse", "font.size": 11},
}

# Projections that are in tables, but no longer in the code.
GONE = ("max", "ours, max", "ours, conv")

# Chart -> study, the factor on the x axis, that of the lines, and a condition for the runs.
STUDY_CHARTS = {
    "depth": ("depth", "num_hidden_layers", "attention", None),
    "k": ("k", "k", "start of E", None),
    "length": ("length_concatenated", "tokens", "attention", None),
    "general_stage": ("general_stage", "num_hidden_layers", "training", "attention == 'linear'"),
}
METRIC = "test.pearson"

# The studies with seeds, by what they train on.
SEED_STUDIES = {
    "5,749 pairs of sentences": ["depth", "linear_layers", "k", "methods"],
    "256 joined pairs": ["length_concatenated"],
    "256 hidden pairs": ["length_hidden"],
}


def line_style(number: int) -> dict[str, Any]:
    """The style of a line by its number: a marker of its own, for print and without colours."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": ["-", "--", "-.", ":"][number % 4],
    }


def save_figure(figure: Figure, path: Path) -> None:
    """Saves a figure, the same each time."""
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None})


def read_table(heading: str, first_cell: str) -> list[list[str]]:
    """The cells of the first table after a heading of studies/notebook.md whose header starts with a cell."""
    text = (ROOT / "studies" / "notebook.md").read_text(encoding="utf-8").partition(f"\n## {heading}\n")[2]
    table = re.search(rf"^\| {first_cell} \|.*?\n(?!\|)", text, re.MULTILINE | re.DOTALL)
    if table is None:
        raise ValueError(f"studies/notebook.md has no table of {first_cell!r} under {heading!r}.")
    header, _, *rows = [[cell.strip() for cell in line.strip("| ").split(" | ")] for line in table[0].splitlines()]
    return [header, *rows]


def number(cell: str) -> float:
    """The first number of a cell, such as `12.0 (1.51)`."""
    return float(re.sub(r"[,~*]", "", cell).split()[0])


def seconds(cell: str) -> float:
    """A time, such as `~12 min` or `11.7 ms (490)`."""
    return number(cell) * UNITS[cell.split()[1]]


def read_speeds() -> Lines:
    """Thousands of tokens per second by length, for each model."""
    (_, *header), *rows = read_table("Speed by length", "model")
    lengths = [int(number(cell)) for cell in header[:-1]]
    rows = [row for row in rows if not {"-", *GONE} & {*row}]
    return {row[0].strip("*"): (lengths, [number(cell) for cell in row[1:-1]]) for row in rows}


def plot_lines(panels: Mapping[str, Lines], path: Path, x: str, y: str) -> None:
    """Draws lines on logarithmic axes, a panel for each title; panels share the axes and the legend."""
    num_rows = 1 if len(panels) < 3 else 2
    num_columns = -(-len(panels) // num_rows)
    # Lines of one label look alike in all panels.
    labels = list(dict.fromkeys(label for lines in panels.values() for label in lines))
    ticks = sorted({value for lines in panels.values() for xs, _ in lines.values() for value in xs})
    with rc_context(STYLE):
        figure = Figure(figsize=(2.6 + 3.6 * num_columns, 1.0 + 3.2 * num_rows), layout="constrained")
        grid = figure.subplots(num_rows, num_columns, sharex=True, sharey=True, squeeze=False)
        for axes, (title, lines) in zip(grid.flat, panels.items(), strict=False):
            for label, (xs, ys) in lines.items():
                axes.plot(xs, ys, label=label, **line_style(labels.index(label)))
            axes.set_xscale("log", base=2)
            axes.set_xticks(ticks, [f"{tick:,}" for tick in ticks], rotation=45)
            axes.set_yscale("log")
            axes.yaxis.set_major_locator(LogLocator(subs=(1, 2, 5)))
            axes.yaxis.set_major_formatter("{x:g}")
            axes.minorticks_off()
            axes.set_title(title)
            axes.grid()
        for axes in grid.flat[len(panels) :]:
            axes.set_axis_off()
        figure.supxlabel(x, fontsize="medium")
        figure.supylabel(y, fontsize="medium")
        drawn = {line.get_label(): line for axes in grid.flat for line in axes.get_lines()}
        figure.legend([drawn[label] for label in labels], labels, loc="outside right center")
        save_figure(figure, path)


def draw_gain(path: Path) -> None:
    """The gain of a student: the time to rank, and the speed by length."""
    _, *rows = read_table("Encoding and ranking", "candidates")
    candidates = [int(number(row[0])) for row in rows]
    speeds = read_speeds()
    with rc_context(STYLE):
        figure = Figure(figsize=(8.4, 3.4), layout="constrained")
        ranking, speed = figure.subplots(1, 2)
        cross_encoder, student = ([seconds(row[column]) for row in rows] for column in (1, 2))
        ranking.plot(candidates, cross_encoder, label="cross-encoder (extrapolated)", **line_style(1))
        ranking.plot(candidates, student, label="student", **line_style(0))
        ranking.set(title="Time to rank for one query", xlabel="candidates", xscale="log", yscale="log")
        names = [f"{value:,}".replace(",000,000", "M").replace(",000", "k") for value in candidates]
        ranking.set_xticks(candidates, names)
        ranking.set_yticks([0.01, 1, 60, 3600, 86400], ["10 ms", "1 s", "1 min", "1 h", "1 day"])
        for name, label, place in [("BERT, sdpa", "softmax attention", 1), ("ours, learned", "linear attention", 0)]:
            lengths, values = speeds[name]
            speed.plot(lengths, values, label=label, **line_style(place))
        speed.set(title="Thousand tokens per second", xlabel="tokens of a text")
        speed.set_xscale("log", base=2)
        speed.set_xticks(lengths, [f"{value:,}" for value in lengths])
        speed.set_ylim(bottom=0)
        for axes in figure.axes:
            axes.minorticks_off()
            axes.grid()
            axes.legend()
        save_figure(figure, path)


def draw_attention_error(path: Path) -> None:
    """The error of projected attention by length, in a panel for each projection."""
    (_, _, *header), *rows = read_table("How far projected attention is from softmax attention", "projection")
    lengths = [int(number(cell.removeprefix("n = "))) for cell in header]
    panels: dict[str, dict] = {}
    for projection, k, *cells in rows:
        if projection in GONE:
            continue
        # Where n <= k the error is 0, and has no place on a logarithmic axis.
        points = [(n, number(cell)) for n, cell in zip(lengths, cells, strict=True) if number(cell)]
        panels.setdefault(projection, {})[f"k = {k}"] = tuple(zip(*points, strict=True))
    plot_lines(panels, path, "tokens of a text", "relative error, %")


def draw_frontier(path: Path) -> None:
    """The nDCG@10 of ways of reading long documents, by their time."""
    _, *rows = read_table("Ways of reading long documents", "a document is read by")
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 5.8), layout="constrained")
        axes = figure.subplots()
        for place, (name, vectors, *cells, ms) in enumerate(rows):
            label = name.strip("*") + ("" if vectors in ("1", "-") else f" ({vectors} vectors)")
            # Each set has a column for the cosine, and one with BM25.
            found = fmean(number(cell) for cell in cells[:6:2])
            axes.plot([number(ms)], [found], label=label, **{**line_style(place), "linestyle": ""})
        axes.set(xlabel="milliseconds per meeting", ylabel="mean nDCG@10", xscale="log")
        axes.grid()
        figure.legend(loc="outside lower left")
        save_figure(figure, path)


def draw_extrapolation(path: Path) -> None:
    """The R@1 of a student that was trained on short texts, among longer texts."""
    (_, *header), *rows = read_table("Long documents", "k = 256, strided")
    lines = {}
    for name, *cells in rows:
        points = [(int(number(n)), number(cell)) for n, cell in zip(header, cells, strict=True) if cell != "-"]
        lines[name] = tuple(zip(*points, strict=True))
    plot_lines({"250 articles": lines}, path, "tokens that are read", "R@1, %")


def summarize_study(name: str, condition: str | None = None) -> pd.DataFrame:
    """The mean and the spread of each setting of a study in studies/."""
    runs = load_study(ROOT / "studies" / f"{name}.yaml")
    results = select_results(runs, read_results(ROOT / "studies" / "results.parquet"))
    return summarize(results if condition is None else results.query(condition), list(runs[0].labels), [METRIC])


def draw_study(path: Path, study: str, x: str, lines: str, condition: str | None) -> None:
    """The means of a study with their spread, a line for each label of a factor."""
    summary = summarize_study(study, condition)
    is_numeric = pd.api.types.is_numeric_dtype(summary[x])
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 4.0), layout="constrained")
        axes = figure.subplots()
        for number, (label, group) in enumerate(summary.groupby(lines, sort=False)):
            group = group.sort_values(x) if is_numeric else group
            spread = 100 * group[f"{METRIC} std"].fillna(0.0)
            # Numbers among words, such as sizes and "softmax", are words.
            places = group[x] if is_numeric else group[x].map(str)
            axes.errorbar(places, 100 * group[METRIC], spread, label=str(label), capsize=3, **line_style(number))
        if is_numeric:
            values = sorted(summary[x].unique())
            if 16 * values[0] <= values[-1]:
                axes.set_xscale("log", base=2)
            axes.set_xticks(values, [str(value) for value in values])
        axes.set(xlabel=x, ylabel=f"{METRIC} x 100")
        axes.grid()
        axes.legend(title=lines)
        save_figure(figure, path)


def draw_seed_noise(path: Path) -> None:
    """The spread over three seeds of each setting of the studies, by what it reaches."""
    with rc_context(STYLE):
        figure = Figure(figsize=(6.4, 3.6), layout="constrained")
        axes = figure.subplots()
        for place, (label, names) in enumerate(SEED_STUDIES.items()):
            rows = pd.concat([summarize_study(name) for name in names]).query("n == 3")
            points = 100 * rows[METRIC], 100 * rows[f"{METRIC} std"]
            axes.plot(*points, label=label, **{**line_style(place), "linestyle": ""})
        axes.set(xlabel="mean test Pearson", ylabel="standard deviation", yscale="log")
        axes.set_yticks([0.03, 0.1, 0.3, 1, 3], ["0.03", "0.1", "0.3", "1", "3"])
        axes.minorticks_off()
        axes.grid()
        axes.legend()
        save_figure(figure, path)


def draw_all(folder: Path) -> None:
    """Draws all charts into a folder."""
    draw_gain(folder / "gain.svg")
    draw_attention_error(folder / "attention_error.svg")
    draw_frontier(folder / "long_frontier.svg")
    draw_extrapolation(folder / "extrapolation.svg")
    draw_seed_noise(folder / "seed_noise.svg")
    title = {"bfloat16, k = 128": read_speeds()}
    plot_lines(title, folder / "speed_bf16.svg", "tokens of a text", "thousand tokens per second")
    for name, chart in STUDY_CHARTS.items():
        draw_study(folder / f"{name}.svg", *chart)


if __name__ == "__main__":
    draw_all(Path(sys.argv[1]) if len(sys.argv) > 1 else ROOT / "docs" / "figures")
