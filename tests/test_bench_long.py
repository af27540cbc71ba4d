# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse bench long`: what it measures against slow code, and the needles that it makes."""

import json

import numpy as np
import pytest
from flags import to_flags
from transformers import BertModel

from hf_dse import (
    DseModel,
    bm25_scores,
    bm25_search,
    convert_encoder,
    encode,
    encode_chunks,
    evaluate_retrieval,
    export_model,
    load_model,
    make_rankings,
)
from hf_dse.bench.arguments import LongArguments
from hf_dse.bench.long import long_table, make_ways, measure_long, needle_table
from hf_dse.bench.needles import FACTS, NUM_DOCUMENTS, THINGS, make_needles
from hf_dse.inference.arguments import ModelArguments
from hf_dse_cli import main


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


@pytest.fixture(scope="module")
def rankings():
    rng = np.random.default_rng(0)
    sentences = [[" ".join(rng.choice(WORDS, 9)) + "." for _ in range(size)] for size in rng.integers(4, 30, 12)]
    queries = [parts[-1] for parts in sentences]
    corpus = {"doc_id": [f"d{row}" for row in range(12)], "text": [" ".join(parts) for parts in sentences]}
    columns = {
        "query": queries,
        "query_id": [f"q{row}" for row in range(12)],
        "documents": [[row] for row in range(12)],
    }
    return make_rankings({**columns, "labels": [[1]] * 12}, corpus)


@pytest.fixture
def arguments(save_bert, tmp_path):
    model_args = ModelArguments(str(save_bert(tmp_path / "bert")), device="cpu", batch_size=4)
    return model_args, LongArguments(
        chunk_sizes=[12, 30],
        projected_lengths=[8, 64],
        linear_layers=1,
        bm25_weight=0.6,
        long_length=320,
        timed_documents=2,
        rounds=1,
    )


def test_every_way(arguments, rankings, bert_tokenizer, tmp_path):
    model_args, args = arguments
    ways = make_ways(model_args, args)
    rows = {row["way"]: row for row in measure_long(model_args, args, rankings, ways)}
    mixed = "layers in chunks, upper 1 linear, k = 64"
    passes = ["softmax", "linear, k = 8", "linear, k = 64", mixed, "layers in chunks"]
    assert list(rows) == [
        "first 64 tokens",
        *["mean of chunks of 12", "best of chunks of 12", "mean of chunks of 30", "best of chunks of 30"],
        *[row for name in passes for row in (name, f"{name}: best of its chunks of 12")],
        "BM25",
    ]
    model = BertModel.from_pretrained(tmp_path / "bert").eval()
    texts, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    options = {"normalize": True, "show_progress": False}
    asked = encode(model, bert_tokenizer, queries, **options)

    def check(name, similar, vectors):
        hits = similar.argmax(axis=1) == np.arange(12)
        assert rows[name]["recall@1"] == hits.mean() and rows[name]["vectors"] == vectors
        return hits.astype(float)

    base = check("first 64 tokens", asked @ encode(model, bert_tokenizer, texts, max_length=64, **options).T, 1)
    vectors, chunks = encode_chunks(model, bert_tokenizer, texts, chunk_size=30, **options)
    starts = np.cumsum([len(part) for part in chunks])[:-1]
    parts = np.split(vectors, starts)
    means = np.stack([part.mean(axis=0) / np.linalg.norm(part.mean(axis=0)) for part in parts])
    check("mean of chunks of 30", asked @ means.T, 1)
    best = np.stack([(asked @ part.T).max(axis=1) for part in parts], axis=1)
    found = check("best of chunks of 30", best, len(vectors) / 12)
    assert rows["best of chunks of 30"]["difference"] == pytest.approx((found - base).mean())
    assert rows["best of chunks of 30"]["low"] <= rows["best of chunks of 30"]["high"]
    way = ways[mixed]
    assert way.model.config.layer_types == ["chunked_attention", "linear_attention"]
    assert way.model.config.attention_chunk_size == 64 and way.model.config.position_extension == "tile"
    check(mixed, asked @ encode(way.model, bert_tokenizer, texts, max_length=320, **options).T, 1)
    positions = bm25_search(queries, texts, 1)[1][:, 0]
    assert rows["BM25"]["recall@1"] == np.mean(positions == np.arange(12)) and rows["BM25"]["vectors"] == 0
    words = bm25_scores(queries, texts, 0.6)(slice(None))
    hits = (asked @ means.T + words).argmax(axis=1) == np.arange(12)
    assert rows["mean of chunks of 30"]["with_bm25"] == hits.mean() and "with_bm25" not in rows["BM25"]
    # A chunk has half of it for its own words, and half for those of its document.
    passages = [text for part in chunks for text in part]
    of_passages = np.split(bm25_scores(queries, passages, 0.3)(slice(None)), starts, axis=1)
    similar = [(asked @ part.T + own).max(axis=1) for part, own in zip(parts, of_passages, strict=True)]
    hits = (np.stack(similar, axis=1) + words / 2).argmax(axis=1) == np.arange(12)
    assert rows["best of chunks of 30"]["with_bm25"] == hits.mean()
    assert all(row["ms"] > 0 for row in rows.values())
    # k beyond the longest text is softmax.
    assert rows["linear, k = 64"]["recall@1"] >= 0
    table = long_table(list(rows.values()), "recall@1").splitlines()
    assert len(table) == 2 + len(rows) and table[2].split(" | ")[4] == "-"
    assert long_table(list(rows.values()), "ndcg@10").splitlines()[0].count("| ndcg@10 |") == 1


