# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidates, in the formats of other libraries and the layout of BEIR."""

import importlib
import json
import math
from functools import partial
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset, DatasetDict, get_dataset_config_names, load_dataset

from hf_dse.data import ranking_files
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_files import _hub_sources, is_ranking_data, load_corpus, load_rankings
from hf_dse.data.ranking_rows import is_ranking, read_rankings
from hf_dse.data.rankings import (
    Rankings,
    check_positives,
    make_corpus,
    make_rankings,
    ranking_rows,
    write_rankings,
)
from hf_dse.data.tables import read_columns


@pytest.fixture
def sentence_encoder(save_bert, tmp_path):
    sentence_transformers = pytest.importorskip("sentence_transformers")
    return sentence_transformers.SentenceTransformer(str(save_bert(tmp_path / "bert")), device="cpu")


CORPUS = {"doc_id": ["a", "b", "c"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}


def as_texts(rankings: Rankings) -> list[tuple]:
    """Each query with its candidates as texts: what counts, in any order of the corpus."""
    rows = ranking_rows(rankings)
    names = [name for name in ("query", "documents", "labels", "teacher_logits") if name in rows]
    return list(zip(*(rows[name] for name in names), strict=True))


EXPECTED = [("A?", ["p", "n", "m"], [1.0, 0.0, 0.0], [3.0, 1.0, -2.0])]


@pytest.mark.parametrize(
    "rows",
    [
        {"query": ["A?"], "documents": [["p", "n", "m"]], "labels": [[1, 0, 0]], "teacher_logits": [[3, 1, -2.0]]},
        {"query": ["A?"], "docs": [["p", "n", "m"]], "labels": [[1, 0, 0]], "scores": [[3, 1, -2.0]]},
        {"anchor": ["A?"], "positive": ["p"], "negative_1": ["n"], "negative_2": ["m"], "label": [[3, 1, -2.0]]},
        {"anything": ["A?"], "other": ["p"], "third": ["n"], "fourth": ["m"], "scores": [[3, 1, -2.0]]},
        {"query": ["A?"], "pos": [["p"]], "neg": [["n", "m"]], "pos_scores": [[3]], "neg_scores": [[1, -2.0]]},
    ],
    ids=["lists", "docs", "tuples", "order", "FlagEmbedding"],
)
@pytest.mark.parametrize("kind", [dict, Dataset.from_dict])
def test_formats_of_other_libraries(rows, kind):
    assert as_texts(read_rankings(kind(rows))) == EXPECTED


@pytest.mark.parametrize("value", [1, "1"])
def test_labelled_pairs_are_labels(value):
    """What sentence-transformers' `mine_hard_negatives` writes as "labeled-pair"; a csv file has texts."""
    rows = {"query": ["A?", "A?", "B?"], "answer": ["p", "n", "q"], "label": [value, 0, value]}
    rankings = read_rankings(rows)
    assert as_texts(rankings) == [("A?", ["p", "n"], [1.0, 0.0]), ("B?", ["q"], [1.0])]
    assert not rankings.has_scores
    scored = read_rankings({**rows, "score": ["0.5", 2, 3.0]})
    assert scored.queries["teacher_logits"][:] == [[0.5, 2.0], [3.0]]
    assert scored.queries["labels"][:] == rankings.queries["labels"][:]


@pytest.mark.parametrize("output_scores", [False, True])
@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
def test_what_sentence_transformers_mines(output_format, output_scores, sentence_encoder):
    """Read without a word about the format, with the labels that its rows have, not more."""
    from sentence_transformers.util import mine_hard_negatives

    pairs = {"question": ["old sun", "red wall"], "answer": ["the sun is old", "the wall is red"]}
    corpus = ["the moon is old", "the dog is red", "a cat"]
    rows = mine_hard_negatives(
        Dataset.from_dict(pairs),
        sentence_encoder,
        corpus=corpus,
        num_negatives=2,
        output_format=output_format,
        output_scores=output_scores,
        verbose=False,
    )
    rankings = read_rankings(rows)
    assert is_ranking(rows.column_names) == (output_format != "labeled-pair")
    # Rows with scores in the place of labels have none.
    has_labels = not output_scores or not output_format.startswith("labeled")
    assert rankings.has_scores == output_scores
    assert rankings.queries["query"][:] == pairs["question"]
    found = zip(*(rankings.queries[name] for name in ("query", "documents", "labels")), pairs["answer"], strict=True)
    for number, (query, documents, labels, answer) in enumerate(found):
        texts = [rankings.corpus["text"][row] for row in documents]
        assert len(texts) == 3 and texts[0] == answer and not set(texts[1:]) & {answer}, query
        assert labels == [1.0, 0.0, 0.0] if has_labels else all(map(math.isnan, labels))
        if output_scores:
            expected = sentence_encoder.similarity(*map(sentence_encoder.encode, ([query], texts)))[0].tolist()
            assert rankings.queries["teacher_logits"][number] == pytest.approx(expected, abs=1e-4)


@pytest.mark.parametrize("name", ["hard_negative", "negatives", "negative1", "negative-1"])
def test_negatives_under_other_names(name, warnings):
    rows = {"id": ["7"], "anchor": ["A?"], "positive": ["p"], name: ["n"]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1.0, 0.0])]
    assert warnings == []
    read_rankings({**rows, "source": ["wiki"]})
    assert "the columns source have no known name, and are left out" in warnings[0]


