# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the commands: parsing them, and their help text."""

import argparse
import copy
import dataclasses
import difflib
import inspect
import json
import re
from collections.abc import Callable, Collection, Mapping, Sequence
from pathlib import Path
from typing import Any, get_args, get_type_hints

from transformers import HfArgumentParser

import hf_dse
from hf_dse.common.files import read_yaml
from hf_dse.common.options import check_numbers, complete, did_you_mean
from hf_dse.training.options import PairOptions


# A command -> an example of it, or one in each line, for its help text.
EXAMPLES = {
    "hf-dse demo": "hf-dse demo --output_dir outputs/demo",
    "hf-dse teacher": "hf-dse teacher --model_name_or_path microsoft/MiniLM-L12-H384-uncased --task_name stsb "
    "--output_dir teacher",
    "hf-dse score": "hf-dse score --model_name_or_path teacher --task_name stsb --split train "
    "--output_file scored.parquet",
    "hf-dse mine": "hf-dse mine --dataset_name beir-folder --split train --bm25 true --output_file mined.parquet",
    "hf-dse augment": "hf-dse augment --files sentences.txt --num_neighbors 0 --teacher_name_or_path teacher "
    "--output_file augmented.parquet",
    "hf-dse convert": "hf-dse convert --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 "
    "--output_dir converted",
    "hf-dse distill": "hf-dse distill --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 "
    "--teacher_name_or_path teacher --task_name stsb --output_dir student",
    "hf-dse evaluate": "hf-dse evaluate --model_name_or_path student/model --task_name stsb --split validation\n"
    "hf-dse evaluate --model_name_or_path student/model --dataset_name beir-folder",
    "hf-dse encode": "hf-dse encode --model_name_or_path student/model --input texts.txt --output vectors.npy",
    "hf-dse search": "hf-dse search --model_name_or_path student/model --corpus texts.txt "
    "--query 'How do planes fly?'",
    "hf-dse study": "hf-dse study studies/smoke.yaml",
    "hf-dse study report": "hf-dse study report studies/smoke.yaml",
    "hf-dse study probe": "hf-dse study probe --models student/model --task_name stsb",
    "hf-dse bench speed": "hf-dse bench speed --lengths 128 512 2048",
    "hf-dse bench rank": "hf-dse bench rank --model_name_or_path student/model --cross_encoder teacher",
    "hf-dse bench attention": "hf-dse bench attention --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 "
    "--texts texts.txt",
    "hf-dse bench long": "hf-dse bench long --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 "
    "--dataset_name beir-folder",
    "hf-dse whiten": "hf-dse whiten --model_name_or_path converted --train_file texts.txt --projection_dim 256 "
    "--output_dir smaller",
    "hf-dse merge": "hf-dse merge --model_names_or_paths seed-42/model seed-43/model --output_dir merged",
    "hf-dse export": "hf-dse export --model_name_or_path student/model --output_dir graph --format onnx",
    "hf-dse doctor": "hf-dse doctor",
    "hf-dse push": "hf-dse push --model_name_or_path student/model --repo_id user/name",
}

# What the program `hf-dse` does once the options of its command are read, and libraries are imported.
after_parsing: list[Callable[[], object]] = []

TRAINER_HEADING = "Options of transformers.TrainingArguments"
MORE_OPTIONS = "Every option of transformers.TrainingArguments works too: `{prog} --help all` lists them."


class HelpFormatter(argparse.HelpFormatter):
    """Shows one spelling of each option, the type of its value, and its default if it has one."""

    def _format_action_invocation(self, action: argparse.Action) -> str:
        action = copy.copy(action)
        action.option_strings = [name for name in action.option_strings if "-" not in name.lstrip("-")]
        if _is_flag(action):
            action.nargs = 0
        return super()._format_action_invocation(action)

    def _get_default_metavar_for_optional(self, action: argparse.Action) -> str:
        names = {"int": "INT", "float": "FLOAT", "str": "TEXT", "string_to_bool": "BOOL"}
        return names.get(getattr(action.type, "__name__", ""), "VALUE")

    def _metavar_formatter(self, action: argparse.Action, default_metavar: str) -> Any:
        if _has_many_choices(action):
            return lambda size: ("TEXT",) * size
        return super()._metavar_formatter(action, default_metavar)

    def _get_help_string(self, action: argparse.Action) -> str | None:
        if isinstance(action, argparse._StoreFalseAction):
            return f"The same as `--{action.dest} false`."
        text = action.help or ""
        if _has_many_choices(action):
            text += f" One of {', '.join(map(str, action.choices or ()))}."
        if action.required:
            return f"{text} (required)"
        if action.default in (None, [], argparse.SUPPRESS) or _is_flag(action):
            return text
        values = action.default if isinstance(action.default, list) else [action.default]
        return f"{text} (default: {' '.join(map(str, values)).replace('%', '%%')})"


