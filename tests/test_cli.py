# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The `hf-dse` command itself: the table of commands, options and `--config`, errors."""

import importlib
import inspect
import logging
import re
import shlex
import subprocess
import sys
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import SimpleNamespace
from typing import Literal, get_args, get_origin

import pytest
from huggingface_hub.errors import StrictDataclassClassValidationError

import hf_dse_cli
from hf_dse import DseConfig, export_model
from hf_dse.cli import output
from hf_dse.cli.parsing import EXAMPLES, parse_args
from hf_dse.student.options import ConvertOptions
from hf_dse.training.arguments import PairTrainingArguments
from hf_dse.training.options import PairOptions
from hf_dse_cli import COMMANDS, JOBS, MEANT, main


@dataclass
class ModelArguments:
    name: str = field(metadata={"help": "the model"})
    kind: Literal["mean", "max"] = "mean"
    alpha: float = 0.5


@dataclass
class RunArguments:
    steps: int = -1
    shuffle: bool = True
    resume: bool = False
    splits: list[str] = field(default_factory=lambda: ["test"])
    limit: int | None = None
    scheduler: str | None = None


def parse(*argv):
    return parse_args(list(argv), ModelArguments, RunArguments, prog="hf-dse test")


@pytest.fixture
def config_file(tmp_path):
    def write(text):
        path = tmp_path / "run.yaml"
        path.write_text(text)
        return f"--config={path}"

    return write


def test_options_become_dataclasses():
    model, run = parse("--name", "m", "--alpha", "1e-1", "--steps=3", "--no_shuffle", "--splits", "validation", "test")
    assert model == ModelArguments(name="m", alpha=0.1)
    assert run == RunArguments(steps=3, shuffle=False, splits=["validation", "test"])


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


def test_config_values_that_a_command_line_cannot_spell(config_file):
    _, run = parse(config_file("name: m\nlimit: null\nsplits: []\nscheduler: {power: 2}"))
    assert run == RunArguments(splits=[], scheduler='{"power": 2}')


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "required: --name"),
        (
            ["--name", "m", "--alhpa", "1"],
            r"unknown option '--alhpa' \(did you mean '--alpha'\?\); `hf-dse test --help`",
        ),
        (["--name", "m", "--zzz=1"], "unknown option '--zzz'; `hf-dse test --help` lists"),
        (["--name", "m", "stray"], "unknown option 'stray'"),
        (["--nam", "m"], r"required: --name \('--nam' is no option\); see `hf-dse test --help`"),
        (["--name", "m", "--alpha", "high"], "--alpha: invalid float value: 'high'"),
        (
            ["--name", "m", "--kind", "maen"],
            r"--kind: invalid choice: 'maen' \(did you mean 'mean'\?\); choose from mean, max",
        ),
        (["--name", "m", "--resume", "perhaps"], "Truthy value expected"),
    ],
)
def test_bad_options(argv, message):
    with pytest.raises(ValueError, match=message):
        parse(*argv)


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("name: m\nalhpa: 1", r"unknown key 'alhpa' \(did you mean 'alpha'\?\); allowed are alpha, kind, limit, name"),
        ("name: m\nalpha: high", "invalid float value: 'high'"),
        ("name: m\nkind: min", "invalid choice"),
        ("name: m\nalpha: [1, 2]", "alpha takes one value, but it has a list"),
        ("name: null", "required: --name"),
        ("- name", "must hold `name: value` lines, but it holds a list"),
        ("name: [", "not valid YAML"),
        ("config: other.yaml", "unknown key 'config'"),
    ],
)
def test_bad_config(config_file, text, message):
    with pytest.raises(ValueError, match=message):
        parse(config_file(text))


def test_config_that_is_not_there():
    with pytest.raises(FileNotFoundError, match="--config: there is no file 'missing.yaml'"):
        parse("--config", "missing.yaml")


def test_help_of_a_command_names_its_options(capsys):
    with pytest.raises(SystemExit) as stop:
        parse("--help")
    assert stop.value.code == 0
    text = capsys.readouterr().out
    assert "usage: hf-dse test" in text and "--config FILE" in text and "the model (required)" in text
    # One spelling of each option, with the type and the default.
    assert "--limit INT" in text and "--kind {mean,max}" in text
    assert "(default: None)" not in text


