# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The `hf-dse` command. Nothing heavy is imported before a command runs, so `hf-dse --help` answers at once."""

import argparse
import difflib
import importlib
import importlib.metadata
import json
import os
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

# command -> (one line of help, module, function taking the rest of the command line)
COMMANDS = {
    "demo": ("the whole way on a small embedded data set, in a few minutes on a CPU", "hf_dse.cli.distill", "demo"),
    "teacher": ("fine-tune a cross-encoder on a sentence-pair task", "hf_dse.cli.teacher", "teacher"),
    "score": ("add a teacher's scores to a sentence-pair data set", "hf_dse.cli.teacher", "score"),
    "convert": ("turn a pretrained encoder into one with linear attention", "hf_dse.cli.distill", "convert"),
    "distill": ("train a student on labels and teacher scores", "hf_dse.cli.distill", "distill"),
    "evaluate": ("measure a model on a sentence-pair task", "hf_dse.cli.evaluate", "evaluate"),
    "encode": ("turn texts into embeddings", "hf_dse.cli.evaluate", "encode"),
    "export": ("write a complete, documented model folder", "hf_dse.cli.distill", "export"),
}

TRACEBACK_VARIABLE = "HF_DSE_TRACEBACK"


def main(argv: Sequence[str] | None = None) -> int:
    """
    Runs one `hf-dse` command.

    Args:
        argv (`Sequence[str]`, *optional*, defaults to `sys.argv[1:]`):
            The command line, without the program's name.

    Returns:
        `int`: The exit code: 0, 2 after an error of the user's, 130 after an interruption.
    """
    argv = list(sys.argv[1:] if argv is None else argv)
    width = max(map(len, COMMANDS))
    listing = "\n".join(f"  {name:<{width}}  {line}" for name, (line, _, _) in COMMANDS.items())
    parser = argparse.ArgumentParser(
        prog="hf-dse",
        usage="hf-dse [--help] [--version] COMMAND [OPTIONS]",
        description="Distil a cross-encoder into a sentence-embedding model with linear attention.",
        epilog=f"commands:\n{listing}\n\n`hf-dse COMMAND --help` lists the options of a command. "
        f"{TRACEBACK_VARIABLE}=1 shows the traceback of an error.",
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    parser.add_argument("--version", action="version", version=f"hf-dse {importlib.metadata.version('hf-dse')}")
    parser.add_argument("command", nargs="?", help=argparse.SUPPRESS)
    # Only the words before the command are this parser's; argparse would take the command's --help for its own.
    command = parser.parse_args(argv[:1]).command
    if command is None:
        parser.print_help()
        return 0
    if command not in COMMANDS:
        print(f"hf-dse: error: unknown command {command!r}; the commands are {', '.join(COMMANDS)}", file=sys.stderr)
        return 2

    _, module, function = COMMANDS[command]
    try:
        getattr(importlib.import_module(module), function)(argv[1:])
    except KeyboardInterrupt:
        print(f"\nhf-dse {command}: interrupted", file=sys.stderr)
        return 130
    except Exception as error:
        if os.environ.get(TRACEBACK_VARIABLE) == "1" or not _is_user_error(error):
            raise
        print(f"hf-dse {command}: error: {error}", file=sys.stderr)
        return 2
    return 0


def parse_args(
    argv: Sequence[str], *dataclass_types: type, prog: str | None = None, description: str | None = None
) -> tuple[Any, ...]:
    """
    Parses a command line into dataclasses. `--config file.yaml` gives values under the dataclasses' field names; the
    command line goes before them.

    Args:
        argv (`Sequence[str]`):
            The command line, without program and command.
        dataclass_types (`type`):
            The dataclasses whose fields are the options; no two may share a field.
        prog (`str`, *optional*):
            The command's name in the help text, as in `"hf-dse evaluate"`.
        description (`str`, *optional*):
            What the command does, for the help text.

    Returns:
        `tuple`: One instance of each dataclass, in the order given.

    Raises:
        `ValueError`: An unknown or missing option, a value of the wrong type, or a file that does not fit.
        `FileNotFoundError`: There is no such `--config` file.
    """
    from transformers import HfArgumentParser

    class Parser(HfArgumentParser):
        # argparse would print the usage of well over a hundred options and exit; `main` prints the one line.
        def error(self, message: str):
            raise ValueError(message)

    parser = Parser(dataclass_types, prog=prog, description=description, allow_abbrev=False)
    parser.add_argument("--config", metavar="FILE", help="YAML file with values for these options, by their names")

    config_parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    config_parser.add_argument("--config")
    config = config_parser.parse_known_args(argv)[0].config
    tokens = [] if config is None else _config_tokens(parser, Path(config))

    *parsed, unknown = parser.parse_args_into_dataclasses(
        tokens + list(argv), return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        name = unknown[0].split("=")[0]
        close = difflib.get_close_matches(name, parser._option_string_actions, n=3)
        hint = f"did you mean {' or '.join(close)}?" if close else "--help lists the options"
        raise ValueError(f"unknown option {name!r}; {hint}")
    return tuple(parsed[: len(dataclass_types)])


def _config_tokens(parser: argparse.ArgumentParser, path: Path) -> list[str]:
    """Spells a YAML file as command-line tokens, so that both go through the same conversions and checks."""
    import yaml

    if not path.is_file():
        raise FileNotFoundError(f"--config: there is no file {str(path)!r}")
    try:
        values = yaml.safe_load(path.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"--config: {path} is not valid YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ValueError(f"--config: {path} must hold `name: value` lines, but it holds a {type(values).__name__}")

    actions = {action.dest: action for action in reversed(parser._actions) if action.dest not in ("help", "config")}
    tokens = []
    for name, value in (values or {}).items():
        if name not in actions:
            close = difflib.get_close_matches(str(name), actions, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"--config: {path}: unknown key {name!r}{hint}; allowed are {', '.join(sorted(actions))}")
        action = actions[name]
        if value is None or value == []:
            # There is no way to say "nothing" on a command line.
            action.default, action.required = value, False
        elif action.nargs == "+":
            tokens += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        elif isinstance(value, list):
            raise ValueError(f"--config: {path}: {name} takes one value, but it has a list: {value}")
        else:
            tokens.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return tokens


def _is_user_error(error: Exception) -> bool:
    """Tells what a user can mend (bad values, files, names, missing packages) from a fault in the program."""
    from huggingface_hub.errors import StrictDataclassError

    return isinstance(error, ValueError | OSError | ImportError | StrictDataclassError)
