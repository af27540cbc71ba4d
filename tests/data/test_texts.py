# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts of files, and documents with titles."""

import json
import math
from pathlib import Path

import pandas as pd
import pytest
from datasets import Dataset

from hf_dse.data.options import DataArguments
from hf_dse.data.ranking_files import load_corpus, load_rankings
from hf_dse.data.rankings import make_rankings
from hf_dse.data.texts import load_texts, read_texts


PAIRS = Dataset.from_dict({"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "label": [0.5, 1.5, 2.5]})


def test_texts_of_files(tmp_path, warnings):
    (tmp_path / "a.txt").write_bytes(b"\xef\xbb\xbfa\r\n\r\nb\xe2\x80\xa8c\r\n")
    assert read_texts(tmp_path / "a.txt") == {"text": ["a", "", "b\u2028c"]}
    assert load_texts(str(tmp_path / "a.txt"))["text"][:] == ["a", "b\u2028c"]
    assert "dropped 1 of 3 texts because they are empty" in warnings[0]
    PAIRS.to_csv(tmp_path / "pairs.csv")
    assert load_texts(str(tmp_path / "pairs.csv"), "sentence1,sentence2")["text"][:] == list("abcdef")
    assert load_texts(str(tmp_path / "pairs.csv"), "sentence1", 2)["text"][:] == ["a", "b"]
    # Row numbers of a corpus are line numbers; blank lines are not documents.
    corpus = load_corpus(tmp_path / "a.txt")
    assert corpus.to_dict() == {"doc_id": ["0", "2"], "text": ["a", "b\u2028c"]}
    assert "1 blank lines are left out" in warnings[-1]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("other.jsonl", '{"txt": "a"}\n', "no column 'text'; the columns are txt. Choose one with `--text_column`"),
        ("nan.json", '[{"text": NaN}]', "row 0: text is nan, not a string"),
        ("utf16.txt", "hello".encode("utf-16"), "utf16.txt: not a text in UTF-8"),
        ("blank.txt", " \n\n", "blank.txt has no text"),
    ],
)
def test_bad_texts(tmp_path, name, content, message):
    path = tmp_path / name
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    with pytest.raises(ValueError, match=message):
        load_texts(str(path))


def test_titles(tmp_path):
    """NaN of a data frame became the word "nan", and a title that begins the text was left out in Python."""
    rows = [{"_id": "a", "title": "Heart", "text": "Heart beats."}, {"_id": "b", "title": math.nan, "text": "Bread."}]
    rows.append({"_id": "c", "title": None, "text": "Rain."})
    path = tmp_path / "corpus.jsonl"
    path.write_text("\n".join(map(json.dumps, rows)))
    given = {"doc_id": ["a", "b", "c"], **{key: [row[key] for row in rows] for key in ("title", "text")}}
    queries = {"query": ["q"], "documents": [[0]]}
    for name in (path, tmp_path):
        read = load_corpus(name)
        assert read.to_dict() == {
            "doc_id": ["a", "b", "c"],
            "text": ["Heart Heart beats.", "Bread.", "Rain."],
            "joined_title": ["Heart", "", ""],
        }
        assert read_texts(name)["text"] == read["text"][:]
        # The same of Python objects; what was read is not joined again.
        for corpus in (given, Dataset.from_pandas(pd.DataFrame(given)), read):
            assert make_rankings(queries, corpus).corpus.to_dict() == read.to_dict()
            assert make_rankings(queries, make_rankings(queries, corpus).corpus).corpus.to_dict() == read.to_dict()
    path.rename(tmp_path / "docs.jsonl")
    assert read_texts(tmp_path / "docs.jsonl")["text"][0] == "Heart Heart beats."
    (tmp_path / "docs.jsonl").rename(path)
    path.write_text('{"_id": "a", "title": 5, "text": "x"}')
    with pytest.raises(ValueError, match="row 0: title is 5, not a string"):
        load_corpus(path)
    Dataset.from_dict({"_id": ["a", "b"], "title": [float("nan")] * 2, "text": ["x", "y"]}).to_parquet(
        tmp_path / "corpus.parquet"
    )
    assert load_corpus(tmp_path / "corpus.parquet").to_dict() == {"doc_id": ["a", "b"], "text": ["x", "y"]}


def test_a_corpus_that_is_missing(tmp_path):
    with pytest.raises(FileNotFoundError, match="there are no .txt or .md files in this folder, and no corpus.jsonl"):
        load_corpus(DataArguments(corpus_file=str(tmp_path)))
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such file or folder"):
        read_texts(Path("nowhere"))
    with pytest.raises(ValueError, match="There are no documents: name them"):
        load_corpus(DataArguments())


def test_files_that_are_not_read_are_named(tmp_path, warnings):
    """The card of a compressed data set was the corpus, and links to folders were passed over."""
    for name in ("docs", "elsewhere"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "README.md").write_text("A cat sat.")
    docs = tmp_path / "docs"
    (docs / "train.jsonl.gz").write_bytes(b"")
    with pytest.raises(ValueError, match="has files that are not read, such as train.jsonl.gz: name a file of texts"):
        read_texts(docs)
    (docs / "more").symlink_to(tmp_path / "elsewhere", target_is_directory=True)
    (docs / "one.md").symlink_to(tmp_path / "elsewhere" / "README.md")
    assert read_texts(docs)["file"] == ["README.md", "one.md"]
    assert warnings == [f"{docs}: 2 files or links are not read, such as more."]


def test_two_tables_of_one_name(tmp_path):
    for name in ("corpus.jsonl", "corpus.csv"):
        (tmp_path / name).write_text('{"_id": "a", "text": "x"}')
    with pytest.raises(ValueError, match="the corpus is in .*corpus.csv, .*corpus.jsonl: keep one"):
        load_corpus(tmp_path)


def test_a_corpus_in_a_subfolder(tmp_path):
    (tmp_path / "corpus").mkdir()
    Dataset.from_dict({"_id": ["a"], "text": ["x"]}).to_parquet(tmp_path / "corpus/corpus-00000-of-00001.parquet")
    assert load_corpus(tmp_path).to_dict() == {"doc_id": ["a"], "text": ["x"]}
    # Its queries and judgements are beside it.
    (tmp_path / "queries").mkdir()
    Dataset.from_dict({"_id": ["1"], "text": ["q"]}).to_parquet(tmp_path / "queries/queries-00000-of-00001.parquet")
    (tmp_path / "qrels.tsv").write_text("query-id\tcorpus-id\tscore\n1\ta\t1\n")
    rankings = load_rankings(tmp_path)["test"]
    assert rankings.queries["query"][:] == ["q"] and rankings.positives() == [[0]]
