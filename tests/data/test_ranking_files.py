# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rankings of files, of folders in the layout of BEIR, and of data sets of the Hub."""

import importlib
import json
from dataclasses import replace

import pytest
from datasets import Dataset

from hf_dse.data.options import DataArguments
from hf_dse.data.pairs import to_pairs
from hf_dse.data.ranking_files import (
    choose_split,
    is_ranking_data,
    load_corpus,
    load_rankings,
    options_of,
    to_corpus,
    to_rankings,
)
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
    graded = load_rankings(DataArguments(dataset_name=str(tmp_path), relevance_threshold=2))["test"]
    assert (rankings["test"].positives(), graded.positives()) == ([[0], [1]], [[0], []])
    with pytest.raises(ValueError, match="relevance_threshold=2 is for judged queries, and these are documents alone"):
        to_corpus(DataArguments(dataset_name=str(tmp_path), relevance_threshold=2))
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


# Loaded, or named by a string, a path or `DataArguments`


RANKING = {"query": "a cat", "documents": ["the cat", "a dog"], "labels": [1, 0]}
PAIR = {"sentence1": "a cat", "sentence2": "the cat", "label": 1.0}


@pytest.fixture
def folder(tmp_path):
    for kind, row in (("rankings", RANKING), ("pairs", PAIR)):
        (tmp_path / kind).mkdir()
        for number, split in enumerate(("train", "validation", "test"), start=1):
            lines = [json.dumps(row).replace("a cat", f"a cat {place}") for place in range(number)]
            (tmp_path / kind / f"{split}.jsonl").write_text("\n".join(lines))
    return tmp_path


def test_rankings_by_name(folder):
    path = folder / "rankings"
    loaded = make_rankings({"query": ["a"], "documents": [[0]]}, {"text": ["b"]})
    assert to_rankings(loaded) is to_rankings(loaded, "test") is loaded
    for data in (path, str(path), DataArguments(dataset_name=str(path))):
        assert len(to_rankings(data)) == len(to_rankings(data, "test")) == 3
        assert len(to_rankings(data, "train")) == 1
        assert is_ranking_data(options_of(data))
    # A file is the train split.
    assert len(to_rankings(path / "validation.jsonl")) == 2
    assert choose_split(["train", "validation"]) == "validation"


def test_the_unit_of_rankings(folder):
    """Whole texts, but for documents that are files, or where passages are asked for."""
    loaded = make_rankings({"query": ["a"], "documents": [[0]]}, {"text": ["b"]})
    assert loaded.chunk_size is None and to_rankings(folder / "rankings").chunk_size is None
    for size in (0, 64):
        asked = to_rankings(loaded, chunk_size=size)
        assert asked.chunk_size == size and asked.queries is loaded.queries
        assert to_rankings(asked) is to_rankings(asked, chunk_size=size) is asked
        assert to_rankings(folder / "rankings", chunk_size=size).chunk_size == size
        args = DataArguments(dataset_name=str(folder / "rankings"), chunk_size=size)
        assert to_rankings(args).chunk_size == size and to_rankings(args, chunk_size=9).chunk_size == 9
    passages = replace(make_rankings(loaded.queries, {"text": ["b"], "passage_of": ["d"]}), chunk_size=64)
    assert to_rankings(passages, chunk_size=64) is passages
    with pytest.raises(ValueError, match="chunk_size=9: the documents are passages already, of 64"):
        to_rankings(passages, chunk_size=9)
    with pytest.raises(ValueError, match="chunk_size=-1: it has to be at least 0"):
        DataArguments(chunk_size=-1)


def test_the_unit_of_documents(folder):
    (folder / "docs").mkdir()
    (folder / "docs" / "a.md").write_text("a cat")
    (folder / "queries.jsonl").write_text('{"query": "a", "file": "a.md"}')
    corpus, size = to_corpus(folder / "docs")
    assert corpus.to_dict() == {"doc_id": ["a.md"], "text": ["a cat"]} and size == 128
    args = DataArguments(train_file=str(folder / "queries.jsonl"), corpus_file=str(folder / "docs"))
    assert to_rankings(args, "train").chunk_size == 128
    assert to_rankings(args, "train", 0).chunk_size == 0 and to_corpus(folder / "docs", 0)[1] == 0
    # A table, also one in a folder, and lines have whole texts.
    (folder / "beir").mkdir()
    for name in ("beir/corpus.jsonl", "table.jsonl"):
        (folder / name).write_text('{"_id": "x", "text": "a cat"}')
    (folder / "lines.txt").write_text("a cat")
    for name in ("beir", "table.jsonl", "lines.txt"):
        assert to_corpus(folder / name)[1] is None and to_corpus(folder / name, 64)[1] == 64
    assert to_corpus(corpus) == (corpus, None) and to_corpus(corpus, 64) == (corpus, 64)


def test_pairs_by_name(folder):
    path = folder / "pairs"
    loaded = Dataset.from_list([PAIR])
    args = options_of(loaded, num_labels=1, task_name=None)
    assert args == DataArguments(num_labels=1) and to_pairs(loaded, args, "test").to_list() == [PAIR]
    for data in (path, str(path), DataArguments(dataset_name=str(path))):
        args = options_of(data, num_labels=1)
        assert args == DataArguments(dataset_name=str(path), num_labels=1)
        assert not is_ranking_data(args) and len(to_pairs(data, args, "test")) == 3
    assert not is_ranking_data(options_of(loaded))


def test_other_kinds_are_errors(folder):
    splits = load_rankings(str(folder / "rankings"))
    for data in (Dataset.from_list([PAIR]), splits):
        kind = type(data).__name__
        with pytest.raises(TypeError, match=f"type {kind}: pass `DataArguments`, the name .*, or one loaded split"):
            to_rankings(data)
    for name, value in (("label_column", "grade"), ("sentence1_column", "a"), ("symmetric", True)):
        data = DataArguments(dataset_name=str(folder / "rankings"), **{name: value})
        with pytest.raises(ValueError, match=f"{name}={value} is for sentence pairs, and the data are queries"):
            load_rankings(data)
    with pytest.raises(ValueError, match="columns query, documents, labels, and sentence pairs need sentence1 and"):
        to_pairs(Dataset.from_list([RANKING]), DataArguments(), "train")
