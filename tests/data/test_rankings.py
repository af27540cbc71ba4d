# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The form of rankings, and rows of files and of sentence-transformers."""

import json
import math
from collections import Counter

import numpy as np
import pandas as pd
import pytest
from datasets import Dataset
from sentence_transformers import SentenceTransformer
from sentence_transformers.util import mine_hard_negatives

from hf_dse.data.options import DataArguments
from hf_dse.data.ranking_files import is_ranking_data, load_corpus, load_rankings
from hf_dse.data.rankings import (
    Rankings,
    bare,
    is_ranking,
    make_corpus,
    make_rankings,
    ranking_rows,
    read_rankings,
    write_rankings,
)
from hf_dse.data.tables import column_names, open_table


CORPUS = {"doc_id": ["a", "b", "c"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}


def test_unknown_labels_and_scores():
    queries = {"query": ["A?", "B?"], "documents": [[0, 1], [2]], "labels": [[1, None], [math.nan]]}
    rankings = make_rankings({**queries, "teacher_logits": [[math.nan, 2], [None]]}, CORPUS)
    assert rankings.positives() == [[0], []]
    rows = ranking_rows(rankings)
    assert (rows["labels"], rows["teacher_logits"]) == ([[1.0, None], [None]], [[None, 2.0], [None]])
    assert rankings.queries["query_id"][:] == ["q0", "q1"] and not make_rankings(queries, CORPUS).has_scores
    assert len(rankings.select([1])) == 1


@pytest.mark.parametrize("doc_id", [[7, 8], ["7", "8"], None])
def test_corpus_that_is_a_data_set(doc_id):
    columns = {"text": ["a", "b"]} | ({} if doc_id is None else {"doc_id": doc_id})
    rankings = make_rankings({"query": ["q"], "documents": [[1]]}, Dataset.from_dict(columns))
    assert rankings.corpus["doc_id"][:] == (["0", "1"] if doc_id is None else ["7", "8"])
    assert rankings.corpus["text"][:] == ["a", "b"]
    # As in BEIR, a title comes first.
    titled = {**columns, "title": ["T", "b"]}
    for corpus in (titled, Dataset.from_dict(titled)):
        queries = Dataset.from_dict({"query": ["q"], "documents": [[1]]})
        assert make_rankings(queries, corpus).corpus["text"][:] == ["T a", "b b"]
    # It is not copied again.
    assert make_rankings({"query": ["q"], "documents": [[1]]}, rankings.corpus).corpus is rankings.corpus
    part = rankings.corpus.select([1])
    assert make_corpus(part, "Part")["doc_id"][:] == rankings.corpus["doc_id"][1:]


@pytest.mark.parametrize(
    ("columns", "message"),
    [
        ({"doc_id": [1, 1], "text": ["a", "b"]}, "document id '1' occurs twice"),
        ({"doc_id": ["x", "y"], "text": ["a", None]}, "document 'y': the text is None, not a text"),
    ],
)
def test_a_bad_corpus_is_named(columns, message):
    with pytest.raises(ValueError, match=message):
        make_rankings({"query": ["q"], "documents": [[0]]}, columns)


@pytest.mark.parametrize(
    ("queries", "message"),
    [
        ({"query": ["A?"], "documents": [[0, 0]]}, r"query 'q0': the candidates \[0, 0\] are not rows of the 3"),
        ({"query": ["A?"], "documents": [[1.5]]}, r"query 'q0': the candidates \[1.5\] are not rows of the 3"),
        ({"query": ["A?"], "documents": [["a"]]}, r"query 'q0': the candidates \['a'\] are not rows of the 3"),
        ({"query": ["A?"], "documents": [[-1]]}, r"query 'q0': the candidates \[-1\] are not rows of the 3 documents"),
        ({"query": ["A?", "B?"], "query_id": [1, 1], "documents": [[], []]}, "the query id '1' occurs twice"),
        ({"query": ["A?"], "documents": [[0]], "labels": [[np.float64("inf")]]}, "labels and candidates are .*inf"),
    ],
)
def test_bad_queries_are_named(queries, message):
    with pytest.raises(ValueError, match=message):
        make_rankings(queries, CORPUS)


def test_columns_that_are_missing_or_unknown(warnings):
    with pytest.raises(
        ValueError, match="The rankings: there is no column 'query'; the columns are queries, documents"
    ):
        make_rankings({"queries": ["A?"], "documents": [[0]]}, CORPUS)
    make_rankings({"query": ["A?"], "documents": [[0]], "label": [[1]]}, CORPUS)
    assert len(warnings) == 1 and "The rankings: the columns label are left out" in warnings[0]
    titles = make_corpus(pd.DataFrame({"text": ["a", "b"], "title": ["t", None]}), "w")["joined_title"][:]
    assert titles == ["t", ""]


@pytest.mark.parametrize(
    ("labels", "positives", "told"),
    [
        ([[5, 2, 1, 0]], [0, 1, 2], "w: candidates of the grades 1, 2, 5 count as relevant, all above 0, as in BEIR"),
        ([[0.9, 0.5, 0.02, None]], [0, 1, 2], "the grades 0.02, 0.5, 0.9 count"),
        ([[1, 2, 3, 4], [5, 6]], [0, 1, 2, 3], "the grades 1, 2, 3, 4, 5, ... count"),
        ([[1, 0, None, -1]], [0], None),
        ([[0, 0, 0, 0]], [], None),
    ],
)
def test_what_counts_as_relevant(labels, positives, told, warnings):
    """By default all grades above 0, as in BEIR, which is said where there are several."""
    lists = [list(range(len(row))) for row in labels]
    columns = {"query": [f"q{row}" for row in range(len(labels))], "documents": lists, "labels": labels}
    rankings = make_rankings(columns, {"text": list("abcd")}, "w")
    assert rankings.positives()[0] == positives
    assert [told in line and "`--relevance_threshold`" in line for line in warnings] == ([True] if told else [])
    warnings.clear()
    best = max(filter(None, labels[0]), default=1)
    rankings = make_rankings(columns, {"text": list("abcd")}, "w", best)
    assert rankings.positives()[0] == [
        row for row, label in enumerate(labels[0]) if label is not None and label >= best
    ]
    assert not warnings and rankings.select([0]).keep_documents().relevance_threshold == best
    known = [label for row in labels for label in row if label is not None]
    assert list(rankings.grades().items()) == sorted(Counter(map(float, known)).items(), reverse=True)


@pytest.mark.parametrize("threshold", [0, -1, math.nan])
def test_a_threshold_is_above_0(threshold):
    for make in (
        lambda: make_rankings({"query": ["q"], "documents": [[0]]}, CORPUS, relevance_threshold=threshold),
        lambda: DataArguments(relevance_threshold=threshold),
    ):
        with pytest.raises(ValueError, match=f"relevance_threshold={threshold}: it has to be above 0"):
            make()


def test_rows_that_contradict_each_other(warnings):
    rows = {"query": ["A?", "A?"], "document": ["a", "a"], "label": [1, 2]}
    with pytest.raises(ValueError, match="row 1: the candidate 'a' of the query 'A.' has the label or score 2, and"):
        read_rankings(rows)
    rankings = read_rankings({"id": [5, 6], "query": ["A?", "A?"], "document": ["a", "b"], "label": [1, 1]})
    assert rankings.queries["query_id"][:] == ["5", "6"]
    assert len(warnings) == 1 and "1 queries have the text of another query and an id of their own" in warnings[0]


@pytest.mark.parametrize(
    ("first", "second"), [("2.5 mg", "25 mg"), ("C# is", "C is"), ("at -5 degrees", "at 5 degrees"), ("5 %", "5")]
)
def test_signs_that_make_another_number_are_no_punctuation(first, second):
    assert (
        bare(first) != bare(second)
        and bare(first) == bare(f" {first.upper()}!")
        and bare("A well-known one.") == bare("a wellknown one")
    )


def test_arrays_are_lists():
    expected = {"query_id": ["q0"], "query": ["q"], "document_ids": [["0", "1"]], "documents": [["a", "b"]]}
    expected["labels"] = [[1, 0]]
    queries = {
        "query": np.array(["q"]),
        "documents": np.array([[0, 1]]),
        "labels": np.array([[1, 0]]),
        "teacher_logits": [[np.float32(0.5), np.int64(2)]],
    }
    rankings = make_rankings(queries, {"text": np.array(["a", "b"])})
    assert ranking_rows(rankings) == {**expected, "teacher_logits": [[0.5, 2]]}
    lists = Dataset.from_dict({"query": ["q"], "documents": [["a", "b"]], "labels": [[1, 0]]})
    for rows in (
        {"query": ["q", "q"], "passage": ["a", "b"], "label": np.array([1, 0])},
        lists.with_format("numpy"),
        lists.to_pandas(),
    ):
        assert ranking_rows(read_rankings(rows)) == expected


@pytest.mark.parametrize("ending", ["jsonl", "parquet"])
def test_written_rankings_read_the_same(tmp_path, ending):
    columns = {"query": ["A \u2028 'é'?", "B?"], "documents": [[2, 0], [1]], "labels": [[1, None], [0]]}
    rankings = make_rankings(columns | {"teacher_logits": [[0.1, None], [7.0]]}, CORPUS)
    path = tmp_path / f"rows.{ending}"
    write_rankings(rankings, path)
    table = open_table(path)
    written = {name: table[name][:] for name in column_names(table)}
    assert written == ranking_rows(rankings)
    assert is_ranking_data(DataArguments(train_file=str(path)))
    assert ranking_rows(load_rankings(path)["train"]) == ranking_rows(rankings)


# Rows of files


def as_texts(rankings: Rankings) -> list[tuple]:
    """Returns each query with the texts of its candidates, their labels and, if there are any, scores."""
    rows = ranking_rows(rankings)
    names = [name for name in ("query", "documents", "labels", "teacher_logits") if name in rows]
    return list(zip(*(rows[name] for name in names), strict=True))


@pytest.mark.parametrize(
    "rows",
    [
        {"query": ["A?"], "documents": [["p", "n", "m"]], "labels": [[1, 0, 0]], "teacher_logits": [[3, 1, -2.0]]},
        {"anchor": ["A?"], "positive": ["p"], "negative_1": ["n"], "negative_2": ["m"], "label": [[3, 1, -2.0]]},
        {"query": ["A?"] * 3, "answer": ["p", "n", "m"], "label": [1, 0, 0], "score": ["3", 1, -2.0]},
        {"query": ["A?"] * 2, "documents": [["p", "n"], ["m", "p"]], "labels": [[1, 0], [0, None]],
         "scores": [[3, 1.0], [-2, 3]]},
    ],
    ids=["lists", "tuples", "pairs", "two rows"],
)  # fmt: skip
def test_formats_of_rows(rows):
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n", "m"], [1.0, 0.0, 0.0], [3.0, 1.0, -2.0])]


def test_labelled_pairs_are_labels():
    """A csv file has texts."""
    rows = {"query": ["A?", "A?", "B?"], "answer": ["p", "n", "q"], "label": ["1", 0, "1"]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1.0, 0.0]), ("B?", ["q"], [1.0])]
    # A score does not say whether a document is relevant.
    rows["score"] = rows.pop("label")
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [None] * 2, [1, 0]), ("B?", ["q"], [None], [1])]


