# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Splitting long texts into passages."""

import re
from collections.abc import Iterable, Iterator

import numpy as np
from transformers import PreTrainedTokenizerBase


# A heading of Markdown: marked, or underlined after an empty line.
HEADING = (
    r"\n(?= {0,3}#{1,6}\s)"
    r"|\n[^\S\n]*\n(?= {0,3}[^\s#>|*+-][^\n]*\n {0,3}(?:={3,}|-{3,})[^\S\n]*(?:\n|\Z))"
)

# The places where a passage may end, the best first: before a heading, after a paragraph, a sentence, a line and a
# word. White space belongs to the passage before it. Each has the part of a passage that has to be before it, so that
# a title stays with its text.
BREAKS = tuple(
    (re.compile(pattern), least)
    for pattern, least in (
        (HEADING, 1 / 2),
        (r"\n[^\S\n]*\n\s*", 1 / 2),
        (r"[.!?…][\"'”’»)\]]*\s+|[。！？][”’」』）]*\s*", 1 / 4),
        (r"\n\s*", 1 / 4),
        (r"\s+", 0),
    )
)

# Parts that Markdown takes as they are, where a "#" begins no heading: front matter, code, comments and formulas.
LITERAL = re.compile(
    r"""
    \A(?: ---[^\S\n]*\n (?=[\w"'-]+[^\S\n]*:) .*? ^(?:---|\.\.\.)[^\S\n]*$ | \+\+\+[^\S\n]*\n .*? ^\+\+\+[^\S\n]*$ )
    # Code may begin on the line of a list marker. ```code``` on one line is not a block.
    | ^[^\S\n]*(?:(?:[-*+]|\d{1,9}[.)])[^\S\n]+)* (?P<fence>(?P<sign>[`~])(?P=sign){2,})
      (?:(?<=`)[^`\n]*|(?<=~)[^\n]*)$ .*? (?:^[^\S\n]*(?P=fence)(?P=sign)*[^\S\n]*$|\Z)
    | ^[ ]{0,3}<!-- .*? (?:-->|\Z)
    | ^[ ]{0,3}(?i:<(?P<tag>pre|script|style)\b .*? (?:</(?P=tag)>|\Z))
    | ^[ ]{0,3}\$\$ .*? \$\$
    """,
    re.MULTILINE | re.DOTALL | re.VERBOSE,
)


def split_text(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int = 128) -> list[str]:
    """
    Splits a text into passages, each with as much as fits into `chunk_size` tokens. A passage ends with a section or a
    paragraph if one ends in its second half, otherwise with a sentence or a line, and only a very long sentence is
    split at a word. The passages together are the text.

    Args:
        text (`str`):
            The text.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model that will read the passages.
        chunk_size (`int`, *optional*, defaults to 128):
            Maximum number of tokens of a passage, without special tokens.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import split_text

    >>> tokenizer = AutoTokenizer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    >>> split_text("Cats purr. Dogs bark at cats. Birds sing.", tokenizer, chunk_size=8)
    ['Cats purr. ', 'Dogs bark at cats. Birds sing.']
    ```
    """
    if chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: it has to be at least 1.")
    return list(_fit(text, processing_class, chunk_size))


def _fit(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int) -> Iterator[str]:
    """Yields the passages of a text. Some are split again, because alone they have more tokens than in the text."""
    ends = _find_ends(text, processing_class, chunk_size)
    passages = [text[start:end] for start, end in zip([0, *ends], ends, strict=False)]
    for passage in passages:
        size = len(processing_class(passage, add_special_tokens=False, verbose=False)["input_ids"])
        if size <= chunk_size or len(passage) == 1:
            yield passage
        elif len(passages) > 1:
            yield from _fit(passage, processing_class, chunk_size)
        else:
            # In some tokenizers, the offset of white space is its end.
            half = len(passage) // 2
            for part in (passage[:half], passage[half:]):
                yield from _fit(part, processing_class, chunk_size)


def _find_ends(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int) -> list[int]:
    """Returns the ends of the passages of a text."""
    encoded = processing_class(text, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    # In a few tokenizers, tokens do not have the order of the text.
    starts = np.maximum.accumulate([0, *(first for first, _ in encoded["offset_mapping"])])[1:]
    breaks = _find_breaks(text)
    ends: list[int] = []
    start = 0
    while len(starts) - (token := int(np.searchsorted(starts, start))) > chunk_size:
        most = max(int(starts[token + chunk_size]), start + 1)
        for places, least in breaks:
            # The last place of this kind.
            end = int(places[np.searchsorted(places, most, side="right") - 1])
            if end > max(start, starts[token + int(least * chunk_size)]):
                break
        else:
            # A word that is longer than a passage.
            end = most
        ends.append(end)
        start = end
    return [*ends, len(text)] if start < len(text) else ends


def _find_breaks(text: str) -> list[tuple[np.ndarray, float]]:
    """Returns the places of each kind of [`BREAKS`]; code and the like have no headings."""
    breaks = [(np.array([0, *(match.end() for match in kind.finditer(text))]), least) for kind, least in BREAKS]
    headings, least = breaks[0]
    edges = [edge for match in LITERAL.finditer(text) for edge in match.span()]
    is_literal = np.searchsorted(edges, headings) % 2 == 1
    breaks[0] = headings[~is_literal | (headings == 0)], least
    return breaks


def line_numbers(passages: Iterable[str]) -> Iterator[int]:
    """Yields the line, counted from 1, in which each passage of a text begins, without blank lines at its start."""
    line = 1
    for passage in passages:
        yield line + passage.count("\n", 0, len(passage) - len(passage.lstrip()))
        line += passage.count("\n")