def test_students_and_one_vector(arguments, rankings, tmp_path):
    model_args, args = arguments
    assert (
        main(["convert", *to_flags({"model_name_or_path": tmp_path / "bert", "output_dir": tmp_path / "mine"})]) == 0
    )
    args = LongArguments(ways=["chunks"], chunk_sizes=[9], students=[str(tmp_path / "mine")], many=False, rounds=1)
    rows = measure_long(model_args, args, rankings, make_ways(model_args, args))
    assert [row["way"] for row in rows] == ["mean of chunks of 9", "best of chunks of 9", str(tmp_path / "mine")]
    args = LongArguments(ways=["chunks", "bm25"], chunk_sizes=[9], bm25_weight=0, many=False, rounds=1)
    assert not any("with_bm25" in row for row in measure_long(model_args, args, rankings, make_ways(model_args, args)))
    with pytest.raises(ValueError, match="linear_layers=2: the model has 2 layers, so take fewer"):
        make_ways(model_args, LongArguments(ways=["mixed"]))


def test_chunks_of_a_model_for_dot_products(make_model, bert_tokenizer, rankings, tmp_path):
    """They are compared by their dot products, as in an evaluation."""
    model = make_model(DseModel, similarity="dot", normalize_embeddings=False, initializer_range=0.5)
    model_args = ModelArguments(str(export_model(model, bert_tokenizer, tmp_path / "dot")), device="cpu")
    args = LongArguments(ways=["chunks"], chunk_sizes=[12], many=False, rounds=1, timed_documents=1)
    rows = {row["way"]: row for row in measure_long(model_args, args, rankings, make_ways(model_args, args))}
    options = {"chunks": True, "chunk_size": 12, "show_progress": False}
    expected = evaluate_retrieval(model, bert_tokenizer, rankings, **options)
    assert rows["best of chunks of 12"]["ndcg@10"] == pytest.approx(expected["ndcg@10"])
    vectors, chunks = encode_chunks(
        model, bert_tokenizer, rankings.corpus["text"][:], chunk_size=12, show_progress=False
    )
    parts = np.split(vectors, np.cumsum([len(part) for part in chunks])[:-1])
    asked = encode(model, bert_tokenizer, rankings.queries["query"][:], show_progress=False)
    similar = asked @ np.stack([part.mean(axis=0) for part in parts]).T
    assert rows["mean of chunks of 12"]["recall@1"] == (similar.argmax(axis=1) == np.arange(12)).mean()


@pytest.mark.parametrize("task", ["passkey", "needle"])
@pytest.mark.parametrize("length", [64, 300])
def test_needles(task, length):
    texts = ["A river runs through the valley.", "Two bridges cross it, and a mill stands there."]
    rankings = make_needles(task, length, texts)
    documents, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    assert len(documents) == 100 and len(set(queries)) == 50
    assert {len(text.split()) for text in documents} == {int(0.75 * length)}
    # By its words, the needle is the only part of a document that tells it from others.
    positions = bm25_search(queries, documents, 1)[1][:, 0]
    assert positions.tolist() == [rows[0] for rows in rankings.queries["documents"]]
    assert documents == make_needles(task, length, texts).corpus["text"][:]
    assert documents != make_needles(task, length, texts, seed=1).corpus["text"][:]
    # Anywhere, but between sentences.
    sentence = "The pass key of" if task == "passkey" else None
    if sentence and length == 300:
        places = [text.index(sentence) / len(text) for text in documents]
        assert min(places) < 0.1 and max(places) > 0.75
        assert all(text[: text.index(sentence)].rstrip()[-1:] in ("", ".") for text in documents)


def test_facts_are_of_a_hundred_kinds():
    assert len(FACTS) * len(THINGS) >= NUM_DOCUMENTS
    assert all("{name}" in fact and "{thing}" in fact and "{name}" in question for fact, question in FACTS)


def test_errors_of_needles():
    with pytest.raises(ValueError, match="task='hay': the tasks are passkey, needle"):
        make_needles("hay", 64)
    with pytest.raises(ValueError, match="length=63: it has to be at least 64 tokens"):
        make_needles("passkey", 63)
    with pytest.raises(ValueError, match="there are no words to hide a needle in"):
        make_needles("needle", 64, [" "])


def run(folder, **options):
    defaults = {"model_name_or_path": folder / "bert", "output_dir": folder / "out", "device": "cpu", "rounds": 1}
    return main(["bench", "long", *to_flags({**defaults, "timed_documents": 1, **options})])


