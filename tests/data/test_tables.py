# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Local tables: values stay as they are, and damaged files are named."""

import csv
import gzip
import io
import json
from datetime import date
from random import Random

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from datasets import Dataset
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse.data.arguments import DataArguments
from hf_dse.data.pairs import load_pairs
from hf_dse.data.ranking_files import load_corpus, load_rankings
from hf_dse.data.tables import open_table, open_tables, read_columns, write_pairs
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
        assert read_columns(path) == {"id": values, "text": values}, path.suffix


def test_values_of_json_stay(tmp_path):
    rows = [{"a": 1, "b": [1, None], "c": "x"}, {"a": "1", "b": 0.5, "d": {"e": 2**70}}]
    path = write(tmp_path / "a.jsonl", "\n".join(map(json.dumps, rows)))
    columns = {"a": [1, "1"], "b": [[1, None], 0.5], "c": ["x", None], "d": [None, {"e": 2**70}]}
    assert read_columns(path) == columns


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", "\ufefftext\na\nb\n"),
        ("crlf.csv", "text\r\na\r\nb\r\n"),
        ("quoted.csv", '"text"\n"a"\n"b"\n'),
        ("blank.csv", "text\na\n\nb\n\n"),
        ("a.tsv", "text\na\nb\n"),
        ("bom.jsonl", '\ufeff{"text": "a"}\r\n{"text": "b"}\r\n'),
        ("blank.jsonl", '\n{"text": "a"}\n\n{"text": "b"}\n\n'),
    ],
)
def test_odd_files_that_are_fine(tmp_path, name, content):
    assert read_columns(write(tmp_path / name, content)) == {"text": ["a", "b"]}


def test_quotation_marks_of_tsv_files_are_text(tmp_path):
    assert read_columns(write(tmp_path / "a.tsv", 'id\tquery\n1\t"a" b\n')) == {"id": ["1"], "query": ['"a" b']}


def test_a_cell_may_hold_a_long_document(tmp_path):
    text = "word " * 200_000
    assert read_columns(write(tmp_path / "a.csv", f"text\n{text}\n")) == {"text": [text]}


def test_escaped_emoji_are_characters(tmp_path):
    path = write(tmp_path / "a.jsonl", '{"text": "\\ud83d\\ude00 \\\\ud800"}\n')
    assert read_columns(path) == {"text": ["😀 \\ud800"]}


def test_shards_of_one_table(tmp_path):
    files = [write_parquet(tmp_path / f"{number}.parquet", text=[f"{number}"]) for number in range(2)]
    assert open_tables(files).to_dict() == {"text": ["0", "1"]}
    files[1] = write(tmp_path / "1.jsonl", '{"text": "1"}')
    assert open_tables(files) == {"text": ["0", "1"]}


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
    write_pairs(pairs, tmp_path / "b.parquet")
    found = pyarrow.parquet.read_table(tmp_path / "b.parquet")
    for name, column in others.items():
        assert found[name].combine_chunks().equals(column), name


# Bad files


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("nested.jsonl", '{"text": ' + "[" * 100_000 + "\n", "line 1: not valid JSON: maximum recursion depth"),
        ("long number.jsonl", '{"text": "a", "n": ' + "9" * 5000 + "}\n", "line 1: not valid JSON: Exceeds the limit"),
        ("rows.jsonl", '{"text": "a"}\n[1]\n', "every row must be a JSON object"),
        ("cut.jsonl", '{"text": "a"}\n{"te', "line 2: not valid JSON"),
        ("cut.json", '[{"label": 1},', "line 1: not valid JSON"),
        ("empty.jsonl", "", "has no columns: the file is empty"),
        ("empty.json", "[]", "has no columns: the file is empty"),
        ("empty.csv", "", "has no columns: the file is empty"),
        ("twice.csv", "text,text\na,b\n", "line 1: not valid csv: two columns have one name: text, text"),
        ("long.csv", "text,x\na,b,c\n", "line 2: not valid csv: 3 cells, and 2 in the header"),
        ("short.csv", 'text,x\n"a\nb",c\nd\n', "line 4: not valid csv: 1 cells, and 2 in the header"),
        ("open.csv", 'text\n"a\n', "not valid csv: unexpected end of data"),
        ("latin.csv", "text\ncaf\xe9\n".encode("latin-1"), "latin.csv: not a text in UTF-8: .*decompress"),
        ("packed.jsonl", gzip.compress(b'{"text": "a"}\n'), "packed.jsonl: not a text in UTF-8"),
        ("packed.jsonl.gz", gzip.compress(b'{"text": "a"}\n'), "unsupported ending '.gz'; supported are .csv, .tsv"),
        ("empty.parquet", b"", "not a readable parquet file"),
        ("text.parquet", b"text\n", "not a readable parquet file"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 30 else "",
)
def test_unreadable_files(tmp_path, name, content, message):
    with pytest.raises(ValueError, match=message):
        read_columns(write(tmp_path / name, content))


