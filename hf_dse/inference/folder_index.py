# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The index of a folder of texts: the embeddings of their passages, computed once for each content of a file."""

import hashlib
import json
import os
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path
from typing import Any

import numpy as np
from huggingface_hub import cached_assets_path
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.database import open_database
from hf_dse.common.files import locked, to_path
from hf_dse.common.provenance import fingerprint
from hf_dse.data.passages import line_numbers, split_text
from hf_dse.data.tokenization import check_max_length
from hf_dse.inference.arguments import FolderArguments, ModelArguments
from hf_dse.inference.chunks import fit_chunk_size
from hf_dse.inference.encoding import encode_document, find_length, find_prompt


logger = logging.get_logger(__name__)

INDEX_FILE = "index.sqlite"
# A new number where the same settings give other passages or vectors.
FORMAT = 1
# A killed process loses at most about as many.
PASSAGES_PER_COMMIT = 512

# The ends of the passages of a file, in characters, and their vectors: an array of shape `(num_passages, size)`.
Entry = tuple[list[int], np.ndarray]


def read_passages(
    name: str,
    files: Mapping[str, str],
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    model_args: ModelArguments,
    args: FolderArguments,
) -> tuple[dict[str, list], np.ndarray]:
    """
    Splits the files of a folder into passages, and embeds those of new and changed files. The others are in the index
    of the folder, which is updated. Only one process at a time updates it, and a killed one loses the last passages.

    Args:
        name (`str`):
            The folder.
        files (`Mapping[str, str]`):
            The texts of its files, by their relative paths.
        model (`PreTrainedModel`):
            The model.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        model_args ([`ModelArguments`]):
            Where the model is from, and how it runs.
        args ([`FolderArguments`]):
            The size of the passages, and where the index is.

    Returns:
        `tuple[dict[str, list], np.ndarray]`: `file`, `line` (where it begins, counted from 1) and `text` of each
        passage, and its vector. Files without text have none.

    Raises:
        `ValueError`: if `chunk_size` is more than the model reads, or the index is damaged.
        `OSError`: if the index cannot be written.
    """
    limit = check_max_length(find_length(model, "document", model_args.max_length), model, processing_class)
    prompt = find_prompt(model, "document")
    chunk_size = fit_chunk_size(args.chunk_size, limit, prompt, processing_class)
    settings = {
        "format": FORMAT,
        "model": fingerprint(model, processing_class),
        "prompt": prompt,
        "chunk_size": chunk_size,
        "max_length": None if chunk_size else limit,
    }
    prefix = json.dumps(settings, sort_keys=True)
    keys = {file: hashlib.sha256(f"{prefix}\n{text}".encode()).digest() for file, text in files.items()}
    texts = {keys[file]: text for file, text in files.items()}
    folder = _index_dir(name, model_args, args.index_dir)
    with open_database(folder / INDEX_FILE, "The search index") as connection:
        index = FolderIndex(connection)
        old_settings, old_keys = index.read_state()
        found = index.read(texts)
        if old_settings != settings or old_keys != keys or len(found) < len(texts):
            if old_settings is not None and old_settings != settings:
                others = [key for key, value in settings.items() if old_settings.get(key) != value]
                logger.info(f"The index of {name} is built anew: it is of another {' and '.join(others)}")
                old_keys = {}
            with locked(folder, wait=True):
                # What another process did meanwhile.
                found |= index.read({key: text for key, text in texts.items() if key not in found})
                missing = {key: text for key, text in texts.items() if key not in found}
                options = {"batch_size": model_args.batch_size, "max_length": model_args.max_length}
                for entries in _embed(missing, model, processing_class, chunk_size, **options):
                    index.write(entries)
                    found |= entries
                index.finish(settings, keys)
        if len({vectors.shape[1] for ends, vectors in found.values() if ends}) > 1:
            raise sqlite3.DatabaseError("its vectors have different sizes")
    num_changed = sum(old_keys.get(file, key) != key for file, key in keys.items())
    num_new, num_deleted = len(keys.keys() - old_keys), len(old_keys.keys() - keys)
    columns, vectors = _join(files, keys, found)
    size = f"passages of up to {chunk_size} tokens" if chunk_size else f"files, cut at {limit} tokens"
    logger.info(
        f"Index of {name}: {num_new:,} new, {num_changed:,} changed, {num_deleted:,} deleted and "
        f"{len(keys) - num_new - num_changed:,} unchanged files; {len(vectors):,} {size}, in {folder}"
    )
    return columns, vectors


