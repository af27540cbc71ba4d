# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Reading and checking sentence pairs, and the collators."""

import csv
import json
import re
import time

import datasets
import pyarrow
import pyarrow.parquet
import pytest
import torch
from datasets import ClassLabel, Dataset, Features
from transformers import BertTokenizer

from hf_dse.data.collators import CrossEncoderCollator, PairCollator
from hf_dse.data.pairs import DataArguments, load_pairs, mix_pairs, resolve_task
from hf_dse.data.ranking_files import load_corpus, load_rankings
from hf_dse.data.tables import read_columns
from hf_dse.data.tasks import PAIR_TASKS
from hf_dse.data.tokenization import lengths
from hf_dse.inference.loading import load_model


ROWS = [
    {"sentence1": "A cat sleeps.", "sentence2": "A cat is asleep.", "label": 4.5},
    {"sentence1": "NA", "sentence2": '007, \u2028 "quoted"\nand a second line', "label": 0.0},
    {"sentence1": "Null island", "sentence2": "nan", "label": 2.25},
]


@pytest.fixture
def tokenizer():
    words = "the a cat dog sat ran on mat house slept".split()
    vocab = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]", *words]
    return BertTokenizer({token: i for i, token in enumerate(vocab)}, model_max_length=64)


def write(path, rows):
    if path.suffix == ".csv":
        with path.open("w", encoding="utf-8", newline="") as file:
            writer = csv.DictWriter(file, list(rows[0]))
            writer.writeheader()
            writer.writerows(rows)
    elif path.suffix == ".parquet":
        pyarrow.parquet.write_table(pyarrow.Table.from_pylist(rows), path)
    elif path.suffix == ".json":
        path.write_text(json.dumps(rows, ensure_ascii=False), encoding="utf-8")
    else:
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows), encoding="utf-8")
    return str(path)


def load(tmp_path, rows, ending=".jsonl", **arguments):
    arguments = {"task_name": "stsb"} | arguments
    return load_pairs(DataArguments(train_file=write(tmp_path / f"pairs{ending}", rows), **arguments))["train"]


def pair(**columns):
    return {"sentence1": "a cat", "sentence2": "a dog", "label": 1, **columns}


# Tasks


def test_the_tasks_of_glue():
    assert list(PAIR_TASKS) == ["stsb", "mrpc", "qqp", "qnli", "mnli"]
    assert PAIR_TASKS["stsb"].problem_type == "regression"
    assert {task.problem_type for name, task in PAIR_TASKS.items() if name != "stsb"} == {
        "single_label_classification"
    }
    assert [name for name, task in PAIR_TASKS.items() if task.symmetric] == ["stsb", "mrpc", "qqp"]
    assert PAIR_TASKS["mnli"].num_labels == 3


def test_resolving_a_task_takes_overrides():
    task = resolve_task(DataArguments(task_name="qqp", sentence1_column="left", symmetric=False))
    assert (task.sentence1, task.sentence2, task.symmetric, task.num_labels) == ("left", "question2", False, 2)
    assert PAIR_TASKS["qqp"].symmetric


@pytest.mark.parametrize(("num_labels", "metric"), [(1, "pearson"), (2, "f1"), (4, "accuracy")])
def test_resolving_a_task_of_ones_own(num_labels, metric):
    task = resolve_task(DataArguments(num_labels=num_labels, train_file="pairs.csv"))
    assert (task.num_labels, task.metric_for_best_model, task.symmetric) == (num_labels, metric, False)


def test_the_embedded_set_is_a_similarity_task():
    assert resolve_task(DataArguments(dataset_name="embedded")) == PAIR_TASKS["stsb"]


