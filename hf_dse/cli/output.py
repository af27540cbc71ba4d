# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What a command shows besides its results: its own progress, and no messages of libraries for developers."""

import logging
import math
import sys
import time
import warnings
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, TextIO

from tqdm.auto import tqdm
from transformers.utils import logging as library


logger = library.get_logger(__name__)

# What takes less than these seconds leaves no progress bar behind.
SHORT = 1.0

# Seconds between two lines of a progress bar in a file.
FILE_INTERVAL = 60.0


class Bar(tqdm):
    """
    A progress bar of a command. In a terminal, that of quick work vanishes with it; a bar of a library, which has no
    `unit`, is only shown while its work takes long. In a file, it is a line each minute, and one at the end.
    """

    # What becomes of it when its work is done; None: it stays if it is no loop in another one.
    leave: bool | None

    def __init__(self, *args: Any, **kwargs: Any):
        is_own = "unit" in kwargs
        shown: dict[str, Any] = {"dynamic_ncols": True, "leave": None if is_own else False}
        if not sys.stderr.isatty():
            # The bars of loops in loops are one after the other, as the cursor of a file does not move up.
            shown |= {"delay": SHORT, "position": 0, "mininterval": FILE_INTERVAL, "maxinterval": FILE_INTERVAL}
        elif not is_own:
            shown["delay"] = SHORT
        super().__init__(*args, **shown | kwargs)

    @staticmethod
    def status_printer(file: TextIO) -> Callable[[str], None]:
        def print_line(text: str) -> None:
            if text.strip():
                print(text, file=file, flush=True)

        return tqdm.status_printer(file) if file.isatty() else print_line

    def close(self) -> None:
        if not self.disable:
            is_short = time.time() - self.start_t < SHORT
            if not self.fp.isatty():
                if not is_short and self.leave is not False and self.last_print_n != self.n:
                    self.display()
                # What remains is for terminals.
                self.delay = math.inf
            elif is_short:
                self.leave = False
        super().close()


def _make_bar(factory: Any, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Any:
    return Bar(*args, **kwargs) if library.is_progress_bar_enabled() else factory(*args, **kwargs)


def say_next(**commands: str) -> None:
    """Says what a user would do with the result of a command: other commands, each with its options."""
    lines = [" ".join(("hf-dse", command, options)) for command, options in commands.items()]
    logger.info(f"Next: {', '.join(f'`{line}`' for line in lines)}")


@contextmanager
def own_output(quiet: bool = False) -> Iterator[None]:
    """
    Hides warnings, notes and short progress bars of the libraries, whose errors are shown. What hf_dse logs is not
    changed. The option `-W` of Python and `PYTHONWARNINGS` stay in force.

    Args:
        quiet (`bool`, *optional*, defaults to `False`):
            Whether to hide all progress bars.
    """
    # Help does without it.
    import datasets

    root, level = logging.getLogger(), logging.getLogger().level
    verbosity, had_bars = library.get_verbosity(), library.is_progress_bar_enabled()
    errors = logging.StreamHandler()
    errors.setLevel(logging.ERROR)
    names = ("torch", "datasets")
    levels = {name: logging.getLogger(name).level for name in names}
    hook = library.set_tqdm_hook(_make_bar)
    # The level stays: the Trainer would take a higher one for a wish for no progress bars.
    library.disable_default_handler()
    library.add_handler(errors)
    # Loggers without a level of their own have that of the root.
    root.setLevel(logging.ERROR)
    for name in names:
        logging.getLogger(name).setLevel(logging.ERROR)
    datasets.disable_progress_bars()
    if quiet:
        library.set_verbosity_error()
        library.disable_progress_bar()
    try:
        with warnings.catch_warnings():
            if not sys.warnoptions:
                warnings.simplefilter("ignore")
            yield
    finally:
        library.set_tqdm_hook(hook)
        library.remove_handler(errors)
        library.enable_default_handler()
        library.set_verbosity(verbosity)
        root.setLevel(level)
        for name in names:
            logging.getLogger(name).setLevel(levels[name])
        if had_bars:
            library.enable_progress_bar()
        datasets.enable_progress_bars()
