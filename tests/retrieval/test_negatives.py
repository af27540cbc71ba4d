# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Hard negatives: against slow code, known positives, margins, samples, prompts, kept vectors, and passages."""

import copy
import json
import math
import re

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_dse.retrieval.index
from hf_dse import DataArguments, load_corpus, load_rankings, make_rankings, mine, split_text
from hf_dse.data.passages import with_titles
from hf_dse.data.rankings import write_rankings
from hf_dse.retrieval.bm25 import Bm25Index, Words
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


pytest.importorskip("bm25s")

# No stop words, and equal to their stems.
WORDS = ["cat", "dog", "sun", "moon", "red", "wall"]
TEXT = st.lists(st.sampled_from(WORDS), min_size=1, max_size=5).map(" ".join)


def fold(text):
    return re.sub(r"\W", "", text.lower())


@st.composite
def rankings_of_words(draw):
    """Rankings whose documents and queries are often the same texts, written in other ways."""
    spell = st.sampled_from([str.lower, str.upper, str.title, lambda text: f" {text.replace(' ', ', ')}.\n"])
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


def mine_slowly(rankings, similarities, words, last, margin):
    """The documents that `mine` may take for each query, in order, one at a time."""
    texts = [fold(text) for text in rankings.corpus["text"]]
    queries = [fold(query) for query in rankings.queries["query"]]
    positives = rankings.positives()
    distinct = [row for row, text in enumerate(texts) if text and texts.index(text) == row]
    result = []
    for number, query in enumerate(queries):
        barred = {texts[row] for row in rankings.queries["documents"][number]}
        barred |= {texts[row] for other, rows in enumerate(positives) if queries[other] == query for row in rows}
        barred.add(query if query in texts else "")
        values = {} if similarities is None else {row: similarities[number][row] for row in distinct}
        if words:
            index = Bm25Index([rankings.corpus["text"][row] for row in distinct])
            scores = index.scores(index.words([rankings.queries["query"][number]])[0])
            # Beside the cosine 0.3 times the share of the best; alone only what shares a word.
            for row, score in zip(distinct, scores, strict=True):
                if similarities is not None:
                    values[row] += np.float32(0.3 * score / (max(scores) or 1))
                elif score > 0:
                    values[row] = score
        free = [row for row in values if texts[row] not in barred]
        pool = sorted(free, key=lambda row: (-values[row], row))[:last]
        own = [row for row in positives[number] if texts[row]]
        if similarities is not None and margin is not None and own:
            lowest = min(similarities[number][texts.index(texts[row])] for row in own)
            pool = [row for row in pool if similarities[number][row] <= lowest - margin * abs(lowest)]
        result.append(pool)
    return result


@settings(max_examples=60, deadline=None)
@given(
    rankings=rankings_of_words(),
    search=st.sampled_from(["vectors", "words", "both"]),
    size=st.integers(1, 4),
    more=st.integers(0, 4),
    margin=st.sampled_from([None, 0.0, 0.05, 0.5]),
    sampling=st.sampled_from(["top", "random"]),
)
def test_mining_is_the_slow_one(encoder, rankings, search, size, more, margin, sampling):
    last = size + more
    mined = mine(
        rankings,
        encoder if search != "words" else None,
        bm25=search != "vectors",
        num_negatives=size,
        range_max=last,
        relative_margin=margin,
        sampling=sampling,
        show_progress=False,
    )
    similarities = None
    if search != "words":
        parts = (rankings.queries["query"][:], rankings.corpus["text"][:])
        queries, documents = (encoder.encode(part, normalize_embeddings=True) for part in parts)
        similarities = queries @ documents.T
    pools = mine_slowly(rankings, similarities, search != "vectors", last, margin)
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


TEXTS = ["Planes fly by lift.", "planes FLY  by lift.", "Planes are loud.", "Wings lift planes.", "Cats purr."]


def mine_planes(columns, **options):
    options = {"bm25": True, "show_progress": False, **options}
    return mine(make_rankings(columns, {"text": TEXTS}), **options).queries


def test_known_positives_in_any_spelling_are_never_mined():
    columns = {"query": ["How do planes fly?"] * 2, "documents": [[0], [3, 4]], "labels": [[1], [1, None]]}
    # The other query with this text has a positive that this one does not know. Known scores stay.
    queries = mine_planes({**columns, "teacher_logits": [[2.5], [1.5, None]]})
    assert queries["documents"][:] == [[0, 2], [3, 4, 2]]
    np.testing.assert_array_equal(queries["labels"][1], [1, math.nan, 0])
    np.testing.assert_array_equal(queries["teacher_logits"][1], [1.5, math.nan, math.nan])


