# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The splits of a data set: local files and folders, and data sets of the Hub."""

import re
from collections import Counter
from collections.abc import Collection, Sequence
from pathlib import Path

from datasets import DatasetDict, load_dataset, load_from_disk
from datasets.exceptions import DatasetGenerationError

from hf_dse.common.files import to_path
from hf_dse.data.options import EMBEDDED, DataArguments
from hf_dse.data.tables import READERS, Source


# Other names of a split, as `datasets` reads them.
ALIASES = {"training": "train", "dev": "validation", "val": "validation", "valid": "validation", "testing": "test"}
ALIASES |= {name: name for name in ("train", "validation", "test")}
SPLITS = ("train", "validation", "test")
# In the name of a file where a split has several, as the Hub stores it.
PART = re.compile(r"(.*)-\d{5}-of-(\d{5})[^/]*")


def folder_splits(folder: Path) -> dict[str, Source]:
    """
    Returns the splits of a folder of `save_to_disk`, of tables such as `train.csv`, or of parquet files as the Hub
    stores them, such as `data/train-00000-of-00002.parquet`.
    """
    if (folder / "dataset_dict.json").is_file() or (folder / "state.json").is_file():
        saved = load_from_disk(str(folder))
        return dict(saved) if isinstance(saved, DatasetDict) else {"train": saved}
    tables = [path for path in sorted(folder.iterdir()) if path.suffix.lower() in READERS]
    tables = [path for path in tables if path.name != "dataset_infos.json"]
    parts = [path for path in tables if PART.fullmatch(path.as_posix())]
    if len(parts) == len(tables) and (shards := sorted(folder.rglob("*.parquet"))):
        homes = {path.parent.parent if path.parent.name.lower() in ALIASES else path.parent for path in shards}
        if len(homes) > 1:
            raise ValueError(
                f"{folder} has several data sets: name the folder of one, {' or '.join(map(str, homes))}."
            )
        counts = Counter(match.groups() for path in shards if (match := PART.fullmatch(path.as_posix())))
        for (name, total), count in counts.items():
            if count != int(total):
                raise ValueError(f"{name} should have {int(total)} files by their names, and has {count}.")
        try:
            # Not the folder alone: its card may have other columns.
            return {str(split): part for split, part in load_dataset("parquet", data_dir=str(folder)).items()}
        except DatasetGenerationError as error:
            raise ValueError(f"{folder}: the parquet files are not parts of one table: {error.__cause__}") from error
    files: dict[str, Source] = {ALIASES.get(path.stem.lower(), path.stem): path for path in tables}
    if parts or len(files) < len(tables):
        raise ValueError(
            f"{folder} has several tables for a split, or parts of one: {', '.join(path.name for path in tables)}; "
            "keep one table for each split, or only parts in parquet."
        )
    return files


def find_table(folder: str | Path, name: str) -> Path | None:
    """
    Returns the table of a folder with this name and any ending, such as the `corpus` of BEIR, or the one table of the
    subfolder of this name, as the Hub stores it; `None` without one.
    """
    folder = to_path(folder)
    found = [path for ending in READERS if (path := folder / f"{name}{ending}").is_file()]
    found = found or [path for path in (folder / name).glob("*.parquet") if path.is_file()]
    if len(found) > 1:
        raise ValueError(f"{folder}: the {name} is in {', '.join(map(str, found))}: keep one.")
    return next(iter(found), None)


def find_sources(data_args: DataArguments) -> dict[str, Source]:
    """Returns the splits that arguments name."""
    name, config = data_args.dataset_name, data_args.dataset_config_name
    found: dict[str, Source] = {}
    if config is not None and (name is None or to_path(name).is_file()):
        raise ValueError(
            f"dataset_config_name={config} is for a data set of the Hub, or a folder, with configurations: leave it "
            "out."
        )
    if name is not None:
        path = Path(__file__).parent / EMBEDDED if name == EMBEDDED else to_path(name)
        if path.is_file():
            found = {"train": path}
        elif path.is_dir() and config is None:
            found = folder_splits(path)
        else:
            found = {str(split): part for split, part in load_dataset(str(path), config).items()}
    files = {split: getattr(data_args, f"{split}_file") for split in SPLITS}
    return found | {split: file for split, file in files.items() if file is not None}


def wanted_splits(found: Collection[str], splits: Sequence[str] | None, where: str) -> list[str]:
    """Returns the wanted splits, by default the usual ones that exist; raises an error for a missing one."""
    wanted = [split for split in SPLITS if split in found] if splits is None else list(splits)
    missing = [split for split in wanted if split not in found]
    if not found and to_path(where).is_dir():
        raise FileNotFoundError(
            f"The folder {where} has no table such as train.csv or test.jsonl, of which each is a split, and no "
            "parquet files: for documents to search in, pass `--corpus`."
        )
    if missing or not wanted:
        raise FileNotFoundError(
            f"{where} has no split {' or '.join(missing or SPLITS)}; the splits are {', '.join(found) or 'none'}."
        )
    return wanted