def _is_flag(action: argparse.Action) -> bool:
    """Whether an option is switched on by its name alone."""
    return action.nargs == "?" and action.default is False


def _has_many_choices(action: argparse.Action) -> bool:
    return len(", ".join(map(str, action.choices or ()))) > (60 if action.nargs is None else 30)


def _heading(kind: type) -> str:
    """The first sentence of a docstring. A class without one has its signature instead."""
    docstring = re.sub(rf"^{kind.__name__}\(.*", kind.__name__, inspect.getdoc(kind) or "", flags=re.DOTALL)
    return re.sub(r"[\[\]`~]", "", " ".join(re.split(r"\.(?:\s|$)", docstring)[0].split()))


def _group_fields(dataclass_types: Sequence[type]) -> dict[str, list[str]]:
    """Headings of the help text, each with its options. What a class inherits from transformers comes last."""
    groups: dict[str, list[str]] = {}
    inherited: list[str] = []
    for kind in dataclass_types:
        bases = [base for base in kind.__mro__ if not base.__module__.startswith("transformers.")]
        shown = {name for base in bases for name in inspect.get_annotations(base)}
        # Options of a training are of several classes, and each has its own heading.
        owners = [base for base in bases if "complete" in vars(base)] or [kind]
        for owner in owners:
            groups.setdefault(_heading(owner), [])
        for entry in dataclasses.fields(kind):
            if entry.name in shown:
                of_base = (base for base in reversed(owners) if entry.name in inspect.get_annotations(base))
                groups[_heading(next(of_base, owners[0]))].append(entry.name)
            else:
                inherited.append(entry.name)
    return {**groups, TRAINER_HEADING: inherited} if inherited else groups


class _Parser(HfArgumentParser):
    """The options of some dataclasses, and `--config`."""

    def __init__(self, dataclass_types: Sequence[type], prog: str | None, description: str | None):
        self.kinds = dataclass_types
        self.words: Sequence[str] = ()
        super().__init__(
            dataclass_types,  # type: ignore[arg-type]
            prog=prog,
            description=description,
            allow_abbrev=False,
            formatter_class=HelpFormatter,
        )
        self.add_argument("--config", metavar="FILE", help="YAML file with values for these options, by their names")

    # argparse would print the usage and exit; `main` prints one line.
    def error(self, message: str):
        # One spelling of each option.
        message = re.sub(r"(--\w+)/--[\w-]+", r"\1", message)
        if "required: " in message:
            message += f"{self._typing_errors(message)}; see `{self.prog} --help`"
        raise ValueError(message)

    def _typing_errors(self, message: str) -> str:
        """Which words of the command line may be meant as the options that a message names."""
        unknown = [word.split("=")[0] for word in self.words if word.startswith("--")]
        unknown = [word for word in unknown if word not in self._option_string_actions]
        found = [
            word for name in re.findall(r"--\w+", message) for word in difflib.get_close_matches(name, unknown, 1, 0.8)
        ]
        return f" ({' and '.join(map(repr, found))} is no option)" if found else ""

    def read(self, argv: Sequence[str], config: Mapping[str, Any]) -> tuple[argparse.Namespace, list[str]]:
        """The values of the options, of the command line or else of a config, and the words that are no options."""
        self.words = argv
        hints = {name: hint for kind in self.kinds for name, hint in get_type_hints(kind).items()}
        nullable = {name for name, hint in hints.items() if type(None) in get_args(hint)}
        known = config
        if not self.has_all_options:
            names = {action.dest for action in self._actions}
            known = {name: value for name, value in config.items() if name in names}
        return self.parse_known_args(_config_tokens(self, known, nullable) + list(argv))

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            choices = [str(choice) for choice in action.choices]
            hint = did_you_mean(str(value), choices)
            raise argparse.ArgumentError(action, f"invalid choice: {value!r}{hint}; choose from {', '.join(choices)}")

    def format_help(self) -> str:
        """Each dataclass is a group of options; without it all options would be one list."""
        formatter = self._get_formatter()
        formatter.add_text(self.description)
        of_field: dict[str, list[argparse.Action]] = {}
        for action in self._actions:
            of_field.setdefault(action.dest, []).append(action)
        groups = _group_fields(self.kinds)
        named = {name for names in groups.values() for name in names}
        general = [name for name in of_field if name not in named]
        for heading, names in {**groups, "general": general}.items():
            formatter.start_section(heading)
            formatter.add_arguments([action for name in names for action in of_field.get(name, [])])
            formatter.end_section()
        if not self.has_all_options:
            formatter.add_text(MORE_OPTIONS.format(prog=self.prog))
        examples = [f"  {line}" for line in EXAMPLES.get(self.prog, "").splitlines()]
        parts = [self._usage(formatter), formatter.format_help(), *(["example:", *examples, ""] if examples else [])]
        return "\n".join(parts)

    def _usage(self, formatter: argparse.HelpFormatter) -> str:
        """The line of usage, with the options that are required."""
        first = f"usage: {self.prog} "
        lines = [first]
        for action in self._actions:
            if action.required:
                value = formatter._format_args(action, formatter._get_default_metavar_for_optional(action))
                option = f"--{action.dest} {value} "
                if len(lines[-1] + option) > 79:
                    lines.append(" " * len(first))
                lines[-1] += option
        return "\n".join([*lines[:-1], f"{lines[-1]}[OPTIONS]", ""])

    @property
    def has_all_options(self) -> bool:
        """Whether no class stands for one that has the options of transformers too."""
        return not any(issubclass(kind, PairOptions) and kind.__name__ != kind.complete for kind in self.kinds)


