# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What a model reads at once of a document with many vectors, and which of its tokens count to which chunks."""

import math
from collections.abc import Iterator
from typing import NamedTuple

import numpy as np
from transformers import PreTrainedTokenizerBase


# The part of a macro-chunk that it shares with the next one. Around their border each token has half of it as context.
OVERLAP = 1 / 4


class Window(NamedTuple):
    """What the model reads at once of a document, and which of its tokens count to which chunks."""

    feature: dict[str, list[int]]
    # Number of the chunk among all, and its first and last token in the window.
    spans: list[tuple[int, int, int]]


def read_windows(
    processing_class: PreTrainedTokenizerBase, parts: list[str], first_chunk: int, prompt: str, limit: int | None
) -> Iterator[Window]:
    """The macro-chunks of a document; one if it is short enough."""
    text = prompt + "".join(parts)
    encoded = processing_class(
        text, return_offsets_mapping=True, return_special_tokens_mask=True, return_attention_mask=False, verbose=False
    )
    ids, size = encoded["input_ids"], len(encoded["input_ids"])
    if not size:
        raise ValueError(f"The document {text[:80]!r} has no tokens, so it has no embedding: remove it.")
    # A token is of the chunk with its last character. Special tokens have the place 0.
    last_characters = np.array([max(end - 1, 0) for _, end in encoded["offset_mapping"]])
    is_body = (np.array(encoded["special_tokens_mask"]) == 0) & (last_characters >= len(prompt))
    body = np.flatnonzero(is_body)
    head, tail = (int(body[0]), size - int(body[-1]) - 1) if len(body) else (size, 0)
    # In a few tokenizers, tokens do not have the order of the text.
    last_characters = np.maximum.accumulate(last_characters)
    ends = len(prompt) + np.cumsum([len(part) for part in parts])
    numbers = np.searchsorted(ends, last_characters, side="right")
    numbers[size - tail :] = len(parts) - 1
    firsts = np.searchsorted(numbers, np.arange(len(parts)))
    lasts = np.searchsorted(numbers, np.arange(len(parts)), side="right")
    # A chunk without tokens, such as white space, has the next one's first.
    firsts = np.minimum(firsts, size - 1)
    lasts = np.maximum(lasts, firsts + 1)

    length = size - head - tail
    room = length if limit is None else min(length, limit - head - tail)
    overlap = int(OVERLAP * room)
    count = 1 + (math.ceil((length - room) / (room - overlap)) if length > room else 0)
    starts = np.linspace(0, length - room, count).astype(int)
    borders = [0, *(head + (starts[1:] + starts[:-1] + room) // 2), size]
    for start, left, right in zip(starts.tolist(), borders, borders[1:], strict=False):
        window = [*ids[:head], *ids[head + start : head + start + room], *ids[size - tail :]]
        spans = [
            (first_chunk + number, int(max(first, left)) - start, int(min(last, right)) - start)
            for number, (first, last) in enumerate(zip(firsts, lasts, strict=True))
            if first < right and last > left
        ]
        yield Window({"input_ids": window, "attention_mask": [1] * len(window)}, spans)
