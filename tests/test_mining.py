# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Hard negatives, the searches behind them, and queries made of documents."""

import json
import math
import re
import subprocess
import sys
from collections import Counter
from pathlib import Path

import numpy as np
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st
from transformers import BertForSequenceClassification

from hf_dse import bm25_search, encode, make_queries, make_rankings, mine_candidates, read_rankings
from hf_dse.data.pairs import DataArguments
from hf_dse.data.ranking_files import load_corpus, load_rankings
from hf_dse.data.rankings import Rankings, ranking_rows
from hf_dse.data.tables import read_columns
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.mining import embeddings
from hf_dse.mining.embeddings import encode_blocks
from hf_dse.mining.queries import split_sentences
from hf_dse_cli import main


pytest.importorskip("bm25s")
Stemmer = pytest.importorskip("Stemmer")

# No stop words, and equal to their stems.
WORDS = ["cat", "dog", "sun", "moon", "red", "wall"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def fold(text):
    return " ".join(text.lower().split())


def bm25_scores(query, corpus, k1=1.5, b=0.75):
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
def test_bm25_is_its_formula(queries, corpus, data):
    top_k = data.draw(st.integers(1, len(corpus) + 1))
    scores, positions = bm25_search(queries, corpus, top_k)
    assert scores.shape == positions.shape == (len(queries), min(top_k, len(corpus)))
    for query, values, rows in zip(queries, scores, positions, strict=True):
        expected = bm25_scores(query, corpus)
        np.testing.assert_allclose(values, expected[rows], rtol=1e-5)
        np.testing.assert_allclose(values, np.sort(expected)[::-1][: len(rows)], rtol=1e-5)
        # Ties are broken by position, also those for the last place.
        assert (np.diff(rows)[np.diff(values) == 0] > 0).all()
        for row in rows:
            assert {other for other in range(row) if corpus[other] == corpus[row]} <= set(rows.tolist())


def test_bm25_is_that_of_bm25s():
    import bm25s

    rng = np.random.default_rng(0)
    words = "the running foxes jumped over lazy dogs while nobody was watching their gardens".split()
    corpus = [" ".join(rng.choice(words, 12)) for _ in range(50)]
    queries = ["a fox jumps", "lazily watched garden", "the of and", "nothing here", ""]
    options = {"stopwords": "en", "stemmer": Stemmer.Stemmer("english"), "show_progress": False}
    index = bm25s.BM25()
    index.index(bm25s.tokenize(corpus, **options), show_progress=False)
    found = index.retrieve(bm25s.tokenize(queries, **options), k=10, show_progress=False)
    scores, positions = bm25_search(queries, corpus, 10)
    np.testing.assert_allclose(scores, found.scores, rtol=1e-6)
    assert (scores[0] > 0).all() and positions[2:].tolist() == [list(range(10))] * 3


def test_bm25_of_blocks_and_of_nothing(monkeypatch):
    corpus = ["cat dog", "sun", "cat"]
    whole = bm25_search(WORDS, corpus, 2)
    monkeypatch.setattr("hf_dse.mining.bm25.QUERIES_PER_BLOCK", 2)
    for one, other in zip(whole, bm25_search(WORDS, corpus, 2), strict=True):
        np.testing.assert_array_equal(one, other)
    assert bm25_search([], corpus, 2)[0].shape == (0, 2)
    assert bm25_search(["cat"], ["", "the"], 2)[1].tolist() == [[0, 1]]
    with pytest.raises(ValueError, match="corpus is empty"):
        bm25_search(["cat"], [], 2)
    with pytest.raises(ValueError, match="top_k=0: it has to be at least 1"):
        bm25_search(["cat"], corpus, 0)


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
    """What `mine_candidates` may take for each query, in order, one document at a time."""
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
            scores = bm25_scores(query, [texts[row] for row in distinct])
            searches.append({row: score for row, score in zip(distinct, scores, strict=True) if score > 0})
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


@pytest.fixture(scope="module")
def bert(save_bert, tmp_path_factory):
    return load_model(ModelArguments(str(save_bert(tmp_path_factory.mktemp("bert"))), device="cpu"))


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
def test_mining_is_the_slow_one(bert, rankings, search, first, size, more, margin, has_teacher, sampling):
    last = first + size + more
    mined = mine_candidates(
        rankings,
        *(bert if search != "words" else ()),
        bm25=search != "vectors",
        num_candidates=size,
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
        queries, documents = (encode(*bert, part, normalize=True, show_progress=False) for part in parts)
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
    report = {line.rsplit(maxsplit=1)[0].strip(): line.split()[-1] for line in infos[-1].splitlines()}
    assert report["documents"] == "6" and report["left out, empty"] == report["left out, same text as another"] == "1"
    assert report["found, but candidates already"] == "3" and report["mined"] == "3"
    assert report["queries with fewer than 7"] == "2" and report["with none"] == "0"
    # The other query with this text has a positive that this one does not know.
    assert mine_planes([[0], [3]], [[1], [1]]) == [[2], [2]]
    assert "found, but the same text as the query or a positive" in infos[-1]


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
    assert re.search(r"compared with the positives +2\n", infos[-1])
    assert re.search(rf"left out, above the margin +{2 - len(mined)}\n", infos[-1])
    assert mine_planes([[0]], [[None]], score=score) == [[2, 3]]
    assert mine_planes([[0]], [[1]], score=score, relative_margin=None) == [[2, 3]]
    # No more than needed is scored.
    asked.clear()
    assert mine_planes([[0]], [[None]], score=score, num_candidates=1) in ([[2]], [[3]])
    assert asked == [2]


def test_negatives_are_those_of_sentence_transformers(bert, tmp_path):
    """The same documents as their function finds, which has no BM25, no teacher's windows, and goes not on."""
    sentence_transformers = pytest.importorskip("sentence_transformers")
    for part in bert:
        part.save_pretrained(tmp_path)
    encoder = sentence_transformers.SentenceTransformer(str(tmp_path), device="cpu")
    corpus = [f"the {first} is {second}" for first in WORDS for second in WORDS]
    pairs = {"query": WORDS, "positive": [corpus[7 * row] for row in range(len(WORDS))]}
    options = {"relative_margin": 0.05, "range_max": 30}
    found = sentence_transformers.util.mine_hard_negatives(
        Dataset.from_dict(pairs), encoder, corpus=corpus, num_negatives=5, output_format="labeled-list",
        sampling_strategy="top", verbose=False, **options
    )  # fmt: skip
    expected = dict(zip(found["query"], found["positive"], strict=True))
    rankings = read_rankings(pairs, {"doc_id": list(map(str, range(len(corpus)))), "text": corpus})
    mined = mine_candidates(rankings, *bert, num_candidates=5, show_progress=False, **options)
    texts = mined.corpus["text"][:]
    ours = {
        query: [texts[row] for row in rows]
        for query, rows in zip(mined.queries["query"], mined.queries["documents"], strict=True)
    }
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
    monkeypatch.setattr("hf_dse.mining.candidates.QUERIES_PER_BLOCK", 4)
    assert mine() == first


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"bm25": False}, "nothing to search with: pass a model, bm25=True"),
        ({"num_candidates": 0}, "num_candidates=0: it has to be at least 1"),
        ({"range_min": -1}, "range_min=-1: it has to be at least 0"),
        ({"range_min": 3, "range_max": 9}, "range_min=3 and range_max=9 leave fewer than num_candidates=7"),
        ({"relative_margin": -0.1}, "relative_margin=-0.1: it has to be at least 0, or None"),
        ({"relative_margin": math.nan}, "relative_margin=nan"),
        ({"sampling": "best"}, "sampling='best': it has to be one of top, random"),
    ],
)
def test_wrong_options(options, message):
    with pytest.raises(ValueError, match=message):
        mine_planes([[0]], [[1]], **options)


