# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Results kept on disk, from which an interrupted run continues."""

import hashlib
import json
import sqlite3
import zlib
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any

from transformers.utils import logging


logger = logging.get_logger(__name__)

# Entries that are read at a time; SQLite takes 999 parameters.
BLOCK = 500


class Cache:
    """Bytes with a checksum, by the key of what they were computed from, see [`key_of`]."""

    def __init__(self, connection: sqlite3.Connection, path: Path | None = None):
        self.connection = connection
        self.path = path
        connection.execute("CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB)")

    def read(self, keys: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        """Yields the kept keys with their values. Damaged ones are left out, with a warning that names the file."""
        damaged = []
        for key, value in self._find(keys):
            if value and len(value) > 4 and zlib.crc32(value[:-4]).to_bytes(4, "little") == value[-4:]:
                yield key, value[:-4]
            else:
                damaged.append((key,))
        if damaged:
            logger.warning(f"{self.path}: {len(damaged)} entries are damaged, and are made anew.")
            with self.connection:
                self.connection.executemany("DELETE FROM entries WHERE key = ?", damaged)

    def _find(self, keys: Collection[bytes]) -> Iterator[tuple[bytes, bytes]]:
        (total,) = self.connection.execute("SELECT count(*) FROM entries").fetchone()
        if 2 * len(keys) > total:
            # Faster one after the other.
            wanted = set(keys)
            yield from (row for row in self.connection.execute("SELECT * FROM entries") if row[0] in wanted)
            return
        listed = list(keys)
        for start in range(0, len(listed), BLOCK):
            block = listed[start : start + BLOCK]
            marks = ",".join("?" * len(block))
            yield from self.connection.execute(f"SELECT * FROM entries WHERE key IN ({marks})", block)

    def write(self, entries: Mapping[bytes, bytes]) -> None:
        rows = ((key, value + zlib.crc32(value).to_bytes(4, "little")) for key, value in entries.items())
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", rows)

    def drop_others(self, keys: Collection[bytes]) -> None:
        others = {key for (key,) in self.connection.execute("SELECT key FROM entries")}.difference(keys)
        with self.connection:
            self.connection.executemany("DELETE FROM entries WHERE key = ?", [(key,) for key in others])


def key_of(value: Any) -> bytes:
    """Returns a hash of a value that JSON has."""
    return hashlib.sha256(json.dumps(value).encode()).digest()


@contextmanager
def open_cache(path: Path | None) -> Iterator[Cache]:
    """Opens a cache, in memory without a path. An error of SQLite becomes an `OSError` that names the file."""
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path or ":memory:", timeout=60.0)) as connection:
            yield Cache(connection, path)
    except sqlite3.Error as error:
        raise OSError(f"The cache {path} cannot be used ({error}): delete this file if it is damaged.") from error
