# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The splits of files, folders and data sets."""

import json

import pytest
from datasets import Dataset, DatasetDict

from hf_dse.data import pairs as pairs_module
from hf_dse.data.options import DataArguments
from hf_dse.data.pairs import load_pairs
from hf_dse.data.ranking_files import is_ranking_data, load_corpus, load_rankings
from hf_dse.data.texts import read_texts


ROWS = {"sentence1": ["a", "b", "c"], "sentence2": ["d", "e", "f"], "label": [0.5, 1.5, 2.5]}
PAIRS = Dataset.from_dict(ROWS)


def load(name, splits=None, **options):
    pairs = load_pairs(DataArguments(dataset_name=str(name), num_labels=1, **options), splits)
    return {split: part.to_dict() for split, part in pairs.items()}


def save_configs(folder, parts):
    """Writes the card of a data set, which names its configurations and the file of each split."""
    configs = [
        {"config_name": name, "data_files": [{"split": split, "path": path} for split, path in files.items()]}
        for name, files in parts.items()
    ]
    (folder / "README.md").write_text(f"---\nconfigs: {json.dumps(configs)}\n---\n")


def test_a_folder_holds_splits(tmp_path):
    PAIRS.to_csv(tmp_path / "train.csv")
    PAIRS.to_json(tmp_path / "validation.jsonl")
    PAIRS.to_parquet(tmp_path / "extra.parquet")
    PAIRS.to_parquet(tmp_path / "Testing.parquet")
    (tmp_path / "dataset_infos.json").write_text("{}")
    (tmp_path / "README.md").write_text("about")
    assert load(tmp_path) == {"train": ROWS, "validation": ROWS, "test": ROWS}
    assert load(tmp_path, ["extra"]) == {"extra": ROWS}
    limited = load(tmp_path, max_train_samples=2, max_eval_samples=1)
    assert {split: len(part["label"]) for split, part in limited.items()} == {"train": 2, "validation": 1, "test": 1}
    # A file takes the place of the folder's split.
    PAIRS.select([1]).to_json(tmp_path / "other.jsonl")
    assert len(load(tmp_path, train_file=str(tmp_path / "other.jsonl"))["train"]["label"]) == 1


@pytest.mark.parametrize("layout", ["snapshot", "save_to_disk", "save_to_disk of one split"])
def test_data_sets_as_folders(tmp_path, layout):
    """A README beside `data/*.parquet` was taken for the texts of a corpus, and `save_to_disk` had no splits."""
    folder = tmp_path / "set"
    rows = Dataset.from_dict({**ROWS, "doc_id": ["x", "y", "z"], "text": ["Ships.", "2020-01-01", "Bread."]})
    if layout == "snapshot":
        (folder / "data").mkdir(parents=True)
        # Its card lacks most columns, with which `load_dataset` fails.
        card = "---\ndataset_info:\n  features:\n  - name: text\n    dtype: string\n---\n# A card\n"
        (folder / "README.md").write_text(card)
        for number, part in enumerate(([0, 1], [2])):
            rows.select(part).to_parquet(folder / "data" / f"train-0000{number}-of-00002.parquet")
    else:
        (rows if layout == "save_to_disk of one split" else DatasetDict(train=rows)).save_to_disk(folder)
    assert load(folder) == {"train": ROWS}
    for name in [folder, *([folder / "data"] if layout == "snapshot" else [])]:
        corpus = load_corpus(name)
        assert (corpus["doc_id"][:], corpus["text"][:]) == (["x", "y", "z"], rows["text"][:])
        assert read_texts(name)["text"] == rows["text"][:]
    queries = Dataset.from_dict({"query": ["q"], "positive": ["a"], "negative": ["b"]})
    DatasetDict(train=queries).save_to_disk(tmp_path / "rankings")
    assert is_ranking_data(DataArguments(dataset_name=str(tmp_path / "rankings"))) and not is_ranking_data(
        DataArguments(dataset_name=str(folder))
    )
    assert len(load_rankings(tmp_path / "rankings")["train"]) == 1


def test_texts_beside_tables(tmp_path, warnings):
    (tmp_path / "README.md").write_text("about")
    (tmp_path / ".hidden.md").write_text("hidden")
    (tmp_path / "notes.md").write_text("a note")
    PAIRS.to_parquet(tmp_path / "rows.parquet")
    assert read_texts(tmp_path) == {"file": ["README.md", "notes.md"], "text": ["about", "a note"]}
    assert "1 files or links are not read, such as rows.parquet" in warnings[0]
    (tmp_path / "notes.md").unlink()
    PAIRS.to_parquet(tmp_path / "more.parquet")
    with pytest.raises(ValueError, match="has the splits more, rows: name a file of texts, or a table"):
        read_texts(tmp_path)


