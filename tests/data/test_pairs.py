# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs: tasks, columns, labels, and errors that name the row."""

import json
from dataclasses import replace

import datasets
import pytest
from datasets import Dataset

from hf_dse.data.options import PAIR_TASKS, DataArguments
from hf_dse.data.pairs import load_pairs, read_pairs, resolve_task


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
    task = resolve_task(DataArguments(task_name="qqp", symmetric=False))
    assert (task.sentence1, task.sentence2, task.symmetric, task.num_labels) == ("question1", "question2", False, 2)
    assert PAIR_TASKS["qqp"].symmetric
    assert resolve_task(DataArguments(dataset_name="embedded")) == PAIR_TASKS["stsb"]
    for num_labels, metric in ((1, "pearson"), (2, "f1"), (4, "accuracy")):
        assert resolve_task(DataArguments(num_labels=num_labels)).metric_for_best_model == metric


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_name": "sts-b"}, "Unknown task 'sts-b': the known tasks are stsb, mrpc, qqp, qnli, mnli"),
        ({"train_file": "pairs.csv"}, "The number of labels is unknown: pass `num_labels`"),
        ({"task_name": "stsb", "num_labels": 2}, "num_labels=2 contradicts task 'stsb', which has 1"),
        ({"max_eval_samples": -1}, "max_eval_samples=-1: it has to be at least 1"),
    ],
)
def test_arguments_that_are_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        resolve_task(DataArguments(**arguments))


# Columns and rows


def test_other_columns_are_dropped_and_classes_are_integers(tmp_path):
    rows = [pair(question1="x", question2="y", label=1.0, id=7), pair(question1="z", question2="w", label=0.0, id=8)]
    pairs = load(tmp_path, rows, task_name="qqp")
    assert pairs.to_list() == [
        {"sentence1": "x", "sentence2": "y", "label": 1},
        {"sentence1": "z", "sentence2": "w", "label": 0},
    ]
    assert pairs.features["label"] == datasets.ClassLabel(names=["not_duplicate", "duplicate"])
    # The plain names also serve.
    assert load(tmp_path, [pair(label=2)], task_name="mnli").to_list() == [pair(label=2)]


def test_columns_may_be_named(tmp_path):
    row = {"left": "a", "right": "b", "similarity": "3.5"}
    columns = {"sentence1_column": "left", "sentence2_column": "right", "label_column": "similarity"}
    assert load(tmp_path, [row], ".csv", **columns).to_list() == [{"sentence1": "a", "sentence2": "b", "label": 3.5}]
    # In the place of a task's.
    found = load(tmp_path, [pair(left="c", question2="d")], task_name="qqp", sentence1_column="left")
    assert (found["sentence1"][0], found["sentence2"][0]) == ("c", "d")


@pytest.mark.parametrize("logits", [[0.25, -1.0], 0.5])
def test_teacher_logits_are_kept_as_lists(tmp_path, logits):
    pairs = load(tmp_path, [pair(teacher_logits=logits)])
    assert pairs["teacher_logits"][:] == [[0.5] if logits == 0.5 else [0.25, -1.0]]


def test_unlabelled_pairs_only_where_they_are_allowed(tmp_path):
    file = write(tmp_path / "pairs.csv", [{"sentence1": "a", "sentence2": "b"}])
    arguments = DataArguments(task_name="stsb", train_file=file)
    assert load_pairs(arguments, require_labels=False)["train"].column_names == ["sentence1", "sentence2"]
    with pytest.raises(ValueError, match="there is no column 'label'; the columns are sentence1, sentence2"):
        load_pairs(arguments)
    # One that is named has to be there.
    with pytest.raises(ValueError, match="there is no column 'gold'; the columns are sentence1, sentence2"):
        load_pairs(replace(arguments, label_column="gold"), require_labels=False)


@pytest.mark.parametrize(("ending", "unknown"), [(".csv", "''"), (".jsonl", None), (".parquet", None)])
@pytest.mark.parametrize(("num_labels", "label"), [(1, 0.5), (3, 2)])
def test_training_pairs_may_lack_a_label(tmp_path, ending, unknown, num_labels, label):
    file = write(tmp_path / f"pairs{ending}", [pair(label=None), pair(label=label)])
    arguments = DataArguments(num_labels=num_labels, train_file=file)
    assert load_pairs(arguments, require_labels=False)["train"]["label"][:] == [None, label]
    with pytest.raises(ValueError, match=f"Split 'train', row 0: the label {unknown} is not a"):
        load_pairs(arguments)
    arguments = DataArguments(num_labels=num_labels, test_file=file)
    with pytest.raises(ValueError, match=f"Split 'test', row 0: the label {unknown} is not a"):
        load_pairs(arguments, require_labels=False)