@pytest.mark.parametrize(
    "rows",
    [
        {"query": ["q", "p"], "positive": [["a"], ["b"]], "negative": [["x", "y"], ["z"]]},
        {"query": ["q", "p"], "positive": ["a", "b"], "negatives": [["x", "y"], ["z"]]},
        {"query": ["q", "p"], "answer": [["a"], ["b"]], "negative": [["x", "y"], "z"]},
        {"query": ["q", "p"], "pos": ["a", "b"], "neg": [["x", "y"], ["z"]]},
    ],
)
@pytest.mark.parametrize("as_rows", [False, True])
def test_lists_of_positives_and_negatives(rows, as_rows, warnings):
    if as_rows and not any("z" in values for values in rows.values()):
        rows = Dataset.from_dict(rows)
    assert as_texts(read_rankings(rows)) == [("q", ["a", "x", "y"], [1, 0, 0]), ("p", ["b", "z"], [1, 0])]
    scored = {"query": ["q"], "positive": [["a"]], "negative": [["x", "y"]]}
    assert as_texts(read_rankings({**scored, "scores": [[3, 1, 2]]}))[0][3] == [3, 1, 2]
    assert as_texts(read_rankings({**scored, "scores": [[1, 2]]}))[0][3] == [0, -1, -2]
    assert warnings == []


@pytest.mark.parametrize("name", ["positive", "pos"])
def test_lists_of_positives_alone(name):
    rows = {"query": ["q"], name: [["a", "b"]]}
    assert as_texts(read_rankings(rows)) == [("q", ["a", "b"], [1, 1])]
    assert as_texts(read_rankings({**rows, "labels": [[1, 0]]})) == [("q", ["a", "b"], [1, 0])]
    # Of scores alone nobody says which documents are relevant.
    assert all(map(math.isnan, read_rankings({**rows, "scores": [[2, 1]]}).queries["labels"][0]))


