# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of candidates by rerankers, windows of long documents, and checks of scores."""

import math

import numpy as np
import pytest
from datasets import Dataset
from sentence_transformers import CrossEncoder

import hf_dse
from hf_dse import load_reranker, make_rankings
from hf_dse.retrieval.rerankers import TEMPLATE_MARGIN, overhead
from hf_dse.teacher.score import check_scores


WORDS = [f"word{number}" for number in range(40)]
# Documents 2 and 3 are longer than a model with 32 positions reads; 4 has the text of 0.
TEXTS = [
    " ".join(WORDS[:5]),
    " ".join(WORDS[7:12]),
    " ".join(WORDS[start % 40] for start in range(3, 60, 3)),
    " ".join(WORDS[start % 40] for start in range(0, 7 * 83, 7)),
    " ".join(WORDS[:5]),
]
QUERIES = ["word1 word2", "word30 word8 word9 word11 word20", "word1  word2 word39"]
CANDIDATES = [[0, 2, 3], [3, 1], [4, 0, 2, 1]]


@pytest.fixture
def rankings():
    return make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": TEXTS})


@pytest.fixture
def reranker(save_teacher):
    return load_reranker(save_teacher(), device="cpu")


def windows_of(query, document, num_tokens=32):
    """Windows of a document, one word for each token, next to a query and three special tokens."""
    words, room = document.split(), num_tokens - 3 - len(query.split())
    if len(words) <= room:
        return [document]
    found = [words[start : start + room] for start in range(0, len(words), room)]
    found[-1] = words[-room:]
    return [" ".join(part) for part in found]


def expected_scores(raw, model, windows):
    scores = []
    for query, rows in zip(QUERIES, CANDIDATES, strict=True):
        scores.append([])
        for row in rows:
            parts = windows_of(query, TEXTS[row])
            logits = raw(model, [(query, part) for part in (parts if windows == "best" else parts[:1])])
            scores[-1].append(max(values[1] - values[0] if isinstance(values, list) else values for values in logits))
    return scores


def assert_close(found, expected):
    assert [len(row) for row in found] == [len(row) for row in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-5)


def score(teacher, rankings, **options):
    return hf_dse.score(teacher, rankings, show_progress=False, **options).queries["teacher_logits"][:]


@pytest.mark.parametrize("windows", ["first", "best"])
@pytest.mark.parametrize("num_labels", [1, 2])
def test_scores_are_those_of_one_pair_at_a_time(save_teacher, rankings, raw, windows, num_labels, warnings):
    folder = save_teacher(num_labels=num_labels)
    scored = hf_dse.score(folder, rankings, batch_size=3, windows=windows, show_progress=False)
    found = scored.queries["teacher_logits"][:]
    assert_close(found, expected_scores(raw, CrossEncoder(folder, device="cpu"), windows))
    assert np.std(np.concatenate(found)) > 0.1
    assert scored.corpus is rankings.corpus and scored.queries["documents"][:] == rankings.queries["documents"][:]
    assert len(warnings) == (windows == "first")
    if warnings:
        assert "2 candidates are longer than what max_length=32 leaves" in warnings[0]


def test_a_query_is_never_truncated(reranker, raw, warnings):
    # 32 positions are 3 special tokens, 28 of the query and one of the document.
    query = " ".join(WORDS[:28])
    rankings = make_rankings({"query": [query], "documents": [[0]]}, {"text": [TEXTS[3]]})
    assert_close(score(reranker, rankings), [raw(reranker, [(query, "word0")])])
    rankings = make_rankings({"query": [f"{query} word29"], "documents": [[0]]}, {"text": [TEXTS[3]]})
    message = (
        r"1 of 1 queries leave no room for a document in the max_length=32 of the reranker \('word0 .*, 29 tokens\)"
    )
    with pytest.raises(ValueError, match=message):
        score(reranker, rankings)
    # Queries that are made of sentences: the long ones are counted at once, and the others are scored.
    columns = {"query": [f"{query} word29", query, f"{query} word30"], "documents": [[0], [0], [0]]}
    scores = score(reranker, make_rankings(columns, {"text": [TEXTS[3]]}))
    assert math.isnan(scores[0][0]) and math.isnan(scores[2][0])
    assert_close(scores[1:2], [raw(reranker, [(query, "word0")])])
    (told,) = [text for text in warnings if "no room" in text]
    assert told.startswith("2 of 3 queries") and told.endswith("Their documents get no scores.")


def test_invalid_arguments(rankings, reranker, save_teacher):
    with pytest.raises(ValueError, match="bm25_weight=0.3 is an option of bi-encoders"):
        score(reranker, rankings, bm25_weight=0.3)
    with pytest.raises(ValueError, match="The reranker has 3 logits, and needs 1, or 2"):
        score(save_teacher("three", num_labels=3), rankings)
    with pytest.raises(ValueError, match="no candidates to score: mine them with"):
        score(reranker, make_rankings({"query": QUERIES, "documents": [[], [], []]}, {"text": TEXTS}))


