# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Files of texts, pairs and rankings that are damaged, odd, or of the wrong kind."""

import csv
import gzip
import io
import json
import os
from datetime import date
from random import Random

import numpy as np
import pyarrow
import pyarrow.parquet
import pytest
from bad_input import attempt, mutate, no_hang, refuse, run
from counting import tried
from hypothesis import given, settings
from hypothesis import strategies as st

from hf_dse import DataArguments, encode, encode_chunks, load_corpus, load_model, load_pairs, load_rankings, read_texts
from hf_dse.data.ranking_files import is_ranking_data
from hf_dse.data.tables import read_columns
from hf_dse.inference.index import read_corpus
from hf_dse.inference.loading import ModelArguments


FUZZ = settings(max_examples=100, deadline=None, derandomize=True, database=None)
LONG = settings(max_examples=2000, deadline=None, derandomize=True, database=None)


def write(path, content):
    path.write_bytes(content if isinstance(content, bytes) else content.encode())
    return path


def write_parquet(path, **columns):
    pyarrow.parquet.write_table(pyarrow.table(columns), path)
    return path


def encode_file(good, path, output):
    return ["encode", "--model_name_or_path", good / "dse", "--input", path, "--output", output]


@pytest.mark.parametrize(
    ("name", "content", "message"),
    [
        ("half a character.jsonl", '{"text": "a \\ud800 b"}\n', r"line 1: not valid JSON: .*surrogates not allowed"),
        ("half in another column.jsonl", '{"text": "a", "x": ["\\uDFFF"]}\n', r"surrogates not allowed"),
        ("nested.jsonl", '{"text": ' + "[" * 100_000 + "\n", "line 1: not valid JSON: .*nested too deeply"),
        ("nested.json", "[" * 100_000, "nested too deeply"),
        ("long number.jsonl", '{"text": "a", "n": ' + "9" * 5000 + "}\n", "line 1: not valid JSON: Exceeds the limit"),
        ("twice.jsonl", '{"text": "a", "text": "b"}\n', "line 1: not valid JSON: .*'text' twice"),
        ("rows.jsonl", '{"text": "a"}\n[1]\n', "every row must be a JSON object"),
        ("other.jsonl", '{"txt": "a"}\n', "no column 'text'; the columns are txt"),
        ("ragged.jsonl", '{"text": "a"}\n{"txt": "a"}\n', "row 1: text is None, not a string"),
        ("number.jsonl", '{"text": 3}\n', "row 0: text is 3, not a string"),
        ("empty.jsonl", "", "has no columns: the file is empty"),
        ("empty.json", "[]", "has no columns: the file is empty"),
        ("cut.jsonl", '{"text": "a"}\n{"te', "line 2: not valid JSON"),
        ("empty.csv", "", "has no columns: the file is empty"),
        ("twice.csv", "text,text\na,b\n", "has 2 columns 'text': rename or remove all but one"),
        ("ragged.csv", "text,x\na,b,c\n", "line 2: expected 2 cells"),
        ("open.csv", 'text\n"a\n', "not valid csv: unexpected end of data"),
        ("latin.csv", "text\ncaf\xe9\n".encode("latin-1"), "latin.csv: not a text in UTF-8: .*decompress"),
        ("utf16.txt", "hello".encode("utf-16"), "utf16.txt: not a text in UTF-8"),
        ("packed.jsonl", gzip.compress(b'{"text": "a"}\n'), "packed.jsonl: not a text in UTF-8"),
        ("packed.jsonl.gz", gzip.compress(b'{"text": "a"}\n'), "unsupported ending '.gz'"),
        ("empty.parquet", b"", "not a readable parquet file"),
        ("text.parquet", b"text\n", "not a readable parquet file"),
    ],
    ids=lambda value: value if isinstance(value, str) and "." in value and len(value) < 30 else "",
)
def test_unreadable_files(good, tmp_path, name, content, message):
    refuse(message, *encode_file(good, write(tmp_path / name, content), tmp_path / "o.npy"))
    assert not (tmp_path / "o.npy").exists()