@pytest.mark.parametrize(
    ("rows", "expected", "words"),
    [
        (
            {"split": ["train"], "question": ["q"], "abstract": ["a"], "decision": ["yes"]},
            ("q", ["a", "yes"], [1, 0]),
            ["split have no known name", "abstract as the positive, decision as a negative. If"],
        ),
        (
            {"claim": ["q"], "abstract": ["a"], "source": ["b"]},
            ("q", ["a", "b"], [1, 0]),
            ["claim as the query, abstract as the positive, source as a negative. If", "rename columns to `query`"],
        ),
        (
            {"anchor": ["q"], "response": ["a"], "negative_1": ["b"], "source": ["c"]},
            ("q", ["a", "b"], [1, 0]),
            ["source have no known name", "response as the positive. If"],
        ),
        ({"query": ["q"], "other": ["a"], "label": [0]}, ("q", ["a"], [0]), ["other as the document. If"]),
        ({"positive": ["a"], "instruction": ["q"]}, ("q", ["a"], [1]), ["instruction as the query. If"]),
    ],
)
def test_roles_by_place_are_named(rows, expected, words, warnings):
    assert as_texts(read_rankings(rows)) == [expected]
    assert len(warnings) == 1 and all(word in warnings[0] for word in words)


@pytest.mark.parametrize(
    ("names", "message"),
    [
        (["id", "title", "context", "question"], "no column has candidates; .* id, title, context, question, and one"),
        (["query", "negative"], "no column has positives"),
        (["positive", "negative"], "no column 'query'"),
    ],
)
def test_columns_before_the_query_are_no_candidates(names, message, warnings):
    with pytest.raises(ValueError, match=message):
        read_rankings({name: [name] for name in names})
    assert warnings == []


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda rows: rows.to_iterable_dataset(), "a `IterableDataset`.* without `streaming=True`"),
        (lambda rows: DatasetDict({"a": rows, "b": rows}), "a `DatasetDict`.* one of its splits: a, b"),
        (lambda rows: rows.to_list(), r"a `list`.*`Dataset.from_list\(rows\)`"),
    ],
    ids=["stream", "splits", "list"],
)
def test_no_tables_are_named(make, message):
    rows = Dataset.from_dict({"query": ["q"], "positive": ["a"], "text": ["t"]})
    with pytest.raises(TypeError, match=message):
        read_rankings(make(rows))
    with pytest.raises(TypeError, match=f"the corpus is {message}"):
        make_rankings({"query": ["q"], "documents": [[0]]}, make(rows))


def test_arrays_are_lists():
    rankings = make_rankings(
        {
            "query": np.array(["q"]),
            "documents": np.array([[0, 1]]),
            "labels": np.array([[1, 0]]),
            "teacher_logits": [[np.float32(0.5), np.int64(2)]],
        },
        {"text": np.array(["a", "b"])},
    )
    assert as_texts(rankings) == [("q", ["a", "b"], [1, 0], [0.5, 2])]
    rows = {"query": ["q", "q"], "passage": ["a", "b"], "label": np.array([1, 0])}
    assert as_texts(read_rankings(rows)) == [("q", ["a", "b"], [1, 0])]
    for rows in (
        {"query": ["q"], "documents": [np.array(["a", "b"], object)], "labels": [np.array([1, 0], "float32")]},
        {"query": ["q"], "pos": [np.array(["a"])], "neg": [np.array(["b"])]},
        Dataset.from_dict({"query": ["q"], "pos": [["a"]], "neg": [["b"]]}).with_format("numpy"),
        Dataset.from_dict({"query": ["q"], "pos": [["a"]], "neg": [["b"]]}).to_pandas(),
    ):
        assert as_texts(read_rankings(rows)) == [("q", ["a", "b"], [1, 0])]
    for value in (np.bool_(True), np.float64("inf"), "1", 1j):
        with pytest.raises(ValueError, match="not a finite number"):
            make_rankings({"query": ["q"], "documents": [[0]], "labels": [[value]]}, CORPUS)