@pytest.mark.parametrize(
    ("labels", "num_labels"),
    [
        ([0.0, 4.0, 2.0], 1),
        (["3.5", "4", "0"], 1),
        ([5, 2.5], 1),
        ([0, 1, 1], 2),
        (["1", "0"], 2),
        ([2, 0, 1, -1], 3),
    ],
)
@pytest.mark.parametrize("in_memory", [False, True])
def test_labels_tell_their_number(labels, num_labels, in_memory, tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": label} for label in labels]
    if in_memory and len({type(label) for label in labels}) == 1:
        dataset, data_args = Dataset.from_list(rows), DataArguments()
    else:
        (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
        dataset, data_args = None, DataArguments(train_file=str(tmp_path / "train.jsonl"))
    task = resolve_task(data_args, dataset)
    assert (task.num_labels, task.symmetric) == (num_labels, False)


def test_classes_and_scores_tell_the_number_of_labels():
    names = Features({"label": ClassLabel(names=["no", "yes", "perhaps", "later"])})
    assert resolve_task(DataArguments(), Dataset.from_dict({"label": [0, 1]}, features=names)).num_labels == 4
    assert resolve_task(DataArguments(), Dataset.from_dict({"teacher_logits": [[1.0], [2.0]]})).num_labels == 1


@pytest.mark.parametrize(
    ("labels", "message"),
    [
        ([0, 1, 2, 3], "The number of labels is unknown, as the labels are 0, 1, 2, 3: pass `num_labels`"),
        ([1, 2], "The number of labels is unknown, as the labels are 1, 2: pass"),
        (["yes", "no"], "The labels are no, yes: convert names of classes to numbers, from 0 on"),
        ([0, 0], "The number of labels is unknown, as the labels are 0: pass"),
        ([None], "The number of labels is unknown, as there are none: pass"),
    ],
)
def test_labels_that_do_not_tell_their_number(labels, message):
    with pytest.raises(ValueError, match=message):
        resolve_task(DataArguments(), Dataset.from_dict({"label": labels}))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        ({"task_name": "sts-b"}, "Unknown task 'sts-b': the known tasks are stsb, mrpc, qqp, qnli, mnli"),
        ({}, "The number of labels is unknown: pass `task_name`"),
        ({"task_name": "stsb", "num_labels": 2}, "num_labels=2 contradicts task 'stsb', which has 1"),
    ],
)
def test_resolving_a_task_says_what_is_wrong(arguments, message):
    with pytest.raises(ValueError, match=message):
        resolve_task(DataArguments(**arguments))


@pytest.mark.parametrize("arguments", [{"num_labels": 0}, {"max_train_samples": 0}, {"max_eval_samples": -1}])
def test_arguments_out_of_range(arguments):
    name = next(iter(arguments))
    with pytest.raises(ValueError, match=f"{name}=.*must be"):
        DataArguments(**arguments)


# Reading


@pytest.mark.parametrize("ending", [".csv", ".json", ".jsonl", ".parquet"])
def test_every_format_keeps_the_texts(tmp_path, ending):
    pairs = load(tmp_path, ROWS, ending)
    assert pairs.to_list() == ROWS
    assert pairs.features["label"] == datasets.Value("float64")