@pytest.mark.parametrize(
    ("name", "content"),
    [
        ("bom.csv", "\ufefftext\na\nb\n"),
        ("crlf.csv", "text\r\na\r\nb\r\n"),
        ("crlf.txt", "a\r\nb\r\n"),
        ("bom.jsonl", '\ufeff{"text": "a"}\r\n{"text": "b"}\r\n'),
        ("blank.jsonl", '\n{"text": "a"}\n\n{"text": "b"}\n\n'),
        ("quoted.csv", '"text"\n"a"\n"b"\n'),
    ],
)
def test_odd_files_that_are_fine(tmp_path, name, content):
    assert read_texts(write(tmp_path / name, content)) == {"text": ["a", "b"]}


def test_emoji_are_no_halves_of_characters(tmp_path):
    assert read_texts(write(tmp_path / "a.jsonl", '{"text": "\\ud83d\\ude00 \\\\ud800"}\n')) == {
        "text": ["😀 \\ud800"]
    }


def test_a_cell_may_hold_a_long_document(tmp_path):
    text = "word " * 200_000
    assert read_texts(write(tmp_path / "a.csv", f"text\n{text}\n")) == {"text": [text]}


@pytest.mark.parametrize(
    ("column", "message"),
    [
        (pyarrow.array([2**62], pyarrow.duration("s")), "not a readable parquet file: .*too large"),
        (pyarrow.array([2**31 - 1], pyarrow.date32()), "not a readable parquet file: days="),
    ],
)
def test_times_out_of_range(good, tmp_path, column, message):
    path = write_parquet(tmp_path / "a.parquet", text=["a"], time=column)
    refuse(message, *encode_file(good, path, tmp_path / "o.parquet"))


def test_parquet_with_a_column_twice_or_damaged_pages(good, tmp_path):
    table = pyarrow.table([pyarrow.array(["a"]), pyarrow.array(["b"])], names=["text", "text"])
    pyarrow.parquet.write_table(table, tmp_path / "a.parquet")
    refuse("has 2 columns 'text'", *encode_file(good, tmp_path / "a.parquet", tmp_path / "o.npy"))
    content = write_parquet(tmp_path / "b.parquet", text=["a"] * 1000).read_bytes()
    for damaged in (content[:-10], content[:4] + b"\xff" * 20 + content[24:]):
        path = write(tmp_path / "b.parquet", damaged)
        refuse("b.parquet: not a readable parquet file", *encode_file(good, path, tmp_path / "o.npy"))


def test_folders_with_pipes(good, tmp_path):
    """Reading a pipe that nobody writes to would wait for ever."""
    (tmp_path / "docs" / "folder.txt").mkdir(parents=True)
    os.mkfifo(tmp_path / "docs" / "a.txt")
    write(tmp_path / "docs" / "b.txt", "one")
    with no_hang(5):
        assert read_texts(tmp_path / "docs") == {"file": ["b.txt"], "text": ["one"]}
    os.mkfifo(tmp_path / "train.jsonl")
    with no_hang(5):
        refuse("there is no such file", *encode_file(good, tmp_path / "train.jsonl", tmp_path / "o.npy"))
        data_args = DataArguments(dataset_name=str(tmp_path), num_labels=None)
        assert not is_ranking_data(data_args)
        with pytest.raises(FileNotFoundError, match="there is no such file"):
            load_pairs(DataArguments(dataset_name=str(tmp_path), num_labels=1))


def test_home_folders_of_nobody(good, tmp_path):
    message = "there is no home folder ~nobody-here: write the whole path"
    refuse(message, *encode_file(good, "~nobody-here/x.txt", tmp_path / "o.npy"))
    refuse(message, *encode_file(good, good / "texts.txt", "~nobody-here/o.npy"))
    model = ["--model_name_or_path", good / "dse"]
    refuse(message, "evaluate", *model, "--dataset_name", "~nobody-here/x", "--num_labels", "1")


def test_texts_that_are_none(good):
    model, tokenizer = load_model(ModelArguments(str(good / "dse")))
    for texts, message in (
        (["a", "b \ud800"], r"texts\[1\] is no text in UTF-8: .*surrogates not allowed"),
        (["a", None], r"texts\[1\] is None, not a string"),
        ([b"a"], r"texts\[0\] is b'a', not a string"),
    ):
        with pytest.raises(ValueError, match=message):
            encode(model, tokenizer, texts)
    for contextual in (True, False):
        with pytest.raises(ValueError, match=r"no text in UTF-8: .*surrogates not allowed"):
            encode_chunks(model, tokenizer, ["a", "b \ud800"], contextual=contextual)
        with pytest.raises(ValueError, match="chunk_size=1.5: it has to be at least 1, a whole number"):
            encode_chunks(model, tokenizer, ["a"], chunk_size=1.5, contextual=contextual)
    refuse(
        "surrogates",
        "search",
        "--model_name_or_path",
        good / "dse",
        "--corpus",
        good / "texts.txt",
        "--query",
        "\ud800",
    )