@pytest.mark.parametrize("doc_id", [[7, 8], ["7", "8"], None])
def test_corpus_that_is_a_data_set(doc_id):
    columns = {"text": ["a", "b"], "other": [1, 2]} | ({} if doc_id is None else {"doc_id": doc_id})
    rankings = make_rankings({"query": ["q"], "documents": [[1]]}, Dataset.from_dict(columns))
    assert rankings.corpus["doc_id"][:] == (["0", "1"] if doc_id is None else ["7", "8"])
    assert rankings.corpus["text"][:] == ["a", "b"] and rankings.corpus["other"][:] == [1, 2]
    # What has been checked is not made again.
    assert make_rankings({"query": ["q"], "documents": [[1]]}, rankings.corpus).corpus is rankings.corpus
    ids = ["0"] if doc_id is None else [8]
    assert len(read_rankings({"query": ["q"], "document_ids": [ids]}, Dataset.from_dict(columns))) == 1
    part = rankings.corpus.select([1])
    assert make_corpus(part, "Part")["doc_id"][:] == rankings.corpus["doc_id"][1:]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"doc_id": [1, 1], "text": ["a", "b"]}, "document id '1' occurs twice"),
        ({"doc_id": ["x", "y"], "text": ["a", None]}, "document 'y' is None, not a text"),
        ({"doc_id": ["x", "y"], "text": [1, 2]}, "document 'x' is 1, not a text"),
        ({"doc_id": ["x", "y"], "body": ["a", "b"]}, "no column 'text'; the columns are doc_id, body"),
        ({"doc_id": [], "text": []}, "the corpus is empty"),
    ],
)
@pytest.mark.parametrize("kind", [dict, Dataset.from_dict])
def test_a_bad_corpus_is_named(columns, message, kind):
    with pytest.raises(ValueError, match=message):
        make_rankings({"query": ["q"], "documents": [[0]]}, kind(columns))


def test_an_id_is_no_query():
    rows = {"id": ["7"], "instruction": ["A?"], "positive": ["p"], "negative": ["n"]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1.0, 0.0])]


@pytest.mark.parametrize("rows", [{"_id": ["7"], "text": ["A?"]}, {"query_id": ["7"], "query": ["A?"], "meta": [{}]}])
def test_queries_alone(rows):
    rankings = read_rankings(rows, CORPUS)
    assert rankings.queries["query"][:] == ["A?"] and rankings.queries["documents"][:] == [[]]


def test_texts_with_a_corpus():
    """Candidates that are texts are found by their texts; those that the corpus lacks are added."""
    for rows in (
        {"query": ["A?"], "pos": [["Cats purr."]], "neg": [["Snow falls."]]},
        {"query": ["A?"], "positive": ["Cats purr."], "negative": ["Snow falls."]},
        {"query": ["A?"], "documents": [["Cats purr.", "Snow falls."]], "labels": [[1, 0]]},
    ):
        rankings = read_rankings(rows, CORPUS)
        assert as_texts(rankings) == [("A?", ["Cats purr.", "Snow falls."], [1.0, 0.0])]
        assert rankings.queries["documents"][0] == [1, 3] and len(rankings.corpus) == 4
    ids = read_rankings({"query": ["A?"], "pos": [["b"]], "neg": [["a"]]}, CORPUS)
    assert ids.queries["documents"][0] == [1, 0]
    with pytest.raises(ValueError, match="'z' is not in the corpus of 3 documents"):
        read_rankings({"query": ["A?"], "pos": [["b"]], "neg": [["z"]]}, CORPUS)


def test_ids_with_a_corpus():
    rows = {"query_id": ["7"], "document_ids": [["c", "a"]], "scores": [[0.5, 2]]}
    rankings = read_rankings(rows, CORPUS, {"7": "Weather?"})
    assert rankings.queries["query_id"][0] == "7"
    assert rankings.queries["documents"][0] == [2, 0]
    assert all(map(math.isnan, rankings.queries["labels"][0]))
    assert rankings.queries["teacher_logits"][0] == [0.5, 2.0]
    with pytest.raises(ValueError, match="'9' is not in the corpus of 3 documents"):
        read_rankings({"query": ["Weather?"], "document_ids": [["9"]]}, CORPUS)
    with pytest.raises(ValueError, match="1 queries have no text, the first is '8'"):
        read_rankings({"query_id": ["8"], "document_ids": [["a"]]}, CORPUS, {"7": "Weather?"})
    with pytest.raises(ValueError, match="texts are unknown: name a table .* `--corpus_file`"):
        read_rankings(rows | {"query": ["Weather?"]})


