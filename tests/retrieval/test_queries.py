# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries that are made of documents."""

import re

import pytest
from datasets import Dataset
from hypothesis import given
from hypothesis import strategies as st

from hf_dse import make_queries
from hf_dse.retrieval.queries import find_sentences, take_heading, take_sentence


def split_sentences(text):
    return [text[start:end] for start, end in find_sentences(text)]


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Planes fly. Cats purr! Why? Yes", ["Planes fly.", "Cats purr!", "Why?", "Yes"]),
        ('(Nobody knows.) "Oh." Well', ["(Nobody knows.)", '"Oh."', "Well"]),
        ("Dr. Wu et al. found 3.5 mg, i.e. Less. It did.", ["Dr. Wu et al. found 3.5 mg, i.e. Less.", "It did."]),
        ("Gen. Lee of Apple Inc. Came on Jan. 24.", ["Gen. Lee of Apple Inc. Came on Jan. 24."]),
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
    "joined_title": ["Lift", "", "Purring", "Nothing"],
    "text": [
        "Lift Wings push air downwards all the time. Air pushes wings upwards then.",
        "Only one sentence is in this document.",
        "Purring Cats purr when they are content. No. They also purr when they are ill.",
        "Nothing",
    ],
}


def test_first_sentences_are_queries():
    rankings = make_queries(Dataset.from_dict(ARTICLES), "first_sentences")
    assert rankings.queries["query"][0] == "Wings push air downwards all the time."
    assert rankings.corpus["text"][:2] == ["Lift Air pushes wings upwards then.", ARTICLES["text"][1]]
    assert rankings.positives() == [[0], [2]]


PROSE = "Wings push air downwards all the time. Air pushes them upwards."
NOT_PROSE = {
    "a table": "| Name of the wing | Its size |\n| --- | --: |\n| An upper wing of wood. | 3 metres long. |",
    "a table without outer bars": "Name of the wing | Its size\n--- | ---\nAn upper wing of wood. | 3 metres long.",
    "a list": "- A first point about the planes.\n- A second point about planes.\n  It goes on in this line.",
    "a list with numbers": "1. Begin with the left wing first.\n2. Then take the right one too.",
    "code": "```python\n# A comment in the code here.\nwing.push(air)  # All the time. Always.\n```",
    "code on the line of a list": "- ```bash\n  make the wings and planes. Quickly now.\n  ```",
    "front matter": "---\ntitle: The wings of old planes. A guide.\ntags: [wings, planes, lift]\n---",
    "a heading": "# How wings work in the air",
    "an underlined heading": "How all the wings work in air\n=============================",
    "a rule": "* * *",
    "an image": "[![The state of the wings. It passes.](badge.svg)](https://wings.example)",
    "a line of links": "[All the first pages of this](a.md) · [All of the second pages](b.md)",
    "an address": "https://wings.example/planes/of/wood.and.paper",
    "a comment": "<!-- To whoever edits the wings: take care. It is read by a tool. -->",
    "HTML": '<p align="center">\nThe wings of all planes are here. Read on now.\n</p>',
    "a quote": "> A wise word on wings by someone. It is not ours.",
    "a formula": "$$\n\\text{lift of the wings in air. Of all.} = 3\n$$",
    "the target of a link": '[wings of planes]: https://wings.example "Pages on wings. All of them."',
}


@pytest.mark.parametrize("kind", NOT_PROSE)
def test_only_prose_is_a_query(kind):
    """Neither before nor after it; the rest of the document stays as it is."""
    texts = [f"{NOT_PROSE[kind]}\n\n{PROSE}", f"{PROSE}\n\n{NOT_PROSE[kind]}", f"{PROSE}\n\n{NOT_PROSE[kind]}\n"]
    # It is at the beginning of a text alone.
    for text in texts[:1] if kind == "front matter" else texts:
        corpus = Dataset.from_dict({"doc_id": ["a"], "text": [text]})
        made = make_queries(corpus, "first_sentences")
        (query,), (rest,) = made.queries["query"][:], made.corpus["text"][:]
        assert query in PROSE.replace(". ", ".|").split("|")
        assert NOT_PROSE[kind] in rest and query not in rest
    alone = Dataset.from_dict({"doc_id": ["a", "b"], "text": [f"{NOT_PROSE[kind]}\n\n# A heading of it\n", PROSE]})
    assert make_queries(alone, "first_sentences").queries["query_id"][:] == ["first_sentences-b"]