def test_a_byte_order_mark_is_no_part_of_a_column_name(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("sentence1,sentence2,label\na,b,1\n", encoding="utf-8-sig")
    assert list(read_columns(path)) == ["sentence1", "sentence2", "label"]


def test_other_columns_are_dropped_and_classes_are_integers(tmp_path):
    rows = [pair(question1="x", question2="y", label=1.0, id=7), pair(question1="z", question2="w", label=0.0, id=8)]
    pairs = load(tmp_path, rows, task_name="qqp")
    assert pairs.to_list() == [
        {"sentence1": "x", "sentence2": "y", "label": 1},
        {"sentence1": "z", "sentence2": "w", "label": 0},
    ]
    assert pairs.features["label"] == datasets.Value("int64")


def test_the_plain_column_names_also_serve(tmp_path):
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


def test_a_folder_holds_splits(tmp_path):
    for name in ("train.csv", "validation.jsonl", "extra.parquet"):
        write(tmp_path / name, ROWS)
    write(tmp_path / "test-00000-of-00002.parquet", ROWS[:2])
    write(tmp_path / "test-00001-of-00002.parquet", ROWS[2:])
    (tmp_path / "README.md").write_text("about")
    arguments = DataArguments(task_name="stsb", dataset_name=str(tmp_path), max_train_samples=2, max_eval_samples=1)
    assert {split: len(part) for split, part in load_pairs(arguments).items()} == {
        "train": 2,
        "validation": 1,
        "test": 1,
    }
    arguments = DataArguments(task_name="stsb", dataset_name=str(tmp_path))
    assert {split: part.to_list() for split, part in load_pairs(arguments, ["extra", "test"]).items()} == {
        "extra": ROWS,
        "test": ROWS,
    }


@pytest.mark.parametrize(
    ("load", "example"),
    [
        (load_pairs, 'DataArguments(dataset_name="folder")'),
        (load_rankings, 'DataArguments(dataset_name="folder")'),
        (load_corpus, 'DataArguments(corpus_file="folder")'),
        (load_model, 'ModelArguments("user/model")'),
    ],
)
def test_a_name_alone_is_refused(load, example):
    with pytest.raises(TypeError, match=re.escape(f"and this is a `str`: pass `{example}`")):
        load("pairs")


def test_a_file_is_the_train_split(tmp_path):
    arguments = DataArguments(task_name="stsb", dataset_name=write(tmp_path / "pairs.csv", ROWS))
    assert {split: part.to_list() for split, part in load_pairs(arguments).items()} == {"train": ROWS}
    with pytest.raises(FileNotFoundError, match="pairs.csv has no split validation; the splits are train"):
        load_pairs(arguments, ["validation"])


def test_a_file_takes_the_place_of_a_folders_split(tmp_path):
    write(tmp_path / "train.csv", ROWS)
    other = write(tmp_path / "other.csv", ROWS[:1])
    arguments = DataArguments(task_name="stsb", dataset_name=str(tmp_path), train_file=other)
    assert len(load_pairs(arguments)["train"]) == 1


def test_glue_is_the_default_and_its_hidden_labels_are_left_out(monkeypatch, warnings):
    asked = []

    def load_dataset(*arguments):
        asked.append(arguments)
        rows = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "idx": [0, 1]}
        part = datasets.Dataset.from_dict(rows | {"label": [2, 0]})
        return datasets.DatasetDict(
            train=part,
            validation_matched=part,
            validation_mismatched=part,
            test_matched=datasets.Dataset.from_dict(rows | {"label": [-1, -1]}),
        )

    monkeypatch.setattr("hf_dse.data.pairs.load_dataset", load_dataset)
    pairs = load_pairs(DataArguments(task_name="mnli"))
    assert asked == [("nyu-mll/glue", "mnli")]
    assert {split: part.column_names for split, part in pairs.items()} == {
        "train": ["sentence1", "sentence2", "label"],
        "validation": ["sentence1", "sentence2", "label"],
        "test": ["sentence1", "sentence2"],
    }
    assert len(warnings) == 1 and "Split 'test': every label is -1" in warnings[0]
    assert "validation_mismatched" in load_pairs(DataArguments(task_name="mnli"), ["validation_mismatched"])
    load_pairs(DataArguments(num_labels=3, dataset_name="org/pairs", sentence1_column="premise",
                             sentence2_column="hypothesis"))  # fmt: skip
    assert asked[-1] == ("org/pairs", None)


def test_unlabelled_pairs_only_where_they_are_allowed(tmp_path):
    path = write(tmp_path / "pairs.csv", [{"sentence1": "a", "sentence2": "b"}])
    arguments = DataArguments(task_name="stsb", train_file=path)
    assert load_pairs(arguments, require_labels=False)["train"].column_names == ["sentence1", "sentence2"]
    with pytest.raises(ValueError, match="there is no column 'label'; the columns are sentence1, sentence2"):
        load_pairs(arguments)


# Bad input


