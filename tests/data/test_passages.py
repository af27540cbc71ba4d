# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Passages of long texts: nothing is lost, all fit, and they end at good places."""

import time

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import ByT5Tokenizer

from hf_dse.data.passages import MARKDOWN, line_of, parse_headings, parse_markdown, split_text, title_of, with_titles


@pytest.fixture(params=["bert", "roberta"], scope="module")
def tokenizer(request, bert_tokenizer, roberta_tokenizer):
    """Words that are spelled in pieces, or several tokens for one character."""
    return bert_tokenizer if request.param == "bert" else roberta_tokenizer


PIECES = ["cat", "dog.", "Is it?", "é", "日本。", "👩‍🔬", "# a\n", "```\n", "x" * 30]
PIECES += ["\n", "\n\n", " ", "\t", "\r", "\u2028"]
TEXT = st.lists(st.sampled_from(PIECES), max_size=40).map("".join)


@settings(max_examples=100, deadline=None, derandomize=True, database=None)
@given(text=TEXT, chunk_size=st.integers(1, 20))
def test_nothing_is_lost_and_all_fit(tokenizer, text, chunk_size):
    passages = split_text(text, tokenizer, chunk_size)
    assert "".join(passages) == text and all(passages)
    sizes = [len(tokenizer(passage, add_special_tokens=False)["input_ids"]) for passage in passages]
    assert all(size <= chunk_size or len(passage) == 1 for size, passage in zip(sizes, passages, strict=True))
    # As a text editor counts lines, by the first sign of the passage.
    start = 0
    for passage in passages:
        first = start + len(passage) - len(passage.lstrip())
        # A passage of white space shows nothing before the next one.
        assert line_of(text, start) == text[:first].count("\n") + 1 or not passage.strip()
        start += len(passage)


@pytest.mark.parametrize(
    ("chunk_size", "passages"),
    [
        # 6 tokens, and each other sentence 4.
        (10, ["the cat sat on mat. the dog ran. ", "the cat ran.\n\na dog sat. ", "old cat is in the house"]),
        (14, ["the cat sat on mat. the dog ran. the cat ran.\n\n", "a dog sat. old cat is in the house"]),
    ],
)
def test_passages_end_with_paragraphs_and_sentences(bert_tokenizer, chunk_size, passages):
    assert split_text("".join(passages), bert_tokenizer, chunk_size) == passages


def test_headings_stay_with_their_text(bert_tokenizer):
    parts = ["# a cat\n\nthe cat sat. the cat ran.\n\n", "## a dog\n\nthe dog sat. the dog ran.\n"]
    for size in (14, 15, 16, 17):
        assert split_text("".join(parts), bert_tokenizer, size) == parts


@pytest.mark.parametrize(
    ("code", "is_code"),
    [
        ("```sh\nran\n# mat\n```\n", True),
        ("~~~\nran\n# mat\n~~~\n", True),
        ("  ````\n```\n# mat\n````\n", True),
        ("```ran``` in\n# mat\n", False),
        ("~~~\nran\n~~~\n# mat\n", False),
        ("- ```sh\n  ran\n  # mat\n  ```\n", True),
        # Without indentation the list ends, and the code in it.
        ("1. ~~~\n# mat\n", False),
        ("<!-- ran\n# mat\n-->\n", True),
        ("<pre>\nran\n# mat\n</pre>\n", True),
        ("<!-- ran -->\n# mat\n", False),
    ],
)
def test_comments_in_code_are_not_headings(bert_tokenizer, code, is_code):
    """In Markdown, passages ended at the comments of scripts."""
    text = f"a cat sat on the old mat in the new house.\n\n{code}\na dog is in the old house and the cat ran.\n"
    size = len(bert_tokenizer(text[: text.index("mat\n") + 4])["input_ids"]) + 4
    passages = split_text(text, bert_tokenizer, size)
    assert "".join(passages) == text
    assert any(passage.lstrip().startswith("# mat") for passage in passages) != is_code


def test_front_matter_has_no_headings(bert_tokenizer):
    text = "---\ntitle: a cat\n# mat\nof: house\n---\n# a dog\n\nthe dog sat. the dog ran.\n"
    size = len(bert_tokenizer(text[: text.index("# a dog")])["input_ids"]) + 6
    passages = split_text(text, bert_tokenizer, size)
    assert "".join(passages) == text and passages[1].startswith("# a dog")


def test_underlined_headings_stay_with_their_text(bert_tokenizer):
    for line in ("===", "-------"):
        parts = ["the cat sat. the cat ran. the cat is old.\n\n", f"a dog\n{line}\n\nthe dog sat. the dog ran.\n"]
        size = len(bert_tokenizer(parts[1])["input_ids"]) + 2
        assert split_text("".join(parts), bert_tokenizer, size) == parts


@pytest.mark.parametrize(
    ("text", "title"),
    [
        ("# A cat\n\nIt sat.", "A cat"),
        ("Some text.\n\n##  A cat  \n", "A cat"),
        # Without a heading the first line that has words.
        ("\n---\n A cat \nIt sat.", "A cat"),
        ("#no heading\n# A cat", "A cat"),
        # Code, comments and front matter are not titles.
        ("```\n# install\n```\n\nA cat\n=====\n", "A cat"),
        ("<!--\n# no\n-->\n\n# A cat\n", "A cat"),
        ("=====\nA cat\n=====\n\nIt sat.", "A cat"),
        # Its bytes and a line break fit before a passage.
        ("# " + "x" * 19, "x" * 19),
        ("# " + "x" * 20 + "\nIt sat.", ""),
        ("", ""),
        ("\n--\n", ""),
    ],
)
def test_titles(text, title):
    assert title_of(text, 20) == title


MARKS = [*"#=- >`+*\n\r\t\v\f\u2028\u00a0a", "1. ", "\n\n", "==\n"]


@settings(max_examples=300, deadline=None, derandomize=True, database=None)
@given(text=st.lists(st.sampled_from(MARKS), max_size=14).map("".join))
def test_no_heading_is_missed_without_parsing(text):
    found, headings = (
        [(token.map, token.tag) for token in tokens if token.type == "heading_open"]
        for tokens in (parse_headings(text), parse_markdown(text, MARKDOWN))
    )
    assert found == headings


def test_passages_are_read_after_the_title():
    """Each but the first, which begins with it."""
    passages = ["# A cat\n\n", "It sat. ", "It ran."]
    text = "".join(passages)
    assert with_titles(text, passages, 20) == ["# A cat", "A cat\nIt sat.", "A cat\nIt ran."]
    assert with_titles(text, passages, 4) == ["# A cat", "It sat.", "It ran."]
    assert with_titles(text, [text], 20) == [text] and with_titles("", [], 20) == []


def test_tokenizers_without_places_are_refused():
    with pytest.raises(ValueError, match="A ByT5Tokenizer does not tell where its tokens are"):
        split_text("a cat", ByT5Tokenizer())


LONG = ["\n" * 100_000, "```\n# a\n" * 15_000, "<!--\n# a\n" * 15_000, "$$\n" * 15_001, "- ``` a\n" * 15_000]


@pytest.mark.parametrize("text", [*LONG, "a\n\n" * 15_000, "> a | b\n" * 15_000])
def test_long_texts_take_seconds(bert_tokenizer, text):
    begin = time.monotonic()
    assert "".join(split_text(text, bert_tokenizer, 60)) == text
    assert time.monotonic() - begin < 20