def test_signs_in_a_text_are_not_markdown():
    for text in (
        "Of 3 * 4 and a|b one may read. This is the rest.",
        "The age was < 65 years and p > 0.05 in all.\nThis is the rest of the text.",
        "He was born in\n1987. That was a year of many wars. It ended.",
        "- he said at the time, and went away. She stayed.",
    ):
        query, rest = take_sentence(text)
        assert query == split_sentences(text)[0] and rest == text[len(query) :].strip()


BODY = " ".join(f"word{number}" for number in range(20))


@pytest.mark.parametrize(
    ("text", "heading", "rest"),
    [
        (f"# How planes fly\n\n{BODY}", "How planes fly", BODY),
        (f"Wings\n\nHow `planes` fly\n~~~~~~~~~~~~~~~~\n\n{BODY}", "How planes fly", f"Wings\n\n\n{BODY}"),
        (f"*******\n A  b\n*******\n\n### How it *flies* {{#id}}\n\n{BODY}", "How it flies", None),
        (f"~~~~~~~~~~~~~~~~\n How planes fly\n~~~~~~~~~~~~~~~~\n\n{BODY}", "How planes fly", BODY),
        (f"# How [planes](https://a.b) fly ##\r\n{BODY}", "How planes fly", BODY),
        (f"```sh\nab\n```\n\n# 飞机是如何飞行的\n{BODY}", "飞机是如何飞行的", f"```sh\nab\n```\n\n{BODY}"),
    ],
)
def test_headings(text, heading, rest):
    found = take_heading(text)
    assert found[0] == heading and (rest is None or found[1] == rest) and BODY in found[1]


@pytest.mark.parametrize(
    "text",
    [
        # One word, little text below, an image, and what is no heading.
        f"## Installation\n\n{BODY}",
        "# How planes fly\n\nBy lift.",
        f"# ![The state of the planes](badge.svg)\n\n{BODY}",
        f"```python\n# How planes fly\n{BODY}\n```",
        f"So::\n\n    # how planes fly\n    plane.fly()\n\n{BODY}",
        f"> # How planes fly\n\n{BODY}",
        f"Two lines are here.\nAnd another one is here.\n---\n{BODY}",
        f"Greetings to all of you\n--\n{BODY}",
        f"=====  =====\nAll    wings\n=====  =====\n{BODY}",
    ],
)
def test_what_is_no_heading(text):
    assert take_heading(text) == ("", "")


def test_headings_of_passages():
    """A passage that begins inside of code has no heading."""
    parts = [f"# How planes fly\n\n{BODY}\n\n```sh\nls", f"# how to list all\n{BODY}\n```"]
    columns = {"doc_id": ["a#1", "a#2"], "text": [parts[0], f"How planes fly\n{parts[1]}"], "passage_of": ["a", "a"]}
    corpus = Dataset.from_dict({**columns, "joined_title": ["", "How planes fly"]})
    assert take_heading(parts[1])[0] == "how to list all"
    assert make_queries(corpus, "headings").queries["query"][:] == ["How planes fly"]


def test_headings_are_queries():
    """Before the first sentences of documents that have none."""
    texts = [PROSE, f"# How planes fly\n\n{BODY}", f"## How cats purr\n\n{BODY}"]
    corpus = Dataset.from_dict({"doc_id": ["a", "b", "c"], "text": texts})
    for seed in range(4):
        made = make_queries(corpus, "headings", num_queries=2, seed=seed)
        assert made.queries["query"][:] == ["How planes fly", "How cats purr"] and made.positives() == [[1], [2]]
        assert made.corpus["text"][:] == [PROSE, BODY, BODY]
    made = make_queries(corpus, "headings")
    assert made.queries["query"][:] == ["Wings push air downwards all the time.", "How planes fly", "How cats purr"]
    one = make_queries(Dataset.from_dict(ARTICLES), "headings", num_queries=1)
    assert len(one) == 1 and one.queries["query_id"][0] in ("headings-a", "headings-c")


def test_no_queries():
    with pytest.raises(ValueError, match="None of the 1 documents gives a query of the kind 'headings'"):
        make_queries(Dataset.from_dict({"doc_id": ["a"], "text": ["One sentence."]}), "headings")
    with pytest.raises(ValueError, match="kind='sentences': it has to be one of headings, first_sentences"):
        make_queries(Dataset.from_dict(ARTICLES), "sentences")
