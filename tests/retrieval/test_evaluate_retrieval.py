# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation by the search in a corpus: against MTEB, against slow code, chunks, and comparisons."""

import json

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import CrossEncoder
from transformers import BertForSequenceClassification

from hf_dse import evaluate_retrieval, make_rankings, split_text
from hf_dse.data.arguments import DataArguments
from hf_dse.data.ranking_files import load_rankings
from hf_dse.data.ranking_rows import read_rankings
from hf_dse.modeling import DseModel
from hf_dse.retrieval import evaluate_retrieval as module
from hf_dse.retrieval.bm25 import bm25_scores, bm25_search
from hf_dse.retrieval.evaluate_retrieval import WITH_BM25, compare_runs, compare_searches, find_documents, rerank_run
from hf_dse.retrieval.metrics import RANKING_METRICS, as_run, ranking_metrics, relevance
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

WORDS = "the a cat dog sat ran on mat house is old new in and of".split()
QUIET = {"show_progress": False}


def make_data(num_documents=150, num_queries=12, seed=0):
    """Documents of random words with titles, queries that are parts of them, and graded judgements."""
    rng = np.random.default_rng(seed)
    corpus = [
        {
            "_id": f"d{number}",
            "title": " ".join(rng.choice(WORDS, number % 3)),
            "text": " ".join(rng.choice(WORDS, rng.integers(3, 25))),
        }
        for number in range(num_documents)
    ]
    queries, qrels = [], []
    for number in range(num_queries):
        queries.append({"_id": f"q{number}", "text": " ".join(corpus[number]["text"].split()[:4])})
        others = rng.choice(np.arange(num_queries, num_documents), 3, replace=False).tolist()
        qrels += [(f"q{number}", f"d{doc}", grade) for doc, grade in zip([number, *others], [2, 1, 1, 0], strict=True)]
    # This query is a document of the corpus.
    queries.append({"_id": f"d{num_documents - 1}", "text": corpus[-1]["text"]})
    qrels.append((f"d{num_documents - 1}", "d3", 1))
    return corpus, queries, qrels


@pytest.fixture(scope="module")
def rankings(tmp_path_factory):
    """Read from a folder in the layout of BEIR."""
    folder = tmp_path_factory.mktemp("beir")
    corpus, queries, qrels = make_data()
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return load_rankings(DataArguments(dataset_name=str(folder)), ["test"])["test"]


@pytest.mark.parametrize(("similarity", "prompts"), [("cosine", {}), ("dot", {"query": "the ", "document": "a: "})])
def test_the_values_are_those_of_mteb(similarity, prompts, save_encoder, rankings):
    mteb = pytest.importorskip("mteb")
    from mteb.tasks import SciFact

    corpus, queries, qrels = make_data()

    class LocalRetrieval(SciFact):
        metadata = SciFact.metadata.model_copy(update={"name": "LocalRetrieval", "prompt": None})
        ignore_identical_ids = True

        def load_data(self, *args, **kwargs):
            relevant = {row["_id"]: {} for row in queries}
            for query_id, doc_id, grade in qrels:
                relevant[query_id][doc_id] = grade
            split = {
                "corpus": Dataset.from_list([{**row, "id": row["_id"]} for row in corpus]),
                "queries": Dataset.from_list([{"id": row["_id"], "text": row["text"]} for row in queries]),
                "relevant_docs": relevant,
                "top_ranked": None,
            }
            self.dataset = {"default": {"test": split}}
            self.data_loaded = True

    folder = save_encoder(prompts)
    settings = {"prompts": prompts, "similarity_fn_name": similarity}
    (folder / "config_sentence_transformers.json").write_text(json.dumps(settings))
    model = load_sentence_transformer(str(folder), device="cpu")
    theirs = mteb.evaluate(model, LocalRetrieval(), cache=None, show_progress_bar=False)
    theirs = theirs.task_results[0].scores["test"][0]
    ours = evaluate_retrieval(model, rankings, **QUIET)
    assert ours.pop("num_queries") == len(queries)
    names = {name: f"{'map@100' if name == 'map' else name}".replace("@", "_at_") for name in RANKING_METRICS}
    assert ours == pytest.approx({name: theirs[names[name]] for name in RANKING_METRICS}, abs=1e-5)
    # Neither all nor nothing is found.
    assert 0.05 < ours["ndcg@10"] < 0.95


def test_candidates_of_lists_are_the_corpus(encoder):
    rows = {"query": ["the cat", "old house"], "positive": ["a cat sat", "a house is old"], "negative": ["new"] * 2}
    metrics = evaluate_retrieval(encoder, read_rankings(rows), **QUIET)
    assert (metrics["num_queries"], metrics["recall@10"]) == (2, 1.0)


def test_the_best_chunk_of_a_document_counts(encoder):
    texts = [" ".join(row["text"] for row in make_data(40, seed=seed)[0]) for seed in range(4)]
    queries = ["cat dog the old house", "a new mat"]
    columns = {"query": queries, "documents": [[0], [1]], "labels": [[1], [1]]}
    rankings = make_rankings(columns, {"text": [*texts, " "]})
    run = find_documents(encoder, rankings, module.embed_corpus(encoder, rankings, 30, **QUIET), 3, **QUIET)
    for query, found in zip(queries, run.values(), strict=True):
        best = {}
        for row, text in enumerate(texts):
            chunks = encoder.encode(split_text(text, encoder.tokenizer, 30))
            best[str(row)] = float(encoder.similarity(encoder.encode([query]), chunks).max())
        expected = sorted(best, key=best.get, reverse=True)[:3]
        assert list(found) == expected and len(chunks) > 10
        assert list(found.values()) == pytest.approx([best[row] for row in expected], abs=1e-5)


