# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Local tables: values stay as they are, and damaged files are named."""

import csv
import gzip
import io
import json
import math

import numpy as np
import pandas as pd
import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse.data.options import DataArguments
from hf_dse.data.pairs import load_pairs
from hf_dse.data.ranking_files import load_corpus, load_rankings
from hf_dse.data.tables import column_names, is_filled, open_table, to_table, write_table
from hf_dse.data.texts import read_texts


FUZZ = settings(max_examples=80, deadline=None, derandomize=True, database=None)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def write_all(folder, rows):
    """Writes rows of texts in every format, and returns the files."""
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    return [
        write(folder / "a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows)),
        write(folder / "a.json", json.dumps(rows)),
        write(folder / "a.csv", text.getvalue()),
        write_parquet(folder / "a.parquet", **columns),
    ]


# Good files


def test_texts_that_look_like_other_values(tmp_path):
    """With `load_dataset`, ids become numbers, words become `None`, and dates become times."""
    values = ["007", "NA", "null", "nan", "2020-01-01", "1e5", "True", "", " a ", 'b "c", d', "e\nf", "\u2028", "[1]"]
    for path in write_all(tmp_path, [{"id": value, "text": value} for value in values]):
        table = open_table(path)
        columns = {name: table[name][:] for name in column_names(table)}
        assert columns == {"id": values, "text": values}, path.suffix


def test_values_of_json_stay(tmp_path):
    rows = [{"a": 1, "b": [1, None], "c": "x"}, {"a": "1", "b": 0.5, "d": {"e": 2**70}}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    columns = {"a": [1, "1"], "b": [[1, None], 0.5], "c": ["x", None], "d": [None, {"e": 2**70}]}
    assert open_table(path) == columns


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", "\ufefftext\na\nb\n"),
        ("crlf.csv", "text\r\na\r\n\r\nb\r\n"),
        ("bom.jsonl", '\ufeff{"text": "a"}\r\n{"text": "b"}\r\n'),
    ],
)
def test_odd_files_that_are_fine(tmp_path, name, content):
    assert open_table(write(tmp_path / name, content)) == {"text": ["a", "b"]}


def test_quoted_cells_of_tsv_files_are_read_as_programs_write_them(tmp_path):
    frame = pd.DataFrame({"id": ["1", "2"], "text": ['Rain is "water"', 'two\nlines, "both"']})
    frame.to_csv(tmp_path / "a.tsv", sep="\t", index=False)
    assert open_table(tmp_path / "a.tsv") == frame.to_dict("list")


def test_quotation_marks_of_tsv_files_are_text(tmp_path):
    # From one quotation mark to the other it would be a single row.
    text = 'id\tquery\n1\t"a\n2\tb"\n'
    assert open_table(write(tmp_path / "b.tsv", text)) == {"id": ["1", "2"], "query": ['"a', 'b"']}
    assert open_table(write(tmp_path / "a.tsv", 'id\tquery\n1\t"a" b\n')) == {"id": ["1"], "query": ['"a" b']}


def test_a_cell_may_hold_a_long_document(tmp_path):
    text = "word " * 200_000
    assert open_table(write(tmp_path / "a.csv", f"text\n{text}\n")) == {"text": [text]}


