# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts: sentences without labels, and documents."""

from pathlib import Path

from datasets import Dataset
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.sources import find_files, folder_splits, is_saved, read_source
from hf_dse.data.tables import (
    PACKED,
    READERS,
    Columns,
    check_texts,
    column_names,
    find_column,
    find_table,
    is_filled,
    open_table,
    read_text,
)


logger = logging.get_logger(__name__)

# Names of the column of a document's text.
TEXT = ("text", "contents", "body")


def read_texts(path: str | Path, text_column: str = "text") -> Columns:
    """
    Returns the lines of a .txt file, the columns of a table (one named `corpus`, also in its folder, has its titles in
    the texts, as in BEIR), or the .txt and .md files of a folder, with the column `file`. Texts are in `text_column`.
    """
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
        table = table or file
        columns = open_table(table)
        has_titles = text_column == "text" and "title" in column_names(columns)
        if has_titles and table.stem != "corpus":
            logger.warning(
                f"{table}: the column title is not read, and a table named corpus has it before the texts, as in BEIR."
            )
        elif has_titles:
            texts = join_titles(columns, str(table))[0]
            if isinstance(columns, Dataset):
                others = columns.remove_columns([name for name in ("text",) if name in columns.column_names])
                columns = others.add_column("text", texts)
            else:
                columns = {**columns, "text": texts}
    find_column(columns, path, [text_column], "Choose one with `--text_column`, in Python `text_column`.")
    check_texts(columns[text_column][:], path, text_column)
    return columns


def _read_folder(folder: Path, text_column: str) -> Columns:
    """Returns the texts of a folder without a corpus in the layout of BEIR."""
    names, tables = find_files(folder, (".txt", ".md")), find_files(folder, READERS)
    packed = find_files(folder, PACKED)
    if links := [path for path in folder.rglob("*") if path.is_symlink() and path.is_dir()]:
        logger.warning(f"{folder}: {len(links)} links to folders are not followed, such as {links[0].name}.")
    is_data = all(name.name.lower() == "readme.md" for name in names)
    if is_data and is_saved(folder) or (is_data and tables):
        splits = folder_splits(folder)
        if len(splits) > 1:
            raise ValueError(f"{folder} has the splits {', '.join(splits)}: name the file of one of them.")
        return read_source(splits.popitem()[1])
    if not names or (is_data and packed):
        found = f"; {packed[0]} is not read: decompress or convert it" if packed else ", and no corpus.jsonl"
        raise FileNotFoundError(f"{folder}: there are no .txt or .md files in this folder{found}.")
    if tables or packed:
        others = [*tables, *packed]
        logger.warning(f"{folder}: {len(others)} tables are not read, such as {others[0]}: name a table to read it.")
    return {"file": [name.as_posix() for name in names], text_column: [read_text(folder / name) for name in names]}


def join_titles(columns: Columns, where: str) -> tuple[list[str], list[str]]:
    """Returns the texts of documents, each after its title if it has one, as BEIR does it, and the titles."""
    name = find_column(columns, where, TEXT)
    texts = columns[name][:]
    check_texts(texts, where, name)
    # A data frame has NaN where there is no title.
    given = columns["title"][:] if "title" in column_names(columns) else [None] * len(texts)
    titles = ["" if title is None or title != title else title for title in given]
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
