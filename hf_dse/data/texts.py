# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts without labels."""

from dataclasses import dataclass, field

from datasets import Dataset
from transformers.utils import logging

from hf_dse.data.tables import read_texts


logger = logging.get_logger(__name__)


@dataclass
class TextArguments:
    """Which texts to learn from."""

    train_file: str = field(
        metadata={"help": "Texts without labels: .txt with one per line, or a csv, json, jsonl or parquet file."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Texts to evaluate on, in the same formats."})
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    max_train_samples: int | None = field(default=None, metadata={"help": "Keep only the first training texts."})
    max_eval_samples: int | None = field(default=None, metadata={"help": "Keep only the first validation texts."})

    def __post_init__(self) -> None:
        for name in ("max_train_samples", "max_eval_samples"):
            value = getattr(self, name)
            if value is not None and value < 1:
                raise ValueError(f"{name}={value}: it must be at least 1; omit it to keep every text.")


def load_texts(path: str, text_column: str = "text", max_samples: int | None = None) -> Dataset:
    """
    Reads the texts of a file and drops the empty ones.

    Args:
        path (`str`):
            A .txt file with one text per line, or a csv, json, jsonl or parquet file.
        text_column (`str`, *optional*, defaults to `"text"`):
            Column of the texts in a table.
        max_samples (`int`, *optional*):
            Keep only the first texts.

    Returns:
        `Dataset`: the column `text`.

    Raises:
        `FileNotFoundError`: if the file does not exist.
        `ValueError`: if the column does not exist, there is no text, or a text is not a string.
    """
    texts = read_texts(path, text_column)[text_column]
    kept = [text for text in texts if text.strip()]
    if len(kept) < len(texts):
        logger.warning(f"{path}: dropped {len(texts) - len(kept)} of {len(texts)} texts because they are empty.")
    if not kept:
        raise ValueError(f"{path} has no text: pass a file with one text per line or row.")
    return Dataset.from_dict({"text": kept[:max_samples]})
