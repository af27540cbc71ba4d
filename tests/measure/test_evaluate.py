# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`evaluate` of named and loaded models on named and loaded data; searches against MTEB and slow code."""

import copy
import json
import tempfile
from dataclasses import replace

import numpy as np
import pytest
import torch
from datasets import ClassLabel, Dataset
from sklearn.metrics import average_precision_score
from transformers import AutoTokenizer

from hf_dse import (
    DataArguments,
    DseForSequenceClassification,
    DseModel,
    assess,
    evaluate,
    export,
    load_pairs,
    load_rankings,
    make_rankings,
    mine,
    score,
    to_sentence_transformer,
)
from hf_dse.common.display import format_table
from hf_dse.data.options import PairTask
from hf_dse.data.passages import with_titles
from hf_dse.measure.evaluate import evaluate_pairs
from hf_dse.measure.metrics import RANKING_METRICS, measure_run, relevance
from hf_dse.retrieval import index as indexing
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer, split_texts
from hf_dse_cli import main


pytest.importorskip("pytrec_eval")

QUIET = {"show_progress": False}
PAIRS = {
    "sentence1": ["the cat sat", "a dog ran", "old house", "the cat sat", "is old", "new dog"],
    "sentence2": ["a cat sat on the mat", "the cat sat", "new house", "old mat", "the dog sat", "a dog ran"],
}
WORDS = "the a cat dog sat ran on mat house is old new in and of".split()


@pytest.fixture
def student(make_model, bert_tokenizer, tmp_path):
    return export(make_model(DseForSequenceClassification, num_labels=1), tmp_path / "student", bert_tokenizer)


def test_pairs_by_name_and_loaded(student, assets, capsys):
    data = assets / "data"
    pairs = load_pairs(DataArguments(dataset_name=str(data), num_labels=1))
    model, tokenizer = DseForSequenceClassification.from_pretrained(student), AutoTokenizer.from_pretrained(student)
    expected = evaluate_pairs(model, tokenizer, pairs["validation"], "stsb", **QUIET)
    options = {"num_labels": 1, "device": "cpu", **QUIET}
    assert evaluate(student, data, **options) == evaluate(str(student), str(data), **options) == expected
    assert evaluate(model, pairs["validation"], tokenizer, task_name="stsb", **QUIET) == expected
    assert evaluate(student, data, split="test", max_length=4, **options) == evaluate_pairs(
        model, tokenizer, pairs["test"], "stsb", max_length=4, **QUIET
    )
    # A `SentenceTransformer` has no head. The command says the same of a student.
    cosine = evaluate(load_sentence_transformer(student, device="cpu"), pairs["validation"], num_labels=1, **QUIET)
    assert cosine == pytest.approx({name: expected[name] for name in ("cosine_pearson", "cosine_spearman")}, abs=1e-5)
    command = ["evaluate", "--model", str(student), "--dataset", str(data), "--num_labels", "1", "--device", "cpu"]
    assert main(command) == 0
    assert capsys.readouterr().out == format_table({"validation": {"num_pairs": 12, **expected}}) + "\n"


def test_loaded_pairs_are_checked(student):
    pairs = Dataset.from_dict({"sentence1": ["a cat", "a dog"], "sentence2": ["cats", "rain"], "label": [2, 1]})
    model = load_sentence_transformer(student, device="cpu")
    with pytest.raises(ValueError, match="the label 2 is not a class from 0 to 1"):
        evaluate(model, pairs, num_labels=2, symmetric=True, **QUIET)


def test_an_option_that_does_not_exist(student, assets):
    model, data = load_sentence_transformer(student, device="cpu"), load_rankings(str(assets / "queries"))["test"]
    for call in (evaluate, assess):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) has no option 'chunksize'; those of loading are"):
            call(model, data, chunksize=64)
    for call, given in ((score, (model, data)), (mine, (data, model))):
        with pytest.raises(TypeError, match=rf"{call.__name__}\(\) has no option 'window'"):
            call(*given, window="best")


