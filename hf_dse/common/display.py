# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables, plots, and texts from outside."""

import re
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from hf_dse.common.files import to_path


# A grey for white and black pages.
GREY = "#7a7a7a"

# Okabe and Ito's colours, which colour-blind readers can tell apart, with grey for their black.
COLORS = ["#0072B2", "#D55E00", "#009E73", "#CC79A7", "#E69F00", "#56B4E9", GREY]

MARKERS = "osD^vPX<>ph*d8H"

# For matplotlib's `rc_context`: grey on no background, for light and dark pages and for print. The texts of an SVG are
# kept as texts, and each run makes the same one.
STYLE: Any = {
    **dict.fromkeys(["text.color", "axes.labelcolor", "axes.edgecolor", "xtick.color", "ytick.color"], GREY),
    **{"grid.color": GREY, "grid.alpha": 0.3, "legend.framealpha": 0, "legend.edgecolor": GREY},
    **{"savefig.transparent": True, "svg.fonttype": "none", "svg.hashsalt": "hf-dse", "font.size": 11},
}

# Characters that a terminal obeys instead of showing them: colours, moves of the cursor, the direction of writing; and
# halves of characters, which cannot be written.
COMMANDS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Returns a text from outside for a terminal; line breaks and tabs stay."""
    return COMMANDS.sub("\N{REPLACEMENT CHARACTER}", text)


def one_line(value: object) -> str:
    """Returns a value from outside on one line."""
    return harmless(" ".join(str(value).split()))


def escape_markdown(value: object) -> str:
    """Returns a value from outside on one line, as Markdown and HTML that show it unchanged."""
    return re.sub(r"([\\`*\[\]<>|&])", r"\\\1", one_line(value))


def markdown(header: Sequence[str], rows: Sequence[Sequence[str]], num_left: int) -> str:
    """Formats a Markdown table; the first `num_left` columns are left-aligned, the others right-aligned."""
    rule = ["---"] * num_left + ["--:"] * (len(header) - num_left)
    return "\n".join(f"| {' | '.join(cells)} |" for cells in [header, rule, *rows])


# Stands below a table of metrics.
CAPTION = "Values are times 100; cosine_* compares the embeddings alone, without the head of the student."


def format_table(results: Mapping[str, Mapping[str, Any]], label: str = "split") -> str:
    """Formats the metrics of each split, times 100 as in the literature, in columns; `label` heads the first."""
    names = list(dict.fromkeys(name for metrics in results.values() for name in metrics))
    rows = [[label, *names]]
    for split, metrics in results.items():
        cells = {name: _cell(name, value) for name, value in metrics.items()}
        rows.append([split, *(cells.get(name, "") for name in names)])
    first, *widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    lines = [[row[0].ljust(first), *map(str.rjust, row[1:], widths)] for row in rows]
    return "\n".join("  ".join(line).rstrip() for line in lines)


def _cell(name: str, value: Any) -> str:
    if name == "tokens":
        return "all" if value is None else f"{value:d}"
    if name in ("query_ms", "corpus_seconds"):
        return f"{value:.1f}"
    return f"{value:d}" if name.startswith("num_") else f"{100 * value:.2f}"


def line_style(number: int) -> dict[str, Any]:
    """Returns the style of a line by its number: a marker of its own, for print and without colours."""
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