def help_of(capsys, *argv):
    with pytest.raises(SystemExit) as stop:
        main([*argv])
    assert stop.value.code == 0
    return capsys.readouterr().out


TEACHER_HEADINGS = [
    "Which encoder becomes a cross-encoder:",
    "Which data to read: sentence pairs, or queries with a corpus:",
    "How to train:",
    "general:",
    "example:",
]


def check_order(text, headings):
    lines = text.splitlines()
    assert [lines.index(heading) for heading in headings] == sorted(lines.index(heading) for heading in headings)


def test_help_shows_our_options_only(capsys):
    text = help_of(capsys, "teacher", "--help")
    check_order(text, TEACHER_HEADINGS)
    assert "  --output_dir TEXT" in text and "--output-dir" not in text and "(default: 128)" in text
    assert "--fsdp" not in text and "`hf-dse teacher\n--help all` lists them" in text
    # What is switched on by its name needs no value.
    assert "  --trust_remote_code   Run the code" in text


def test_help_all_shows_the_options_of_transformers_last(capsys):
    text = help_of(capsys, "teacher", "--help", "all")
    inherited = "Options of transformers.TrainingArguments:"
    check_order(text, [*TEACHER_HEADINGS[:3], inherited, *TEACHER_HEADINGS[3:]])
    assert text.index("  --max_length ") < text.index(inherited) < text.index("  --fsdp ")
    # Every other command has the same help.
    assert help_of(capsys, "search", "--help", "all") == help_of(capsys, "search", "--help")


@pytest.mark.parametrize("kind", [PairTrainingArguments, PairOptions])
def test_both_spellings_and_all_options_are_understood(kind):
    (parsed,) = parse_args(["--output-dir", "x", "--max_length", "9", "--optim", "sgd"], kind)
    assert isinstance(parsed, PairTrainingArguments)
    assert (parsed.output_dir, parsed.max_length, parsed.optim) == ("x", 9, "sgd")


def test_distill_help_is_short_and_starts_with_what_is_required(capsys):
    text = help_of(capsys, "distill", "--help")
    assert len(text.splitlines()) < 250 and text.startswith(
        "usage: hf-dse distill --model_name_or_path TEXT [OPTIONS]\n"
    )
    assert "What a student learns from pairs:" in text


def test_choices_of_a_conversion_are_those_of_the_config():
    hints = inspect.get_annotations(DseConfig)
    choices = {
        entry.name: entry.metadata["choices"] for entry in fields(ConvertOptions) if "choices" in entry.metadata
    }
    assert list(choices.pop("layer_types")) == ["linear_attention", "chunked_attention", "full_attention"]
    for name, values in choices.items():
        literal = next(hint for hint in (hints[name], *get_args(hints[name])) if get_origin(hint) is Literal)
        assert list(get_args(literal)) == values


@pytest.mark.parametrize("example", [line for lines in EXAMPLES.values() for line in lines.splitlines()])
def test_examples_in_the_help_text_are_valid(example, monkeypatch):
    """Every option exists: parsing comes before anything else that a command does."""

    class Parsed(Exception):
        pass

    def parse_and_stop(argv, *kinds, **options):
        parse_args(argv, *kinds, **options)
        raise Parsed

    _, module, function = COMMANDS[example.split()[1]]
    command = importlib.import_module(module)
    monkeypatch.setattr(command, "parse_args", parse_and_stop)
    with pytest.raises(Parsed):
        getattr(command, function)(shlex.split(example)[2:])


def test_every_command_has_an_example():
    assert {prog.split()[1] for prog in EXAMPLES} == set(COMMANDS)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists(command):
    _, module, function = COMMANDS[command]
    assert callable(getattr(importlib.import_module(module), function))


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_help_fits_a_screen_with_the_main_jobs_first(argv, capsys):
    try:
        assert main(argv) == 0
    except SystemExit as stop:
        assert stop.code == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) < 80
    assert [line.split()[0] for line in lines if line.startswith("  ")][:3] == ["distill", "search", "convert"]
    assert all(re.search(rf"\b{command}\b", "\n".join(lines)) for command in COMMANDS)


