# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The exact search in vectors: against slow code, in blocks, by groups, with added scores, and equal scores."""

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import hf_dse.retrieval.search
from hf_dse.retrieval.search import nearest


@settings(max_examples=80, deadline=None)
@given(
    sizes=st.tuples(st.integers(0, 5), st.integers(1, 30)),
    top_k=st.integers(1, 12),
    has_groups=st.booleans(),
    has_added=st.booleans(),
    block=st.integers(1, 60),
    seed=st.integers(0, 1000),
)
def test_it_is_the_slow_search(sizes, top_k, has_groups, has_added, block, seed):
    rng = np.random.default_rng(seed)
    # Few values, so that there are ties.
    queries, documents = (rng.integers(1, 4, (size, 3)).astype(np.float32) for size in sizes)
    added = rng.integers(0, 2, sizes).astype(np.float32)
    # Numbers from 0, each of which occurs.
    groups = np.unique(rng.integers(0, 4, sizes[1]), return_inverse=True)[1] if has_groups else None
    asked = []

    def added_scores(rows):
        asked.append(rows.stop - rows.start)
        return added[rows]

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(hf_dse.retrieval.search, "BLOCK_ELEMENTS", block)
        # Whole blocks of vectors, and a rest, or no blocks where all queries are many.
        patch.setattr(hf_dse.retrieval.search, "_prefers_blocks", lambda: True)
        patch.setattr(hf_dse.retrieval.search, "BLOCK_VECTORS", 1 + block % 7)
        patch.setattr(hf_dse.retrieval.search, "FEW_QUERIES", block % 4)
        options = {"groups": groups, "added_scores": added_scores if has_added else None}
        scores, positions = nearest(queries, documents, top_k, **options)
    assert scores.shape == positions.shape == (sizes[0], min(top_k, len(set(groups)) if has_groups else sizes[1]))
    assert (scores.dtype, positions.dtype) == (np.float32, np.int64)
    assert sum(asked) == (sizes[0] if has_added else 0)
    assert all(rows == 1 or rows * sizes[1] <= block for rows in asked)
    for query, more, values, rows in zip(queries, added, scores, positions, strict=True):
        expected = documents @ query + (more if has_added else 0)
        # The best of each group, and of equal scores the lower position.
        order, seen = [], set()
        for row in np.argsort(-expected, kind="stable").tolist():
            group = row if groups is None else groups[row]
            if group not in seen:
                order.append(row)
                seen.add(group)
        assert rows.tolist() == order[: len(rows)]
        np.testing.assert_array_equal(values, expected[rows])


@pytest.mark.parametrize(("number", "top_k"), [(50, 5), (1000, 10), (3000, 10)])
@pytest.mark.parametrize("groups", [None, "pairs"])
@pytest.mark.parametrize("in_blocks", [False, True])
def test_of_equal_scores_at_the_cut_the_lower_position_comes_first(number, top_k, groups, in_blocks, monkeypatch):
    """A choice by `torch.topk` before the sort took any of them."""
    monkeypatch.setattr(hf_dse.retrieval.search, "_prefers_blocks", lambda: in_blocks)
    vector = np.random.default_rng(0).normal(size=(1, 384)).astype(np.float32)
    documents = np.repeat(vector, number, axis=0)
    options = {"groups": None if groups is None else np.arange(number) % (number // 2)}
    for added in (None, lambda rows: np.full((1, number), 0.3, np.float32)):
        scores, positions = nearest(vector, documents, top_k, added_scores=added, **options)
        assert positions.tolist() == [list(range(top_k))] and len(set(scores[0].tolist())) == 1


def test_equal_vectors_have_equal_scores():
    """A product of matrices rounds them differently by their place, and by the number of queries."""
    rng = np.random.default_rng(0)
    documents = rng.normal(size=(1037, 384)).astype(np.float32)
    equal = [3, 64, 500, 1030, 1036]
    documents[equal] = documents[3]
    queries = np.concatenate([documents[3:4], rng.normal(size=(6, 384)).astype(np.float32)])
    scores, positions = nearest(queries, documents, 8)
    assert positions[0, :5].tolist() == equal and len(set(scores[0, :5].tolist())) == 1
    (alone,), (places,) = nearest(queries[:1], documents, 8)
    np.testing.assert_array_equal(alone, scores[0])
    np.testing.assert_array_equal(places, positions[0])


def test_the_smallest_difference_counts():
    """Also between scores that are close to each other, which float32 sums in any order would exchange."""
    rng = np.random.default_rng(0)
    vector = rng.normal(size=256)
    documents = np.stack([vector * (1 + step * 3e-7) for step in range(20)]).astype(np.float32)
    exact = documents.astype(np.float64) @ vector.astype(np.float32).astype(np.float64)
    _, (found,) = nearest(vector.astype(np.float32)[None], documents, 20)
    assert found.tolist() == np.argsort(-exact.astype(np.float32), kind="stable").tolist()


def test_vectors_of_other_sizes_are_refused():
    with pytest.raises(ValueError, match="of the queries have the size 16, and those of the texts 15: embed both"):
        nearest(np.ones((2, 16), np.float32), np.ones((5, 15), np.float32), 1)
