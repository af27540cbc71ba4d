# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every command works with usual options, and refuses wrong ones in one line before it writes anything."""

import io
import json
import re
import shutil
from contextlib import redirect_stderr, redirect_stdout
from random import Random

import numpy as np
import pyarrow.parquet
import pytest
import torch
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, export_model
from hf_dse_cli import COMMANDS, main


WORDS = "cat dog sat ran mat house old new".split()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="module")
def good(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    """Models and data."""
    folder = tmp_path_factory.mktemp("good")
    save_bert(folder / "bert")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    torch.manual_seed(0)
    model = DseForSequenceClassification(tiny_config(bert_tokenizer, initializer_range=0.2, num_labels=1))
    export_model(model, bert_tokenizer, folder / "dse")
    texts = [f"{' '.join(WORDS[number % 8 :])} {number}" for number in range(12)]
    (folder / "texts.txt").write_text("\n".join(texts))
    (folder / "docs").mkdir()
    for number, text in enumerate(texts):
        (folder / "docs" / f"{number}.txt").write_text(f"The {text}. A {text} ran on the mat.")
    pairs = [
        {"sentence1": text, "sentence2": texts[-number], "label": number % 6} for number, text in enumerate(texts)
    ]
    write(folder / "pairs.jsonl", pairs)
    write(
        folder / "rankings.jsonl",
        [{"query": text.split()[0], "documents": [text, texts[0]], "labels": [1, 0]} for text in texts[1:]],
    )
    (folder / "study.yaml").write_text(
        f"options: {{model_name_or_path: {folder / 'dse'}, train_file: {folder / 'pairs.jsonl'}, num_labels: 1}}\n"
        "factors: {seed: [1, 2]}\n"
    )
    return folder


@pytest.fixture
def commands(good, tmp_path):
    """Each command with options that work. Everything is written to `out`."""
    out = tmp_path / "out"
    model, pairs = ["--model_name_or_path", good / "dse"], ["--train_file", good / "pairs.jsonl", "--num_labels", "1"]
    pairs += ["--validation_file", good / "pairs.jsonl"]
    training = [
        "--max_steps",
        "1",
        "--max_length",
        "32",
        "--report_to",
        "none",
        "--use_cpu",
        "--output_dir",
        out / "run",
    ]
    return {
        "encode": [*model, "--input", good / "texts.txt", "--output", out / "o.parquet"],
        "search": [*model, "--corpus", good / "docs", "--query", "a", "--index_dir", out / "index"],
        "convert": ["--model_name_or_path", good / "bert", "--output_dir", out / "converted"],
        "evaluate": [*model, *pairs, "--output_file", out / "o.json"],
        "score": ["--model_name_or_path", good / "teacher", *pairs, "--output_file", out / "s.jsonl"],
        "mine": [
            *["--corpus_file", good / "docs", "--queries_from", "first_sentences", "--bm25"],
            *["--encoder_name_or_path", good / "dse", "--output_file", out / "m.jsonl"],
        ],
        "export": [*model, "--output_dir", out / "exported"],
        "whiten": [*model, "--train_file", good / "texts.txt", "--projection_dim", "2", "--output_dir", out / "white"],
        "push": [*model, "--repo_id", "me/model", "--dry_run"],
        "distill": [*model, *pairs, *training, "--distillation_alpha", "0"],
        "study": [good / "study.yaml", "--output_dir", out / "study", "--dry_run"],
        "bench": [*model, "--lengths", "16", "64", "--rounds", "1"],
    }


def run(*argv):
    """Returns the exit code, what a command printed, and its last line on stderr."""
    output, errors = io.StringIO(), io.StringIO()
    with redirect_stdout(output), redirect_stderr(errors):
        code = main([str(word) for word in argv])
    lines = [line for line in re.split(r"[\r\n]+", errors.getvalue()) if line.strip()]
    return code, output.getvalue(), lines[-1] if lines else ""


def test_every_command_works(commands, tmp_path):
    assert {*commands, "demo"} == {*COMMANDS}
    out = tmp_path / "out"
    printed = {}
    for name, options in commands.items():
        code, printed[name], error = run(name, *options)
        assert code == 0, f"{name}: {error}"
    assert printed["encode"] == f"12 vectors of size 16 written to {out / 'o.parquet'}\n"
    assert "file:line" in printed["search"] and ".txt:1" in printed["search"]
    assert "cosine_spearman" in printed["evaluate"] and json.loads((out / "o.json").read_text())["results"]
    assert printed["score"].startswith("12 scored pairs") and " mined candidates written to " in printed["mine"]
    assert printed["push"].endswith("would be pushed to me/model\n")
    assert printed["study"].count("missing") == 2
    assert "| tokens per text | linear | softmax | ratio |" in printed["bench"]
    assert (out / "run" / "model" / "README.md").is_file() and (out / "white" / "README.md").is_file()


def test_vectors_and_search_of_an_index(good, tmp_path):
    """The two formats of `encode` have the same vectors; a search in the index equals one in the texts."""
    model, texts = ["--model_name_or_path", good / "dse"], good / "texts.txt"
    for name in ("v.npy", "v.parquet"):
        assert run("encode", *model, "--input", texts, "--output", tmp_path / name)[0] == 0
    column = pyarrow.parquet.read_table(tmp_path / "v.parquet")["embedding"]
    np.testing.assert_array_equal(np.load(tmp_path / "v.npy"), np.array(column.to_pylist(), dtype=np.float32))
    query = ["--query", "old cat", "--top_k", "3", "--format", "json"]
    _, of_index, _ = run("search", *model, "--corpus", tmp_path / "v.parquet", *query)
    _, of_texts, _ = run("search", *model, "--corpus", texts, *query)
    found, expected = json.loads(of_index)["results"], json.loads(of_texts)["results"]
    assert [hit["text"] for hit in found] == [hit["text"] for hit in expected] and len(found) == 3


def test_pairs_are_evaluated_in_the_data_type_asked_for(good, tmp_path):
    scores = []
    for dtype in ("float32", "bfloat16"):
        output = tmp_path / f"{dtype}.json"
        options = ["--test_file", good / "pairs.jsonl", "--num_labels", "1", "--split", "test", "--dtype", dtype]
        code, _, error = run("evaluate", "--model_name_or_path", good / "dse", *options, "--output_file", output)
        assert code == 0, error
        scores.append(json.loads(output.read_text())["results"]["test"]["cosine_pearson"])
    assert 0 < abs(scores[0] - scores[1]) < 0.05


def test_evaluation_of_a_search(good, tmp_path):
    options = ["--bm25", "--rerank", good / "teacher", "--compare_with", good / "bert"]
    data = ["--test_file", good / "rankings.jsonl", "--output_file", tmp_path / "o.json"]
    code, printed, error = run("evaluate", "--model_name_or_path", good / "dse", *data, *options)
    assert code == 0, error
    assert "each query ranks all" in printed and "difference" in printed and "with BM25" in printed
    rows = json.loads((tmp_path / "o.json").read_text())["comparison"]["test"]
    assert len(rows) == 5 and all("ndcg@10" in row for row in rows.values())


def test_a_report_on_a_study_without_runs(good):
    code, _, error = run("study", "report", good / "study.yaml")
    assert code == 2 and "There is no finished run to report on: run `hf-dse study" in error


@pytest.mark.parametrize(
    ("command", "options", "message"),
    [
        ("encode", ["--output", "o.txt"], "unsupported ending '.txt'"),
        ("encode", ["--input", "missing.txt"], "missing.txt"),
        ("encode", ["--prompt_name", "x"], "x"),
        ("encode", ["--device", "bogus"], "device='bogus' cannot be used"),
        ("search", ["--queries", "q.txt"], "Pass either `--queries FILE` or `--query`"),
        ("search", ["--top_k", "0"], "top_k=0"),
        ("search", ["--rerank", "missing"], "missing"),
        ("evaluate", ["--bm25"], "`--bm25`, `--rerank` and `--chunks` are for searches in a corpus"),
        ("evaluate", ["--split", "test"], "test"),
        ("mine", ["--output_file", "m.csv"], "unsupported ending '.csv'"),
        ("mine", ["--queries_from", "none", "--num_queries", "1"], "add `--queries_from"),
        ("convert", ["--similarity", "cos"], "invalid choice: 'cos'"),
        ("convert", ["--linformer_length", "0"], "linformer_length"),
        ("export", ["--int8"], "add `--format onnx`"),
        ("push", ["--repo_id", "a b"], "'a b' is not a valid repository name"),
        ("distill", ["--stage", "pair"], "invalid choice: 'pair'"),
        ("distill", ["--learning_rate", "nan"], "learning_rate=nan"),
        ("bench", ["--lengths", "0"], "lengths=[0]: it has to be at least 1"),
        ("bench", ["--lengths", "100000"], "takes 64 tokens: pass shorter `--lengths`"),
    ],
)
def test_wrong_options_are_refused(commands, tmp_path, command, options, message):
    code, _, error = run(command, *commands[command], *options)
    assert code == 2 and error.startswith(f"hf-dse {command}: error: ") and message in error
    assert not (tmp_path / "out").exists() or not any(file.is_file() for file in (tmp_path / "out").rglob("*"))


WRONG = ["", "x", "-1", "0", "1.5", "inf", "99999999999999999999", "~nobody-here/x", "a\0b", "\udcff", "[1]"]


@pytest.mark.slow
def test_many_options_with_wrong_values(commands, tmp_path, monkeypatch):
    """No value of any option ends in a traceback."""
    monkeypatch.chdir(tmp_path)
    cases = []
    for command in commands:
        text = io.StringIO()
        with redirect_stdout(text), pytest.raises(SystemExit):
            main([command, "--help"])
        options = sorted(set(re.findall(r"^  (--\w+)", text.getvalue(), flags=re.MULTILINE)) - {"--help", "--config"})
        # Options that say how long to work.
        options = [option for option in options if option not in ("--max_steps", "--num_train_epochs", "--rounds")]
        cases += [(command, option, value) for option in options for value in WRONG]
    Random(0).shuffle(cases)
    for command, option, value in cases[:250]:
        shutil.rmtree(tmp_path / "out", ignore_errors=True)
        try:
            code, _, error = run(command, *commands[command], option, value)
        except Exception as error:
            raise AssertionError(f"hf-dse {command} {option} {value!r}") from error
        assert code == 0 or error.startswith(f"hf-dse {command}: error: "), (command, option, value, error)
