# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What the commands show: their own progress and results, nothing of the libraries, with `--quiet` results only."""

import fcntl
import json
import logging
import os
import pty
import struct
import subprocess
import sys
import termios
import warnings as python_warnings
from contextlib import suppress
from pathlib import Path

import pytest
import torch
from transformers import BertForSequenceClassification, BertModel
from transformers.utils import logging as library

from hf_dse import DseForSequenceClassification, DseTrainingArguments, export_model
from hf_dse.cli import doctor, output
from hf_dse.common import devices
from hf_dse.common.display import format_size
from hf_dse.inference.arguments import ModelArguments
from hf_dse.inference.loading import load_model
from hf_dse.teacher.rerankers import load_reranker
from hf_dse_cli import main, show_log


CUTS = ("Warning", "LOAD REPORT", "[torch.onnx]", "{'", "it/s]", "\x1b", "W1", "[transformers]", "WARNING:")


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    """An encoder without a head, a teacher, a student, pairs and texts."""
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder", model_class=BertModel)
    save_bert(folder / "teacher", model_class=BertForSequenceClassification, num_labels=1)
    rows = [{"sentence1": f"a cat {i % 7}", "sentence2": f"the dog {i % 5}", "label": float(i % 6)} for i in range(12)]
    (folder / "pairs").mkdir()
    for split in ("train", "validation"):
        (folder / "pairs" / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "texts.txt").write_text("a cat\nthe dog\n")
    (folder / "corpus" / "qrels").mkdir(parents=True)
    texts = [
        {"_id": str(i), "text": f"{word} {i}"} for i, word in enumerate(("a cat", "the dog", "a house", "old mat"))
    ]
    for name in ("corpus", "queries"):
        (folder / "corpus" / f"{name}.jsonl").write_text("".join(json.dumps(text) + "\n" for text in texts))
    for split in ("train", "validation", "test"):
        lines = "".join(f"{i}\t{i}\t1\n{i}\t{(i + 1) % 4}\t0\n" for i in range(4))
        (folder / "corpus" / "qrels" / f"{split}.tsv").write_text(f"query-id\tcorpus-id\tscore\n{lines}")
    student = DseForSequenceClassification(tiny_config(bert_tokenizer, num_labels=1, problem_type="regression"))
    export_model(student, bert_tokenizer, folder / "student")
    return folder


def run(*words, verbose=False):
    """Runs a command in a new process, and returns what it wrote to stdout and to stderr."""
    environment = {name: value for name, value in os.environ.items() if name != "TOKENIZERS_PARALLELISM"}
    done = subprocess.run(
        [sys.executable, "-m", "hf_dse_cli", *map(str, words)], capture_output=True, text=True, env=environment
    )
    assert done.returncode == 0, done.stderr
    if not verbose:
        assert not [word for word in CUTS if word in done.stdout + done.stderr], done.stdout + done.stderr
    return done.stdout, done.stderr


def commands(assets, folder):
    model, data = (
        ["--model_name_or_path", str(assets / "student")],
        ["--dataset_name", str(assets / "pairs"), "--num_labels", "1"],
    )
    steps = ["--max_steps", "2", "--logging_steps", "1", "--eval_strategy", "steps", "--eval_steps", "1"]
    steps += ["--use_cpu", "--report_to", "none", "--max_length", "32", "--save_strategy", "no"]
    training, corpus = [*data, *steps], ["--dataset_name", str(assets / "corpus")]
    teacher = ["--teacher_name_or_path", str(assets / "teacher")]
    return {
        "teacher": [*training, "--model_name_or_path", str(assets / "encoder"), "--output_dir", str(folder / "t")],
        "distill": [*training, *model, *teacher, "--output_dir", str(folder / "s")],
        "evaluate": [*model, *data],
        "mine": [*corpus, "--encoder_name_or_path", str(assets / "encoder"), "--bm25", "--num_candidates", "2",
                 "--output_file", str(folder / "mined.jsonl")],
        "score": [*corpus, "--model_name_or_path", str(assets / "teacher"), "--output_file",
                  str(folder / "scored.jsonl")],
        "distill --stage ranking": [*corpus, *steps, *model, *teacher, "--output_dir", str(folder / "r"),
                                    "--num_negatives", "2"],
        "evaluate --bm25": [*model, *corpus, "--rerank", str(assets / "teacher"), "--rerank_top", "2"],
        "encode": [*model, "--input", str(assets / "texts.txt"), "--output", str(folder / "vectors.npy")],
        "export": [*model, "--format", "onnx", "--int8", "true", "--output_dir", str(folder / "graph")],
    }  # fmt: skip


