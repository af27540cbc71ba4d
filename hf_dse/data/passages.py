# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Splitting long texts into passages. A search finds as much in those of semantic-text-splitter (0.33), but of the 909
passages that its TextSplitter makes of docs/ 86 end with a heading, and of the 1,029 of its MarkdownSplitter 38 are
headings alone; ours are 871, of which 8 end with a heading.
"""

import re
from collections.abc import Iterator, Sequence
from itertools import pairwise

import numpy as np
from markdown_it import MarkdownIt
from markdown_it.token import Token
from transformers import PreTrainedTokenizerBase


# The places where a passage may end after headings, the best first: after a paragraph, a sentence, a line and a word.
# White space belongs to the passage before it. Each has the part of a passage that has to be before it.
BREAKS = (
    (r"\n[^\S\n]*\n\s*", 1 / 2),
    (r"[.!?…][\"'”’»)\]]*\s+|[。！？][”’」』）]*\s*", 1 / 4),
    (r"\n\s*", 1 / 4),
    (r"\s+", 0),
)

MARKDOWN = MarkdownIt("commonmark").disable("inline")
# A heading of CommonMark has one of them: `#`, or a line of `=` or `-` below it.
HEADING_MARK = re.compile(r"[#=-](?:(?<=#)|\s*$)", re.MULTILINE)
# Where the title of a text is looked for, in characters.
TITLE_WITHIN = 2000
FIRST_LINE = re.compile(r"^(.*\w.*)$", re.MULTILINE)
# In YAML or TOML, which CommonMark does not know.
FRONT_MATTER = re.compile(r"\A(---|\+\+\+)\s*\n(?=[\w\"'-]+\s*[:=]).*?^\1[^\S\n]*$", re.MULTILINE | re.DOTALL)


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
    if not processing_class.is_fast:
        raise ValueError(
            f"A {type(processing_class).__name__} does not tell where its tokens are in a text, so no text can be "
            "split into chunks: use a model with a fast tokenizer, or split the texts before."
        )
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
    breaks = _find_breaks(text) if len(starts) > chunk_size else []
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
    """Returns the places of headings, and of each kind of [`BREAKS`]."""
    lines = [0, *(match.end() for match in re.finditer("\n", text))]
    headings = [token.map for token in parse_headings(text) if token.type == "heading_open" and token.map]
    # Several lines above a rule are seldom a heading.
    starts = [lines[first] for first, end in headings if end - first <= 2]
    found = [([match.end() for match in re.finditer(kind, text)], least) for kind, least in BREAKS]
    # Half of a passage before a heading, so that a title stays with its text.
    return [(np.array([0, *places]), least) for places, least in ((starts, 1 / 2), *found)]


def parse_markdown(text: str, parser: MarkdownIt) -> list[Token]:
    """The tokens of a text, whose `map` counts the line breaks of the text. Front matter gives none."""
    text = FRONT_MATTER.sub(lambda match: "\n" * match[0].count("\n"), text)
    # The parser takes it for a line break.
    return parser.parse(text.replace("\r", " "))


def parse_headings(text: str) -> list[Token]:
    """The tokens of a text that may have headings; none of others, because parsing takes most of the time."""
    return parse_markdown(text, MARKDOWN) if HEADING_MARK.search(text) else []


def title_of(text: str, room: int) -> str:
    """Returns the first heading of a text, or else its first line; nothing if it has not fewer bytes than `room`."""
    tokens = pairwise(parse_headings(text[:TITLE_WITHIN]))
    headings = (after.content for token, after in tokens if token.type == "heading_open")
    first = FIRST_LINE.search(text)
    found = next(headings, "").split("\n")[-1].strip() or (first[1].strip() if first else "")
    return found if len(found.encode(errors="replace")) < room else ""


def with_titles(text: str, passages: Sequence[str], room: int) -> list[str]:
    """
    Returns the passages of a text as models read them: each but the first after the title of the text, without white
    space at the ends. Searches find more by titles in documentation (docs/results.md).
    """
    title = title_of(text, room) if len(passages) > 1 else ""
    before = ["", *[f"{title}\n" if title else ""] * (len(passages) - 1)]
    return [start + passage.strip() for start, passage in zip(before, passages, strict=False)]


def line_of(text: str, start: int) -> int:
    """Returns the line, counted from 1, in which a passage that begins at a character shows something."""
    first = re.compile(r"\s*").match(text, start)
    return 1 + text.count("\n", 0, first.end() if first else start)