class FolderIndex:
    """The tables of an index. What is in it is checked when it is read."""

    def __init__(self, connection: sqlite3.Connection):
        self.connection = connection
        with connection:
            # By a hash of the settings and the text of a file.
            for columns in (
                "entries (key BLOB PRIMARY KEY, ends BLOB, vectors BLOB) WITHOUT ROWID",
                "files (path BLOB PRIMARY KEY, key BLOB) WITHOUT ROWID",
                "settings (json TEXT)",
            ):
                connection.execute(f"CREATE TABLE IF NOT EXISTS {columns}")

    def read_state(self) -> tuple[dict[str, Any] | None, dict[str, bytes]]:
        """The settings of the last update, `None` before the first one, and the keys of the files at that time."""
        rows = self.connection.execute("SELECT json FROM settings").fetchall()
        try:
            settings = json.loads(rows[0][0]) if rows else None
            keys = {os.fsdecode(path): key for path, key in self.connection.execute("SELECT path, key FROM files")}
        except (TypeError, ValueError) as error:
            raise sqlite3.DatabaseError(f"its settings or paths are none: {error}") from error
        if not isinstance(settings, dict | None):
            raise sqlite3.DatabaseError(f"its settings are {settings!r}")
        return settings, keys

    def read(self, texts: Mapping[bytes, str]) -> dict[bytes, Entry]:
        """The entries of those texts, by their keys, that are in the index."""
        found: dict[bytes, Entry] = {}
        for key, text in texts.items():
            row = self.connection.execute("SELECT ends, vectors FROM entries WHERE key = ?", (key,)).fetchone()
            if row is not None:
                found[key] = _to_entry(text, *row)
        return found

    def write(self, entries: Mapping[bytes, Entry]) -> None:
        rows = [
            (key, np.array(ends, dtype="<i8").tobytes(), vectors.astype("<f4").tobytes())
            for key, (ends, vectors) in entries.items()
        ]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?, ?)", rows)

    def finish(self, settings: Mapping[str, Any], keys: Mapping[str, bytes]) -> None:
        """Keeps what these files need, and deletes all else."""
        with self.connection:
            self.connection.execute("DELETE FROM settings")
            self.connection.execute("INSERT INTO settings VALUES (?)", (json.dumps(settings),))
            self.connection.execute("DELETE FROM files")
            rows = [(os.fsencode(file), key) for file, key in keys.items()]
            self.connection.executemany("INSERT INTO files VALUES (?, ?)", rows)
            self.connection.execute("DELETE FROM entries WHERE key NOT IN (SELECT key FROM files)")


def _to_entry(text: str, ends: Any, vectors: Any) -> Entry:
    """The ends and the vectors of the passages of a text, from an index that anybody may have written."""
    if not isinstance(ends, bytes) or not isinstance(vectors, bytes) or len(ends) % 8:
        raise sqlite3.DatabaseError("an entry is not arrays of numbers")
    places = np.frombuffer(ends, dtype="<i8")
    is_whole = not text.strip() if not len(places) else places[-1] == len(text)
    if not is_whole or (np.diff(places, prepend=0) <= 0).any():
        raise sqlite3.DatabaseError("the passages of a file are not those of its text")
    if len(vectors) % (4 * max(len(places), 1)) or bool(vectors) != bool(len(places)):
        raise sqlite3.DatabaseError("a file does not have one vector for each passage")
    array = np.frombuffer(vectors, dtype="<f4").reshape(len(places), -1 if len(places) else 0)
    if not np.isfinite(array).all():
        raise sqlite3.DatabaseError("a vector is NaN or infinite")
    return places.tolist(), array


def _index_dir(name: str, model_args: ModelArguments, index_dir: str | None) -> Path:
    """The folder of the index. Another training into the same folder is the same model: it replaces the vectors."""
    corpus, model = to_path(name).resolve(), to_path(model_args.model_name_or_path)
    source = [str(model.resolve()) if model.exists() else str(model), model_args.model_revision]
    digest = hashlib.sha256(os.fsencode("\n".join([str(corpus), *source]))).hexdigest()
    try:
        if index_dir is None:
            return cached_assets_path("hf-dse", "search", digest[:16])
        folder = to_path(index_dir)
        folder.mkdir(parents=True, exist_ok=True)
        return folder
    except (OSError, ValueError) as error:
        raise OSError(
            f"There is no place for the index of {name} ({error}): name a folder as `--index_dir`."
        ) from error


def _embed(
    texts: Mapping[bytes, str],
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    chunk_size: int,
    **options: Any,
) -> Iterator[dict[bytes, Entry]]:
    """Splits and embeds texts, some hundred passages at a time."""
    with tqdm(total=len(texts), desc="Indexing files", unit="file", disable=not texts) as progress:
        for group in _groups(texts, processing_class, chunk_size):
            passages = [passage for parts in group.values() for passage in parts]
            vectors = encode_document(model, processing_class, passages, show_progress=False, **options)
            ends = np.cumsum([len(parts) for parts in group.values()])
            yield {
                key: (np.cumsum([len(part) for part in parts]).tolist(), rows)
                for (key, parts), rows in zip(group.items(), np.split(vectors, ends[:-1]), strict=True)
            }
            progress.update(len(group))


def _groups(
    texts: Mapping[bytes, str], processing_class: PreTrainedTokenizerBase, chunk_size: int
) -> Iterable[dict[bytes, list[str]]]:
    group: dict[bytes, list[str]] = {}
    size = 0
    for key, text in texts.items():
        if not text.strip():
            group[key] = []
        else:
            group[key] = split_text(text, processing_class, chunk_size) if chunk_size else [text]
        size += len(group[key])
        if size >= PASSAGES_PER_COMMIT:
            yield group
            group, size = {}, 0
    if group:
        yield group


def _join(
    files: Mapping[str, str], keys: Mapping[str, bytes], found: dict[bytes, Entry]
) -> tuple[dict[str, list], np.ndarray]:
    """The passages of all files in their order; empties `found`, so that the vectors are in memory once."""
    columns: dict[str, list] = {"file": [], "line": [], "text": []}
    starts: dict[bytes, list[int]] = {}
    for file, text in files.items():
        ends = found[keys[file]][0]
        passages = [text[first:last] for first, last in zip([0, *ends], ends, strict=False)]
        starts.setdefault(keys[file], []).append(len(columns["file"]))
        columns["file"] += [file] * len(passages)
        columns["line"] += line_numbers(passages)
        columns["text"] += passages
    size = max((vectors.shape[1] for _, vectors in found.values()), default=0)
    joined = np.empty((len(columns["file"]), size), dtype=np.float32)
    for key in list(found):
        _, vectors = found.pop(key)
        for start in starts[key] if len(vectors) else []:
            joined[start : start + len(vectors)] = vectors
    return columns, joined
