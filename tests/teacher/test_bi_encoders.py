# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: cosines with BM25 against slow code."""

from dataclasses import replace

import numpy as np
import pytest
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.modules import Dense

import hf_dse.retrieval.index
from hf_dse import Index, make_rankings, mine
from hf_dse.data.passages import split_text
from hf_dse.data.rankings import ranking_rows, read_rankings
from hf_dse.retrieval.bm25 import Words


# The last two are not candidates, and the last query shares no word with the corpus.
TEXTS = ["red cat moon", "wall wall dog", "moon", "cat", "sun red wall", "dog moon sun", "red red red cat", "wall"]
QUERIES = ["red cat", "moon wall", "tree"]
CANDIDATES = [[0, 3, 4], [2, 5], [1, 0, 4]]
PROMPTS = {"query": "find the: ", "document": "a house "}


@pytest.fixture
def make_encoder(save_bert, tmp_path):
    def make(dense=False, **settings):
        model = SentenceTransformer(str(save_bert(tmp_path / "encoder")), device="cpu")
        if dense:
            model.append(Dense(16, 8))
        model.prompts.update(PROMPTS)
        for name, value in settings.items():
            setattr(model, name, value)
        return model

    return make


@pytest.fixture
def rankings():
    return make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": TEXTS})


def by_hand(model, weight, parts=None, texts=TEXTS):
    """One candidate after the other; the best of the parts of a document."""
    scores = []
    for query, documents in zip(QUERIES, CANDIDATES, strict=True):
        first, words = model.encode_query(query), Words(texts).scores([query], weight)(slice(0, 1))[0]
        scores.append([])
        for row in documents:
            vectors = [model.encode_document(part) for part in (parts[row] if parts else [texts[row]])]
            cosines = [first @ second / np.linalg.norm(first) / np.linalg.norm(second) for second in vectors]
            scores[-1].append(max(cosines) + words[row])
    return scores


def assert_close(found, expected):
    assert [len(row) for row in found] == [len(row) for row in expected]
    np.testing.assert_allclose(np.concatenate(found), np.concatenate(expected), rtol=0, atol=1e-5)


def score(encoder, rankings, **options):
    return hf_dse.score(encoder, rankings, show_progress=False, **options).queries["teacher_logits"][:]


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_scores_are_those_of_one_candidate_at_a_time(make_encoder, rankings, weight):
    encoder = make_encoder(dense=True, default_prompt_name="query")
    scored = hf_dse.score(encoder, rankings, bm25_weight=weight, show_progress=False)
    found = scored.queries["teacher_logits"][:]
    assert_close(found, by_hand(encoder, weight))
    assert scored.corpus is rankings.corpus
    # Earlier scores are replaced.
    assert_close(score(encoder, scored), by_hand(encoder, 0.0))


@pytest.mark.parametrize("weight", [0.0, 0.3])
def test_the_best_window_of_a_document_counts(make_encoder, weight):
    """The score of a document is the best of its parts, each scored as a document; BM25 is that of all of it."""
    encoder = make_encoder(max_seq_length=24)
    texts = [f"{text} " * 8 for text in TEXTS]
    rankings = make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": texts})
    room = 24 - len(encoder.tokenizer(PROMPTS["document"])["input_ids"])
    parts = [split_text(text, encoder.tokenizer, room) for text in texts]
    assert max(map(len, parts)) > 1
    found = score(encoder, rankings, bm25_weight=weight, windows="best")
    assert_close(found, by_hand(encoder, weight, parts, texts))
    assert not np.allclose(np.concatenate(found), np.concatenate(score(encoder, rankings, bm25_weight=weight)))


def test_windows_of_documents_that_a_model_reads_whole(make_encoder, rankings):
    """Also where a first line would be their title, and they fill all that the model reads."""
    encoder = make_encoder(max_seq_length=12)
    for windows in ("first", "best"):
        short = make_rankings({"query": QUERIES, "documents": [[0, 1]] * 3}, {"text": ["wall", "moon cat"]})
        found = score(encoder, short, windows=windows)
        assert_close(found, score(encoder, short))


def test_documents_that_are_read_whole_or_blank(make_encoder):
    encoder = make_encoder()
    rankings = make_rankings({"query": QUERIES, "documents": [[0, 1]] * 3}, {"text": ["red cat moon", " "]})
    first, best = (score(encoder, rankings, windows=windows) for windows in ("first", "best"))
    assert_close(first, best)
    assert [row[1] for row in first] == [0.0, 0.0, 0.0]


