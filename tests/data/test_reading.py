# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Data that are loaded, or named by a string, a path or `DataArguments`."""

import json
from dataclasses import replace

import pytest
from datasets import Dataset

from hf_dse import DataArguments, load_rankings, make_rankings
from hf_dse.data.reading import are_rankings, choose_split, options_of, to_corpus, to_pairs, to_rankings


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
        assert are_rankings(data, options_of(data))
    # A file is the train split.
    assert len(to_rankings(path / "validation.jsonl")) == 2
    assert are_rankings(loaded, options_of(loaded)) and choose_split(["train", "validation"]) == "validation"


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
    assert args == DataArguments(num_labels=1) and to_pairs(loaded, args, "test") is loaded
    for data in (path, str(path), DataArguments(dataset_name=str(path))):
        args = options_of(data, num_labels=1)
        assert args == DataArguments(dataset_name=str(path), num_labels=1)
        assert not are_rankings(data, args) and len(to_pairs(data, args, "test")) == 3
    assert not are_rankings(loaded, options_of(loaded))


def test_other_kinds_are_errors(folder):
    splits = load_rankings(str(folder / "rankings"))
    for data in (Dataset.from_list([PAIR]), splits):
        kind = type(data).__name__
        with pytest.raises(TypeError, match=f"type {kind}: pass `DataArguments`, the name .*, or one loaded split"):
            to_rankings(data)
    with pytest.raises(ValueError, match="columns query, documents, labels, and sentence pairs need sentence1 and"):
        to_pairs(Dataset.from_list([RANKING]), DataArguments(), "train")
