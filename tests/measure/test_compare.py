# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches side by side: paired differences, all rows against slow code, and what each reads and costs."""

from dataclasses import replace

import numpy as np
import pytest

from hf_dse import evaluate, make_rankings, to_sentence_transformer
from hf_dse.common.display import format_table
from hf_dse.data.passages import with_titles
from hf_dse.measure.compare import compare_runs, compare_searches, rerank_search, run_searches
from hf_dse.measure.metrics import measure_run, relevance
from hf_dse.modeling import DseModel
from hf_dse.retrieval import index as indexing
from hf_dse.retrieval.bm25 import Bm25Index, Words
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer, split_texts


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

QUIET = {"show_progress": False}
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
SIZE = 8


@pytest.fixture(scope="module")
def rankings():
    """150 documents of random words; queries are parts of them; grades from 0 to 2."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 25))) for _ in range(150)]
    queries = [" ".join(text.split()[:4]) for text in texts[:12]]
    others = [rng.choice(np.arange(12, 150), 3, replace=False).tolist() for _ in queries]
    documents = [[number, *rows] for number, rows in enumerate(others)]
    return make_rankings({"query": queries, "documents": documents, "labels": [[2, 1, 1, 0]] * 12}, {"text": texts})


def run_of(rankings, scores, depth=100):
    """The best documents by scores `(num_queries, num_documents)`, without those of 0, the slow way."""
    found = {}
    for query_id, row in zip(rankings.queries["query_id"], scores, strict=True):
        order = [number for number in np.argsort(-row, kind="stable") if row[number] != 0][:depth]
        found[query_id] = {rankings.corpus["doc_id"][number]: float(row[number]) for number in order}
    return found


def ndcg_of(rankings, run):
    return pytest.approx(measure_run(run, relevance(rankings))["ndcg@10"])


def by_length(queries, texts):
    """The longest first."""
    return [[float(len(text)) for text in found] for found in texts]


def test_differences_are_paired(rankings):
    """A search that is always a bit better differs surely, although queries vary much more."""
    judged = relevance(rankings)
    first = {query_id: dict(list(labels.items())[:1]) for query_id, labels in judged.items()}
    results = compare_runs({"first": first, "same": first, "all": judged}, judged)
    assert "difference" not in results["first"]
    assert [results["same"][name] for name in ("difference", "low", "high")] == [0, 0, 0]
    assert 0 < results["all"]["low"] <= results["all"]["difference"] <= results["all"]["high"]


def test_a_single_query_has_no_interval(rankings):
    judged = relevance(rankings.select([0]))
    first = {query_id: dict(list(labels.items())[:1]) for query_id, labels in judged.items()}
    found = compare_runs({"first": first, "all": judged}, judged)["all"]
    assert found["difference"] > 0 and np.isnan([found["low"], found["high"]]).all()
    table = format_table({"all": found}).splitlines()
    cells = dict(zip(table[0].split(), table[1].split(), strict=True))
    assert (cells["low"], cells["high"]) == ("none", "none") != cells["difference"]


def test_searches_are_compared(rankings, make_model, bert_tokenizer, save_encoder, tmp_path, monkeypatch):
    student, source = tmp_path / "student", str(save_encoder())
    make_model(DseModel).save_pretrained(student)
    bert_tokenizer.save_pretrained(student)
    embedded, embed = [], indexing.embed

    def count(model, texts, prompt_name="document", **options):
        embedded.append((prompt_name, len(texts)))
        return embed(model, texts, prompt_name, **options)

    monkeypatch.setattr(indexing, "embed", count)
    rows = compare_searches(
        {name: load_sentence_transformer(name, device="cpu") for name in (str(student), source)},
        {"test": rankings, "again": rankings.select([0, 1])},
        bm25=True,
        **QUIET,
    )
    # A corpus that splits share is embedded once per model.
    assert embedded.count(("document", 150)) == 2
    name, other = f"{student} (cosine)", f"{source} (cosine)"
    names = [name, "BM25", f"{name} with BM25", other, f"{other} with BM25"]
    assert list(rows["test"]) == names and list(rows["again"]) == names and rows["again"][name]["num_queries"] == 2
    model = load_sentence_transformer(str(student), device="cpu")
    expected = evaluate(model, rankings, **QUIET)
    assert rows["test"][name] == pytest.approx({**expected, "share": None, "tokens": 64})
    assert [str(row["share"] or "") for row in rows["test"].values()] == ["", "", "0.3", "", "0.3"]
    assert [row["tokens"] for row in rows["test"].values()] == [64, None, 64, 64, 64]
    queries, texts = rankings.queries["query"][:], rankings.corpus["text"][:]
    index = Bm25Index(texts)
    words = np.stack([index.scores(found) for found in index.words(queries)])
    assert rows["test"]["BM25"]["ndcg@10"] == ndcg_of(rankings, run_of(rankings, words))
    assert rows["test"]["BM25"]["ndcg@10"] > 0.1
    vectors = [model.encode(part, normalize_embeddings=True) for part in (queries, texts)]
    scores = vectors[0] @ vectors[1].T + Words(texts).scores(queries, 0.3)(slice(None))
    assert rows["test"][f"{name} with BM25"]["ndcg@10"] == ndcg_of(rankings, run_of(rankings, scores))


def test_the_rows_of_both_units(rankings, encoder):
    """Whole texts, and passages, of which the best counts: its vector, and its words with those of its document."""
    found = run_searches({"it": encoder}, rankings, [0, SIZE], bm25=True, bm25_weight=0.6, **QUIET)
    assert list(found) == [
        *("it (cosine, whole texts)", "BM25 (whole texts)", "it (cosine, whole texts) with BM25"),
        *("it (cosine, passages of 8)", "BM25 (passages of 8)", "it (cosine, passages of 8) with BM25"),
    ]
    assert [search.chunk_size for search in found.values()] == [0, 0, 0, SIZE, SIZE, SIZE]
    assert [search.model for search in found.values()] == ["it", None, "it"] * 2
    assert [search.bm25_weight for search in found.values()] == [0, 0, 0.6] * 2
    assert [search.tokens for search in found.values()] == [64, None, 64, SIZE, None, SIZE]

    queries, texts = rankings.queries["query"][:], rankings.corpus["text"][:]
    parts = split_texts(encoder, texts, SIZE)
    groups = np.repeat(np.arange(len(texts)), list(map(len, parts)))
    passages = [passage for found in parts for passage in found]
    read = [passage for text, found in zip(texts, parts, strict=True) for passage in with_titles(text, found, SIZE)]
    assert len(passages) > 2 * len(texts)
    cosines = encoder.encode(queries, normalize_embeddings=True) @ encoder.encode(read, normalize_embeddings=True).T
    words = Words(passages, groups).scores(queries, 1.0)(slice(None))
    for search, scores in zip(list(found.values())[3:], (cosines, words, cosines + 0.6 * words), strict=True):
        of_documents = np.stack([scores[:, groups == number].max(axis=1) for number in range(len(texts))], axis=1)
        expected = run_of(rankings, of_documents)
        assert measure_run(search.run, relevance(rankings))["ndcg@10"] == ndcg_of(rankings, expected)
        for query_id, hits in expected.items():
            assert list(search.run[query_id].values()) == pytest.approx(list(hits.values()), abs=1e-5)
    # Alone, a unit needs no name.
    alone = run_searches({"it": encoder}, rankings, [SIZE], bm25=True, bm25_weight=0.6, **QUIET)
    assert list(alone) == list(found)[3:]
    assert [search.run for search in alone.values()] == [search.run for search in list(found.values())[3:]]
    rows = compare_searches({"it": encoder}, {"test": replace(rankings, chunk_size=SIZE)}, **QUIET)["test"]
    assert list(rows) == ["it (cosine, passages of 8)"]


def test_a_dot_product_has_no_row_with_bm25(rankings, save_encoder):
    model = load_sentence_transformer(save_encoder(), device="cpu")
    model.similarity_fn_name = "dot"
    assert list(run_searches({"it": model}, rankings, [0], bm25=True, **QUIET)) == ["it (dot)", "BM25"]


def test_a_reranker_orders_the_first_ones(rankings, encoder):
    found = run_searches({"it": encoder}, rankings, [0], bm25=True, **QUIET)
    both = found["it (cosine) with BM25"]
    text_of = dict(zip(rankings.corpus["doc_id"], rankings.corpus["text"], strict=True))
    expected = {}
    for query_id, hits in both.run.items():
        first, rest = list(hits)[:5], list(hits)[5:]
        order = [*sorted(first, key=lambda doc_id: -len(text_of[doc_id])), *rest]
        expected[query_id] = {doc_id: -float(place) for place, doc_id in enumerate(order)}
    (name, reranked), (other, blended) = rerank_search(by_length, "teacher", rankings, both, [5], weight=0)
    assert name == "teacher (reranks the top 5 of both)" and other == f"{name[:-1]}, blended)"
    # A reranker without weight.
    assert list(map(list, blended.run.values())) == list(map(list, both.run.values()))
    assert {query_id: list(hits) for query_id, hits in reranked.run.items()} == {
        query_id: list(hits) for query_id, hits in expected.items()
    }
    assert measure_run(reranked.run, relevance(rankings))["ndcg@10"] == ndcg_of(rankings, expected)
    assert measure_run(reranked.run, relevance(rankings))["ndcg@10"] != ndcg_of(rankings, both.run)


def test_a_reranker_reads_the_best_passages_with_their_titles(rankings, encoder):
    texts = [f"# Of {word}\n\n" + "The cat sat. " * 3 + f"It is {word}. " + "A dog ran. " * 3 for word in WORDS]
    columns = {"query": ["is old", "is new"], "documents": [[10], [11]], "labels": [[1], [1]]}
    made = make_rankings(columns, {"text": texts})
    (search,) = run_searches({"it": encoder}, made, [SIZE], **QUIET).values()
    read = []
    score = lambda queries, texts: read.extend(texts) or by_length(queries, texts)  # noqa: E731
    dict(rerank_search(score, "teacher", made, search, [4]))
    assert [len(found) for found in read] == [4, 4]
    parts = [
        with_titles(text, found, SIZE) for text, found in zip(texts, split_texts(encoder, texts, SIZE), strict=True)
    ]
    cosines = [encoder.similarity(encoder.encode(["is old"]), encoder.encode(found))[0] for found in parts]
    order = sorted(range(len(texts)), key=lambda row: -float(cosines[row].max()))[:4]
    assert read[0] == [parts[row][int(cosines[row].argmax())] for row in order]
    assert any(text.startswith("Of ") and "\n" in text for text in read[0]), read[0]


def test_what_searches_read_and_cost(rankings, encoder):
    found = run_searches({"it": encoder}, rankings, [0], bm25=True, **QUIET)
    assert list(found) == ["it (cosine)", "BM25", "it (cosine) with BM25"]
    own, words, both = found.values()
    found |= rerank_search(by_length, "reranker", rankings, both, (5, 20), tokens=40)
    few, _, many, _ = list(found.values())[3:]
    assert list(found)[3:] == [
        f"reranker (reranks the top {top} of both{ending})" for top in (5, 20) for ending in ("", ", blended")
    ]
    assert [search.tokens for search in found.values()] == [64, None, 64, *[40] * 4]
    assert [search.model for search in found.values()] == ["it", None, *["it"] * 5]
    assert [search.rerank_top for search in found.values()] == [None, None, None, 5, 5, 20, 20]
    assert [search.rerank_weight for search in found.values()] == [None, None, None, 1, 0.5, 1, 0.5]
    assert 0 < words.query_ms and 0 < own.query_ms and both.query_ms < few.query_ms < many.query_ms
    # BM25 alone needs no vectors.
    assert both.corpus_seconds == pytest.approx(own.corpus_seconds + words.corpus_seconds)
    assert few.costs == {**both.costs, "tokens": 40, "query_ms": few.query_ms}
    # Without BM25 the reranker orders the search by vectors.
    (own,) = run_searches({"it": encoder}, rankings, [0], **QUIET).values()
    names = dict(rerank_search(by_length, "reranker", rankings, own, (5, 20)))
    assert list(names)[::2] == [f"reranker (reranks the top {top} of the search)" for top in (5, 20)]


def test_no_more_tokens_of_a_passage_are_read_than_the_model_reads(rankings, encoder):
    short = to_sentence_transformer(encoder, max_length=32)
    found = run_searches({"it": short}, rankings, [0, 128], **QUIET)
    assert [search.tokens for search in found.values()] == [32, 32]


def test_long_queries_are_named_once(rankings, encoder, warnings):
    queries = [f"{query}{' cat' * 100}" for query in rankings.queries["query"]]
    columns = {"query": queries, "documents": [[row] for row in range(12)], "labels": [[1]] * 12}
    run_searches({"it": encoder}, make_rankings(columns, rankings.corpus), [0], **QUIET)
    (message,) = warnings
    assert message.startswith("12 of 12 texts are longer than the 64 tokens")


def test_a_query_that_is_too_long_for_the_reranker_keeps_its_order(rankings, encoder):
    def score(queries, texts):
        lists = by_length(queries, texts)
        return [[float("nan")] * len(lists[0]), *lists[1:]]

    (search,) = run_searches({"it": encoder}, rankings, [0], **QUIET).values()
    (_, reranked), _ = rerank_search(score, "it", rankings, search, (20,))
    order = [{key: sorted(hits, key=hits.get, reverse=True) for key, hits in part.run.items()}
             for part in (search, reranked)]  # fmt: skip
    assert order[0]["q0"] == order[1]["q0"] and order[0]["q1"] != order[1]["q1"]


def test_different_lengths_are_announced(rankings, save_encoder, warnings):
    folder = save_encoder()
    models = {f"to {length}": to_sentence_transformer(folder, max_length=length, device="cpu") for length in (64, 20)}
    compare_searches(models, {"test": rankings}, **QUIET)
    message = "read different numbers of tokens of a text: to 64 64, to 20 20. For a fair comparison add"
    assert any(message in text and text.endswith("`--max_length 20`.") for text in warnings)
