# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""BM25: against its formula, words of other scripts and normal forms, and weights beside the cosine."""

import math
import sqlite3
import subprocess
import sys
import unicodedata
from collections import Counter

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import Index
from hf_dse.retrieval import bm25
from hf_dse.retrieval.bm25 import Bm25Index, Words, keep_words, number_groups, split_words


bm25s = pytest.importorskip("bm25s")
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


@settings(max_examples=20, deadline=None)
@given(corpus=st.lists(TEXT, min_size=1, max_size=8))
def test_scipy_makes_the_matrix_of_bm25s(corpus):
    found, tokens = Bm25Index(corpus).index, bm25.tokenize_words(corpus)
    assert found.csc_backend == "scipy"
    expected = bm25s.BM25(csc_backend="numpy")
    expected.index(tokens, show_progress=False)
    for name in ("data", "indices", "indptr"):
        np.testing.assert_array_equal(found.scores[name], expected.scores[name])


def scores_of(corpus, query):
    index = Bm25Index(corpus)
    (words,) = index.words([query])
    return index.scores(words)


@settings(max_examples=40, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), corpus=st.lists(TEXT, min_size=1, max_size=8), data=st.data())
def test_it_is_its_formula(queries, corpus, data):
    top_k = data.draw(st.integers(1, len(corpus) + 1))
    index, by_words = Bm25Index(corpus), Index(None, corpus, show_progress=False)
    found = by_words.find(queries, top_k, by_words=True)
    assert {part.shape for part in found} == {(len(queries), min(top_k, len(corpus)))}
    for query, words, scores, rows in zip(queries, index.words(queries), *found, strict=True):
        expected = bm25_by_hand(query, corpus)
        values = index.scores(words)
        assert values.dtype == np.float32
        np.testing.assert_allclose(values, expected, rtol=1e-5)
        # The best first, divided by the best; ties by position, also those for the last place.
        best = np.argsort(-values, kind="stable")[: len(rows)]
        np.testing.assert_allclose(scores, values[best] / (values.max() or 1), rtol=1e-5)
        # What shares no word is not found.
        assert rows.tolist() == np.where(values[best] > 0, best, -1).tolist()


def test_stop_words_do_not_count_and_stems_are_equal():
    scores = scores_of(["the sun of and", "A fox jumps."], "the foxes, jumped")
    assert scores[1] > scores[0] == 0


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("बारिश गेहूँ विद्यालय", ["बारिश", "गेहूँ", "विद्यालय"]),
        ("今天北京下雨了。", ["今天", "天北", "北京", "京下", "下雨", "雨了", *"今天北京下雨了"]),
        ("東京タワー", ["東京", "京タ", "タワ", "ワー", *"東京タワー"]),
        ("ภาษาไทย", ["ภา", "าษ", "ษา", "าไ", "ไท", "ทย", *"ภาษาไทย"]),
        ("ﷺ نص عربي", ["صل\u064a", "الله", "عليه", "وسلم", "نص", "عربي"]),
        (unicodedata.normalize("NFD", "Café Größe"), ["café", "grösse"]),
        ("infor\u00admation zero\u200bwidth \ufeffmark", ["information", "zerowidth", "mark"]),
        ("x_1 don't 10² ½ l'avion", ["x_1", "don't", "don", "10", "l'avion", "avion", "2", "1"]),
        ("10½ inch, Energy¹, 10\u00a0000 m², CO₂", ["10", "inch", "energy", "10'000", "10000", "m2", "co2", "1", "2"]),
        # Numbers keep their separators, and are found without those of thousands.
        ("3.9 9,90 1,2-dichloroethane 2,4-D", ["3.9", "9,90", "1,2", "dichloroethane", "2,4", "d"]),
        ("5,000 5.000 5'000 5\u202f000 ٣٫٥", ["5,000", "5000", "5.000", "5000", *["5'000", "5000"] * 2, "3.5"]),
        ("C++ and C# in R, the user\u2019s", ["c++", "and", "c#", "in", "the", "user", "c", "r"]),
        ("x = x + 1", ["x", "1"]),
        # The parts of names, but not of mRNA, of abbreviations, or behind two letters at the beginning.
        ("toString onStochastic asHTMLText", ["tostring", "onstochastic", "ashtmltext", "ashtml", "text"]),
        ("getUserById", ["getuserbyid", "get", "user", "by", "id"]),
        ("class HTMLParser", ["class", "htmlparser", "html", "parser"]),
        ("_get_order os.path mRNA U.S.", ["_get_order", "get", "order", "os.path", "os", "path", "mrna", "u.s"]),
        # Letters that are seldom told apart, in Turkish, Russian, Farsi and Hebrew.
        ("\u0130STANBUL \u0131\u015fık ёлка", ["istanbul", "işik", "елка"]),
        ("کتاب علی مدرسة", ["\u0643تاب", "عل\u064a", "مدرس\u0647"]),
        ("שלום", ["שלו\u05de"]),
        # Korean particles are written to the word before them.
        ("서울은 비", ["서울", "울은", *"서울은", "비"]),
        (unicodedata.normalize("NFD", "서울"), ["서울", *"서울"]),
        # With the points of school books, a lengthened word, and other forms of the alef.
        ("كِتَابٌ كتـــاب أحمد", ["كتاب", "كتاب", "احمد"]),
        ("שָׁלוֹם", ["שלו\u05de"]),
        ("٢٠٢٦ २०२६ ２０２６", ["2026"] * 3),
        ("❤\ufe0f1\ufe0f\u20e3 🚀🚀 \ufffd", ["❤", "🚀", "🚀", "1"]),
        ("ꦲꦏ᦮ ꆈꌠ", ["ꦲꦏ", *"ꦲꦏ", "ꆈꌠ", *"ꆈꌠ"]),
    ],
)
def test_words_of_any_script_and_normal_form(text, words):
    assert split_words(text) == words