def test_configurations_of_a_data_set(tmp_path, monkeypatch, warnings):
    """GLUE is the default; the labels of its test set are hidden."""
    rows = {"premise": ["a", "b"], "hypothesis": ["c", "d"], "idx": [0, 1]}
    for name, labels in (("train", [2, 0]), ("validation_matched", [1, 1]), ("test_matched", [-1, -1])):
        Dataset.from_dict({**rows, "label": labels}).to_parquet(tmp_path / f"{name}.parquet")
    names = ["train", "validation_matched", "test_matched"]
    save_configs(tmp_path, {"mnli": {name: f"{name}.parquet" for name in names}, "other": {"train": "train.parquet"}})
    monkeypatch.setattr(pairs_module, "GLUE", str(tmp_path))
    pairs = load_pairs(DataArguments(task_name="mnli"))
    others = {split: part.column_names[2:] for split, part in pairs.items()}
    assert others == {"train": ["label"], "validation": ["label"], "test": []}
    assert "Split 'test': every label is -1" in warnings[0]
    assert "Split 'train': no pair has the class neutral." in warnings
    assert pairs["train"].features["label"].names == ["entailment", "neutral", "contradiction"]
    columns = {"sentence1_column": "premise", "sentence2_column": "hypothesis"}
    found = load_pairs(DataArguments(num_labels=3, dataset_name=str(tmp_path), dataset_config_name="other", **columns))
    assert list(found) == ["train"]
    for name in (None, str(tmp_path / "train.parquet")):
        with pytest.raises(
            ValueError, match="dataset_config_name=other is for a data set of the Hub, or a folder, with"
        ):
            load_pairs(DataArguments(num_labels=3, dataset_name=name, dataset_config_name="other", **columns))


def test_missing_files_and_splits(tmp_path):
    with pytest.raises(FileNotFoundError, match="nowhere.csv"):
        load_pairs(DataArguments(task_name="stsb", train_file=str(tmp_path / "nowhere.csv")))
    with pytest.raises(FileNotFoundError, match="The folder .* has no table such as train.csv or test.jsonl,"):
        load(tmp_path)
    (tmp_path / "docs").mkdir()
    (tmp_path / "docs" / "a.md").write_text("A cat sat.")
    with pytest.raises(FileNotFoundError, match="for documents to search in, pass `--corpus`"):
        load(tmp_path / "docs")
    with pytest.raises(ValueError, match="No data: pass `dataset_name`"):
        load_pairs(DataArguments(num_labels=2))


@pytest.mark.parametrize("name", ["train.jsonl", "training.csv", "train-00000-of-00002.parquet"])
def test_several_tables_of_a_split(tmp_path, name):
    for file in ("train.csv", name):
        (tmp_path / file).write_text("")
    with pytest.raises(ValueError, match=f"has several tables for a split, or parts of one: .*{name}.*; keep one"):
        load(tmp_path)


def test_folders_of_several_data_sets(tmp_path):
    for name in ("en", "fr"):
        (tmp_path / name / "test").mkdir(parents=True)
        PAIRS.to_parquet(tmp_path / name / "test" / "0000.parquet")
    with pytest.raises(ValueError, match="has several data sets: name the folder of one, .*(en|fr) or .*(en|fr)"):
        load(tmp_path)
    assert load(tmp_path / "fr") == {"test": ROWS}


def test_parts_of_a_split(tmp_path):
    """An incomplete download was read as it is."""
    for number, rows in enumerate(({"text": ["a"]}, {"other": [1]})):
        Dataset.from_dict(rows).to_parquet(tmp_path / f"train-0000{number}-of-00002.parquet")
    with pytest.raises(ValueError, match="the parquet files are not parts of one table"):
        read_texts(tmp_path)
    (tmp_path / "train-00000-of-00002.parquet").unlink()
    with pytest.raises(ValueError, match="should have 2 files by their names, and has 1"):
        read_texts(tmp_path)
    # Only parquet: in JSON, `load_dataset` would change values.
    (tmp_path / "train-00001-of-00002.parquet").rename(tmp_path / "train-00001-of-00002.jsonl")
    with pytest.raises(ValueError, match="keep one table for each split, or only parts in parquet"):
        read_texts(tmp_path)