def test_margins_are_scores_relative_to_the_positive():
    rows = {"query": ["A?"], "positive": ["p"], "negative_1": ["n"], "negative_2": ["m"], "label": [[2.0, 5.0]]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n", "m"], [1.0, 0.0, 0.0], [0.0, -2.0, -5.0])]


def test_rows_with_the_same_query_are_one_query():
    rows = {"query": ["A?", "B?", "A?"], "positive": ["p", "q", "r"], "negative": ["n", "n", "n"]}
    rankings = read_rankings(rows)
    assert as_texts(rankings) == [("A?", ["p", "n", "r"], [1, 0, 1]), ("B?", ["q", "n"], [1, 0])]
    assert [[rankings.corpus["text"][row] for row in rows] for rows in rankings.positives()] == [["p", "r"], ["q"]]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"query": ["A?"], "positive": ["p"], "negative": ["p"]}, "row 0: the positive 'p' .* is also a negative"),
        ({"query": ["A?"] * 2, "positive": ["p", "n"], "negative": ["n", "m"]}, "row 1: .* both relevant and not"),
        (
            {"query": ["A?"] * 2, "documents": [["p"], ["p"]], "scores": [[1.0], [9.0]]},
            "row 1: the candidate 'p' of the query 'A.' has the score 9.0, and 1.0 before: remove one of the two",
        ),
        ({"query": ["A?"], "documents": [["p", "n"]], "labels": [[1]]}, "row 0: labels has 1 values for 2 candidates"),
        ({"query": ["A?"], "documents": [["p"]], "scores": [[math.nan]]}, "query '0': a score is nan"),
        ({"query": ["A?"], "documents": [["p"]], "labels": [[math.inf]]}, "query '0': a label is inf"),
        ({"query": ["A?"], "documents": [["p"]], "labels": [["yes"]]}, "query '0': a label is 'yes'"),
        ({"query": [" "], "positive": ["p"]}, "query '0' is empty"),
        ({"query": [None], "positive": ["p"]}, "query '0' is None, not a text"),
        ({"query": ["A?"], "positive": [3]}, "row 0: candidate 0 is 3, not a text"),
        ({"query": ["A?"], "documents": ["p"]}, "row 0: documents is 'p', not a list"),
        ({"query": ["A?"]}, "no column has candidates; the columns are query"),
        ({"query": [], "positive": []}, "the corpus is empty"),
    ],
)
def test_bad_rows_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        read_rankings(rows)


@pytest.mark.parametrize(
    ("queries", "corpus", "message"),
    [
        ({"query": ["A?"], "documents": [[0, 0]]}, CORPUS, "'a' is twice among its candidates"),
        ({"query": ["A?"], "documents": [[3]]}, CORPUS, "row 3 is not one of the 3 documents"),
        ({"query": ["A?"], "documents": [[]]}, {"text": []}, "the corpus is empty"),
        ({"query": [], "documents": []}, CORPUS, "there are no queries"),
        ({"query": ["A?"], "documents": [[]]}, {"doc_id": ["a", "a"], "text": ["x", "y"]}, "id 'a' occurs twice"),
        ({"query": ["A?"], "documents": [[]]}, {"doc_id": ["a"], "text": [None]}, "document 'a' is None, not a text"),
        (
            {"query": ["A?", "B?"], "query_id": [1, 1], "documents": [[], []]},
            CORPUS,
            "the query id '1' occurs twice",
        ),
    ],
)
def test_bad_rankings_are_named(queries, corpus, message):
    with pytest.raises(ValueError, match=message):
        make_rankings(queries, corpus)


