# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Hard negatives: against slow code and sentence-transformers, known positives, margins, and interrupted runs."""

import math
from collections import Counter

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers.util import mine_hard_negatives

from hf_dse import make_rankings, mine_candidates
from hf_dse.data.ranking_rows import read_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.retrieval import kept_vectors
from hf_dse.retrieval.bm25 import bm25_search
from hf_dse.retrieval.kept_vectors import embed_once
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


pytest.importorskip("bm25s")

# No stop words, and equal to their stems.
WORDS = ["cat", "dog", "sun", "moon", "red", "wall"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def fold(text):
    return " ".join(text.lower().split())


@st.composite
def rankings_of_words(draw):
    """Rankings whose documents and queries are often the same texts, written in other ways."""
    spell = st.sampled_from([str.lower, str.upper, str.title, lambda text: f" {text.replace(' ', '  ')}\n"])
    corpus = draw(
        st.lists(st.one_of(st.builds(lambda f, t: f(t), spell, TEXT), st.just(" ")), min_size=1, max_size=10)
    )
    corpus.append("cat cat cat")
    queries = draw(
        st.lists(st.builds(lambda f, t: f(t), spell, st.sampled_from(["cat", "dog sun"])), min_size=1, max_size=3)
    )
    columns = {"query": queries, "documents": [], "labels": []}
    for _ in queries:
        rows = draw(st.lists(st.integers(0, len(corpus) - 1), unique=True, max_size=3))
        columns["documents"].append(rows)
        columns["labels"].append(
            draw(st.lists(st.sampled_from([1, 2, 0, None]), min_size=len(rows), max_size=len(rows)))
        )
    return make_rankings(columns, {"text": corpus})


def logit(query, text):
    """A score of any sign that only depends on the texts."""
    return (sum(map(ord, fold(query) + fold(text))) * 7919 % 101 - 50) / 10


def teacher(rankings):
    texts = rankings.corpus["text"][:]
    queries = zip(rankings.queries["query"], rankings.queries["documents"], strict=True)
    logits = [[logit(query, texts[row]) for row in rows] for query, rows in queries]
    return Rankings(rankings.queries.add_column("teacher_logits", logits), rankings.corpus)


def mine_slowly(rankings, similarities, words, first, last, margin, has_teacher):
    """The documents that `mine_candidates` may take for each query, in order, one at a time."""
    texts = [fold(text) for text in rankings.corpus["text"]]
    queries = [fold(query) for query in rankings.queries["query"]]
    positives = rankings.positives()
    distinct = [row for row, text in enumerate(texts) if text and texts.index(text) == row]
    result = []
    for number, query in enumerate(queries):
        barred = {texts[row] for row in rankings.queries["documents"][number]}
        barred |= {texts[row] for other, rows in enumerate(positives) if queries[other] == query for row in rows}
        barred.add(query if query in texts else "")
        searches = [] if similarities is None else [dict(zip(range(len(texts)), similarities[number], strict=True))]
        if words:
            scores, rows = bm25_search([query], [texts[row] for row in distinct], len(distinct))
            searches.append({distinct[row]: s for row, s in zip(rows[0], scores[0], strict=True) if s > 0})
        fused = Counter()
        for values in searches:
            ranked = sorted(set(values) & set(distinct), key=lambda row: (-values[row], row))
            # A search finds no more than it needs.
            free = [row for row in ranked[: last + len(barred)] if texts[row] not in barred]
            fused.update({row: 1 / (60 + rank) for rank, row in enumerate(free, start=1)})
        pool = sorted(fused, key=lambda row: (-fused[row], row))[first:last]
        values, own = None, positives[number]
        if has_teacher:
            values = [logit(query, text) for text in texts]
        elif similarities is not None:
            values, own = similarities[number], [row for row in own if texts[row]]
        if values is not None and margin is not None and own:
            lowest = min(values[row] for row in own)
            pool = [row for row in pool if values[row] <= lowest - margin * abs(lowest)]
        result.append(pool)
    return result


@settings(max_examples=60, deadline=None)
@given(
    rankings=rankings_of_words(),
    search=st.sampled_from(["vectors", "words", "both"]),
    first=st.integers(0, 2),
    size=st.integers(1, 4),
    more=st.integers(0, 4),
    margin=st.sampled_from([None, 0.0, 0.05, 0.5]),
    has_teacher=st.booleans(),
    sampling=st.sampled_from(["top", "random"]),
)
def test_mining_is_the_slow_one(encoder, rankings, search, first, size, more, margin, has_teacher, sampling):
    last = first + size + more
    mined = mine_candidates(
        rankings,
        encoder if search != "words" else None,
        bm25=search != "vectors",
        num_negatives=size,
        range_min=first,
        range_max=last,
        relative_margin=margin,
        score=teacher if has_teacher else None,
        sampling=sampling,
        show_progress=False,
    )
    similarities = None
    if search != "words":
        parts = (rankings.queries["query"][:], rankings.corpus["text"][:])
        queries, documents = (encoder.encode(part, normalize_embeddings=True) for part in parts)
        similarities = queries @ documents.T
    pools = mine_slowly(rankings, similarities, search != "vectors", first, last, margin, has_teacher)
    assert mined.corpus is rankings.corpus
    for name in ("query_id", "query"):
        assert mined.queries[name][:] == rankings.queries[name][:]
    for number, pool in enumerate(pools):
        known = rankings.queries["documents"][number]
        rows, labels = mined.queries["documents"][number], mined.queries["labels"][number]
        assert rows[: len(known)] == known
        np.testing.assert_array_equal(labels, rankings.queries["labels"][number] + [0.0] * (len(rows) - len(known)))
        added = rows[len(known) :]
        if sampling == "top":
            assert added == pool[:size]
        else:
            assert len(added) == len(set(added)) == min(size, len(pool)) and set(added) <= set(pool)
    assert mined.has_scores == has_teacher
    if has_teacher:
        again = teacher(Rankings(mined.queries.remove_columns("teacher_logits"), mined.corpus))
        assert mined.queries["teacher_logits"][:] == again.queries["teacher_logits"][:]


PLANES = {
    "text": [
        "Planes fly by lift.",
        "planes FLY  by lift.",
        "Planes are loud.",
        "Wings lift planes.",
        "Cats purr.",
        " ",
    ]
}


def mine_planes(documents, labels, **options):
    columns = {"query": ["How do planes fly?"] * len(documents), "documents": documents, "labels": labels}
    options = {"bm25": True, "show_progress": False, **options}
    mined = mine_candidates(make_rankings(columns, PLANES), **options)
    added = zip(documents, mined.queries["documents"], strict=True)
    return [sorted(rows[len(known) :]) for known, rows in added]


def test_known_positives_in_any_spelling_are_never_mined(infos):
    assert mine_planes([[0], [1, 2]], [[1], [1, None]]) == [[2, 3], [3]]
    assert "Mined 3 negatives for 2 queries in 4 distinct texts of 6 documents." in infos[-1]
    assert "2 queries have fewer than 15 negatives, 0 have none." in infos[-1]
    # The other query with this text has a positive that this one does not know.
    assert mine_planes([[0], [3]], [[1], [1]]) == [[2], [2]]


@pytest.mark.parametrize(("shift", "mined"), [(0, [3]), (-20, [2, 3])])
def test_the_margin_of_positive_and_negative_scores(shift, mined, infos):
    """At 10, a document at 9.6 is within the margin of 5 %; at -10, documents below -10.5 are not."""
    asked = []

    def score(rankings):
        asked.append(sum(map(len, rankings.queries["documents"])))
        of_row = {0: 10.0, 2: 9.6 if shift == 0 else 9.4, 3: 9.0}
        logits = [[of_row[row] + shift for row in rows] for rows in rankings.queries["documents"]]
        return Rankings(rankings.queries.add_column("teacher_logits", logits), rankings.corpus)

    assert mine_planes([[0]], [[1]], score=score) == [mined]
    assert f"{2 - len(mined)} of 2 that were compared with the positives are above the margin" in infos[-1]
    assert mine_planes([[0]], [[None]], score=score) == [[2, 3]]
    assert mine_planes([[0]], [[1]], score=score, relative_margin=None) == [[2, 3]]
    # No more than needed is scored.
    asked.clear()
    assert mine_planes([[0]], [[None]], score=score, num_negatives=1) in ([[2]], [[3]])
    assert asked == [2]


def test_negatives_are_those_of_sentence_transformers(encoder):
    """The same documents, where there is nothing that `mine_hard_negatives` does not do."""
    corpus = [f"the {first} is {second}" for first in WORDS for second in WORDS]
    pairs = {"query": WORDS, "positive": [corpus[7 * row] for row in range(len(WORDS))]}
    options = {"relative_margin": 0.05, "range_max": 30, "num_negatives": 5}
    found = mine_hard_negatives(
        Dataset.from_dict(pairs), encoder, corpus=corpus, output_format="labeled-list", verbose=False, **options
    )
    expected = dict(zip(found["query"], found["positive"], strict=True))
    rankings = read_rankings(pairs, {"doc_id": list(map(str, range(len(corpus)))), "text": corpus})
    mined = mine_candidates(rankings, encoder, show_progress=False, **options)
    queries = zip(mined.queries["query"], mined.queries["documents"], strict=True)
    ours = {query: [corpus[row] for row in rows] for query, rows in queries}
    assert expected and {query: ours[query] for query in expected} == expected
    assert all(len(ours[query]) == 1 for query in ours.keys() - expected.keys())


def test_scores_of_known_candidates_stay():
    columns = {"query": ["planes"], "documents": [[0, 4]], "labels": [[1, None]], "teacher_logits": [[2.5, None]]}
    rankings = mine_candidates(make_rankings(columns, PLANES), bm25=True, show_progress=False)
    np.testing.assert_array_equal(rankings.queries["teacher_logits"][0], [2.5] + [math.nan] * 3)
    np.testing.assert_array_equal(rankings.queries["labels"][0], [1, math.nan, 0, 0])


def test_random_samples_depend_on_the_seed_only(monkeypatch):
    corpus = {"text": [f"{word} {number}{number}" for word in WORDS for number in range(20)]}
    rankings = make_rankings({"query": WORDS, "documents": [[]] * len(WORDS)}, corpus)

    def mine(**options):
        options = {"bm25": True, "sampling": "random", "range_max": 20, "show_progress": False, **options}
        return mine_candidates(rankings, **options).queries["documents"][:]

    first = mine()
    assert mine() == first and mine(seed=1) != first and mine(sampling="top") != first
    monkeypatch.setattr("hf_dse.retrieval.mining.QUERIES_PER_BLOCK", 4)
    assert mine() == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bm25": False}, "nothing to search with: pass an encoder, bm25=True"),
        ({"range_min": -1}, "range_min=-1 and range_max=100 leave fewer than"),
        ({"range_min": 3, "range_max": 9}, "range_min=3 and range_max=9 leave fewer than num_negatives=15"),
        ({"sampling": "best"}, "sampling='best': it has to be one of top, random"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        mine_planes([[0]], [[1]], **options)


def test_a_blank_corpus(encoder):
    rankings = make_rankings({"query": ["a"], "documents": [[]]}, {"text": [" ", ""]})
    with pytest.raises(ValueError, match="All 2 documents of the corpus are blank"):
        mine_candidates(rankings, encoder)


def test_prompts_of_the_model_count(encoder, save_encoder):
    prompted = load_sentence_transformer(str(save_encoder({"query": "of the ", "document": "a new "})), device="cpu")
    corpus = [f"{first} {second}" for first in WORDS for second in WORDS]

    def mine(model, queries, texts):
        rankings = make_rankings({"query": queries, "documents": [[]] * len(queries)}, {"text": texts})
        return mine_candidates(rankings, model, num_negatives=20, show_progress=False).queries["documents"][:]

    found = mine(prompted, WORDS[:2], corpus)
    assert found == mine(encoder, [f"of the {word}" for word in WORDS[:2]], [f"a new {text}" for text in corpus])
    assert found != mine(encoder, WORDS[:2], corpus)


def test_an_interrupted_run_continues(encoder, save_encoder, tmp_path, monkeypatch):
    monkeypatch.setattr(kept_vectors, "TEXTS_PER_COMMIT", 2)
    corpus = {"text": [f"the {word} is old" for word in WORDS]}
    rankings = make_rankings({"query": ["old sun"], "documents": [[0]]}, corpus)
    options = {"num_negatives": 2, "show_progress": False}
    expected = mine_candidates(rankings, encoder, **options).queries["documents"][:]
    embedded, embed = [], kept_vectors.embed_silently

    def count(model, texts, *args, **kwargs):
        if sum(embedded) == 3:
            raise KeyboardInterrupt
        embedded.append(len(texts))
        return embed(model, texts, *args, **kwargs)

    monkeypatch.setattr(kept_vectors, "embed_silently", count)
    with pytest.raises(KeyboardInterrupt):
        mine_candidates(rankings, encoder, cache_dir=tmp_path / "cache", **options)
    embedded.clear()
    for number_of_texts in (4, 0):
        mined = mine_candidates(rankings, encoder, cache_dir=tmp_path / "cache", **options)
        assert mined.queries["documents"][:] == expected and sum(embedded) == number_of_texts
        embedded.clear()
    # Another training into the same folder has other vectors.
    other = load_sentence_transformer(str(save_encoder(hidden_act="relu")), device="cpu")
    entries, number_of_texts = embed_once(other, ["the sun is old"], tmp_path / "cache", show_progress=False)
    assert number_of_texts == 1
    np.testing.assert_allclose(entries[0][1], other.encode(["the sun is old"]), atol=1e-6)