def check_odd_texts(good, *texts):
    model, tokenizer = load_model(ModelArguments(str(good / "dse")))
    vectors = encode(model, tokenizer, [*texts, "a"], show_progress=False)
    assert np.isfinite(vectors).all()
    assert np.allclose(vectors[-1], encode(model, tokenizer, ["a"], show_progress=False)[0], atol=1e-5)


def test_odd_texts_that_are_fine(good):
    check_odd_texts(good, "", "\0", "\ufdd0 \U0010ffff", "the cat " * 10_000)


@pytest.mark.slow
def test_a_text_of_10_megabytes(good):
    check_odd_texts(good, "a" * 10_000_000, "the cat " * 1_250_000)


def test_queries_with_one_id_and_two_texts(tmp_path):
    path = write_parquet(
        tmp_path / "a.parquet",
        query_id=[None, None],
        query=["a", "b"],
        documents=[["x"], ["y"]],
        labels=[[1.0], [1.0]],
    )
    with pytest.raises(ValueError, match="row 1: the query 'None' has another text than in a row before: 'b'"):
        load_rankings(DataArguments(train_file=str(path)))


# Columns of parquet in the place of texts, labels, scores and candidates

COLUMNS = {
    "maps": pyarrow.array([[("a", 1)]] * 4, pyarrow.map_(pyarrow.string(), pyarrow.int64())),
    "objects": pyarrow.array([{"a": 1}] * 4),
    "lists": pyarrow.array([[[1.0]]] * 4),
    "nan": pyarrow.array([0, float("nan"), 1, 2]),
    "infinite": pyarrow.array([0, float("inf"), 1, 2]),
    "missing": pyarrow.array([0, None, 1, 2]),
    "words": pyarrow.array(["a", "b", "c", "d"]),
    "dates": pyarrow.array([date(2020, 1, 1)] * 4),
    "durations": pyarrow.array([1, 2, 3, 4], pyarrow.duration("s")),
    "nothing": pyarrow.nulls(4),
}


@pytest.mark.parametrize("kind", COLUMNS)
def test_columns_of_the_wrong_kind(tmp_path, kind):
    texts, others, column = ["the cat"] * 4, ["a", "b", "c", "d"], COLUMNS[kind]
    path = tmp_path / "train.parquet"
    pairs = DataArguments(train_file=str(path), num_labels=1)
    for columns, message in (
        ({"sentence1": texts, "sentence2": others, "label": column}, "the label"),
        ({"sentence1": texts, "sentence2": others, "label": [1.0] * 4, "teacher_logits": column}, "teacher_logits"),
    ):
        write_parquet(path, **columns)
        with pytest.raises(ValueError, match=f"Split 'train', row .*{message}"):
            load_pairs(pairs)
    lists = {"query": others, "documents": [["x", "y"]] * 4, "labels": [[1.0, 0.0]] * 4}
    for name in ("documents", "labels", "teacher_logits"):
        write_parquet(path, **{**lists, name: column})
        with pytest.raises(ValueError, match="(row|query) .*"):
            load_rankings(DataArguments(train_file=str(path)))
    if kind != "words":
        for columns in ({"sentence1": column, "sentence2": others, "label": [1.0] * 4}, {"query": column, **lists}):
            write_parquet(path, **({**columns, "query": column} if "query" in columns else columns))
            with pytest.raises(ValueError, match="not a string|not a text|is empty"):
                load_rankings(DataArguments(train_file=str(path))) if "query" in columns else load_pairs(pairs)


# Any table, and any damage of one

TEXTS = st.text(st.characters(exclude_categories=["Cs"]), max_size=20)


@st.composite
def tables(draw):
    names = draw(
        st.lists(TEXTS.filter(lambda name: name.strip() and "\0" not in name), min_size=1, max_size=3, unique=True)
    )
    return draw(st.lists(st.fixed_dictionaries(dict.fromkeys(names, TEXTS)), min_size=1, max_size=5))


