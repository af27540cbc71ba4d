# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The cosine and BM25 together: against slow code, and in `hf-dse search`."""

import json
import sys

import numpy as np
import pytest
from flags import to_flags
from hypothesis import given, settings
from hypothesis import strategies as st
from test_mining import TEXT, WORDS
from test_mining import bm25_scores as bm25_by_hand
from transformers import BertForSequenceClassification

import hf_dse.inference.search
from hf_dse import DseModel, bm25_scores, encode, quantize, rank, rank_groups
from hf_dse_cli import main


pytest.importorskip("bm25s")

SIZE = 5
TEXTS = ["cat dog", "sun", "red cat moon", "wall wall dog", "moon", "cat", "sun red wall", "dog moon sun"]
QUERIES = ["red cat", "moon", "tree"]


def by_hand(queries, texts, query_vectors, text_vectors, weight):
    """The score of each text for each query, one after the other."""
    scores = np.zeros((len(queries), len(texts)))
    for row, (query, vector) in enumerate(zip(queries, query_vectors, strict=True)):
        words = bm25_by_hand(query, texts)
        best = max(words)
        for column, other in enumerate(text_vectors):
            cosine = np.dot(vector, other) / (np.linalg.norm(vector) * np.linalg.norm(other))
            scores[row, column] = cosine + (weight * words[column] / best if best > 0 else 0.0)
    return scores


def assert_best(scores, positions, expected):
    """Checks that these are the best of the expected scores, in their order."""
    top_k = scores.shape[1]
    np.testing.assert_allclose(scores, np.take_along_axis(expected, positions, axis=1), rtol=1e-5, atol=1e-5)
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :top_k], rtol=1e-5, atol=1e-5)
    assert all(len(set(row)) == top_k for row in positions.tolist())


def vectors(number, seed=0):
    return np.random.default_rng(seed).normal(size=(number, SIZE)).astype(np.float32)


@settings(max_examples=60, deadline=None)
@given(
    queries=st.lists(TEXT | st.sampled_from(["", "tree"]), min_size=1, max_size=5),
    texts=st.lists(TEXT, min_size=1, max_size=9),
    weight=st.sampled_from([0, 0.3, 1]) | st.floats(0, 100),
    top_k=st.integers(1, 10),
    blocks=st.tuples(st.integers(1, 30), st.integers(1, 10)),
    precision=st.sampled_from(["float32", "int8"]),
    seed=st.integers(0, 1000),
)
def test_it_is_its_formula(queries, texts, weight, top_k, blocks, precision, seed):
    corpus = quantize(vectors(len(texts), seed + 1), precision)
    query_vectors = vectors(len(queries), seed)
    asked = []

    def added_scores(rows):
        asked.append(rows)
        return words(rows)

    words = bm25_scores(queries, texts, weight)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf_dse.inference.search, "BLOCK_ELEMENTS", blocks[0])
        patch.setattr(hf_dse.inference.search, "BLOCK_TEXTS", blocks[1])
        scores, positions = rank(query_vectors, corpus, top_k=top_k, added_scores=added_scores, show_progress=False)
    assert scores.shape == positions.shape == (len(queries), min(top_k, len(texts)))
    assert (scores.dtype, positions.dtype) == (np.float32, np.int64)
    assert_best(scores, positions, by_hand(queries, texts, query_vectors, corpus[:], weight))
    # All queries once, in blocks that fit.
    assert [row for rows in asked for row in range(rows.start, rows.stop)] == list(range(len(queries)))
    assert all(rows.stop - rows.start == 1 or (rows.stop - rows.start) * len(texts) <= blocks[0] for rows in asked)


@settings(max_examples=30, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), texts=st.lists(TEXT, min_size=1, max_size=9), data=st.data())
def test_the_best_part_of_each_group(queries, texts, data):
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(texts), max_size=len(texts)))
    top_k = data.draw(st.integers(1, 4))
    query_vectors, text_vectors = vectors(len(queries)), vectors(len(texts), 1)
    options = {"added_scores": bm25_scores(queries, texts), "top_k": top_k, "show_progress": False}
    found = rank_groups(query_vectors, text_vectors, groups, **options)
    for hits, expected in zip(found, by_hand(queries, texts, query_vectors, text_vectors, 0.3), strict=True):
        best = {group: max(s for s, other in zip(expected, groups, strict=True) if other == group) for group in groups}
        assert [score for score, _ in hits] == pytest.approx(sorted(best.values(), reverse=True)[:top_k], abs=1e-5)
        assert [expected[position] for _, position in hits] == pytest.approx([score for score, _ in hits], abs=1e-5)
        assert len({groups[position] for _, position in hits}) == len(hits)


