# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25: against its formula, words of other scripts and normal forms, and weights beside the cosine."""

import math
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import bm25_scores
from hf_dse.retrieval.bm25 import Bm25Index, split_words


pytest.importorskip("bm25s")
pytest.importorskip("Stemmer")

# No stop words, and equal to their stems.
WORDS = ["cat", "dog", "sun", "moon", "red", "wall"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def bm25_by_hand(query, corpus, k1=1.5, b=0.75):
    """Lucene's BM25, one document at a time."""
    documents = [Counter(text.split()) for text in corpus]
    mean = sum(sum(words.values()) for words in documents) / len(documents)
    scores = np.zeros(len(corpus))
    for word in query.split():
        frequency = sum(word in words for words in documents)
        idf = math.log(1 + (len(corpus) - frequency + 0.5) / (frequency + 0.5))
        for row, words in enumerate(documents):
            scores[row] += idf * words[word] / (words[word] + k1 * (1 - b + b * sum(words.values()) / mean))
    return scores


@settings(max_examples=40, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), corpus=st.lists(TEXT, min_size=1, max_size=8), data=st.data())
def test_it_is_its_formula(queries, corpus, data):
    top_k = data.draw(st.integers(1, len(corpus) + 1))
    scores, positions = Bm25Index(corpus).search(queries, top_k)
    assert scores.shape == positions.shape == (len(queries), min(top_k, len(corpus)))
    for query, values, rows in zip(queries, scores, positions, strict=True):
        expected = bm25_by_hand(query, corpus)
        np.testing.assert_allclose(values, expected[rows], rtol=1e-5)
        np.testing.assert_allclose(values, np.sort(expected)[::-1][: len(rows)], rtol=1e-5)
        # Ties are broken by position, also those for the last place.
        assert (np.diff(rows)[np.diff(values) == 0] > 0).all()
        for row in rows:
            assert {other for other in range(row) if corpus[other] == corpus[row]} <= set(rows.tolist())


def test_stop_words_do_not_count_and_stems_are_equal():
    scores, positions = Bm25Index(["the sun of and", "A fox jumps."]).search(["the foxes, jumped"], 2)
    assert positions.tolist() == [[1, 0]] and scores[0, 0] > scores[0, 1] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("बारिश गेहूँ विद्यालय", ["बारिश", "गेहूँ", "विद्यालय"]),
        ("今天北京下雨了。", ["今天", "天北", "北京", "京下", "下雨", "雨了", *"今天北京下雨了"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", *"東京タワー"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย", *"ภาษาไทย"]),
        ("ﷺ نص عربي", ["صلى", "الله", "عليه", "وسلم", "نص", "عربي"]),
        (unicodedata.normalize("NFD", "Café Größe"), ["Café", "Größe"]),
        ("infor\u00admation zero\u200bwidth \ufeffmark", ["information", "zerowidth", "mark"]),
        ("x_1 don't 10² ½", ["x_1", "don", "t", "102", "1", "2"]),
        # Korean particles are written to the word before them.
        ("서울은 비", ["서울", "울은", *"서울은", "비"]),
        (unicodedata.normalize("NFD", "서울"), ["서울", *"서울"]),
        # With the points of school books, a lengthened word, and other forms of the alef.
        ("كِتَابٌ كتـــاب أحمد", ["كتاب", "كتاب", "احمد"]),
        ("שָׁלוֹם", ["שלום"]),
        ("٢٠٢٦ २०२६ ２０２６", ["2026"] * 3),
        ("❤\ufe0f1\ufe0f\u20e3 🚀🚀 \ufffd", ["❤", "1", "🚀", "🚀"]),
        ("ꦲꦏ᦮ ꆈꌠ", ["ꦲꦏ", *"ꦲꦏ", "ꆈꌠ", *"ꆈꌠ"]),
    ],
)
def test_words_of_any_script_and_normal_form(text, words):
    assert split_words(text).split() == words


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("STRASSE", "Eine Straße"),
        ("ΟΔΟΣ", "μια οδός οδος"),
    ],
)
def test_what_people_write_is_found(query, text):
    scores, positions = Bm25Index(["another text: 別, другой", text]).search([query], 1)
    assert positions.tolist() == [[1]] and scores[0, 0] > 0


