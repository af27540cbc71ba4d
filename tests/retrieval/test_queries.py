# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries that are made of documents."""

import re

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from hf_dse import make_queries
from hf_dse.retrieval.queries import split_sentences


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Planes fly. Cats purr! Why? Yes", ["Planes fly.", "Cats purr!", "Why?", "Yes"]),
        ('(Nobody knows.) "Oh." Well', ["(Nobody knows.)", '"Oh."', "Well"]),
        ("Dr. Wu et al. found 3.5 mg, i.e. Less. It did.", ["Dr. Wu et al. found 3.5 mg, i.e. Less.", "It did."]),
        ("See Fig. 2. J. S. Bach did.", ["See Fig. 2.", "J. S. Bach did."]),
        ("A heading\n\nand a text.\nNext line.", ["A heading", "and a text.", "Next line."]),
        ("天气很好。我们走吧！", ["天气很好。", "我们走吧！"]),
        (" ", []),
    ],
)
def test_sentences(text, sentences):
    assert split_sentences(text) == sentences


@given(st.text(alphabet="aAé.!? \n。'", max_size=40))
def test_sentences_lose_nothing(text):
    assert re.sub(r"\s", "", "".join(split_sentences(text))) == re.sub(r"\s", "", text)


ARTICLES = {
    "doc_id": ["a", "b", "c", "d"],
    "title": ["Lift", "", "Purring", "Nothing"],
    "text": [
        "Lift Wings push air downwards all the time. Air pushes wings upwards then.",
        "Only one sentence is in this document.",
        "Purring Cats purr when they are content. No. They also purr when they are ill.",
        "Nothing",
    ],
}


def test_titles_and_first_sentences_are_queries():
    rankings = make_queries(Dataset.from_dict(ARTICLES), "titles")
    assert rankings.queries["query"][:] == ["Lift", "Purring"]
    assert rankings.queries["query_id"][:] == ["titles-a", "titles-c"]
    assert rankings.positives() == [[0], [2]]
    assert [text.split()[0] for text in rankings.corpus["text"]] == ["Wings", "Only", "Cats", "Nothing"]
    rankings = make_queries(Dataset.from_dict(ARTICLES), "first_sentences")
    assert rankings.queries["query"][0] == "Wings push air downwards all the time."
    assert rankings.corpus["text"][:2] == ["Lift Air pushes wings upwards then.", ARTICLES["text"][1]]
    assert rankings.positives() == [[0], [2]]


def test_headings_are_no_queries():
    text = "# How wings work in the air\n\nWings push air downwards all the time. Air pushes them upwards."
    corpus = Dataset.from_dict({"doc_id": ["a"], "text": [text]})
    for kind, seeds in (("first_sentences", [0]), ("sentences", range(8))):
        made = [make_queries(corpus, kind, seed=seed) for seed in seeds]
        assert {rankings.queries["query"][0].split()[0] for rankings in made} <= {"Wings", "Air"}
        assert all(rankings.corpus["text"][0].startswith("# How wings work in the air ") for rankings in made)


def test_random_sentences_are_queries():
    corpus = Dataset.from_dict(ARTICLES)
    drawn = {}
    for seed in range(20):
        rankings = make_queries(corpus, "sentences", seed=seed)
        assert make_queries(corpus, "sentences", seed=seed).queries["query"][:] == rankings.queries["query"][:]
        for query, (row,) in zip(rankings.queries["query"], rankings.positives(), strict=True):
            text, title = rankings.corpus["text"][row], ARTICLES["title"][row]
            assert query in ARTICLES["text"][row] and query not in text and text.startswith(title)
            assert sorted(f"{query} {text}".split()) == sorted(ARTICLES["text"][row].split())
            drawn.setdefault(row, set()).add(query)
    # Too short to be a query: "No."
    assert {row: len(queries) for row, queries in drawn.items()} == {0: 2, 2: 2}
    one = make_queries(corpus, "sentences", num_queries=1)
    assert len(one) == 1
    others = [row for row in range(4) if [row] != one.positives()[0]]
    assert [one.corpus["text"][row] for row in others] == [ARTICLES["text"][row] for row in others]


def test_no_queries():
    with pytest.raises(ValueError, match="None of the 1 documents gives a query of the kind 'sentences'"):
        make_queries(Dataset.from_dict({"doc_id": ["a"], "text": ["One sentence."]}), "sentences")
