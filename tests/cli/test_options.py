# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command works with usual options, and refuses wrong ones in one line before it writes anything."""

import io
import re
from contextlib import redirect_stderr, redirect_stdout

import pytest

from hf_dse_cli import COMMANDS, main


def run(*argv):
    """Returns the exit code, what a command printed, and its last line on stderr."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main([str(word) for word in argv])
    lines = [line for line in re.split(r"[\r\n]+", errors.getvalue()) if line.strip()]
    return code, output.getvalue(), lines[-1] if lines else ""


def test_every_command_works(commands, tmp_path):
    assert {*commands, "demo", "push"} == {*COMMANDS}
    out = tmp_path / "out"
    printed = {}
    for name, options in commands.items():
        code, printed[name], error = run(name, *options)
        assert code == 0, f"{name}: {error}"
    assert printed["encode"] == f"12 vectors of size 16 written to {out / 'o.parquet'}\n"
    assert "file:line" in printed["search"] and ".txt:1" in printed["search"]
    assert "cosine_spearman" in printed["evaluate"]
    assert printed["score"].startswith("12 scored pairs") and " candidates written to " in printed["mine"]
    assert printed["study"].startswith("2 runs are in ")
    assert "| tokens per text | 16 | 64 |" in printed["bench"]
    assert (out / "run" / "model" / "README.md").is_file() and (out / "white" / "README.md").is_file()


def test_the_speed_of_an_encoder_beyond_its_positions(good):
    code, printed, error = run("bench", "--model", good / "bert", "--lengths", 16, 80)
    assert code == 0, error
    numbers = r"\| [\d,]+ \| [\d,]+ \|\n"
    expected = rf"\| tokens per text \| 16 \| 80 \|\n.*\n\| linear {numbers}\| its own attention {numbers}\| ratio "
    assert re.search(expected, printed)


def test_pairs_are_evaluated_in_the_data_type_asked_for(good):
    scores = []
    for dtype in ("float32", "bfloat16"):
        options = ["--test_file", good / "pairs.jsonl", "--num_labels", "1", "--split", "test", "--dtype", dtype]
        code, printed, error = run("evaluate", "--model", good / "dse", *options)
        assert code == 0, error
        names, values = map(str.split, printed.splitlines())
        scores.append(float(values[names.index("cosine_pearson")]))
    assert 0 < abs(scores[0] - scores[1]) < 5


def test_evaluation_of_a_search(good):
    options = ["--bm25", "--compare_with", good / "bert"]
    data = ["--test_file", good / "rankings.jsonl"]
    code, printed, error = run("evaluate", "--model", good / "dse", *data, *options)
    assert code == 0, error
    assert "each query ranks all" in printed and "difference" in printed and "with BM25" in printed
    _, table = printed.split("search ", 1)
    header, *rows = table.partition("\ndifference: ")[0].splitlines()
    assert "ndcg@10" in header and len(rows) == 5
    # Where there is no test split, by the one that `assess` takes.
    code, printed, error = run("evaluate", "--model", good / "dse", "--validation_file", good / "rankings.jsonl")
    assert code == 0 and printed.startswith("validation: each query ranks all "), error


def test_the_next_command_of_mining_has_the_other_files(good, tmp_path):
    """Without them the student was not measured, and no share of BM25 was fitted."""
    files = ["--train_file", good / "rankings.jsonl", "--test_file", good / "rankings.jsonl"]
    mined = tmp_path / "mined.jsonl"
    options = ["--relative_margin", -1, "--relevance_threshold", 1, "--output_file", mined]
    code, _, last = run("mine", "--model", good / "dse", *files, *options)
    assert code == 0 and last == (
        f"Next: `hf-dse distill --stage ranking --model {good / 'dse'} --teacher RERANKER --train_file {mined} "
        f"--test_file {good / 'rankings.jsonl'} --relevance_threshold 1.0 --output_dir student`"
    )


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("encode", ["--output", "o.txt"], "unsupported ending '.txt'"),
        ("evaluate", ["--bm25"], "`--compare_with` and `--bm25` are for a corpus, not sentence pairs"),
        ("evaluate", ["--relevance_threshold", "2"], "relevance_threshold=2.0 is for the search in a corpus"),
        ("mine", ["--queries_from", "none", "--num_queries", "1"], "add `--queries_from"),
        ("export", ["--int8"], "add `--format onnx`"),
        ("distill", ["--learning_rate", "nan"], "learning_rate=nan"),
        ("bench", ["--lengths", "100000"], "takes 64 tokens: pass shorter `--lengths`"),
    ],
)
def test_wrong_options_are_refused(commands, tmp_path, command, options, message):
    code, _, error = run(command, *commands[command], *options)
    assert code == 2 and error.startswith(f"hf-dse {command}: error: ") and message in error
    assert not (tmp_path / "out").exists() or not any(file.is_file() for file in (tmp_path / "out").rglob("*"))
