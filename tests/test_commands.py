# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Every `hf-dse` command line in documentation, docstrings, messages and recipes has options that exist."""

import ast
import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import pytest

from hf_dse_cli import COMMANDS, read


ROOT = Path(__file__).parents[1]
PAGES = [*ROOT.glob("*.md"), *(ROOT / "docs").rglob("*.md"), *(ROOT / "hf_dse").rglob("*.md")]
SCRIPTS = [*(ROOT / "recipes").rglob("*.*"), *(ROOT / "studies").glob("*.*"), ROOT / "Makefile"]
CODE = [
    path
    for folder in ("hf_dse", "modeling", "examples", "recipes", "studies")
    for path in (ROOT / folder).rglob("*.py")
]

FENCED = re.compile(r"^```\w*\n(.*?)^```", re.MULTILINE | re.DOTALL)
INLINE = re.compile(r"`((?:\w+=\w+ )?hf-dse [^`]+)`")
OPERATORS = {"&&", "||", "|", ";", "&", ">", "(", ")"}


def in_shell(text: str) -> Iterator[list[str]]:
    """The arguments of the `hf-dse` commands in lines of a shell script, also in its comments."""
    # ${NAME:-default} is its default.
    for line in re.sub(r"\$\{\w+:-([^}]*)\}", r"\1", text.replace("\\\n", " ")).splitlines():
        line = re.sub(r"^[#\s$]*(?=hf-dse )", "", line)
        if "hf-dse" not in line:
            continue
        lexer = shlex.shlex(line, posix=True, punctuation_chars=True)
        lexer.whitespace_split = True
        try:
            words = list(lexer)
        except ValueError:  # an apostrophe: prose
            continue
        for start, word in enumerate(words):
            is_command = word in ("hf-dse", "$(which hf-dse)") or word.endswith("/hf-dse")
            if is_command and words[start + 1 : start + 2] and words[start + 1] in COMMANDS:
                end = next((n for n, other in enumerate(words) if n > start and other in OPERATORS), len(words))
                yield words[start + 1 : end]


def in_prose(text: str) -> Iterator[list[str]]:
    """The arguments of the commands between backticks."""
    for command in INLINE.findall(text):
        yield shlex.split(" ".join(command.split()))[1:]


def strings(tree: ast.AST) -> Iterator[str]:
    """The strings of a program; of those with values in them, a word stands for each value."""
    inside = {id(part) for node in ast.walk(tree) if isinstance(node, ast.JoinedStr) for part in node.values}
    for node in ast.walk(tree):
        if isinstance(node, ast.JoinedStr):
            yield "".join(str(part.value) if isinstance(part, ast.Constant) else "X" for part in node.values)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and id(node) not in inside:
            yield node.value


def find_commands() -> dict[str, tuple[list[str], bool]]:
    """Arguments by place, and whether they are all of a command."""
    found: dict[str, tuple[list[str], bool]] = {}

    def add(path: Path, commands: Iterator[list[str]], is_whole: bool) -> None:
        for argv in commands:
            found[f"{path.relative_to(ROOT)}: {' '.join(argv)}"[:150]] = (argv, is_whole)

    for path in sorted(PAGES):
        text = re.sub(r"\{\{.*?\}\}|\{%.*?%\}", "1", path.read_text(encoding="utf-8"))
        for block in FENCED.findall(text):
            add(path, in_shell(re.sub(r"^hf-dse \w+: .*$", "", block, flags=re.MULTILINE)), True)
        add(path, in_prose(FENCED.sub("", text)), False)
    for path in sorted(SCRIPTS):
        if path.suffix in (".sh", ".yaml", "") and path.is_file():
            text = (
                path.read_text(encoding="utf-8")
                .replace('"$here"', str(path.parent))
                .replace("$here", str(path.parent))
            )
            # Of a script, variables may hold options.
            add(path, in_shell(text), path.suffix != ".sh")
    for path in sorted(CODE):
        for text in strings(ast.parse(path.read_text(encoding="utf-8"))):
            add(path, in_prose(text), False)
            add(path, in_shell("\n".join(re.findall(r"^ +hf-dse .*(?:\\\n.*)*", text, re.MULTILINE))), True)
    return found


FOUND = find_commands()


def parse(argv: list[str]) -> None:
    """Parses a command line as its command does."""
    argv = [word for word in argv if word not in ("--quiet", "...")]
    if argv[0].startswith("-") or argv[0] == "COMMAND":
        return
    assert argv[0] in COMMANDS, f"there is no command {argv[0]}"
    read(argv[0], argv[1:])


def test_commands_are_found():
    assert len(FOUND) > 100 and sum(is_whole for _, is_whole in FOUND.values()) > 60
    assert list(in_shell("$ hf-dse encode --input 'a b' \\\n  --output c && ls")) == [
        ["encode", "--input", "a b", "--output", "c"]
    ]


@pytest.mark.parametrize("place", FOUND, ids=lambda place: re.sub(r"[^ -~]", "?", place))
def test_command(place, monkeypatch, capsys):
    argv, is_whole = FOUND[place]
    monkeypatch.chdir(ROOT)
    try:
        parse(argv)
    except SystemExit as stop:  # --help
        assert stop.code in (0, None)
    except ValueError as error:
        # Prose names some options of a command, and what a page shows as an error is one.
        is_partial = not is_whole and re.search(r"arguments are required|expected (at least )?one|'\$\w+'", str(error))
        page = (ROOT / place.partition(":")[0]).read_text(encoding="utf-8")
        if not is_partial and str(error) not in " ".join(page.split()):
            raise