@pytest.mark.parametrize(
    ("query", "text"),
    [
        ("STRASSE", "Eine Straße"),
        ("ΟΔΟΣ", "μια οδός οδος"),
        ("ΕΛΛΑΔΑ", "η Ελλάδα και ο ήλιος"),
        ("istanbul", "\u0130STANBUL"),
        ("get user by id", "def getUserById(key): ..."),
        ("1043", "the year 1,043"),
        ("C#", "C# and F#"),
    ],
)
def test_what_people_write_is_found(query, text):
    scores = scores_of(["another text: 別, другой", text], query)
    assert scores[1] > scores[0] == 0


@pytest.mark.parametrize(
    ("query", "other", "right"),
    [
        ("version 3.9", "Version 3.8", "What is new in version 3.9 of the parser"),
        ("1,2-dichloroethane", "1,1-dichloroethane", "Vapour pressure of 1,2-dichloroethane at 20 degrees"),
        ("vitamin D", "Vitamin B and vitamin C", "A text about vitamin D"),
        ("2,4-D", "2,4,5-T in the soil", "The herbicide 2,4-D in the soil"),
        ("9,90", "19,90", "The price of 9,90 is low"),
        ("sort in C++", "Sort in Java", "How to sort a vector in C++"),
        ("get user by id", "A user may log in twice.", "def getUserById(key): return TABLE[key]"),
        ("user_id", "the id of a user", "column user_id"),
    ],
)
def test_one_character_decides(query, other, right):
    first, second = Words([other, right]).scores([query], 0.3)(slice(0, 1))[0]
    assert second > first


def test_groups_have_any_names():
    texts = ["Error 4711: no paper.", "It is an error.", "Rain again."]
    named, numbered = (Words(texts, groups).scores(["error 4711"], 0.6) for groups in (["a", "a", "b"], [0, 0, 1]))
    np.testing.assert_array_equal(named(slice(0, 1)), numbered(slice(0, 1)))


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
            Bm25Index(corpus).words(queries)
        with pytest.raises(kind, match=message):
            Words(corpus).scores(queries)
    assert Words(["cat"]).scores([])(slice(0, 3)).shape == (0, 1)


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
    expected = Words(texts, [0, 1, 0]).scores(["cat"])(slice(0, 1))
    np.testing.assert_array_equal(Words(texts, groups).scores(["cat"])(slice(0, 1)), expected)


