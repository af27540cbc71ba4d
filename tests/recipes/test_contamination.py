# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The check of the flagship's training texts against test sets: what it finds, its table, and the files it writes."""

import json

import contamination
import pandas as pd
import pytest


STS = "the quick brown fox jumps over the lazy dog near the old river bank today"
ABSTRACT = "On drugs. An abstract of the searched corpus, about drugs"
CLAIM = "a low dose of the new drug lowers the risk of heart failure in adults"


def words(start, number):
    return [f"w{place}" for place in range(start, start + number)]


def slow_overlap(train, test, num_words):
    """As the docstring has it, a pair after the other."""

    def ngrams(text):
        split = contamination.normalize_text(text).split()
        return {tuple(split[i : i + num_words]) for i in range(max(1, len(split) - num_words + 1))}

    found = {}
    for row, first in enumerate(train):
        for column, second in enumerate(test):
            shared = len(ngrams(first) & ngrams(second))
            if shared:
                share = shared / min(len(ngrams(first)), len(ngrams(second)))
                is_equal = contamination.normalize_text(first) == contamination.normalize_text(second)
                found[row, column] = (share, is_equal)
    return found


@pytest.mark.parametrize("num_words", [8, 13])
def test_overlap(monkeypatch, num_words):
    monkeypatch.setattr(contamination, "BLOCK", 3)
    test = [
        "What is this?",
        " ".join(words(0, 30)),
        " ".join(words(0, 10) + words(0, 10) + words(0, 10)),
        " ".join(words(100, num_words)),
    ]
    train = [
        "what is THIS",
        "What is this about?",
        " ".join(words(0, 30)).upper() + ".",
        " ".join(words(10, 20)),
        " ".join(words(50, 60)),
        " ".join(words(80, 60)),
        " ".join(words(0, 15) + words(200, 40)),
        "",
    ]
    found = contamination.overlap(train, test, num_words)
    rows = {(row.train, row.test): (row.share, row.equal) for row in found.itertuples()}
    assert rows == slow_overlap(train, test, num_words)
    # Equal without case and punctuation, a part, and a text that contains one; not a few words in common.
    assert rows[0, 0] == rows[2, 1] == (1, True) and rows[3, 1] == rows[5, 3] == (1, False)
    assert (1, 0) not in rows and 0 < rows[6, 1][0] < 0.5
    assert contamination.overlap(train, ["other words"], num_words).empty


def test_the_command(tmp_path, capsys, monkeypatch):
    sets = {
        "STS-B test": contamination.TestSet([STS, "other"]),
        "SciFact test claims": contamination.TestSet([CLAIM]),
        "SciFact corpus": contamination.TestSet([ABSTRACT], is_dropped=False),
        "FairytaleQA queries": contamination.TestSet(["who keeps"]),
        "FairytaleQA documents": contamination.TestSet(["a tale to keep"], contamination.LONG),
        "QQP test": contamination.TestSet(["Is q three new?", "Is q four new?"]),
        "NPL queries": contamination.TestSet(["npl asks"]),
    }
    monkeypatch.setattr(contamination, "read_test_sets", lambda data: sets)
    rankings = [
        {"query": "Clean?", "documents": ["Clean.", f"{ABSTRACT}!"]},
        {"query": "Who keeps?", "documents": ["A tale."]},
        {"query": "Who learns?", "documents": ["A tale to learn.", "A tale to keep."]},
        {"query": CLAIM.replace("in adults", "of adults"), "documents": ["Something else."]},
    ]
    lists = [{"query": "Fine?", "pos": ["Fine."], "neg": ["Is q four new"]}, {"query": "Ö?", "pos": ["é"], "neg": []}]
    for name, rows in (("rankings", rankings), ("lists", lists)):
        lines = "\n\n".join(json.dumps(row, ensure_ascii=False) for row in rows)
        (tmp_path / f"{name}.jsonl").write_text(lines + "\n")
    pairs = pd.DataFrame({"sentence1": [f"Yes, {STS}", "mine"], "sentence2": ["kept", "own"], "label": [1.0, 2.0]})
    pairs.to_parquet(tmp_path / "pairs.parquet")
    files = [str(tmp_path / name) for name in ("rankings.jsonl", "lists.jsonl", "pairs.parquet")]
    contamination.main(["data", *files, "--drop", str(tmp_path / "out")])
    printed = capsys.readouterr().out.splitlines()
    counts = {cells[0]: cells[1:] for line in printed if line[:1] == "|" for cells in [line.strip("| ").split(" | ")]}
    assert counts["STS-B test"] == ["2", "8", "0", "1", "1"]
    assert counts["SciFact test claims"] == ["1", "8", "0", "1", "1"]
    assert counts["SciFact corpus"] == ["1", "8", "1", "1", "1"]
    assert counts["FairytaleQA queries"] == ["1", "8", "1", "1", "1"]
    assert counts["FairytaleQA documents"] == ["1", "13", "1", "1", "1"]
    assert counts["QQP test"] == ["2", "8", "1", "1", "1"]
    assert counts["NPL queries"] == ["1", "8", "0", "0", "0"]
    assert [line for line in printed if line.endswith("dropped")] == [
        "rankings.jsonl: 3 of 4 rows dropped",
        "lists.jsonl: 1 of 2 rows dropped",
        "pairs.parquet: 1 of 2 rows dropped",
    ]
    kept = {name: (tmp_path / "out" / f"{name}.jsonl").read_text() for name in ("rankings", "lists")}
    assert [json.loads(line) for line in kept["rankings"].splitlines()] == rankings[:1]
    assert kept["lists"] == json.dumps(lists[1], ensure_ascii=False) + "\n"
    pd.testing.assert_frame_equal(
        pd.read_parquet(tmp_path / "out" / "pairs.parquet"), pairs[1:].reset_index(drop=True)
    )
