# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Output of the commands: their own progress and results, nothing of the libraries, with `--quiet` results only."""

import json
import logging
import os
import subprocess
import sys
import warnings as python_warnings

import pytest
from transformers import BertForSequenceClassification, BertModel
from transformers.utils import logging as library

from hf_dse import DseForSequenceClassification, export_model
from hf_dse.cli import output


CUTS = ("Warning", "LOAD REPORT", "[torch.onnx]", "{'", "it/s]", "\x1b", "W1", "[transformers]", "WARNING:")


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    """An encoder without a head, a teacher, a student, pairs, texts, and a corpus with queries."""
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder", model_class=BertModel)
    save_bert(folder / "teacher", model_class=BertForSequenceClassification, num_labels=1)
    rows = [{"sentence1": f"a cat {i % 7}", "sentence2": f"the dog {i % 5}", "label": float(i % 6)} for i in range(12)]
    (folder / "pairs").mkdir()
    for split in ("train", "validation"):
        (folder / "pairs" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "texts.txt").write_text("a cat\nthe dog\n")
    (folder / "corpus" / "qrels").mkdir(parents=True)
    words = ("a cat", "the dog", "a house", "old mat")
    texts = [{"_id": str(number), "text": f"{word} {number}"} for number, word in enumerate(words)]
    for name in ("corpus", "queries"):
        (folder / "corpus" / f"{name}.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    for split in ("train", "test"):
        lines = "".join(f"{number}\t{number}\t1\n" for number in range(4))
        (folder / "corpus" / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    student = DseForSequenceClassification(tiny_config(bert_tokenizer, num_labels=1, problem_type="regression"))
    export_model(student, bert_tokenizer, folder / "student")
    return folder


def run(*words):
    """Runs a command in a new process, and returns what it wrote to stdout and to stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-m", "hf_dse_cli", *map(str, words)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    assert not [word for word in CUTS if word in done.stdout + done.stderr], done.stdout + done.stderr
    return done.stdout, done.stderr


def commands(assets, folder):
    """Each command with the beginning of what it prints."""
    model, corpus = ["--model_name_or_path", assets / "student"], ["--dataset_name", assets / "corpus"]
    training = ["--dataset_name", assets / "pairs", "--num_labels", "1", "--max_steps", "2", "--logging_steps", "1"]
    training += ["--eval_strategy", "steps", "--eval_steps", "1", "--use_cpu", "--report_to", "none"]
    training += ["--max_length", "32", "--save_strategy", "no", "--teacher_name_or_path", assets / "teacher"]
    return {
        "distill": ([*training, *model, "--output_dir", folder / "s"], "split       pearson  spearman"),
        "mine": (
            [*corpus, "--encoder_name_or_path", assets / "encoder", "--bm25", "--output_file", folder / "m.jsonl"],
            "4 queries with ",
        ),
        "evaluate": (
            [*model, *corpus, "--bm25", "--rerank", assets / "teacher", "--rerank_top", "2"],
            "test: each query ranks all 4 documents; values x 100",
        ),
        "export": ([*model, "--format", "onnx", "--int8", "--output_dir", folder / "graph"], "onnx/model.onnx "),
    }


@pytest.mark.slow
@pytest.mark.parametrize("command", ["distill", "mine", "evaluate", "export"])
def test_nothing_but_our_own_output(command, assets, tmp_path):
    line, result = commands(assets, tmp_path)[command]
    out, err = run(command, *line)
    assert out.startswith(result)
    # Notes are on stderr. In a file, bars of quick work are not there at all.
    assert "%|" not in err
    if command == "distill":
        assert "Step 2 of 2, epoch" in err and "Next: `hf-dse" in err
    again, _ = commands(assets, tmp_path / "quiet")[command]
    quiet, errors = run("--quiet", command, *again)
    assert not errors
    assert quiet.replace(f"{tmp_path}/quiet", str(tmp_path)) == out


@pytest.mark.parametrize("seconds", [0, 0.03])
def test_bars_in_a_file(seconds):
    """Quick work has no bar, and longer work a few lines instead of thousands."""
    code = f"""
import hf_dse_cli, os, time
hf_dse_cli.SETTINGS["TQDM_DELAY"] = "0.2"
hf_dse_cli.IN_A_FILE["TQDM_MININTERVAL"] = "0.5"
try:
    hf_dse_cli.run("demo", ["--help"])
except SystemExit:
    pass
from tqdm.auto import tqdm
for _ in tqdm(range(40), desc="work"):
    time.sleep({seconds})
"""
    environment = {name: value for name, value in os.environ.items() if not name.startswith("TQDM_")}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert done.stderr.count("work: ") in ([2, 3] if seconds else [0]) and "\x1b" not in done.stderr


def test_libraries_are_as_they_were_afterwards(capsys):
    def speak():
        python_warnings.warn("of a library", FutureWarning, stacklevel=1)
        logging.getLogger("another").warning("of another")
        library.get_logger("transformers.some").warning("of transformers")

    def state():
        handlers = logging.getLogger("transformers").handlers[:]
        return logging.getLogger().level, library.get_verbosity(), python_warnings.filters[:], set(handlers)

    before = state()
    with output.hide_libraries():
        speak()
        library.get_logger("transformers.some").error("an error")
        # The Trainer reads it.
        assert library.get_verbosity() == before[1]
    assert capsys.readouterr().err == "an error\n"
    with output.hide_libraries(is_quiet=True):
        print("of any kind", file=sys.stderr)
    assert capsys.readouterr().err == "" and state() == before
