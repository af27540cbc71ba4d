# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A cache of teacher scores on disk."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path

import numpy as np

from hf_dse.common.database import open_database
from hf_dse.common.files import to_path


Pair = tuple[str, str]
# The maximum length of a pair, and what is truncated if it is not the longer text.
Cut = int | None | tuple[int | None, str]


class ScoreCache:
    """The scores of one teacher: a table from a hash of the ordered pair and how it is cut to the logits."""

    def __init__(self, connection: sqlite3.Connection, teacher: str, num_labels: int):
        self.connection = connection
        self.num_labels = num_labels
        connection.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, logits BLOB) WITHOUT ROWID")
        connection.execute("CREATE TABLE IF NOT EXISTS teacher (fingerprint TEXT PRIMARY KEY) WITHOUT ROWID")
        if connection.execute("SELECT * FROM teacher").fetchone() is None:
            with connection:
                connection.execute("INSERT OR IGNORE INTO teacher VALUES (?)", (teacher,))
        if connection.execute("SELECT * FROM teacher").fetchall() != [(teacher,)]:
            raise sqlite3.DatabaseError("its scores are those of another teacher")

    @staticmethod
    def _key(pair: Pair, cut: Cut) -> bytes:
        return hashlib.sha256(json.dumps([*pair, cut]).encode()).digest()

    def read(self, pairs: Iterable[Pair], cut: Cut) -> dict[Pair, list[float]]:
        scores = {}
        for pair in pairs:
            key = (self._key(pair, cut),)
            row = self.connection.execute("SELECT logits FROM scores WHERE pair = ?", key).fetchone()
            if row is not None:
                logits = row[0] if isinstance(row[0], bytes) else b""
                # Eight bytes per number.
                if len(logits) != 8 * self.num_labels or not np.isfinite(np.frombuffer(logits, dtype="<f8")).all():
                    raise sqlite3.DatabaseError(f"a score is not {self.num_labels} finite numbers")
                scores[pair] = np.frombuffer(logits, dtype="<f8").tolist()
        return scores

    def write(self, scores: Mapping[Pair, list[float]], cut: Cut) -> None:
        rows = [(self._key(pair, cut), np.array(row, dtype="<f8").tobytes()) for pair, row in scores.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)


@contextmanager
def open_cache(folder: str | Path | None, teacher: str, num_labels: int) -> Iterator[ScoreCache]:
    """
    Opens the cache of the teacher with this fingerprint (in memory without a folder). The error for a damaged cache
    names the file to delete.
    """
    path = None if folder is None else to_path(folder) / f"{teacher[:16]}.sqlite"
    with open_database(path, "The score cache") as connection:
        yield ScoreCache(connection, teacher, num_labels)