@pytest.mark.parametrize("ending", [".csv", ".jsonl", ".parquet"])
@pytest.mark.parametrize(
    ("rows", "arguments", "message"),
    [
        ([{"a": "x", "sentence2": "y", "label": 1}], {}, "no column 'sentence1'; the columns are a, sentence2, label"),
        ([pair()], {"sentence1_column": "text"}, "no column 'text'; the columns are sentence1, sentence2, label"),
        ([pair(), pair(label="high")], {}, "Split 'train', row 1: the label 'high' is not a number"),
        ([pair(), pair(label="")], {}, r"row 1: the label '' is not a number \(1 such rows\)"),
        ([pair(), pair(label="nan"), pair(label="nan")], {}, r"row 1: the label is 'nan' \(2 such rows\)"),
        ([pair(), pair(label="inf")], {}, "row 1: the label is 'inf'"),
        ([pair(), pair(label=2)], {"task_name": "mrpc"}, r"row 1: the label '?2'? is outside 0..1"),
        ([pair(label=-1), pair()], {"task_name": "mrpc"}, r"row 0: the label '?-1'? is outside 0..1"),
        ([pair(), pair(label=0.5)], {"task_name": "mrpc"}, "row 1: the label '?0.5'? is outside 0..1"),
        ([pair(label=3)], {"task_name": None, "num_labels": 3}, "pass the `num_labels` of the data"),
        ([pair(), pair(sentence2=" \t")], {}, r"row 1: sentence2 is empty \(1 such rows\)"),
        ([pair(sentence1="")], {}, "row 0: sentence1 is empty .* drop such pairs with `drop_empty_sentences`"),
        ([pair(teacher_logits="high")], {}, "row 0: teacher_logits 'high' are not finite numbers"),
        ([pair(teacher_logits="[1, NaN]")], {}, "row 0: teacher_logits .* are not finite numbers"),
        ([pair(teacher_logits="[1]"), pair(teacher_logits="[1, 2]")], {}, "row 1: 2 teacher_logits, but 1 in row 0"),
    ],
)
def test_bad_rows(tmp_path, ending, rows, arguments, message):
    if ending == ".parquet" and len({type(row.get("label")) for row in rows}) > 1:
        rows = [row | {"label": str(row["label"])} for row in rows]
    with pytest.raises(ValueError, match=message):
        load(tmp_path, rows, ending, **arguments)


@pytest.mark.parametrize("ending", [".jsonl", ".parquet"])
def test_missing_values(tmp_path, ending):
    with pytest.raises(ValueError, match="row 1: the label None is not a number"):
        load(tmp_path, [pair(), pair(label=None)], ending)
    with pytest.raises(ValueError, match="row 1: sentence1 is empty"):
        load(tmp_path, [pair(), pair(sentence1=None)], ending)
    with pytest.raises(ValueError, match="row 0: sentence2 is 5, not a string"):
        load(tmp_path, [pair(sentence2=5)], ending)
    with pytest.raises(ValueError, match="row 1: the label is nan"):
        load(tmp_path, [pair(), pair(label=float("nan"))], ending)


def test_empty_sentences_may_be_dropped(tmp_path, warnings):
    rows = [
        pair(teacher_logits=[1.0]),
        pair(sentence1=None, teacher_logits=[2.0]),
        pair(label=0, teacher_logits=[3.0]),
    ]
    pairs = load(tmp_path, rows, drop_empty_sentences=True)
    assert (pairs["label"][:], pairs["teacher_logits"][:]) == ([1.0, 0.0], [[1.0], [3.0]])
    assert warnings == ["Split 'train': dropped 1 pairs with an empty sentence."]


def test_many_empty_sentences_take_no_longer(tmp_path):
    rows = [pair(sentence1=None if row == 7 else f"a {row}", label=row % 2) for row in range(32_000)]
    start = time.process_time()
    pairs = load(tmp_path, rows, drop_empty_sentences=True)
    assert pairs["label"][:] == [row % 2 for row in range(32_000) if row != 7]
    # 16 s, when the column was read once for each row.
    assert time.process_time() - start < 8


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("pairs.jsonl", '{"label": 1}\n{"label": \n', "line 2: not valid JSON"),
        ("pairs.json", '[{"label": 1},', "line 1: not valid JSON"),
        ("pairs.jsonl", '"text"\n', "every row must be a JSON object"),
        ("pairs.csv", "a,b\n1,2,3\n", "line 2: expected 2 cells"),
        ("pairs.csv", "a,b\n1\n", "line 2: expected 2 cells"),
        ("pairs.csv", 'a,b\n1,"2\n', "not valid csv: unexpected end of data"),
        ("pairs.parquet", "no parquet", "not a readable parquet file"),
        ("pairs.txt", "a", "unsupported ending '.txt'; supported are .csv, .json, .jsonl, .parquet"),
    ],
)
def test_unreadable_files(tmp_path, name, content, message):
    (tmp_path / name).write_text(content)
    with pytest.raises(ValueError, match=message):
        read_columns(tmp_path / name)


