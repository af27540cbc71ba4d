# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every option of every command with wrong values."""

import re
import warnings
from collections import Counter
from contextlib import redirect_stdout
from io import StringIO
from random import Random

import pytest
from bad_input import refuse, remove, run
from counting import tried
from test_recipes import STUDY

from hf_dse_cli import COMMANDS, main


@pytest.mark.parametrize(
    ("device", "message"),
    [
        ("bogus", "Expected one of cpu, cuda"),
        ("", "Device string must not be empty"),
        ("cpu:-1", "Invalid device string"),
        ("cuda:99", ""),
        ("mps", ""),
        ("meta", "meta"),
    ],
)
def test_devices_that_are_none(good, tmp_path, device, message):
    if device == "mps":
        torch = pytest.importorskip("torch")
        if torch.backends.mps.is_available():
            pytest.skip("this machine has one")
    message = f"device='{device}' cannot be used: .*{message}.* The device of this machine is .*: leave the option out"
    model = ["--model_name_or_path", good / "dse", "--device", device]
    refuse(message, "encode", *model, "--input", good / "texts.txt", "--output", tmp_path / "o.npy")
    refuse(message, "mine", *mining(good, tmp_path), "--device", device)


def mining(good, folder):
    source = ["--corpus_file", good / "docs.txt", "--queries_from", "first_sentences"]
    return [*source, "--encoder_name_or_path", good / "dse", "--output_file", folder / "m.jsonl"]


@pytest.fixture(scope="module")
def commands(good, tmp_path_factory):
    """Each command with options that work; what it writes is in the folder `out`."""
    folder = tmp_path_factory.mktemp("flags")
    out = folder / "out"
    (folder / "study.yaml").write_text(STUDY)
    model, teacher = (["--model_name_or_path", good / name] for name in ("dse", "teacher"))
    pairs = ["--train_file", good / "pairs.jsonl", "--validation_file", good / "pairs.jsonl", "--num_labels", "1"]
    training = ["--max_steps", "1", "--max_length", "32", "--report_to", "none", "--use_cpu", "true"]
    training += ["--output_dir", out / "run", "--overwrite_output_dir", "true"]
    texts = good / "texts.txt"
    timing = ["--rounds", "1", "--output_dir", out / "bench", "--min_seconds", "0.01", "--max_seconds", "0.1"]
    return folder, {
        "doctor": [],
        "encode": [*model, "--input", texts, "--output", out / "o.parquet"],
        "encode --chunks": [*model, "--input", texts, "--output", out / "o.parquet", "--contextual", "true"],
        "search": [*model, "--corpus", texts, "--query", "a", "--output_file", out / "o.jsonl"],
        "convert": ["--model_name_or_path", good / "bert", "--output_dir", out / "converted"],
        "evaluate": [*model, *pairs, "--output_file", out / "o.json"],
        "evaluate --chunks": [
            *[*model, "--test_file", good / "rankings.jsonl", "--output_file", out / "o.json", "--precision", "int8"]
        ],
        "score": [*teacher, *pairs, "--max_length", "32", "--split", "train", "--output_file", out / "s.jsonl"],
        "mine": mining(good, out),
        "augment": ["--files", texts, "--num_neighbors", "0", "--output_file", out / "a.jsonl"],
        "merge": ["--model_names_or_paths", good / "dse", good / "dse", "--output_dir", out / "merged"],
        "export": [*model, "--output_dir", out / "exported"],
        "whiten": [*model, "--train_file", good / "docs.txt", "--projection_dim", "2", "--output_dir", out / "white"],
        "push": [*model, "--repo_id", "me/model"],
        "distill": [*model, *pairs, *training, "--distillation_alpha", "0"],
        "distill --stage align": [
            *["--model_name_or_path", good / "bert", "--teacher_name_or_path", good / "dse", "--train_file", texts],
            *["--validation_file", texts, "--sts_file", good / "pairs.jsonl", *training],
        ],
        "teacher": ["--model_name_or_path", good / "bert", *pairs, *training],
        "study": [folder / "study.yaml", "--dry_run", "true"],
        "study report": [folder / "study.yaml"],
        "study probe": ["--models", good / "dse", *pairs, "--split", "validation"],
        "bench speed": [*timing, "--shape_from", good / "bert", "--lengths", "8", "--models", "bert-sdpa", "dse-mean"],
        "bench attention": [
            *[
                "--model_name_or_path",
                good / "bert",
                "--texts",
                good / "docs.txt",
                "--lengths",
                "16",
                "--num_texts",
                "1",
            ],
            *["--projected_lengths", "8", "--output_dir", out / "attention"],
        ],
        "bench rank": [*model, "--cross_encoder", good / "teacher", "--candidates", "2", *timing[:4]],
        "bench long": [
            *[
                "--model_name_or_path",
                good / "bert",
                "--needles",
                "passkey",
                "--lengths",
                "64",
                "--long_length",
                "256",
            ],
            *["--ways", "first", "bm25", *timing[:4], "--timed_documents", "1"],
        ],
    }


HUGE = "99999999999999999999"
# Options that say how long to work.
HOW_LONG = ["--max_steps", "--num_train_epochs", "--rounds", "--min_seconds"]
WRONG = ["", "x", "-1", "0", "1.5", "nan", "inf", HUGE, "~nobody-here/x", "a\0b", "\udcff", "[1]"]


def own_options(command):
    """The options in the help text of a command, without those of transformers."""
    text = StringIO()
    with redirect_stdout(text), pytest.raises(SystemExit):
        main([*command.split(), "--help"])
    own = text.getvalue().split("other options of the training")[0]
    return sorted(set(re.findall(r"^  (--\w+)", own, flags=re.MULTILINE)) - {"--help", "--config"})


def cases(commands):
    found = [(name, option, value) for name in commands for option in own_options(name) for value in WRONG]
    return [case for case in found if case[1:] not in [(option, HUGE) for option in HOW_LONG]]


def attack(commands, monkeypatch, start, end):
    """Runs some of all cases, in an order that is the same each time: the first 1,200 have every option twice."""
    folder, bases = commands
    # Whatever a value names is in this folder.
    monkeypatch.chdir(folder)
    chosen = cases(bases)
    Random(0).shuffle(chosen)
    # Every option once, then every option once more, and so on.
    turns = Counter()
    for case in chosen:
        turns[case] = turns[case[:2]] = turns[case[:2]] + 1
    chosen.sort(key=turns.__getitem__)
    for name, option, value in chosen[start:end]:
        tried()
        remove(folder / "out")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            try:
                run(*name.split(), *bases[name], option, value)
            except BaseException as error:
                raise AssertionError(f"hf-dse {name} {option} {value!r}: {error!r}") from error


def test_the_commands_that_the_others_change_work(commands, monkeypatch):
    folder, bases = commands
    monkeypatch.chdir(folder)
    remove(folder / "out")
    errors = {name: run(*name.split(), *base) for name, base in bases.items()}
    errors = {name: error for name, error in errors.items() if error}
    # There is no Hub, and no run.
    assert "token" in errors.pop("push") and "There is no finished run" in errors.pop("study report")
    assert not errors
    assert {name.split()[0] for name in bases} == {*COMMANDS} - {"demo"}


@pytest.mark.parametrize("start", [0, 50])
def test_options_with_wrong_values(commands, monkeypatch, start):
    attack(commands, monkeypatch, start, start + 50)


@pytest.mark.slow
@pytest.mark.parametrize("start", range(100, 1200, 100))
def test_many_options_with_wrong_values(commands, monkeypatch, start):
    attack(commands, monkeypatch, start, start + 100)
