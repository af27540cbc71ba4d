# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The report of what was read, and what contradicts itself."""

import json
import math

import numpy as np
import pytest
from datasets import ClassLabel, Dataset, DatasetDict

from hf_dse import DataArguments, make_rankings, report
from hf_dse.data.report import are_numbers, check_order, class_order, find_line, match_scale


NAMES = ["entailment", "neutral", "contradiction"]
LABELS = np.array([0.0, 1, 2, 3, 4, 5] * 6)


def test_pairs(tmp_path, warnings):
    """A file and a `Dataset` of the same rows have the same report."""
    texts = {"question1": "a cat", "teacher_logits": [0.0]}
    rows = [texts | {"question2": f"{n}", "label": n % 2, "teacher_logits": [n / 4], "id": n} for n in range(8)]
    rows.append({**rows[0], "label": 1})
    (tmp_path / "pairs.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    found = report(tmp_path / "pairs.jsonl", task_name="qqp")
    assert str(found) == (
        "train: 9 pairs; columns sentence1 (`question1`), sentence2 (`question2`), label, teacher_logits; ignored: id"
        "\nclasses not_duplicate: 4, duplicate: 5; teacher's scores 0 to 1.75\n1 copies"
    )
    assert found["train"].warnings == ["1 pairs occur again with another label."]
    assert warnings == ["Split 'train': 1 pairs occur again with another label."]
    assert report(Dataset.from_list(rows), task_name="qqp") == found
    names = {"sentence1_column": "question1", "sentence2_column": "question2"}
    (scores,) = report(tmp_path / "pairs.jsonl", num_labels=1, **names).values()
    assert (scores.labels, scores.scores, scores.classes) == ((0, 1), (0, 1.75), None)
    assert scores.line == find_line(*(np.array([row[name] for row in rows]) for name in ("label", "teacher_logits")))


def test_classes_that_are_missing_probabilities_and_pairs_in_two_splits(warnings):
    rows = {"sentence1": ["a", "b"], "sentence2": ["b", "c"], "label": [0, 2], "teacher_logits": [[0.2, 0.3, 0.5]] * 2}
    train = Dataset.from_dict(rows).cast_column("label", ClassLabel(names=NAMES))
    test = Dataset.from_dict({"sentence1": ["b", "x"], "sentence2": ["a", "y"], "label": [0, 1]})
    found = report(DatasetDict(train=train, test=test))
    assert found["train"].classes == {"entailment": 1, "neutral": 0, "contradiction": 1}
    assert found["test"].classes == {"0": 1, "1": 1, "2": 0} and found["test"].ignored == []
    assert warnings == [
        "Split 'train': no pair has the class neutral.",
        "Split 'train': the scores are from 0.2 to 0.5, as probabilities: distil raw logits.",
        "Split 'test': no pair has the class 2.",
        "Split 'test': 1 of 2 pairs are in the train split too.",
    ]
    other = test.cast_column("label", ClassLabel(names=NAMES[::-1]))
    with pytest.raises(ValueError, match="Split 'test' has the classes contradiction, .* and split 'train' ent"):
        report({"train": train, "test": other})


def test_rankings(tmp_path):
    queries = {"query": ["q", "r"], "documents": [[0, 1, 2], [1]], "labels": [[2, 0, None], [1]]}
    scores = {"teacher_logits": [[3.5, -1, None], [0]]}
    rankings = make_rankings(queries | scores, {"text": ["a cat", "a dog", "a cat", " "]})
    found = rankings.report()
    assert str(found) == (
        "2 queries, 4 candidates, 4 documents\n"
        "grades 2: 1, 1: 1, 0: 1, unknown: 1 (relevant: above 0); teacher's scores -1 to 3.5\n"
        "1 copies; 1 blank; ranked as whole texts"
    )
    assert found.rows == {"queries": 2, "candidates": 4, "documents": 4} and math.isnan(list(found.grades)[-1])
    assert str(report(rankings)) == f"train: {found}"
    rows = Dataset.from_dict({"query": ["q"], "positive": ["a cat"], "negative": ["a dog"]})
    assert report(rows)["train"].grades == {1.0: 1, 0.0: 1}
    (tmp_path / "a.md").write_text("A cat sat.")
    documents = report(DataArguments(corpus_file=str(tmp_path)))
    assert str(documents) == "corpus: 1 documents\nranked as passages of at most 128 tokens"


def test_the_line_between_scores_and_labels(warnings):
    noise = np.random.default_rng(0).normal(0, 0.5, len(LABELS))
    assert match_scale(LABELS, (LABELS + noise)[:, None]) is None
    # Too few labels tell no scale, and equal ones none.
    assert match_scale(LABELS[:3], -LABELS[:3, None]) is None and match_scale(LABELS * 0, LABELS[:, None]) is None
    assert not warnings
    for slope, intercept in ((1.6, -4), (0.192, 0.02)):
        line = match_scale(LABELS, slope * LABELS[:, None] + intercept)
        assert (line.slope, line.intercept) == pytest.approx((1 / slope, -intercept / slope))
    assert warnings[0] == (
        "The scales differ, so the scores are put on that of the labels: labels from 0 to 5, teacher's scores from -4 "
        "to 4; label = 0.625 x score +2.5, correlation 1.00."
    )
    with pytest.raises(ValueError, match="All scores are equal, .* from 0 to 5, teacher's scores from -4 to -4"):
        match_scale(LABELS, np.full((len(LABELS), 1), -4.0))
    with pytest.raises(ValueError, match="scores fall where the labels rise .*correlation -1.00.*Is its sign right"):
        match_scale(LABELS, 5 - LABELS[:, None])


@pytest.mark.parametrize("number", [1, 2, 3])
def test_classes_in_another_order(number):
    """Also of one logit, which is that of the second class."""
    generator = np.random.default_rng(0)
    labels = generator.integers(0, max(number, 2), 60).astype(float)
    logits = generator.normal(0, 0.3, (60, number)) + (
        2 * labels[:, None] - 1 if number == 1 else np.eye(number)[labels.astype(int)]
    )
    check_order(labels, logits)
    # Chance, equal scores, few pairs, and labels that are no classes tell nothing.
    check_order(labels, generator.normal(size=logits.shape))
    check_order(labels, logits * 0)
    wrong = -logits if number == 1 else np.roll(logits, 1, axis=1)
    check_order(labels[:3], wrong[:3])
    check_order(labels / 3 + 0.1, wrong)
    with pytest.raises(ValueError, match="have another order than the labels: over 60 pairs .* if label 0 is logit 1"):
        check_order(labels, wrong)


def test_numbers_that_are_not_those_of_their_classes_are_names():
    assert are_numbers(["LABEL_0", "LABEL_1"]) and are_numbers(["0", "1", "2"]) and not are_numbers(["3", "2", "1"])
    assert class_order(["3", "2", "1"], ["1", "2", "3"]) == [2, 1, 0]


def test_names_of_classes(warnings):
    assert class_order(["Contradiction", "entailment", "neutral"], NAMES) == [1, 2, 0]
    assert class_order(["not-equivalent", "equivalent"], ["equivalent", "not_equivalent"]) == [1, 0]
    assert class_order(["LABEL_0", "LABEL_1"], ["no", "yes"]) is None and class_order(["a", "b"], None) is None
    assert class_order(["yes"], ["no", "yes"]) is None
    assert (
        len(warnings) == 1 and "classes are LABEL_0, LABEL_1, and those of the data no, yes: they are" in warnings[0]
    )
    with pytest.raises(ValueError, match="one logit of the model is that of class 'no', .* has to mean 'yes'"):
        class_order(["no"], ["no", "yes"])
    assert are_numbers(["LABEL_0", "1"]) and not are_numbers(["0", "a"])