def test_nothing_to_find(warnings):
    corpus = ["cat dog", "sun", "cat"]
    assert Bm25Index(corpus).words([]) == []
    assert scores_of(["", "the"], "cat").tolist() == [0, 0]
    index = Index(None, ["a", "the"], show_progress=False)
    assert index.find(["cat"], 2, by_words=True)[1].tolist() == [[-1, -1]]
    assert index.find([], 2, by_words=True)[0].shape == (0, 2)
    assert Words(["", "the"]).scores(["x", "cat"])(slice(0, 2)).tolist() == [[0, 0]] * 2
    assert "2 of 2 queries share no word with the texts" in warnings[-1]


@settings(max_examples=30, deadline=None)
@given(queries=st.lists(TEXT, min_size=1, max_size=3), texts=st.lists(TEXT, min_size=1, max_size=9), data=st.data())
def test_scores_beside_the_cosine(queries, texts, data):
    everything = slice(0, len(queries))
    added = Words(texts).scores(queries, 0.6)(everything)
    assert added.dtype == np.float32
    for query, row in zip(queries, added, strict=True):
        expected = bm25_by_hand(query, texts)
        np.testing.assert_allclose(row, 0.6 * expected / (expected.max() or 1), atol=1e-6)
    # Passages have half of the score of their document.
    groups = data.draw(st.lists(st.sampled_from("abc"), min_size=len(texts), max_size=len(texts)))
    names = list(dict.fromkeys(groups))
    documents = [" ".join(text for text, of in zip(texts, groups, strict=True) if of == name) for name in names]
    of_documents = Words(documents).scores(queries, 0.6)(everything)[:, [names.index(group) for group in groups]]
    of_passages = Words(texts, groups).scores(queries, 0.6)
    np.testing.assert_allclose(of_passages(everything), (of_documents + added) / 2, atol=1e-6)
    np.testing.assert_array_equal(of_passages(slice(0, 1)), of_passages(everything)[:1])


def test_a_word_of_one_character_counts_once_in_a_document():
    passages, queries = ["x = x + 1", "let x be 1 in C++", "a matrix x", "the sun"], ["x", "1", "matrix x"]
    added = Words(passages, [0, 0, 1, 2]).scores(queries)(slice(0, 3))
    of_documents = Words(["x = x + 1 let x be 1 in C++", *passages[2:]]).scores(queries)(slice(0, 3))
    of_passages = Words(passages).scores(queries)(slice(0, 3))
    np.testing.assert_allclose(added, (of_passages + of_documents[:, [0, 0, 1, 2]]) / 2, atol=1e-6)


def test_groups_are_numbers_in_their_order():
    for groups, numbers in (
        (["b", None, "b", "a"], [0, 1, 0, 2]),
        (np.array([7, 3, 7]), [0, 1, 0]),
        (torch.tensor([7, 3, 7]), [0, 1, 0]),
        ([], []),
    ):
        assert number_groups(groups).tolist() == numbers


def test_kept_words_are_those_of_their_texts(tmp_path):
    """Whatever the order in which they were written; other texts have words of their own."""
    texts = ["cat dog", "sun", "cat"]
    first = Bm25Index(texts, tmp_path)
    again, other = Bm25Index(texts, tmp_path), Bm25Index(texts[::-1], tmp_path)
    assert first.name == again.name != other.name and len(list(tmp_path.glob("words-*"))) == 2
    for query in ("cat", "sun dog", "moon"):
        (words,), (same,) = first.words([query]), again.words([query])
        np.testing.assert_array_equal(first.scores(words), again.scores(same))
        np.testing.assert_array_equal(other.scores(other.words([query])[0])[::-1], first.scores(words))
    # What has no words has nothing to keep.
    assert scores_of(["the"], "cat").tolist() == [0]
    nothing = Bm25Index(["the"], tmp_path)
    assert nothing.words(["cat"]) == [[]] and len(list(tmp_path.glob("words-*"))) == 2
    keep_words(tmp_path, Words(texts))
    assert list(tmp_path.glob("words-*")) == [tmp_path / first.name]
    # Written by those that were never there.
    keep_words(tmp_path / "new", Words(texts))
    kept = Bm25Index(texts, tmp_path / "new", tokenize=lambda: pytest.fail("counted anew"))
    np.testing.assert_array_equal(*(index.scores(index.words(["sun dog"])[0]) for index in (first, kept)))


