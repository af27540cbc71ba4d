# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation by the search in a corpus: against MTEB, against slow code, comparisons, and `hf-dse evaluate`."""

import json

import numpy as np
import pytest
import torch
from datasets import Dataset
from transformers import BertForSequenceClassification, BertModel

from hf_dse import encode_document, evaluate_retrieval, make_rankings, ranking_metrics
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.ranking_files import load_rankings
from hf_dse.evaluation.comparison import compare_runs, rerank
from hf_dse.evaluation.retrieval import as_run, relevance, search_corpus
from hf_dse.inference.encoding import encode
from hf_dse.metrics import RANKING_METRICS, bootstrap_interval
from hf_dse.mining.bm25 import bm25_search
from hf_dse.modeling import DseModel
from hf_dse.teacher.score_candidates import score_candidates
from hf_dse_cli import main


pytest.importorskip("pytrec_eval")

WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


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
        others = rng.choice(np.arange(num_queries, num_documents), 3, replace=False)
        grades = [2, 1, 1, 0]
        qrels += [
            (f"q{number}", f"d{doc}", grade) for doc, grade in zip([number, *others.tolist()], grades, strict=True)
        ]
    # This query is a document of the corpus.
    queries.append({"_id": f"d{num_documents - 1}", "text": corpus[-1]["text"]})
    qrels.append((f"d{num_documents - 1}", "d3", 1))
    return corpus, queries, qrels


@pytest.fixture(scope="session")
def beir(tmp_path_factory):
    """A folder in the layout of BEIR."""
    folder = tmp_path_factory.mktemp("beir")
    corpus, queries, qrels = make_data()
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", *("\t".join(map(str, row)) for row in qrels)]
    (folder / "qrels" / "test.tsv").write_text("\n".join(lines) + "\n")
    return folder


@pytest.fixture(scope="session")
def rankings(beir):
    return load_rankings(DataArguments(dataset_name=str(beir)), ["test"])["test"]


@pytest.fixture
def student(make_model, bert_tokenizer, tmp_path):
    """The folder of a student."""
    folder = tmp_path / "student"
    make_model(DseModel).save_pretrained(folder)
    bert_tokenizer.save_pretrained(folder)
    return folder


@pytest.mark.parametrize(("similarity", "prompts"), [("cosine", None), ("dot", {"query": "the ", "document": "a: "})])
def test_the_values_are_those_of_mteb(make_model, bert_tokenizer, rankings, tmp_path, similarity, prompts):
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

    model = make_model(DseModel, similarity=similarity, prompts=prompts)
    folder = tmp_path / "model"
    model.save_pretrained(folder)
    bert_tokenizer.save_pretrained(folder)
    from sentence_transformers import SentenceTransformer

    theirs = mteb.evaluate(
        SentenceTransformer(str(folder), device="cpu"),
        LocalRetrieval(),
        cache=None,
        show_progress_bar=False,
    )
    theirs = theirs.task_results[0].scores["test"][0]
    ours = evaluate_retrieval(model, bert_tokenizer, rankings, show_progress=False)
    assert ours.pop("num_queries") == len(queries)
    names = {name: f"{'map@100' if name == 'map' else name}".replace("@", "_at_") for name in RANKING_METRICS}
    assert ours == pytest.approx({name: theirs[names[name]] for name in RANKING_METRICS}, abs=1e-5)
    # Neither all nor nothing is found, and prompts change what is found.
    assert 0.05 < ours["ndcg@10"] < 0.95
    if prompts:
        model.config.prompts = None
        without = evaluate_retrieval(model, bert_tokenizer, rankings, show_progress=False)
        assert without["ndcg@10"] != pytest.approx(ours["ndcg@10"], abs=1e-3)


