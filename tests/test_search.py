# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ranking by the cosine and every kind of head against brute force, the two-step ranker, and `hf-dse search`."""

import datetime
import json
import math

import numpy as np
import pyarrow.parquet
import pytest
import torch
from datasets import Dataset
from flags import to_flags
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import AutoModel, BertConfig, BertForSequenceClassification

import hf_dse.inference.search
from hf_dse import (
    DataArguments,
    DseConfig,
    DseForSequenceClassification,
    DseModel,
    encode,
    load_corpus,
    rank,
)
from hf_dse_cli import main


SIZE = 8
TEXTS = [
    f"{article} {age} {animal} {verb} on {place}"
    for article in ("the", "a")
    for age in ("old", "new")
    for animal in ("cat", "dog")
    for verb in ("sat", "ran")
    for place in ("mat", "house")
]
QUERIES = ["a cat sat", "the dog ran in the house", "old"]


def make(similarity, num_labels=1, seed=0, model_class=DseForSequenceClassification, **fields):
    """Makes a model whose head has random weights; scales can be positive or negative."""
    torch.manual_seed(seed)
    config = DseConfig(
        vocab_size=8,
        hidden_size=SIZE,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=8,
        similarity=similarity,
        similarity_hidden_size=6,
        num_labels=num_labels,
        **fields,
    )
    model = model_class(config).eval()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter.copy_(torch.randn_like(parameter))
    return model


def vectors(number, seed=0):
    return np.random.default_rng(seed).normal(size=(number, SIZE)).astype(np.float32)


def cosine(first, second):
    return first @ second / (np.linalg.norm(first) * np.linalg.norm(second))


def logits_of(model, query, text):
    """Computes the logits of a single pair."""
    weights = {name: weight.double().numpy() for name, weight in model.similarity.state_dict().items()}
    query, text = query.astype(np.float64), text.astype(np.float64)
    if model.config.similarity == "mlp":
        features = np.concatenate([query, text, query * text, np.abs(query - text)])
        hidden = np.maximum(weights["dense.weight"] @ features + weights["dense.bias"], 0.0)
        return weights["out_proj.weight"] @ hidden + weights["out_proj.bias"]
    similarity = cosine(query, text) if model.config.similarity == "cosine" else query @ text
    return similarity * weights["scale"] + weights["bias"]


def brute_force(model, queries, corpus, logit=0):
    """Computes the score of every text for every query, of shape `(num_queries, num_texts)`."""
    scores = [[logits_of(model, query, text)[logit] for text in corpus] for query in queries]
    return np.array(scores).reshape(len(queries), len(corpus))


def assert_best(positions, scores, expected):
    """Checks that scores are the largest expected ones in order, and that each belongs to its text."""
    top_k = positions.shape[1]
    np.testing.assert_allclose(scores, -np.sort(-expected, axis=1)[:, :top_k], rtol=1e-4, atol=1e-4)
    np.testing.assert_allclose(scores, np.take_along_axis(expected, positions, axis=1), rtol=1e-4, atol=1e-4)
    assert all(len(set(row)) == top_k for row in positions.tolist())


CROSS_ENCODER = BertForSequenceClassification(
    BertConfig(vocab_size=8, hidden_size=SIZE, num_hidden_layers=1, num_attention_heads=2, num_labels=1)
)


@pytest.fixture(params=["cosine", "dot", "mlp"])
def similarity(request):
    return request.param