def test_near_copies_of_positives_are_never_mined(encoder):
    """Another full stop, quotation marks or a hyphen: they would be the hardest of all."""
    copies = ["planes fly by lift", "Planes fly, by lift!", "„Planes fly by lift“", "PLANES\nfly by-lift..."]
    texts = ["Planes fly by lift.", *copies, "Planes fly by lift + wings.", "...", "!?", "Cats purr."]
    columns = {"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}
    rankings = make_rankings(columns, {"text": texts})
    options = {"bm25": True, "relative_margin": None, "show_progress": False}
    assert sorted(mine(rankings, encoder, **options).queries["documents"][0]) == [0, 5, 6, 7, 8]


def test_the_threshold_says_what_is_a_positive(encoder):
    """What is below it stays a known candidate, and has no margin around it."""
    corpus = [f"{first} {second}" for first in WORDS for second in WORDS]
    query, documents = (encoder.encode(part, normalize_embeddings=True) for part in ("old sun", corpus))
    worst, *_, good = np.argsort(documents @ query).tolist()
    columns = {"query": ["old sun"], "documents": [[good, worst]], "labels": [[3, 1]]}
    graded = [make_rankings(columns, {"text": corpus}, relevance_threshold=value) for value in (None, 2)]
    best = make_rankings({**columns, "documents": [[good]], "labels": [[1]]}, {"text": corpus})
    options = {"num_negatives": 40, "show_progress": False, "relative_margin": 0.01}
    low, high, alone = (set(mine(part, encoder, **options).queries["documents"][0]) for part in (*graded, best))
    assert low == {good, worst} < high == alone | {worst}
    assert mine(graded[1], encoder, **options).relevance_threshold == 2


def test_queries_in_another_language_are_announced(warnings):
    """BM25 proposes nothing for them."""
    columns = {"query": ["Wie fliegen Flugzeuge?", "Самолёты", "planes"], "documents": [[0]] * 3, "labels": [[1]] * 3}
    queries = mine_planes(columns)
    assert queries["documents"][:2] == [[0], [0]] and len(queries["documents"][2]) > 1
    assert any("2 of 3 queries share no word with the texts but such as `the`" in text for text in warnings)


def test_random_samples_depend_on_the_seed_alone():
    columns = {"query": ["planes"], "documents": [[]]}
    samples = [mine_planes(columns, sampling="random", seed=seed)["documents"][0] for seed in (0, 0, 1, 2, 3)]
    assert samples[0] == samples[1] and len(set(map(tuple, samples))) > 1


def test_prompts_of_the_model_count(encoder, save_encoder):
    prompted = load_sentence_transformer(str(save_encoder({"query": "of the ", "document": "a new "})), device="cpu")
    corpus = [f"{first} {second}" for first in WORDS for second in WORDS]

    def search(model, queries, texts):
        rankings = make_rankings({"query": queries, "documents": [[]] * len(queries)}, {"text": texts})
        return mine(rankings, model, num_negatives=20, show_progress=False).queries["documents"][:]

    found = search(prompted, WORDS[:2], corpus)
    assert found == search(encoder, [f"of the {word}" for word in WORDS[:2]], [f"a new {text}" for text in corpus])
    assert found != search(encoder, WORDS[:2], corpus)


def test_a_margin_is_of_cosines_whatever_the_similarity(encoder):
    """Of a model that is made for dot products or distances too."""
    corpus = [f"{first} {second}" for first in WORDS for second in WORDS]
    rankings = make_rankings({"query": ["old sun"], "documents": [[3]], "labels": [[1]]}, {"text": corpus})
    options = {"relative_margin": 0.01, "num_negatives": 30, "show_progress": False}
    expected = mine(rankings, encoder, **options).queries["documents"][:]
    for name in ("dot", "euclidean"):
        other = copy.deepcopy(encoder)
        other.similarity_fn_name = name
        assert mine(rankings, other, **options).queries["documents"][:] == expected


def test_kept_vectors_give_the_same(encoder, tmp_path, monkeypatch):
    rankings = make_rankings({"query": ["old sun"], "documents": [[0]]}, {"text": [f"the {word}" for word in WORDS]})
    options = {"num_negatives": 2, "show_progress": False}
    expected = mine(rankings, encoder, **options).queries["documents"][:]
    assert mine(rankings, encoder, cache_dir=tmp_path, **options).queries["documents"][:] == expected
    # Those of queries are made anew.
    embed = hf_dse.retrieval.index.embed

    def embed_queries(model, texts, kind, **rest):
        assert kind == "query"
        return embed(model, texts, kind, **rest)

    monkeypatch.setattr(hf_dse.retrieval.index, "embed", embed_queries)
    assert mine(rankings, encoder, cache_dir=tmp_path, **options).queries["documents"][:] == expected


def test_data_and_models_by_name(save_encoder, tmp_path):
    rows = [{"query": "old sun", "documents": ["the cat", "the sun"], "labels": [1, 0]}]
    (tmp_path / "train.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (tmp_path / "corpus.txt").write_text("\n".join(f"The {word} is in the old house. It is red." for word in WORDS))
    name = save_encoder()
    data = DataArguments(train_file=str(tmp_path / "train.jsonl"), corpus_file=str(tmp_path / "corpus.txt"))
    options = {"num_negatives": 2, "relative_margin": -1, "show_progress": False}
    mined = mine(data, name, **options)
    again = mine(load_rankings(data)["train"], load_sentence_transformer(str(name), device="cpu"), **options)
    assert mined.queries[:] == again.queries[:] and len(mined.queries["documents"][0]) == 4
    # A path alone, and queries that are made of it.
    assert len(mine(tmp_path / "train.jsonl", bm25=True, **options)) == 1
    made = mine(tmp_path / "corpus.txt", bm25=True, queries_from="first_sentences", num_queries=3, **options)
    corpus = load_corpus(str(tmp_path / "corpus.txt"))
    same = mine(corpus, bm25=True, queries_from="first_sentences", num_queries=3, **options)
    assert made.queries[:] == same.queries[:] and len(made) == 3


# Passages

DOCUMENTS = {
    "a.md": "# the sun\n\nthe sun is red. a cat sat in the sun. the old sun is a red house. a dog ran.",
    "b.md": "the moon is old. a cat sat on the wall. the moon is a new house of the sun.",
    "c.md": "a wall.",
    "d.md": " ",
}


def mine_passages(model, columns, **options):
    rankings = make_rankings(columns, {"doc_id": list(DOCUMENTS), "text": list(DOCUMENTS.values())})
    return mine(rankings, model, chunk_size=12, relative_margin=None, show_progress=False, **options)


def parts_of(mined, number):
    """The ids of the candidates of a query with their labels."""
    names, columns = mined.corpus["doc_id"][:], mined.queries[number]
    return [(names[row], label) for row, label in zip(columns["documents"], columns["labels"], strict=True)]


def test_documents_are_split_into_passages(encoder):
    """Each is read after the title of its document, with the id of it and a number."""
    mined = mine_passages(encoder, {"query": ["old sun"], "documents": [[2]], "labels": [[1]]})
    expected = {"doc_id": [], "text": [], "passage_of": []}
    for name, text in DOCUMENTS.items():
        parts = split_text(text, encoder.tokenizer, 12) if text.strip() else []
        expected["doc_id"] += [f"{name}#{number}" for number in range(1, len(parts) + 1)]
        expected["text"] += with_titles(text, parts, 12)
        expected["passage_of"] += [name] * len(parts)
    for name, values in expected.items():
        assert mined.corpus[name][:] == values
    assert mined.chunk_size == 12 and mined.has_passages and mined.document_ids == expected["passage_of"]
    assert "the sun\n" in expected["text"][1] and expected["passage_of"].count("a.md") > 2


def test_a_relevant_document_stands_with_its_best_passages(encoder):
    """The first has the label, the next three none; of others the best one stands."""
    columns = {"query": ["old sun", "red moon"], "documents": [[0, 1], [1, 3]], "labels": [[1, 0], [2, 1]]}
    mined = mine_passages(encoder, columns)
    corpus, groups = mined.corpus["text"][:], mined.document_ids
    cosines = encoder.encode(columns["query"], normalize_embeddings=True)
    cosines = cosines @ encoder.encode(corpus, normalize_embeddings=True).T
    scores = cosines + Words(corpus).scores(columns["query"], 0.15)(slice(0, 2))
    for number in range(2):
        ranked = [mined.corpus["doc_id"][row] for row in np.argsort(-scores[number], kind="stable")]
        first, second = ([name for name in ranked if name.startswith(letter)] for letter in "ab")
        found = parts_of(mined, number)
        known = [(first, 1.0, 4), (second, 0.0, 1)] if number == 0 else [(second, 2.0, 4)]
        expected = [
            pair for names, label, size in known for pair in zip(names[:size], [label, *[None] * 3], strict=False)
        ]
        # A blank document has no passages.
        assert [(name, None if math.isnan(label) else label) for name, label in found[: len(expected)]] == expected
        # No passage of a judged document is mined.
        judged = {0: {"a.md", "b.md"}, 1: {"b.md", "d.md"}}[number]
        rows = mined.queries["documents"][number][len(expected) :]
        assert rows and not judged & {groups[row] for row in rows}
        assert set(mined.queries["labels"][number][len(expected) :]) == {0.0}


def test_passages_of_the_positives_of_an_equal_query_are_not_mined(encoder):
    columns = {"query": ["old sun", "Old  SUN"], "documents": [[0], [1]], "labels": [[1], [1]]}
    mined = mine_passages(encoder, columns, bm25=True)
    for number in range(2):
        rows = mined.queries["documents"][number]
        assert {mined.document_ids[row] for row in rows} == {["a.md", "b.md"][number], "c.md"}


def test_passages_of_a_folder(encoder, tmp_path):
    """A folder of files is split by itself, into passages of 128 tokens; whole texts are asked for."""
    for name, text in DOCUMENTS.items():
        (tmp_path / "docs" / name).parent.mkdir(exist_ok=True)
        (tmp_path / "docs" / name).write_text(text * 9)
    (tmp_path / "train.jsonl").write_text('{"query": "old sun", "document_ids": ["a.md"], "labels": [1]}\n')
    data = DataArguments(train_file=str(tmp_path / "train.jsonl"), corpus_file=str(tmp_path / "docs"))
    mined = mine(data, encoder, show_progress=False)
    assert mined.chunk_size == 128 and "a.md#2" in mined.corpus["doc_id"][:]
    whole = mine(data, encoder, chunk_size=0, show_progress=False)
    assert whole.corpus["doc_id"][:] == list(DOCUMENTS) and not whole.has_passages
    with pytest.raises(ValueError, match="chunk_size=128: passages are counted in the tokens of a model. Pass one"):
        mine(data, bm25=True, show_progress=False)
    assert mine(data, bm25=True, chunk_size=0, show_progress=False).queries["documents"][0][0] == 0
    # Queries are made of passages, and written files say what they are.
    options = {"chunk_size": 50, "num_queries": 4, "show_progress": False}
    made = mine(tmp_path / "docs", encoder, queries_from="headings", **options)
    assert made.has_passages and made.chunk_size == 50 and all("#" in name for name in made.queries["query_id"][:])
    write_rankings(made, tmp_path / "made.jsonl")
    read = load_rankings(str(tmp_path / "made.jsonl"))["train"]
    assert (read.chunk_size, read.has_passages) == (50, True)
    for rankings in (made, read):
        names = rankings.document_ids
        assert all(names[rows[0]] not in {names[row] for row in rows[1:]} for rows in rankings.queries["documents"])


def test_what_cannot_be_mined_is_named(encoder):
    rankings = make_rankings({"query": ["old sun"], "documents": [[0]]}, {"text": TEXTS})
    made = {"queries_from": "headings"}
    for message, passed, options in (
        ("There is nothing to search with: pass a model, bm25=True", (rankings,), {}),
        ("max_length=8 is what a model reads, and there is none", (rankings,), {"bm25": True, "max_length": 8}),
        ("num_queries=3: add `--queries_from headings", (rankings, encoder), {"num_queries": 3}),
        ("split=test is for queries that there are", (rankings.corpus, encoder), {**made, "split": "test"}),
        ("max_train_samples=1 is for", (DataArguments(corpus_file="corpus", max_train_samples=1), encoder), made),
        ("num_negatives=15: it has to be from 1 to range_max=9", (rankings, encoder), {"range_max": 9}),
    ):
        with pytest.raises(ValueError, match=message):
            mine(*passed, **options)