def test_lists_may_be_tuples():
    made = make_rankings({"query": ["a"], "documents": [(0, 1)], "labels": [(1, 0)]}, {"text": ["b", "c"]})
    assert (made.queries["documents"][:], made.queries["labels"][:]) == ([[0, 1]], [[1.0, 0.0]])


@pytest.mark.parametrize("output_scores", [False, True])
@pytest.mark.parametrize("output_format", ["triplet", "n-tuple", "labeled-pair"])
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


def test_negatives_under_other_names(warnings):
    for name in ("hard_negative", "negatives", "negative1", "negative-1"):
        rows = {"id": ["7"], "anchor": ["A?"], "positive": ["p"], name: ["n"]}
        assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1.0, 0.0])]
    assert warnings == []
    read_rankings({**rows, "source": ["wiki"]})
    assert "the columns source have no known name, and are left out" in warnings[0]


@pytest.mark.parametrize("unknown", [None, math.nan])
def test_unknown_labels_of_a_row(unknown):
    rows = {"query": ["q", "p"], "documents": [["a", "x"], ["b"]], "labels": [[1, unknown], unknown]}
    assert as_texts(read_rankings(rows)) == [("q", ["a", "x"], [1, None]), ("p", ["b"], [None])]


@pytest.mark.parametrize("rows", [{"_id": ["7"], "text": ["A?"]}, {"query_id": ["7"], "query": ["A?"], "meta": [{}]}])
def test_queries_alone(rows):
    rankings = read_rankings(rows, CORPUS)
    assert rankings.queries["query"][:] == ["A?"] and rankings.queries["documents"][:] == [[]]