@settings(max_examples=30, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), texts=st.lists(TEXT, min_size=1, max_size=9), data=st.data())
def test_passages_have_the_words_of_their_documents_too(queries, texts, data):
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(texts), max_size=len(texts)))
    names = list(dict.fromkeys(groups))
    documents = [" ".join(text for text, of in zip(texts, groups, strict=True) if of == name) for name in names]
    everything = slice(0, len(queries))
    of_documents = bm25_scores(queries, documents, 0.6)(everything)[:, [names.index(group) for group in groups]]
    expected = (of_documents + bm25_scores(queries, texts, 0.6)(everything)) / 2
    added = bm25_scores(queries, texts, 0.6, groups)(everything)
    assert added.dtype == np.float32 and added.max() <= 0.6 + 1e-6
    np.testing.assert_allclose(added, expected, atol=1e-6)
    # Documents of one passage have the scores of texts.
    alone = bm25_scores(queries, texts, 0.6, range(len(texts)))(everything)
    np.testing.assert_allclose(alone, bm25_scores(queries, texts, 0.6)(everything), atol=1e-6)


def test_the_text_with_the_best_words_gains_the_weight():
    added = bm25_scores(QUERIES, TEXTS, 0.4)(slice(0, 3))
    assert added.dtype == np.float32 and added.shape == (3, len(TEXTS))
    assert added.max(axis=1).tolist() == pytest.approx([0.4, 0.4, 0.0])
    assert added.min() == 0 and added[1].argmax() == 4
    assert bm25_scores(QUERIES, TEXTS, 0.4)(slice(1, 2)).tolist() == added[1:2].tolist()
    # Neither words in the corpus, nor queries.
    assert bm25_scores(QUERIES, ["", "the"])(slice(0, 3)).tolist() == [[0, 0]] * 3
    added = bm25_scores([], TEXTS)
    assert rank(vectors(0), vectors(8), top_k=3, added_scores=added, show_progress=False)[0].shape == (0, 3)


@pytest.mark.parametrize("weight", [-0.1, float("nan"), float("inf")])
def test_wrong_weights(weight):
    with pytest.raises(ValueError, match=f"weight={weight}: it has to be a finite number of at least 0"):
        bm25_scores(QUERIES, TEXTS, weight)


def test_errors(make_model):
    with pytest.raises(ValueError, match="corpus is empty"):
        bm25_scores(QUERIES, [])
    with pytest.raises(ValueError, match="1 groups for 8 texts"):
        bm25_scores(QUERIES, TEXTS, groups=["a"])

    def search(queries=QUERIES, texts=TEXTS, weight=0.3, **options):
        added_scores = bm25_scores(queries, texts, weight)
        rank(vectors(3), vectors(8), added_scores=added_scores, show_progress=False, **options)

    with pytest.raises(ValueError, match=r"the shape \(3, 7\) for 3 queries and 8 texts: they must be"):
        search(texts=TEXTS[1:])
    with pytest.raises(ValueError, match=r"the shape \(2, 8\) for 3 queries and 8 texts"):
        search(queries=QUERIES[1:])
    with pytest.raises(ValueError, match="NaN or infinite: take a smaller weight"):
        search(weight=1e39)
    with pytest.raises(ValueError, match="are added to the cosine or the dot product: leave out the head"):
        search(head=make_model(similarity="cosine"))


# hf-dse search


@pytest.fixture
def run(tmp_path, make_model, bert_tokenizer):
    """Runs `hf-dse search` with BM25 and reads what it finds; options can be overridden, or omitted with `None`."""
    make_model(DseModel).save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "texts.txt").write_text("".join(f"{text}\n" for text in TEXTS))

    def search(**options):
        defaults = {
            "model_name_or_path": tmp_path / "model",
            "corpus": tmp_path / "texts.txt",
            "query": QUERIES,
            "bm25_weight": 0.3,
            "output_file": tmp_path / "results.jsonl",
            "device": "cpu",
        }
        assert main(["search", *to_flags({**defaults, **options})]) == 0
        return [json.loads(line)["results"] for line in (tmp_path / "results.jsonl").read_text().splitlines()]

    return search


@pytest.fixture
def expected(make_model, bert_tokenizer):
    """The scores of texts for the queries, by hand."""

    def score(texts, weight=0.3):
        model = make_model(DseModel)
        options = {"show_progress": False}
        both = (encode(model, bert_tokenizer, part, **options) for part in (QUERIES, texts))
        return by_hand(QUERIES, texts, *both, weight)

    return score


def encoded(tmp_path, *options):
    argv = ["--model_name_or_path", tmp_path / "model", "--input", tmp_path / "texts.txt", "--device", "cpu"]
    assert main(["encode", *map(str, argv), "--output", str(tmp_path / "index.parquet"), *options]) == 0
    return tmp_path / "index.parquet"