def test_queries_without_a_positive_are_named():
    rankings = make_rankings({"query": ["A?", "B?"], "documents": [[0], [1]], "labels": [[1], [None]]}, CORPUS)
    with pytest.raises(ValueError, match="1 of 2 queries have no relevant document .* first is '1'"):
        check_positives(rankings)


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_written_rankings_read_the_same(tmp_path, ending):
    columns = {"query": ["A \u2028 'é'?", "B?"], "documents": [[2, 0], [1]], "labels": [[1, None], [0]]}
    rankings = make_rankings(columns | {"teacher_logits": [[0.1, None], [7.0]]}, CORPUS)
    write_rankings(rankings, tmp_path / f"rows.{ending}")
    again = read_rankings(read_columns(tmp_path / f"rows.{ending}"))
    assert as_texts(again) == as_texts(rankings)
    assert is_ranking_data(DataArguments(train_file=str(tmp_path / f"rows.{ending}")))
    split = load_rankings(DataArguments(train_file=str(tmp_path / f"rows.{ending}")))["train"]
    assert as_texts(split) == as_texts(rankings)
    assert ranking_rows(split)["document_ids"] == [["c", "a"], ["b"]]
    rows = {"query": ["A?", "B?"], "document_ids": [["c"], ["c"]], "documents": [["x"], ["y"]]}
    with pytest.raises(ValueError, match="row 1: the document 'c' has another text"):
        read_rankings(rows)


def write_beir(folder, qrels="test"):
    documents = [{"_id": "a", "title": "Planes", "text": "They fly."}, {"_id": "b", "title": "", "text": "Cats purr."}]
    queries = [{"_id": "1", "text": "What flies?"}, {"_id": "2", "text": "What purrs?"}]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore", "1\ta\t2", "1\tb\t-1", "2\tb\t1"]
    (folder / "qrels" / f"{qrels}.tsv").write_text("\n".join(lines) + "\n")


def test_beir_folder(tmp_path):
    write_beir(tmp_path)
    data_args = DataArguments(dataset_name=str(tmp_path))
    assert is_ranking_data(data_args)
    rankings = load_rankings(data_args)
    assert list(rankings) == ["test"]
    # Titles are joined as in BEIR; a relevance below 0 is not relevant.
    assert rankings["test"].corpus["text"][:] == ["Planes They fly.", "Cats purr."]
    assert rankings["test"].corpus["doc_id"][:] == ["a", "b"]
    assert rankings["test"].queries[:] == {
        "query_id": ["1", "2"],
        "query": ["What flies?", "What purrs?"],
        "documents": [[0, 1], [1]],
        "labels": [[2.0, 0.0], [1.0]],
    }
    assert len(load_rankings(DataArguments(dataset_name=str(tmp_path), max_eval_samples=1))["test"]) == 1
    with pytest.raises(FileNotFoundError, match="no split train; the splits are test"):
        load_rankings(data_args, ["train"])


def test_kept_scores_have_ids_and_no_text(tmp_path, monkeypatch):
    monkeypatch.syspath_prepend(Path(__file__).parents[1] / "recipes")
    kept_scores = importlib.import_module("kept_scores")
    write_beir(tmp_path)
    rankings = load_rankings(DataArguments(dataset_name=str(tmp_path)))["test"]
    scored = make_rankings({**rankings.queries[:], "teacher_logits": [[0.5, -2.0], [3.0]]}, rankings.corpus)
    write_rankings(scored, tmp_path / "scored.jsonl")
    kept_scores.ids(str(tmp_path / "scored.jsonl"), str(tmp_path / "kept.parquet"))
    assert list(read_columns(tmp_path / "kept.parquet")) == ["query_id", "document_ids", "labels", "teacher_logits"]
    again = load_rankings(DataArguments(dataset_name=str(tmp_path), train_file=str(tmp_path / "kept.parquet")))
    assert as_texts(again["train"]) == as_texts(scored)