class TestRank:
    @settings(max_examples=60, deadline=None)
    @given(
        similarity=st.sampled_from(["cosine", "dot", "mlp"]),
        logit_of=st.sampled_from([(1, 0), (2, 0), (2, 1), (3, 1)]),
        sizes=st.tuples(st.integers(0, 4), st.integers(1, 25), st.integers(1, 30)),
        seed=st.integers(0, 10_000),
    )
    def test_equals_brute_force(self, similarity, logit_of, sizes, seed):
        (num_labels, logit), (num_queries, num_texts, top_k) = logit_of, sizes
        model = make(similarity, num_labels, seed)
        queries, corpus = vectors(num_queries, seed), vectors(num_texts, seed + 1)
        label = None if num_labels == 1 else logit
        scores, positions = rank(
            queries, corpus, top_k=top_k, head=model, pool=None, label=label, batch_size=7, show_progress=False
        )
        assert positions.shape == scores.shape == (num_queries, min(top_k, num_texts))
        assert (positions.dtype, scores.dtype) == (np.int64, np.float32)
        assert_best(positions, scores, brute_force(model, queries, corpus, logit))

    @pytest.mark.parametrize("kind", ["cosine", "dot"])
    @pytest.mark.parametrize("scale", [2.0, -2.0, 0.0])
    def test_sign_of_the_scale_determines_the_order(self, kind, scale):
        model = make(kind)
        with torch.no_grad():
            model.similarity.scale.fill_(scale)
            model.similarity.bias.fill_(0.5)
        queries, corpus = vectors(3), vectors(20, seed=1)
        # The pool is ignored here.
        scores, positions = rank(queries, corpus, head=model, top_k=20, pool=1, show_progress=False)
        assert_best(positions, scores, brute_force(model, queries, corpus))
        if scale == 0:
            assert (scores == 0.5).all()
            return
        likeness = np.array([[cosine(q, t) if kind == "cosine" else q @ t for t in corpus] for q in queries])
        assert (positions == np.argsort(-scale * likeness, axis=1)).all()

    def test_the_cosine_ranks_by_default(self):
        queries, corpus = vectors(3), vectors(20, seed=1)
        expected = np.array([[cosine(query, text) for text in corpus] for query in queries])
        scores, positions = rank(queries, 7 * corpus, top_k=5, show_progress=False)
        assert_best(positions, scores, expected)

    def test_labels_by_name_and_index(self):
        names = {0: "other", 1: "alike", 2: "1"}
        model = make("mlp", num_labels=3, id2label=names, label2id={name: number for number, name in names.items()})
        queries, corpus = vectors(2), vectors(10, seed=1)
        for label, logit in ((0, 0), (1, 1), ("0", 0), ("alike", 1), ("1", 2)):
            scores, positions = rank(queries, corpus, head=model, label=label, show_progress=False)
            assert_best(positions, scores, brute_force(model, queries, corpus, logit))

    def test_ties_are_broken_by_the_lower_position(self, similarity):
        # Sums of integers are exact, so equal texts have exactly equal scores.
        model = make(similarity)
        with torch.no_grad():
            for parameter in model.similarity.parameters():
                parameter.copy_((4 * parameter).round())
        corpus = np.tile(np.eye(SIZE, dtype=np.float32)[:2], (6, 1))
        scores, positions = rank(1 + corpus[:1], corpus, head=model, top_k=12, show_progress=False)
        evens, odds = list(range(0, 12, 2)), list(range(1, 12, 2))
        assert positions.tolist() in ([evens + odds], [odds + evens])
        assert len(set(scores[0].tolist())) == 2

    @pytest.mark.parametrize("size", [20, 100, 3000])
    def test_of_many_equal_texts_the_first_are_found(self, size, monkeypatch):
        monkeypatch.setattr("hf_dse.inference.search.BLOCK_TEXTS", 64)
        corpus = np.ones((size, 4), dtype=np.float32)
        corpus[7] = 0.1, 1, 1, 1
        expected = [row for row in range(size) if row != 7] + [7]
        for top_k in (1, 3, 12, 20):
            _, positions = rank(np.stack([corpus[0], corpus[0]]), corpus, top_k=top_k, show_progress=False)
            assert positions.tolist() == [expected[:top_k]] * 2

    def test_equal_texts_of_different_blocks_keep_their_order(self, monkeypatch):
        monkeypatch.setattr("hf_dse.inference.search.BLOCK_TEXTS", 8)
        for seed in range(30):
            corpus = np.random.default_rng(seed).integers(0, 10, size=(50, 1)).astype(np.float32)
            _, found = rank(np.ones((1, 1), np.float32), corpus, top_k=12, similarity="dot", show_progress=False)
            assert found.tolist() == [np.argsort(-corpus[:, 0], kind="stable")[:12].tolist()]

    def test_reversed_views_are_arrays(self):
        corpus = np.eye(4, dtype=np.float32)
        assert rank(corpus[::-1], corpus, top_k=1, show_progress=False)[1].tolist() == [[3], [2], [1], [0]]

    def test_blocks_and_batches_make_no_difference(self, similarity, monkeypatch):
        model, queries, corpus = make(similarity), vectors(11), vectors(30, seed=1)
        whole = rank(queries, corpus, head=model, pool=12, show_progress=False)
        for elements, texts, batch_size in ((1, 3, 1), (100, 29, 5)):
            monkeypatch.setattr(hf_dse.inference.search, "BLOCK_ELEMENTS", elements)
            monkeypatch.setattr(hf_dse.inference.search, "BLOCK_TEXTS", texts)
            scores, positions = rank(queries, corpus, head=model, pool=12, batch_size=batch_size, show_progress=False)
            assert (positions == whole[1]).all()
            np.testing.assert_allclose(scores, whole[0], rtol=1e-5, atol=1e-5)

    def test_half_precision_models_rank_in_float32(self, similarity):
        model = make(similarity).bfloat16()
        queries, corpus = vectors(2), vectors(500, seed=1)
        scores, positions = rank(queries, corpus, head=model, top_k=500, pool=None, show_progress=False)
        assert_best(positions, scores, brute_force(model, queries, corpus))
        assert min(len(set(row)) for row in scores.tolist()) > 490
        assert {parameter.dtype for parameter in model.parameters()} == {torch.bfloat16}

    @pytest.mark.parametrize(
        ("changes", "message"),
        [
            ({"top_k": 0}, "top_k=0: it has to be at least 1"),
            ({"batch_size": 0}, "batch_size=0: it has to be at least 1"),
            ({"pool": 9}, "pool=9 is below top_k=10"),
            ({"label": "no"}, r"label='no': there is no such logit; pass one of 0 \(LABEL_0\)\."),
            ({"head": make("mlp", 2)}, r"label=None: the head has .*; pass one of 0 \(LABEL_0\), 1 \(LABEL_1\)\."),
            ({"head": make("dot", 2), "label": 2}, r"label=2: there is no such logit.*1 \(LABEL_1\)"),
            ({"head": None, "label": 0}, "label=0: the cosine has no labels; rank by the head"),
            ({"head": make("dot", model_class=DseModel)}, "DseModel has no head that scores pairs of embeddings"),
            ({"head": CROSS_ENCODER}, "BertForSequenceClassification has no head that scores pairs of embeddings"),
            ({"corpus_embeddings": vectors(0)}, "The corpus is empty"),
            ({"corpus_embeddings": vectors(5)[0]}, r"corpus_embeddings must have the shape .*, got \(8,\)"),
            ({"corpus_embeddings": vectors(5)[:, :6]}, "corpus_embeddings have size 6, but those of the model have 8"),
            ({"head": None, "corpus_embeddings": vectors(5)[:, :6]}, "size 8 and corpus_embeddings 6: embed both"),
            ({"query_embeddings": np.full((3, SIZE), np.nan)}, "3 of 3 query_embeddings are NaN, inf.* row 0"),
            ({"corpus_embeddings": np.diag([1, 1, np.inf, 1, 1, 1, 1, 1])}, "1 of 8 corpus_embeddings .* is row 2"),
        ],
    )
    def test_errors(self, changes, message):
        options = {"head": make("mlp"), "query_embeddings": vectors(2), "corpus_embeddings": vectors(5), **changes}
        with pytest.raises(ValueError, match=message):
            rank(**options, show_progress=False)

    def test_damaged_heads_are_errors(self, similarity):
        model = make(similarity)
        with torch.no_grad():
            list(model.similarity.parameters())[-1].fill_(torch.nan)
        with pytest.raises(ValueError, match="weights of the model's head are damaged"):
            rank(vectors(2), vectors(5), head=model, show_progress=False)