@pytest.mark.parametrize("kind", ["texts", "index", "unit vectors", "chunks", "folder"])
def test_search(kind, run, expected, tmp_path, capsys):
    options = {"unit vectors": ["--normalize"], "chunks": ["--chunks"]}.get(kind, [])
    corpus = tmp_path / "texts.txt" if kind == "texts" else tmp_path / "docs"
    if kind == "folder":
        corpus.mkdir()
        for number, text in enumerate(TEXTS):
            (corpus / f"{number}.txt").write_text(text)
    elif kind != "texts":
        corpus = encoded(tmp_path, *options)
    capsys.readouterr()
    found = run(corpus=corpus, top_k=4, index_dir=tmp_path / "own" if kind == "folder" else None)
    scores = expected(TEXTS)
    for hits, of_query in zip(found, scores, strict=True):
        assert [hit["cosine + BM25"] for hit in hits] == pytest.approx(np.sort(of_query)[::-1][:4], abs=1e-5)
        for hit in hits:
            assert hit["cosine + BM25"] == pytest.approx(of_query[TEXTS.index(hit["text"])], abs=1e-5)
    out = capsys.readouterr().out
    assert out.splitlines()[1].startswith("rank  cosine + BM25  ")
    assert f"   1{found[0][0]['cosine + BM25']:>15.4f}  " in out
    # No word is known, and the cosine ranks alone.
    alone = run(corpus=corpus, top_k=4, index_dir=tmp_path / "own" if kind == "folder" else None, bm25_weight=0)
    assert [hit["text"] for hit in alone[2]] == [hit["text"] for hit in found[2]]
    assert [hit["cosine"] for hit in alone[2]] == pytest.approx([hit["cosine + BM25"] for hit in found[2]], abs=1e-6)
    assert [hit["text"] for hit in alone[0]] != [hit["text"] for hit in found[0]]


def test_search_of_bits(run, tmp_path):
    pytest.importorskip("sentence_transformers")
    found = run(corpus=encoded(tmp_path, "--precision", "binary"), bm25_weight=100)
    best = bm25_by_hand(QUERIES[0], TEXTS).argmax()
    assert found[0][0]["text"] == TEXTS[best] and 99 <= found[0][0]["cosine + BM25"] <= 101


def test_a_reranker_reads_what_both_find(run, save_bert, tmp_path):
    teacher = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
    first = run(top_k=3)
    for hits, before in zip(run(top_k=2, rerank=teacher, rerank_top=3), first, strict=True):
        assert [list(hit)[:2] for hit in hits] == [["rerank", "cosine + BM25"]] * 2
        assert hits[0]["rerank"] >= hits[1]["rerank"]
        known = {hit["text"]: hit["cosine + BM25"] for hit in before}
        assert all(hit["cosine + BM25"] == pytest.approx(known[hit["text"]]) for hit in hits)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bm25_weight": -0.1}, "bm25_weight=-0.1: it has to be at least 0"),
        ({"bm25_weight": "nan"}, "bm25_weight=nan: it has to be a finite number"),
        ({"bm25_weight": "inf"}, "bm25_weight=inf: it has to be a finite number"),
        ({"bm25_weight": "x"}, "--bm25_weight: invalid float value: 'x'"),
        ({"score": "dot"}, "bm25_weight=0.3: BM25 is added to the cosine, and this search ranks by the dot product"),
        ({"score": "head"}, "and this search ranks by the head: pass `--score cosine`, or leave it out"),
        ({"model_name_or_path": "dot"}, "and this search ranks by the dot product: pass `--score cosine`"),
        ({"corpus": "scores.csv"}, "scores.csv has a column 'cosine + BM25', which is the name of the scores"),
    ],
)
def test_errors_of_search(options, message, run, make_model, bert_tokenizer, tmp_path, capsys, monkeypatch):
    monkeypatch.chdir(tmp_path)
    make_model(similarity="dot").save_pretrained("dot")
    bert_tokenizer.save_pretrained("dot")
    (tmp_path / "scores.csv").write_text("text,cosine + BM25\na cat,1\n")
    with pytest.raises(AssertionError):
        run(**options)
    error = capsys.readouterr().err.strip().splitlines()[-1]
    assert error.startswith("hf-dse search: error: ") and message in error
    assert not (tmp_path / "results.jsonl").exists()


def test_a_model_for_dot_products_can_search_by_the_cosine(run, make_model, tmp_path):
    make_model(similarity="dot").save_pretrained(tmp_path / "model")
    assert run(score="cosine")[0][0]["cosine + BM25"] > 0


def test_it_needs_packages(run, capsys, monkeypatch, tmp_path):
    monkeypatch.setitem(sys.modules, "Stemmer", None)
    with pytest.raises(AssertionError):
        run(model_name_or_path=tmp_path / "none")
    assert "BM25 needs bm25s and PyStemmer: `pip install hf-dse[ranking]`" in capsys.readouterr().err


def test_words_of_tests():
    """Stop words, or words with other stems, would make the formula another one."""
    assert {word for text in [*TEXTS, *QUERIES] for word in text.split()} <= {*WORDS, "tree"}