def test_missing_files_and_splits(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.csv: there is no such file"):
        load_pairs(DataArguments(task_name="stsb", train_file=str(tmp_path / "nowhere.csv")))
    with pytest.raises(FileNotFoundError, match="nowhere: there is no such folder"):
        load_pairs(DataArguments(task_name="stsb", dataset_name=str(tmp_path / "nowhere")))
    with pytest.raises(FileNotFoundError, match="has no split train or validation or test; the splits are none"):
        load_pairs(DataArguments(task_name="stsb", dataset_name=str(tmp_path)))
    write(tmp_path / "train.csv", ROWS)
    with pytest.raises(FileNotFoundError, match="has no split test; the splits are train"):
        load_pairs(DataArguments(task_name="stsb", dataset_name=str(tmp_path)), ["test"])
    with pytest.raises(ValueError, match="No data: pass `dataset_name`"):
        load_pairs(DataArguments(num_labels=2))


def test_folders_that_are_not_clear(tmp_path):
    write(tmp_path / "train.csv", ROWS)
    write(tmp_path / "train.jsonl", ROWS)
    with pytest.raises(ValueError, match="Several files for split 'train'"):
        load_pairs(DataArguments(task_name="stsb", dataset_name=str(tmp_path)))
    (tmp_path / "train.csv").rename(tmp_path / "test.tsv")
    with pytest.raises(ValueError, match="test.tsv: unsupported ending '.tsv'"):
        load_pairs(DataArguments(task_name="stsb", dataset_name=str(tmp_path)))


def test_a_split_without_rows(tmp_path):
    path = tmp_path / "train.csv"
    path.write_text("sentence1,sentence2,label\n")
    with pytest.raises(ValueError, match="Split 'train' has no rows"):
        load_pairs(DataArguments(task_name="stsb", train_file=str(path)))


# Tokenization


FEATURES = [
    {"sentence1": "the cat sat", "sentence2": "a dog", "label": 1.5, "teacher_logits": [0.5, 2.0], "length": 5},
    {"sentence1": "a", "sentence2": "the dog ran on the mat", "label": 4.0, "teacher_logits": [1.0, 0.0], "length": 8},
]


def test_lengths(tokenizer):
    pairs = datasets.Dataset.from_list(FEATURES)
    assert lengths(pairs, tokenizer)["length"][:] == [5, 8]
    assert lengths(pairs, tokenizer, joint=True)["length"][:] == [8, 10]
    assert lengths(pairs, tokenizer, joint=True, max_length=9)["length"][:] == [8, 9]


def test_the_pair_collator_encodes_each_sentence_alone(tokenizer):
    batch = PairCollator(tokenizer, max_length=16)(FEATURES)
    assert batch.keys() == {"input_ids", "attention_mask", "labels", "teacher_logits"}
    assert batch["input_ids"].shape == batch["attention_mask"].shape == (2, 2, 8)
    for row, feature in enumerate(FEATURES):
        for place, name in enumerate(("sentence1", "sentence2")):
            real = batch["input_ids"][row, place][batch["attention_mask"][row, place].bool()]
            assert real.tolist() == tokenizer(feature[name])["input_ids"]
    assert torch.equal(batch["labels"], torch.tensor([1.5, 4.0]))
    assert torch.equal(batch["teacher_logits"], torch.tensor([[0.5, 2.0], [1.0, 0.0]]))


def test_collators_without_labels_and_with_classes(tokenizer):
    pairs = [{"sentence1": "a", "sentence2": "cat"}]
    assert PairCollator(tokenizer, max_length=16)(pairs).keys() == {"input_ids", "attention_mask"}
    batch = CrossEncoderCollator(tokenizer, max_length=16)([pairs[0] | {"label": 2}])
    assert torch.equal(batch["labels"], torch.tensor([2]))


def test_mixing_pairs():
    labelled = datasets.Dataset.from_dict({"sentence1": ["a"], "sentence2": ["b"], "label": [1.0], "other": [0]})
    unlabelled = datasets.Dataset.from_dict(
        {"sentence1": ["c"], "sentence2": ["d"], "label": [9.0], "teacher_logits": [[2.0]]}
    )
    mixed = mix_pairs(labelled, unlabelled, 1.0, 0.5)
    assert mixed.to_list() == [
        {"sentence1": "a", "sentence2": "b", "label": 1.0, "weight": 1.0, "teacher_logits": None},
        {"sentence1": "c", "sentence2": "d", "label": None, "weight": 0.5, "teacher_logits": [2.0]},
    ]
    with pytest.raises(ValueError, match="no column 'teacher_logits', only sentence1, sentence2, label"):
        mix_pairs(labelled, labelled.remove_columns("other"))
    with pytest.raises(ValueError, match="Weights must be finite numbers of at least 0, got 1.0 and -1.0"):
        mix_pairs(labelled, unlabelled, 1.0, -1.0)


def test_the_collator_fills_gaps_with_nan(tokenizer):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 1, "teacher_logits": None, "weight": 1.0}]
    rows += [{"sentence1": "a", "sentence2": "b", "label": None, "teacher_logits": [2.0, 3.0], "weight": 0.5}]
    batch = PairCollator(tokenizer, 16)(rows)
    assert batch["labels"][0] == 1.0 and batch["labels"][1].isnan()
    assert batch["teacher_logits"][0].isnan().all() and batch["teacher_logits"][1].tolist() == [2.0, 3.0]
    assert batch["weights"].tolist() == [1.0, 0.5]