def test_a_model_without_tokenizer_and_an_empty_corpus(bert):
    rankings = make_rankings({"query": ["a"], "documents": [[]]}, {"text": [" ", ""]})
    with pytest.raises(ValueError, match="needs its tokenizer"):
        mine_candidates(rankings, bert[0])
    with pytest.raises(ValueError, match="All 2 documents of the corpus are empty"):
        mine_candidates(rankings, *bert)


def test_prompts_of_the_model_count(bert, monkeypatch):
    monkeypatch.setattr(bert[0].config, "prompts", {"query": "of the ", "document": "a new "}, raising=False)
    corpus = [f"{first} {second}" for first in WORDS for second in WORDS]
    options = {"num_candidates": 20, "show_progress": False}

    def mine(queries, texts):
        rankings = make_rankings({"query": queries, "documents": [[]] * len(queries)}, {"text": texts})
        return mine_candidates(rankings, *bert, **options).queries["documents"][:]

    found = mine(WORDS[:2], corpus)
    monkeypatch.undo()
    assert found == mine([f"of the {word}" for word in WORDS[:2]], [f"a new {text}" for text in corpus])
    assert found != mine(WORDS[:2], corpus)


def test_a_prompt_of_queries_embeds_no_document_again(bert, tmp_path, monkeypatch):
    def embed(prompts, prompt_name):
        monkeypatch.setattr(bert[0].config, "prompts", prompts, raising=False)
        options = {"prompt_name": prompt_name, "cache_dir": tmp_path, "show_progress": False}
        return encode_blocks(*bert, ["the sun is old"], **options), len(list(tmp_path.iterdir()))

    plain, _ = embed({}, "document")
    again, files = embed({"query": "of the "}, "document")
    assert files == 1 and np.array_equal(plain, again)
    found, files = embed({"query": "of the "}, "query")
    assert files == 2 and np.allclose(found, encode(*bert, ["of the the sun is old"], normalize=True), atol=1e-6)
    _, files = embed({"query": "of the ", "document": "a new "}, "document")
    assert files == 3


