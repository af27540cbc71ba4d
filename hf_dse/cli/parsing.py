# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""How the commands read their options."""

import argparse
import difflib
import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any


def parse_args(
    argv: Sequence[str],
    *dataclass_types: type,
    prog: str | None = None,
    description: str | None = None,
    config: Mapping[str, Any] | None = None,
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
        config (`Mapping[str, Any]`, *optional*):
            Values in place of those of a `--config` file.

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

    parser = Parser(dataclass_types, prog=prog, description=description, allow_abbrev=False)  # type: ignore[arg-type]
    parser.add_argument("--config", metavar="FILE", help="YAML file with values for these options, by their names")

    path, argv = split_config(argv)
    if config is None:
        config = {} if path is None else read_config(path)
    *parsed, unknown = parser.parse_args_into_dataclasses(
        _config_tokens(parser, config) + argv, return_remaining_strings=True, look_for_args_file=False
    )
    if unknown:
        name = unknown[0].split("=")[0]
        close = difflib.get_close_matches(name, parser._option_string_actions, n=1)
        hint = f"did you mean {close[0]}?" if close else "--help lists the options"
        raise ValueError(f"unknown option {name!r}; {hint}")
    return tuple(parsed[: len(dataclass_types)])


def split_config(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file that a command line names with `--config`, and the rest of the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    known, rest = parser.parse_known_args(argv)
    return known.config, rest


def read_config(path: str) -> dict[str, Any]:
    """Reads `name: value` lines from a YAML file."""
    import yaml

    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"--config: there is no file {path!r}")
    try:
        values = yaml.safe_load(file.read_text(encoding="utf-8"))
    except yaml.YAMLError as error:
        raise ValueError(f"--config: {path} is not valid YAML: {error}") from error
    if not isinstance(values, dict | None):
        raise ValueError(f"--config: {path} must hold `name: value` lines, but it holds a {type(values).__name__}")
    return values or {}


def _config_tokens(parser: argparse.ArgumentParser, values: Mapping[str, Any]) -> list[str]:
    """Spells a config as command-line tokens, so that both go through the same conversions and checks."""
    actions = {action.dest: action for action in reversed(parser._actions) if action.dest not in ("help", "config")}
    tokens = []
    for name, value in values.items():
        if name not in actions:
            close = difflib.get_close_matches(str(name), actions, n=1)
            hint = f" (did you mean {close[0]!r}?)" if close else ""
            raise ValueError(f"--config: unknown key {name!r}{hint}; allowed are {', '.join(sorted(actions))}")
        action = actions[name]
        if value is None or value == []:
            # There is no way to say "nothing" on a command line.
            action.default = value
        elif action.nargs == "+":
            tokens += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        elif isinstance(value, list):
            raise ValueError(f"--config: {name} takes one value, but it has a list: {value}")
        else:
            tokens.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return tokens