def parse_args(
    argv: Sequence[str],
    *dataclass_types: type,
    prog: str | None = None,
    description: str | None = None,
    config: Mapping[str, Any] | None = None,
) -> tuple[Any, ...]:
    """
    Parses a command line into dataclasses. A `--config file.yaml` sets options by the field names of the dataclasses,
    and the command line overrides it.

    Args:
        argv (`Sequence[str]`):
            The command line, without program and command.
        dataclass_types (`type`):
            The dataclasses with the options as fields; no two may share a field. The first line of a docstring is
            the heading of its options in the help text.
        prog (`str`, *optional*):
            The command's name in the help text, as in `"hf-dse evaluate"`.
        description (`str`, *optional*):
            What the command does, for the help text.
        config (`Mapping[str, Any]`, *optional*):
            Values to use instead of a `--config` file.

    Returns:
        `tuple`: One instance of each dataclass, in the order given.

    Raises:
        `ValueError`: for an unknown or missing option, a value of the wrong type, or an invalid file.
        `FileNotFoundError`: if the `--config` file does not exist.
    """
    path, argv = split_config(argv)
    if config is None:
        config = {} if path is None else read_config(path)
    wants_all = ("--help", "all") in zip(argv, argv[1:], strict=False)
    # Help, and errors in our own options, need neither torch nor the options of transformers.
    parser = _Parser(dataclass_types, prog, description)
    if not wants_all or parser.has_all_options:
        values, unknown = parser.read(argv, config)
    if not parser.has_all_options:
        parser = _Parser([complete(kind) for kind in dataclass_types], prog, description)
        values, unknown = parser.read(argv, config)
    if unknown:
        name = unknown[0].split("=")[0]
        hint = did_you_mean(name, parser._option_string_actions)
        raise ValueError(f"unknown option {name!r}{hint}; `{prog} --help` lists the options")
    parsed = []
    for kind in map(complete, dataclass_types):
        names = [entry.name for entry in dataclasses.fields(kind) if entry.init]
        args = kind(**{name: getattr(values, name) for name in names})
        check_numbers(args)
        parsed.append(args)
    # From here on models may be loaded.
    hf_dse.register()
    while after_parsing:
        after_parsing.pop()()
    return tuple(parsed)


def split_config(argv: Sequence[str]) -> tuple[str | None, list[str]]:
    """The file that a command line names with `--config`, and the rest of the command line."""
    parser = argparse.ArgumentParser(add_help=False, allow_abbrev=False)
    parser.add_argument("--config")
    known, rest = parser.parse_known_args(argv)
    return known.config, rest


def read_config(path: str) -> dict[str, Any]:
    """Reads `name: value` lines from a YAML file."""
    file = Path(path)
    if not file.is_file():
        raise FileNotFoundError(f"--config: there is no file {path!r}")
    values = read_yaml(file)
    if not isinstance(values, dict | None):
        raise ValueError(f"--config: {path} must hold `name: value` lines, but it holds a {type(values).__name__}")
    return values or {}


def _config_tokens(parser: argparse.ArgumentParser, values: Mapping[str, Any], nullable: Collection[str]) -> list[str]:
    """
    Converts a config to command-line tokens, so that both have the same conversions and checks. Options in `nullable`
    may have no value.
    """
    actions = {action.dest: action for action in reversed(parser._actions) if action.dest not in ("help", "config")}
    tokens = []
    for name, value in values.items():
        if name not in actions:
            hint = did_you_mean(str(name), actions)
            raise ValueError(f"--config: unknown key {name!r}{hint}; allowed are {', '.join(sorted(actions))}")
        action = actions[name]
        if (value is None and (name in nullable or action.required)) or (value == [] and action.nargs == "+"):
            # A command line cannot express "nothing".
            action.default = value
        elif value is None:
            raise ValueError(f"--config: {name} needs a value, and it has none: leave it out for its default")
        elif action.nargs == "+":
            tokens += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
        elif isinstance(value, list):
            raise ValueError(f"--config: {name} takes one value, but it has a list: {value}")
        else:
            tokens.append(f"--{name}={json.dumps(value) if isinstance(value, dict) else value}")
    return tokens