def test_damaged_pages_of_parquet(tmp_path):
    content = write_parquet(tmp_path / "b.parquet", text=["a"] * 1000).read_bytes()
    for damaged in (content[:-10], content[:4] + b"\xff" * 20 + content[24:]):
        with pytest.raises(ValueError, match="b.parquet: not a readable parquet file"):
            open_table(write(tmp_path / "b.parquet", damaged))


COLUMNS = {
    "maps": pyarrow.array([[("a", 1)]] * 4, pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    "objects": pyarrow.array([{"a": 1}] * 4),
    "lists": pyarrow.array([[[1.0]]] * 4),
    "infinite": pyarrow.array([0, float("inf"), 1, 2]),
    "words": pyarrow.array(["a", "b", "c", "d"]),
    "dates": pyarrow.array([date(2020, 1, 1)] * 4),
    "durations": pyarrow.array([1, 2, 3, 4], pyarrow.duration("s")),
    "nothing": pyarrow.nulls(4),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_the_wrong_kind(tmp_path, kind):
    """In the place of texts, labels, scores and candidates."""
    texts, others, column = ["the cat"] * 4, ["a", "b", "c", "d"], COLUMNS[kind]
    path = tmp_path / "train.parquet"
    pairs = DataArguments(train_file=str(path), num_labels=1)
    good = {"sentence1": texts, "sentence2": others, "label": [1.0] * 4}
    lists = {"query": others, "documents": [["x", "y"]] * 4, "labels": [[1.0, 0.0]] * 4}
    for load, columns, names in (
        (lambda: load_pairs(pairs), good, ("sentence1", "label", "teacher_logits")),
        (lambda: load_rankings(str(path)), lists, ("query", "documents", "labels", "teacher_logits")),
    ):
        for name in names:
            is_fine = kind == "words" and name in ("sentence1", "query")
            # Nothing is an unknown label or score.
            if is_fine or (kind == "nothing" and columns is lists and name in ("labels", "teacher_logits")):
                continue
            write_parquet(path, **{**columns, name: column})
            with pytest.raises(ValueError, match="(row|query) |not a readable parquet file|has no candidates"):
                load()


# Any table

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def tables(draw):
    names = draw(
        st.lists(TEXTS.filter(lambda name: name.strip() and "\0" not in name), min_size=1, max_size=3, unique=True)
    )
    return draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, TEXTS)), min_size=1, max_size=5))


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@FUZZ
@given(rows=tables())
def test_tables_are_read_as_they_were_written(folder, rows):
    for path in write_all(folder, rows):
        assert read_columns(path) == {name: [row[name] for row in rows] for name in rows[0]}, path.suffix


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


def test_damaged_files(folder):
    pairs = [{"sentence1": f"the {n}", "sentence2": "a dog", "label": f"{n}", "teacher_logits": "[1]"} for n in "1234"]
    rankings = {"query": ["a", "b"], "documents": [["x", "y"]] * 2, "labels": [[1.0, 0.0]] * 2}
    Dataset.from_dict(rankings).to_parquet(folder / "rankings.parquet")
    contents = {path: path.read_bytes() for path in [*write_all(folder, pairs), folder / "rankings.parquet"]}
    random = Random(0)
    damages = [b"", b"\0", b'"', b"[", b"\xff\xfe", b"\\ud800", b",", b"null", b"1e999", random.randbytes(8)]
    for _ in range(28):
        for path, content in contents.items():
            start = random.randrange(len(content))
            end = start + random.choice([1, 2, 8, 64])
            read_all(write(path, content[:start] + random.choice(damages) + content[end:]))