RESULTS = {
    "teacher": r"split       pearson  spearman",
    "distill": r"split       pearson  spearman",
    "evaluate": r"split       num_pairs  pearson",
    "mine": "4 queries with ",
    "score": "4 queries with scored candidates (windows: first) written to",
    "distill --stage ranking": "split  ",
    "evaluate --bm25": "test: each query ranks all 4 documents; values x 100",
    "encode": r"2 vectors of size 16 written to",
    "export": r"onnx/model.onnx ",
}


@pytest.mark.slow
@pytest.mark.parametrize("command", RESULTS)
def test_nothing_but_our_own_output(command, assets, tmp_path):
    line = commands(assets, tmp_path)[command]
    out, err = run(*command.split(), *line)
    assert out.startswith(RESULTS[command])
    # Notes are on stderr. In a file, bars of quick work are not there at all.
    assert "Loading " in err and "%|" not in err
    if command.startswith(("teacher", "distill")):
        assert "Step 2 of 2, epoch" in err and "Trained 2 steps in 0:00:" in err and "Next: `hf-dse" in err
    again = commands(assets, tmp_path / "quiet")[command]
    quiet, errors = run("--quiet", *command.split(), *again)
    assert not errors
    assert quiet.replace(f"{tmp_path}/quiet", str(tmp_path)) == out


@pytest.mark.slow
def test_verbose_shows_the_libraries(assets, tmp_path):
    line = commands(assets, tmp_path)["teacher"]
    _, err = run("--verbose", "teacher", *line, verbose=True)
    assert "LOAD REPORT" in err and "classifier.weight" in err


def bars(code):
    """Runs code with bars, once with stderr as a file and once as a terminal, and returns what they wrote."""
    code = f"""
import sys, time
from transformers.utils.logging import tqdm
from hf_dse.cli import output
output.SHORT = 0.3
with output.own_output():
{code}
"""
    file = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True).stderr
    master, slave = pty.openpty()
    fcntl.ioctl(slave, termios.TIOCSWINSZ, struct.pack("HHHH", 40, 100, 0, 0))
    process = subprocess.Popen([sys.executable, "-c", code], stderr=slave)
    os.close(slave)
    written = b""
    # At the end of the process the terminal is closed, which is an error on Linux and no bytes elsewhere.
    with suppress(OSError):
        while part := os.read(master, 1 << 16):
            written += part
    os.close(master)
    assert process.wait() == 0
    return file, written.decode()


LOOPS = """
    for _ in tqdm(range(2), desc="quick", unit="text"):
        pass
    for _ in tqdm(range(2), desc="library"):
        pass
    for _ in tqdm(range(3), desc="outer", unit="query"):
        for _ in tqdm(range(30), desc="inner", unit="pair"):
            time.sleep(0.015)
"""


def test_bars():
    file, terminal = bars(LOOPS)
    lines = file.splitlines()
    assert "quick" not in file and "library" not in file and "\r" not in file and "\x1b" not in file
    assert [line.partition(" ")[0] for line in lines] == ["inner:"] * 3 + ["outer:"]
    assert "library" not in terminal and "quick" in terminal and "outer: 100%" in terminal
    # What stays is at the end of a line; quick work and a loop in another one are blanked.
    ends = [line.rstrip("\r").split("\r")[-1] for line in terminal.split("\n")]
    assert [end.partition(":")[0] for end in ends if "100%" in end] == ["outer"]


def test_a_warning_is_shown_once(capsys):
    logger = logging.getLogger("hf_dse.try")
    with show_log():
        for number in (3, 4):
            logger.warning(f"{number} texts are long")
            logger.info(f"Stage {number}")
    assert capsys.readouterr().err == "3 texts are long\nStage 3\nStage 4\n"


