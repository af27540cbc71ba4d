# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Indexes of `hf-dse encode`: files, types, chunks, shards, and searches that fit them."""

import json

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from hf_dse import split_text
from hf_dse.retrieval.folder import search_corpus
from hf_dse.retrieval.index import encode_file
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat"]
QUIET = {"show_progress": False}


def search(model, path, query="a dog", **options):
    return search_corpus(model, "other", str(path), [query], **QUIET, **options).rows[0]["results"]


@pytest.fixture
def lines(tmp_path):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS) + "\n")
    return tmp_path / "texts.txt"


def test_arrays_and_indexes(encoder, lines, tmp_path):
    expected = encoder.encode(TEXTS)
    assert encode_file(encoder, "tiny", str(lines), str(tmp_path / "new" / "a.npy"), **QUIET) == (4, 16)
    np.testing.assert_allclose(np.load(tmp_path / "new" / "a.npy"), expected, atol=1e-6)
    index = tmp_path / "a.parquet"
    encode_file(encoder, "tiny", str(lines), str(index), normalize=True, **QUIET)
    table = pq.read_table(index)
    assert table.column_names == ["text", "embedding"]
    assert str(table["embedding"].type) == "fixed_size_list<element: float>[16]"
    units = expected / np.linalg.norm(expected, axis=1, keepdims=True)
    np.testing.assert_allclose(np.array(table["embedding"].to_pylist()), units, atol=1e-6)
    hits = search(encoder, index)
    for hit, other in zip(hits, search(encoder, lines), strict=True):
        assert hit.pop("cosine") == pytest.approx(other.pop("cosine"), abs=1e-5)
        assert hit == other
    (tmp_path / "empty.txt").write_text("")
    assert encode_file(encoder, "tiny", str(tmp_path / "empty.txt"), str(index), **QUIET) == (0, 16)


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
        encode_file(encoder, "tiny", str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet"), **QUIET)
    assert not (tmp_path / "out.parquet").exists()


def test_chunks(encoder, tmp_path, lines):
    texts = ["the cat sat. " * 5 + "a dog ran. " * 5, "", "a new mat"]
    rows = [{"id": name, "text": text} for name, text in zip("xyz", texts, strict=True)]
    (tmp_path / "in.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    index = tmp_path / "out.parquet"
    encode_file(encoder, "tiny", str(tmp_path / "in.jsonl"), str(index), chunk_size=12, **QUIET)
    chunks = [split_text(text, encoder.tokenizer, 12) for text in texts]
    table = pq.read_table(index).to_pydict()
    assert table["text"] == [chunk for parts in chunks for chunk in parts]
    assert table["document"] == [row for row, parts in enumerate(chunks) for _ in parts]
    assert table["id"] == ["xyz"[row] for row in table["document"]]
    np.testing.assert_allclose(table["embedding"], encoder.encode(table["text"]), atol=1e-5)
    assert sorted(hit["id"] for hit in search(encoder, index)) == ["x", "z"] and len(chunks[0]) > 2
    with pytest.raises(ValueError, match="A .npy file does not tell which text a chunk is of"):
        encode_file(encoder, "tiny", str(lines), str(tmp_path / "a.npy"), chunk_size=12)


def test_an_index_fits_one_model_prompt_and_column(encoder, lines, save_encoder, tmp_path, monkeypatch):
    index = tmp_path / "a.parquet"
    encode_file(encoder, "tiny", str(lines), str(index), normalize=True, **QUIET)
    other = load_sentence_transformer(str(save_encoder(hidden_act="relu")), device="cpu")
    prompt = load_sentence_transformer(str(save_encoder({"document": "the "})), device="cpu")
    for model, options, match in (
        (other, {}, "was encoded with tiny, and its vectors are of another model"),
        (prompt, {}, "are of another prompt than"),
        (encoder, {"text_column": "body"}, "has the vectors of the column 'text': add `--text_column text`"),
    ):
        with pytest.raises(ValueError, match=match):
            search(model, index, **options)
    monkeypatch.setattr(encoder, "similarity_fn_name", "dot")
    with pytest.raises(ValueError, match=r"another length \(`--normalize`\)"):
        search(encoder, index)
    foreign = tmp_path / "foreign.parquet"
    pq.write_table(pq.read_table(index).replace_schema_metadata(None), foreign)
    with pytest.raises(ValueError, match="was encoded with another program"):
        search(encoder, foreign)


def test_a_folder_of_indexes_is_one_index(encoder, lines, tmp_path):
    (tmp_path / "shards").mkdir()
    for number, texts in enumerate((TEXTS[:3], TEXTS[3:])):
        pq.write_table(pa.table({"text": texts}), tmp_path / f"{number}.parquet")
        encode_file(encoder, "tiny", str(tmp_path / f"{number}.parquet"), str(tmp_path / f"shards/{number}.parquet"))
    found = search(encoder, tmp_path / "shards")
    assert [hit["position"] for hit in found] == [hit["position"] for hit in search(encoder, lines)]