def test_unread_columns_of_queries_are_an_error():
    with pytest.raises(
        ValueError, match="no column has candidates; the columns are query, page. Rename .* `document`"
    ):
        read_rankings({"query": ["A?"], "page": ["a"]}, CORPUS)


def test_texts_with_a_corpus():
    """Candidates that are texts are found by their texts; those that the corpus lacks are added."""
    for rows in (
        {"query": ["A?"], "positive": ["Cats purr."], "negative": ["Snow falls."]},
        {"query": ["A?"], "documents": [["Cats purr.", "Snow falls."]], "labels": [[1, 0]]},
    ):
        rankings = read_rankings(rows, Dataset.from_dict(CORPUS))
        assert as_texts(rankings) == [("A?", ["Cats purr.", "Snow falls."], [1.0, 0.0])]
        assert rankings.queries["documents"][0] == [1, 3] and len(rankings.corpus) == 4


def test_ids_with_a_corpus():
    rows = {"query_id": ["7"], "document_ids": [["c", "a"]], "scores": [[0.5, 2]]}
    rankings = read_rankings(rows, CORPUS, {"7": "Weather?"})
    assert rankings.queries["query_id"][0] == "7" and rankings.queries["documents"][0] == [2, 0]
    assert as_texts(rankings) == [("Weather?", ["Rain falls.", "Planes fly."], [None, None], [0.5, 2.0])]
    numbers = {"doc_id": [1, 2], "text": ["x", "y"]}
    assert read_rankings({"query": ["q"], "document_ids": [[2]]}, numbers).queries["documents"][0] == [1]
    with pytest.raises(ValueError, match="'9' is not in the corpus of 3 documents"):
        read_rankings({"query": ["Weather?"], "document_ids": [["9"]]}, CORPUS)
    with pytest.raises(ValueError, match="texts of the document ids are unknown: name their `--corpus`"):
        read_rankings(rows | {"query": ["Weather?"]})