def test_an_interrupted_run_continues(bert, tmp_path, monkeypatch):
    monkeypatch.setattr(embeddings, "TEXTS_PER_BLOCK", 2)
    corpus = {"text": [f"the {word} is old" for word in WORDS]}
    rankings = make_rankings({"query": ["old sun"], "documents": [[0]]}, corpus)
    options = {"num_candidates": 2, "batch_size": 2, "show_progress": False}
    expected = mine_candidates(rankings, *bert, **options).queries["documents"][:]
    model, passes = bert[0], []

    def count(*_):
        if len(passes) == 4:
            raise KeyboardInterrupt
        passes.append(1)

    # The query is a block, and the corpus three. Before each, one word tells the size of the vectors.
    hook = model.register_forward_pre_hook(count)
    try:
        with pytest.raises(KeyboardInterrupt):
            mine_candidates(rankings, *bert, cache_dir=tmp_path / "cache", **options)
        kept = {path: path.stat().st_mtime_ns for path in (tmp_path / "cache").iterdir()}
        assert len(kept) == 2
        passes.clear()
        assert (
            mine_candidates(rankings, *bert, cache_dir=tmp_path / "cache", **options).queries["documents"][:]
            == expected
        )
        assert len(passes) == 4
        assert all(path.stat().st_mtime_ns == time for path, time in kept.items())
        passes.clear()
        mine_candidates(rankings, *bert, cache_dir=tmp_path / "cache", **options)
        assert len(passes) == 2
    finally:
        hook.remove()
    # Another length and other texts have other embeddings.
    mine_candidates(rankings, *bert, cache_dir=tmp_path / "cache", max_length=4, **options)
    assert len(list((tmp_path / "cache").iterdir())) == 8
    next(iter(kept)).write_bytes(b"\x93NUMPY")
    with pytest.raises(ValueError, match="The file of embeddings .* is damaged .*: delete it and run again"):
        mine_candidates(rankings, *bert, cache_dir=tmp_path / "cache", **options)


