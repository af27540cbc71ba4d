# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs: tasks, columns, labels, and errors that name the row."""

import json
import time

import datasets
import pytest
from datasets import ClassLabel, Dataset, Features

from hf_dse.data.arguments import DataArguments
from hf_dse.data.pairs import check_pairs, load_pairs, mix_pairs, resolve_task
from hf_dse.data.tasks import PAIR_TASKS


def write(path, rows):
    if path.suffix == ".jsonl":
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))
    elif path.suffix == ".csv":
        Dataset.from_list(rows).to_csv(path)
    else:
        Dataset.from_list(rows).to_parquet(path)
    return str(path)


def load(tmp_path, rows, ending=".jsonl", **arguments):
    arguments = {"task_name": "stsb"} | arguments
    return load_pairs(DataArguments(train_file=write(tmp_path / f"pairs{ending}", rows), **arguments))["train"]


def pair(**columns):
    return {"sentence1": "a cat", "sentence2": "a dog", "label": 1, **columns}


# Tasks


def test_resolving_a_task():
    assert {name: (task.num_labels, task.symmetric) for name, task in PAIR_TASKS.items()} == {
        "stsb": (1, True),
        "mrpc": (2, True),
        "qqp": (2, True),
        "qnli": (2, False),
        "mnli": (3, False),
    }
    task = resolve_task(DataArguments(task_name="qqp", sentence1_column="left", symmetric=False))
    assert (task.sentence1, task.sentence2, task.symmetric, task.num_labels) == ("left", "question2", False, 2)
    assert PAIR_TASKS["qqp"].symmetric
    assert resolve_task(DataArguments(dataset_name="embedded")) == PAIR_TASKS["stsb"]
    for num_labels, metric in ((1, "pearson"), (2, "f1"), (4, "accuracy")):
        task = resolve_task(DataArguments(num_labels=num_labels, train_file="pairs.csv"))
        assert (task.num_labels, task.metric_for_best_model, task.symmetric) == (num_labels, metric, False)


@pytest.mark.parametrize("labels", [["3.5", "4", "0"], [5, 2.5]])
def test_fractions_are_a_regression(labels, tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in labels]
    assert resolve_task(DataArguments(train_file=write(tmp_path / "train.jsonl", rows))).num_labels == 1
    assert resolve_task(DataArguments(), Dataset.from_dict({"label": list(map(float, labels))})).num_labels == 1


def test_number_of_classes():
    names = Features({"label": ClassLabel(names=["no", "yes", "perhaps", "later"])})
    assert resolve_task(DataArguments(), Dataset.from_dict({"label": [0, 1]}, features=names)).num_labels == 4
    for labels in ([0, 1, 1], [0.0, 4.0], ["yes", "no"], [None]):
        with pytest.raises(ValueError, match="The number of labels is unknown: pass `num_labels`"):
            resolve_task(DataArguments(), Dataset.from_dict({"label": labels}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_name": "sts-b"}, "Unknown task 'sts-b': the known tasks are stsb, mrpc, qqp, qnli, mnli"),
        ({}, "No data: pass `dataset_name`"),
        ({"task_name": "stsb", "num_labels": 2}, "num_labels=2 contradicts task 'stsb', which has 1"),
        ({"num_labels": 0}, "num_labels=0: it must be 1"),
        ({"max_train_samples": 0}, "max_train_samples=0: it has to be at least 1"),
        ({"max_eval_samples": -1}, "max_eval_samples=-1: it has to be at least 1"),
    ],
)
def test_arguments_that_are_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        resolve_task(DataArguments(**arguments))


# Columns and rows


def test_a_name_alone():
    assert {split: len(part) for split, part in load_pairs("embedded").items()} == {
        "train": 799,
        "validation": 200,
        "test": 199,
    }


def test_other_columns_are_dropped_and_classes_are_integers(tmp_path):
    rows = [pair(question1="x", question2="y", label=1.0, id=7), pair(question1="z", question2="w", label=0.0, id=8)]
    pairs = load(tmp_path, rows, task_name="qqp")
    assert pairs.to_list() == [
        {"sentence1": "x", "sentence2": "y", "label": 1},
        {"sentence1": "z", "sentence2": "w", "label": 0},
    ]
    assert pairs.features["label"] == datasets.Value("int64")
    # The plain names also serve.
    assert load(tmp_path, [pair(label=2)], task_name="mnli").to_list() == [pair(label=2)]


def test_columns_may_be_named(tmp_path):
    row = {"left": "a", "right": "b", "similarity": "3.5"}
    columns = {"sentence1_column": "left", "sentence2_column": "right", "label_column": "similarity"}
    assert load(tmp_path, [row], ".csv", **columns).to_list() == [{"sentence1": "a", "sentence2": "b", "label": 3.5}]


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize("logits", [[0.25, -1.0], 0.5])
def test_teacher_logits_are_kept_as_lists(tmp_path, ending, logits):
    cell = json.dumps(logits) if ending == ".csv" else logits
    pairs = load(tmp_path, [pair(teacher_logits=cell)], ending)
    assert pairs["teacher_logits"][:] == [logits if isinstance(logits, list) else [logits]]


