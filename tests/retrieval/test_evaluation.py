# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation: pairs by the head and the cosine; searches against MTEB and slow code, chunks, and comparisons."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from sklearn.metrics import average_precision_score

from hf_dse import encode, evaluate, make_rankings, split_text
from hf_dse.data.arguments import DataArguments, PairTask
from hf_dse.data.ranking_files import load_rankings
from hf_dse.modeling import DseModel
from hf_dse.retrieval import evaluation
from hf_dse.retrieval.evaluation import evaluate_pairs, find_documents
from hf_dse.retrieval.metrics import RANKING_METRICS
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


pytest.importorskip("pytrec_eval")
pytest.importorskip("bm25s")

QUIET = {"show_progress": False}
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()

PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "is old", "new dog"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "old mat", "the dog sat", "a dog ran"],
}


def logits_of(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(*PAIRS.values(), padding=True, return_tensors="pt")).logits


def test_binary_cosine_is_average_precision(make_model, bert_tokenizer, warnings):
    # Two equal pairs with different labels: ties must not depend on the order of the rows.
    rows, labels = {name: texts + texts[:1] for name, texts in PAIRS.items()}, [1, 0, 1, 0, 0, 1, 0]
    dataset, model = Dataset.from_dict({**rows, "label": labels}), make_model(DseModel)
    task = PairTask("pairs", num_labels=2, symmetric=True)
    u, v = (encode(model, bert_tokenizer, rows[name], normalize=True, **QUIET) for name in rows)
    expected = average_precision_score(labels, (u * v).sum(axis=1).round(6))
    assert evaluate_pairs(model, bert_tokenizer, dataset, task, **QUIET) == {"cosine_ap": pytest.approx(expected)}
    negative = Dataset.from_dict({**PAIRS, "label": [0] * 6})
    with pytest.raises(ValueError, match="average precision is undefined"):
        evaluate_pairs(model, bert_tokenizer, negative, task, **QUIET)
    # The metrics of a head are kept.
    model = make_model(num_labels=2, problem_type="single_label_classification", similarity="mlp")
    right = (logits_of(model, bert_tokenizer).argmax(dim=1) == 0).float().mean().item()
    metrics = evaluate_pairs(model, bert_tokenizer, negative, task, **QUIET)
    assert metrics["accuracy"] == pytest.approx(right) and "cosine_ap" not in metrics
    assert any(text.startswith("There are no metrics of the cosine: The average") for text in warnings)


def test_asymmetric_tasks_need_a_head(make_model, bert_tokenizer):
    model = make_model(num_labels=2, similarity="mlp")
    with torch.no_grad():
        # A model with random weights may predict a single class.
        difference = logits_of(model, bert_tokenizer).diff(dim=1)
        model.similarity.out_proj.bias[1] -= difference.median() - 1e-3
    predictions = logits_of(model, bert_tokenizer).argmax(dim=1).tolist()
    dataset = Dataset.from_dict({**PAIRS, "label": [*predictions[:-1], 1 - predictions[-1]]})
    metrics = evaluate_pairs(model, bert_tokenizer, dataset, "qnli", **QUIET)
    assert set(metrics) == {"accuracy", "f1"} and metrics["accuracy"] == pytest.approx(5 / 6)
    with pytest.raises(ValueError, match="cannot score task 'qnli'"):
        evaluate_pairs(make_model(DseModel), bert_tokenizer, dataset, "qnli", **QUIET)


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
    ours = evaluate(model, rankings, **QUIET)
    assert ours.pop("num_queries") == len(queries)
    names = {name: f"{'map@100' if name == 'map' else name}".replace("@", "_at_") for name in RANKING_METRICS}
    assert ours == pytest.approx({name: theirs[names[name]] for name in RANKING_METRICS}, abs=1e-5)
    assert 0.05 < ours["ndcg@10"] < 0.95


def test_the_best_chunk_of_a_document_counts(encoder):
    texts = [" ".join(row["text"] for row in make_data(40, seed=seed)[0]) for seed in range(4)]
    queries = ["cat dog the old house", "a new mat"]
    columns = {"query": queries, "documents": [[0], [1]], "labels": [[1], [1]]}
    rankings = make_rankings(columns, {"text": [*texts, " "]})
    vectors, documents, _ = evaluation.embed_corpus(encoder, rankings, 30, **QUIET)
    run = find_documents(rankings, encoder.encode(queries), vectors, documents, 3, cosine=True)
    for query, found in zip(queries, run.values(), strict=True):
        best = {}
        for row, text in enumerate(texts):
            chunks = encoder.encode(split_text(text, encoder.tokenizer, 30))
            best[str(row)] = float(encoder.similarity(encoder.encode([query]), chunks).max())
        expected = sorted(best, key=best.get, reverse=True)[:3]
        assert list(found) == expected and len(chunks) > 10
        assert list(found.values()) == pytest.approx([best[row] for row in expected], abs=1e-5)


def test_blank_documents_are_not_found(encoder, warnings):
    """A model gives all of them one vector, which was the best for some queries."""
    rankings = make_rankings({"query": ["?!"], "documents": [[2]], "labels": [[1]]}, {"text": ["", " ", "cats purr"]})
    assert evaluate(encoder, rankings, **QUIET)["mrr@10"] == 1.0
    assert "2 of 3 documents are blank and are left out." in warnings


def test_nothing_is_embedded_that_cannot_be_measured(encoder, monkeypatch):
    monkeypatch.setattr(evaluation, "embed", None)
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["a cat", "a dog"]})
    with pytest.raises(ValueError, match="None of the 1 queries has a relevant document"):
        evaluate(encoder, rankings)
