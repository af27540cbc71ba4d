# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Splitting long texts into passages."""

import re
from collections.abc import Iterable, Iterator
from numbers import Integral

import numpy as np
from transformers import PreTrainedTokenizerBase


# Where a passage may end, the best places first: before a heading of Markdown, after a paragraph, a sentence, a line
# and a word. White space belongs to the passage before it. Each with the part of a passage that has to be before it,
# so that a title stays with its text.
BREAKS = tuple(
    (re.compile(pattern), least)
    for pattern, least in (
        (r"\n(?=#{1,6}\s)", 1 / 2),
        (r"\n[^\S\n]*\n\s*", 1 / 2),
        (r"[.!?…][\"'”’»)\]]*\s+|[。！？][”’」』）]*\s*", 1 / 4),
        (r"\n\s*", 1 / 4),
        (r"\s+", 0),
    )
)

# Characters that are tokenized together: the offsets of a whole book would take gigabytes.
BLOCK = 2**16


def split_text(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int = 128) -> list[str]:
    """
    Splits a text into passages, each with as much as fits into `chunk_size` tokens. A passage ends with a section or a
    paragraph if one ends in its second half, otherwise with a sentence or a line, and only a very long sentence ends
    with a word. Nothing is lost, and nothing is there twice: the passages together are the text.

    Args:
        text (`str`):
            The text.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model that will read the passages.
        chunk_size (`int`, *optional*, defaults to 128):
            Maximum number of tokens of a passage, without special tokens.

    Returns:
        `list[str]`: the passages; none of an empty text.

    Raises:
        `ValueError`: if `chunk_size` is below 1, the text has half a character, or the tokenizer does not tell which
            text a token stands for.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import split_text

    >>> tokenizer = AutoTokenizer.from_pretrained("sentence-transformers/all-MiniLM-L6-v2")
    >>> split_text("Cats purr. Dogs bark at cats. Birds sing.", tokenizer, chunk_size=8)
    ['Cats purr. ', 'Dogs bark at cats. Birds sing.']
    ```
    """
    check_chunk_size(chunk_size)
    try:
        text.encode()
    except UnicodeEncodeError as error:
        raise ValueError(f"{text[:80]!r} is no text in UTF-8: {error}. Remove such characters.") from error
    if not processing_class.is_fast:
        raise ValueError(
            f"The tokenizer {type(processing_class).__name__} does not tell which text a token stands for, so it "
            "cannot split texts: use a fast tokenizer, or whole files (`--chunk_size 0`)."
        )
    return list(_fit(text, processing_class, chunk_size))


def check_chunk_size(chunk_size: int) -> None:
    if not isinstance(chunk_size, Integral) or chunk_size < 1:
        raise ValueError(f"chunk_size={chunk_size!r}: it has to be at least 1, a whole number.")


def _fit(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int) -> Iterator[str]:
    """The passages of a text. Some are split again, for alone they have more tokens than within the text."""
    passages = _split(text, processing_class, chunk_size)
    for passage in passages:
        size = len(processing_class(passage, add_special_tokens=False, verbose=False)["input_ids"])
        if size <= chunk_size or len(passage) == 1:
            yield passage
        elif len(passages) > 1:
            yield from _fit(passage, processing_class, chunk_size)
        else:
            # In some tokenizers, white space begins where it ends.
            half = len(passage) // 2
            yield from _fit(passage[:half], processing_class, chunk_size)
            yield from _fit(passage[half:], processing_class, chunk_size)


def _split(text: str, processing_class: PreTrainedTokenizerBase, chunk_size: int) -> list[str]:
    passages: list[str] = []
    start, size = 0, BLOCK
    while start < len(text):
        block = text[start : start + size]
        ends = _ends(block, processing_class, chunk_size, is_last=start + size >= len(text))
        # A block without an end is part of one passage, such as a very long word.
        start, size = start + (ends[-1] if ends else 0), BLOCK if ends else 2 * size
        passages += [block[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    return passages


def _ends(block: str, processing_class: PreTrainedTokenizerBase, chunk_size: int, is_last: bool) -> list[int]:
    """Where the passages of a block end; the end of one that goes on in the next block is not known yet."""
    encoded = processing_class(block, add_special_tokens=False, return_offsets_mapping=True, verbose=False)
    # In a few tokenizers, tokens do not have the order of the text.
    starts = np.maximum.accumulate([0, *(first for first, _ in encoded["offset_mapping"])])[1:]
    breaks = [(np.array([0, *(match.end() for match in kind.finditer(block))]), least) for kind, least in BREAKS]
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
    return [*ends, len(block)] if is_last and start < len(block) else ends


def line_numbers(passages: Iterable[str]) -> Iterator[int]:
    """The line, counted from 1, in which each passage of a text begins; blank lines at its start do not count."""
    line = 1
    for passage in passages:
        yield line + passage.count("\n", 0, len(passage) - len(passage.lstrip()))
        line += passage.count("\n")