@pytest.mark.parametrize(
    ("word", "hint"),
    [
        ("serch", " (did you mean `hf-dse search`?)"),
        ("distil", " (did you mean `hf-dse distill`?)"),
        ("rerank", " (did you mean `hf-dse search --rerank`?)"),
        ("train", " (did you mean `hf-dse distill`?)"),
        ("index", " (did you mean `hf-dse search`?)"),
        ("embed", " (did you mean `hf-dse encode`?)"),
        ("predict", " (did you mean `hf-dse score`?)"),
        ("xyzzy", ""),
    ],
)
def test_unknown_command(word, hint, capsys):
    assert main([word]) == 2
    error = capsys.readouterr().err
    assert error == f"hf-dse: error: unknown command {word!r}{hint}; `hf-dse --help` lists the commands\n"


def test_what_people_mean_exists():
    assert {meant.split()[0] for meant in MEANT.values()} <= {*COMMANDS, "--help"}
    assert not MEANT.keys() & COMMANDS.keys() and {*JOBS} < {*COMMANDS}


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        (["bench", "sped"], "There is no benchmark 'sped' (did you mean 'speed'?); the benchmarks are speed, rank"),
        (["study", "reprot"], "reprot: there is no such study (did you mean 'report'?)"),
        (["convert", "--similarity", "cos"], "invalid choice: 'cos'"),
        (["convert", "--pooling_mode", "maen"], "'maen' (did you mean 'mean'?); choose from mean, cls, max"),
    ],
)
def test_words_that_are_none_of_the_choices(argv, message, capsys):
    assert main(argv) == 2
    assert message in capsys.readouterr().err


def test_a_missing_folder(capsys, tmp_path):
    """What the Hub refuses as an id was meant as a folder."""
    folder, table = tmp_path / "a" / "teacher", tmp_path / "pairs.parquet"
    data = ["--dataset_name", "embedded", "--output_file", str(table)]
    assert main(["score", "--model_name_or_path", str(folder), *data]) == 2
    error = capsys.readouterr().err
    assert str(folder) in error and "There is no such folder either." in error
    assert not table.exists()


def bad_config(_):
    DseConfig(hidden_size=7)


def raises(error):
    def run(_):
        raise error

    return run


def install(monkeypatch, function):
    monkeypatch.setitem(hf_dse_cli.COMMANDS, "try", ("", "trial", "run"))
    monkeypatch.setitem(sys.modules, "trial", SimpleNamespace(run=function))


