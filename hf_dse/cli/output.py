# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The output of a command beside its results: messages of hf_dse, and no messages of libraries for developers."""

import logging
import os
import shlex
import sys
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, redirect_stderr
from typing import Any

from hf_dse.common.display import harmless


logger = logging.getLogger(__name__)


class LogHandler(logging.Handler):
    """Writes to stderr, between the progress bars."""

    def emit(self, record: logging.LogRecord) -> None:
        from tqdm import tqdm

        (tqdm.write if sys.stderr.isatty() else print)(harmless(self.format(record)), file=sys.stderr)


@contextmanager
def show_log(level: str = "INFO") -> Iterator[None]:
    """Shows the messages of hf_dse on stderr: stdout is for results alone."""
    # One of several processes is enough.
    if level != "ERROR" and os.environ.get("RANK", "0") != "0":
        level = "WARNING"
    package, handler = logging.getLogger("hf_dse"), LogHandler()
    before = package.level
    package.setLevel(level)
    package.addHandler(handler)
    try:
        yield
    finally:
        package.setLevel(before)
        package.removeHandler(handler)


@contextmanager
def hide_libraries(is_quiet: bool = False) -> Iterator[None]:
    """Hides warnings and notes of the libraries, but not their errors; with `is_quiet`, all of stderr."""
    from transformers.utils import logging as transformers_logging

    errors = logging.StreamHandler()
    errors.setLevel(logging.ERROR)
    # transformers keeps its level, because the Trainer takes a higher one as a wish for no progress bars.
    transformers_logging.disable_default_handler()
    transformers_logging.add_handler(errors)
    # The root logger's level is that of all loggers without one of their own.
    others = [logging.getLogger(name) for name in ("", "torch")]
    levels = [other.level for other in others]
    for other in others:
        other.setLevel(logging.ERROR)
    try:
        with warnings.catch_warnings(), open(os.devnull, "w") as nothing:
            # `-W` of Python and `PYTHONWARNINGS` stay in force.
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            with redirect_stderr(nothing if is_quiet else sys.stderr):
                yield
    finally:
        transformers_logging.remove_handler(errors)
        transformers_logging.enable_default_handler()
        for other, level in zip(others, levels, strict=True):
            other.setLevel(level)


def to_words(**options: Any) -> str:
    """Options as they are typed; those that are `None` are left out."""
    given = {
        name: value if isinstance(value, list) else [value] for name, value in options.items() if value is not None
    }
    return " ".join(f"--{name} {shlex.join(map(str, values))}" for name, values in given.items())


def say_next(**commands: str) -> None:
    """Logs what a user would do with the result of a command: other commands, each with its options."""
    lines = [" ".join(("hf-dse", command, options)) for command, options in commands.items()]
    logger.info(f"Next: {', '.join(f'`{line}`' for line in lines)}")
