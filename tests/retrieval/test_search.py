# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The exact search: against slow code, in blocks, by groups, with added scores, and with a reranker."""

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from sentence_transformers import CrossEncoder
from transformers import BertForSequenceClassification

import hf_dse.retrieval.search
from hf_dse import search
from hf_dse.retrieval.bm25 import bm25_scores
from hf_dse.retrieval.search import nearest


TEXTS = ["the cat sat", "a dog ran", "the old house", "a new mat", "the cat ran on a mat"]
QUERIES = ["an old cat", "the house"]
QUIET = {"show_progress": False}


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.tuples(st.integers(0, 5), st.integers(1, 30)),
    top_k=st.integers(1, 12),
    cosine=st.booleans(),
    has_groups=st.booleans(),
    has_added=st.booleans(),
    block=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_it_is_the_slow_search(sizes, top_k, cosine, has_groups, has_added, block, seed):
    rng = np.random.default_rng(seed)
    # Few values, so that there are ties.
    queries, documents = (rng.integers(1, 4, (size, 3)).astype(np.float32) for size in sizes)
    added = rng.integers(0, 2, sizes).astype(np.float32)
    groups = rng.choice(list("abcd"), sizes[1]).tolist() if has_groups else None
    asked = []

    def added_scores(rows):
        asked.append(rows.stop - rows.start)
        return added[rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf_dse.retrieval.search, "BLOCK_ELEMENTS", block)
        options = {"cosine": cosine, "groups": groups, "added_scores": added_scores if has_added else None}
        scores, positions = nearest(queries, documents, top_k, **options)
    assert scores.shape == positions.shape == (sizes[0], min(top_k, len(set(groups)) if groups else sizes[1]))
    assert (scores.dtype, positions.dtype) == (np.float32, np.int64)
    assert sum(asked) == (sizes[0] if has_added else 0)
    assert all(rows == 1 or rows * sizes[1] <= block for rows in asked)
    for query, more, values, rows in zip(queries, added, scores, positions, strict=True):
        expected = documents @ query
        if cosine:
            expected = expected / np.linalg.norm(documents, axis=1) / np.linalg.norm(query)
        expected = expected + more if has_added else expected
        best = [max(expected[[g == group for g in groups]]) for group in set(groups)] if groups else expected
        np.testing.assert_allclose(values, -np.sort(-np.array(best))[: len(rows)], atol=1e-6)
        np.testing.assert_allclose(values, expected[rows], atol=1e-6)
        assert len({groups[row] if groups else row for row in rows.tolist()}) == len(rows)
        if not cosine:
            assert (np.diff(rows)[np.diff(values) == 0] > 0).all()


def test_vectors_and_groups_that_do_not_fit_are_refused(encoder):
    vectors = encoder.encode(TEXTS)
    for options, message in (
        ({"vectors": vectors[:-1]}, "`vectors` has 4 entries for 5 texts"),
        ({"vectors": vectors[:, :-1]}, "have the size 16, and those of the texts 15"),
        ({"vectors": vectors * np.nan}, "5 of 5 vectors are NaN or infinite"),
        ({"groups": ["a", "b"]}, "`groups` has 2 entries for 5 texts"),
        ({"top_k": -1}, "top_k=-1: it has to be at least 1"),
    ):
        with pytest.raises(ValueError, match=message):
            search(encoder, QUERIES, TEXTS, **options, **QUIET)


def test_with_bm25_and_groups(encoder):
    groups = ["a", "a", "b", "b", "b"]
    found = search(encoder, QUERIES, TEXTS, groups=groups, bm25_weight=0.5, **QUIET)
    vectors = [encoder.encode(texts, normalize_embeddings=True) for texts in (QUERIES, TEXTS)]
    scores = vectors[0] @ vectors[1].T + bm25_scores(QUERIES, TEXTS, 0.5, groups)(slice(0, 2))
    for hits, values in zip(found, scores, strict=True):
        best = sorted([int(values[:2].argmax()), 2 + int(values[2:].argmax())], key=lambda row: -values[row])
        assert [hit["row"] for hit in hits] == best
    assert search(encoder, QUERIES, TEXTS, groups=torch.tensor([0, 0, 1, 1, 1]), bm25_weight=0.5, **QUIET) == found