def test_the_search_is_exact_also_in_blocks(make_model, bert_tokenizer, rankings, monkeypatch):
    model = make_model(DseModel)
    run = search_corpus(model, bert_tokenizer, {"test": rankings}, 5, show_progress=False)["test"]
    texts, ids = rankings.corpus["text"][:], rankings.corpus["doc_id"][:]
    corpus, queries = (
        encode(model, bert_tokenizer, part, normalize=True, show_progress=False)
        for part in (texts, rankings.queries["query"][:])
    )
    for query_id, vector in zip(rankings.queries["query_id"][:], queries, strict=True):
        order = [ids[row] for row in np.argsort(-(corpus @ vector), kind="stable") if ids[row] != query_id]
        assert list(run[query_id]) == order[:5]
    monkeypatch.setattr("hf_dse.inference.search.BLOCK_ELEMENTS", 2 * len(texts))
    monkeypatch.setattr("hf_dse.inference.search.BLOCK_TEXTS", len(texts) // 2 - 1)
    again = search_corpus(model, bert_tokenizer, {"test": rankings}, 5, show_progress=False)["test"]
    for query_id, found in run.items():
        assert again[query_id] == pytest.approx(found, abs=1e-6)
    with pytest.raises(ValueError, match="top_k=0: it has to be at least 1"):
        evaluate_retrieval(model, bert_tokenizer, rankings, top_k=0, show_progress=False)


def test_only_the_query_itself_is_left_out():
    corpus = {"doc_id": ["1", "2", "3"], "text": ["Of cats. What purrs?", "Cats purr.", "Planes fly."]}
    queries = {"query_id": ["1", "3"], "query": ["What purrs?", "What flies?"], "documents": [[1], [2]]}
    rankings = make_rankings({**queries, "labels": [[1], [1]]}, corpus)
    scores, positions = np.array([[0.9, 0.5, 0.1]] * 2), np.array([[0, 1, 2], [2, 1, 0]])
    assert as_run(rankings, scores, positions, 2) == {"1": {"2": 0.5, "3": 0.1}, "3": {"3": 0.9, "2": 0.5}}
    assert relevance(rankings) == {"1": {"2": 1.0}, "3": {"3": 1.0}}
    # Where ids are numbers of rows, a document may have the id of a query that it answers with its own words.
    rows = {"query": ["Cats", "Planes"], "documents": [[0], [1]], "labels": [[1], [0]]}
    rankings = make_rankings(rows, {"text": ["Cats purr.", "Planes fly.", "Rain."]})
    assert {name: list(found) for name, found in as_run(rankings, scores, positions, 3).items()} == {
        "0": ["0", "1", "2"],
        "1": ["2", "0"],
    }


def test_lists_of_candidates_rank_all_candidates(make_model, bert_tokenizer):
    from hf_dse import read_rankings

    rows = {"query": ["the cat", "old house"], "positive": ["a cat sat", "a house is old"], "negative": ["new"] * 2}
    model = make_model(DseModel)
    metrics = evaluate_retrieval(model, bert_tokenizer, read_rankings(rows), show_progress=False)
    assert (metrics["num_queries"], metrics["recall@10"]) == (2, 1.0)


def test_errors(make_model, bert_tokenizer, save_bert, tmp_path):
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["a cat", "a dog"]})
    with pytest.raises(ValueError, match="None of the 1 queries has a relevant document"):
        evaluate_retrieval(make_model(DseModel), bert_tokenizer, rankings, show_progress=False)
    reranker = BertForSequenceClassification.from_pretrained(save_bert(tmp_path, BertForSequenceClassification))
    with pytest.raises(ValueError, match="scores pairs of texts, .* pass this model as `--rerank`"):
        evaluate_retrieval(reranker, bert_tokenizer, rankings, show_progress=False)


# Comparisons


def test_bootstrap_interval():
    rng = np.random.default_rng(1)
    differences = rng.normal(0.1, 1.0, 400)
    low, high = bootstrap_interval(differences)
    # Of a mean of many values it is about that of a normal distribution.
    error = differences.std() / np.sqrt(len(differences))
    assert low == pytest.approx(differences.mean() - 1.96 * error, abs=0.1 * error)
    assert high == pytest.approx(differences.mean() + 1.96 * error, abs=0.1 * error)
    assert bootstrap_interval(differences) == (low, high)
    assert bootstrap_interval(differences, seed=1) != (low, high)
    assert bootstrap_interval(np.full(5, 0.25)) == (0.25, 0.25)