def test_the_length_of_a_loaded_encoder(make_encoder, rankings):
    """That of the caller's model stays."""
    encoder = make_encoder()
    found = hf_dse.score(encoder, rankings, max_length=8, show_progress=False).queries["teacher_logits"][:]
    assert encoder.max_seq_length == 64
    encoder.max_seq_length = 8
    assert_close(found, by_hand(encoder, 0.0))


def test_scores_are_cosines_whatever_the_similarity(make_encoder, rankings):
    """Of a model that is made for dot products or distances too."""
    for name in ("dot", "euclidean"):
        encoder = make_encoder(similarity_fn_name=name)
        assert_close(score(encoder, rankings, bm25_weight=0.3), by_hand(encoder, 0.3))


def test_each_document_is_embedded_once(make_encoder, rankings, tmp_path, monkeypatch):
    encoder, embedded = make_encoder(), []
    embed = hf_dse.retrieval.index.embed
    monkeypatch.setattr(
        hf_dse.retrieval.index,
        "embed",
        lambda model, texts, *rest, **kw: embedded.extend(texts) or embed(model, texts, *rest, **kw),
    )
    options = {"bm25_weight": 0.3, "cache_dir": tmp_path / "cache"}
    first = score(encoder, rankings, **options)
    assert sorted(embedded) == sorted([*TEXTS[:6], *QUERIES])
    # Another weight needs no other vectors of documents.
    embedded.clear()
    assert score(encoder, rankings, **options) == first
    assert score(encoder, rankings, cache_dir=tmp_path / "cache") != first
    assert not {*TEXTS} & set(embedded)


def test_passages_beside_their_documents_have_the_words_of_the_search(make_encoder):
    """A file of mined passages beside a corpus of whole documents: BM25 is that of all passages and documents."""
    encoder = make_encoder(max_seq_length=48)
    texts = [f"red wall\n\n{'moon cat. ' * 6}", f"sun dog\n\n{'cat sun wall. ' * 6}", "red moon dog"]
    judged = make_rankings({"query": ["cat wall"], "documents": [[1]], "labels": [[1]]}, {"text": texts})
    options = {"bm25": True, "num_negatives": 4, "relative_margin": None, "show_progress": False}
    mined = mine(replace(judged, chunk_size=8), encoder, **options)
    mixed = read_rankings(ranking_rows(mined), judged.corpus)
    assert mixed.has_passages and len(mixed.corpus) > len(mined.corpus.select(mined.queries["documents"][0]))
    (found,) = score(encoder, mixed, bm25_weight=0.3)
    index = Index(encoder, texts, chunk_size=8, show_progress=False)
    scores = index.vectors @ index.encode_queries(["cat wall"])[0]
    scores = scores + index.words.scores(["cat wall"], 0.3)(slice(0, 1))[0]
    counts = np.bincount(index.text_of)
    names = [f"{document}#{number + 1}" for document in range(3) for number in range(counts[document])]
    wanted = [scores[names.index(mixed.corpus["doc_id"][row])] for row in mixed.queries["documents"][0]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    # The same before the candidates are written, and as the measure of a search has it.
    (found,) = score(encoder, mined, bm25_weight=0.3)
    places = mined.corpus["doc_id"]
    wanted = [scores[names.index(places[row])] for row in mined.queries["documents"][0]]
    np.testing.assert_allclose(found, wanted, atol=1e-5)
    run = Index.of(encoder, mined, show_progress=False).run(mined, bm25_weight=0.3)
    expected = index.search(["cat wall"], bm25_weight=0.3)[0]
    np.testing.assert_allclose(
        list(run[mined.queries["query_id"][0]].values()), [hit["score"] for hit in expected], atol=1e-5
    )


def test_blank_documents_do_not_count(make_encoder):
    """Neither in the search, whose score this is."""
    encoder = make_encoder()
    for texts in (TEXTS, [*TEXTS, *[" "] * 20]):
        rankings = make_rankings({"query": QUERIES, "documents": CANDIDATES}, {"text": texts})
        assert_close(score(encoder, rankings, bm25_weight=0.3), by_hand(encoder, 0.3))
