# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Folders and tables: the index of a search, its updates, places, BM25; files of vectors with their ids and types."""

import json
import sqlite3

import bm25s
import numpy as np
import pandas as pd
import pyarrow.parquet as pq
import pytest
from datasets import Dataset

from hf_dse import split_text
from hf_dse.common.cache import Cache
from hf_dse.data.passages import line_of, with_titles
from hf_dse.retrieval import index
from hf_dse.retrieval.folder import encode_file, search_corpus
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat"]
QUERIES = ["an old cat", "the house"]
QUIET = {"show_progress": False}
FILES = {
    "a.md": "# the cat\n\nthe cat sat on the mat. the old cat ran.\n",
    "b.txt": "a dog ran in the house. " * 8,
    "deep/c.md": "new\n\nthe dog and the cat. a dog sat on a mat.\n\n## of old\n\nthe old dog is in the house.\n",
}


@pytest.fixture
def docs(tmp_path):
    for name, text in FILES.items():
        (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / "docs" / name).write_text(text)
    return tmp_path / "docs"


@pytest.fixture
def run(encoder, docs, tmp_path):
    """Searches in the folder; options can be overridden."""

    def search(model=encoder, corpus=docs, queries=QUERIES, **options):
        defaults = {"chunk_size": 12, "index_dir": str(tmp_path / "index"), "show_progress": False}
        found, _ = search_corpus(model, "tiny", str(corpus), queries, **{**defaults, **options})
        assert [row["query"] for row in found] == queries
        return [row["results"] for row in found]

    return search


@pytest.fixture
def embedded(monkeypatch):
    """The documents that are embedded, in lists that are written together."""
    calls = []
    embed = index.embed

    def spy(model, texts, kind, **options):
        if kind == "document" and texts:
            calls.append(texts)
        return embed(model, texts, kind, **options)

    monkeypatch.setattr(index, "embed", spy)
    return calls