def test_a_bootstrap_in_parts_is_the_same(monkeypatch):
    differences = np.random.default_rng(0).normal(size=7)
    expected = bootstrap_interval(differences)
    monkeypatch.setattr("hf_dse.metrics.RESAMPLED_VALUES", 100)
    assert bootstrap_interval(differences) == expected


def test_differences_are_paired(rankings):
    """A search that is always a bit better differs surely, although queries vary much more."""
    judged = relevance(rankings)
    perfect = {query_id: {doc_id: grade for doc_id, grade in labels.items()} for query_id, labels in judged.items()}
    first = {query_id: dict(list(found.items())[:1]) for query_id, found in perfect.items()}
    results = compare_runs({"first": first, "same": first, "all": perfect}, rankings)
    assert "difference" not in results["first"]
    assert [results["same"][name] for name in ("difference", "low", "high")] == [0, 0, 0]
    row = results["all"]
    assert 0 < row["low"] <= row["difference"] <= row["high"]
    assert row["difference"] == pytest.approx(row["ndcg@10"] - results["first"]["ndcg@10"])


def test_a_reranker_orders_the_first_and_keeps_the_rest(rankings, save_bert, tmp_path, bert_tokenizer):
    teacher = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1, initializer_range=0.5)
    ids = rankings.corpus["doc_id"][:]
    run = {
        query_id: {ids[(7 * row + start) % len(ids)]: -float(row) for row in range(6)}
        for start, query_id in enumerate(rankings.queries["query_id"][:])
    }
    again = rerank(str(teacher), rankings, run, 4, show_progress=False)
    model = BertForSequenceClassification.from_pretrained(teacher).eval()
    texts = dict(zip(ids, rankings.corpus["text"][:], strict=True))
    for query_id, query in zip(rankings.queries["query_id"][:], rankings.queries["query"][:], strict=True):
        found = list(run[query_id])
        assert list(again[query_id])[4:] == found[4:]
        batch = bert_tokenizer([query] * 4, [texts[doc_id] for doc_id in found[:4]], padding=True, return_tensors="pt")
        with torch.inference_mode():
            logits = model(**batch).logits[:, 0].tolist()
        assert list(again[query_id].values())[:4] == pytest.approx(logits, abs=1e-5)
        assert sorted(again[query_id].values())[:2] == list(again[query_id].values())[:3:-1]


def test_a_reranker_has_the_options_of_the_model_and_reads_all(
    beir, rankings, student, save_bert, tmp_path, monkeypatch
):
    teacher = save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1)
    seen = {}

    def spy(reranker, *args, **options):
        seen.update(options, dtype=reranker.model.dtype)
        return score_candidates(reranker, *args, **options)

    monkeypatch.setattr("hf_dse.evaluation.comparison.score_candidates", spy)
    options = ["--model_name_or_path", str(student), "--dataset_name", str(beir), "--device", "cpu"]
    compared = ["--rerank", str(teacher), "--rerank_top", "2", "--dtype", "bfloat16"]
    assert main(["evaluate", *options, "--split", "test", *compared]) == 0
    assert seen["windows"] == "best" and seen["dtype"] == torch.bfloat16


# hf-dse evaluate


