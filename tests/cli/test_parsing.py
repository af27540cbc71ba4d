# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of a command line and of a YAML file become dataclasses."""

from dataclasses import dataclass, field
from typing import Literal

import pytest

from hf_dse.cli.parsing import parse_options, read_config, read_options
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.options import DseOptions


@dataclass
class ModelArguments:
    """Which model."""

    name: str = field(metadata={"help": "the model"})
    kind: Literal["mean", "max"] = "mean"
    alpha: float = 0.5


@dataclass
class RunArguments:
    """How to run."""

    steps: int = -1
    shuffle: bool = True
    resume: bool = False
    splits: list[str] = field(default_factory=lambda: ["test"])
    limit: int | None = None
    scheduler: str | None = None


def parse(*argv):
    config, rest = read_config(argv)
    return parse_options(rest, ModelArguments, RunArguments, prog="hf-dse test", config=config)


@pytest.fixture
def config_file(tmp_path):
    def write(text):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return f"--config={path}"

    return write


@dataclass
class NamedArguments:
    """The names of transformers."""

    model_name_or_path: str
    corpus_file: str | None = None


@pytest.mark.parametrize("model", ["--model", "--model_name_or_path", "--model-name-or-path"])
@pytest.mark.parametrize("corpus", ["--corpus", "--corpus_file"])
def test_options_have_short_names(model, corpus, capsys, config_file):
    (args,) = parse_options([model, "m", f"{corpus}=docs"], NamedArguments, prog="hf-dse test")
    assert args == NamedArguments("m", "docs")
    config, rest = read_config([config_file(f"{model[2:].replace('-', '_')}: m\n{corpus[2:]}: docs"), model, "n"])
    assert parse_options(rest, NamedArguments, prog="hf-dse test", config=config) == (NamedArguments("n", "docs"),)
    with pytest.raises(ValueError, match="the following arguments are required: --model; see"):
        parse_options([corpus, "docs"], NamedArguments, prog="hf-dse test")
    with pytest.raises(ValueError, match="unknown option '--modell' .did you mean '--model'"):
        parse_options(["--modell", "m"], NamedArguments, prog="hf-dse test")
    with pytest.raises(SystemExit):
        parse_options(["--help"], NamedArguments, prog="hf-dse test")
    printed = capsys.readouterr().out
    assert "usage: hf-dse test --model MODEL [OPTIONS]" in printed and "  --corpus CORPUS" in printed


def test_config_gives_values_that_the_command_line_overrides(config_file):
    config = config_file(
        "name: m\nalpha: 1e-1\nkind: max\nshuffle: false\nresume: yes\nsplits: [a, b]\nlimit: 7\nsteps: -2"
    )
    assert parse(config) == (
        ModelArguments(name="m", kind="max", alpha=0.1),
        RunArguments(steps=-2, shuffle=False, resume=True, splits=["a", "b"], limit=7),
    )
    model, run = parse("--alpha", "0.9", config, "--shuffle", "--resume", "false", "--splits", "c")
    assert (model.alpha, run.shuffle, run.resume, run.splits, run.limit) == (0.9, True, False, ["c"], 7)
    # A command line cannot spell these.
    _, run = parse(config_file("name: m\nlimit: null\nscheduler: {power: 2}"))
    assert run == RunArguments(scheduler='{"power": 2}')


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: --name; see `hf-dse test --help`"),
        (["--name", "m", "--alhpa", "1"], r"unknown option '--alhpa' \(did you mean '--alpha'\?\); `hf-dse test --he"),
        (["--name", "m", "stray"], "unexpected word 'stray': options begin with `--`"),
        (["--name", "m", "--alpha", "nan"], "alpha=nan: it has to be a finite number"),
    ],
)
def test_bad_options(argv, message):
    with pytest.raises(ValueError, match=message):
        parse(*argv)


def test_text_of_a_config_stays_as_it_is_written(config_file, capsys):
    """YAML would make False of NO, and 1.1 of 1.10."""
    from hf_dse.cli.search import SearchArguments

    text = "model: it\ncorpus: docs\nquery: [NO, 1.10, on, 1_000]\ntext_column: on\ntop_k: 1_0\nrerank: null\n"
    values, argv = read_config([config_file(text)])
    (args,) = parse_options(argv, SearchArguments, prog="it", config=values)
    assert (args.query, args.text_column, args.top_k) == (["NO", "1.10", "on", "1_000"], "on", 10)
    assert args.rerank is None


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: m\nalhpa: 1", r"unknown key 'alhpa' \(did you mean 'alpha'\?\)"),
        ("name: m\nalpha: [1, 2]", "unexpected word '2'"),
        ("name: m\nalpha: null", "alpha needs a value, and it has none"),
        ("- name", "must hold `name: value` lines, not a list"),
        ("name: [", "not valid YAML"),
    ],
)
def test_bad_config(config_file, text, message):
    with pytest.raises(ValueError, match=message):
        parse(config_file(text))


def test_a_command_is_a_function_with_options(capsys):
    def test_report(model: ModelArguments, run: RunArguments) -> str:
        """
        Report on
        a test.

        hf-dse test report --name m
        """
        return f"{model.name} {run.steps}"

    assert read_options(test_report, ["--name", "m", "--steps", "2"])() == "m 2"
    with pytest.raises(SystemExit) as stop:
        read_options(test_report, ["--help"])
    assert not stop.value.code
    text = capsys.readouterr().out
    assert text.startswith("usage: hf-dse test report --name NAME [OPTIONS]\n\nReport on a test.\n\nWhich model:\n")
    assert text.endswith("example:\n  hf-dse test report --name m\n")
    # One spelling of each option, with its choices.
    assert "--kind {mean,max}" in text and "--no-" not in text and "None" not in text


def test_options_of_a_training_are_completed(capsys, tmp_path):
    argv = ["--output-dir", str(tmp_path), "--max_length", "9", "--optim", "sgd"]
    (parsed,) = parse_options(argv, DseOptions, prog="hf-dse test")
    assert isinstance(parsed, DseTrainingArguments)
    assert (parsed.output_dir, parsed.max_length, parsed.optim) == (str(tmp_path), 9, "sgd")
    for words, is_shown in ((["--help"], False), (["--help", "all"], True)):
        with pytest.raises(SystemExit):
            parse_options(words, DseOptions, prog="hf-dse test")
        text = capsys.readouterr().out
        assert "  --max_length " in text and ("  --optim " in text) == is_shown