def check_table(folder, rows):
    tried()
    columns = {name: [row[name] for row in rows] for name in rows[0]}
    write(folder / "a.jsonl", "".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))
    write(folder / "a.json", json.dumps(rows))
    write_parquet(folder / "a.parquet", **columns)
    text = io.StringIO(newline="")
    writer = csv.DictWriter(text, list(columns), quoting=csv.QUOTE_ALL)
    writer.writeheader()
    writer.writerows(rows)
    write(folder / "a.csv", text.getvalue())
    for ending in (".jsonl", ".json", ".parquet", ".csv"):
        assert read_columns(folder / f"a{ending}") == columns, ending


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    return tmp_path_factory.mktemp("fuzz")


@FUZZ
@given(rows=tables())
def test_tables_are_read_as_they_were_written(folder, rows):
    check_table(folder, rows)


@pytest.mark.slow
@LONG
@given(rows=tables())
def test_many_tables_are_read_as_they_were_written(folder, rows):
    check_table(folder, rows)


VALUES = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | TEXTS | st.sampled_from(["1", "nan", "[1]", " "]),
    lambda values: st.lists(values, max_size=3) | st.dictionaries(TEXTS, values, max_size=2),
    max_leaves=4,
)
NAMES = st.sampled_from(
    "sentence1 sentence2 label teacher_logits query documents labels scores query_id document_ids doc_id text title "
    "pos neg positive negative pos_scores neg_scores embedding id".split()
)


def read_all(path, good):
    """Reads a file as everything that it might be. Returns what was read as pairs."""
    tried()
    pairs = attempt(load_pairs, DataArguments(train_file=str(path), num_labels=1), require_labels=False)
    attempt(load_pairs, DataArguments(train_file=str(path), num_labels=3))
    attempt(is_ranking_data, DataArguments(train_file=str(path)))
    attempt(load_rankings, DataArguments(train_file=str(path)))
    attempt(load_rankings, DataArguments(train_file=str(good / "rankings.jsonl"), corpus_file=str(path)))
    attempt(load_corpus, DataArguments(corpus_file=str(path)))
    attempt(read_corpus, str(path), "text")
    if pairs is not None:
        rows = pairs["train"]
        assert all(isinstance(text, str) and text.strip() for text in [*rows["sentence1"], *rows["sentence2"]])
        if "label" in rows.column_names:
            assert np.isfinite(rows["label"][:]).all()
    return pairs


@FUZZ
@given(rows=st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_rows_of_any_values(folder, good, rows):
    read_all(write(folder / "rows.jsonl", "\n".join(map(json.dumps, rows))), good)


@pytest.mark.slow
@LONG
@given(rows=st.lists(st.dictionaries(NAMES, VALUES, max_size=6), max_size=4))
def test_many_rows_of_any_values(folder, good, rows):
    read_all(write(folder / "rows.jsonl", "\n".join(map(json.dumps, rows))), good)


@pytest.fixture(scope="module")
def originals(good, folder):
    """Good files of all kinds: their content by their names."""
    pairs, rankings = (read_columns(good / f"{name}.jsonl") for name in ("pairs", "rankings"))
    text = io.StringIO(newline="")
    writer = csv.writer(text)
    writer.writerow(pairs)
    writer.writerows(zip(*pairs.values(), strict=True))
    index = folder / "index.parquet"
    assert run(*encode_file(good, good / "texts.txt", index)) == ""
    return {
        "pairs.csv": text.getvalue().encode(),
        "pairs.jsonl": (good / "pairs.jsonl").read_bytes(),
        "pairs.parquet": write_parquet(folder / "pairs.parquet", **pairs).read_bytes(),
        "rankings.jsonl": (good / "rankings.jsonl").read_bytes(),
        "rankings.parquet": write_parquet(folder / "rankings.parquet", **rankings).read_bytes(),
        "texts.txt": (good / "texts.txt").read_bytes(),
        "index.parquet": index.read_bytes(),
    }


def damage(originals, folder, good, number):
    random = Random(number)
    name = sorted(originals)[number % len(originals)]
    read_all(write(folder / name, mutate(originals[name], random)), good)


@pytest.mark.parametrize("start", range(0, 140, 35))
def test_damaged_files(originals, folder, good, start):
    for number in range(start, start + 35):
        damage(originals, folder, good, number)


@pytest.mark.slow
def test_many_damaged_files(originals, folder, good):
    for number in range(2000):
        damage(originals, folder, good, number)
