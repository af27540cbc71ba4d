# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors on disk: files for numpy and vector databases, and a cache in which each text is embedded once."""

from collections.abc import Sequence
from functools import partial
from os import PathLike
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.cache import key_of, open_cache
from hf_dse.common.files import output_path, to_path, write_atomically
from hf_dse.data.tables import to_table
from hf_dse.data.texts import read_texts
from hf_dse.data.tokenization import warn_of_texts
from hf_dse.retrieval.sentence_transformer import (
    embed,
    fingerprint_of,
    fit_chunk_size,
    length_of,
    prompt_of,
    split_texts,
)


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# The column of the vectors in a parquet file.
EMBEDDING_COLUMN = "embedding"
# Texts that are embedded and written at once. A killed process loses one such group.
TEXTS_PER_COMMIT = 1024

# The chunks of a text, and their vectors of shape `(num_chunks, embedding_size)`.
Entry = tuple[list[str], np.ndarray]


def encode_file(
    model: "SentenceTransformer",
    source: str,
    output: str,
    *,
    text_column: str = "text",
    **options: Any,
) -> tuple[int, int]:
    """
    Embeds the texts of `source` into a .npy file, or a .parquet file with their columns. Returns the number of vectors
    and their size. The options are those of [`embed`].
    """
    path = output_path(output, (".npy", ".parquet"))
    table = to_table(read_texts(source, text_column), source)
    texts = table[text_column].to_pylist()
    if EMBEDDING_COLUMN in table.column_names and path.suffix == ".parquet":
        raise ValueError(f"{source} already has a column {EMBEDDING_COLUMN!r}: rename it.")
    vectors = embed(model, texts, **options)
    if path.suffix == ".npy":
        # `np.save` into a file object of Python writes through C, where a full disk is not an error.
        write_atomically(path, lambda file: np.save(SimpleNamespace(write=file.write), vectors))
    else:
        # Lists of a fixed size, which vector databases read without conversion.
        lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        # Metadata of `datasets` would describe the columns of the input alone.
        table = table.append_column(EMBEDDING_COLUMN, lists).replace_schema_metadata(None)
        write_atomically(path, partial(pyarrow.parquet.write_table, table))
    return vectors.shape[0], vectors.shape[1]


def embed_once(
    model: "SentenceTransformer",
    texts: Sequence[str],
    folder: str | PathLike | None,
    prompt_name: str = "document",
    *,
    chunk_size: int | None = 0,
    batch_size: int = 32,
    drop_others: bool = False,
    show_progress: bool = True,
) -> list[Entry]:
    """Embeds the chunks of texts whose vectors `folder` does not keep yet. `drop_others` deletes those of others."""
    size = fit_chunk_size(model, chunk_size)
    prompt, length = prompt_of(model, prompt_name), length_of(model, prompt_name)
    settings = [fingerprint_of(model), prompt, length, size]
    keys = [key_of([settings, text]) for text in texts]
    wanted = dict(zip(keys, texts, strict=True))
    with open_cache(None if folder is None else to_path(folder) / "vectors.sqlite") as cache:
        found = {key: _decode(text, value) for key, text in wanted.items() if (value := cache.read(key)) is not None}
        missing = [key for key in wanted if key not in found]
        chunks = dict(zip(missing, split_texts(model, [wanted[key] for key in missing], size), strict=True))
        warn_of_texts(model.tokenizer, [chunk for parts in chunks.values() for chunk in parts], length, prompt)
        with tqdm(total=len(missing), desc="Embedding", unit="text", disable=not show_progress) as progress:
            for start in range(0, len(missing), TEXTS_PER_COMMIT):
                group = missing[start : start + TEXTS_PER_COMMIT]
                parts = [chunk for key in group for chunk in chunks[key]]
                vectors = embed(model, parts, prompt_name, batch_size=batch_size, warn=False, show_progress=False)
                ends = np.cumsum([len(chunks[key]) for key in group])[:-1]
                for key, part in zip(group, np.split(vectors, ends), strict=True):
                    found[key] = chunks[key], part
                cache.write({key: _encode(*found[key]) for key in group})
                progress.update(len(group))
        if drop_others:
            cache.drop_others(wanted)
    logger.info(f"{len(missing):,} of {len(wanted):,} texts are new or changed, and were embedded")
    return [found[key] for key in keys]


def _encode(chunks: list[str], vectors: np.ndarray) -> bytes:
    """The number of chunks, their ends in the text, and their vectors."""
    ends = np.cumsum([len(chunk) for chunk in chunks], dtype="<i8")
    return np.array(len(chunks), "<i8").tobytes() + ends.tobytes() + vectors.astype("<f4").tobytes()


def _decode(text: str, value: bytes) -> Entry:
    size = int(np.frombuffer(value, "<i8", count=1)[0])
    ends = np.frombuffer(value, "<i8", count=size, offset=8).tolist()
    chunks = [text[first:last] for first, last in zip([0, *ends], ends, strict=False)]
    return chunks, np.frombuffer(value, "<f4", offset=8 + 8 * size).reshape(size, -1 if size else 0)