class TestTwoSteps:
    @pytest.mark.parametrize("pool", [4, 15, 40, 100])
    def test_the_head_ranks_only_the_pool(self, pool):
        model, queries, corpus = make("mlp", num_labels=2), vectors(12), vectors(40, seed=1)
        every = brute_force(model, queries, corpus, logit=1)
        scores, positions = rank(queries, corpus, head=model, top_k=pool, pool=pool, label=1, show_progress=False)
        _, some = rank(queries, corpus, head=model, top_k=3, pool=pool, label=1, show_progress=False)
        assert (some == positions[:, :3]).all()
        found = 0
        for row, query in enumerate(queries):
            nearest = np.argsort([-cosine(query, text) for text in corpus])[:pool]
            assert positions[row].tolist() == sorted(nearest, key=lambda position: -every[row, position])
            np.testing.assert_allclose(scores[row], every[row, positions[row]], rtol=1e-4, atol=1e-4)
            best = every[row].argmax()
            assert (best in nearest) == (best == positions[row, 0])
            found += best in nearest
        assert found == 12 if pool >= 40 else 0 < found < 12

    def test_pairs_are_query_then_candidate(self):
        model, queries, corpus = make("mlp"), vectors(4), vectors(20, seed=1)
        swapped = np.array([[logits_of(model, text, query)[0] for text in corpus] for query in queries])
        assert not np.allclose(swapped, brute_force(model, queries, corpus), atol=0.1)
        scores, _ = rank(queries, corpus, head=model, top_k=1, pool=None, show_progress=False)
        assert not np.allclose(scores[:, 0], swapped.max(axis=1), atol=0.1)


