# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A cache of teacher scores on disk."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from pathlib import Path

import numpy as np


Pair = tuple[str, str]
# The maximum length of a pair, and what is truncated if it is not the longer text.
Cut = int | None | tuple[int | None, str]


class ScoreCache:
    """The scores of one teacher: a table from a hash of the ordered pair and how it is cut to the logits."""

    def __init__(self, connection: sqlite3.Connection, num_labels: int | None):
        self.connection = connection
        self.num_labels = num_labels
        connection.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, logits BLOB) WITHOUT ROWID")

    @staticmethod
    def _key(pair: Pair, cut: Cut) -> bytes:
        return hashlib.sha256(json.dumps([*pair, cut]).encode()).digest()

    def read(self, pairs: Iterable[Pair], cut: Cut) -> dict[Pair, list[float]]:
        scores = {}
        for pair in pairs:
            key = (self._key(pair, cut),)
            row = self.connection.execute("SELECT logits FROM scores WHERE pair = ?", key).fetchone()
            if row is not None:
                # Eight bytes per number: with any other size the file is damaged.
                if not isinstance(row[0], bytes) or len(row[0]) != 8 * (self.num_labels or 0):
                    raise sqlite3.DatabaseError(f"a score is not {self.num_labels} numbers")
                scores[pair] = np.frombuffer(row[0], dtype="<f8").tolist()
        return scores

    def write(self, scores: Mapping[Pair, list[float]], cut: Cut) -> None:
        rows = [(self._key(pair, cut), np.array(row, dtype="<f8").tobytes()) for pair, row in scores.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)


@contextmanager
def open_cache(path: Path | None, num_labels: int | None) -> Iterator[ScoreCache]:
    """Opens a cache (in memory without a path). The error for a damaged cache names the file to delete."""
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        # Two runs may share the file: each waits for the other's commit of a batch.
        with closing(sqlite3.connect(path or ":memory:", timeout=60.0)) as connection:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
            yield ScoreCache(connection, num_labels)
    except sqlite3.OperationalError as error:
        raise OSError(f"The score cache {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"The score cache {path} is damaged ({reason}): delete this file and run again.") from error
