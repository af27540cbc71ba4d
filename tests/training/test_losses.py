# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pair objective against plain formulas, and what it refuses."""

import math

import pytest
import torch

from hf_dse.training.losses import PairDistillationLoss


# Task: (fields of the student's config, labels, logits of the teacher)
TASKS = {
    "regression": (
        {"num_labels": 1, "problem_type": "regression"},
        torch.tensor([0.0, 2.5, 5.0]),
        torch.tensor([[0.3], [2.0], [4.5]]),
    ),
    # The name in transformers of binary cross-entropy on one logit.
    "binary": (
        {"num_labels": 1, "problem_type": "multi_label_classification"},
        torch.tensor([0, 1, 1]),
        torch.tensor([[0.5, -0.5], [-1.0, 2.0], [0.0, 0.1]]),
    ),
    "three classes": (
        {"num_labels": 3, "problem_type": "single_label_classification"},
        torch.tensor([2, 0, 1]),
        torch.tensor([[0.1, -0.2, 1.0], [2.0, 0.0, -2.0], [0.3, 0.2, 0.1]]),
    ),
}


def plain_task_loss(problem_type, logits, labels):
    total = 0.0
    for row, label in zip(logits, labels, strict=True):
        if problem_type == "regression":
            total += (row[0] - label) ** 2
        elif problem_type == "multi_label_classification":
            probability = 1 / (1 + math.exp(-row[0]))
            total -= math.log(probability if label == 1 else 1 - probability)
        else:
            total -= row[label] - math.log(sum(math.exp(logit) for logit in row))
    return total / len(logits)


def plain_distillation_loss(logits, teacher_logits):
    total = 0.0
    for row, teacher in zip(logits, teacher_logits, strict=True):
        if len(teacher) == 2 and len(row) == 1:
            teacher = [teacher[1] - teacher[0]]
        total += sum((student - target) ** 2 for student, target in zip(row, teacher, strict=True))
    return total / len(logits)


def test_alpha_0_and_1_need_only_their_own_term():
    logits, teacher_logits = torch.tensor([[1.0]]), torch.tensor([[3.0]])
    assert PairDistillationLoss(1.0)(logits, None, teacher_logits) == 4.0
    assert PairDistillationLoss(0.0)(logits, torch.tensor([5.0]), None) == 16.0
    # What has no weight does no harm either.
    assert PairDistillationLoss(1.0)(logits, torch.tensor([torch.nan]), teacher_logits) == 4.0
    assert PairDistillationLoss(0.0)(logits, torch.tensor([5.0]), torch.tensor([[torch.inf]])) == 16.0


@pytest.mark.parametrize("alpha", [0.0, 0.3, 1.0])
@pytest.mark.parametrize("name", TASKS)
def test_a_pair_learns_from_what_it_has(name, alpha):
    """A batch with gaps has the mean loss of its pairs, each with the terms that it has."""
    fields, labels, teacher_logits = TASKS[name]
    logits = torch.randn(3, fields["num_labels"], generator=torch.Generator().manual_seed(0), requires_grad=True)
    # A label missing, and a score missing.
    with_gaps = torch.where(torch.tensor([True, False, True]), labels.float(), torch.nan)
    with_class_gaps = torch.where(torch.tensor([True, False, True]), labels, -100).to(labels.dtype)
    scores = teacher_logits.clone()
    scores[2] = torch.nan

    rows, teacher_rows, kind = logits.tolist(), teacher_logits.tolist(), fields["problem_type"]
    tasks = [plain_task_loss(kind, [row], [label]) for row, label in zip(rows, labels.tolist(), strict=True)]
    distances = [plain_distillation_loss([row], [teacher]) for row, teacher in zip(rows, teacher_rows, strict=True)]
    expected = ((1 - alpha) * tasks[0] + alpha * distances[0]) + distances[1] + tasks[2]
    for gaps in [with_gaps] if name == "regression" else [with_gaps, with_class_gaps]:
        loss = PairDistillationLoss(alpha, kind)(logits, gaps, scores)
        assert loss.item() == pytest.approx(expected / 3, rel=1e-5)
        assert torch.autograd.grad(loss, logits)[0].isfinite().all()


def test_targets_mix_labels_and_scores():
    labels, scores = torch.tensor([1.0, torch.nan, 3.0]), torch.tensor([[2.0], [4.0], [torch.nan]])
    targets = PairDistillationLoss(0.25).targets(1, labels, scores)
    assert torch.equal(targets, torch.tensor([[1.25], [4.0], [3.0]], dtype=torch.float64))
    binary = PairDistillationLoss(0.5, "multi_label_classification")
    assert binary.targets(1, torch.tensor([1, 0]), torch.tensor([[0.0], [0.0]])).tolist() == [[1.0], [-1.0]]
    classes = PairDistillationLoss(0.0, "single_label_classification")
    assert classes.targets(3, torch.tensor([2])).tolist() == [[-2.0, -2.0, 2.0]]


def test_a_label_below_0_is_one_of_a_regression():
    """Also as a whole number; classes alone have -1 for an unknown one."""
    logits, teacher = torch.tensor([[0.3], [0.3]]), torch.zeros(2, 1)
    loss = PairDistillationLoss(0.5, "regression")
    assert loss(logits, torch.tensor([-1, 1]), teacher) == loss(logits, torch.tensor([-1.0, 1.0]), teacher)


def test_what_is_refused():
    # Two logits of a regression are not those of two classes.
    for size in (2, 3):
        with pytest.raises(ValueError, match=f"teacher has {size} logits per pair and the student 1"):
            PairDistillationLoss(1.0)(torch.zeros(4, 1), None, torch.zeros(4, size))
    with pytest.raises(ValueError, match=r"must be between 0 \(labels only\) and 1 \(teacher only\), got"):
        PairDistillationLoss(math.nan)
    labels, scores = torch.tensor([1.0, torch.nan]), torch.tensor([[1.0], [torch.nan]])
    with pytest.raises(ValueError, match="neither a label nor finite teacher scores"):
        PairDistillationLoss(0.5)(torch.zeros(2, 1), labels, scores)


@pytest.mark.parametrize("problem_type", ["regression", "multi_label_classification"])
def test_labels_in_a_column_are_those_in_a_row(problem_type):
    logits, labels, teacher = torch.randn(4, 1), torch.tensor([0.0, 1.0, 1.0, 0.0]), torch.randn(4, 1)
    loss = PairDistillationLoss(0.5, problem_type)
    assert torch.equal(loss(logits, labels[:, None], teacher), loss(logits, labels, teacher))
