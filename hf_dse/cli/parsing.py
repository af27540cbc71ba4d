# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Options of the commands, and those that several share. A command is a function: its parameters are dataclasses, whose
fields are its options, and its docstring is its help: a description, then examples.
"""

import argparse
import inspect
import json
import sys
import textwrap
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import Any, Literal, get_type_hints

import yaml
from transformers import HfArgumentParser

from hf_dse.common.files import read_yaml
from hf_dse.common.options import HfArg, check_numbers, complete, did_you_mean


# The names of options whose fields have the names of transformers, which work too.
NAMES = {
    "model_name_or_path": "--model",
    "encoder_name_or_path": "--model",
    "teacher_name_or_path": "--teacher",
    "corpus_file": "--corpus",
    "dataset_name": "--dataset",
}

# Metadata of a field `model_name_or_path`.
MODEL = {"help": "Hub id (user/name, or user/name@commit) or folder of an embedding model."}


DTYPES = Literal["auto", "float32", "bfloat16", "float16"]


@dataclass
class LoadArguments:
    """How to run the models."""

    trust_remote_code: bool = HfArg(default=False, help="Run the code that comes with the models.")
    dtype: DTYPES = HfArg(
        default="auto",
        help="Data type of the weights; auto: bfloat16 on a GPU or CPU that computes in it, otherwise float32.",
    )
    backend: Literal["torch", "onnx", "openvino"] = HfArg(
        default="torch",
        help="What computes: torch; or openvino, or onnx in float32, on the CPU, by a graph that is made once.",
    )
    device: str | None = HfArg(default=None, help="Such as cpu or cuda:0. Default: a GPU if any.")
    max_length: int | None = HfArg(default=None, help="Tokens per text or pair. Default: as the model says.")
    batch_size: int = HfArg(default=32, help="Texts or pairs per batch; fewer if they are long.")

    @property
    def loading(self) -> dict[str, Any]:
        """The options of `to_sentence_transformer`."""
        return {name: value for name, value in vars(self).items() if name != "batch_size"}


class HelpFormatter(argparse.ArgumentDefaultsHelpFormatter, argparse.RawDescriptionHelpFormatter):
    """Shows the defaults that say something, and examples as they are."""

    def _get_help_string(self, action: argparse.Action) -> str | None:
        is_empty = action.default is None or action.default is False or action.default == []
        return action.help if is_empty else super()._get_help_string(action)


class OptionParser(HfArgumentParser):
    """The options of dataclasses, each a group with the first line of its docstring as heading."""

    def __init__(self, kinds: Sequence[Any], prog: str, help: str):
        for kind in kinds:
            kind._argument_group_name = (inspect.getdoc(kind) or "").partition("\n")[0].rstrip(".")
        description, _, examples = help.partition("\n\n")
        super().__init__(
            kinds,
            prog=prog,
            description=textwrap.fill(description, 79),
            epilog=f"example:\n{textwrap.indent(examples, '  ')}" if examples else None,
            add_help=False,
            allow_abbrev=False,
            formatter_class=HelpFormatter,
        )
        general = self.add_argument_group("General options")
        general.add_argument("--config", metavar="FILE", help="YAML file with values for options, by their names.")
        general.add_argument("--help", "-h", action="help", help="Show this text.")
        for action in self._actions:
            # One of two spellings, --output_dir and --output-dir, in help and errors.
            name = NAMES.get(action.dest, action.option_strings[0])
            action.option_strings = [name]
            self._option_string_actions[name] = action
            if action.dest in NAMES:
                action.metavar = name.removeprefix("--").upper()
        required = [
            f"{action.option_strings[0]} {action.metavar or action.dest.upper()}"
            for action in self._actions
            if action.required
        ]
        self.usage = " ".join([prog, *required, "[OPTIONS]"])

    # argparse would print the usage and exit; `hf-dse` prints one line.
    def error(self, message: str) -> Any:
        raise ValueError(f"{message}; see `{self.prog} --help`")


def read_options(function: Callable[..., None], argv: Sequence[str]) -> Callable[[], None]:
    """Returns a command with the options of a command line. Its name in the help is that of the function."""
    kinds = [hint for name, hint in get_type_hints(function).items() if name != "return"]
    prog = f"hf-dse {function.__name__.replace('_', ' ')}"
    config, argv = read_config(argv)
    return partial(
        function, *parse_options(argv, *kinds, prog=prog, help=inspect.getdoc(function) or "", config=config)
    )


def read_config(argv: Sequence[str]) -> tuple[dict[str, Any], list[str]]:
    """Returns the values of the file that a command line names with `--config`, and the rest of the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config", type=Path)
    known, rest = parser.parse_known_args(argv)
    values = {} if known.config is None else read_yaml(known.config, as_words=True)
    if not isinstance(values, dict):
        raise ValueError(f"--config: {known.config} must hold `name: value` lines, not a {type(values).__name__}")
    return values, rest


def parse_options(
    argv: Sequence[str], *kinds: Any, prog: str, help: str = "", config: Mapping[str, Any] | None = None
) -> tuple[Any, ...]:
    """
    Parses a command line into an instance of each dataclass, or of the class that it stands for ([`complete`]). The
    command line overrides the values of `config`, by the names of options.
    """
    if "--help" in argv or "-h" in argv:
        # Without the options of transformers, help needs no torch.
        OptionParser([complete(kind) for kind in kinds] if "all" in argv else kinds, prog, help).print_help()
        sys.exit(0)
    parser = OptionParser([complete(kind) for kind in kinds], prog, help)
    for word in argv:
        name = word.partition("=")[0]
        if name.startswith("--") and name not in parser._option_string_actions:
            hint = did_you_mean(name, parser._option_string_actions)
            raise ValueError(f"unknown option {name!r}{hint}; `{prog} --help` lists the options")
    words = [*_config_words(parser, config or {}), *argv]
    *parsed, rest = parser.parse_args_into_dataclasses(words, return_remaining_strings=True, look_for_args_file=False)
    if rest:
        raise ValueError(f"unexpected word {rest[0]!r}: options begin with `--`, see `{prog} --help`")
    for args in parsed[: len(kinds)]:
        check_numbers(args)
    return tuple(parsed[: len(kinds)])


def _config_words(parser: argparse.ArgumentParser, config: Mapping[str, Any]) -> list[str]:
    """The words of a command line that say the same as a config, so that both have the same conversions and checks."""
    # An option that is switched off by `--no_NAME` has two actions, that of its own name first.
    actions = {action.dest: action for action in reversed(parser._actions) if action.dest not in ("config", "help")}
    actions |= {NAMES[dest].removeprefix("--"): action for dest, action in actions.items() if dest in NAMES}
    words = []
    for name, value in config.items():
        if name not in actions:
            raise ValueError(f"--config: unknown key {name!r}{did_you_mean(str(name), actions)}")
        if value is None and actions[name].default is not None:
            raise ValueError(f"--config: {name} needs a value, and it has none: leave it out for its default")
        if isinstance(value, list):
            words += [f"--{name}", *map(str, value)]
        elif value is not None:
            words.append(f"--{name}={json.dumps(_typed(value)) if isinstance(value, dict) else value}")
    return words


def _typed(value: Any) -> Any:
    """The values of a mapping in a config, whose numbers are still words."""
    if isinstance(value, dict):
        return {key: _typed(part) for key, part in value.items()}
    return [_typed(part) for part in value] if isinstance(value, list) else yaml.safe_load(str(value))
