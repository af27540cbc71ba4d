# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of reading long documents against slow code, and the needles."""

import json

import long_documents
import numpy as np
import pytest
from needles import make_needles
from sentence_transformers import SentenceTransformer

from hf_dse import make_rankings, split_text
from hf_dse.retrieval.bm25 import Bm25Index, Words


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


@pytest.fixture
def rankings():
    rng = np.random.default_rng(0)
    sentences = [[" ".join(rng.choice(WORDS, 9)) + "." for _ in range(size)] for size in rng.integers(4, 30, 12)]
    ids = [f"d{row}" for row in range(12)]
    columns = {"query": [parts[-1] for parts in sentences], "query_id": [f"q{row}" for row in range(12)]}
    columns |= {"documents": [[row] for row in range(12)], "labels": [[1]] * 12}
    return make_rankings(columns, {"doc_id": ids, "text": [" ".join(parts) for parts in sentences]})


@pytest.fixture
def folder(rankings, tmp_path):
    """The same in the layout of BEIR."""
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    for name, key, text in (("corpus", "doc_id", "text"), ("queries", "query_id", "query")):
        lines = [json.dumps({"_id": row[key], "text": row[text]}) for row in getattr(rankings, name)]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in range(12))]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


def run(encoder, *argv):
    fast = ["--rounds", "1", "--timed_documents", "1", "--long_length", "320", "--batch_size", "4"]
    long_documents.main([str(encoder), *fast, *map(str, argv)])


def first_by_words(queries, texts):
    """The row of the best text of each query."""
    index = Bm25Index(texts)
    return np.array([index.scores(words).argmax() for words in index.words(queries)])


def test_every_way(save_bert, folder, rankings, tmp_path, capsys):
    encoder, output = save_bert(tmp_path / "bert"), tmp_path / "results.json"
    argv = ["--dataset_name", folder, "--chunk_sizes", 30, "--projected_lengths", 8, 64, "--bm25_weight", 0.6]
    run(encoder, *argv, "--output", output, "--students", encoder)
    rows = {row["way"]: row for row in json.loads(output.read_text())["rows"]}
    passes = ["softmax", "linear, k = 8", "linear, k = 64", "layers in chunks, upper 2 linear, k = 64"]
    parts = ["mean of chunks of 30", "best of chunks of 30"]
    assert list(rows) == ["first 64 tokens", *parts, *passes, "layers in chunks", str(encoder), "BM25"]
    out = capsys.readouterr().out
    assert "12 queries, 12 documents" in out and out.count("\n| ") == 2 + len(rows)
    assert all(row["ms"] > 0 for row in rows.values())

    model = SentenceTransformer(str(encoder), device="cpu")
    texts, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    asked = model.encode(queries, normalize_embeddings=True)

    def check(name, similar, vectors):
        hits = similar.argmax(axis=1) == np.arange(12)
        assert rows[name]["recall@1"] == hits.mean() and rows[name]["vectors"] == vectors
        return hits.astype(float)

    base = check("first 64 tokens", asked @ model.encode(texts, normalize_embeddings=True).T, 1)
    chunks = [split_text(text, model.tokenizer, 30) for text in texts]
    vectors = [model.encode(part, normalize_embeddings=True) for part in chunks]
    means = np.stack([part.mean(axis=0) / np.linalg.norm(part.mean(axis=0)) for part in vectors])
    check("mean of chunks of 30", asked @ means.T, 1)
    best = np.stack([(asked @ part.T).max(axis=1) for part in vectors], axis=1)
    found = check("best of chunks of 30", best, sum(map(len, chunks)) / 12)
    row = rows["best of chunks of 30"]
    assert row["difference"] == pytest.approx((found - base).mean()) and row["low"] <= row["high"]
    positions = first_by_words(queries, texts)
    assert rows["BM25"]["recall@1"] == np.mean(positions == np.arange(12)) and "with_bm25" not in rows["BM25"]
    words = Words(texts).scores(queries, 0.6)(slice(None))
    hits = (asked @ means.T + words).argmax(axis=1) == np.arange(12)
    assert rows["mean of chunks of 30"]["with_bm25"] == hits.mean()
    # Half of a chunk's BM25 is for its own words, and half for those of its document.
    passages = [text for part in chunks for text in part]
    of_passages = Words(passages).scores(queries, 0.3)(slice(None))
    of_passages = np.split(of_passages, np.cumsum([len(part) for part in chunks])[:-1], axis=1)
    similar = [(asked @ part.T + own).max(axis=1) for part, own in zip(vectors, of_passages, strict=True)]
    hits = (np.stack(similar, axis=1) + words / 2).argmax(axis=1) == np.arange(12)
    assert row["with_bm25"] == hits.mean()


@pytest.mark.parametrize("task", ["passkey", "needle"])
@pytest.mark.parametrize("length", [64, 300])
def test_needles(task, length):
    texts = ["A river runs through the valley.", "Two bridges cross it, and a mill stands there."]
    rankings = make_needles(task, length, texts)
    documents, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    assert len(documents) == 100
    assert {len(text.split()) for text in documents} == {int(0.75 * length)}
    # By its words, the needle is the only part of a document that tells it from others.
    positions = first_by_words(queries, documents)
    assert positions.tolist() == [rows[0] for rows in rankings.queries["documents"]]


def test_the_table_of_needles(save_bert, tmp_path, capsys):
    encoder = save_bert(tmp_path / "bert")
    run(encoder, "--needles", "needle", "passkey", "--lengths", 64, 128, "--ways", "first", "bm25")
    out = capsys.readouterr().out
    assert "| a document is read by | needle 64 | needle 128 | passkey 64 | passkey 128 |" in out
    assert "| BM25 | 100 | 100 | 100 | 100 |" in out
