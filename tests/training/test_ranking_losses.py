# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses on queries with candidates against plain Python, one query and one document at a time."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import RankingLoss
from hf_dse.training.losses import (
    contrastive_loss,
    find_negatives,
    listwise_loss,
)


UNKNOWN = math.nan


@st.composite
def batches(draw):
    """A batch of queries: scores of all documents, and lists of candidates with labels and scores of a teacher."""
    num_queries, num_documents = draw(st.integers(1, 4)), draw(st.integers(2, 8))
    # Fewer numbers than documents, so that some have the same text.
    ids = draw(st.lists(st.integers(0, 6), min_size=num_documents, max_size=num_documents))
    lists = []
    for _ in range(num_queries):
        rows = draw(st.lists(st.integers(0, num_documents - 1), min_size=1, max_size=5, unique=True))
        labels = [draw(st.sampled_from([0.0, 1.0, 2.0, UNKNOWN])) for _ in rows]
        logits = [draw(st.one_of(st.just(UNKNOWN), st.floats(-4, 4, width=32))) for _ in rows]
        # Known from the whole data set: the positives of the list, and others.
        known = {ids[row] for row, label in zip(rows, labels, strict=True) if label > 0}
        known |= set(draw(st.lists(st.integers(0, 6), max_size=2)))
        lists.append((rows, labels, logits, sorted(known)))
    scores = [[draw(st.floats(-5, 5, width=32)) for _ in ids] for _ in lists]
    return ids, lists, scores


def tensors(batch):
    ids, lists, scores = batch

    def fill(rows, value):
        longest = max(map(len, rows))
        return torch.tensor([[*row, *[value] * (longest - len(row))] for row in rows])

    columns = [[part[order] for part in lists] for order in range(4)]
    documents, labels, logits, positives = (
        fill(rows, value) for rows, value in zip(columns, (-1, UNKNOWN, UNKNOWN, -1), strict=True)
    )
    scores = torch.tensor(scores, dtype=torch.float64, requires_grad=True)
    return scores, documents, labels.double(), logits.double(), torch.tensor(ids), positives.long()


def mean(values):
    return sum(values) / len(values) if values else 0.0


def plain_contrastive(batch):
    ids, lists, scores = batch
    terms = []
    for (rows, labels, _, known), own in zip(lists, scores, strict=True):
        barred = set(known) | {ids[row] for row, label in zip(rows, labels, strict=True) if label != 0.0}
        negatives = {number: own[row] for row, number in reversed(list(enumerate(ids))) if number not in barred}
        positives = [own[row] for row, label in zip(rows, labels, strict=True) if label > 0]
        others = sum(math.exp(score) for score in negatives.values())
        losses = [math.log((math.exp(score) + others) / math.exp(score)) for score in positives]
        terms += [mean(losses)] if losses else []
    return mean(terms)


def plain_listwise(batch):
    terms = []
    for (rows, _, logits, _), own in zip(batch[1], batch[2], strict=True):
        scored = [(own[row], logit) for row, logit in zip(rows, logits, strict=True) if logit == logit]
        if len(scored) < 2:
            continue
        totals = [sum(math.exp(pair[side]) for pair in scored) for side in (0, 1)]
        student, teacher = ([math.exp(pair[side]) / totals[side] for pair in scored] for side in (0, 1))
        terms.append(sum(t * math.log(t / s) for s, t in zip(student, teacher, strict=True)))
    return mean(terms)


@settings(deadline=None, max_examples=100)
@given(batches())
def test_losses_are_their_definitions(batch):
    scores, documents, labels, logits, ids, positives = tensors(batch)
    own = scores.gather(1, documents.clamp(min=0))
    negatives = find_negatives(documents, labels, ids, positives)
    found = [contrastive_loss(scores, documents, labels, negatives), listwise_loss(own, logits)]
    expected = [plain_contrastive(batch), plain_listwise(batch)]
    assert [loss.item() for loss in found] == pytest.approx(expected, rel=1e-5, abs=1e-6)
    whole = RankingLoss(0.5, 2.0)(scores, documents, labels, logits, ids, positives)
    assert whole.item() == pytest.approx(np.dot([0.5, 2.0], expected), rel=1e-5, abs=1e-6)
    (gradient,) = torch.autograd.grad(whole, scores)
    assert gradient.isfinite().all()


@settings(deadline=None, max_examples=50)
@given(batches(), st.floats(0.2, 5.0), st.floats(-3.0, 3.0))
def test_the_temperature_is_a_unit(batch, temperature, shift):
    """In units of the temperature it is the same loss, and a bias changes nothing."""
    scores, documents, labels, logits, ids, positives = tensors(batch)
    options = (documents, labels)
    expected = RankingLoss()(scores, *options, logits, ids, positives)
    scaled = RankingLoss(temperature=temperature)
    found = scaled(temperature * scores + shift, *options, temperature * logits - shift, ids, positives)
    assert found.item() == pytest.approx(expected.item(), rel=1e-4, abs=1e-5)
