# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Teacher scores kept on disk, from which an interrupted run continues."""

import hashlib
import json
import sqlite3
from collections.abc import Iterable, Iterator, Mapping
from contextlib import closing, contextmanager
from os import PathLike

import numpy as np

from hf_dse.common.files import to_path


Pair = tuple[str, str]


class ScoreCache:
    """The scores of one teacher: a table from a hash of an ordered pair to the logits."""

    def __init__(self, connection: sqlite3.Connection, num_labels: int):
        self.connection = connection
        self.num_labels = num_labels
        connection.execute("CREATE TABLE IF NOT EXISTS scores (pair BLOB PRIMARY KEY, logits BLOB) WITHOUT ROWID")

    @staticmethod
    def _key(pair: Pair) -> bytes:
        return hashlib.sha256(json.dumps(pair).encode()).digest()

    def read(self, pairs: Iterable[Pair]) -> dict[Pair, list[float]]:
        scores = {}
        for pair in pairs:
            found = self.connection.execute("SELECT logits FROM scores WHERE pair = ?", (self._key(pair),))
            row = found.fetchone()
            if row is not None:
                # Eight bytes per number.
                logits = np.frombuffer(row[0], dtype="<f8") if len(row[0]) == 8 * self.num_labels else np.empty(0)
                if not logits.size or not np.isfinite(logits).all():
                    raise sqlite3.DatabaseError(f"a score is not {self.num_labels} finite numbers")
                scores[pair] = logits.tolist()
        return scores

    def write(self, scores: Mapping[Pair, list[float]]) -> None:
        rows = [(self._key(pair), np.array(logits, dtype="<f8").tobytes()) for pair, logits in scores.items()]
        with self.connection:
            self.connection.executemany("INSERT OR REPLACE INTO scores VALUES (?, ?)", rows)


@contextmanager
def open_cache(folder: str | PathLike | None, name: str, num_labels: int) -> Iterator[ScoreCache]:
    """
    Opens a cache, in memory without a folder. Its name stands for all that affects scores. Processes may share the
    file: each waits for the other's commit. An `OSError` if the file cannot be used, a `ValueError` if it is damaged.
    """
    path = None if folder is None else to_path(folder) / f"{name}.sqlite"
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path or ":memory:", timeout=60.0)) as connection:
            yield ScoreCache(connection, num_labels)
    except sqlite3.OperationalError as error:
        raise OSError(f"The score cache {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        raise ValueError(f"The score cache {path} is damaged ({error}): delete this file and run again.") from error