def test_the_command(beir, rankings, student, save_bert, tmp_path, capsys, make_model, bert_tokenizer):
    pytest.importorskip("bm25s")
    pytest.importorskip("Stemmer")
    source = str(save_bert(tmp_path / "source", BertModel))
    teacher = str(save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1))
    output = tmp_path / "results.json"
    options = ["--model_name_or_path", str(student), "--dataset_name", str(beir), "--device", "cpu"]
    compared = ["--bm25", "--compare_with", source, "--rerank", teacher, "--rerank_top", "5"]
    assert main(["evaluate", *options, "--split", "test", *compared, "--output_file", str(output)]) == 0
    report = json.loads(output.read_text())
    expected = evaluate_retrieval(make_model(DseModel), bert_tokenizer, rankings, show_progress=False)
    assert report["results"]["test"] == pytest.approx(expected)
    assert report["task_name"] == "retrieval" and report["num_documents"] == {"test": 150}
    rows = report["comparison"]["test"]
    both = f"{student} (cosine) with BM25"
    names = [f"{student} (cosine)", f"{source} (cosine)", "BM25", both, f"{teacher} (reranks the top 5)"]
    assert list(rows) == names
    assert rows[names[0]] == report["results"]["test"]
    found = as_run(rankings, *bm25_search(rankings.queries["query"][:], rankings.corpus["text"][:], 101), 100)
    assert rows["BM25"]["ndcg@10"] == ranking_metrics(found, relevance(rankings))["ndcg@10"] > 0.1
    assert rows["BM25"]["difference"] == pytest.approx(rows["BM25"]["ndcg@10"] - expected["ndcg@10"])
    assert rows[names[4]]["recall@10"] == expected["recall@10"]
    assert rows[names[4]]["recall@100"] == expected["recall@100"]
    assert report["bm25_weight"] == 0.3
    with_words = with_bm25(make_model(DseModel), bert_tokenizer, rankings, 0.3)
    assert rows[both]["ndcg@10"] == pytest.approx(with_words["ndcg@10"])
    assert rows[both]["recall@100"] == pytest.approx(with_words["recall@100"])
    assert rows[both]["ndcg@10"] not in (rows["BM25"]["ndcg@10"], expected["ndcg@10"])
    assert rows[both]["difference"] == pytest.approx(rows[both]["ndcg@10"] - expected["ndcg@10"])
    assert rows[both]["low"] < rows[both]["difference"] < rows[both]["high"]
    printed = capsys.readouterr().out.splitlines()
    assert printed[0] == "test: each query ranks all 150 documents; values x 100"
    assert printed[1].split() == ["search", "num_queries", *RANKING_METRICS, "difference", "low", "high"]
    assert f"{100 * expected['ndcg@10']:.2f}" in printed[2]
    assert [line.split("  ")[0] for line in printed[2:7]] == names
    assert "95 % interval" in printed[7]
    assert printed[8] == "with BM25: 0.3 x BM25 / (best BM25 of the query) is added to the cosine"


def with_bm25(model, tokenizer, rankings, weight):
    """The metrics of the cosine and BM25 together, with the scores of all documents."""
    texts, ids = rankings.corpus["text"][:], rankings.corpus["doc_id"][:]
    queries, query_ids = rankings.queries["query"][:], rankings.queries["query_id"][:]
    vectors, of_queries = (
        encode(model, tokenizer, part, normalize=True, show_progress=False) for part in (texts, queries)
    )
    run = {}
    for query_id, query, vector in zip(query_ids, queries, of_queries, strict=True):
        (values,), (rows,) = bm25_search([query], texts, len(texts))
        scores = vectors @ vector
        scores[rows] += weight * values / (values.max() or 1)
        best = np.argsort(-scores, kind="stable")
        run[query_id] = {ids[row]: scores[row] for row in [row for row in best if ids[row] != query_id][:100]}
    return ranking_metrics(run, relevance(rankings))


