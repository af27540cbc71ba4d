# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tables, and texts from outside."""

import re
from collections.abc import Mapping, Sequence
from typing import Any


# Characters that a terminal obeys instead of showing them: colours, moves of the cursor, the direction of writing; and
# halves of characters, which cannot be written.
CONTROLS = re.compile("[\x00-\x08\x0b-\x1f\x7f-\x9f\u202a-\u202e\u2066-\u2069\ud800-\udfff]")


def harmless(text: str) -> str:
    """Returns a text from outside for a terminal; line breaks and tabs stay."""
    return CONTROLS.sub("\N{REPLACEMENT CHARACTER}", text)


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
    if name == "share":
        return "" if value is None else f"{value.weight:g}"
    if name == "tokens":
        return "all" if value is None else f"{value:d}"
    if name in ("query_ms", "corpus_seconds"):
        return f"{value:.1f}"
    if value != value:
        # Such as the interval of a single query.
        return "none"
    return f"{value:d}" if name.startswith("num_") else f"{100 * value:.2f}"
