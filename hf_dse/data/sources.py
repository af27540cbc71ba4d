# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The splits of a data set: local files and folders, and data sets of the Hub."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow.parquet
from datasets import Dataset, DatasetDict, load_dataset, load_from_disk
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.arguments import DataArguments
from hf_dse.data.tables import READERS, Columns, column_names, open_tables
from hf_dse.data.tasks import EMBEDDED


logger = logging.get_logger(__name__)

EMBEDDED_FOLDER = Path(__file__).parent / "embedded"

SPLITS = ("train", "validation", "test")

# Files of one split, or the split itself.
Source: TypeAlias = list[Path] | Dataset


def read_source(source: Source) -> Columns:
    """Returns the rows of a split."""
    return source if isinstance(source, Dataset) else open_tables(source)


def source_columns(source: Source) -> list[str]:
    """Returns the names of the columns of a split, of parquet files without reading the rows."""
    if not isinstance(source, Dataset) and source[0].suffix.lower() == ".parquet":
        return pyarrow.parquet.read_schema(source[0]).names
    return column_names(read_source(source))


def is_on_hub(name: str) -> bool:
    """Returns whether a name is not written as a path."""
    return not (Path(name).is_absolute() or name.startswith((".", "~"))) and name != EMBEDDED


def load_splits(name: str, config: str | None = None) -> dict[str, Source]:
    """Loads a data set of the Hub, or a local copy of one."""
    return {str(split): part for split, part in load_dataset(name, config).items()}


def folder_splits(folder: Path) -> dict[str, Source]:
    """
    Returns the splits of a folder of `save_to_disk`, or of tables named after their splits, such as `train.csv` or
    `data/train-00000-of-00002.parquet`. Tables in subfolders, as the Hub stores them, count if there are no others.
    """
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = load_from_disk(str(folder))
        return dict(saved) if isinstance(saved, DatasetDict) else {"train": saved}
    files = _group_by_split(path for path in sorted(folder.iterdir()) if path.suffix.lower() in READERS)
    if not any(split in files for split in SPLITS):
        files = _group_by_split(folder / name for name in find_files(folder, READERS)) or files
    for split, paths in files.items():
        if any(path.stem == split or path.parent != paths[0].parent for path in paths[1:]):
            raise ValueError(f"Several files for split {split!r}: {', '.join(map(str, paths))}; keep one.")
    return dict(files)


def _group_by_split(paths: Iterable[Path]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in paths:
        split = re.sub(r"-\d{5}-of-\d{5}$", "", path.stem)
        files.setdefault(path.parent.name if split.isdigit() else split, []).append(path)
    return files


def find_files(folder: Path, endings: Collection[str]) -> list[Path]:
    """Returns the relative paths of the files of a folder with these endings that are not hidden, sorted."""
    # Reading a pipe waits for ever.
    files = (file for file in folder.rglob("*") if file.suffix.lower() in endings and file.is_file())
    names = sorted(file.relative_to(folder) for file in files)
    return [name for name in names if not any(part.startswith(".") for part in name.parts)]


def find_sources(data_args: DataArguments, config: str | None = None) -> dict[str, Source]:
    """Returns the splits that arguments name."""
    name = data_args.dataset_name
    found: dict[str, Source] = {}
    if name is not None:
        path = EMBEDDED_FOLDER if name == EMBEDDED else to_path(name)
        config = data_args.dataset_config_name or config
        if path.is_dir():
            found = load_splits(str(path), config) if config else folder_splits(path)
        elif path.is_file():
            found = {"train": [path]}
        elif not is_on_hub(name):
            raise FileNotFoundError(f"{name}: there is no such folder.")
        else:
            logger.info(f"Loading the dataset {name} of the Hub")
            found = load_splits(name, config)
    for split in SPLITS:
        file = getattr(data_args, f"{split}_file")
        if file is not None:
            found[split] = [to_path(file)]
    return found


def wanted_splits(found: Collection[str], splits: Sequence[str] | None, where: str) -> list[str]:
    """Returns the wanted splits, by default the usual ones that exist; raises an error for a missing one."""
    wanted = [split for split in SPLITS if split in found] if splits is None else list(splits)
    missing = [split for split in wanted if split not in found]
    if missing or not wanted:
        raise FileNotFoundError(
            f"{where} has no split {' or '.join(missing or SPLITS)}; the splits are {', '.join(found) or 'none'}."
        )
    return wanted
