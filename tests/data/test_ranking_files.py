# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rankings of files, of folders in the layout of BEIR, and of data sets of the Hub."""

import importlib
import json

import pytest
from datasets import Dataset

from hf_dse.data.options import DataArguments
from hf_dse.data.ranking_files import is_ranking_data, load_corpus, load_rankings
from hf_dse.data.rankings import make_rankings, ranking_rows, write_rankings
from hf_dse.data.tables import column_names, open_table


CORPUS = {"doc_id": ["a", "b", "c"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}
JUDGEMENTS = "query-id\tcorpus-id\tscore\n1\ta\t2\n1\tb\t-1\n2\tb\t1\n"


def write_beir(folder, judgements=JUDGEMENTS):
    documents = [{"_id": "a", "title": "Planes", "text": "They fly."}, {"_id": "b", "title": "", "text": "Cats purr."}]
    queries = [{"_id": "1", "text": "What flies?"}, {"_id": "2", "text": "What purrs?"}]
    for name, rows in (("corpus", documents), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    (folder / "qrels" / "test.tsv").write_text(judgements)


# Titles are joined as in BEIR; a relevance below 0 is not relevant.
TEXTS = ["Planes They fly.", "Cats purr."]
QUERIES = {
    "query_id": ["1", "2"],
    "query": ["What flies?", "What purrs?"],
    "documents": [[0, 1], [1]],
    "labels": [[2.0, 0.0], [1.0]],
}


@pytest.mark.parametrize(
    "judgements",
    [
        JUDGEMENTS,
        # As in BEIR, the last of two counts.
        JUDGEMENTS.replace("1\ta\t2\n", "1\ta\t1\n\n1\ta\t2\n") + "\n",
        "1 0 a 2\n1 0 b -1\n2 0 b 1\n",
        "1\t0\ta\t2\n1\t0\tb\t-1\n2\t0\tb\t1\n",
        "query-id\titer\tcorpus-id\tscore\n1\t0\ta\t2.0\n1\t0\tb\t-1\n2\t0\tb\t1\n",
    ],
    ids=["BEIR", "twice and blank lines", "TREC", "TREC with tabs", "four columns"],
)
def test_beir_folder(tmp_path, judgements):
    write_beir(tmp_path, judgements)
    assert is_ranking_data(DataArguments(dataset_name=str(tmp_path)))
    rankings = load_rankings(tmp_path)
    assert list(rankings) == ["test"]
    assert rankings["test"].corpus["text"][:] == TEXTS and rankings["test"].corpus["doc_id"][:] == ["a", "b"]
    assert rankings["test"].queries[:] == QUERIES
    assert len(load_rankings(DataArguments(dataset_name=str(tmp_path), max_eval_samples=1))["test"]) == 1
    with pytest.raises(FileNotFoundError, match="no split train; the splits are test"):
        load_rankings(tmp_path, ["train"])


@pytest.mark.parametrize("header", ["qid\tquery\n", "_id\ttext\n", ""])
def test_queries_in_a_tsv_file(tmp_path, header):
    """The file of MS MARCO has no header."""
    write_beir(tmp_path)
    (tmp_path / "queries.jsonl").unlink()
    (tmp_path / "queries.tsv").write_text(f'{header}1\t"What" flies?\n2\tWhat purrs?\n')
    rankings = load_rankings(tmp_path)["test"]
    assert rankings.queries["query"][:] == ['"What" flies?', "What purrs?"]


def test_two_texts_of_one_query(tmp_path):
    """The last file won: its queries met the judgements of the others."""
    write_beir(tmp_path)
    other = tmp_path / "queries_rewrite.jsonl"
    other.write_text('{"_id": "2", "text": "Which animal?"}\n')
    with pytest.raises(ValueError, match=r"queries.jsonl and .*queries_rewrite.jsonl: the query '2' is there twice"):
        load_rankings(tmp_path)
    other.write_text('{"_id": "1", "text": "What flies?"}\n')
    assert load_rankings(tmp_path)["test"].queries[:] == QUERIES
    other.write_text('{"_id": "3", "text": "x"}\n{"_id": "3", "text": "y"}\n')
    with pytest.raises(ValueError, match="queries_rewrite.jsonl: the query '3' is there twice, with two texts"):
        load_rankings(tmp_path)


def test_beir_folder_of_parquet_files(tmp_path):
    Dataset.from_dict(CORPUS).to_parquet(tmp_path / "corpus.parquet")
    for split, query in (("train", "1"), ("dev", "2")):
        Dataset.from_dict({"query_id": [query], "query": ["What?"]}).to_parquet(tmp_path / f"queries_{split}.parquet")
        judged = {"query_id": [query], "doc_id": ["c"], "relevance": [1]}
        Dataset.from_dict(judged).to_parquet(tmp_path / f"qrels_{split}.parquet")
    rankings = load_rankings(tmp_path)
    assert {split: part.positives() for split, part in rankings.items()} == {"train": [[2]], "validation": [[2]]}
    # Mined candidates, as ids in this corpus.
    ids = {"query_id": ["1"], "document_ids": [["c", "a"]], "labels": [[1, 0]]}
    Dataset.from_dict(ids).to_parquet(tmp_path / "mined.parquet")
    mined = DataArguments(train_file=str(tmp_path / "mined.parquet"), corpus_file=str(tmp_path))
    assert is_ranking_data(mined)
    assert load_rankings(mined)["train"].queries["documents"][0] == [2, 0]


def test_kept_scores_have_ids_and_no_text(tmp_path, monkeypatch):
    kept_scores = importlib.import_module("kept_scores")
    write_beir(tmp_path)
    rankings = load_rankings(tmp_path)["test"]
    scored = make_rankings({**rankings.queries[:], "teacher_logits": [[0.5, -2.0], [3.0]]}, rankings.corpus)
    write_rankings(scored, tmp_path / "scored.jsonl")
    kept_scores.ids(str(tmp_path / "scored.jsonl"), str(tmp_path / "kept.parquet"))
    names = column_names(open_table(tmp_path / "kept.parquet"))
    assert names == [
        "query_id",
        "document_ids",
        "labels",
        "teacher_logits",
    ]
    again = load_rankings(DataArguments(dataset_name=str(tmp_path), train_file=str(tmp_path / "kept.parquet")))
    assert ranking_rows(again["train"]) == ranking_rows(scored)


@pytest.mark.parametrize(
    ("judgements", "message"),
    [
        ("query-id\tcorpus-id\tscore\n", "no judgements"),
        ("query-id\tcorpus-id\tscore\n\n1\ta\n", "line 3: not valid csv: 2 cells, and 3 in the header"),
        ("query-id\tcorpus-id\tscore\n1\ta\t1\n1\tb\t1.667\n", "row 1: the relevance '1.667' is not a whole number"),
        ("query-id\tcorpus-id\tscore\n1\tz\t1\n", "row 0: the document 'z' is not in the corpus of 2"),
        ("query-id\tcorpus-id\tscore\n9\ta\t1\n", "the query '9' has no text"),
        ("query-id\tcorpus-id\tscore\n1\ta\t1e20\n", "the relevance '1e20' is not a whole number up to 10,000"),
        ("1\ta\t1\n", "judgements have a header, .*; the first line is '1.ta.t1'"),
    ],
)
def test_bad_judgements_are_named(tmp_path, judgements, message):
    write_beir(tmp_path, judgements)
    with pytest.raises(ValueError, match=message):
        load_rankings(tmp_path)


def test_parts_of_a_folder_that_are_missing(tmp_path):
    write_beir(tmp_path)
    (tmp_path / "qrels" / "test.tsv").unlink()
    with pytest.raises(FileNotFoundError, match="has a corpus, but no judgements: qrels/test.tsv"):
        load_rankings(tmp_path)
    (tmp_path / "corpus.jsonl").write_text('{"text": "a"}\n')
    with pytest.raises(ValueError, match="no column 'doc_id' or '_id' or .*; the columns are text"):
        load_corpus(tmp_path)
    # As of lines.
    assert load_corpus(tmp_path / "corpus.jsonl")["doc_id"][:] == ["0"]


def test_kinds_of_data(tmp_path):
    rows = {"query": "A?", "positive": "p", "negative": "n"}
    (tmp_path / "train.jsonl").write_text(json.dumps(rows) + "\n")
    (tmp_path / "dataset_infos.json").write_text('{\n  "default": {}\n}\n')
    pairs = tmp_path / "pairs.parquet"
    Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0]}).to_parquet(pairs)
    assert is_ranking_data(DataArguments(dataset_name=str(tmp_path)))
    assert is_ranking_data(DataArguments(dataset_name=str(tmp_path / "train.jsonl")))
    for arguments in ({"dataset_name": str(pairs)}, {"train_file": str(pairs)}, {"dataset_name": "embedded"}):
        assert not is_ranking_data(DataArguments(**arguments))
    assert not is_ranking_data(DataArguments(task_name="stsb")) and not is_ranking_data(DataArguments(num_labels=1))
