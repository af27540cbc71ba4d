# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""SQLite files, which anybody may have written."""

import sqlite3
from collections.abc import Iterator
from contextlib import closing, contextmanager
from pathlib import Path


@contextmanager
def open_database(path: Path | None, name: str) -> Iterator[sqlite3.Connection]:
    """
    Opens a SQLite file, or a database in memory without one. Processes may share the file: each waits for the other's
    commit.

    Raises:
        `OSError`: if the file cannot be used; the message begins with `name`.
        `ValueError`: if it is damaged, or what reads it raises a `sqlite3.DatabaseError`; it says to delete the file.
    """
    try:
        if path is not None:
            path.parent.mkdir(parents=True, exist_ok=True)
        with closing(sqlite3.connect(path or ":memory:", timeout=60.0)) as connection:
            problem = connection.execute("PRAGMA quick_check(1)").fetchone()[0]
            if problem != "ok":
                raise sqlite3.DatabaseError(problem)
            # Views and triggers would compute what is read.
            others = connection.execute("SELECT name FROM sqlite_schema WHERE type != 'table'").fetchone()
            if others is not None:
                raise sqlite3.DatabaseError(f"{others[0]!r} is not a table")
            yield connection
    except sqlite3.OperationalError as error:
        raise OSError(f"{name} {path} cannot be used: {error}.") from error
    except sqlite3.DatabaseError as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"{name} {path} is damaged ({reason}): delete this file and run again.") from error
