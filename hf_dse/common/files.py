# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Paths that users name, YAML, and writing files and folders in one step while other processes are kept out."""

import os
import re
import shutil
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any, BinaryIO

from filelock import FileLock, Timeout
from transformers.utils import logging


logger = logging.get_logger(__name__)

# The Trainer does not push files whose names begin with an underscore.
LOCK_FILE = "_lock"
# Parts of the messages of numpy, of libraries in Rust and of torch about a full disk. These errors have no number, or
# are not an `OSError`.
WRITE_ERRORS = (" requested and ", "(os error ", "inline_container.cc")


def to_path(name: str | os.PathLike) -> Path:
    """Returns the path that a user named; `~` is the home folder."""
    return Path(name).expanduser()


@contextmanager
def locked(folder: Path, name: Path | None = None) -> Iterator[None]:
    """
    Creates a folder and keeps out other processes that lock it. Messages call the folder `name`. The lock ends with
    the process, also after a kill.
    """
    folder.mkdir(parents=True, exist_ok=True)
    lock = FileLock(folder / LOCK_FILE)
    try:
        lock.acquire(timeout=0)
    except Timeout as error:
        raise BlockingIOError(
            f"{name or folder} is in use by another process: wait until that ends, or name another output."
        ) from error
    try:
        yield
    finally:
        (folder / LOCK_FILE).unlink(missing_ok=True)
        lock.release()


def wait_for_lock(folder: Path) -> AbstractContextManager:
    """Keeps out other processes that make what is in a folder, and waits for one that does."""
    lock = FileLock(folder / LOCK_FILE)
    try:
        return lock.acquire(blocking=False)
    except Timeout:
        logger.info(f"Another process makes {folder}: waiting for it.")
        return lock.acquire()


@contextmanager
def writing(path: Path) -> Iterator[None]:
    """Raises an `OSError` that names the output where the error of a library, such as a full disk, does not."""
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


@contextmanager
def folder_in_one_step(target: Path, overwrite: bool) -> Iterator[Path]:
    """Yields a new folder, which becomes the model folder `target` at the end. If an error occurs, nothing changes."""
    check_target(target, overwrite)
    # In the same parent folder, because a folder can only be moved in one step within a file system.
    partial = target.with_name(f".{target.name}.partial")
    new, old = partial / "new", partial / "old"
    with locked(partial, target):
        # A killed process left these.
        if old.exists() and not target.exists():
            old.rename(target)
        for leftover in (new, old):
            shutil.rmtree(leftover, ignore_errors=True)
        try:
            new.mkdir()
            with writing(target):
                yield new
            check_target(target, overwrite)
            # After a kill between the two steps the next call moves the old folder back.
            if target.exists():
                target.rename(old)
            new.rename(target)
        finally:
            if old.exists() and not target.exists():
                old.rename(target)
            shutil.rmtree(partial, ignore_errors=True)


def check_target(target: Path, overwrite: bool) -> None:
    """Raises a `FileExistsError` if a model folder must not be written to `target`."""
    if not target.exists() or not any(target.iterdir()):
        return
    if not overwrite:
        raise FileExistsError(
            f"{target} is not empty: name another folder, or pass `overwrite_output_dir=True` "
            "(`--overwrite_output_dir`) to replace it."
        )
    # A typing error must not delete a home folder or a repository.
    if not (target / "config.json").is_file() or (target / ".git").exists():
        raise FileExistsError(
            f"{target} is not a plain model folder (it has no config.json, or is a git repository), so it is not "
            "replaced: name another folder, or empty it yourself."
        )


def output_path(name: str, endings: tuple[str, ...]) -> Path:
    """Returns the path of an output file; raises a `ValueError` for a folder or another ending, to fail early."""
    path = to_path(name)
    if path.suffix not in endings:
        raise ValueError(f"{name}: unsupported ending {path.suffix!r}; the output is {' or '.join(endings)}.")
    if path.is_dir():
        raise ValueError(f"{name} is a folder: name a file in it.")
    return path


def read_yaml(path: Path, *, as_words: bool = False) -> Any:
    """
    Reads a YAML file as `yaml.safe_load` does, which would silently keep the last of two values with one name. As
    words numbers and `true` or `no` stay as they are written, for options of text.
    """
    import yaml

    class Loader(yaml.SafeLoader):
        def construct_mapping(self, node: yaml.MappingNode, deep: bool = False) -> dict:
            names = [key.value for key, _ in node.value]
            twice = next((name for number, name in enumerate(names) if name in names[:number]), None)
            if twice is not None:
                raise ValueError(f"{twice!r} is there twice")
            return super().construct_mapping(node, deep)

        def construct_number(self, node: yaml.ScalarNode) -> int:
            if re.fullmatch(r"[-+]?(0[0-7_]+|[0-9_]+(:[0-9]+)+)", node.value):
                raise ValueError(f"{node.value} would be read in base 8 or 60: write a number without 0 before or `:`")
            return self.construct_yaml_int(node)

    Loader.add_constructor("tag:yaml.org,2002:int", Loader.construct_number)
    for kind in ("bool", "int", "float", "timestamp") if as_words else ():
        Loader.add_constructor(f"tag:yaml.org,2002:{kind}", Loader.construct_scalar)
    try:
        return Loader(path.read_text(encoding="utf-8")).get_single_data()
    except (yaml.YAMLError, ValueError) as error:
        raise ValueError(f"{path} is not valid YAML: {error}.") from error