@pytest.fixture
def run(tmp_path, make_model, bert_tokenizer):
    """Runs `hf-dse search` with an mlp model on the texts; options can be overridden, or omitted with `None`."""
    make_model(similarity="mlp").save_pretrained(tmp_path / "model")
    bert_tokenizer.save_pretrained(tmp_path / "model")
    (tmp_path / "corpus.txt").write_text("".join(f"{text}\n" for text in TEXTS))
    Dataset.from_dict({"text": QUERIES}).to_json(tmp_path / "queries.jsonl")

    def search(**options):
        defaults = {
            "model_name_or_path": tmp_path / "model",
            "corpus": tmp_path / "corpus.txt",
            "queries": tmp_path / "queries.jsonl",
            "output_file": tmp_path / "results.jsonl",
            "top_k": 3,
            "device": "cpu",
        }
        if options.get("score") == "head":
            defaults["pool"] = 8
        return main(["search", *to_flags({**defaults, **options})])

    return search


@pytest.fixture
def encode_corpus(tmp_path):
    """Runs `hf-dse encode` on the corpus and returns the file that it writes."""

    def make(input=None, **options):
        source = tmp_path / "corpus.txt" if input is None else input
        flags = ["encode", "--model_name_or_path", tmp_path / "model", "--input", source, "--device", "cpu"]
        for name, value in options.items():
            flags += [f"--{name}", value]
        assert main([*map(str, flags), "--output", str(tmp_path / "corpus.parquet")]) == 0
        return tmp_path / "corpus.parquet"

    return make


def read_results(path):
    return [json.loads(line) for line in path.read_text(encoding="utf-8").splitlines()]