def test_unlabelled_pairs_only_where_they_are_allowed(tmp_path):
    arguments = DataArguments(
        task_name="stsb", train_file=write(tmp_path / "pairs.csv", [{"sentence1": "a", "sentence2": "b"}])
    )
    assert load_pairs(arguments, require_labels=False)["train"].column_names == ["sentence1", "sentence2"]
    with pytest.raises(ValueError, match="there is no column 'label'; the columns are sentence1, sentence2"):
        load_pairs(arguments)


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"a": "x", "sentence2": "y", "label": 1}], {}, "no column 'sentence1'; the columns are a, sentence2, label"),
        ([pair()], {"sentence1_column": "text"}, "no column 'text'; the columns are sentence1, sentence2, label"),
        ([pair(), pair(label="high")], {}, "Split 'train', row 1: the label 'high' is not a finite number"),
        ([pair(label="x"), pair(label="")], {}, "row 0: the label 'x' is not a finite number"),
        ([pair(), pair(label="inf")], {}, "row 1: the label 'inf' is not a finite number"),
        ([pair(), pair(label=2)], {"task_name": "mrpc"}, r"row 1: the label '?2'? is not a class from 0 to 1"),
        ([pair(label=-1), pair()], {"task_name": "mrpc"}, r"row 0: the label '?-1'? is not a class from 0 to 1"),
        ([pair(), pair(label=0.5)], {"task_name": "mrpc"}, "row 1: the label '?0.5'? is not a class from 0 to 1"),
        (
            [pair(label=3)],
            {"task_name": None, "num_labels": 3},
            "is not a class from 0 to 2: correct it, or `num_labels`",
        ),
        ([pair(), pair(sentence2=" \t")], {}, "row 1: sentence2 is .*, not a text"),
        (
            [pair(sentence1="")],
            {},
            "row 0: sentence1 is '', not a text: .* drop empty sentences with `drop_empty_sentences`",
        ),
        ([pair(teacher_logits="high")], {}, "row 0: teacher_logits are \\[None\\], not 1 finite numbers"),
        ([pair(teacher_logits="[1, NaN]")], {}, "row 0: teacher_logits are .*, not 2 finite numbers"),
        (
            [pair(teacher_logits="[1]"), pair(teacher_logits="[1, 2]")],
            {},
            "row 1: teacher_logits are \\[1.0, 2.0\\], not 1 finite numbers",
        ),
    ],
)
def test_bad_rows(tmp_path, rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, rows, **arguments)


@pytest.mark.parametrize(
    ("row", "message"),
    [
        (pair(label=None), "row 1: the label None is not a finite number"),
        (pair(label=float("nan")), "row 1: the label nan is not a finite number"),
        (pair(sentence1=None), "row 1: sentence1 is None, not a text"),
    ],
)
def test_missing_values(tmp_path, row, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, [pair(), row], ".parquet")
    with pytest.raises(ValueError, match="row 0: sentence2 is 5, not a text"):
        load(tmp_path, [pair(sentence2=5)])


def test_a_split_without_rows(tmp_path):
    (tmp_path / "train.csv").write_text("sentence1,sentence2,label\n")
    with pytest.raises(ValueError, match="Split 'train' has no rows"):
        load_pairs(DataArguments(task_name="stsb", train_file=str(tmp_path / "train.csv")))


def test_empty_sentences_may_be_dropped(tmp_path, warnings):
    rows = [pair(id=1, teacher_logits=[1.0]), pair(id=2, sentence1=None, teacher_logits=[2.0])]
    rows += [pair(id=3, label=0, teacher_logits=[3.0])]
    path = write(tmp_path / "pairs.parquet", rows)
    data_args = DataArguments(task_name="stsb", train_file=path, drop_empty_sentences=True)
    pairs = load_pairs(data_args, keep_columns=True)["train"]
    assert (pairs["label"][:], pairs["teacher_logits"][:], pairs["id"][:]) == ([1.0, 0.0], [[1.0], [3.0]], [1, 3])
    assert warnings == ["Split 'train': dropped 1 pairs with an empty sentence."]


def test_reading_many_pairs_takes_seconds(tmp_path):
    """16 s, when a column was read once for each row."""
    rows = [pair(sentence1=None if row == 7 else f"a {row}", label=row % 2) for row in range(32_000)]
    start = time.process_time()
    pairs = load(tmp_path, rows, drop_empty_sentences=True)
    assert pairs["label"][:] == [row % 2 for row in range(32_000) if row != 7]
    assert time.process_time() - start < 8


# Pairs in memory


def test_pairs_in_memory_are_checked():
    rows = {"question1": ["a", "b"], "question2": ["c", "d"], "label": [1, 0], "other": [1, 2]}
    data_args = DataArguments(task_name="qqp", max_train_samples=1)
    checked = check_pairs({"train": Dataset.from_dict(rows), "test": Dataset.from_dict(rows)}, data_args)
    assert checked["train"].to_list() == [{"sentence1": "a", "sentence2": "c", "label": 1}]
    assert len(checked["test"]) == 2
    # Also in evaluation splits, where such labels were not looked at.
    bad = Dataset.from_dict({**rows, "label": [1, 2]})
    with pytest.raises(ValueError, match=r"Split 'test', row 1: the label 2 is not a class from 0 to 1"):
        check_pairs({"train": Dataset.from_dict(rows), "test": bad}, data_args)


def test_mixing_pairs():
    labelled = Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0], "other": [0]})
    unlabelled = Dataset.from_dict({"sentence1": ["c"], "sentence2": ["d"], "label": [9.0], "teacher_logits": [[2.0]]})
    assert mix_pairs(labelled, unlabelled).to_list() == [
        {"sentence1": "a", "sentence2": "b", "label": 1.0, "teacher_logits": None},
        {"sentence1": "c", "sentence2": "d", "label": None, "teacher_logits": [2.0]},
    ]