def test_the_command(save_bert, rankings, tmp_path, capsys):
    save_bert(tmp_path / "bert")
    folder = tmp_path / "data"
    (folder / "qrels").mkdir(parents=True)
    for name, key, text in (("corpus", "doc_id", "text"), ("queries", "query_id", "query")):
        part = getattr(rankings, name)
        lines = [json.dumps({"_id": row[key], "text": row[text]}) for row in part]
        (folder / f"{name}.jsonl").write_text("\n".join(lines) + "\n")
    lines = [f"q{row}\td{row}\t1" for row in range(12)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(["query-id\tcorpus-id\tscore", *lines]) + "\n")
    ways = ["first", "chunks", "linear", "bm25"]
    options = {"chunk_sizes": 12, "projected_lengths": 8, "long_length": 400, "metric": "ndcg@10"}
    assert run(tmp_path, dataset_name=folder, ways=ways, **options) == 0
    out = capsys.readouterr().out
    assert "12 queries, 12 documents" in out and "difference in ndcg@10" in out
    assert out.count("\n| ") == 2 + 6
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert [row["way"] for row in rows][-1] == "BM25"

    assert run(tmp_path, needles=["needle", "passkey"], lengths=[64, 128], ways=["first", "bm25"]) == 0
    out = capsys.readouterr().out
    assert "| a document is read by | needle 64 | needle 128 | passkey 64 | passkey 128 |" in out
    assert "| BM25 | 100 | 100 | 100 | 100 |" in out
    rows = json.loads((tmp_path / "out" / "results.json").read_text())["rows"]
    assert needle_table(rows) in out


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "Pass either `--dataset_name`, queries with a corpus, or `--needles`, not both"),
        ({"needles": "passkey", "dataset_name": "x"}, "not both"),
        ({"needles": "hay"}, "invalid choice: 'hay'"),
        ({"needles": "passkey", "lengths": 9}, "lengths=[9]: they have to be at least 64 tokens"),
        ({"ways": "all", "dataset_name": "x"}, "invalid choice: 'all'"),
        ({"chunk_sizes": 0, "dataset_name": "x"}, "chunk_sizes=[0]: it has to be at least 1"),
        ({"needles": "passkey", "train_file": "x"}, "not both"),
        ({"needles": "passkey", "lengths": 10**12}, "hold a needle, and at most 1,000,000"),
        ({"needles": "passkey", "seed": -1}, "seed=-1: it has to be at least 0"),
        ({"needles": "passkey", "bm25_weight": -1}, "bm25_weight=-1.0: it has to be at least 0"),
        ({"needles": "passkey", "threads": 10**8}, "threads=100,000,000: 4,096 are the most"),
    ],
)
def test_errors_of_the_command(options, message, tmp_path, capsys):
    assert run(tmp_path, **options) == 2
    assert message in capsys.readouterr().err


@pytest.mark.parametrize(
    ("options", "pooling", "message"),
    [
        ({"max_length": 0}, "mean", "max_length=0 leaves no room for a text"),
        ({"max_length": 65}, "mean", "max_length=65 is above the 64 tokens"),
        ({"ways": "chunks", "chunk_sizes": 63}, "mean", "chunk_size=63: the model reads 64 tokens"),
        ({"ways": ["first", "chunked"], "long_length": 65}, "mean", "chunk_size=128: the model reads 65 tokens"),
        ({"ways": ["first", "softmax"], "long_length": 400}, "cls", "encode plain chunks"),
        ({"students": "nowhere"}, "mean", "nowhere is no folder here"),
    ],
)
def test_what_cannot_be_done_is_known_before_the_first_way(
    options, pooling, message, save_bert, tmp_path, capsys, monkeypatch
):
    save_bert(tmp_path / "bert")
    if pooling == "cls":
        (tmp_path / "bert" / "1_Pooling").mkdir()
        (tmp_path / "bert" / "1_Pooling" / "config.json").write_text('{"pooling_mode_cls_token": true}')
        modules = [{"idx": 0, "path": "", "type": "Transformer"}, {"idx": 1, "path": "1_Pooling", "type": "Pooling"}]
        (tmp_path / "bert" / "modules.json").write_text(json.dumps(modules))
    monkeypatch.setattr("hf_dse.bench.long.measure_long", None)
    assert run(tmp_path, **{"needles": "passkey", "ways": "first"} | options) == 2
    assert message in capsys.readouterr().err


def test_what_is_converted_is_of_the_revision(save_bert, tmp_path, monkeypatch):
    names = []
    folder = save_bert(tmp_path / "bert")
    monkeypatch.setattr("hf_dse.bench.long.load_model", lambda args: load_model(ModelArguments(str(folder))))
    monkeypatch.setattr(
        "hf_dse.bench.long.convert_encoder",
        lambda name, **fields: names.append(name) or convert_encoder(str(folder), **fields),
    )
    make_ways(ModelArguments("user/m", model_revision="v1"), LongArguments(ways=["softmax"], long_length=200))
    assert names == ["user/m@v1"]
