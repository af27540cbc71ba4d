# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Searches side by side: paired differences, all rows against slow code, and what each reads and costs."""

import numpy as np
import pytest

from hf_dse import evaluate, make_rankings
from hf_dse.modeling import DseModel
from hf_dse.retrieval import comparison, evaluation
from hf_dse.retrieval.bm25 import Bm25Index, bm25_scores
from hf_dse.retrieval.comparison import WITH_BM25, compare_runs, compare_searches, run_searches
from hf_dse.retrieval.metrics import as_run, ranking_metrics, relevance
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

QUIET = {"show_progress": False}
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


@pytest.fixture(scope="module")
def rankings():
    """150 documents of random words; queries are parts of them; grades from 0 to 2."""
    rng = np.random.default_rng(0)
    texts = [" ".join(rng.choice(WORDS, rng.integers(3, 25))) for _ in range(150)]
    queries = [" ".join(text.split()[:4]) for text in texts[:12]]
    others = [rng.choice(np.arange(12, 150), 3, replace=False).tolist() for _ in queries]
    documents = [[number, *rows] for number, rows in enumerate(others)]
    return make_rankings({"query": queries, "documents": documents, "labels": [[2, 1, 1, 0]] * 12}, {"text": texts})


def test_differences_are_paired(rankings):
    """A search that is always a bit better differs surely, although queries vary much more."""
    judged = relevance(rankings)
    first = {query_id: dict(list(labels.items())[:1]) for query_id, labels in judged.items()}
    results = compare_runs({"first": first, "same": first, "all": judged}, judged)
    assert "difference" not in results["first"]
    assert [results["same"][name] for name in ("difference", "low", "high")] == [0, 0, 0]
    assert 0 < results["all"]["low"] <= results["all"]["difference"] <= results["all"]["high"]


def test_searches_are_compared(rankings, make_model, bert_tokenizer, save_encoder, tmp_path, monkeypatch):
    student, source = tmp_path / "student", str(save_encoder())
    make_model(DseModel).save_pretrained(student)
    bert_tokenizer.save_pretrained(student)
    embedded, embed = [], evaluation.embed

    def count(model, texts, prompt_name="document", **options):
        embedded.append((prompt_name, len(texts)))
        return embed(model, texts, prompt_name, **options)

    for module in (evaluation, comparison):
        monkeypatch.setattr(module, "embed", count)
    rows = compare_searches(
        {name: load_sentence_transformer(name, device="cpu") for name in (str(student), source)},
        {"test": rankings, "again": rankings.select([0, 1])},
        bm25=True,
        reranker=lambda queries, texts: [[len(text) for text in found] for found in texts],
        reranker_name="teacher",
        rerank_top=[5],
        **QUIET,
    )
    # A corpus that splits share is embedded once per model.
    assert embedded.count(("document", 150)) == 2
    name, other = f"{student} (cosine)", f"{source} (cosine)"
    names = [name, "BM25", name + WITH_BM25, "teacher (reranks the top 5 of both)", other, other + WITH_BM25]
    assert list(rows["test"]) == names and list(rows["again"]) == names and rows["again"][name]["num_queries"] == 2
    model = load_sentence_transformer(str(student), device="cpu")
    expected = evaluate(model, rankings, **QUIET)
    assert rows["test"][name] == pytest.approx({**expected, "tokens": 64})
    assert [row["tokens"] for row in rows["test"].values()] == [64, None, 64, None, 64, 64]
    queries, texts = rankings.queries["query"][:], rankings.corpus["text"][:]
    found = as_run(rankings, *Bm25Index(texts).search(queries, 101), 100)
    assert rows["test"]["BM25"]["ndcg@10"] == ranking_metrics(found, relevance(rankings))["ndcg@10"] > 0.1
    vectors = [model.encode(part, normalize_embeddings=True) for part in (queries, texts)]
    scores = vectors[0] @ vectors[1].T + bm25_scores(queries, texts, 0.3)(slice(None))
    order = np.argsort(-scores, axis=1, kind="stable")
    found = as_run(rankings, np.take_along_axis(scores, order, axis=1), order, 100)
    both = ranking_metrics(found, relevance(rankings))
    assert rows["test"][name + WITH_BM25]["ndcg@10"] == pytest.approx(both["ndcg@10"])
    # The reranker changes the order of the first five of both.
    first = {query_id: sorted(hits, key=hits.get, reverse=True) for query_id, hits in found.items()}
    text_of = dict(zip(rankings.corpus["doc_id"], texts, strict=True))
    again = {}
    for query_id, ids in first.items():
        again[query_id] = {doc_id: len(text_of[doc_id]) for doc_id in ids[:5]}
        again[query_id] |= {doc_id: -place for place, doc_id in enumerate(ids[5:])}
    expected = ranking_metrics(again, relevance(rankings))
    reranked = rows["test"]["teacher (reranks the top 5 of both)"]
    assert reranked["ndcg@10"] == pytest.approx(expected["ndcg@10"]) != pytest.approx(both["ndcg@10"])


def test_what_searches_read_and_cost(rankings, encoder, warnings):
    def score(queries, texts):
        return [[float(len(text)) for text in found] for found in texts]

    options = {"reranker": score, "reranker_tokens": 40, "rerank_top": (5, 20), "bm25": True, **QUIET}
    found = run_searches({"it": encoder}, {"test": rankings}, **options)["test"]
    assert list(found) == [
        *("it (cosine)", "BM25", "it (cosine) with BM25"),
        *("reranker (reranks the top 5 of both)", "reranker (reranks the top 20 of both)"),
    ]
    assert [search.tokens for search in found.values()] == [64, None, 64, 40, 40]
    assert [search.model for search in found.values()] == ["it", None, "it", "it", "it"]
    own, words, both, few, many = found.values()
    assert 0 < words.query_ms and 0 < own.query_ms and both.query_ms < few.query_ms < many.query_ms
    assert both.corpus_seconds == pytest.approx(own.corpus_seconds + words.corpus_seconds)
    # Without BM25 the reranker orders the search by vectors.
    options["bm25"] = False
    found = run_searches({"it": encoder}, {"test": rankings}, **options)["test"]
    assert list(found)[1:] == [f"reranker (reranks the top {top} of the search)" for top in (5, 20)]


def test_a_query_that_is_too_long_for_the_reranker_keeps_its_order(rankings, encoder):
    def score(queries, texts):
        lists = [[float(len(text)) for text in found] for found in texts]
        return [[float("nan")] * len(lists[0]), *lists[1:]]

    found = run_searches({"it": encoder}, {"": rankings}, reranker=score, rerank_top=(20,), **QUIET)[""]
    before, after = (search.run for search in found.values())
    order = [{key: sorted(hits, key=hits.get, reverse=True) for key, hits in run.items()} for run in (before, after)]
    assert order[0]["q0"] == order[1]["q0"] and order[0]["q1"] != order[1]["q1"]


def test_different_lengths_are_announced(rankings, save_encoder, warnings):
    folder = save_encoder()
    models = {
        f"to {length}": load_sentence_transformer(folder, max_length=length, device="cpu") for length in (64, 20)
    }
    compare_searches(models, {"test": rankings}, **QUIET)
    message = "read different numbers of tokens of a text: to 64 64, to 20 20. For a fair comparison add"
    assert any(message in text and text.endswith("`--max_length 20`.") for text in warnings)
