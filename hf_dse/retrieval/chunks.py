# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Splitting long texts into chunks that a model reads, each of which has a vector."""

from collections.abc import Sequence
from typing import TYPE_CHECKING

from hf_dse.data.passages import split_text
from hf_dse.retrieval.arguments import CHUNK_SIZE
from hf_dse.retrieval.sentence_transformer import length_of, prompt_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer


def split_texts(model: "SentenceTransformer", texts: Sequence[str], chunk_size: int | None) -> list[list[str]]:
    """
    The chunks of each text, see [`split_text`]; 0 leaves texts whole. A blank text has no chunks.

    Raises:
        `ValueError`: if the model reads fewer than `chunk_size` tokens.
    """
    size = fit_chunk_size(model, chunk_size)
    parts = ((split_text(text, model.tokenizer, size) if size else [text]) if text.strip() else [] for text in texts)
    return list(parts)


def fit_chunk_size(model: "SentenceTransformer", chunk_size: int | None) -> int:
    """
    The tokens of a chunk, without special tokens and the prompt: by default 128, or what the model reads if that is
    less.
    """
    limit = length_of(model, "document")
    if chunk_size == 0 or limit is None:
        return CHUNK_SIZE if chunk_size is None else chunk_size
    room = limit - len(model.tokenizer(prompt_of(model, "document"), verbose=False)["input_ids"])
    if room < (chunk_size or 1):
        raise ValueError(
            f"chunk_size={chunk_size}: the model reads {limit} tokens, which leaves {room} for a chunk: take fewer, "
            "or raise `--max_length` if the model allows it."
        )
    return chunk_size or min(CHUNK_SIZE, room)
