# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of options that several commands share."""

import dataclasses
import difflib
import importlib
import math
from collections.abc import Iterable
from typing import Any


def check_positive(args: Any, *names: str) -> None:
    """
    Checks that counts are at least 1.

    Args:
        args (dataclass):
            The options.
        names (`str`):
            Fields that are `None`, a number, or a list of numbers.

    Raises:
        `ValueError`: for a number below 1, or an empty list.
    """
    for name in names:
        value = getattr(args, name)
        numbers = value if isinstance(value, list) else [value]
        if not numbers or any(number is not None and number < 1 for number in numbers):
            raise ValueError(f"{name}={value}: it has to be at least 1.")


def check_at_least(least: float, **values: float | None) -> None:
    for name, value in values.items():
        if value is not None and value < least:
            raise ValueError(f"{name}={value}: it has to be at least {least}.")


def check_numbers(args: Any) -> None:
    """Raises a `ValueError` if a field of a dataclass has NaN, an infinite number, or an integer beyond 64 bits."""
    for entry in dataclasses.fields(args):
        value = getattr(args, entry.name)
        for number in value if isinstance(value, list) else [value]:
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(f"{entry.name}={value}: it has to be a finite number.")
            if isinstance(number, int) and abs(number) >= 2**63:
                raise ValueError(f"{entry.name}={value}: it has to be below 2 ** 63.")


def check_arguments(args: object, kind: type, example: str) -> None:
    """Raises a `TypeError` for what are no arguments of this kind, such as a name alone."""
    if not isinstance(args, kind):
        name = kind.__name__
        raise TypeError(f"`{name}` are needed, and this is a `{type(args).__name__}`: pass `{name}({example})`.")


def complete(kind: type) -> type:
    """
    The class that a dataclass of options stands for. Where the options of a command include those of transformers, or
    its class needs torch, a class without them is read first, for help and errors are to be fast: its attribute
    `complete` is the public name of the whole class.
    """
    name = getattr(kind, "complete", None)
    return kind if name is None else getattr(importlib.import_module("hf_dse"), name)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """A part of a message on a word that is none of these words: the most similar one, or nothing."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""


def refuse_options(args: Any, reason: str, *names: str, advice: str = "leave it out.") -> None:
    """Raises a `ValueError` for the first of these options that has another value than its default."""
    defaults = {option.name: option.default for option in dataclasses.fields(args)}
    for name in names:
        if getattr(args, name) != defaults[name]:
            raise ValueError(f"`--{name}` {reason}: {advice}")
