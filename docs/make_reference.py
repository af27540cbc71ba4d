# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/reference.md from the docstrings of the public names: `python docs/make_reference.py`."""

import dataclasses
import inspect
import re
from inspect import get_annotations
from pathlib import Path
from typing import Any

import hf_dse


REFERENCE = Path(__file__).with_name("reference.md")
HEADER = """# Reference

The public names of hf_dse, from their docstrings by `python docs/make_reference.py`. All are imported from `hf_dse`.
Functions come first, the most common ones before others, then classes, and last all options.
"""
COMMON = [
    "distill",
    "convert_encoder",
    "search",
    "to_sentence_transformer",
    "assess",
    "mine",
    "score",
    "evaluate",
    "export",
]
SECTION = re.compile(r"(Args|Parameters|Returns|Raises|Examples?):$")
# `name (`type`, *optional*):` or `name:` opens an argument, or several, `ValueError: when` an error.
ARGUMENT = re.compile(r"(\w+(?:, \w+)*)( \(.+\))?:$")
ERROR = re.compile(r"`?(\w+Error)`?: (.+)$")
# Sentences of transformers about every model.
BOILERPLATE = re.compile(r"This model inherits from .*?general usage\s+and behavior\.\n+", re.DOTALL)


def describe(docstring: str) -> str:
    """A docstring in the form of Hugging Face as Markdown."""
    lines, section, is_code = [], "", False
    for line in BOILERPLATE.sub("", docstring).splitlines():
        text = line.strip()
        is_code ^= text.startswith("```")
        is_inside = line.startswith("    ") and not is_code
        if heading := SECTION.match(line):
            section = heading[1]
            lines += ["", f"**{section}**", ""]
        elif is_inside and section in ("Args", "Parameters"):
            argument = None if line.startswith("     ") else ARGUMENT.match(text)
            lines.append(f"- `{argument[1]}`{argument[2] or ''}:" if argument else f"  {text}")
        elif is_inside and section == "Raises":
            error = ERROR.match(text)
            lines.append(f"- `{error[1]}`: {error[2]}" if error else f"  {text}")
        else:
            lines.append(text if is_inside else line)
    # References in the documentation of Hugging Face, [`name`] and [`~module.name`], are names here.
    text = re.sub(r"\[`~?([\w.]+)`\](?!\()", r"`\1`", "\n".join(lines))
    return re.sub(r"\n{3,}", "\n\n", text).strip()


def describe_fields(kind: Any) -> str:
    """The fields of a dataclass that have their help beside them, as on the command line."""
    lines = ["**Fields**", ""]
    # Those that transformers documents are left out.
    own = {name for base in kind.__mro__ if base.__module__.startswith("hf_dse") for name in get_annotations(base)}
    for field in dataclasses.fields(kind):
        if field.name not in own:
            continue
        annotation = field.type if isinstance(field.type, str) else inspect.formatannotation(field.type)
        default = field.default
        if field.default_factory is not dataclasses.MISSING:
            default = field.default_factory()
        suffix = "" if default is dataclasses.MISSING else f", defaults to `{default!r}`"
        choices = f" One of {', '.join(field.metadata['choices'])}." if "choices" in field.metadata else ""
        lines += [f"- `{field.name}` (`{annotation}`{suffix}):", f"  {field.metadata['help']}{choices}"]
    return "\n".join(lines)


def describe_name(name: str) -> str:
    value = getattr(hf_dse, name)
    docstring = inspect.getdoc(value) or ""
    parts = [f"## `{name}`", describe(docstring)]
    if dataclasses.is_dataclass(value) and "Args:" not in docstring:
        parts.append(describe_fields(value))
    return "\n\n".join(parts) + "\n"


def rank(name: str) -> tuple:
    """Where a name comes: common functions, other functions, classes, options."""
    is_class, is_options = inspect.isclass(getattr(hf_dse, name)), name.endswith(("Arguments", "Config"))
    return is_options, is_class, COMMON.index(name) if name in COMMON else len(COMMON), name


def make_reference() -> str:
    return "\n".join([HEADER, *map(describe_name, sorted(hf_dse.__all__, key=rank))])


if __name__ == "__main__":
    REFERENCE.write_text(make_reference(), encoding="utf-8")