def test_only_new_and_changed_files_are_embedded(run, docs, encoder, embedded, monkeypatch, infos, tmp_path):
    monkeypatch.setattr(index, "TEXTS_PER_COMMIT", 1)
    first = run()
    # As models read them, after the titles.
    parts = {text: split_text(text, encoder.tokenizer, 12) for text in FILES.values()}
    assert sorted(embedded) == sorted(with_titles(text, found, 12) for text, found in parts.items())
    number = sum(map(len, parts.values()))
    unit = f"3 documents, {number} passages of at most 12 tokens"
    assert f"Index of {docs}: {unit}, in {tmp_path / 'index'}" in infos
    assert infos[-1] == "3 of 3 texts are new or changed, and were embedded"
    embedded.clear()
    assert run() == first and embedded == []
    # A new file, a changed one, another name, and a copy.
    (docs / "new.md").write_text("a new mat")
    (docs / "a.md").write_text("the mat is old")
    (docs / "deep" / "c.md").rename(docs / "moved.txt")
    (docs / "copy.md").write_text(FILES["b.txt"])
    (docs / "blank.md").write_text("\n \n")
    found = run()
    assert sorted(embedded) == [["a new mat"], ["the mat is old"]]
    assert {hit["file"] for hit in found[0]} == {"new.md", "a.md", "moved.txt", "copy.md", "b.txt"}
    # The entries of deleted files are no longer there.
    for name in ("new.md", "copy.md", "moved.txt", "blank.md"):
        (docs / name).unlink()
    assert {hit["file"] for hit in run()[0]} == {"a.md", "b.txt"}
    with sqlite3.connect(tmp_path / "index" / "vectors.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)


def test_a_new_file_that_is_blank(run, docs, embedded):
    """Nothing has to be embedded for it."""
    first = run()
    (docs / "blank.md").write_text("\n \n")
    embedded.clear()
    assert run() == first and not any(embedded)


def test_the_chunk_size_that_a_model_learned(docs, save_encoder, tmp_path, infos):
    """That of the folder of a model counts for files; for others whole texts do."""
    folder = save_encoder()
    model = load_sentence_transformer(str(folder), device="cpu")
    (tmp_path / "lines.txt").write_text("a cat\na dog\n")

    def unit(corpus, **options):
        options = {"index_dir": str(tmp_path / "index"), "show_progress": False, **options}
        search_corpus(model, str(folder), str(corpus), QUERIES, **options)
        return next(message for message in reversed(infos) if message.startswith("Index of"))

    assert "passages of at most 62 tokens" in unit(docs)
    settings = folder / "config_sentence_transformers.json"
    for size in (16, 0):
        settings.write_text(json.dumps({**json.loads(settings.read_text()), "chunk_size": size}))
        assert ("passages of at most 16 tokens" in unit(docs)) == (size == 16) and "3 documents" in unit(docs)
        assert "passages of at most 8 tokens" in unit(docs, chunk_size=8)
        assert f"{tmp_path / 'lines.txt'}: 2 documents, in" in unit(tmp_path / "lines.txt")


def test_the_weight_of_bm25_that_was_fitted(docs, save_encoder, tmp_path, infos):
    """A search adds BM25 as the folder of a model says, unless another weight is given."""
    folder = save_encoder()
    settings = folder / "config_sentence_transformers.json"
    settings.write_text(json.dumps({**json.loads(settings.read_text()), "bm25_weight": 0.2}))
    model, options = (
        load_sentence_transformer(str(folder), device="cpu"),
        {"index_dir": str(tmp_path / "index"), **QUIET},
    )
    kept, given, none = (
        search_corpus(model, str(folder), str(docs), QUERIES, bm25_weight=weight, **options)
        for weight in (None, 0.2, 0)
    )
    assert kept == given != none and any("BM25 with the weight 0.2" in message for message in infos)


def test_words_are_kept_beside_the_vectors(run, tmp_path, monkeypatch):
    first = run(bm25_weight=0.3)
    assert len(list((tmp_path / "index").glob("words-*"))) == 2
    monkeypatch.setattr(bm25s.BM25, "index", None)
    assert run(bm25_weight=0.3) == first


def test_the_best_passage_of_a_file_is_found(run, encoder, docs):
    Dataset.from_dict({"text": ["an old cat in the house"]}).to_parquet(docs / "not-searched.parquet")
    for query, hits in zip(QUERIES, run(), strict=True):
        best = {}
        for name, text in FILES.items():
            passages = split_text(text, encoder.tokenizer, 12)
            read = with_titles(text, passages, 12)
            scores = (encoder.similarity(*(encoder.encode(part) for part in ([query], read)))[0]).numpy()
            line = line_of(text, sum(map(len, passages[: scores.argmax()])))
            best[name] = {"cosine": scores.max(), "file": name, "line": line, "text": passages[scores.argmax()]}
        expected = sorted(best.values(), key=lambda hit: -hit["cosine"])
        for hit, other in zip(hits, expected, strict=True):
            assert hit.pop("cosine") == pytest.approx(float(other.pop("cosine")), abs=1e-5)
            assert hit == other


def test_lines_are_those_of_an_editor(run, tmp_path):
    lines = ["", "# é 日本 👩‍🔬\u2028 a\x0b", "", *["the old mat is in the house."] * 30, "", "a cat ran", ""]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.md").write_bytes("\r\n".join(lines).encode("utf-8-sig"))
    found = set()
    for (hit,) in run(corpus=tmp_path / "one", queries=["a cat ran", "é 日本", "the old mat"], chunk_size=5):
        assert hit["text"].lstrip("\n").split("\n")[0] in lines[hit["line"] - 1] and hit["text"][0] != "\ufeff"
        found.add(hit["line"])
    assert len(found) > 1


def test_another_model_prompt_or_size_makes_it_anew(run, save_encoder, embedded, tmp_path):
    prompt = {"document": "a new "}
    folders = [save_encoder(prompt), save_encoder({"query": "old ", **prompt}), save_encoder(hidden_act="relu")]
    models = [load_sentence_transformer(str(folder), device="cpu") for folder in folders]
    sizes = []
    for options in ({}, *({"model": model} for model in models), {"chunk_size": 0}):
        embedded.clear()
        run(**options)
        sizes.append(len(embedded))
    # The prompt of queries changes no passage.
    assert sizes == [1, 1, 0, 1, 1]
    with sqlite3.connect(tmp_path / "index" / "vectors.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)


def test_an_interrupted_index_keeps_what_it_has(run, embedded, monkeypatch, tmp_path):
    monkeypatch.setattr(index, "TEXTS_PER_COMMIT", 1)
    expected = run(index_dir=str(tmp_path / "other"))
    embedded.clear()
    write = Cache.write

    def stop(cache, entries):
        write(cache, entries)
        if len(embedded) == 2:
            raise KeyboardInterrupt

    with monkeypatch.context() as patch, pytest.raises(KeyboardInterrupt):
        patch.setattr(Cache, "write", stop)
        run()
    embedded.clear()
    found = run()
    assert len(embedded) == 1
    for one, other in zip(found, expected, strict=True):
        assert [hit["text"] for hit in one] == [hit["text"] for hit in other]


def search_lines(encoder, path, **options):
    options = {"index_dir": str(path.parent / "index"), "show_progress": False, **options}
    (found,), shown = search_corpus(encoder, "tiny", str(path), ["a dog"], **options)
    return shown, found["results"]


def test_tables_and_lines_are_ranked_whole(encoder, tmp_path, warnings, embedded):
    (tmp_path / "lines.txt").write_text("a cat\n\na dog\n \nthe old house\n")
    shown, hits = search_lines(encoder, tmp_path / "lines.txt")
    assert shown == ["cosine", "position", "text"]
    # Blank lines are left out, and the others keep their places.
    assert sorted((hit["position"], hit["text"]) for hit in hits) == [(0, "a cat"), (2, "a dog"), (4, "the old house")]
    assert "2 of 5 texts are blank and are left out" in warnings[0]
    (tmp_path / "table.jsonl").write_text('{"_id": "x", "body": "a cat"}\n{"_id": "y", "body": "a dog"}\n')
    shown, hits = search_lines(encoder, tmp_path / "table.jsonl", text_column="body", top_k=1)
    assert shown == ["cosine", "_id", "body"] and list(hits[0]) == ["cosine", "_id", "body"]
    assert hits[0]["_id"] == "y" and hits[0]["cosine"] == pytest.approx(1, abs=1e-5)
    # Its vectors are kept, and those in a column do not count.
    embedded.clear()
    rows = {"_id": ["x", "y"], "body": ["a cat", "a dog"], "embedding": [[1.0], [2.0]]}
    Dataset.from_dict(rows).to_parquet(tmp_path / "table.parquet")
    _, again = search_lines(encoder, tmp_path / "table.parquet", text_column="body", top_k=1)
    assert again == [{**hits[0], "embedding": [2.0]}] and embedded == []
    # The best passage of each text, if passages are asked for.
    (tmp_path / "long.jsonl").write_text('{"text": "a cat sat. a dog"}\n{"text": "the old house"}\n')
    _, hits = search_lines(encoder, tmp_path / "long.jsonl", chunk_size=4)
    assert [hit["position"] for hit in hits] == [0, 1] and hits[0]["text"] == "a dog"

    def score(queries, texts):
        return [[float("cat" in text) for text in found] for found in texts]

    shown, hits = search_lines(encoder, tmp_path / "lines.txt", reranker=score, bm25_weight=0.3)
    assert shown == ["blend", "rerank", "cosine + BM25", "position", "text"] and hits[0]["text"] == "a cat"
    assert list(hits[0]) == shown


def test_errors(encoder, tmp_path):
    (tmp_path / "results.jsonl").write_text('{"text": "a cat", "cosine": 0.1}\n')
    with pytest.raises(ValueError, match="has a column 'cosine', which is the name of a score: rename it"):
        search_lines(encoder, tmp_path / "results.jsonl")


# Files of vectors


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


def test_a_title_is_read_and_the_columns_stay(encoder, tmp_path):
    (tmp_path / "table.jsonl").write_text('{"title": "the house", "text": "a cat"}\n')
    encode_file(encoder, str(tmp_path / "table.jsonl"), str(tmp_path / "v.parquet"), **QUIET)
    (row,) = pq.read_table(tmp_path / "v.parquet").to_pylist()
    assert (row["title"], row["text"]) == ("the house", "a cat")
    np.testing.assert_allclose(row["embedding"], encoder.encode("the house a cat"), atol=1e-5)


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
        (
            '{"text": "a", "id": 1.5806614361327575e18}',
            "in.jsonl, id, row 0: the id 1.58.* was rounded when it became",
        ),
        ('{"text": "a", "id": 1}\n{"text": "b", "id": "x"}', "the column 'id' has values of several types"),
    ],
)
def test_what_cannot_be_written_fails_before_texts_are_embedded(encoder, rows, match, tmp_path, monkeypatch):
    monkeypatch.setattr("hf_dse.retrieval.folder.embed", None)
    (tmp_path / "in.jsonl").write_text(rows)
    with pytest.raises(ValueError, match=match):
        encode_file(encoder, str(tmp_path / "in.jsonl"), str(tmp_path / "out.parquet"), **QUIET)
    assert not (tmp_path / "out.parquet").exists()


def test_ids_that_became_floats_are_not_shown(encoder, tmp_path):
    (tmp_path / "in.jsonl").write_text('{"text": "a", "_id": 1.5806614361327575e18}')
    with pytest.raises(ValueError, match="in.jsonl, _id, row 0: the id 1.58.* was rounded"):
        search_corpus(encoder, "encoder", str(tmp_path / "in.jsonl"), ["a"], index_dir=str(tmp_path / "index"))
    with pytest.raises(ValueError, match="The ids, row 1: the id 1.58.* was rounded"):
        index.Index(encoder, ["a", "b"], ids=np.array([1.0, 1.5806614361327575e18]))
