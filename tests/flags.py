# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Command lines of tests."""

from collections.abc import Mapping
from typing import Any


def to_flags(options: Mapping[str, Any]) -> list[str]:
    """The words of a command line that set options. Those that are `None` are left out, lists have several values."""
    words = []
    for name, value in options.items():
        if value is not None:
            words += [f"--{name}", *map(str, value if isinstance(value, list) else [value])]
    return words