@pytest.mark.parametrize(
    ("text", "sentences"),
    [
        ("Planes fly. Cats purr! Why? Yes", ["Planes fly.", "Cats purr!", "Why?", "Yes"]),
        ('(Nobody knows.) "Oh." Well', ["(Nobody knows.)", '"Oh."', "Well"]),
        ("Dr. Wu et al. found 3.5 mg, i.e. Less. It did.", ["Dr. Wu et al. found 3.5 mg, i.e. Less.", "It did."]),
        ("See Fig. 2. J. S. Bach did.", ["See Fig. 2.", "J. S. Bach did."]),
        ("it ends. but not here", ["it ends. but not here"]),
        ("A heading\n\nand a text.\nNext line.", ["A heading", "and a text.", "Next line."]),
        ("Das ist gut. Über alles.", ["Das ist gut.", "Über alles."]),
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


def test_titles_are_queries():
    rankings = make_queries(Dataset.from_dict(ARTICLES), "titles")
    assert rankings.queries["query"][:] == ["Lift", "Purring"]
    assert rankings.queries["query_id"][:] == ["titles-a", "titles-c"]
    assert rankings.positives() == [[0], [2]]
    assert rankings.corpus.column_names == ["doc_id", "text"]
    assert [text.split()[0] for text in rankings.corpus["text"]] == ["Wings", "Only", "Cats", "Nothing"]


def test_first_sentences_are_queries(infos):
    rankings = make_queries(Dataset.from_dict(ARTICLES), "first_sentences")
    assert rankings.queries["query"][0] == "Wings push air downwards all the time."
    assert rankings.corpus["text"][:2] == ["Lift Air pushes wings upwards then.", ARTICLES["text"][1]]
    assert rankings.positives() == [[0], [2]]
    assert "2 of 4 documents give queries of the kind 'first_sentences'" in infos[-1]


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


@pytest.mark.parametrize(
    ("columns", "kind", "message"),
    [
        (ARTICLES, "words", "kind='words': it has to be one of titles, first_sentences, sentences"),
        (
            {"doc_id": ["a"], "text": ["b"]},
            "titles",
            "have no titles, only doc_id, text: make queries of their sentences",
        ),
        ({"doc_id": ["a"], "text": ["One sentence."]}, "sentences", "None of the 1 documents has several sentences"),
    ],
)
def test_no_queries(columns, kind, message):
    with pytest.raises(ValueError, match=message):
        make_queries(Dataset.from_dict(columns), kind)


def write_beir(folder):
    """Ten documents, two of the same text, and a query for each of the first three."""
    texts = [f"the {word} sat on the old mat of the {word} house. The dog ran in the {word} house." for word in WORDS]
    texts += [texts[0].upper(), "a new house", "the cat sat", ""]
    rows = [
        {"_id": f"d{row}", "title": word, "text": text}
        for row, (word, text) in enumerate(zip([*WORDS, *WORDS], texts, strict=False))
    ]
    rows[6]["title"] = "CAT"
    folder.mkdir()
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    queries = [{"_id": f"q{row}", "text": f"{word} on a mat"} for row, word in enumerate(WORDS[:3])]
    (folder / "queries.jsonl").write_text("".join(json.dumps(row) + "\n" for row in queries))
    (folder / "qrels").mkdir()
    lines = ["query-id\tcorpus-id\tscore"] + [f"q{row}\td{row}\t1" for row in range(3)]
    (folder / "qrels" / "train.tsv").write_text("\n".join(lines) + "\n")
    return folder


def test_command(save_bert, tmp_path, capsys):
    data, output = write_beir(tmp_path / "data"), tmp_path / "out" / "mined.parquet"
    encoder = save_bert(tmp_path / "encoder")
    reranker = save_bert(tmp_path / "teacher", model_class=BertForSequenceClassification, num_labels=1)
    argv = ["mine", "--dataset_name", str(data), "--num_candidates", "2", "--output_file", str(output)]
    argv += ["--encoder_name_or_path", str(encoder), "--bm25", "--teacher_name_or_path", str(reranker)]
    argv += ["--relative_margin", "-1", "--device", "cpu"]
    assert main(argv) == 0
    printed = "".join(capsys.readouterr())
    assert f"3 queries with 6 mined candidates written to {output}" in printed
    assert re.search(r"found, but candidates already +3\n", printed)
    rankings = read_rankings(read_columns(output))
    assert rankings.queries["labels"][:] == [[1, 0, 0]] * 3 and rankings.has_scores
    documents = read_columns(output)["document_ids"]
    # d6 is d0 in upper case, and d9 has no text but a title.
    assert [rows[0] for rows in documents] == ["d0", "d1", "d2"] and "d6" not in documents[0]
    assert {path.suffix for path in (output.parent / ".hf-dse-mining").iterdir()} == {".npy", ".sqlite"}

    before = output.read_bytes()
    assert main(argv) == 0
    assert output.read_bytes() == before

    # No score is far enough below those of the positives.
    assert "Next: `hf-dse distill" in "".join(capsys.readouterr())
    assert main([*argv, "--relative_margin", "0.9999"]) == 0
    printed = "".join(capsys.readouterr())
    assert "3 queries with 0 mined candidates" in printed and "Nothing was mined" in printed
    assert "Next:" not in printed


def test_command_without_queries(tmp_path, capsys):
    data, output = write_beir(tmp_path / "data"), tmp_path / "mined.jsonl"
    argv = ["mine", "--dataset_name", str(data), "--bm25", "--output_file", str(output), "--num_candidates", "1"]
    for kind in ("titles", "first_sentences", "sentences"):
        assert main([*argv, "--queries_from", kind, "--num_queries", "4"]) == 0
        rows = read_columns(output)
        assert len(rows["query"]) == 4
        for query, documents in zip(rows["query"], rows["documents"], strict=True):
            assert not documents[0].startswith(query)
    # Beside their corpus, which still has the queries in its texts, those of the rows count.
    beside = load_rankings(DataArguments(dataset_name=str(data), train_file=str(output)))["train"]
    found = [[beside.corpus["text"][row] for row in documents] for documents in beside.queries["documents"]]
    assert found == rows["documents"] and len(beside.corpus) > 10
    # So do they in files that are written with the ids that they got.
    again = read_rankings(ranking_rows(beside), load_corpus(DataArguments(dataset_name=str(data))))
    assert ranking_rows(again) == ranking_rows(beside)
    assert main([*argv, "--num_queries", "4"]) == 2
    assert "num_queries=4: it is the number of queries to make" in capsys.readouterr().err
    for option in (["--split", "test"], ["--max_train_samples", "3"]):
        assert main([*argv, "--queries_from", "titles", *option]) == 2
        assert f"`{option[0]}` is an option of queries, and `--queries_from` makes them" in capsys.readouterr().err
    assert main(["mine", "--dataset_name", str(data), "--output_file", str(output)]) == 2
    assert "pass `--encoder_name_or_path`, `--bm25`, or both" in capsys.readouterr().err


def test_corpora_without_queries(tmp_path):
    folder = tmp_path / "texts"
    folder.mkdir()
    (folder / "one.txt").write_text("First.")
    (folder / "two.md").write_text("Second.")
    corpus = load_corpus(DataArguments(corpus_file=str(folder)))
    assert corpus["doc_id"][:] == ["one.txt", "two.md"] and corpus["text"][:] == ["First.", "Second."]
    (tmp_path / "lines.txt").write_text("First.\nSecond.\n")
    assert load_corpus(DataArguments(dataset_name=str(tmp_path / "lines.txt")))["text"][:] == ["First.", "Second."]
    (tmp_path / "table.jsonl").write_text('{"doc_id": "x", "title": "A", "text": "B."}\n')
    assert load_corpus(DataArguments(corpus_file=str(tmp_path / "table.jsonl")))["text"][:] == ["A B."]
    assert len(load_corpus(DataArguments(dataset_name=str(write_beir(tmp_path / "beir"))))) == 10
    (tmp_path / "arts.csv").write_text("key,title,content\n1,A,B\n")
    message = "Rename one to doc_id, _id, corpus-id, corpus_id or id and one to text, contents or body"
    with pytest.raises(ValueError, match=f"no column 'doc_id'; the columns are key, title, content. {message}"):
        load_corpus(DataArguments(corpus_file=str(tmp_path / "arts.csv")))
    with pytest.raises(ValueError, match="name them with `--corpus_file` or `--dataset_name`"):
        load_corpus(DataArguments())
    with pytest.raises(FileNotFoundError, match="missing.jsonl"):
        load_corpus(DataArguments(corpus_file=str(tmp_path / "missing.jsonl")))


@pytest.mark.slow
def test_the_scores_of_all_queries_are_never_in_memory_at_once():
    """Those of 20,000 queries for 20,000 documents have 1.6 GB."""
    program = Path(__file__).parents[1] / "studies" / "load.py"
    command = [sys.executable, str(program), "mine", "--size", "20000"]
    done = subprocess.run(command, capture_output=True, text=True, timeout=300)
    assert done.returncode == 0, done.stderr[-3000:]
    peak, before = map(float, re.search(r"peak memory ([\d.]+) GB, ([\d.]+) GB before", done.stdout).groups())
    assert 0 < peak - before < 0.6
