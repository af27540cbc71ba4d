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
    """Raises a `ValueError` for a field below 1, or an empty list; `None` is allowed."""
    for name in names:
        value = getattr(args, name)
        numbers = value if isinstance(value, list) else [value]
        if not numbers or any(number is not None and number < 1 for number in numbers):
            raise ValueError(f"{name}={value}: it has to be at least 1.")


def check_at_least(least: float, **values: float | None) -> None:
    """Raises a `ValueError` for a value below `least`; `None` is allowed."""
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


def complete(kind: type) -> type:
    """
    Returns the class that a dataclass of options stands for: its attribute `complete`, the name of a class that needs
    torch or transformers, which help and errors do not load.
    """
    name = getattr(kind, "complete", None)
    if name is None:
        return kind
    module, _, name = name.rpartition(".")
    return getattr(importlib.import_module(module or "hf_dse"), name)


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Returns a part of a message that names the most similar one of the allowed words, or an empty text."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
