# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Options of the commands. A command is a function: its parameters are dataclasses, whose fields are its options, and its
docstring is its help: a description, then examples.
"""

import argparse
import inspect
import json
import re
import sys
import textwrap
from collections.abc import Callable, Collection, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, get_args, get_type_hints

from transformers import HfArgumentParser

from hf_dse.common.files import read_yaml
from hf_dse.common.options import check_numbers, complete, did_you_mean


TYPE_NAMES = {"int": "INT", "float": "FLOAT", "str": "TEXT", "string_to_bool": "BOOL"}


class OptionParser(HfArgumentParser):
    """The options of dataclasses, each a group with the first sentence of its docstring as heading, and `--config`."""

    def __init__(self, kinds: Sequence[Any], prog: str, help: str):
        for kind in kinds:
            sentence = re.split(r"\.\s|\.$", inspect.getdoc(kind) or "")[0]
            kind._argument_group_name = " ".join(re.sub(r"[\[\]`~]", "", sentence).split())
        description, _, examples = help.partition("\n\n")
        epilog = f"example:\n{textwrap.indent(examples, '  ')}" if examples else ""
        super().__init__(
            kinds,
            prog=prog,
            description=textwrap.fill(description, 79),
            epilog=epilog,
            add_help=False,
            allow_abbrev=False,
            formatter_class=argparse.RawDescriptionHelpFormatter,
        )
        general = self.add_argument_group("General options")
        general.add_argument(
            "--config", metavar="FILE", help="YAML file with values for these options, by their names."
        )
        general.add_argument("--help", "-h", action="help", help="Show this text.")
        usage = [prog]
        for action in self._actions:
            # One of two spellings, --output_dir and --output-dir, in help and errors.
            action.option_strings = action.option_strings[:1]
            self._describe(action)
            if action.required:
                usage.append(f"{action.option_strings[0]} {action.metavar}")
        self.usage = " ".join([*usage, "[OPTIONS]"])

    @staticmethod
    def _describe(action: argparse.Action) -> None:
        """Adds the type of the value and the default to the help of an option."""
        if isinstance(action, argparse._StoreFalseAction):
            action.help = argparse.SUPPRESS
        if action.choices is None or action.nargs == "+":
            action.metavar = action.metavar or TYPE_NAMES.get(getattr(action.type, "__name__", ""), "VALUE")
            if action.choices:
                action.help = f"{action.help} One of {', '.join(map(str, action.choices))}."
        if action.required:
            action.help = f"{action.help} (required)"
        elif action.default is not False and action.default not in (None, [], argparse.SUPPRESS):
            values = action.default if isinstance(action.default, list) else [action.default]
            action.help = f"{action.help or ''} (default: {' '.join(map(str, values)).replace('%', '%%')})"

    # argparse would print the usage and exit; `hf-dse` prints one line.
    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see `{self.prog} --help`")


def read_options(function: Callable[..., None], argv: Sequence[str]) -> Callable[[], None]:
    """Returns a command with the options of a command line. Its name in the help is that of the function."""
    hints = {name: hint for name, hint in get_type_hints(function).items() if name != "return"}
    prog = f"hf-dse {function.__name__.replace('_', ' ')}"
    return partial(function, *parse_options(argv, *hints.values(), prog=prog, help=inspect.getdoc(function) or ""))


def parse_options(
    argv: Sequence[str],
    *kinds: Any,
    prog: str,
    help: str = "",
    hidden: Collection[str] = (),
    config: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """
    Parses a command line into dataclasses. A `--config file.yaml` sets options by the field names of the dataclasses,
    and the command line overrides it.

    Args:
        argv (`Sequence[str]`):
            The command line, without program and command.
        kinds (`type`):
            The dataclasses; no two may share a field. [`complete`] names the class that one of them stands for.
        prog (`str`):
            The command's name in the help, as in `"hf-dse evaluate"`.
        help (`str`, *optional*, defaults to `""`):
            Description of the command, a blank line, and examples.
        hidden (`Collection[str]`, *optional*):
            Options that only `--help all` shows.
        config (`Mapping[str, Any]`, *optional*):
            Values to use instead of a `--config` file.

    Returns:
        `tuple`: one instance of each dataclass, in the order given.

    Raises:
        `ValueError`: for an unknown or missing option, a value of the wrong type, or an invalid file.
        `FileNotFoundError`: if the `--config` file does not exist.
    """
    path, argv = split_config(argv)
    if config is None:
        config = {} if path is None else read_config(path)
    if "--help" in argv or "-h" in argv:
        # Without the options of transformers, help needs no torch.
        wants_all = ("--help", "all") in zip(argv, argv[1:], strict=False)
        parser = OptionParser([complete(kind) for kind in kinds] if wants_all else kinds, prog, help)
        for action in parser._actions:
            if action.dest in hidden and not wants_all:
                action.help = argparse.SUPPRESS
        parser.print_help()
        sys.exit(0)
    kinds = tuple(complete(kind) for kind in kinds)
    parser = OptionParser(kinds, prog, help)
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in parser._option_string_actions:
            hint = did_you_mean(name, parser._option_string_actions)
            raise ValueError(f"unknown option {name!r}{hint}; `{prog} --help` lists the options")
    words = [*_config_words(parser, kinds, config), *argv]
    *parsed, rest = parser.parse_args_into_dataclasses(words, return_remaining_strings=True, look_for_args_file=False)
    if rest:
        raise ValueError(f"unexpected word {rest[0]!r}: options begin with `--`, see `{prog} --help`")
    for args in parsed[: len(kinds)]:
        check_numbers(args)
    return tuple(parsed[: len(kinds)])


def split_config(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """Returns the file that a command line names with `--config`, and the rest of the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    known, rest = parser.parse_known_args(argv)
    return known.config, rest


def read_config(path: str) -> dict[str, Any]:
    """Reads `name: value` lines from a YAML file."""
    if not Path(path).is_file():
        raise FileNotFoundError(f"--config: there is no file {path!r}")
    values = read_yaml(Path(path)) or {}
    if not isinstance(values, dict):
        raise ValueError(f"--config: {path} must hold `name: value` lines, but it holds a {type(values).__name__}")
    return values


def _config_words(parser: argparse.ArgumentParser, kinds: Sequence[Any], config: Mapping[str, Any]) -> list[str]:
    """Turns a config into words of a command line: both have the same conversions and checks."""
    hints = {name: hint for kind in kinds for name, hint in get_type_hints(kind).items()}
    # An option that is switched off by `--no_NAME` has two actions, that of its own name first.
    actions = {action.dest: action for action in reversed(parser._actions) if action.dest in hints}
    words = []
    for name, value in config.items():
        if name not in actions:
            raise ValueError(f"--config: unknown key {name!r}{did_you_mean(str(name), actions)}")
        takes_list = actions[name].nargs == "+"
        if isinstance(value, list) and not takes_list:
            raise ValueError(f"--config: {name} takes one value, but it has a list: {value}")
        if value is None and type(None) not in get_args(hints[name]):
            raise ValueError(f"--config: {name} needs a value, and it has none: leave it out for its default")
        if value is None or value == []:
            # A command line cannot express "nothing".
            parser.set_defaults(**{name: value})
        elif takes_list:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        else:
            words.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return words