class TestCommand:
    @pytest.mark.parametrize(
        ("fields", "score"),
        [
            ({"similarity": "mlp"}, None),
            ({"similarity": "mlp"}, "head"),
            ({"similarity": "dot", "num_labels": 3}, "cosine"),
            ({"similarity": "dot", "num_labels": 3}, "head"),
            (None, None),
        ],
    )
    def test_from_texts_or_from_an_index(
        self, fields, score, tmp_path, run, make_model, bert_tokenizer, encode_corpus, capsys
    ):
        model = make_model(DseModel) if fields is None else make_model(**fields)
        model.save_pretrained(tmp_path / "model")
        head = model if score == "head" else None
        label = "LABEL_2" if head is not None and model.config.num_labels == 3 else None
        assert run(label=label, score=score) == 0
        assert capsys.readouterr().out == f"3 queries written to {tmp_path / 'results.jsonl'}\n"
        results = read_results(tmp_path / "results.jsonl")
        queries, corpus = (encode(model, bert_tokenizer, texts, show_progress=False) for texts in (QUERIES, TEXTS))
        scores, positions = rank(queries, corpus, head=head, top_k=3, pool=8, label=label, show_progress=False)
        name = "cosine" if head is None else f"head: {label or 'LABEL_0'}"
        assert [result["query"] for result in results] == QUERIES
        for result, row, values in zip(results, positions, scores, strict=True):
            assert [found.pop(name) for found in result["results"]] == pytest.approx(values.tolist(), abs=1e-5)
            assert result["results"] == [{"position": position, "text": TEXTS[position]} for position in row]

        stored = encode_corpus()
        assert run(label=label, score=score, corpus=stored, output_file=tmp_path / "again.jsonl") == 0
        again = read_results(tmp_path / "again.jsonl")
        assert [[found.pop(name) for found in result["results"]] for result in again] == scores.tolist()
        assert again == results

    def test_a_normalized_index_ranks_by_the_cosine(self, tmp_path, run, encode_corpus):
        assert run() == 0
        expected = read_results(tmp_path / "results.jsonl")
        assert run(corpus=encode_corpus(normalize=True)) == 0
        found = read_results(tmp_path / "results.jsonl")
        for one, other in zip(found, expected, strict=True):
            assert [hit.pop("cosine") for hit in one["results"]] == pytest.approx(
                [hit.pop("cosine") for hit in other["results"]], abs=1e-5
            )
        assert found == expected

    def test_an_encoder_and_a_cross_encoder(self, tmp_path, run, save_bert, bert_tokenizer, capsys):
        save_bert(tmp_path / "model")
        assert run() == 0
        encoder, tokenizer = AutoModel.from_pretrained(tmp_path / "model"), bert_tokenizer
        queries, corpus = (encode(encoder, tokenizer, texts, show_progress=False) for texts in (QUERIES, TEXTS))
        _, positions = rank(queries, corpus, top_k=3, show_progress=False)
        results = read_results(tmp_path / "results.jsonl")
        assert [[hit["position"] for hit in result["results"]] for result in results] == positions.tolist()
        assert run(score="head") == 2
        assert "BertModel has no head that scores pairs of embeddings: rank by the cosine" in capsys.readouterr().err
        BertForSequenceClassification(encoder.config).save_pretrained(tmp_path / "model")
        for score in ("cosine", "head"):
            assert run(score=score) == 2
            assert "BertForSequenceClassification scores pairs of texts, not of embed" in capsys.readouterr().err

    @pytest.mark.parametrize("ending", ["csv", "jsonl", "parquet", "index"])
    @pytest.mark.parametrize("name", ["id", "_id", "doc_id"])
    def test_results_have_the_columns_of_the_corpus(self, ending, name, tmp_path, run, encode_corpus, capsys):
        rows = [{name: f"d{number}", "title": f"no. {number}", "text": text} for number, text in enumerate(TEXTS)]
        file = tmp_path / ("table.jsonl" if ending == "index" else f"table.{ending}")
        table = Dataset.from_list(rows)
        {"csv": table.to_csv, "parquet": table.to_parquet}.get(ending, table.to_json)(file)
        assert run(corpus=encode_corpus(input=file) if ending == "index" else file, output_file=None) == 0
        printed = [line.split() for line in capsys.readouterr().out.splitlines()]
        assert ["rank", "cosine", name, "text"] in printed
        assert run(corpus=file) == 0
        for result in read_results(tmp_path / "results.jsonl"):
            for number, hit in enumerate(result["results"], start=1):
                cosine = hit.pop("cosine")
                assert hit == rows[int(hit[name][1:])]
                assert [str(number), f"{cosine:.4f}", hit[name], *hit["text"].split()] in printed

    def test_columns_that_parquet_cannot_hold(self, tmp_path, run, encode_corpus):
        """The corpora of BEIR have a column `metadata`, which is often empty."""
        rows = [{"_id": str(n), "text": text, "metadata": {}, "tag": n % 2 or "even"} for n, text in enumerate(TEXTS)]
        file = tmp_path / "corpus.jsonl"
        file.write_text("".join(json.dumps(row) + "\n" for row in rows))
        queries = tmp_path / "beir.jsonl"
        queries.write_text(json.dumps({"_id": "q7", "text": QUERIES[0], "metadata": {}}) + "\n")
        assert run(corpus=file, queries=queries) == 0
        (expected,) = read_results(tmp_path / "results.jsonl")
        assert (expected["_id"], expected["query"], expected["metadata"]) == ("q7", QUERIES[0], {})
        for hit in expected["results"]:
            assert {**hit} == {"cosine": hit["cosine"], **rows[int(hit["_id"])]}
            hit["metadata"], hit["tag"] = json.dumps(hit["metadata"]), json.dumps(hit["tag"])
        assert run(corpus=encode_corpus(input=file), queries=queries) == 0
        assert read_results(tmp_path / "results.jsonl") == [expected]

    def test_the_column_of_the_queries(self, tmp_path, run, capsys):
        """The formats of `hf-dse mine` have queries in another column than texts."""
        Dataset.from_dict({"id": [*range(len(TEXTS))], "body": TEXTS}).to_json(tmp_path / "bodies.jsonl")
        assert run() == 0
        expected = read_results(tmp_path / "results.jsonl")
        file, others = tmp_path / "asked.jsonl", QUERIES[::-1]
        for columns, options in (
            ({"query": QUERIES, "text": others}, {}),
            ({"query": QUERIES, "body": others}, {"corpus": tmp_path / "bodies.jsonl", "text_column": "body"}),
            ({"body": QUERIES, "text": others}, {"corpus": tmp_path / "bodies.jsonl", "text_column": "body"}),
            ({"text": QUERIES}, {"corpus": tmp_path / "bodies.jsonl", "text_column": "body"}),
            ({"q": QUERIES, "text": others}, {"query_column": "q"}),
        ):
            Dataset.from_dict(columns).to_json(file)
            assert run(queries=file, **options) == 0
            for result, one, number in zip(read_results(tmp_path / "results.jsonl"), expected, range(3), strict=True):
                assert [hit.get("id", hit.get("position")) for hit in result["results"]] == [
                    hit["position"] for hit in one["results"]
                ]
                kept = {name: texts[number] for name, texts in columns.items() if texts is others}
                assert {name: result[name] for name in result if name != "results"} == {**kept, "query": one["query"]}
        assert run(queries=file, query_column="no") == 2
        error = capsys.readouterr().err
        assert (
            "there is no column 'no'; the columns are q, text. Choose the one of the queries with `--query_" in error
        )

    def test_types_that_json_lacks_are_written_as_text(self, tmp_path, run):
        days = [datetime.date(2026, 1, 1) + datetime.timedelta(number) for number in range(len(TEXTS))]
        pyarrow.parquet.write_table(pyarrow.table({"text": TEXTS, "day": days}), tmp_path / "days.parquet")
        assert run(corpus=tmp_path / "days.parquet") == 0
        hit = read_results(tmp_path / "results.jsonl")[0]["results"][0]
        assert hit["day"] == str(days[hit["position"]])

    def test_numbers_that_json_lacks_are_null(self, tmp_path, run):
        columns = {"text": TEXTS, "price": [math.nan, *map(float, range(len(TEXTS) - 1))], "id": [*range(len(TEXTS))]}
        Dataset.from_dict(columns).to_parquet(tmp_path / "priced.parquet")
        assert run(corpus=tmp_path / "priced.parquet", score="cosine", top_k=len(TEXTS)) == 0
        lines = (tmp_path / "results.jsonl").read_text().splitlines()
        found = [hit for line in lines for hit in json.loads(line, parse_constant=pytest.fail)["results"]]
        assert [hit["price"] for hit in found if hit["id"] == 0] == [None] * len(lines)

    def test_the_id_can_be_named(self, tmp_path, run, capsys):
        table = Dataset.from_dict({"id": TEXTS[::-1], "url": [f"a/{text}" for text in TEXTS], "text": TEXTS})
        table.to_csv(tmp_path / "table.csv")
        assert run(corpus=tmp_path / "table.csv", id_column="url", output_file=None) == 0
        lines = capsys.readouterr().out.splitlines()
        assert lines[1].split() == ["rank", "cosine", "url", "text"]
        assert all(line.count("  a/") == 1 for line in lines if line[:4].strip().isdigit())
        assert run(corpus=tmp_path / "table.csv", id_column="no") == 2
        assert "there is no column 'no'; the columns are id, url, text" in capsys.readouterr().err

    def test_an_index_is_not_encoded_again(self, tmp_path, run, encode_corpus):
        stored = encode_corpus()
        assert run(corpus=stored) == 0
        before = read_results(tmp_path / "results.jsonl")
        table = pyarrow.parquet.read_table(stored)
        turned = table.set_column(table.num_columns - 1, "embedding", table["embedding"].combine_chunks()[::-1])
        pyarrow.parquet.write_table(turned, stored)
        assert run(corpus=stored) == 0
        assert read_results(tmp_path / "results.jsonl") != before

    def test_an_index_of_shards(self, tmp_path, run, encode_corpus):
        stored = encode_corpus()
        assert run(corpus=stored) == 0
        expected = read_results(tmp_path / "results.jsonl")
        table = pyarrow.parquet.read_table(stored)
        (tmp_path / "shards").mkdir()
        pyarrow.parquet.write_table(table.slice(0, 0), tmp_path / "shards" / "no-rows.parquet")
        for number, start in enumerate((0, 20)):
            part = table.slice(start, 20) if start == 0 else table.slice(start)
            # Shards may have other columns of their own, or of other types.
            part = part.append_column("page" if number else "site", pyarrow.array(range(len(part))))
            part = part.append_column("empty", pyarrow.array(["x" if number else None] * len(part)))
            pyarrow.parquet.write_table(part, tmp_path / "shards" / f"{number}.parquet")
        assert run(corpus=tmp_path / "shards") == 0
        results = read_results(tmp_path / "results.jsonl")
        for hit in (hit for result in results for hit in result["results"]):
            is_first = (position := hit["position"]) < 20
            extra = hit.pop("site"), hit.pop("page"), hit.pop("empty")
            assert extra == ((position, None, None) if is_first else (None, position - 20, "x"))
        assert results == expected
        pyarrow.parquet.write_table(table.drop_columns("embedding"), tmp_path / "shards" / "2.parquet")
        assert run(corpus=tmp_path / "shards") == 2

    def test_an_index_of_another_model_is_an_error(self, tmp_path, run, make_model, encode_corpus, capsys):
        stored = encode_corpus()
        make_model(similarity="mlp", linformer_length=6).save_pretrained(tmp_path / "model")
        assert run(corpus=stored) == 2
        assert f"corpus.parquet was encoded by {tmp_path.name}/model with other weights" in capsys.readouterr().err
        assert not (tmp_path / "results.jsonl").exists()

    def test_a_folder_of_texts(self, tmp_path, run, encode_corpus, capsys):
        for name, text in {
            "a.md": "the cat\nsat",
            "deep/b.txt": "a dog ran",
            ".git/c.txt": "in",
            "d.py": "is",
        }.items():
            (tmp_path / "docs" / name).parent.mkdir(parents=True, exist_ok=True)
            (tmp_path / "docs" / name).write_text(text)
        assert run(corpus=tmp_path / "docs") == 0
        results = read_results(tmp_path / "results.jsonl")
        for result in results:
            assert all(list(found) == ["cosine", "file", "line", "text"] for found in result["results"])
            found = sorted((found["file"], found.pop("line"), found["text"]) for found in result["results"])
            assert found == [("a.md", 1, "the cat\nsat"), ("deep/b.txt", 1, "a dog ran")]
        assert run(corpus=encode_corpus(input=tmp_path / "docs")) == 0
        assert read_results(tmp_path / "results.jsonl") == results
        capsys.readouterr()
        assert run(corpus=tmp_path / "docs", output_file=None) == 0
        assert "  deep/b.txt:1  a dog ran\n" in capsys.readouterr().out

    @pytest.mark.parametrize("ending", ["jsonl", "parquet"])
    def test_a_folder_of_beir(self, ending, tmp_path, run, encode_corpus):
        """Its corpus is read, with titles as in an evaluation, and not the README beside it."""
        folder = tmp_path / "beir"
        (folder / "qrels").mkdir(parents=True)
        rows = {"_id": ["d0", "d1"], "title": ["the cat", ""], "text": ["sat", "a dog ran"]}
        write = {"jsonl": Dataset.to_json, "parquet": Dataset.to_parquet}[ending]
        write(Dataset.from_dict(rows), folder / f"corpus.{ending}")
        write(Dataset.from_dict({"_id": ["q"], "text": ["a cat"]}), folder / f"queries.{ending}")
        (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\nq\td0\t1\n")
        (folder / "README.md").write_text("the old house")
        assert run(corpus=folder) == 0
        results = read_results(tmp_path / "results.jsonl")
        corpus = load_corpus(DataArguments(corpus_file=str(folder)))
        for result in results:
            found = {hit["_id"]: hit["text"] for hit in result["results"]}
            assert found == dict(zip(corpus["doc_id"], corpus["text"], strict=True))
            assert found == {"d0": "the cat sat", "d1": "a dog ran"}
        assert run(corpus=encode_corpus(input=folder)) == 0
        assert read_results(tmp_path / "results.jsonl") == results
        # So are its queries, with their ids.
        assert run(corpus=folder, queries=folder) == 0
        (asked,) = read_results(tmp_path / "results.jsonl")
        assert (asked["query"], asked["_id"]) == ("a cat", "q")
        # Another column is that of the table. An index of this name is an index.
        assert run(corpus=folder, text_column="title", queries=None, query="old") == 0
        (titles,) = read_results(tmp_path / "results.jsonl")
        assert sorted(hit["title"] for hit in titles["results"]) == ["", "the cat"]
        (tmp_path / "index").mkdir()
        encode_corpus(input=folder).rename(tmp_path / "index" / "corpus.parquet")
        assert run(corpus=tmp_path / "index") == 0
        assert read_results(tmp_path / "results.jsonl") == results

    def test_results_of_command_line_queries_are_printed(self, tmp_path, run, capsys, monkeypatch):
        monkeypatch.setenv("COLUMNS", "40")
        table = Dataset.from_dict({"name": ["x", "y"], "body": ["the cat\nsat", "a dog ran and ran and ran and ran"]})
        table.to_parquet(tmp_path / "corpus.parquet")
        options = {"corpus": tmp_path / "corpus.parquet", "text_column": "body", "queries": None}
        assert run(**options, query=["a dog", "a cat"], top_k=10) == 0
        out = capsys.readouterr().out.splitlines()
        results = read_results(tmp_path / "results.jsonl")
        assert [len(result["results"]) for result in results] == [2, 2]
        assert (out[0], out[1].split(), out[4], out[5]) == (
            "query: a dog",
            ["rank", "cosine", "position", "body"],
            "",
            "query: a cat",
        )
        assert out[-1] == f"2 queries written to {tmp_path / 'results.jsonl'}"
        lines = {0: "the cat sat", 1: "a dog ran and..."}
        for number, (line, found) in enumerate(zip(out[2:4], results[0]["results"], strict=True), start=1):
            position = found["position"]
            assert line == f"{number:>4}  {found['cosine']:>6.4f}  {position:>8}  {lines[position]}"
        assert max(map(len, out[:-1])) <= 40

        (tmp_path / "results.jsonl").unlink()
        assert run(**options, query="a dog", output_file=None) == 0
        assert capsys.readouterr().out.splitlines() == out[:4]
        assert not (tmp_path / "results.jsonl").exists()

    def test_results_are_printed_without_an_output_file(self, run, capsys):
        assert run(output_file=None) == 0
        assert [line for line in capsys.readouterr().out.splitlines() if line.startswith("query")] == [
            f"query: {query}" for query in QUERIES
        ]

    @pytest.mark.parametrize(
        ("options", "message"),
        [
            ({"queries": None}, "Pass either `--queries FILE` or `--query`"),
            ({"query": "cat"}, "Pass either `--queries FILE` or `--query`"),
            ({"corpus": "missing.txt"}, "missing.txt: there is no such file"),
            ({"corpus": "nothere"}, "nothere: there is no such file or folder"),
            ({"queries": "nothere"}, "nothere: there is no such file or folder"),
            ({"corpus": "corpus.md"}, "corpus.md: unsupported ending '.md'; supported are .txt"),
            ({"corpus": "empty.txt"}, "empty.txt holds no texts"),
            ({"queries": "missing.jsonl"}, "missing.jsonl: there is no such file"),
            ({"queries": "empty.txt"}, "empty.txt holds no texts"),
            (
                {"corpus": "cosines.csv", "text_column": "body"},
                "there is no column 'body'; the columns are text, cosine. Choose one with `--text_column`",
            ),
            ({"text_column": "body"}, "there is no column 'body'; the columns are text"),
            ({"output_file": "out.csv"}, "unsupported ending '.csv'; the output is .jsonl"),
            ({"corpus": "folder"}, "folder: there are no .txt or .md files in this folder"),
            ({"corpus": "damaged.parquet"}, "damaged.parquet: not a readable parquet file"),
            ({"corpus": "foreign.parquet"}, "foreign.parquet has no vectors of column 'text' from `hf-dse encode`"),
            ({"corpus": "units.parquet", "score": "head"}, "units.parquet has normalized vectors, but the mlp head"),
            ({"corpus": "cosines.csv"}, "cosines.csv has a column 'cosine', which is the name of the scores: rename"),
            (
                {"corpus": "units.parquet", "text_column": "body"},
                "has no vectors of column 'body' from `hf-dse encode`, but vectors of ['text']",
            ),
            ({"label": "alike"}, "label='alike': the cosine has no labels; add `--score head`"),
            ({"label": "alike", "score": "head"}, "label='alike': there is no such logit"),
            ({"score": "l2"}, "invalid choice: 'l2'"),
            ({"top_k": 0}, "top_k=0: it has to be at least 1"),
            ({"pool": 8}, "`--pool` is an option of a pair head: add `--score head`, or leave it out"),
            ({"rerank_top": 20}, "`--rerank_top` is an option of reranking: add `--rerank MODEL`, or leave it out"),
            ({"pool": 2, "score": "head"}, "pool=2 is below top_k=3"),
            ({"score": "head", "rerank": "any", "rerank_top": 9}, "pool=8 is below rerank_top=9: raise it to at"),
            (
                {"rerank": "any", "queries": None, "query": ["a cat", " "]},
                "--query: query 1 is empty, and a reranker has",
            ),
            ({"corpus": "placed.csv"}, "placed.csv has a column 'position', which is the name of the rows: rename it"),
            ({"queries": "answered.csv"}, "answered.csv has a column 'results', which is a name in the output"),
        ],
    )
    def test_errors(self, options, message, tmp_path, run, encode_corpus, capsys, monkeypatch):
        monkeypatch.chdir(tmp_path)
        (tmp_path / "empty.txt").write_text("")
        (tmp_path / "folder").mkdir()
        (tmp_path / "damaged.parquet").write_text("no vectors")
        (tmp_path / "cosines.csv").write_text("text,cosine\na cat,1\n")
        (tmp_path / "placed.csv").write_text("text,position\na cat,7\n")
        (tmp_path / "answered.csv").write_text("text,results\na cat,7\n")
        Dataset.from_dict({"text": TEXTS, "embedding": [[0.0]] * len(TEXTS)}).to_parquet(tmp_path / "foreign.parquet")
        if "units" in str(options):
            encode_corpus(normalize=True).rename(tmp_path / "units.parquet")
        assert run(**options) == 2
        assert message in capsys.readouterr().err
        assert not (tmp_path / "results.jsonl").exists()
