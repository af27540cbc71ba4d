# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Which training texts are near a text of a test set, and training files without them.

    python recipes/flagship/contamination.py DATA FILE [FILE ...] [--drop OUT]

FILE has rows of rankings (`query` with `documents`, or with `pos` and `neg`) or of pairs (`sentence1`, `sentence2`),
as jsonl or parquet. The output is a Markdown table: for each test set of DATA, how many different training texts equal
one of its texts, share an n-gram with one, and nearly equal one.

Texts are compared without case and punctuation (`normalize_text` of recipes/augment.py). An n-gram is a run of 8
words; of 13 in the sets of long documents, where 8 words are often a common phrase. A shorter text counts as one
n-gram, so that only an equal text shares it. Texts are nearly equal if they share at least half of the different
n-grams of the text that has fewer: a part of a test text is near it, and so is a text that contains one.

`--drop` writes the files to OUT without the rows that have a text nearly equal to a test text. Documents of SciFact's
corpus are reported and stay: training claims search in them, too.
"""

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import NamedTuple

import numpy as np
import pandas as pd
from queries import is_held_out
from scipy.sparse import csr_array

from hf_dse.common.display import markdown


sys.path.insert(0, str(Path(__file__).parents[1]))
from augment import normalize_text  # noqa: E402


# Columns of training files with texts or lists of texts.
QUERIES = ("query", "anchor", "question", "sentence1", "sentence2", "text")
COLUMNS = (*QUERIES, "documents", "docs", "passages", "candidates", "pos", "neg", "positive", "negative")
SHORT, LONG = 8, 13
NEAR = 0.5
# Training texts at a time, which bounds the memory.
BLOCK = 5000
# An n-gram is the sum of its words' hashes, each times the factor of its place.
FACTORS = np.random.default_rng(0).integers(2**62, size=LONG) | 1


class TestSet(NamedTuple):
    texts: list[str]
    num_words: int = SHORT
    is_dropped: bool = True


def read_test_sets(data: Path) -> dict[str, TestSet]:
    """The test sets of a folder of data, by their names."""

    def read(file: str, *columns: str, where: Callable[[pd.DataFrame], pd.Series] | None = None) -> list[str]:
        rows = pd.read_parquet(data / f"{file}.parquet")
        rows = rows if where is None else rows[where(rows)]
        # A cell may be a list of texts.
        return [text for column in columns for text in rows[column].explode().dropna()]

    def corpus(name: str) -> list[str]:
        rows = pd.read_parquet(data / name / "corpus.parquet")
        return (rows["title"] + " " + rows["text"]).tolist()

    def evaluated(rows: pd.DataFrame) -> pd.Series:
        return rows["split"] != "train"

    def held_out(rows: pd.DataFrame) -> pd.Series:
        return rows["sentence"].map(is_held_out)

    questions = [read(f"qqp/{split}", "question1", "question2") for split in ("validation", "test")]
    sets = {
        "STS-B validation": TestSet(read("stsb/validation", "sentence1", "sentence2")),
        "STS-B test": TestSet(read("stsb/test", "sentence1", "sentence2")),
        "SICK validation": TestSet(read("sick/validation", "sentence1", "sentence2")),
        "QQP validation and test": TestSet(sum(questions, [])),
        "SciFact test claims": TestSet(read("scifact/queries_test", "query")),
        "SciFact corpus": TestSet(corpus("scifact"), is_dropped=False),
        "SQuAD held-out questions": TestSet(read("squad_sent/train", "question", where=held_out)),
        "SQuAD held-out sentences": TestSet(read("squad_sent/train", "sentence", where=held_out)),
    }
    for title in ("Cranfield", "NPL", "CACM"):
        sets[f"{title} queries"] = TestSet(read(f"{title.lower()}/queries", "query"))
        sets[f"{title} documents"] = TestSet(corpus(title.lower()))
    for title, queries, documents in (
        ("FairytaleQA", ("queries", "question"), ("docs", "text")),
        ("QMSum", ("queries", "query", "answer"), ("docs", "text")),
        ("SQuALITY", ("queries", "question", "responses"), ("docs", "text")),
        ("longwiki", ("queries_late", "query"), ("docs", "lead", "body")),
        ("RFC", ("docs", "title", "abstract"), ("docs", "body")),
        ("PubMedQA", ("pairs", "question", "conclusion"), ("pairs", "abstract")),
    ):
        for kind, (file, *columns), num_words in (("queries", queries, SHORT), ("documents", documents, LONG)):
            texts = read(f"{title.lower()}/{file}", *columns, where=evaluated)
            sets[f"{title} {kind}"] = TestSet(texts, num_words)
    return sets


def ngrams(text: str, num_words: int) -> np.ndarray:
    """The different n-grams of a normalized text, as numbers."""
    words = np.fromiter(map(hash, text.split()), np.int64)
    if len(words) < num_words:
        return np.array([hash(text)])
    return np.unique(np.lib.stride_tricks.sliding_window_view(words, num_words) @ FACTORS[:num_words])


def overlap(train_texts: Sequence[str], test_texts: Sequence[str], num_words: int = SHORT) -> pd.DataFrame:
    """
    Finds the pairs of a training text and a test text that have an n-gram in common.

    Args:
        train_texts (`Sequence[str]`):
            Training texts.
        test_texts (`Sequence[str]`):
            Texts of test sets.
        num_words (`int`, *optional*, defaults to 8):
            Words of an n-gram, at most 13. A text of fewer words is one n-gram.

    Returns:
        `pandas.DataFrame`: a row for each pair, with the columns `train` and `test` (the places of the texts), `share`
        (how many of the different n-grams of the text that has fewer are in the other one, from 0 to 1) and `equal`
        (whether the texts are the same after [`normalize_text`]).
    """
    test = [normalize_text(text) for text in test_texts]
    grams = [ngrams(text, num_words) for text in test]
    test_sizes = np.array([len(of) for of in grams])
    vocabulary, columns = np.unique(np.concatenate(grams), return_inverse=True)
    ones = np.ones(len(columns), np.int32)
    has_grams = csr_array((ones, columns, np.r_[0, test_sizes.cumsum()]), (len(test), len(vocabulary))).T.tocsr()
    found = []
    for start in range(0, len(train_texts), BLOCK):
        train = [normalize_text(text) for text in train_texts[start : start + BLOCK]]
        grams = [ngrams(text, num_words) for text in train]
        sizes = np.array([len(of) for of in grams])
        wanted = np.concatenate(grams)
        places = np.searchsorted(vocabulary, wanted).clip(max=len(vocabulary) - 1)
        is_known = vocabulary[places] == wanted
        rows, columns = np.repeat(np.arange(len(train)), sizes)[is_known], places[is_known]
        ones = np.ones(len(rows), np.int32)
        shared = (csr_array((ones, (rows, columns)), (len(train), len(vocabulary))) @ has_grams).tocoo()
        rows, columns = shared.coords
        share = shared.data / np.minimum(sizes[rows], test_sizes[columns])
        equal = [train[row] == test[column] for row, column in zip(rows, columns, strict=True)]
        found.append(pd.DataFrame({"train": rows + start, "test": columns, "share": share, "equal": equal}))
    return pd.concat(found, ignore_index=True)


def compare(train_texts: Sequence[str], sets: dict[str, TestSet]) -> pd.DataFrame:
    """The pairs of [`overlap`] with all test sets; `name` is that of the test set."""
    found = []
    for num_words in (SHORT, LONG):
        chosen = {name: test for name, test in sets.items() if test.num_words == num_words}
        names = np.repeat(list(chosen), [len(test.texts) for test in chosen.values()])
        texts = [text for test in chosen.values() for text in test.texts]
        pairs = overlap(train_texts, texts, num_words)
        found.append(pairs.assign(name=names[pairs["test"]]))
    return pd.concat(found, ignore_index=True)


def to_drop(pairs: pd.DataFrame, sets: dict[str, TestSet]) -> set[int]:
    """The places of training texts that are near a test text, unless they may be in training as they are."""
    is_allowed = ~pairs["name"].map({name: test.is_dropped for name, test in sets.items()}).astype(bool)
    near = pairs["share"] >= NEAR
    return set(pairs[near & ~is_allowed]["train"]) - set(pairs[is_allowed & pairs["equal"]]["train"])


def read_rows(file: Path) -> list[dict]:
    """The rows of a .jsonl or .parquet file."""
    if file.suffix == ".parquet":
        return pd.read_parquet(file).to_dict("records")
    return [json.loads(line) for line in file.read_text(encoding="utf-8").split("\n") if line.strip()]


def texts_of(row: dict) -> list[str]:
    """The texts of a row of a training file."""
    cells = (row[name] for name in COLUMNS if name in row)
    return [text for cell in cells for text in ([cell] if isinstance(cell, str) else list(cell)) if text]


def write_rows(source: Path, target: Path, is_kept: Sequence[bool]) -> None:
    """Writes the rows of a file that are kept, as they are."""
    target.parent.mkdir(parents=True, exist_ok=True)
    if source.suffix == ".parquet":
        pd.read_parquet(source)[list(is_kept)].to_parquet(target, index=False)
        return
    lines = [line for line in source.read_text(encoding="utf-8").split("\n") if line.strip()]
    text = "".join(f"{line}\n" for line, keep in zip(lines, is_kept, strict=True) if keep)
    target.write_text(text, encoding="utf-8")


def report(pairs: pd.DataFrame, sets: dict[str, TestSet]) -> str:
    """The table: how many training texts equal, share and are near, for each test set."""

    def count(chosen: pd.DataFrame) -> dict[str, int]:
        return chosen.groupby("name")["train"].nunique().to_dict()

    counts = [count(pairs[pairs["equal"]]), count(pairs), count(pairs[pairs["share"] >= NEAR])]
    rows = [
        [name, f"{len(set(test.texts)):,}", f"{test.num_words}", *(f"{of.get(name, 0):,}" for of in counts)]
        for name, test in sets.items()
    ]
    return markdown(["test set", "texts", "n", "equal", "share an n-gram", "nearly equal"], rows, num_left=1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("files", type=Path, nargs="+")
    parser.add_argument("--drop", type=Path, metavar="OUT", help="folder for the files without rows near a test text")
    args = parser.parse_args(argv)
    rows = {file: [texts_of(row) for row in read_rows(file)] for file in args.files}
    for file, of_file in rows.items():
        if not any(of_file):
            parser.error(f"{file} has no texts in any of the columns {', '.join(COLUMNS)}.")
    targets = {file: args.drop / file.name for file in rows} if args.drop else {}
    if len({path.resolve() for path in targets.values()} - {file.resolve() for file in rows}) < len(targets):
        parser.error(f"files would be written over in {args.drop}: take another folder, and files of different names.")
    texts = list(dict.fromkeys(text for of_file in rows.values() for of_row in of_file for text in of_row))
    sets = read_test_sets(args.data)
    pairs = compare(texts, sets)
    print(f"{len(texts):,} different texts of {', '.join(file.name for file in args.files)}\n")
    print(report(pairs, sets))
    dropped = {texts[place] for place in to_drop(pairs, sets)}
    for file, target in targets.items():
        is_kept = [dropped.isdisjoint(of_row) for of_row in rows[file]]
        write_rows(file, target, is_kept)
        print(f"\n{file.name}: {len(is_kept) - sum(is_kept):,} of {len(is_kept):,} rows dropped")


if __name__ == "__main__":
    main()
