# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Paths that users name, YAML, and writing files and folders in one step while other processes are kept out."""

import ctypes
import hashlib
import logging
import os
import shutil
import sys
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any, BinaryIO

import numpy as np
from filelock import FileLock, Timeout


logger = logging.getLogger(__name__)

# With this first sign the Trainer does not push it to the Hub.
LOCK_FILE = "_lock"

# In the messages of numpy, of libraries in Rust and of torch, whose errors of a full disk have no number or are no
# `OSError`.
WRITE_ERRORS = (" requested and ", "(os error ", "inline_container.cc")


def to_path(name: str | os.PathLike) -> Path:
    """The path of a file or folder that a user named; a `ValueError` for `~user` without such a user."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name}: there is no home folder {Path(name).parts[0]}: write the whole path.") from error


@contextmanager
def locked(folder: Path, name: Path | None = None, wait: bool = False) -> Iterator[None]:
    """
    Creates a folder and keeps other processes out that lock it too. The lock ends with the process, also by a kill.

    Raises:
        `BlockingIOError`: if another process has the lock, unless it is to `wait` for its end; it says that `name` is
        in use, by default the folder.
    """
    is_new = not folder.exists()
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        if not wait:
            raise BlockingIOError(
                f"{name or folder} is in use by another process: wait until that ends, or name another output."
            ) from error
        logger.info(f"{name or folder} is in use by another process: waiting for its end")
        lock.acquire()
    try:
        yield
    finally:
        with suppress(OSError):
            (folder / LOCK_FILE).unlink()
            if is_new:
                # Nothing was written into it.
                folder.rmdir()
        lock.release()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises an `OSError` that names the output where a library's error, such as that of a full disk, does not."""
    try:
        yield
    except Exception as error:
        is_nameless = isinstance(error, OSError) and error.errno is not None and error.filename is None
        if not is_nameless and not any(text in str(error) for text in WRITE_ERRORS):
            raise
        reason = str(error).partition("\n")[0]
        raise OSError(f"{path} could not be written ({reason}): make room on its disk, or name another.") from error


def write_atomically(path: Path, write: Callable[[BinaryIO], object]) -> None:
    """Writes a file atomically: if an error occurs, an existing file is unchanged."""
    path.parent.mkdir(parents=True, exist_ok=True)
    partial = path.with_name(f".{path.name}.{os.getpid()}.partial")
    try:
        with writing(path), partial.open("wb") as file:
            write(file)
        partial.replace(path)
    finally:
        partial.unlink(missing_ok=True)


def save_array(file: BinaryIO, array: np.ndarray) -> None:
    """Writes an array in the format of numpy."""
    # Into a file itself numpy writes by a buffer of its own, whose last bytes a full disk drops without an error.
    np.save(SimpleNamespace(write=file.write), array)


def digest_of(path: Path) -> str:
    """A hash of a file, or of all files of a folder and their names."""
    digest = hashlib.sha256()
    files = sorted(part for part in path.rglob("*") if part.is_file()) if path.is_dir() else [path]
    for part in files:
        digest.update(os.fsencode(part.relative_to(path)))
        with part.open("rb") as file:
            while block := file.read(2**20):
                digest.update(block)
    return digest.hexdigest()


@contextmanager
def folder_in_one_step(target: Path, overwrite: bool) -> Iterator[Path]:
    """
    Yields a new folder, which becomes the model folder `target` at the end. If an error occurs, nothing changes.

    Raises:
        `FileExistsError`: if `target` must not be written, now or at the end: see [`check_target`].
    """
    check_target(target, overwrite)
    # In the same parent folder, because a folder can only be moved in one step within a file system.
    partial = target.with_name(f".{target.name}.partial")
    new, old = partial / "new", partial / "old"
    with locked(partial, target):
        # What a killed process left.
        if old.exists() and not target.exists():
            old.rename(target)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            new.mkdir()
            with writing(target):
                yield new
            check_target(target, overwrite)
            if not target.exists():
                new.rename(target)
            elif not _swap(new, target):
                target.rename(old)
                new.rename(target)
        finally:
            if old.exists() and not target.exists():
                old.rename(target)
            shutil.rmtree(partial, ignore_errors=True)


def _swap(first: Path, second: Path) -> bool:
    """Swaps two folders in one step, so that a kill leaves both; `False` where the system cannot."""
    rename = getattr(ctypes.CDLL(None), "renameat2", None) if sys.platform == "linux" else None
    here, exchange = -100, 2
    return rename is not None and rename(here, os.fsencode(first), here, os.fsencode(second), exchange) == 0


def check_target(target: Path, overwrite: bool) -> None:
    """Raises a `FileExistsError` if a model folder must not be written to `target`."""
    if not target.exists():
        return
    if not target.is_dir():
        raise FileExistsError(f"{target} is a file: name a folder.")
    # The folder is replaced by a new one, under whose name nothing that is in the old one would stand any more.
    if Path.cwd().resolve().is_relative_to(target.resolve()):
        raise FileExistsError(f"{target} is the folder that you are in, or above it: name a folder in it.")
    if target.is_mount():
        raise FileExistsError(f"{target} is a mount point, which cannot be replaced: name a folder in it.")
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
    path = to_path(name)
    if path.suffix not in endings:
        raise ValueError(f"{name}: unsupported ending {path.suffix!r}; the output is {' or '.join(endings)}.")
    if path.is_dir():
        raise ValueError(f"{name} is a folder: name a file in it.")
    return path


# Values in a YAML file, those of its anchors counted wherever they are used.
MOST_VALUES = 100_000


def read_yaml(path: Path) -> Any:
    """
    Reads a YAML file of plain values: mappings, lists, texts, numbers, true and false, and nothing.

    Raises:
        `ValueError`: if it is no YAML, or has other values, the same name twice, or more than [`MOST_VALUES`].
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def compose_mapping_node(self, anchor):
            node = super().compose_mapping_node(anchor)
            names = Counter(name.value for name, _ in node.value if isinstance(name, yaml.ScalarNode))
            for name, number in names.most_common(1):
                if number > 1:
                    raise ValueError(f"{name!r} is there twice")
            return node

    try:
        content = Loader(path.read_text(encoding="utf-8")).get_single_data()
        _check_values(content)
    except RecursionError:
        raise ValueError(f"{path} is not valid YAML: it is nested too deeply.") from None
    # A ValueError: no UTF-8, or no such date.
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}.") from error
    return content


def _check_values(content: Any) -> None:
    values, number = [content], 0
    while values:
        value, number = values.pop(), number + 1
        if number > MOST_VALUES:
            raise ValueError(f"it has more than {MOST_VALUES:,} values, or an anchor inside itself")
        if isinstance(value, dict | list):
            values += [*value, *value.values()] if isinstance(value, dict) else value
        elif not isinstance(value, str | int | float | None):
            raise ValueError(f"{value} is a {type(value).__name__}: put it into quotes to make it a text")