@pytest.mark.parametrize("name", ["file", "doc_id", "document_id", "document", "positive"])
def test_one_id_in_each_row(name):
    """A table of two columns: a query and the file that answers it."""
    corpus = {"doc_id": ["guide/a.md", "b.md", "7"], "text": ["Planes fly.", "Cats purr.", "Rain falls."]}
    rankings = read_rankings({"query": ["Cats?", "Planes?"], name: ["b.md", "guide/a.md"]}, corpus)
    assert as_texts(rankings) == [("Cats?", ["Cats purr."], [1.0]), ("Planes?", ["Planes fly."], [1.0])]
    graded = {"query": ["Cats?", "Cats?"], name: ["b.md", "7"], "label": [2, 0]}
    assert as_texts(read_rankings(graded, corpus)) == [("Cats?", ["Cats purr.", "Rain falls."], [2.0, 0.0])]
    assert as_texts(read_rankings({"query": ["Rain?"], name: [7]}, corpus)) == [("Rain?", ["Rain falls."], [1.0])]
    # A misspelt name is not a text.
    with pytest.raises(ValueError, match="row 1: the document 'c.md' is not in the corpus .* such as 'guide/a.md'"):
        read_rankings({"query": ["Cats?", "Cows?"], name: ["b.md", "c.md"]}, corpus)


def test_ids_and_texts():
    """`make_queries` takes a query out of its document, which is then another text with the same id."""
    rows = {"query": ["A?", "B?"], "document_ids": [["c", "d"], ["c"]], "documents": [["Rain.", "New."], ["Rain."]]}
    rankings = read_rankings(rows, CORPUS)
    assert [row[1] for row in as_texts(rankings)] == [["Rain.", "New."], ["Rain."]]
    assert rankings.corpus["doc_id"][:] == ["a", "b", "c", "c (2)", "d"]
    # Rows of two corpora.
    rankings = read_rankings({**rows, "documents": [["Rain.", "New."], ["Snow."]]})
    assert [row[1] for row in as_texts(rankings)] == [["Rain.", "New."], ["Snow."]]
    assert rankings.corpus["doc_id"][:] == ["c", "d", "c (2)"]


def test_blank_candidates_are_left_out(warnings):
    """An empty cell of a csv file was a negative."""
    rows = {"query": ["A?", "B?"], "positive": ["p", "q"], "negative_1": ["n", "m"], "negative_2": ["", None]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1, 0]), ("B?", ["q", "m"], [1, 0])]
    assert warnings == ["The rankings: 2 blank candidates are left out."]
    rows = {"query": ["A?"], "documents": [["p", "\u200b", "n"]], "labels": [[1, 1, 0]], "scores": [[3, 2, 1]]}
    assert as_texts(read_rankings(rows)) == [("A?", ["p", "n"], [1, 0], [3, 1])]


def test_ids_name_texts():
    """A data frame writes 12.0 where another id is missing."""
    corpus = {"doc_id": [12.0, 3], "text": ["x", "y"]}
    assert make_rankings({"query": ["q"], "documents": [[0]]}, corpus).corpus["doc_id"][:] == ["12", "3"]
    for missing in (None, math.nan, [1], b"1"):
        with pytest.raises(ValueError, match="the document id, row 1: .* names no text"):
            make_rankings({"query": ["q"], "documents": [[0]]}, {"doc_id": ["a", missing], "text": ["x", "y"]})
        with pytest.raises(ValueError, match="the query id, row 0: .* names no text"):
            read_rankings({"query_id": [missing], "query": ["q"], "positive": ["x"]})


