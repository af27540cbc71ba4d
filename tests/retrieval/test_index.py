# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of `hf-dse encode`: arrays, tables and types."""

import numpy as np
import pyarrow.parquet as pq
import pytest

from hf_dse.retrieval.index import encode_file


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat"]
QUIET = {"show_progress": False}


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "texts.txt"


def test_arrays_and_tables(encoder, lines, tmp_path):
    expected = encoder.encode(TEXTS)
    assert encode_file(encoder, str(lines), str(tmp_path / "new" / "a.npy"), **QUIET) == (4, 16)
    np.testing.assert_allclose(np.load(tmp_path / "new" / "a.npy"), expected, atol=1e-6)
    output = tmp_path / "a.parquet"
    encode_file(encoder, str(lines), str(output), normalize=True, **QUIET)
    table = pq.read_table(output)
    assert table.column_names == ["text", "embedding"]
    assert str(table["embedding"].type) == "fixed_size_list<element: float>[16]"
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), units, atol=1e-6)
    (tmp_path / "empty.txt").write_text("")
    assert encode_file(encoder, str(tmp_path / "empty.txt"), str(output), **QUIET) == (0, 16)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ('{"text": "a"}\n{"text": null}', "row 1: text is None, not a string"),
        ('{"text": "a", "embedding": 1}', "already has a column 'embedding'"),
        ('{"text": "a", "id": 1}\n{"text": "b", "id": "x"}', "the column 'id' has values of several types"),
    ],
)
def test_what_cannot_be_written_fails_before_texts_are_embedded(encoder, rows, match, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_dse.retrieval.index.embed", None)
    (tmp_path / "in.jsonl").write_text(rows)
    with pytest.raises(ValueError, match=match):
        encode_file(encoder, str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet"), **QUIET)
    assert not (tmp_path / "out.parquet").exists()
