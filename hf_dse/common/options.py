# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of options that several commands share."""

import dataclasses
import difflib
import importlib
import math
from collections.abc import Iterable, Mapping, Sequence
from typing import Any, get_args, get_origin, get_type_hints

from transformers import hf_argparser


# A field of a dataclass that is an option of a command. For mypy it is a value of any type, as `dataclasses.field` is.
HfArg: Any = hf_argparser.HfArg


def check_at_least(least: float, **values: float | None) -> None:
    """Raises a `ValueError` for a value below `least`; `None` is allowed."""
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value}: it has to be at least {least}.")


def check_numbers(args: Any) -> None:
    """Raises a `ValueError` if a field of a dataclass has NaN or an infinite number."""
    for entry in dataclasses.fields(args):
        value = getattr(args, entry.name)
        if isinstance(value, float) and not math.isfinite(value):
            raise ValueError(f"{entry.name}={value}: it has to be a finite number.")


def complete(kind: type) -> type:
    """Returns the class of options that the attribute `complete` names; it needs torch, which help does not load."""
    name = getattr(kind, "complete", None)
    if name is None:
        return kind
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(module or "hf_dse"), name)


def fill(kinds: Sequence[type], values: Mapping[str, Any]) -> list[Any]:
    """
    An object of each of several classes of options, from values by the names of their fields. As on a command line, a
    single value of a field for lists is a list of one.
    """
    known = {field.name: field for kind in kinds for field in dataclasses.fields(kind) if field.init}
    if unknown := [name for name in values if name not in known]:
        raise ValueError(f"There is no option {unknown[0]!r}{did_you_mean(unknown[0], known)}.")
    made = []
    for kind in kinds:
        names = [field.name for field in dataclasses.fields(kind) if field.init and field.name in values]
        hints = get_type_hints(kind)
        found = {name: values[name] for name in names}
        for name, value in found.items():
            is_list = any(get_origin(part) is list for part in (hints[name], *get_args(hints[name])))
            found[name] = [value] if is_list and not isinstance(value, list | None) else value
        made.append(kind(**found))
    return made


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Returns a part of a message that names the most similar one of the allowed words, or an empty text."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def given_options(options: Any) -> dict[str, Any]:
    """The options of a dataclass that are not at their defaults."""
    defaults = type(options)()
    return {name: value for name, value in vars(options).items() if value != getattr(defaults, name)}