def test_the_cache_knows_what_was_read(tmp_path, rankings, reranker, count_pairs):
    first = score(reranker, rankings, windows="first", cache_dir=tmp_path)
    count_pairs.clear()
    best = score(reranker, rankings, windows="best", cache_dir=tmp_path)
    # The windows of the long document after the first one.
    assert sum(count_pairs) == sum(len(windows_of(query, TEXTS[3])) - 1 for query in QUERIES[:2])
    assert best[0][2] > first[0][2] or best[1][0] > first[1][0]
    assert score(reranker, rankings, windows="first", cache_dir=tmp_path) == first
    # Pairs of sentences are cut in another way.
    count_pairs.clear()
    pairs = Dataset.from_dict({"sentence1": [QUERIES[0]], "sentence2": [TEXTS[0]]})
    hf_dse.score(reranker, pairs, cache_dir=tmp_path, show_progress=False)
    assert count_pairs == [1]


def test_windows_of_a_language_model(language_model, raw):
    """The windows cover the document, and with query, prompt and template each fits into the limit."""
    reranker = load_reranker(language_model, device="cpu")
    words = [WORDS[number % 40] for number in range(600)]
    rankings = make_rankings({"query": [QUERIES[1]], "documents": [[0]]}, {"text": [" ".join(words)]})
    # Words and spaces are tokens.
    room = 512 - overhead(reranker) - TEMPLATE_MARGIN - len(reranker.tokenizer(QUERIES[1])["input_ids"])
    tokens = [token for word in words for token in (" ", word)][1:]
    starts = [*range(0, len(tokens) - room, room), len(tokens) - room]
    parts = ["".join(tokens[start : start + room]) for start in starts]
    assert len(parts) > 2
    prompt = reranker.prompts["web"]
    assert max(reranker.preprocess([(QUERIES[1], part)], prompt=prompt)["input_ids"].shape[1] for part in parts) < 512
    expected = max(raw(reranker, [(QUERIES[1], part) for part in parts]))
    assert_close(score(reranker, rankings, windows="best"), [[expected]])


def test_inverted_scores_are_named(warnings):
    """Documents without a label count as others, unknown scores do not count."""
    columns = {
        "query": ["a", "b"],
        "documents": [[0, 1, 2], [0, 1, 2]],
        "labels": [[1, None, None], [1, 0, 0]],
        "teacher_logits": [[-3.0, 2.0, -4.0], [1.0, 5.0, None]],
    }
    corpus = {"text": ["x", "y", "z"]}
    check_scores(make_rankings(columns, corpus), "my-teacher", are_raw=False)
    found = "my-teacher: over 2 queries, a relevant document scores higher than another candidate in only 25 %"
    assert len(warnings) == 1 and found in warnings[0]
    probabilities = make_rankings(columns | {"teacher_logits": [[0.9, 0.7, 0.1], [0.8, 0.2, None]]}, corpus)
    check_scores(probabilities, "x", are_raw=True)
    assert len(warnings) == 1
    check_scores(probabilities, "x", are_raw=False)
    assert "as after a sigmoid" in warnings[1]
    with pytest.raises(ValueError, match="all 6 scores are equal"):
        check_scores(make_rankings(columns | {"teacher_logits": [[1.0] * 3] * 2}, corpus), "x", are_raw=True)


def test_the_teacher_chooses_the_relevant_passage(reranker, raw):
    """The one that it ranks first has the label of its document, and its other passages an unknown one."""
    texts = [TEXTS[0], TEXTS[1], "word3 word30", "word20 word8"]
    corpus = {"text": texts, "passage_of": ["a", "a", "a", "b"]}
    columns = {"query": QUERIES[:2], "documents": [[0, 1, 2, 3], [3, 1, 0]]}
    columns["labels"] = [[2, None, None, 0], [0, 1, None]]
    scored = hf_dse.score(reranker, make_rankings(columns, corpus), show_progress=False).queries
    for row in range(2):
        rows = columns["documents"][row]
        logits = raw(reranker, [(QUERIES[row], texts[place]) for place in rows])
        np.testing.assert_allclose(scored["teacher_logits"][row], logits, rtol=0, atol=1e-4)
        label = max(label for label in columns["labels"][row] if label is not None)
        passages = [place for place, number in enumerate(rows) if number < 3]
        best = max(passages, key=lambda place: logits[place])
        expected = [label if place == best else math.nan if place in passages else 0 for place in range(len(rows))]
        np.testing.assert_array_equal(scored["labels"][row], expected)
    # Whole documents keep their labels.
    whole = hf_dse.score(reranker, make_rankings(columns, {"text": texts}), show_progress=False).queries
    np.testing.assert_array_equal(whole["labels"][0], [2, math.nan, math.nan, 0])
