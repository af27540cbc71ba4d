# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Paths that users name, atomic writing of files and folders, and YAML."""

import os
import tempfile
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, BinaryIO


def to_path(name: str | os.PathLike) -> Path:
    """The path of a file or folder that a user named; a `ValueError` for `~user` without such a user."""
    try:
        return Path(name).expanduser()
    except RuntimeError as error:
        raise ValueError(f"{name}: there is no home folder {Path(name).parts[0]}: write the whole path.") from error


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
        content = yaml.load(path.read_text(encoding="utf-8"), Loader)
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