def test_searches_by_name_and_loaded(student, assets):
    data = assets / "queries"
    splits = load_rankings(str(data))
    model = load_sentence_transformer(student, device="cpu")
    expected = evaluate(model, splits["test"], **QUIET)
    assert evaluate(student, data, device="cpu", **QUIET) == expected
    for name, split in splits.items():
        assert evaluate(model, DataArguments(dataset_name=str(data)), split=name, **QUIET) == evaluate(
            model, split, **QUIET
        )
    bare, tokenizer = DseModel.from_pretrained(student), AutoTokenizer.from_pretrained(student)
    assert evaluate(bare, splits["test"], tokenizer, **QUIET) == expected
    short = to_sentence_transformer(student, device="cpu", max_length=4)
    cut = evaluate(short, splits["test"], **QUIET)
    assert cut != expected
    for given in ((student, data), (bare, splits["test"], tokenizer), (model, splits["test"])):
        assert evaluate(*given, max_length=4, **QUIET) == cut


def test_what_cannot_be_evaluated_is_named(student, assets, make_model, bert_tokenizer):
    model = load_sentence_transformer(student, device="cpu")
    rows = load_pairs(DataArguments(dataset_name=str(assets / "data"), num_labels=1))["test"]
    one = {"num_labels": 1}
    named = DataArguments(dataset_name=str(assets / "data"), chunk_size=8)
    rankings = make_rankings({"query": ["a"], "documents": [[0]], "labels": [[1]]}, {"text": ["a cat"]})
    for given, options, error, message in (
        ((model, rows), {**one, "chunk_size": 8}, ValueError, "chunk_size=8 is for the search in a corpus"),
        ((model, named), one, ValueError, "chunk_size=8 is for the search in a corpus"),
        ((model, rankings), {"symmetric": True}, ValueError, "symmetric=True is for sentence pairs, and the data are"),
        ((3, rows), one, TypeError, "The model is a int, and has to be a `SentenceTransformer` with a transf"),
        ((make_model(), rows), one, TypeError, "A loaded `model` needs its tokenizer: pass `processing_class`"),
    ):
        with pytest.raises(error, match=message):
            evaluate(*given, **options, **QUIET)


def logits_of(model, tokenizer):
    with torch.no_grad():
        return model(**tokenizer(*PAIRS.values(), padding=True, return_tensors="pt")).logits


def test_binary_cosine_is_average_precision(make_model, bert_tokenizer, warnings):
    # Two equal pairs with different labels: ties must not depend on the order of the rows.
    rows, labels = {name: texts + texts[:1] for name, texts in PAIRS.items()}, [1, 0, 1, 0, 0, 1, 0]
    dataset, model = Dataset.from_dict({**rows, "label": labels}), make_model(DseModel)
    task = PairTask("pairs", num_labels=2, symmetric=True)
    encoder = to_sentence_transformer(model, bert_tokenizer)
    u, v = (encoder.encode(rows[name], normalize_embeddings=True, show_progress_bar=False) for name in rows)
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


def test_classes_are_matched_by_name(make_model, bert_tokenizer):
    model = make_model(num_labels=3, problem_type="single_label_classification", similarity="mlp")
    labels = logits_of(model, bert_tokenizer).argmax(dim=1).tolist()
    model.config.id2label = dict(enumerate(["no", "maybe", "yes"]))
    for names, order in ((["no", "maybe", "yes"], [0, 1, 2]), (["yes", "no", "maybe"], [1, 2, 0])):
        rows = Dataset.from_dict({**PAIRS, "label": [order[label] for label in labels]})
        pairs = rows.cast_column("label", ClassLabel(names=names))
        assert evaluate(model, pairs, bert_tokenizer, num_labels=3, **QUIET)["accuracy"] == 1


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


def test_the_student_is_left_as_it_was(make_model, bert_tokenizer):
    """In the middle of a training, with a layer that is not trained."""
    model = make_model(similarity="mlp").train()
    model.dse.encoder.embeddings.eval()
    before = {name: module.training for name, module in model.named_modules()}
    dataset, length = Dataset.from_dict({**PAIRS, "label": [0.0, 1.0, 2.0, 3.0, 4.0, 5.0]}), 4
    found = evaluate_pairs(model, bert_tokenizer, dataset, "stsb", max_length=length, **QUIET)
    assert {name: module.training for name, module in model.named_modules()} == before
    assert bert_tokenizer.model_max_length == 64
    assert evaluate_pairs(model.eval(), bert_tokenizer, dataset, "stsb", max_length=length, **QUIET) == found


# Searches


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


