# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Results kept on disk, from which an interrupted run continues."""

import hashlib
import json
import sqlite3
from collections.abc import Collection, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any


class Cache:
    """Bytes by the key of what they were computed from, see [`key_of`]."""

    def __init__(self, connection: sqlite3.Connection):
        self.connection = connection
        connection.execute("CREATE TABLE IF NOT EXISTS entries (key BLOB PRIMARY KEY, value BLOB)")

    def read(self, key: bytes) -> bytes | None:
        row = self.connection.execute("SELECT value FROM entries WHERE key = ?", (key,)).fetchone()
        return None if row is None else row[0]

    def write(self, entries: Mapping[bytes, bytes]) -> None:
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO entries VALUES (?, ?)", entries.items())

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
            yield Cache(connection)
    except sqlite3.Error as error:
        raise OSError(f"The cache {path} cannot be used ({error}): delete this file if it is damaged.") from error