def test_libraries_are_as_they_were_afterwards(capsys):
    def speak():
        python_warnings.warn("of a library", FutureWarning, stacklevel=1)
        logging.getLogger("another").warning("of another")
        library.get_logger("transformers.some").warning("of transformers")

    def state():
        handlers = logging.getLogger("transformers").handlers[:]
        return logging.getLogger().level, library.get_verbosity(), python_warnings.filters[:], set(handlers)

    before = state()
    with output.own_output():
        speak()
        library.get_logger("transformers.some").error("an error")
        # The Trainer reads it.
        assert library.get_verbosity() == before[1]
    assert capsys.readouterr().err == "an error\n"
    assert state() == before


class TestDoctor:
    def test_report(self, capsys, monkeypatch, tmp_path):
        monkeypatch.chdir(tmp_path)
        monkeypatch.setenv("HF_TOKEN", "hf_abcdefgh")
        (tmp_path / "out" / ".hf-dse-scores").mkdir(parents=True)
        (tmp_path / "out" / ".hf-dse-scores" / "a.sqlite").write_bytes(b"0" * 1500)
        assert main(["doctor"]) == 0
        text, err = capsys.readouterr()
        assert torch.__version__ in text and f"{doctor.num_cores()} " in text and "bf16 on CPU" in text
        assert "hf-dse/search" in text
        assert f"{Path('out/.hf-dse-scores')}" in text and "1.5 KB" in text
        assert "offline  " in text and "yes" in text and "hf_abcdefgh" not in text + err
        # One screen.
        assert len(text.splitlines()) < 45 and max(map(len, text.splitlines())) < 140
        assert main(["doctor", "--format", "json"]) == 0
        report = json.loads(capsys.readouterr().out)
        assert report["problems"] == doctor.find_problems() and "there is one" in report["Hub"]["token"]

    def test_every_extra_is_explained(self):
        extras = set(doctor.metadata("hf-dse").get_all("Provides-Extra"))
        assert extras - doctor.EXTRAS.keys() <= {"dev", "tools"} and doctor.EXTRAS.keys() <= extras

    def test_requirements(self):
        lines = [
            "numpy>=1",
            "torch<1",
            "no-such-package-of-hf-dse",
            "pandas<0.1; extra == 'study'",
            "numpy; extra == 'x'",
        ]
        missing, wrong = doctor.check_requirements(lines)
        assert missing == ["no-such-package-of-hf-dse"]
        assert wrong == [f"torch is {torch.__version__}, and has to be <1"]
        missing, wrong = doctor.check_requirements(lines, "study")
        assert not missing and len(wrong) == 1 and wrong[0].startswith("pandas is ")
        assert doctor.check_requirements(lines, "x") == ([], [])

    def test_too_many_threads(self):
        before = torch.get_num_threads()
        torch.set_num_threads(doctor.num_cores() + 1)
        try:
            assert any("OMP_NUM_THREADS" in problem for problem in doctor.find_problems())
        finally:
            torch.set_num_threads(before)

    @pytest.mark.parametrize("speed", [0.02, 2.0])
    def test_bf16_without_instructions_is_named_before_it_is_used(self, speed, monkeypatch, warnings, assets):
        assert devices.bf16_speed() > 0
        monkeypatch.setattr(devices, "bf16_speed", lambda: speed)
        DseTrainingArguments("unused", bf16=True, use_cpu=True)
        load_model(ModelArguments(str(assets / "encoder"), dtype="bfloat16", device="cpu"))
        load_reranker(str(assets / "teacher"), device="cpu", dtype="bfloat16")
        named = [line.partition(":")[0] for line in warnings if "50 times as slowly" in line]
        assert named == (["bf16=True", "dtype=bfloat16", "dtype=bfloat16 of " + str(assets / "teacher")] * (speed < 1))
        assert ("leave it out" in doctor.describe_bf16()) == (speed < 1)

    def test_sizes(self):
        sizes = [format_size(size) for size in (12, 1500, 2 * 10**6, 3 * 10**9)]
        assert sizes == ["12 bytes", "1.5 KB", "2.0 MB", "3.0 GB"]
