# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rows in the formats of other libraries."""

import math

import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from hf_dse.data.ranking_rows import is_ranking, read_rankings
from hf_dse.data.rankings import Rankings, ranking_rows


CORPUS = {"doc_id": ["a", "b", "c"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}


def as_texts(rankings: Rankings) -> list[tuple]:
    """Returns each query with the texts of its candidates, their labels and, if there are any, scores."""
    rows = ranking_rows(rankings)
    names = [name for name in ("query", "documents", "labels", "teacher_logits") if name in rows]
    return list(zip(*(rows[name] for name in names), strict=True))


@pytest.mark.parametrize(
    "rows",
    [
        {"query": ["A?"], "documents": [["p", "n", "m"]], "labels": [[1, 0, 0]], "teacher_logits": [[3, 1, -2.0]]},
        {"query": ["A?"], "docs": [["p", "n", "m"]], "labels": [[1, 0, 0]], "scores": [[3, 1, -2.0]]},
        {"anchor": ["A?"], "positive": ["p"], "negative_1": ["n"], "negative_2": ["m"], "label": [[3, 1, -2.0]]},
        {"query": ["A?"], "pos": [["p"]], "neg": [["n", "m"]], "pos_scores": [[3]], "neg_scores": [[1, -2.0]]},
        {"query": ["A?"] * 3, "answer": ["p", "n", "m"], "label": [1, 0, 0], "score": ["3", 1, -2.0]},
        {"query": ["A?"] * 2, "documents": [["p", "n"], ["m", "p"]], "labels": [[1, 0], [0, None]],
         "scores": [[3, 1.0], [-2, 3.01]]},
    ],
    ids=["lists", "docs", "tuples", "FlagEmbedding", "pairs", "two rows"],
)  # fmt: skip
@pytest.mark.parametrize("kind", [dict, Dataset.from_dict])
def test_formats_of_other_libraries(rows, kind):
    if kind is not dict and "3" in rows.get("score", ()):
        rows = {**rows, "score": [3, 1, -2.0]}
    assert as_texts(read_rankings(kind(rows))) == [("A?", ["p", "n", "m"], [1.0, 0.0, 0.0], [3.0, 1.0, -2.0])]


def test_labelled_pairs_are_labels():
    """A csv file has texts."""
    rows = {"query": ["A?", "A?", "B?"], "answer": ["p", "n", "q"], "label": ["1", 0, "1"]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1.0, 0.0]), ("B?", ["q"], [1.0])]
    # A score does not say whether a document is relevant.
    rows["score"] = rows.pop("label")
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [None] * 2, [1, 0]), ("B?", ["q"], [None], [1])]


@pytest.mark.parametrize("output_scores", [False, True])
@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair", "labeled-list"])
def test_rows_that_sentence_transformers_mines(output_format, output_scores, save_bert, tmp_path, warnings):
    """Read without a word about the format, with the labels that its rows have, not more."""
    encoder = SentenceTransformer(str(save_bert(tmp_path / "bert")), device="cpu")
    pairs = {"question": ["old sun", "red wall"], "answer": ["the sun is old", "the wall is red"]}
    options = {"num_negatives": 2, "output_format": output_format, "output_scores": output_scores, "verbose": False}
    corpus = ["the moon is old", "the dog is red", "a cat"]
    rows = mine_hard_negatives(Dataset.from_dict(pairs), encoder, corpus=corpus, **options)
    rankings = read_rankings(rows)
    assert is_ranking(rows.column_names) == (output_format != "labeled-pair") and not warnings
    # Rows with scores in the place of labels have none.
    has_labels = not output_scores or not output_format.startswith("labeled")
    assert rankings.has_scores == output_scores and rankings.queries["query"][:] == pairs["question"]
    for (query, texts, labels, *scores), answer in zip(as_texts(rankings), pairs["answer"], strict=True):
        assert len(texts) == 3 and texts[0] == answer and answer not in texts[1:]
        assert labels == ([1.0, 0.0, 0.0] if has_labels else [None] * 3)
        if output_scores:
            expected = encoder.similarity(*map(encoder.encode, ([query], texts)))[0].tolist()
            assert scores[0] == pytest.approx(expected, abs=1e-4)


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
        {"query": ["q", "p"], "answer": [["a"], ["b"]], "negative": [["x", "y"], "z"]},
        {"query": ["q", "p"], "pos": ["a", "b"], "neg": [["x", "y"], ["z"]]},
    ],
)
def test_lists_of_positives_and_negatives(rows):
    assert as_texts(read_rankings(rows)) == [("q", ["a", "x", "y"], [1, 0, 0]), ("p", ["b", "z"], [1, 0])]
    scored = {"query": ["q"], "positive": [["a"]], "negative": [["x", "y"]]}
    assert as_texts(read_rankings({**scored, "scores": [[3, 1, 2]]}))[0][3] == [3, 1, 2]


@pytest.mark.parametrize("name", ["positive", "pos"])
def test_lists_of_positives_alone(name):
    rows = {"query": ["q"], name: [["a", "b"]]}
    assert as_texts(read_rankings(rows)) == [("q", ["a", "b"], [1, 1])]
    assert as_texts(read_rankings({**rows, "labels": [[1, 0]]})) == [("q", ["a", "b"], [1, 0])]
    # With scores alone the relevant documents are unknown.
    assert as_texts(read_rankings({**rows, "scores": [[2, 1]]})) == [("q", ["a", "b"], [None, None], [2, 1])]


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_unknown_scores_of_a_row(unknown):
    """FlagEmbedding writes `null` for rows without scores."""
    rows = {"query": ["q", "p"], "pos": [["a"], ["b"]], "neg": [["x"], None]}
    rows |= {"pos_scores": [[1.0], unknown], "neg_scores": [[0.5], unknown]}
    expected = [("q", ["a", "x"], [1, 0], [1.0, 0.5]), ("p", ["b"], [1], [None])]
    assert as_texts(read_rankings(rows)) == expected
    rows = {"query": ["q", "p"], "documents": [["a", "x"], ["b"]], "labels": [[1, unknown], unknown]}
    assert as_texts(read_rankings(rows)) == [("q", ["a", "x"], [1, None]), ("p", ["b"], [None])]


