# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of `hf-dse encode`: arrays with their ids, tables and types."""

import json

import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest

from hf_dse.retrieval.files import encode_file


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat"]
QUIET = {"show_progress": False}


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "texts.txt"


def read_ids(path):
    return [json.loads(line) for line in path.read_text().splitlines()]


def test_arrays_and_tables(encoder, lines, tmp_path):
    expected = encoder.encode(TEXTS)
    assert encode_file(encoder, str(lines), str(tmp_path / "new" / "a.npy"), **QUIET) == (4, 16)
    np.testing.assert_allclose(np.load(tmp_path / "new" / "a.npy"), expected, atol=1e-6)
    assert read_ids(tmp_path / "new" / "a.ids.jsonl") == [{"row": row, "position": row} for row in range(4)]
    output = tmp_path / "a.parquet"
    encode_file(encoder, str(lines), str(output), normalize=True, **QUIET)
    table = pq.read_table(output)
    assert table.column_names == ["text", "embedding"]
    assert str(table["embedding"].type) == "fixed_size_list<element: float>[16]"
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), units, atol=1e-6)
    # What is named beside an array is a column of a table.
    assert not (tmp_path / "a.ids.jsonl").exists()


def test_no_texts(encoder, tmp_path):
    (tmp_path / "empty.txt").write_text("")
    for name in ("a.parquet", "a.npy"):
        assert encode_file(encoder, str(tmp_path / "empty.txt"), str(tmp_path / name), **QUIET) == (0, 16)


def test_a_file_beside_an_array_names_its_rows(encoder, tmp_path):
    """The order of files is that of the parts of their paths, which other tools do not share."""
    files = {"notes/1.txt": "the cat sat", "notes-2.txt": "a dog ran", "notes10.txt": "the old house"}
    for name, text in files.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    encode_file(encoder, str(tmp_path / "docs"), str(tmp_path / "v.npy"), **QUIET)
    ids = read_ids(tmp_path / "v.ids.jsonl")
    assert [row["row"] for row in ids] == [0, 1, 2] and {row["file"] for row in ids} == files.keys()
    for row, vector in zip(ids, np.load(tmp_path / "v.npy"), strict=True):
        np.testing.assert_allclose(vector, encoder.encode(files[row["file"]]), atol=1e-5)
    (tmp_path / "table.jsonl").write_text('{"text": "a cat", "_id": "x"}\n{"text": "a dog", "_id": "y"}\n')
    encode_file(encoder, str(tmp_path / "table.jsonl"), str(tmp_path / "v.npy"), **QUIET)
    assert read_ids(tmp_path / "v.ids.jsonl") == [{"row": 0, "_id": "x"}, {"row": 1, "_id": "y"}]


def test_the_index_of_pandas_stays(encoder, tmp_path):
    frame = pd.DataFrame({"text": TEXTS, "size": [1, 2, 3, 4]}, index=pd.Index(list("wxyz"), name="name"))
    frame.to_parquet(tmp_path / "in.parquet")
    encode_file(encoder, str(tmp_path / "in.parquet"), str(tmp_path / "out.parquet"), **QUIET)
    found = pd.read_parquet(tmp_path / "out.parquet")
    pd.testing.assert_frame_equal(found[["text", "size"]], frame)
    np.testing.assert_allclose(np.stack(found["embedding"]), encoder.encode(TEXTS), atol=1e-5)


@pytest.mark.parametrize(
    ("rows", "match"),
    [
        ('{"text": "a"}\n{"text": null}', "row 1: text is None, not a string"),
        ('{"text": "a", "embedding": 1}', "already has a column 'embedding'"),
        ('{"text": "a", "id": 1}\n{"text": "b", "id": "x"}', "the column 'id' has values of several types"),
    ],
)
def test_what_cannot_be_written_fails_before_texts_are_embedded(encoder, rows, match, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_dse.retrieval.files.embed", None)
    (tmp_path / "in.jsonl").write_text(rows)
    with pytest.raises(ValueError, match=match):
        encode_file(encoder, str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet"), **QUIET)
    assert not (tmp_path / "out.parquet").exists()
