# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts without labels."""

from datasets import Dataset
from transformers.utils import logging

from hf_dse.data.tables import check_texts, read_texts


logger = logging.get_logger(__name__)


def load_texts(path: str, text_column: str = "text", max_samples: int | None = None) -> Dataset:
    """
    Reads the texts of a file and drops the empty ones.

    Args:
        path (`str`):
            A .txt file with one text per line, or a csv, json, jsonl or parquet file.
        text_column (`str`, *optional*, defaults to `"text"`):
            Column of the texts in a table, or several with commas between them: `"question1,question2"`.
        max_samples (`int`, *optional*):
            Keep only the first texts.

    Returns:
        `Dataset`: the column `text`.

    Raises:
        `FileNotFoundError`: if the file does not exist.
        `ValueError`: if the column does not exist, there is no text, or a text is not a string.
    """
    columns = read_texts(path, text_column.split(",")[0])
    texts = []
    for name in text_column.split(","):
        if name not in columns:
            read_texts(path, name)
        check_texts(columns[name], path, name)
        texts += columns[name]
    kept = [text for text in texts if text.strip()]
    if len(kept) < len(texts):
        logger.warning(f"{path}: dropped {len(texts) - len(kept)} of {len(texts)} texts because they are empty.")
    if not kept:
        raise ValueError(f"{path} has no text: pass a file with one text per line or row.")
    return Dataset.from_dict({"text": kept[:max_samples]})
