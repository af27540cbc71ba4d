# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts: sentences without labels, and documents."""

from collections.abc import Sequence
from pathlib import Path

from datasets import Dataset
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.sources import find_table, folder_splits
from hf_dse.data.tables import Columns, check_texts, column_names, find_column, is_filled, open_table, read_text


logger = logging.get_logger(__name__)


def read_texts(path: str | Path, text_column: str = "text") -> Columns:
    """
    Returns the lines of a .txt file, the columns of a table (that named `corpus` of a folder, as in BEIR), or the .txt
    and .md files of a folder, with the column `file`. Texts are in `text_column`; in `text`, after their `title`.
    """
    columns = read_columns(path, text_column)
    texts = texts_of(columns, text_column, path)
    if isinstance(columns, Dataset):
        return columns.remove_columns(text_column).add_column(text_column, texts)
    return {**columns, text_column: texts}


def texts_of(columns: Columns, text_column: str, where: str | Path) -> list[str]:
    """The texts of a table, in `text` after their `title` if there is one."""
    texts = columns[text_column][:]
    if text_column != "text" or "title" not in column_names(columns):
        return texts
    return join_titles(texts, columns["title"][:], where)[0]


def read_columns(path: str | Path, text_column: str = "text") -> Columns:
    """The columns of [`read_texts`] as they are, with titles in a column of their own."""
    file = to_path(path)
    table = find_table(file, "corpus")
    if not file.exists():
        raise FileNotFoundError(f"{path}: there is no such file or folder.")
    if file.is_dir() and table is None:
        columns = _read_folder(file, text_column)
    elif file.suffix.lower() == ".txt":
        # Not `splitlines`, which also splits at other characters. The last line may have no line break.
        lines = read_text(file).removesuffix("\n").split("\n")
        columns = {text_column: [] if lines == [""] else lines}
    else:
        columns = open_table(table or file)
    find_column(columns, path, [text_column], "Choose one with `--text_column`, in Python `text_column`.")
    check_texts(columns[text_column][:], path, text_column)
    return columns


def find_files(folder: Path) -> tuple[list[Path], list[Path]]:
    """Returns the .txt and .md files of a folder, if its texts are in files, and its other files or links."""
    # Links may be folders.
    paths = sorted(path.relative_to(folder) for path in folder.rglob("*") if path.is_file() or path.is_symlink())
    files = [path for path in paths if not any(part.startswith(".") for part in path.parts)]
    names = [name for name in files if name.suffix.lower() in (".txt", ".md")]
    others = sorted({*files} - {*names})
    # The card of a data set is none of its texts.
    return ([] if others and all(name.name.lower() == "readme.md" for name in names) else names), others


def is_folder_of_files(name: str | Path) -> bool:
    """Returns whether a name stands for a folder whose texts are .txt and .md files."""
    folder = to_path(name)
    return folder.is_dir() and find_table(folder, "corpus") is None and bool(find_files(folder)[0])


def _read_folder(folder: Path, text_column: str) -> Columns:
    """Returns the texts of a folder without a corpus in the layout of BEIR."""
    names, others = find_files(folder)
    if others and not names:
        splits = folder_splits(folder)
        if len(splits) != 1:
            found = f"the splits {', '.join(splits)}" if splits else f"files that are not read, such as {others[0]}"
            raise ValueError(f"{folder} has {found}: name a file of texts, or a table.")
        return open_table(splits.popitem()[1])
    if not names:
        raise FileNotFoundError(f"{folder}: there are no .txt or .md files in this folder, and no corpus.jsonl.")
    if others:
        logger.warning(f"{folder}: {len(others)} files or links are not read, such as {others[0]}.")
    return {"file": [name.as_posix() for name in names], text_column: [read_text(folder / name) for name in names]}


def join_titles(texts: Sequence[str], titles: Sequence, where: str | Path) -> tuple[list[str], list[str]]:
    """Returns texts after their titles if there are any, as BEIR does it, and the titles."""
    # A data frame has NaN where there is no title.
    titles = ["" if title is None or title != title else title for title in titles]
    check_texts(titles, where, "title")
    joined = [f"{title} {text}".strip() if title else text for title, text in zip(titles, texts, strict=True)]
    return joined, titles


def load_texts(path: str, text_column: str = "text", max_samples: int | None = None) -> Dataset:
    """Returns the texts of a file as the column `text`, without empty ones; `text_column` may name several: a,b."""
    texts = [text for name in text_column.split(",") for text in read_texts(path, name)[name][:]]
    kept = list(filter(is_filled, texts))
    if len(kept) < len(texts):
        logger.warning(f"{path}: dropped {len(texts) - len(kept)} of {len(texts)} texts because they are empty.")
    if not kept:
        raise ValueError(f"{path} has no text: pass a file with one text per line or row.")
    return Dataset.from_dict({"text": kept[:max_samples]})