@pytest.mark.parametrize("weight", ["0", "2"])
def test_the_weight_of_bm25(beir, rankings, student, weight, tmp_path, capsys, make_model, bert_tokenizer):
    pytest.importorskip("bm25s")
    output = tmp_path / "results.json"
    options = ["--model_name_or_path", str(student), "--dataset_name", str(beir), "--device", "cpu", "--bm25"]
    assert main(["evaluate", *options, "--bm25_weight", weight, "--output_file", str(output)]) == 0
    report = json.loads(output.read_text())
    assert report["bm25_weight"] == float(weight)
    rows, printed = report["comparison"]["test"], capsys.readouterr().out
    names = [f"{student} (cosine)", "BM25"]
    if weight == "0":
        assert list(rows) == names and "with BM25" not in printed
    else:
        assert list(rows) == [*names, f"{names[0]} with BM25"] and "with BM25: 2.0 x BM25" in printed
        expected = with_bm25(make_model(DseModel), bert_tokenizer, rankings, 2)
        assert rows[f"{names[0]} with BM25"]["ndcg@10"] == pytest.approx(expected["ndcg@10"])


def test_bm25_is_not_added_to_dot_products(beir, student, make_model, capsys):
    pytest.importorskip("bm25s")
    make_model(similarity="dot").save_pretrained(student)
    argv = ["--model_name_or_path", str(student), "--dataset_name", str(beir), "--device", "cpu", "--bm25"]
    assert main(["evaluate", *argv]) == 0
    printed = capsys.readouterr()
    assert "which have no scale to add BM25 to: no row with both" in printed.err
    assert [line.split("  ")[0] for line in printed.out.splitlines()[2:4]] == [f"{student} (dot)", "BM25"]
    assert "with BM25" not in printed.out


def test_the_command_without_comparisons(beir, student, capsys):
    assert main(["evaluate", "--model_name_or_path", str(student), "--dataset_name", str(beir)]) == 0
    printed = capsys.readouterr().out
    assert len(printed.splitlines()) == 3 and "difference" not in printed


def test_errors_of_the_command(beir, student, save_bert, tmp_path, capsys):
    teacher = str(save_bert(tmp_path / "teacher", BertForSequenceClassification, num_labels=1))
    cases = [
        (teacher, beir, [], "pass this model as `--rerank`"),
        (student, "embedded", ["--bm25"], "these data are sentence pairs"),
        (student, beir, ["--rerank_top", "0"], "rerank_top=0"),
        (student, beir, ["--rerank_top", "140"], "rerank_top=140: there is no reranker; add `--rerank MODEL`"),
        (student, beir, ["--bm25_weight", "0.6"], "bm25_weight=0.6: there is no BM25 to weigh; add `--bm25`"),
        (student, beir, ["--bm25_weight", "-1"], "bm25_weight=-1.0: it has to be at least 0"),
        (student, beir, ["--bm25_weight", "nan"], "bm25_weight=nan: it has to be a finite number"),
        (student, beir, ["--split", "train"], "no split train"),
    ]
    for model, data, options, message in cases:
        assert main(["evaluate", "--model_name_or_path", str(model), "--dataset_name", str(data), *options]) == 2
        assert message in capsys.readouterr().err


def test_means_are_over_queries(rankings):
    judged = relevance(rankings)
    run = {query_id: {} for query_id in judged}
    run["q0"] = {"d0": 1.0}
    assert ranking_metrics(run, judged)["recall@1"] == pytest.approx(1 / 3 / len(judged))


def test_splits_embed_a_shared_corpus_once(make_model, bert_tokenizer, rankings, monkeypatch):
    model = make_model(DseModel)
    encoded = []

    def count(model, tokenizer, texts, **options):
        encoded.append(len(texts))
        return encode_document(model, tokenizer, texts, **options)

    monkeypatch.setattr("hf_dse.inference.chunks.encode_document", count)
    splits = {"validation": rankings.select([0, 1]), "test": rankings.select([2, 3])}
    runs = search_corpus(model, bert_tokenizer, splits, 5, show_progress=False)
    assert encoded == [len(rankings.corpus)]
    # A corpus of its own is embedded, too.
    other = {**splits, "other": keep_documents(rankings.select([0]))}
    assert search_corpus(model, bert_tokenizer, other, 5, show_progress=False)["test"] == runs["test"]
    assert encoded[1:] == [len(rankings.corpus), len(other["other"].corpus)]
