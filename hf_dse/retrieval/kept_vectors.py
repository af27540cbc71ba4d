# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors that are kept on disk: each text is embedded once, and an interrupted run goes on where it ended."""

import hashlib
import json
import sqlite3
from collections.abc import Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import islice
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
from transformers.utils.logging import tqdm

from hf_dse.common.files import locked
from hf_dse.retrieval.chunks import fit_chunk_size, split_texts
from hf_dse.retrieval.sentence_transformer import (
    embed_silently,
    fingerprint_of,
    length_of,
    prompt_of,
    warn_of_texts,
)


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# Texts that are embedded and written at once. A killed process loses one such group.
TEXTS_PER_COMMIT = 1024

# The chunks of a text, and their vectors of shape `(num_chunks, embedding_size)`.
Entry = tuple[list[str], np.ndarray]


def embed_once(
    model: "SentenceTransformer",
    texts: Sequence[str],
    folder: Path,
    prompt_name: str = "document",
    *,
    chunk_size: int | None = 0,
    batch_size: int = 32,
    drop_others: bool = False,
    show_progress: bool = True,
) -> tuple[list[Entry], int]:
    """
    Embeds texts whose vectors are not in a folder yet, and keeps them there by a hash of the text, the weights of the
    model, its prompt (`prompt_name` is `"query"` or `"document"`) and lengths. One process at a time does; another
    waits for it and takes its vectors. Texts are split into chunks of up to `chunk_size` tokens, see [`split_texts`],
    or 0 for whole texts. `drop_others` deletes what is in the folder and not of these texts and this model.

    Returns:
        `tuple[list[Entry], int]`: the chunks of each text and their vectors, and how many texts were embedded now.

    Raises:
        `OSError`: if the file cannot be used.
        `ValueError`: if the file is not a database of vectors; the message says to delete it.
    """
    chunk_size = fit_chunk_size(model, chunk_size)
    settings = [fingerprint_of(model), prompt_of(model, prompt_name), length_of(model, prompt_name), chunk_size]
    keys = [hashlib.sha256(json.dumps([settings, text]).encode()).digest() for text in texts]
    wanted = dict(zip(keys, texts, strict=True))
    with _open(folder / "vectors.sqlite") as connection:
        found = _read(connection, wanted)
        missing = {key: text for key, text in wanted.items() if key not in found}
        if missing:
            with locked(folder, wait=True):
                # Another process may have embedded some meanwhile.
                found |= _read(connection, missing)
                missing = {key: text for key, text in missing.items() if key not in found}
                for entries in _embed(model, missing, prompt_name, chunk_size, batch_size, show_progress):
                    _write(connection, entries)
                    found |= entries
        if drop_others:
            with connection:
                connection.execute("CREATE TEMP TABLE wanted (key BLOB)")
                connection.executemany("INSERT INTO wanted VALUES (?)", [(key,) for key in wanted])
                connection.execute("DELETE FROM entries WHERE key NOT IN (SELECT key FROM wanted)")
    return [found[key] for key in keys], len(missing)


@contextmanager
def _open(path: Path) -> Iterator[sqlite3.Connection]:
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path, timeout=60.0)) as connection:
            connection.execute("CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, ends BLOB, vectors BLOB)")
            yield connection
    except sqlite3.OperationalError as error:
        raise OSError(f"The vectors in {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise ValueError(f"The vectors in {path} are damaged ({error}): delete this file and run again.") from error


def _embed(
    model: "SentenceTransformer",
    texts: Mapping[bytes, str],
    prompt_name: str,
    chunk_size: int,
    batch_size: int,
    show_progress: bool,
) -> Iterator[dict[bytes, Entry]]:
    """Splits and embeds texts, a group of them at a time."""
    chunks = dict(zip(texts, split_texts(model, list(texts.values()), chunk_size), strict=True))
    warn_of_texts(model, [chunk for parts in chunks.values() for chunk in parts], prompt_name)
    with tqdm(total=len(texts), desc="Embedding", unit="text", disable=not show_progress) as progress:
        for start in range(0, len(texts), TEXTS_PER_COMMIT):
            group = dict(islice(chunks.items(), start, start + TEXTS_PER_COMMIT))
            parts = [chunk for part in group.values() for chunk in part]
            vectors = embed_silently(model, parts, prompt_name, batch_size=batch_size)
            ends = np.cumsum([len(part) for part in group.values()])[:-1]
            entries = zip(group.values(), np.split(vectors, ends), strict=True)
            yield dict(zip(group, entries, strict=True))
            progress.update(len(group))


def _read(connection: sqlite3.Connection, wanted: Mapping[bytes, str]) -> dict[bytes, Entry]:
    """The entries of these texts that are there and whole; others are embedded again."""
    found: dict[bytes, Entry] = {}
    for key, text in wanted.items():
        row = connection.execute("SELECT ends, vectors FROM entries WHERE key = ?", (key,)).fetchone()
        if row is None:
            continue
        ends = np.frombuffer(row[0], dtype="<i8").tolist()
        vectors = np.frombuffer(row[1], dtype="<f4").reshape(len(ends), -1 if ends else 0)
        if np.isfinite(vectors).all() and (not ends or ends[-1] == len(text)):
            found[key] = [text[first:last] for first, last in zip([0, *ends], ends, strict=False)], vectors
    return found


def _write(connection: sqlite3.Connection, entries: Mapping[bytes, Entry]) -> None:
    rows = [
        (key, np.cumsum([len(chunk) for chunk in chunks], dtype="<i8").tobytes(), vectors.astype("<f4").tobytes())
        for key, (chunks, vectors) in entries.items()
    ]
    with connection:
        connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)