def test_beir_folder_of_parquet_files(tmp_path):
    Dataset.from_dict(CORPUS).to_parquet(tmp_path / "corpus.parquet")
    for split, query in (("train", "1"), ("test", "2")):
        Dataset.from_dict({"query_id": [query], "query": ["What?"]}).to_parquet(tmp_path / f"queries_{split}.parquet")
        judged = {"query_id": [query], "doc_id": ["c"], "relevance": [1]}
        Dataset.from_dict(judged).to_parquet(tmp_path / f"qrels_{split}.parquet")
    rankings = load_rankings(DataArguments(dataset_name=str(tmp_path)))
    assert {split: part.positives() for split, part in rankings.items()} == {"train": [[2]], "test": [[2]]}
    # Mined candidates, as ids in this corpus.
    ids = {"query_id": ["1"], "document_ids": [["c", "a"]], "labels": [[1, 0]]}
    Dataset.from_dict(ids).to_parquet(tmp_path / "mined.parquet")
    mined = DataArguments(train_file=str(tmp_path / "mined.parquet"), corpus_file=str(tmp_path))
    assert is_ranking_data(mined)
    assert load_rankings(mined)["train"].queries["documents"][0] == [2, 0]


@pytest.mark.parametrize("language", [None, "fr"])
def test_hub_layout_of_mteb(tmp_path, language):
    write_beir(tmp_path)
    judged = Dataset.from_dict({"query-id": ["1", "1", "2"], "corpus-id": ["a", "b", "b"], "score": [2, 0, 1]})
    judged.to_json(tmp_path / "test.jsonl")
    lines = (tmp_path / "queries.jsonl").read_text().splitlines(keepends=True)
    for number, line in enumerate(lines):
        (tmp_path / f"queries-{number}.jsonl").write_text(line)
    prefix = "" if language is None else f"{language}-"
    parts = {
        f"{prefix}corpus": {"corpus": "corpus.jsonl"},
        # A split has its own queries.
        f"{prefix}queries": {f"part{number}": f"queries-{number}.jsonl" for number in range(len(lines))},
        f"{prefix}qrels" if language else "default": {"test": "test.jsonl"},
    }
    if language:
        parts |= {"de-corpus": {"corpus": "no-corpus.jsonl"}, "de-queries": {"queries": "no-queries.jsonl"}}
    save_configs(tmp_path, parts)
    args = DataArguments(dataset_name=str(tmp_path), dataset_config_name=language)
    corpus, texts, found = _hub_sources(args)
    rankings = read_rankings(found["test"](), make_corpus(corpus, "Hub"), texts)
    assert rankings.corpus["text"][:] == ["Planes They fly.", "Cats purr."]
    assert rankings.queries["documents"][:] == [[0, 1], [1]]
    save_configs(tmp_path, {**parts, f"{prefix}corpus": {"test": "corpus.jsonl", "train": "corpus.jsonl"}})
    with pytest.raises(ValueError, match="has a corpus for each of the splits test, train"):
        _hub_sources(args)