def test_a_reranker_orders_what_is_found(encoder, save_bert, bert_tokenizer, tmp_path):
    folder = save_bert(tmp_path, BertForSequenceClassification, num_labels=1, initializer_range=0.5)
    reranker = CrossEncoder(str(folder), device="cpu")
    first = search(encoder, QUERIES, TEXTS, top_k=4, **QUIET)
    again = search(encoder, QUERIES, TEXTS, top_k=2, reranker=reranker, rerank_top=4, **QUIET)
    model = BertForSequenceClassification.from_pretrained(folder).eval()
    for query, found, hits in zip(QUERIES, first, again, strict=True):
        # Raw logits, not those of a sigmoid.
        logits = {
            hit["row"]: model(**bert_tokenizer(query, hit["text"], return_tensors="pt")).logits.item() for hit in found
        }
        assert [hit["row"] for hit in hits] == sorted(logits, key=logits.get, reverse=True)[:2]
        assert [hit["rerank"] for hit in hits] == pytest.approx([logits[hit["row"]] for hit in hits], abs=1e-4)
        assert all(hit["score"] in [before["score"] for before in found] for hit in hits)
    assert search(encoder, QUERIES, TEXTS, top_k=2, reranker=folder, rerank_top=4, **QUIET) == again


def test_a_query_without_scores_keeps_its_order(encoder):
    """A reranker gives NaN for a query that leaves no room for a text."""
    first = search(encoder, QUERIES, TEXTS, **QUIET)

    def score(queries, texts):
        return [[float("nan")] * len(texts[0]), [float(len(text)) for text in texts[1]]]

    found = search(encoder, QUERIES, TEXTS, reranker=score, **QUIET)
    assert [hit["row"] for hit in found[0]] == [hit["row"] for hit in first[0]]
    assert [hit["text"] for hit in found[1]] == sorted((hit["text"] for hit in first[1]), key=len, reverse=True)


def test_rerankers_are_read_as_teachers_are(encoder, save_bert, bert_tokenizer, tmp_path):
    """Whatever their tokenizer does: the scores are those of a pair alone."""
    folder = save_bert(tmp_path / "good", BertForSequenceClassification, num_labels=1, initializer_range=0.5)
    options = {"top_k": 4, "rerank_top": 4, **QUIET}
    expected = search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)
    odd = CrossEncoder(str(folder), device="cpu")
    odd.tokenizer.padding_side, odd.tokenizer.model_input_names = "left", ["input_ids", "token_type_ids"]
    for hits, same in zip(search(encoder, QUERIES, TEXTS, reranker=odd, **options), expected, strict=True):
        assert [hit["row"] for hit in hits] == [hit["row"] for hit in same]
        assert [hit["rerank"] for hit in hits] == pytest.approx([hit["rerank"] for hit in same], abs=1e-5)
    folder = save_bert(
        tmp_path / "types", BertForSequenceClassification, num_labels=1, type_vocab_size=1, initializer_range=0.5
    )
    search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)
    folder = save_bert(tmp_path / "three", BertForSequenceClassification, num_labels=3)
    with pytest.raises(ValueError, match="The reranker has 3 logits, and needs 1, or 2 for irrelevant and relevant"):
        search(encoder, QUERIES, TEXTS, reranker=CrossEncoder(str(folder), device="cpu"), **options)


def test_blank_texts_and_queries(encoder, warnings):
    (hits,) = search(encoder, QUERIES[:1], ["", TEXTS[0], "\u200b", TEXTS[1]], bm25_weight=0.3, **QUIET)
    assert sorted((hit["row"], hit["text"]) for hit in hits) == [(1, TEXTS[0]), (3, TEXTS[1])]
    assert "2 of 4 texts are blank and are left out." in warnings
    with pytest.raises(ValueError, match="row 0: the query is ' ', not a text"):
        search(encoder, [" "], TEXTS)
    with pytest.raises(ValueError, match="The texts, row 1: the text is nan, not a string"):
        search(encoder, QUERIES, ["a", float("nan")])


def test_other_similarities(encoder, monkeypatch):
    monkeypatch.setattr(encoder, "similarity_fn_name", "dot")
    (hits, _) = search(encoder, QUERIES, TEXTS, **QUIET)
    assert hits[0]["score"] == pytest.approx((encoder.encode(TEXTS) @ encoder.encode(QUERIES[0])).max(), rel=1e-5)
    with pytest.raises(ValueError, match="BM25 is added to the cosine, and this model is made for dot products"):
        search(encoder, QUERIES, TEXTS, bm25_weight=0.3)
    monkeypatch.setattr(encoder, "similarity_fn_name", "euclidean")
    with pytest.raises(ValueError, match="compares embeddings by 'euclidean'"):
        search(encoder, QUERIES, TEXTS)
    with pytest.raises(ValueError, match="There are no texts"):
        nearest(np.ones((1, 2)), np.ones((0, 2)), 1)