def test_what_is_not_a_list_of_texts_is_refused():
    for queries, corpus, kind, message in (
        ("a cat", ["cat"], TypeError, "`texts` has to be a list of strings, got str"),
        ("a cat", ["the"], TypeError, "`texts` has to be a list of strings, got str"),
        ([None], ["the"], ValueError, "The texts, row 0: the text is None, not a string"),
        (["cat"], "cats", TypeError, "`texts` has to be a list of strings, got str"),
        (["cat"], ["cat", None], ValueError, "The texts, row 1: the text is None, not a string"),
        ([math.nan], ["cat"], ValueError, "The texts, row 0: the text is nan, not a string"),
        (["cat"], [], ValueError, "There are no texts to search in"),
    ):
        with pytest.raises(kind, match=message):
            bm25_scores(queries, corpus)
        with pytest.raises(kind, match=message):
            Bm25Index(corpus).search(queries, 1)
    assert bm25_scores([], ["cat"])(slice(0, 3)).shape == (0, 1)


@pytest.mark.parametrize(
    "groups",
    [
        ["a", None, "a"],
        [1.0, math.nan, 1.0],
        [("a", 1), ("b", 1), ("a", 1)],
        np.array([0, 1, 0]),
        torch.tensor([0, 1, 0]),
    ],
    ids=["None", "nan", "tuples", "array", "tensor"],
)
def test_any_values_are_groups(groups):
    texts = ["a cat", "a dog", "the cat sat"]
    expected = bm25_scores(["cat"], texts, groups=[0, 1, 0])(slice(0, 1))
    np.testing.assert_array_equal(bm25_scores(["cat"], texts, groups=groups)(slice(0, 1)), expected)


def test_each_text_has_a_group():
    with pytest.raises(ValueError, match="`groups` has 4 entries for 3 texts: pass one for each"):
        bm25_scores(["cat"], ["a", "b", "c"], groups=[0, 1, 2, 3])


def test_nothing_to_find(warnings):
    corpus = ["cat dog", "sun", "cat"]
    assert Bm25Index(corpus).search([], 2)[0].shape == (0, 2)
    assert Bm25Index(["", "the"]).search(["cat"], 2)[1].tolist() == [[0, 1]]
    assert bm25_scores(["x", "cat"], ["", "the"])(slice(0, 2)).tolist() == [[0, 0]] * 2
    assert "2 of 2 queries share no word with the texts" in warnings[0]
    with pytest.raises(ValueError, match="weight=nan: it has to be a finite number of at least 0"):
        bm25_scores(["cat"], ["cat"], math.nan)


@settings(max_examples=30, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), texts=st.lists(TEXT, min_size=1, max_size=9), data=st.data())
def test_scores_beside_the_cosine(queries, texts, data):
    everything = slice(0, len(queries))
    added = bm25_scores(queries, texts, 0.6)(everything)
    assert added.dtype == np.float32
    for query, row in zip(queries, added, strict=True):
        expected = bm25_by_hand(query, texts)
        np.testing.assert_allclose(row, 0.6 * expected / (expected.max() or 1), atol=1e-6)
    # Passages have half of the score of their document.
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(texts), max_size=len(texts)))
    names = list(dict.fromkeys(groups))
    documents = [" ".join(text for text, of in zip(texts, groups, strict=True) if of == name) for name in names]
    of_documents = bm25_scores(queries, documents, 0.6)(everything)[:, [names.index(group) for group in groups]]
    of_passages = bm25_scores(queries, texts, 0.6, groups)
    np.testing.assert_allclose(of_passages(everything), (of_documents + added) / 2, atol=1e-6)
    np.testing.assert_array_equal(of_passages(slice(0, 1)), of_passages(everything)[:1])