def test_a_text_is_split_into_words_once(tmp_path, monkeypatch, warnings):
    """In passages and documents; of changed texts the new ones, of other code all, and of damaged entries these."""
    counted = []
    monkeypatch.setattr(bm25, "split_words", lambda text: counted.append(text) or split_words(text))

    def same_as_anew(texts, groups):
        kept, anew = Words(texts, groups, tmp_path), Words(texts, groups)
        queries = ["cat", "the sun x dogs"]
        np.testing.assert_array_equal(*(words.scores(queries)(slice(0, 2)) for words in (kept, anew)))
        return kept

    same_as_anew(["a cat", "the", "x = 1 x", "a cat"], [0, 0, 1, 1])
    counted.clear()
    kept = Words(["the", "the sun", "a cat", "x = 1 x"], [0, 1, 1, 0], tmp_path)
    assert counted == ["the sun"]
    same_as_anew(["the", "the sun", "a cat", "x = 1 x"], [0, 1, 1, 0])
    same_as_anew(["the sun"], None)
    keep_words(tmp_path, kept)
    counted.clear()
    Words(["x = 1 x", "the", "dog"], None, tmp_path)
    assert counted == ["dog"]
    with sqlite3.connect(tmp_path / "words.sqlite") as connection:
        connection.execute("UPDATE entries SET value = substr(value, 2)")
    connection.close()
    same_as_anew(["dog", "x = 1 x"], None)
    assert warnings == [f"{tmp_path / 'words.sqlite'}: 2 entries are damaged, and are made anew."]
    counted.clear()
    monkeypatch.setattr(bm25, "_made_by", lambda: b"other code")
    Words(["dog", "the"], None, tmp_path)
    assert counted == ["dog", "the"]


RACE = """
import sys
from pathlib import Path
from hf_dse.retrieval.bm25 import Words, keep_words
folder, own = Path(sys.argv[1]), sys.argv[2]
for number in range(40):
    texts = [f"cat {number}", "the sun", own]
    words = Words(texts, folder=folder)
    assert words.scores(["cat"])(slice(0, 1))[0, 0] == 1
    if own == "prunes":
        keep_words(folder, words)
"""


@pytest.mark.slow
@pytest.mark.parametrize("others", [["same", "same"], ["prunes", "same"]])
def test_two_processes_keep_words_in_one_folder(tmp_path, others):
    running = [
        subprocess.Popen([sys.executable, "-c", RACE, tmp_path, own], stderr=subprocess.PIPE, text=True)
        for own in others
    ]
    ends = [(process.communicate(timeout=120)[1], process.returncode) for process in running]
    assert [code for _, code in ends] == [0, 0], ends


@pytest.mark.parametrize("damage", ["cut", "not JSON", "a list", "missing"])
def test_damaged_words_are_made_anew(tmp_path, warnings, damage):
    texts = ["cat dog", "sun", "cat"]
    first = Bm25Index(texts, tmp_path)
    folder = tmp_path / first.name
    sums = folder / "checksums.json"
    file = max((path for path in folder.iterdir() if path != sums), key=lambda path: path.stat().st_size)
    if damage == "cut":
        file.write_bytes(file.read_bytes()[:-1])
    elif damage == "missing":
        file.unlink()
    else:
        sums.write_text("{" if damage == "not JSON" else "[]")
    again = Bm25Index(texts, tmp_path)
    np.testing.assert_array_equal(*(index.scores(index.words(["cat"])[0]) for index in (first, again)))
    assert warnings == [f"{folder}: the kept words are damaged, and are made anew."]
    Bm25Index(texts, tmp_path)
    assert len(warnings) == 1
