# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidates: their checks, and the written rows."""

import math

import numpy as np
import pytest
from datasets import Dataset

from hf_dse.data.arguments import DataArguments
from hf_dse.data.ranking_files import is_ranking_data, load_rankings
from hf_dse.data.ranking_rows import read_rankings
from hf_dse.data.rankings import check_positives, make_corpus, make_rankings, ranking_rows, write_rankings
from hf_dse.data.tables import read_columns


CORPUS = {"doc_id": ["a", "b", "c"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}


def test_unknown_labels_and_scores():
    queries = {"query": ["A?", "B?"], "documents": [[0, 1], [2]], "labels": [[1, None], [math.nan]]}
    rankings = make_rankings({**queries, "teacher_logits": [[math.nan, 2], [None]]}, CORPUS)
    assert rankings.positives() == [[0], []]
    rows = ranking_rows(rankings)
    assert (rows["labels"], rows["teacher_logits"]) == ([[1.0, None], [None]], [[None, 2.0], [None]])
    assert rankings.queries["query_id"][:] == ["0", "1"] and not make_rankings(queries, CORPUS).has_scores
    assert len(rankings.select([1])) == 1
    with pytest.raises(ValueError, match="1 of 2 queries have no relevant document .* first is '1'"):
        check_positives(rankings)


@pytest.mark.parametrize("doc_id", [[7, 8], ["7", "8"], None])
def test_corpus_that_is_a_data_set(doc_id):
    columns = {"text": ["a", "b"], "other": [1, 2]} | ({} if doc_id is None else {"doc_id": doc_id})
    rankings = make_rankings({"query": ["q"], "documents": [[1]]}, Dataset.from_dict(columns))
    assert rankings.corpus["doc_id"][:] == (["0", "1"] if doc_id is None else ["7", "8"])
    assert rankings.corpus["text"][:] == ["a", "b"] and rankings.corpus["other"][:] == [1, 2]
    # It is not copied again.
    assert make_rankings({"query": ["q"], "documents": [[1]]}, rankings.corpus).corpus is rankings.corpus
    part = rankings.corpus.select([1])
    assert make_corpus(part, "Part")["doc_id"][:] == rankings.corpus["doc_id"][1:]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"doc_id": [1, 1], "text": ["a", "b"]}, "document id '1' occurs twice"),
        ({"doc_id": ["x", "y"], "text": ["a", None]}, "document 'y': the text is None, not a text"),
        ({"doc_id": ["x", "y"], "text": [1, 2]}, "document 'x': the text is 1, not a text"),
        ({"doc_id": ["x", "y"], "body": ["a", "b"]}, "no column 'text'; the columns are doc_id, body"),
        ({"doc_id": [], "text": []}, "the corpus is empty"),
    ],
)
@pytest.mark.parametrize("kind", [dict, Dataset.from_dict])
def test_a_bad_corpus_is_named(columns, message, kind):
    with pytest.raises(ValueError, match=message):
        make_rankings({"query": ["q"], "documents": [[0]]}, kind(columns))


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        (
            {"query": ["A?"], "documents": [[0, 0]]},
            r"query '0': the candidates \[0, 0\] are not rows of the 3 documents, each once",
        ),
        ({"query": ["A?"], "documents": [[3]]}, r"query '0': the candidates \[3\] are not rows of the 3 documents"),
        ({"query": ["A?"], "documents": [[-1]]}, r"query '0': the candidates \[-1\] are not rows of the 3 documents"),
        ({"query": [], "documents": []}, "there are no queries"),
        ({"query": [" "], "documents": [[]]}, "query '0': the query is ' ', not a text"),
        ({"query": [None], "documents": [[]]}, "query '0': the query is None, not a text"),
        ({"query": ["A?", "B?"], "query_id": [1, 1], "documents": [[], []]}, "the query id '1' occurs twice"),
        (
            {"query": ["A?"], "documents": [[0]], "labels": [[1, 0]]},
            "query '0': labels and candidates are .*: one finite number for each is needed",
        ),
        (
            {"query": ["A?"], "documents": [[0]], "labels": [[np.float64("inf")]]},
            "labels and candidates are .*inf.*: one finite number for each",
        ),
        (
            {"query": ["A?"], "documents": [[0]], "teacher_logits": [["x"]]},
            "teacher_logits and candidates are .*: one finite number for each",
        ),
    ],
)
def test_bad_queries_are_named(queries, message):
    with pytest.raises(ValueError, match=message):
        make_rankings(queries, CORPUS)


def test_arrays_are_lists():
    expected = {"query_id": ["0"], "query": ["q"], "document_ids": [["0", "1"]], "documents": [["a", "b"]]}
    expected["labels"] = [[1, 0]]
    queries = {
        "query": np.array(["q"]),
        "documents": np.array([[0, 1]]),
        "labels": np.array([[1, 0]]),
        "teacher_logits": [[np.float32(0.5), np.int64(2)]],
    }
    rankings = make_rankings(queries, {"text": np.array(["a", "b"])})
    assert ranking_rows(rankings) == {**expected, "teacher_logits": [[0.5, 2]]}
    lists = Dataset.from_dict({"query": ["q"], "pos": [["a"]], "neg": [["b"]]})
    for rows in (
        {"query": ["q", "q"], "passage": ["a", "b"], "label": np.array([1, 0])},
        {"query": ["q"], "documents": [np.array(["a", "b"], object)], "labels": [np.array([1, 0], "float32")]},
        lists.with_format("numpy"),
        lists.to_pandas(),
    ):
        assert ranking_rows(read_rankings(rows)) == expected


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_written_rankings_read_the_same(tmp_path, ending):
    columns = {"query": ["A \u2028 'é'?", "B?"], "documents": [[2, 0], [1]], "labels": [[1, None], [0]]}
    rankings = make_rankings(columns | {"teacher_logits": [[0.1, None], [7.0]]}, CORPUS)
    path = tmp_path / f"rows.{ending}"
    write_rankings(rankings, path, teacher="a model")
    assert read_columns(path) == {**ranking_rows(rankings), "teacher": ["a model"] * 2}
    assert is_ranking_data(DataArguments(train_file=str(path)))
    assert ranking_rows(load_rankings(path)["train"]) == ranking_rows(rankings)
