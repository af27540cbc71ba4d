# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The `hf-dse` command itself: the table of commands, errors, interruptions, and what it imports."""

import logging
import os
import subprocess
import sys
from types import SimpleNamespace

import pytest
from huggingface_hub.errors import StrictDataclassClassValidationError

import hf_dse_cli
from hf_dse import export
from hf_dse_cli import COMMANDS, main


@pytest.mark.parametrize("argv", [[], ["--help"]])
def test_help_fits_a_screen(argv, capsys):
    assert main(argv) == 0
    lines = capsys.readouterr().out.splitlines()
    assert len(lines) < 24 and max(map(len, lines)) < 80
    assert [line.split()[0] for line in lines if line.startswith("  ")] == list(COMMANDS)


@pytest.mark.parametrize(("word", "hint"), [("serch", " (did you mean 'search'?)"), ("xyzzy", "")])
def test_unknown_command(word, hint, capsys):
    assert main([word]) == 2
    error = capsys.readouterr().err
    assert error == f"hf-dse: error: unknown command {word!r}{hint}; `hf-dse --help` lists the commands\n"


def raises(error):
    def start():
        raise error

    return start


def install(monkeypatch, start):
    """Adds a command `try` without options."""
    monkeypatch.setitem(hf_dse_cli.COMMANDS, "try", ("try", ""))
    monkeypatch.setitem(hf_dse_cli.GO_ON, "try", "wait, then go on")
    monkeypatch.setitem(sys.modules, "hf_dse.cli.try", SimpleNamespace(parse_try=lambda argv: start))


@pytest.mark.parametrize(
    "error",
    [FileNotFoundError("no such\n\nfile"), StrictDataclassClassValidationError("validate", ValueError("too small"))],
)
def test_errors_of_the_user_are_one_line(monkeypatch, capsys, error):
    install(monkeypatch, raises(error))
    assert main(["try"]) == 2
    assert capsys.readouterr().err == f"hf-dse try: error: {' '.join(str(error).split())}\n"
    monkeypatch.setenv("HF_DSE_TRACEBACK", "1")
    with pytest.raises(type(error)):
        main(["try"])
    # Faults of the program keep their traceback.
    monkeypatch.delenv("HF_DSE_TRACEBACK")
    install(monkeypatch, raises(KeyError("x")))
    with pytest.raises(KeyError):
        main(["try"])


def log_both():
    logger = logging.getLogger("hf_dse.try")
    logger.info("a note")
    logger.warning("a warning")


def test_notes_and_warnings_are_on_stderr(monkeypatch, capsys):
    install(monkeypatch, log_both)
    assert main(["try"]) == 0
    assert capsys.readouterr() == ("", "a note\na warning\n")
    assert main(["try", "--quiet"]) == 0
    assert capsys.readouterr() == ("", "")
    # The second of several processes repeats no notes.
    monkeypatch.setenv("RANK", "1")
    assert main(["try"]) == 0
    assert capsys.readouterr() == ("", "a warning\n")
    log_both()
    assert "a note" not in "".join(capsys.readouterr())


def imported(*commands):
    """Runs commands in a process of its own. Returns its output, and at last the heavy packages that it imports."""
    code = f"""
import sys
from hf_dse_cli import main
for argv in {commands!r}:
    try:
        print(main(argv))
    except SystemExit as stop:
        print(stop.code)
print("imported", *({{"torch", "datasets", "pandas", "transformers.training_args"}} & sys.modules.keys()))
"""
    result = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    return result.stdout + result.stderr


def test_help_imports_nothing_heavy_and_has_examples():
    commands = [*COMMANDS, "study report"]
    output = imported(["--version"], *([*command.split(), "--help"] for command in commands))
    assert "hf-dse 0.1.0\n" in output and "imported\n" in output
    for command in commands:
        assert f"usage: hf-dse {command} " in output and f"\n  hf-dse {command} " in output, command


def test_errors_in_options_import_nothing_heavy():
    output = imported(["search"], ["search", "--model", "m", "--corpus", "c", "--tpo_k", "3"])
    assert "required: --model, --corpus, --query; see `hf-dse search --help`" in output
    assert "did you mean '--top_k'" in output and "2\n2\nimported\n" in output
    # A later `import hf_dse` registers as usual.
    assert main(["search"]) == 2 and "HF_DSE_REGISTER" not in os.environ


def test_a_command_that_works_knows_the_model_type(tmp_path, make_model, bert_tokenizer):
    """Registration waits for the options, and no longer. Without a terminal there are no escape codes."""
    export(make_model(), tmp_path / "model", bert_tokenizer)
    (tmp_path / "texts.txt").write_text("a cat\n")
    argv = ["encode", "--input", str(tmp_path / "texts.txt"), "--output", str(tmp_path / "vectors.npy")]
    output = imported([*argv, "--model", str(tmp_path / "model")])
    assert "0\nimported" in output and "1 vectors of size 16" in output and "\x1b" not in output
