# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables, plots, and texts from outside."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path

from hf_dse.common.files import to_path


# Okabe and Ito's colours, which colour-blind readers can tell apart.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", "#000000"]

MARKERS = "osD^vPX<>ph*d8H"

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


def plot_lines(panels: Mapping[str, Lines], output_dir: str, x: str, y: str, legend: str | None = None) -> Path | None:
    """
    Draws `plot.png` with logarithmic axes, if matplotlib is installed. Every line has its own marker.

    Args:
        panels (`Mapping[str, Lines]`):
            The lines of each panel, by its title; they share the axes and the legend.
        output_dir (`str`):
            Folder of the plot.
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
        from matplotlib.figure import Figure
    except ImportError:
        return None
    figure = Figure(figsize=(2.6 + 3.8 * len(panels), 4.4), layout="constrained")
    ticks = sorted({value for lines in panels.values() for xs, _ in lines.values() for value in xs})
    row = figure.subplots(1, len(panels), sharex=True, sharey=True, squeeze=False)[0]
    for axes, (title, lines) in zip(row, panels.items(), strict=True):
        for number, (label, (xs, ys)) in enumerate(lines.items()):
            axes.plot(
                xs,
                ys,
                label=label,
                color=COLORS[number % len(COLORS)],
                marker=MARKERS[number % len(MARKERS)],
                linestyle=["-", "--", "-.", ":"][number % 4],
            )
        axes.set_xscale("log", base=2)
        axes.set_xticks(ticks, [str(tick) for tick in ticks], rotation=45)
        axes.set_yscale("log")
        axes.set_xlabel(x)
        axes.set_title(title)
        axes.grid(alpha=0.3)
    row[0].set_ylabel(y)
    row[-1].legend(title=legend, loc="center left", bbox_to_anchor=(1.0, 0.5))
    path = to_path(output_dir) / "plot.png"
    path.parent.mkdir(parents=True, exist_ok=True)
    figure.savefig(path, dpi=150)
    return path
