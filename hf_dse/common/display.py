# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables, plots, and texts from outside."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_dse.common.files import to_path


# A grey that can be read on white and on black.
GREY = "#7a7a7a"

# Okabe and Ito's colours, which colour-blind readers can tell apart, with grey for their black.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", GREY]

MARKERS = "osD^vPX<>ph*d8H"

# For matplotlib's `rc_context`: grey on no background, for light and dark pages and for print. An SVG has its texts as
# texts, and is the same each time.
STYLE: Any = {
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], GREY),
    **{"grid.color": GREY, "grid.alpha": 0.3, "legend.framealpha": 0, "legend.edgecolor": GREY},
    **{"savefig.transparent": True, "svg.fonttype": "none", "svg.hashsalt": "hf-dse", "font.size": 11},
}

# Characters that a terminal obeys instead of showing them: colours, moves of the cursor, the direction of writing. And
# halves of characters, which cannot be written.
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """A text from outside for a terminal; line breaks and tabs stay."""
    return COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(value: object) -> str:
    """A value from outside on one line."""
    return harmless(" ".join(str(value).split()))


def escape_markdown(value: object) -> str:
    """A value from outside on one line that Markdown and HTML show as it is."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", one_line(value))


def format_size(num_bytes: int) -> str:
    """A number of bytes for people: `"1.5 GB"`."""
    for unit, size in (("GB", 10**9), ("MB", 10**6), ("KB", 10**3)):
        if num_bytes >= size:
            return f"{num_bytes / size:.1f} {unit}"
    return f"{num_bytes} bytes"


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int) -> str:
    """Formats a Markdown table; the first `num_left` columns are left-aligned, the others right-aligned."""
    rule = ["---"] * num_left + ["--:"] * (len(header) - num_left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])


# What a table of metrics does not say itself.
CAPTION = "Values are times 100; those of cosine_* are of the embeddings alone, without the head of the student."


def format_table(results: Mapping[str, Mapping[str, float]], label: str = "split") -> str:
    """Formats the metrics of each split, or of what `label` says, in columns, times 100 as in the literature."""
    names = list(dict.fromkeys(name for metrics in results.values() for name in metrics))
    rows = [[label, *names]]
    for split, metrics in results.items():
        scaled = {
            name: f"{value:d}" if name.startswith("num_") else f"{100 * value:.2f}" for name, value in metrics.items()
        }
        rows.append([split, *(scaled.get(name, "") for name in names)])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        ).rstrip()
        for row in rows
    )


# label of a line -> its x and y values
Lines = Mapping[str, tuple[Sequence[float], Sequence[float]]]


def plot_lines(
    panels: Mapping[str, Lines],
    path: str | Path,
    x: str,
    y: str,
    legend: str | None = None,
) -> Path | None:
    """
    Draws lines on logarithmic axes, if matplotlib is installed. Every line has its own marker.

    Args:
        panels (`Mapping[str, Lines]`):
            The lines of each panel, by its title; they share the axes and the legend.
        path (`str` or `Path`):
            Image file; its ending is its format.
        x (`str`):
            Label of the x axis.
        y (`str`):
            Label of the y axis.
        legend (`str`, *optional*):
            Title of the legend.

    Returns:
        `Path`, *optional*: the file; `None` without matplotlib.
    """
    try:
        from matplotlib import rc_context
        from matplotlib.figure import Figure
        from matplotlib.ticker import LogLocator
    except ImportError:
        return None
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
        figure.legend([drawn[label] for label in labels], labels, title=legend, loc="outside right center")
        return save_figure(figure, path)


def line_style(number: int) -> dict[str, Any]:
    """How the line of a number looks: in print, and without colours, by its marker."""
    return {
        "color": COLORS[number % len(COLORS)],
        "marker": MARKERS[number % len(MARKERS)],
        "linestyle": ["-", "--", "-.", ":"][number % 4],
    }


def save_figure(figure: Any, path: str | Path) -> Path:
    """Saves a figure of matplotlib, the same each time."""
    path = to_path(str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150, metadata={"Date": None} if path.suffix == ".svg" else None)
    return path
