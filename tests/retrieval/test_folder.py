# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search in a folder: the index and its updates, places, BM25; search in tables; queries of files."""

import json
import multiprocessing
import os
import signal
import sqlite3

import numpy as np
import pytest
from datasets import Dataset

from hf_dse import split_text
from hf_dse.common.files import locked
from hf_dse.data.passages import line_numbers
from hf_dse.retrieval import kept_vectors
from hf_dse.retrieval.bm25 import bm25_scores
from hf_dse.retrieval.folder import read_queries, search_corpus
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


FORK = multiprocessing.get_context("fork")
QUERIES = ["an old cat", "the house"]
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
        found = search_corpus(model, "tiny", str(corpus), queries, **{**defaults, **options})
        assert [row["query"] for row in found.rows] == queries
        return [row["results"] for row in found.rows]

    return search


@pytest.fixture
def embedded(monkeypatch):
    """The texts that are embedded, in lists that are written together."""
    calls = []
    embed = kept_vectors.embed_silently

    def spy(model, texts, *args, **options):
        calls.append("".join(texts))
        return embed(model, texts, *args, **options)

    monkeypatch.setattr(kept_vectors, "embed_silently", spy)
    return calls


def test_only_new_and_changed_files_are_embedded(run, docs, embedded, monkeypatch, infos, tmp_path):
    monkeypatch.setattr(kept_vectors, "TEXTS_PER_COMMIT", 1)
    first = run()
    assert sorted(embedded) == sorted(FILES.values())
    assert f"Index of {docs}: 3 files, " in infos[-1] and f", in {tmp_path / 'index'}" in infos[-1]
    embedded.clear()
    assert run() == first and embedded == []
    # A new file, a changed one, another name, and a copy.
    (docs / "new.md").write_text("a new mat")
    (docs / "a.md").write_text("the mat is old")
    (docs / "deep" / "c.md").rename(docs / "moved.txt")
    (docs / "copy.md").write_text(FILES["b.txt"])
    (docs / "blank.md").write_text("\n \n")
    found = run()
    assert sorted(embedded) == ["", "a new mat", "the mat is old"]
    assert {hit["file"] for hit in found[0]} == {"new.md", "a.md", "moved.txt", "copy.md", "b.txt"}
    for one, other in zip(found, run(index_dir=str(tmp_path / "other")), strict=True):
        scores = [[hit.pop("cosine") for hit in hits] for hits in (one, other)]
        assert one == other and scores[0] == pytest.approx(scores[1], abs=1e-5)
    # The entries of deleted files are no longer there.
    for name in ("new.md", "copy.md", "moved.txt", "blank.md"):
        (docs / name).unlink()
    assert {hit["file"] for hit in run()[0]} == {"a.md", "b.txt"}
    with sqlite3.connect(tmp_path / "index" / "vectors.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (2,)


def test_the_best_passage_of_a_file_is_found(run, encoder, docs):
    Dataset.from_dict({"text": ["an old cat in the house"]}).to_parquet(docs / "not-searched.parquet")
    for query, hits in zip(QUERIES, run(), strict=True):
        best = {}
        for name, text in FILES.items():
            passages = split_text(text, encoder.tokenizer, 12)
            scores = (encoder.similarity(*(encoder.encode(part) for part in ([query], passages)))[0]).numpy()
            line = list(line_numbers(passages))[scores.argmax()]
            best[name] = {"cosine": scores.max(), "file": name, "line": line, "text": passages[scores.argmax()]}
        expected = sorted(best.values(), key=lambda hit: -hit["cosine"])
        for hit, other in zip(hits, expected, strict=True):
            assert hit.pop("cosine") == pytest.approx(float(other.pop("cosine")), abs=1e-5)
            assert hit == other


def test_words_of_passages_and_files_count(run, encoder, tmp_path):
    cosines = {hit["text"]: hit["cosine"] for hit in run(top_k=9)[0]}
    parts = {name: split_text(text, encoder.tokenizer, 12) for name, text in FILES.items()}
    files = [name for name, passages in parts.items() for _ in passages]
    texts = [passage for passages in parts.values() for passage in passages]
    added = bm25_scores(QUERIES[:1], texts, 0.6, files)(slice(0, 1))[0]
    for hit in run(bm25_weight=0.6)[0]:
        if hit["text"] in cosines:
            expected = cosines[hit["text"]] + added[texts.index(hit["text"])]
            assert hit["cosine + BM25"] == pytest.approx(expected, abs=1e-5)


@pytest.mark.parametrize("line_end", ["\n", "\r\n"])
@pytest.mark.parametrize("encoding", ["utf-8", "utf-8-sig"])
def test_lines_are_those_of_an_editor(run, line_end, encoding, tmp_path):
    lines = ["", "# é 日本 👩‍🔬\u2028 a\x0b", "", *["the old mat is in the house."] * 30, "", "a cat ran", ""]
    (tmp_path / "one").mkdir()
    (tmp_path / "one" / "a.md").write_bytes(line_end.join(lines).encode(encoding))
    found = set()
    for (hit,) in run(corpus=tmp_path / "one", queries=["a cat ran", "é 日本", "the old mat"], chunk_size=5):
        assert hit["text"].lstrip("\n").split("\n")[0] in lines[hit["line"] - 1] and hit["text"][0] != "\ufeff"
        found.add(hit["line"])
    assert len(found) > 1


def test_another_model_prompt_or_size_makes_it_anew(run, save_encoder, embedded, tmp_path):
    folder = save_encoder({"query": "the ", "document": "a new "})
    models = [load_sentence_transformer(str(folder), device="cpu")]
    models += [load_sentence_transformer(str(save_encoder(hidden_act="relu")), device="cpu")]
    settings = json.loads((folder / "config_sentence_transformers.json").read_text())
    settings["prompts"]["query"] = "old "
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    models += [load_sentence_transformer(str(folder), device="cpu")]
    sizes = []
    for options in ({}, {"model": models[0]}, {"model": models[2]}, {"model": models[1]}, {"chunk_size": 0}):
        embedded.clear()
        run(**options)
        sizes.append(len(embedded))
    # The prompt of queries changes no passage.
    assert sizes == [1, 1, 0, 1, 1]
    with sqlite3.connect(tmp_path / "index" / "vectors.sqlite") as connection:
        assert connection.execute("SELECT count(*) FROM entries").fetchone() == (3,)
    with pytest.raises(ValueError, match="chunk_size=61: the model reads 64 tokens, which leaves 60 for a chunk"):
        run(model=models[0], chunk_size=61)


def test_an_interrupted_index_keeps_what_it_has(run, embedded, monkeypatch, tmp_path):
    monkeypatch.setattr(kept_vectors, "TEXTS_PER_COMMIT", 1)
    expected = run(index_dir=str(tmp_path / "other"))
    embedded.clear()
    write = kept_vectors._write

    def end(connection, entries):
        write(connection, entries)
        if len(embedded) == 2:
            os.kill(os.getpid(), signal.SIGKILL)

    monkeypatch.setattr(kept_vectors, "_write", end)
    process = FORK.Process(target=run)
    process.start()
    process.join()
    assert process.exitcode == -signal.SIGKILL
    monkeypatch.setattr(kept_vectors, "_write", write)
    embedded.clear()
    found = run()
    assert len(embedded) == 1
    for one, other in zip(found, expected, strict=True):
        assert [hit["text"] for hit in one] == [hit["text"] for hit in other]


def test_the_second_process_waits_and_takes_the_vectors_of_the_first(run, embedded, tmp_path):
    queue = FORK.Queue()

    def search():
        run()
        queue.put(len(embedded))

    processes = [FORK.Process(target=search) for _ in range(2)]
    with locked(tmp_path / "index"):
        for process in processes:
            process.start()
        for process in processes:
            process.join(timeout=2)
            assert process.is_alive()
    assert sorted(queue.get(timeout=60) for _ in processes) == [0, 1]
    for process in processes:
        process.join()


def test_a_damaged_index(run, embedded, tmp_path):
    expected = run()
    path = tmp_path / "index" / "vectors.sqlite"
    with sqlite3.connect(path) as connection:
        (vectors,) = connection.execute("SELECT vectors FROM entries LIMIT 1").fetchone()
        wrong = np.full(len(vectors) // 4, np.nan, dtype="<f4").tobytes()
        connection.execute("UPDATE entries SET vectors = ? WHERE vectors = ?", (wrong, vectors))
    embedded.clear()
    for one, other in zip(run(), expected, strict=True):
        assert [hit["text"] for hit in one] == [hit["text"] for hit in other]
    assert len(embedded) == 1
    path.write_bytes(b"not a database, but a text of some length" * 100)
    with pytest.raises(ValueError, match=f"{path} are damaged .*: delete this file and run again"):
        run()
    path.unlink()
    path.mkdir()
    with pytest.raises(OSError, match=f"{path} cannot be used"):
        run()


def test_the_default_place_is_in_the_cache(run, docs, embedded, infos, tmp_path):
    for _ in range(2):
        run(index_dir=None)
        place = infos[-1].partition(", in ")[2]
        assert place.startswith(f"{os.environ['HF_HOME']}/assets/hf-dse/search/")
        assert os.listdir(place) == ["vectors.sqlite"] and len(embedded) == 1
    # Another folder has an index of its own.
    docs.rename(tmp_path / "others")
    run(index_dir=None, corpus=tmp_path / "others")
    assert place not in infos[-1] and len(embedded) == 2


def search_lines(encoder, path, **options):
    found = search_corpus(encoder, "tiny", str(path), ["a dog"], show_progress=False, **options)
    return found.shown, found.rows[0]["results"]


def test_tables_and_lines_are_ranked_whole(encoder, tmp_path, warnings):
    (tmp_path / "lines.txt").write_text("a cat\n\na dog\n \nthe old house\n")
    shown, hits = search_lines(encoder, tmp_path / "lines.txt")
    assert shown == ["cosine", "position", "text"]
    # Blank lines are left out, and the others keep their places.
    assert sorted((hit["position"], hit["text"]) for hit in hits) == [(0, "a cat"), (2, "a dog"), (4, "the old house")]
    assert "2 blank texts are left out" in warnings[0]
    (tmp_path / "table.jsonl").write_text('{"_id": "x", "body": "a cat"}\n{"_id": "y", "body": "a dog"}\n')
    shown, hits = search_lines(encoder, tmp_path / "table.jsonl", text_column="body", top_k=1)
    assert shown == ["cosine", "_id", "body"] and list(hits[0]) == ["cosine", "_id", "body"]
    assert hits[0]["_id"] == "y" and hits[0]["cosine"] == pytest.approx(1, abs=1e-5)

    def score(queries, texts):
        return [[float("cat" in text) for text in found] for found in texts]

    shown, hits = search_lines(encoder, tmp_path / "lines.txt", reranker=score, bm25_weight=0.3)
    assert shown == ["rerank", "cosine + BM25", "position", "text"] and hits[0]["text"] == "a cat"
    assert list(hits[0]) == ["rerank", "cosine + BM25", "position", "text"]


def test_errors(encoder, run, tmp_path):
    (tmp_path / "lines.txt").write_text("a cat\n")
    (tmp_path / "blank.txt").write_text(" \n")
    for path, options, match in (
        ("lines.txt", {"chunk_size": 9}, "is not a folder of files: leave out `--chunk_size` and `--index_dir`"),
        ("blank.txt", {}, "blank.txt holds no texts"),
        ("lines.txt", {"top_k": 0}, "top_k=0"),
        ("lines.txt", {"text_column": "x", "top_k": 60, "reranker": print}, "at most rerank_top=50"),
    ):
        with pytest.raises(ValueError, match=match):
            search_lines(encoder, tmp_path / path, **options)


@pytest.mark.parametrize(
    ("name", "content", "expected"),
    [
        ("queries.txt", "a cat\n\na dog\n", ["a cat", "a dog"]),
        ("queries.csv", "id,query\n1,a cat\n", ["a cat"]),
        ("queries.jsonl", '{"_id": "1", "text": "a cat"}\n', ["a cat"]),
        ("queries.tsv", "_id\ttext\n1\ta cat\n", ["a cat"]),
        ("other.csv", "id,body\n1,a cat\n", "no column 'query' or 'text'; the columns are id, body"),
    ],
)
def test_queries_of_files(tmp_path, name, content, expected):
    (tmp_path / name).write_text(content)
    if isinstance(expected, str):
        with pytest.raises(ValueError, match=expected):
            read_queries(str(tmp_path / name))
        return
    assert read_queries(str(tmp_path / name)) == expected
    if name.endswith(".jsonl"):
        assert read_queries(str(tmp_path)) == expected