def test_rows_with_the_same_query_are_one_query():
    rows = {"query": ["A?", "B?", "A?"], "positive": ["p", "q", "r"], "negative": ["n", "n", "n"]}
    rankings = read_rankings(rows)
    assert as_texts(rankings) == [("A?", ["p", "n", "r"], [1, 0, 1]), ("B?", ["q", "n"], [1, 0])]
    assert [[rankings.corpus["text"][row] for row in rows] for rows in rankings.positives()] == [["p", "r"], ["q"]]


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
        rankings = read_rankings(rows, Dataset.from_dict({**CORPUS, "other": [1, 2, 3]}))
        assert as_texts(rankings) == [("A?", ["Cats purr.", "Snow falls."], [1.0, 0.0])]
        assert rankings.queries["documents"][0] == [1, 3] and rankings.corpus["other"][:] == [1, 2, 3, None]
    ids = read_rankings({"query": ["A?"], "pos": [["b"]], "neg": [["a"]]}, CORPUS)
    assert ids.queries["documents"][0] == [1, 0]
    with pytest.raises(ValueError, match="'z' is not in the corpus of 3 documents"):
        read_rankings({"query": ["A?"], "pos": [["b"]], "neg": [["z"]]}, CORPUS)


def test_ids_with_a_corpus():
    rows = {"query_id": ["7"], "document_ids": [["c", "a"]], "scores": [[0.5, 2]]}
    rankings = read_rankings(rows, CORPUS, {"7": "Weather?"})
    assert rankings.queries["query_id"][0] == "7" and rankings.queries["documents"][0] == [2, 0]
    assert as_texts(rankings) == [("Weather?", ["Rain falls.", "Planes fly."], [None, None], [0.5, 2.0])]
    numbers = {"doc_id": [1, 2], "text": ["x", "y"]}
    assert read_rankings({"query": ["q"], "document_ids": [[2]]}, numbers).queries["documents"][0] == [1]
    with pytest.raises(ValueError, match="'9' is not in the corpus of 3 documents"):
        read_rankings({"query": ["Weather?"], "document_ids": [["9"]]}, CORPUS)
    with pytest.raises(ValueError, match="row 0: the query '8' has no text"):
        read_rankings({"query_id": ["8"], "document_ids": [["a"]]}, CORPUS, {"7": "Weather?"})
    with pytest.raises(ValueError, match="texts of the document ids are unknown: name their `--corpus_file`"):
        read_rankings(rows | {"query": ["Weather?"]})


def test_ids_and_texts_with_a_corpus():
    """`make_queries` takes a query out of its document, which is then another text with the same id."""
    rows = {"query": ["A?", "B?"], "document_ids": [["c", "d"], ["c"]], "documents": [["Rain.", "New."], ["Rain."]]}
    rankings = read_rankings(rows, CORPUS)
    assert [row[1] for row in as_texts(rankings)] == [["Rain.", "New."], ["Rain."]]
    assert rankings.corpus["doc_id"][:] == ["a", "b", "c", "c (2)", "d"]
    with pytest.raises(ValueError, match="row 1: the document 'c' has another text than in a row before"):
        read_rankings({**rows, "documents": [["Rain.", "New."], ["Snow."]]})


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"query": ["A?"], "positive": ["p"], "negative": ["p"]}, "row 0: .*'p' .* both relevant and not relevant"),
        ({"query": ["A?"] * 2, "positive": ["p", "n"], "negative": ["n", "m"]}, "row 1: .* both relevant and not"),
        ({"query": ["A?"], "documents": [["p", "n"]], "labels": [[1]]}, "row 0: labels and .* one finite number"),
        ({"query": ["A?"], "documents": [["p"]], "labels": [[math.inf]]}, r"labels and candidates are \(\[inf\]"),
        ({"query": ["A?"], "documents": [["p"]], "labels": [["yes"]]}, r"labels and candidates are \(\['yes'\]"),
        ({"query": ["A?"], "positive": [3]}, "row 0: the candidates .3. are not texts"),
        ({"query": ["A?"], "positive": [None]}, "row 0: the candidates .None. are not texts"),
        ({"query": ["A?"], "documents": ["p"]}, "row 0: documents is 'p', not a list"),
        (
            {"query": ["A?"] * 2, "positive": ["p", "q"], "negative_1": ["n", "n"], "negative_2": ["m", "m"],
             "scores": [[1, 2, 3], [1, 2]]},
            r"row 1: scores and candidates are \(\[1, 2\]",
        ),
        ({"query_id": [1, 1], "query": ["a", "b"], "positive": ["p", "q"]}, "row 1: the query '1' has another text"),
        ({"query": ["A?"]}, "no column has candidates; the columns are query. Rename them"),
        ({"query": ["A?"], "negative": ["n"]}, "no column has positives"),
        # A margin is not a score for each candidate.
        ({"query": ["A?"], "positive": ["p"], "negative": ["n"], "label": [2.0]}, "row 0: label and candidates"),
        ({"instruction": ["A?"], "positive": ["p"]}, "no column 'query' or 'anchor' or"),
        ({"query": [], "positive": []}, "the corpus is empty"),
    ],
)  # fmt: skip
def test_bad_rows_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        read_rankings(rows)