def test_cut_sentences_are_counted_and_warned_about_once(tokenizer, warnings):
    collator = PairCollator(tokenizer, max_length=5)
    batch = collator(FEATURES)
    assert batch["input_ids"].shape == (2, 2, 5)
    # "the cat sat" fills the limit but is whole; only the longest sentence is cut, and keeps its [SEP].
    assert collator.n_truncated == 1
    assert batch["input_ids"][1, 1, -1] == tokenizer.sep_token_id
    collator(FEATURES[1:] * 2)
    assert collator.n_truncated == 3
    assert len(warnings) == 1 and "1 of 4 sentences" in warnings[0] and "raise `max_length`" in warnings[0]


def test_the_cross_encoder_collator_encodes_pairs(tokenizer):
    batch = CrossEncoderCollator(tokenizer, max_length=9)(FEATURES)
    expected = tokenizer(
        [feature["sentence1"] for feature in FEATURES],
        [feature["sentence2"] for feature in FEATURES],
        truncation="longest_first",
        max_length=9,
        padding=True,
    )
    assert {name: batch[name].tolist() for name in expected} == dict(expected)
    assert batch["input_ids"].shape == (2, 9)


def test_swapping_follows_the_seed_and_shows_both_orders(tokenizer):
    collator = CrossEncoderCollator(tokenizer, max_length=16, swap=True)
    plain = CrossEncoderCollator(tokenizer, max_length=16)([FEATURES[0]])["input_ids"]
    turned = tokenizer([FEATURES[0]["sentence2"]], [FEATURES[0]["sentence1"]], return_tensors="pt")["input_ids"]

    def draw():
        torch.manual_seed(0)
        return [collator([FEATURES[0]])["input_ids"] for _ in range(200)]

    first = draw()
    swapped = [torch.equal(ids, turned) for ids in first]
    assert all(torch.equal(ids, turned if swap else plain) for ids, swap in zip(first, swapped, strict=True))
    assert 70 < sum(swapped) < 130
    assert all(torch.equal(a, b) for a, b in zip(first, draw(), strict=True))
    # Only the sentences change places: the labels stay with their pairs.
    assert torch.equal(collator(FEATURES)["labels"], torch.tensor([1.5, 4.0]))