@pytest.mark.parametrize(
    "error",
    [
        ValueError("no such task"),
        FileNotFoundError("no such file"),
        FileExistsError("not empty"),
        ImportError("pip install it"),
        StrictDataclassClassValidationError("validate", ValueError("too small")),
    ],
)
def test_errors_of_the_user_are_one_line(monkeypatch, capsys, error):
    install(monkeypatch, raises(error))
    assert main(["try"]) == 2
    assert capsys.readouterr().err == f"hf-dse try: error: {' '.join(str(error).split())}\n"
    monkeypatch.setenv("HF_DSE_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main(["try"])


def test_a_bad_model_configuration_is_an_error_of_the_user(monkeypatch, capsys):
    install(monkeypatch, bad_config)
    assert main(["try"]) == 2
    assert "`hidden_size` (7) must be a multiple" in capsys.readouterr().err


def log_both():
    logger = logging.getLogger("hf_dse.try")
    logger.info("a note")
    logger.warning("a warning")


def test_notes_and_warnings_are_on_stderr(monkeypatch, capsys):
    install(monkeypatch, lambda argv: log_both())
    assert main(["try"]) == 0
    assert capsys.readouterr() == ("", "a note\na warning\n")
    assert main(["try", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    # The second of several processes repeats no notes.
    monkeypatch.setenv("RANK", "1")
    assert main(["try"]) == 0
    assert capsys.readouterr() == ("", "a warning\n")


def test_the_library_shows_no_notes(capsys):
    log_both()
    assert "a note" not in "".join(capsys.readouterr())


def test_faults_of_the_program_keep_their_traceback(monkeypatch):
    install(monkeypatch, raises(KeyError("x")))
    with pytest.raises(KeyError):
        main(["try"])


def test_interruption(monkeypatch, capsys):
    install(monkeypatch, raises(KeyboardInterrupt()))
    assert main(["try"]) == 130
    assert capsys.readouterr().err == "\nhf-dse try: interrupted; give the same command to start again\n"


def test_a_command_gets_the_rest_of_the_line(monkeypatch):
    seen = []
    install(monkeypatch, seen.extend)
    assert main(["try", "--help", "x"]) == 0
    assert seen == ["--help", "x"]


@pytest.mark.parametrize("place", [0, 1, 3])
def test_quiet(place, tmp_path, make_model, bert_tokenizer, capfd, monkeypatch):
    monkeypatch.setattr(output, "SHORT", 0.0)
    export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("a cat\n \n")
    command = ["encode", "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "vectors.npy")]
    command += ["--model_name_or_path", str(tmp_path / "model")]
    capfd.readouterr()
    assert main([*command[:place], "--quiet", *command[place:]]) == 0
    captured = capfd.readouterr()
    assert captured.out.startswith("2 vectors of size 16 written") and not captured.err
    # Only that time.
    assert main(command) == 0
    assert "Encoding texts: 100%" in capfd.readouterr().err


def imported(argv):
    """Which of the heavy packages a command imports in a process of its own, and what it prints."""
    code = f"""
import sys
from hf_dse_cli import main
try:
    code = main({argv!r})
except SystemExit as stop:
    code = stop.code
print("imported", code, *({{"torch", "datasets", "pandas", "transformers.training_args"}} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout.splitlines()[-1], result.stdout + result.stderr


@pytest.mark.parametrize(
    "command", [*COMMANDS, "bench rank", "bench attention", "bench long", "study report", "study probe"]
)
def test_help_imports_nothing_heavy(command):
    assert imported([*command.split(), "--help"])[0] == "imported 0"


@pytest.mark.parametrize(
    ("argv", "message"),
    [
        ([], "COMMAND [OPTIONS]"),
        (["--version"], "0.1.0"),
        (["search", "--model_name_or_path", "m", "--corpus", "c", "--tpo_k", "3"], "did you mean '--top_k'"),
        (["search"], "required: --model_name_or_path"),
        (["distill", "--task_name", "stsb"], "required: --model_name_or_path"),
        (["teacher", "--model_name_or_path", "m", "--max_length", "long"], "invalid int value: 'long'"),
    ],
)
def test_errors_in_options_import_nothing_heavy(argv, message):
    last, output = imported(argv)
    assert last in ("imported 0", "imported 2") and message in output


def test_a_command_that_works_knows_the_model_type(tmp_path, make_model, bert_tokenizer):
    """Registration waits for the options, and no longer."""
    export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("a cat\n")
    argv = ["encode", "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "vectors.npy")]
    last, output = imported([*argv, "--model_name_or_path", str(tmp_path / "model")])
    assert last.startswith("imported 0") and "1 vectors of size 16" in output


def test_no_colours_without_a_terminal(tmp_path, make_model, bert_tokenizer):
    """Escape codes would stay in a file or a log."""
    export_model(make_model(), bert_tokenizer, tmp_path / "model")
    (tmp_path / "texts.txt").write_text("a cat\nthe dog\n")
    program = [sys.executable, "-m", "hf_dse_cli"]
    model = ["--model_name_or_path", str(tmp_path / "model")]
    commands = [
        ["--help"],
        ["encode", "--help"],
        ["serch"],
        ["encode", "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "vectors.npy"), *model],
        ["bench", "--lengths", "8", "--rounds", "1", "--min_seconds", "0", "--models", "bert-sdpa"]
        + ["--batch_size", "1", "--matmul_size", "8", "--output_dir", str(tmp_path / "bench")],
    ]
    for argv in commands:
        result = subprocess.run([*program, *argv], capture_output=True, check=False, cwd=tmp_path)
        assert b"\x1b" not in result.stdout + result.stderr, argv


def test_the_installed_program_answers_without_torch():
    program = Path(sys.executable).with_name("hf-dse")
    code = f"""
import atexit, runpy, sys
atexit.register(lambda: print("torch" in sys.modules))
sys.argv = ["hf-dse", "--version"]
runpy.run_path({str(program)!r}, run_name="__main__")
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert result.stdout.split() == ["hf-dse", "0.1.0", "False"]
