# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Kept results: what is read, left out and dropped."""

import sqlite3
from contextlib import closing
from itertools import islice

import pytest

from hf_dse.common.cache import BLOCK, key_of, open_cache


def test_entries_are_kept_by_their_keys(tmp_path):
    path = tmp_path / "new" / "cache.sqlite"
    entries = {key_of([number]): f"value {number}".encode() for number in range(2 * BLOCK + 8)}
    with open_cache(path) as cache:
        cache.write(entries)
    with open_cache(path) as cache:
        assert dict(cache.read(entries.keys() | {key_of("other")})) == entries
        # Less than half are looked up, in blocks.
        some = dict(islice(entries.items(), BLOCK + 3))
        assert dict(cache.read(some)) == some
        first = key_of([0])
        cache.write({first: b"new"})
        assert list(cache.read([first])) == [(first, b"new")] and list(cache.read([])) == []
        cache.drop_others([first])
        assert dict(cache.read(entries)) == {first: b"new"}
    with open_cache(None) as cache:
        cache.write({b"key": b"value"})
        assert dict(cache.read([b"key"])) == {b"key": b"value"}


@pytest.mark.parametrize("value", [b"", b"\0\0\0\0", b"value"])
def test_damaged_entries_are_left_out(tmp_path, warnings, value):
    """With a warning that names the file, until they are written anew."""
    path = tmp_path / "cache.sqlite"
    with open_cache(path) as cache:
        cache.write({b"1": b"one", b"2": b"two"})
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE entries SET value = ? WHERE key = ?", (value, b"1"))
    with open_cache(path) as cache:
        assert dict(cache.read([b"1", b"2"])) == {b"2": b"two"}
        assert warnings == [f"{path}: 1 entries are damaged, and are made anew."]
        cache.write({b"1": b"one"})
        assert len(dict(cache.read([b"1", b"2"]))) == 2 and len(warnings) == 1


def test_two_at_once_use_one_file(tmp_path):
    with open_cache(tmp_path / "cache.sqlite") as one, open_cache(tmp_path / "cache.sqlite") as other:
        one.write({b"1": b"one", b"2": b"two"})
        other.write({b"2": b"again", b"3": b"three"})
        for cache in (one, other):
            assert dict(cache.read([b"1", b"2", b"3"])) == {b"1": b"one", b"2": b"again", b"3": b"three"}


def test_what_is_no_database_is_named(tmp_path):
    path = tmp_path / "cache.sqlite"
    path.write_bytes(b"no database" * 100)
    with pytest.raises(OSError, match=f"The cache {path} cannot be used .*: delete this file if it is damaged"):
        with open_cache(path):
            pass