def test_columns_that_are_passed_on_keep_their_types(tmp_path):
    """Nanoseconds were cut to microseconds: two rows became equal."""
    others = {
        "time": pyarrow.array([1_700_000_000_123_456_789, 1_700_000_000_123_456_790], pyarrow.timestamp("ns")),
        "number": pyarrow.array([1.5, None], pyarrow.float16()),
        "money": pyarrow.array(["1.50", "2.00"]).cast(pyarrow.decimal128(5, 2)),
    }
    path = write_parquet(
        tmp_path / "a.parquet", sentence1=["a", "b"], sentence2=["c", "d"], label=[1.0, 0.0], **others
    )
    pairs = load_pairs(DataArguments(train_file=str(path), num_labels=1), keep_columns=True)["train"]
    write_table([pairs], tmp_path / "b.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    for name, column in others.items():
        assert found[name].combine_chunks().equals(column), name


def test_blank_texts_have_nothing_to_see():
    blank = ["", " \n", "\u200b", "\xad", "\ufeff\u200e", "\x00"]
    assert not any(map(is_filled, [*blank, None, 1]))
    assert all(map(is_filled, ["a", "\u200ba", ".", "😀", "ก"]))


def test_lines_are_json(tmp_path):
    """NaN and infinity are not, and nanoseconds are more than Python has."""
    times = {"time": pyarrow.array([1], pyarrow.time64("ns")), "at": pyarrow.array([1], pyarrow.timestamp("ns"))}
    table = pyarrow.table(times | {"x": [math.inf], "list": [[math.nan, 1.0]], "dict": [{"y": -math.inf}]})
    write_table([Dataset(table)], tmp_path / "a.jsonl")
    (line,) = (tmp_path / "a.jsonl").read_text().splitlines()
    assert json.loads(line, parse_constant=pytest.fail) == {
        "time": "00:00:00.000000001", "at": "1970-01-01 00:00:00.000000001", "x": None, "list": [None, 1.0],
        "dict": {"y": None},
    }  # fmt: skip


# Bad files


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("rows.jsonl", '{"text": "a"}\n[1]\n', "every row must be a JSON object"),
        ("cut.jsonl", '{"text": "a"}\n{"te', "line 2: not valid JSON"),
        ("empty.csv", "", "has no columns: the file is empty"),
        ("twice.csv", "text,text\na,b\n", "line 1: not valid csv: two columns have one name: text, text"),
        ("long.csv", "text,x\na,b,c\n", "line 2: not valid csv: 3 cells, and 2 in the header"),
        ("latin.csv", "text\ncaf\xe9\n".encode("latin-1"), "latin.csv: not a text in UTF-8: .*decompress"),
        ("packed.jsonl.gz", gzip.compress(b'{"text": "a"}\n'), "unsupported ending '.gz'; supported are .csv, .tsv"),
        ("text.parquet", b"text\n", "not a readable parquet file"),
        ("half.jsonl", '{"text": "a"}\n{"text": "a \\ud83d b"}\n', "half.jsonl, line 2: half of a character"),
        ("wide.txt.csv", "text\na\n".encode("utf-16-le"), "not a text in UTF-8: it has the character NUL"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 30 else "",
)
def test_unreadable_files(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        open_table(write(tmp_path / name, content))


# Any table

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(["1", "nan", "[1]", " "]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(
    "sentence1 sentence2 label teacher_logits query documents labels scores query_id document_ids doc_id text title "
    "pos neg positive negative pos_scores neg_scores embedding id".split()
)


def read_all(path):
    """Reads a file as every kind of data: as it is, or with an error that says something."""
    data_args = DataArguments(train_file=str(path), num_labels=1)
    for read in (
        lambda: load_pairs(data_args, require_labels=False)["train"],
        lambda: load_pairs(DataArguments(train_file=str(path), num_labels=3)),
        lambda: load_rankings(str(path)),
        lambda: load_corpus(str(path)),
        lambda: read_texts(path),
    ):
        try:
            found = read()
        except (ValueError, OSError) as error:
            assert str(error).strip()
        else:
            if isinstance(found, Dataset) and "label" in found.column_names:
                assert np.isfinite(found["label"][:]).all() and all(map(str.strip, found["sentence1"][:]))


@FUZZ
@given(rows=st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_rows_of_any_values(folder, rows):
    read_all(write(folder / "rows.jsonl", "\n".join(map(json.dumps, rows))))


@pytest.mark.parametrize(
    "values",
    [
        [{"lang": "en"}, {"year": 2020}, {}, None],
        [[{"a": 1}], [{"b": 2}], []],
        [{"deep": {"a": 1}}, {"deep": {"b": 1}}],
        [{"deep": {}}, {"deep": {}}],
        [{"v": 1}, {"v": "x"}],
        [[1], ["x"], 3],
        [{f"key{row}": row} for row in range(300)],
    ],
)
def test_objects_keep_their_own_keys(values, tmp_path):
    """Arrow would give each the keys of all, and has one type for a key."""
    write_table([Dataset(to_table({"text": ["a"] * len(values), "metadata": values}, "w"))], tmp_path / "a.parquet")
    found = open_table(tmp_path / "a.parquet")["metadata"][:]
    assert [None if value is None else json.loads(value) for value in found] == values


def test_columns_of_one_type_are_not_texts():
    same = {"objects": [{"a": 1, "b": [2]}, {"b": None, "a": 3}], "lists": [[1], [2.5]], "numbers": [1, 2.5]}
    assert to_table(same, "w").to_pydict() == same
    with pytest.raises(ValueError, match="w: the column 'id' has values of several types: .* Write all as texts, or"):
        to_table({"id": [1, "x"]}, "w")


def test_scored_pairs_keep_the_objects_of_their_rows(tmp_path):
    rows = [{"sentence1": "a", "sentence2": "b", "label": 1.0, "meta": meta} for meta in ({"x": 1}, {"y": [2]})]
    (tmp_path / "train.jsonl").write_text("\n".join(map(json.dumps, rows)))
    args = DataArguments(train_file=str(tmp_path / "train.jsonl"), num_labels=1)
    pairs = load_pairs(args, keep_columns=True)["train"]
    assert list(map(json.loads, pairs["meta"])) == [{"x": 1}, {"y": [2]}]


@pytest.mark.parametrize("write_cell", [json.dumps, repr])
def test_lists_in_cells_of_csv_are_lists(tmp_path, write_cell):
    """As JSON or Python writes them; other cells in brackets are texts."""
    columns = {
        "texts": [["Cats.", 'Dogs\' "bed"'], ["a"]],
        "numbers": [[1, 0.5], [-2.0]],
        "gaps": [["a"], None],
    }
    cells = {name: ["" if value is None else write_cell(value) for value in rows] for name, rows in columns.items()}
    cells |= {"said": ["[Music]", "[Applause] [1]"], "some": ["['a']", "b"]}
    pd.DataFrame(cells).to_csv(tmp_path / "a.csv", index=False)
    assert open_table(tmp_path / "a.csv") == cells | columns


@pytest.mark.parametrize("cell", ["['Cats.' 'Dogs.']", "['a', nan, 'b']", "['Cats.'\n 'Dogs.']"])
def test_lists_that_csv_cannot_hold_are_named(tmp_path, cell):
    pd.DataFrame({"negatives": ["['a']", cell]}).to_csv(tmp_path / "a.csv", index=False)
    with pytest.raises(
        ValueError, match=r"a.csv, negatives, row 1: .* is a list that csv cannot hold: write jsonl or"
    ):
        open_table(tmp_path / "a.csv")


def test_a_quotation_mark_swallows_no_rows(tmp_path):
    """Also where it would stand in the header, as in queries of MS MARCO without one."""
    (tmp_path / "queries.tsv").write_text('q1\t"why not\nq2\tplain\nq3\tthe end"\nq4\tdogs\n')
    assert open_table(tmp_path / "queries.tsv") == {
        "q1": ["q2", "q3", "q4"],
        '"why not': ["plain", 'the end"', "dogs"],
    }


@pytest.mark.parametrize("rows", ['{"label": 1, "label": 5}', '[{"a": {"b": 1, "b": 2}}]'])
def test_doubled_keys_are_refused(rows, tmp_path):
    (tmp_path / "a.jsonl").write_text(rows)
    with pytest.raises(ValueError, match="a.jsonl, line 1: not valid JSON: duplicate key '(label|b)'"):
        open_table(tmp_path / "a.jsonl")