def test_ids_that_became_floats_are_refused(tmp_path):
    """A float of 2**53 or more names another document than its text did."""
    number, text = 1580661436132757506.0, "Planes fly by lift."
    message = "the id 1.58.*e.18 is a number that was rounded when it became a float: write the ids as texts"
    for name, ids in (("one.parquet", [number]), ("two.parquet", [number, number + 1])):
        Dataset.from_dict({"_id": ids, "text": [text] * len(ids)}).to_parquet(tmp_path / name)
        with pytest.raises(ValueError, match=f"{name}: the document id, row 0: {message}"):
            load_corpus(str(tmp_path / name))
    (tmp_path / "lines.jsonl").write_text(json.dumps({"_id": number, "text": text}))
    with pytest.raises(ValueError, match=f"the document id, row 0: {message}"):
        load_corpus(str(tmp_path / "lines.jsonl"))
    query = {"query": ["a"], "documents": [[0]]}
    with pytest.raises(ValueError, match=f"the query id, row 0: {message}"):
        make_rankings({"query_id": [number], **query}, {"text": [text]})
    for number in (2.0**53, -(2.0**53)):
        with pytest.raises(ValueError, match="is a number that was rounded"):
            make_rankings(query, {"doc_id": [number], "text": [text]})
    # Of candidates too; a float of less is a whole number.
    columns, rows = {"doc_id": ["12", "3"], "text": ["x", "y"]}, {"query": ["a"], "document_ids": [[12.0, 3.0]]}
    assert read_rankings(rows, columns).queries["documents"][:] == [[0, 1]]
    assert read_rankings({"query": ["a"], "document_id": [12.0]}, columns).queries["documents"][:] == [[0]]
    for corpus, rows in (
        (columns, {"document_ids": [[number]]}),
        (None, {"document_ids": [[number]], "documents": [["x"]]}),
        (columns, {"corpus-id": [number]}),
    ):
        with pytest.raises(ValueError, match="row 0: the document id, row 0: the id .* was rounded"):
            read_rankings({"query": ["a"], **rows}, corpus)
    # Whole numbers and smaller floats name texts.
    corpus = {"doc_id": [2.0**53 - 1, 1580661436132757506], "text": [text] * 2}
    assert make_rankings(query, corpus).corpus["doc_id"][:] == ["9007199254740991", "1580661436132757506"]


@pytest.mark.parametrize(
    ("rows", "message"),
    [
        ({"query": ["A?", math.nan], "positive": ["p", "n"]}, "row 1: the query is nan, not a text"),
        ({"query": ["A?"], "positive": ["p"], "negative": ["p"]}, "row 0: .*'p' .* score 0, and before 1: remove"),
        ({"query": ["A?"], "positive": [["p"]]}, "row 0: the candidates .* are not texts: lists are read from"),
        (
            {"query": ["A?"], "pos": [["p"]], "neg": [["n"]]},
            "no column has positives; the columns are query, pos, neg",
        ),
        ({"query": ["A?"], "positive": [None]}, "row 0: the candidates .None. are not texts"),
        ({"query_id": [1, 1], "query": ["a", "b"], "positive": ["p", "q"]}, "row 1: the query '1' has another text"),
        ({"query": ["A?"]}, "no column has candidates; the columns are query. Rename them to `query` and `document`"),
        # A margin is not a score for each candidate.
        ({"query": ["A?"], "positive": ["p"], "negative": ["n"], "label": [2.0]}, "row 0: label and candidates"),
    ],
)
def test_bad_rows_are_named(rows, message):
    with pytest.raises(ValueError, match=message):
        read_rankings(rows)


def test_judgements_of_beir_as_rows(tmp_path):
    """Their column `score` has grades, not a teacher's scores."""
    corpus = Dataset.from_dict({"doc_id": ["d1", "d2"], "text": ["a cat", "a dog"]})
    rows = {"query-id": ["q1", "q1"], "query": ["cat"] * 2, "corpus-id": ["d1", "d2"], "score": [2, 0]}
    rankings = read_rankings(Dataset.from_dict(rows), corpus)
    assert rankings.queries["labels"][:] == [[2.0, 0.0]] and not rankings.has_scores


def test_a_positive_beside_a_score_is_relevant():
    rows = {"query": ["cat"], "positive": ["a cat"], "score": [3.5]}
    rankings = read_rankings(Dataset.from_dict(rows))
    assert rankings.queries["labels"][:] == [[1.0]] and rankings.queries["teacher_logits"][:] == [[3.5]]
