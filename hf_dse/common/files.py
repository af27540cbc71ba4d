# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Atomic writing of files and folders."""

import os
import tempfile
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import BinaryIO


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file atomically: if an error occurs, an existing file is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with partial.open("wb") as file:
            write(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


@contextmanager
def folder_in_one_step(target: Path) -> Iterator[Path]:
    """Yields a new folder, which replaces `target` at the end. If an error occurs, nothing changes."""
    target.parent.mkdir(parents=True, exist_ok=True)
    # In the same parent folder, because a folder can only be moved in one step within a file system.
    with tempfile.TemporaryDirectory(
        prefix=f".{target.name}-", dir=target.parent, ignore_cleanup_errors=True
    ) as temporary:
        new, old = Path(temporary, "new"), Path(temporary, "old")
        new.mkdir()
        yield new
        if target.exists():
            target.rename(old)
        try:
            new.rename(target)
        except OSError:
            if old.exists():
                old.rename(target)
            raise


def check_target(target: Path, overwrite: bool) -> None:
    """Raises a `FileExistsError` if a model folder must not be written to `target`."""
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder.")
    if not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{target} is not empty: name another folder, or pass `overwrite=True` (`--overwrite_output_dir`) to "
            "replace it."
        )
    # A typing error must not delete a home folder or a repository.
    if not (target / "config.json").is_file() or (target / ".git").exists():
        raise FileExistsError(
            f"{target} is not a plain model folder (it has no config.json, or is a git repository), so it is not "
            "replaced: name another folder, or empty it yourself."
        )


def output_path(name: str, endings: tuple[str, ...]) -> Path:
    """Checks the name of an output file, to fail early."""
    path = Path(name).expanduser()
    if path.suffix not in endings:
        raise ValueError(f"{name}: unsupported ending {path.suffix!r}; the output is {' or '.join(endings)}.")
    if path.is_dir():
        raise ValueError(f"{name} is a folder: name a file in it.")
    return path
