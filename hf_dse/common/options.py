# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Checks of options that several commands share."""

import dataclasses
import difflib
import importlib
import math
from collections.abc import Iterable
from typing import Any

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


def did_you_mean(word: str, words: Iterable[str]) -> str:
    """Returns a part of a message that names the most similar one of the allowed words, or an empty text."""
    close = difflib.get_close_matches(word, list(words), n=1)
    return f" (did you mean {close[0]!r}?)" if close else ""