def test_nothing_is_embedded_that_cannot_be_measured(encoder, monkeypatch):
    monkeypatch.setattr(module, "embed", None)
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["a cat", "a dog"]})
    with pytest.raises(ValueError, match="None of the 1 queries has a relevant document"):
        evaluate_retrieval(encoder, rankings)
    with pytest.raises(ValueError, match="None of the 1 queries has a relevant document"):
        compare_searches(["missing"], {"test": rankings})


def test_a_reranker_orders_the_first_and_keeps_the_rest(rankings):
    ids, texts = rankings.corpus["doc_id"][:], rankings.corpus["text"][:]
    run = {
        query_id: {ids[(7 * row + start) % len(ids)]: -float(row) for row in range(6)}
        for start, query_id in enumerate(rankings.queries["query_id"][:])
    }
    again = rerank_run(lambda queries, texts: [[len(t) for t in found] for found in texts], rankings, run, 4)
    for query_id, found in run.items():
        scores = again[query_id]
        assert list(scores)[4:] == list(found)[4:]
        assert list(scores.values())[:4] == [len(texts[ids.index(doc_id)]) for doc_id in list(found)[:4]]
        assert max(list(scores.values())[4:]) < min(list(scores.values())[:4])


def test_differences_are_paired(rankings):
    """A search that is always a bit better differs surely, although queries vary much more."""
    judged = relevance(rankings)
    perfect = {query_id: dict(labels) for query_id, labels in judged.items()}
    first = {query_id: dict(list(found.items())[:1]) for query_id, found in perfect.items()}
    results = compare_runs({"first": first, "same": first, "all": perfect}, judged)
    assert "difference" not in results["first"]
    assert [results["same"][name] for name in ("difference", "low", "high")] == [0, 0, 0]
    row = results["all"]
    assert 0 < row["low"] <= row["difference"] <= row["high"]
    assert row["difference"] == pytest.approx(row["ndcg@10"] - results["first"]["ndcg@10"])


def test_searches_are_compared(rankings, make_model, bert_tokenizer, save_bert, save_encoder, tmp_path, monkeypatch):
    student, source = tmp_path / "student", str(save_encoder())
    make_model(DseModel).save_pretrained(student)
    bert_tokenizer.save_pretrained(student)
    reranker = save_bert(tmp_path / "reranker", BertForSequenceClassification, num_labels=1)
    embedded, embed = [], module.embed

    def count(model, texts, prompt_name="document", **options):
        embedded.append((prompt_name, len(texts)))
        return embed(model, texts, prompt_name, **options)

    monkeypatch.setattr(module, "embed", count)
    rows = compare_searches(
        [str(student), source],
        {"test": rankings, "again": rankings.select([0, 1])},
        bm25=True,
        reranker=CrossEncoder(str(reranker), device="cpu"),
        reranker_name="teacher",
        rerank_top=5,
        device="cpu",
        **QUIET,
    )
    # A corpus that splits share is embedded once per model.
    assert embedded.count(("document", 150)) == 2
    name = f"{student} (cosine)"
    names = [name, "BM25", name + WITH_BM25, "teacher (reranks the top 5)", f"{source} (cosine)"]
    assert list(rows["test"]) == names and list(rows["again"]) == names and rows["again"][name]["num_queries"] == 2
    model = load_sentence_transformer(str(student), device="cpu")
    expected = evaluate_retrieval(model, rankings, **QUIET)
    assert rows["test"][name] == pytest.approx(expected)
    queries, texts = rankings.queries["query"][:], rankings.corpus["text"][:]
    found = as_run(rankings, *bm25_search(queries, texts, 101), 100)
    assert rows["test"]["BM25"]["ndcg@10"] == ranking_metrics(found, relevance(rankings))["ndcg@10"] > 0.1
    assert rows["test"]["BM25"]["difference"] == pytest.approx(rows["test"]["BM25"]["ndcg@10"] - expected["ndcg@10"])
    vectors = [model.encode(part, normalize_embeddings=True) for part in (queries, texts)]
    scores = vectors[0] @ vectors[1].T + bm25_scores(queries, texts, 0.3)(slice(None))
    order = np.argsort(-scores, axis=1, kind="stable")
    found = as_run(rankings, np.take_along_axis(scores, order, axis=1), order, 100)
    both = ranking_metrics(found, relevance(rankings))
    assert rows["test"][name + WITH_BM25]["ndcg@10"] == pytest.approx(both["ndcg@10"])
    reranked = rows["test"]["teacher (reranks the top 5)"]
    assert reranked["recall@10"] == expected["recall@10"] and reranked["ndcg@10"] != expected["ndcg@10"]
    assert rows["test"][f"{source} (cosine)"]["low"] < rows["test"][f"{source} (cosine)"]["high"]


def test_bm25_is_not_added_to_dot_products(rankings, save_encoder, warnings):
    folder = save_encoder()
    (folder / "config_sentence_transformers.json").write_text('{"similarity_fn_name": "dot"}')
    rows = compare_searches([str(folder)], {"test": rankings}, bm25=True, device="cpu", **QUIET)["test"]
    assert list(rows) == [f"{folder} (dot)", "BM25"]
    assert any("which have no scale to add BM25 to: no row with both" in line for line in warnings)
    rows = compare_searches([str(folder)], {"test": rankings}, chunk_size=20, device="cpu", **QUIET)["test"]
    assert list(rows) == [f"{folder} (dot, best of chunks)"]