@pytest.mark.parametrize("layout", ["BEIR", "rows"])
def test_sets_of_the_hub(tmp_path, monkeypatch, layout):
    """The judgements of BEIR's sets are in another repository; rows are their own corpus."""
    name, folder = "someone/papers", tmp_path / "someone/papers"
    folder.mkdir(parents=True)
    write_beir(folder)
    if layout == "BEIR":
        save_configs(folder, {part: {part: f"{part}.jsonl"} for part in ("corpus", "queries")})
        other = tmp_path / "someone/papers-qrels"
        other.mkdir()
        judged = {"query-id": ["1", "1", "2"], "corpus-id": ["a", "b", "b"], "score": [2, 0, 1]}
        Dataset.from_dict(judged).to_csv(other / "test.csv")
        save_configs(other, {"default": {"test": "test.csv"}})
    else:
        rows = {"question": ["What?", "Who?"], "answer": ["p", "q"], "negative": ["n", "n"]}
        Dataset.from_dict(rows).to_json(folder / "rows.jsonl")
        save_configs(folder, {"default": {"train": "rows.jsonl"}})
    # From here as from the Hub.
    for function in (get_dataset_config_names, load_dataset):
        at_home = partial(lambda function, name, *args: function(str(tmp_path / name), *args), function)
        monkeypatch.setattr(ranking_files, function.__name__, at_home)
    args = DataArguments(dataset_name=name)
    assert is_ranking_data(args)
    found = load_rankings(args)
    if layout == "BEIR":
        assert list(found) == ["test"] and found["test"].corpus["text"][:] == ["Planes They fly.", "Cats purr."]
        assert found["test"].queries["documents"][:] == [[0, 1], [1]]
        assert len(load_corpus(args)) == 2
    else:
        assert as_texts(found["train"]) == [("What?", ["p", "n"], [1.0, 0.0]), ("Who?", ["q", "n"], [1.0, 0.0])]
        with pytest.raises(ValueError, match="someone/papers has no corpus"):
            load_corpus(args)


def save_configs(folder, parts):
    """The card of a data set, which names its configurations and the file of each split."""
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for name, files in parts.items()
    ]
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda folder: (folder / "qrels" / "test.tsv").write_text(""), "is empty"),
        (lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n"), "no judgements"),
        (lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\n"), "line 2: 2"),
        (lambda folder: (folder / "qrels" / "test.tsv").write_text("q\td\tr\n1\ta\t1\n"), "no column 'query_id'"),
        (
            lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\tx\n"),
            "row 0: the relevance 'x' is not a number",
        ),
        (
            lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\tnan\n"),
            "row 0: the relevance 'nan' is not a finite number",
        ),
        (
            lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\tz\t1\n"),
            "document id 'z' is not in the corpus of 2",
        ),
        (
            lambda folder: (folder / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n9\ta\t1\n"),
            "1 queries have no text, the first is '9'",
        ),
        (lambda folder: (folder / "corpus.jsonl").write_text(""), "has no columns: the file is empty"),
        (lambda folder: (folder / "corpus.jsonl").write_text('{"_id": "a", "body": 3}\n'), "'a' is 3, not a text"),
    ],
)
def test_bad_beir_folders_are_named(tmp_path, change, message):
    write_beir(tmp_path)
    change(tmp_path)
    with pytest.raises(ValueError, match=message):
        load_rankings(DataArguments(dataset_name=str(tmp_path)))


def test_judgements_as_others_write_them(tmp_path):
    """With blank lines, and a document that is judged twice, of which the last counts as in BEIR."""
    write_beir(tmp_path)
    (tmp_path / "qrels" / "test.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n1\ta\t2\n\n2\tb\t1\n\n")
    assert load_rankings(DataArguments(dataset_name=str(tmp_path)))["test"].queries["labels"][:] == [[2.0], [1.0]]


def test_other_files_in_a_folder_of_rankings(tmp_path):
    rows = {"query": "A?", "pos": ["p"], "neg": ["n"]}
    (tmp_path / "train.jsonl").write_text(json.dumps(rows) + "\n")
    (tmp_path / "dataset_infos.json").write_text('{\n  "default": {}\n}\n')
    (tmp_path / "extra.jsonl").write_text('{"sentence1": "a", "sentence2": "b"}\n')
    assert is_ranking_data(DataArguments(dataset_name=str(tmp_path)))


def test_pairs_are_not_rankings(tmp_path):
    Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0]}).to_parquet(tmp_path / "train.parquet")
    assert not is_ranking_data(DataArguments(dataset_name=str(tmp_path)))
    assert not is_ranking_data(DataArguments(train_file=str(tmp_path / "train.parquet")))
    assert not is_ranking_data(DataArguments(dataset_name="embedded"))
    assert not is_ranking_data(DataArguments(task_name="stsb"))