@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"a": "x", "sentence2": "y", "label": 1}], {}, "no column 'sentence1'; the columns are a, sentence2, label"),
        ([pair(), pair(label="inf")], {}, "Split 'train', row 1: the label 'inf' is not a finite number"),
        ([pair(), pair(label=0.5)], {"task_name": "mrpc"}, "row 1: the label '?0.5'? is not a class from 0 to 1"),
        ([pair(), pair(sentence2=" \t")], {}, "row 1: sentence2 is .*, not a text: correct or remove the row"),
        (
            [pair(teacher_logits=[1]), pair(teacher_logits=[1, 2])],
            {},
            "row 1: teacher_logits are \\[1.0, 2.0\\], not 1 finite numbers",
        ),
    ],
)
def test_bad_rows(tmp_path, rows, arguments, message):
    with pytest.raises(ValueError, match=message):
        load(tmp_path, rows, **arguments)


def test_a_split_without_rows(tmp_path):
    (tmp_path / "train.csv").write_text("sentence1,sentence2,label\n")
    with pytest.raises(ValueError, match="Split 'train' has no rows"):
        load_pairs(DataArguments(task_name="stsb", train_file=str(tmp_path / "train.csv")))


# Pairs in memory


def test_pairs_in_memory_are_checked():
    rows = {"question1": ["a", "b"], "question2": ["c", "d"], "label": [1, 0], "other": [1, 2]}
    data_args = DataArguments(task_name="qqp", max_train_samples=1)
    checked = read_pairs({"train": Dataset.from_dict(rows)}, data_args)[0]["train"]
    assert checked.to_list() == [{"sentence1": "a", "sentence2": "c", "label": 1}]
    assert len(read_pairs({"test": Dataset.from_dict(rows)}, data_args)[0]["test"]) == 2
    # Also in evaluation splits, where such labels were not looked at.
    bad = Dataset.from_dict({**rows, "label": [1, 2]})
    with pytest.raises(ValueError, match=r"Split 'test', row 1: the label 2 is not a class from 0 to 1"):
        read_pairs({"test": bad}, data_args)


def test_empty_questions_of_qqp_are_left_out(tmp_path, warnings):
    texts = ["how ?", "", "who ?"]
    rows = [{"question1": text, "question2": "why ?", "label": 1, "id": row} for row, text in enumerate(texts)]
    arguments = DataArguments(train_file=write(tmp_path / "pairs.jsonl", rows), task_name="qqp")
    pairs = load_pairs(arguments, keep_columns=True)["train"]
    assert pairs["sentence1"][:] == ["how ?", "who ?"] and pairs["id"][:] == [0, 2]
    assert "Split 'train': left out 1 pairs with an empty question." in warnings


# Classes


NAMES = ["entailment", "neutral", "contradiction"]


def test_names_of_classes_are_kept(tmp_path):
    """Those of the data, or else of the task; also as labels."""
    rows = [pair(label=label) for label in (2, 0)]
    named = Dataset.from_list(rows).cast_column("label", datasets.ClassLabel(names=["a", "b", "c"]))
    named.to_parquet(tmp_path / "named.parquet")
    arguments = DataArguments(num_labels=3, train_file=str(tmp_path / "named.parquet"))
    for pairs in (load_pairs(arguments), read_pairs({"train": named}, DataArguments(num_labels=3))[0]):
        assert pairs["train"].features["label"].names == ["a", "b", "c"] and pairs["train"]["label"][:] == [2, 0]
    for label in (1, "neutral"):
        found = load(tmp_path, [pair(label=label)], task_name="mnli")
        assert found.features["label"].names == NAMES and found["label"][:] == [1]
    assert load(tmp_path, rows, task_name=None, num_labels=3).features["label"] == datasets.Value("int64")
    arguments = DataArguments(num_labels=2, train_file=str(tmp_path / "named.parquet"))
    with pytest.raises(ValueError, match="Split 'train' has 3 classes, a, b, c, and 2 labels .* pass `num_labels=3`"):
        load_pairs(arguments)


def test_classes_that_are_read_as_scores_are_said(warnings):
    named = Dataset.from_list([pair(label=1)] * 2).cast_column("label", datasets.ClassLabel(names=["a", "b"]))
    pairs = read_pairs({"train": named}, DataArguments(num_labels=1))[0]["train"]
    assert pairs["label"][:] == [1.0, 1.0]
    assert "Split 'train': the labels are the classes a, b, and are read as scores, 0, 1, ..." in warnings


@pytest.mark.parametrize(
    ("num_labels", "labels", "message"),
    [
        (3, [0, 0, 1, 2], "the first 2 rows have the labels 0, and all rows 0, 1, 2: shuffle them."),
        (1, [0, 0.5, 3, 5], "the first 2 rows have the labels 0 to 0.5, and all rows 0 to 5: shuffle them."),
        (3, [0, 1, 2, 0], None),
    ],
)
def test_the_first_rows_of_a_sorted_file(tmp_path, num_labels, labels, message, warnings):
    rows = [pair(sentence1=f"{row}", label=label) for row, label in enumerate(labels)]
    limit = 2 if message else 3
    load(tmp_path, rows, ".csv", task_name=None, num_labels=num_labels, max_train_samples=limit)
    assert [text for text in warnings if "shuffle" in text] == ([f"Split 'train': {message}"] if message else [])