def test_the_best_passage_of_a_document_counts(encoder):
    texts = ["# Of the cat\n\n" + " ".join(row["text"] for row in make_data(40, seed=seed)[0]) for seed in range(4)]
    queries = ["cat dog the old house", "a new mat"]
    columns = {"query": queries, "documents": [[0], [1]], "labels": [[1], [1]]}
    rankings = make_rankings(columns, {"text": [*texts, " "]})
    run = indexing.Index.of(encoder, rankings, 30, **QUIET).run(rankings, 3)
    for query, found in zip(queries, run.values(), strict=True):
        best = {}
        for row, text in enumerate(texts):
            (passages,) = split_texts(encoder, [text], 30)
            vectors = encoder.encode(with_titles(text, passages, 30))
            best[str(row)] = float(encoder.similarity(encoder.encode([query]), vectors).max())
        expected = sorted(best, key=best.get, reverse=True)[:3]
        assert list(found) == expected and len(passages) > 10
        assert list(found.values()) == pytest.approx([best[row] for row in expected], abs=1e-5)
    # The unit is that of the data, or the one that is asked for.
    measured = measure_run(indexing.Index.of(encoder, rankings, 30, **QUIET).run(rankings), relevance(rankings))
    for given, options in ((rankings, {"chunk_size": 30}), (replace(rankings, chunk_size=30), {})):
        assert evaluate(encoder, given, **options, **QUIET) == {"num_queries": 2, **measured}
    whole = evaluate(encoder, rankings, **QUIET)
    assert evaluate(encoder, replace(rankings, chunk_size=30), chunk_size=0, **QUIET) == whole


@pytest.mark.parametrize("is_split", [False, True])
def test_a_document_that_is_the_query_is_left_out_with_its_passages(encoder, is_split):
    corpus = {"doc_id": ["d", "e"], "text": ["cat dog on the mat. old house is new", "a cat"]}
    documents, own = [[1]], {"query_id": ["d"], "query": ["cat dog on the mat"]}
    if is_split:
        parts = ["cat dog on the mat. ", "old house is new", "a cat"]
        corpus, documents = {"doc_id": ["d#1", "d#2", "e#1"], "passage_of": ["d", "d", "e"], "text": parts}, [[2]]
    rankings = make_rankings({**own, "documents": documents, "labels": [[1]]}, corpus)
    assert evaluate(encoder, rankings, chunk_size=None if is_split else 6, **QUIET)["recall@1"] == 1


def test_blank_documents_are_not_found(encoder, warnings):
    """A model gives all of them one vector, which was the best for some queries."""
    rankings = make_rankings({"query": ["?!"], "documents": [[2]], "labels": [[1]]}, {"text": ["", " ", "cats purr"]})
    assert evaluate(encoder, rankings, **QUIET)["mrr@10"] == 1.0
    assert "2 of 3 texts are blank and are left out." in warnings


def test_nothing_is_embedded_that_cannot_be_measured(encoder, monkeypatch):
    monkeypatch.setattr(indexing, "embed", None)
    rankings = make_rankings({"query": ["the cat"], "documents": [[0]]}, {"text": ["a cat", "a dog"]})
    with pytest.raises(ValueError, match="None of the 1 queries has a relevant document"):
        evaluate(encoder, rankings)


@pytest.mark.parametrize("max_length", [None, 8])
def test_a_loaded_model_stays_as_it_is(max_length, make_model, bert_tokenizer, rankings, monkeypatch):
    """It shares its weights with what is measured, without a folder between them."""
    for name in ("mkdtemp", "TemporaryDirectory"):
        monkeypatch.setattr(tempfile, name, None)
    tokenizer = copy.deepcopy(bert_tokenizer)
    tokenizer.padding_side = "left"
    model = make_model(DseModel).train()
    model.encoder.embeddings.eval()
    model.save_pretrained = None

    def state_of():
        modes = {name: module.training for name, module in model.named_modules()}
        return modes, tokenizer.padding_side, tokenizer.model_max_length, json.dumps(model.config.to_dict())

    before, weights = state_of(), {name: tensor.clone() for name, tensor in model.state_dict().items()}
    found = evaluate(model, rankings, tokenizer, max_length=max_length, **QUIET)
    assert state_of() == before and all(tensor.equal(weights[name]) for name, tensor in model.state_dict().items())
    encoder = to_sentence_transformer(model, bert_tokenizer)
    sides = {"query": encoder.max_seq_length, "prompts": dict(encoder.prompts)}
    assert evaluate(encoder, rankings, max_length=max_length, **QUIET) == pytest.approx(found)
    assert sides == {"query": encoder.max_seq_length, "prompts": dict(encoder.prompts)}
