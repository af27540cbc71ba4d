# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The splits of a data set: local files and folders, and data sets of the Hub."""

import re
from collections.abc import Collection, Iterable, Sequence
from pathlib import Path
from typing import TypeAlias

import pyarrow
from datasets import Dataset, DatasetDict, concatenate_datasets, load_dataset, load_from_disk

from hf_dse.common.files import to_path
from hf_dse.data.arguments import EMBEDDED, DataArguments
from hf_dse.data.tables import READERS, Columns, open_table


EMBEDDED_FOLDER = Path(__file__).parent / "embedded"

# Other names of a split, as `datasets` reads them.
ALIASES = {"training": "train", "dev": "validation", "val": "validation", "valid": "validation", "testing": "test"}
ALIASES |= {name: name for name in ("train", "validation", "test")}

# The end of a file's name where a split has several, as the Hub stores it.
SHARD = re.compile(r"-\d{5}-of-(\d{5})(-[0-9a-f]+)?$")

SPLITS = ("train", "validation", "test")

# Files of one split, or the split itself.
Source: TypeAlias = list[Path] | Dataset


def read_source(source: Source) -> Columns:
    """Returns the rows of a split, which may come in several files."""
    if isinstance(source, Dataset):
        return source
    parts = [open_table(path) for path in source]
    if len(parts) == 1:
        return parts[0]
    try:
        return concatenate_datasets([part if isinstance(part, Dataset) else Dataset.from_dict(part) for part in parts])
    except (ValueError, pyarrow.ArrowException) as error:
        raise ValueError(f"{', '.join(map(str, source))} are not parts of one table: {error}") from error


def is_saved(folder: Path) -> bool:
    """Returns whether `save_to_disk` wrote a folder."""
    return (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file()


def folder_splits(folder: Path) -> dict[str, Source]:
    """
    Returns the splits of a folder of `save_to_disk`, or of tables such as `train.csv`; if there are none, of tables in
    subfolders, as the Hub stores them: `data/train-00000-of-00002.parquet`.
    """
    if is_saved(folder):
        saved = load_from_disk(str(folder))
        return dict(saved) if isinstance(saved, DatasetDict) else {"train": saved}
    files = _group_by_split(path for path in sorted(folder.iterdir()) if path.suffix.lower() in READERS)
    if not any(split in files for split in SPLITS):
        files = _group_by_split(folder / name for name in find_files(folder, READERS)) or files
    for split, paths in files.items():
        if any(
            not SHARD.search(path.stem) and not path.stem.isdigit() or path.parent != paths[0].parent
            for path in paths[1:]
        ):
            raise ValueError(f"Several files for split {split!r}: {', '.join(map(str, paths))}; keep one.")
    return dict(files)


def _group_by_split(paths: Iterable[Path]) -> dict[str, list[Path]]:
    files: dict[str, list[Path]] = {}
    for path in paths:
        split = SHARD.sub("", path.stem)
        split = ALIASES.get(split.lower(), split)
        if path.name != "dataset_infos.json":
            files.setdefault(path.parent.name if split.isdigit() else split, []).append(path)
    for split, parts in files.items():
        totals = {int(match[1]) for path in parts if (match := SHARD.search(path.stem))}
        if totals and totals != {len(parts)}:
            raise ValueError(
                f"Split {split!r} should have {' or '.join(map(str, sorted(totals)))} files by their names, and there "
                f"are {len(parts)}: {', '.join(map(str, parts))}."
            )
    return files


def find_files(folder: Path, endings: Collection[str]) -> list[Path]:
    """Returns the relative paths of the files of a folder with these endings that are not hidden, sorted."""
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
        if path.is_file():
            found = {"train": [path]}
        elif path.is_dir() and config is None:
            found = folder_splits(path)
        else:
            found = {str(split): part for split, part in load_dataset(str(path), config).items()}
    for split in SPLITS:
        file = getattr(data_args, f"{split}_file")
        if file is not None:
            found[split] = [to_path(file)]
    return found


def wanted_splits(found: Collection[str], splits: Sequence[str] | None, where: str) -> list[str]:
    """Returns the wanted splits, by default the usual ones that exist; raises an error for a missing one."""
    wanted = [split for split in SPLITS if split in found] if splits is None else list(splits)
    missing = [split for split in wanted if split not in found]
    if not found and to_path(where).is_dir():
        raise FileNotFoundError(
            f"The folder {where} has no table such as train.csv or test.jsonl, of which each is a split"
            + (": for documents to search in, pass `--corpus`." if find_files(Path(where), (".txt", ".md")) else ".")
        )
    if missing or not wanted:
        raise FileNotFoundError(
            f"{where} has no split {' or '.join(missing or SPLITS)}; the splits are {', '.join(found) or 'none'}."
        )
    return wanted
