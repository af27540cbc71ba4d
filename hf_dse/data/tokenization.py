# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokenization, padding, lengths in tokens, and batches of similar length."""

import math
import re
from collections.abc import Iterator, Sequence
from typing import Any

from datasets import Dataset
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging


logger = logging.get_logger(__name__)

# A batch of longer texts than this, in tokens, has fewer texts.
TOKENS_PER_TEXT = 512
LONG_WORD = re.compile(r"\S{101}")
# Below this length padding costs less than another batch.
SHORT_TEXT = 64


def add_mask(processing_class: PreTrainedTokenizerBase) -> None:
    """Sets a tokenizer to give the attention mask, without which a model reads padding too."""
    if "attention_mask" not in processing_class.model_input_names:
        processing_class.model_input_names = [*processing_class.model_input_names, "attention_mask"]


def warn_of_texts(
    processing_class: PreTrainedTokenizerBase, texts: Sequence[str], max_length: int | None = None, prompt: str = ""
) -> None:
    """Tokenizes the texts that may be cut after a prompt, or unknown, and says how many are so, if any."""
    limit, unknown = max_length or math.inf, processing_class.unk_token_id
    num_special = processing_class.num_special_tokens_to_add()
    # A token has at least one byte; a letter of other scripts may have several tokens. All vocabularies know ASCII,
    # but WordPiece takes no word of more than 100 characters.
    room = limit - num_special - len(prompt.encode())
    suspects = [text for text in texts if not text.isascii() or len(text) > room or LONG_WORD.search(text)]
    num_cut = num_unknown = 0
    for start in range(0, len(suspects), 1000):
        block = [prompt + text for text in suspects[start : start + 1000]]
        for ids in processing_class(block, verbose=False)["input_ids"]:
            num_cut += len(ids) > limit
            if unknown is not None:
                num_unknown += 2 * ids.count(unknown) >= max(1, len(ids) - num_special)
    if num_cut:
        logger.warning(
            f"{num_cut} of {len(texts)} texts are longer than the {max_length} tokens that are read of one, and were "
            "truncated: split them into chunks if their ends matter."
        )
    if num_unknown:
        logger.warning(
            f"{num_unknown} of {len(texts)} texts are mostly unknown to the vocabulary of the model, so what it makes "
            "of them says nothing: use a model for their language."
        )


def length_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """
    Yields the positions of texts of similar length, the longest first. A batch has at most `batch_size` texts and
    `batch_size * 512` tokens with padding, or a single text.
    """
    batch: list[int] = []
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        longest = lengths[batch[0]] if batch else 0
        is_full = len(batch) == batch_size or (len(batch) + 1) * longest > batch_size * TOKENS_PER_TEXT
        if batch and (is_full or longest > max(SHORT_TEXT, 2 * lengths[row])):
            yield batch
            batch = []
        batch.append(row)
    if batch:
        yield batch


def max_tokens(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> int | None:
    """Returns the maximum tokens of an input of a model, or else of its tokenizer; `None` without either."""
    limits = [getattr(model.config, "max_position_embeddings", None) or 0]
    # The table of a DSE model may be shorter than its texts (`max_position_embeddings`).
    modules = [] if model.config.model_type == "dse" else model.base_model.named_modules()
    for name, module in modules:
        # RoBERTa-like models start positions after the padding index, so their table is longer than their inputs.
        if name.endswith("position_embeddings") and getattr(module, "padding_idx", None) is not None:
            limits.append(module.num_embeddings - module.padding_idx - 1)
    # Models with relative positions may have -1, a tokenizer without a limit has a huge one.
    limit = min((limit for limit in limits if limit > 0), default=processing_class.model_max_length)
    return limit if limit < 10**9 else None


def count_token_types(config: PreTrainedConfig) -> int:
    """Returns how many token types a model tells apart; 2 where its configuration does not say it."""
    return getattr(getattr(config, "encoder", config), "type_vocab_size", 2)


def check_vocabulary(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> None:
    """Raises a `ValueError` if a tokenizer has more tokens than the embeddings of a model."""
    embeddings: Any = model.get_input_embeddings()
    size = len(embeddings.weight)
    if len(processing_class) > size:
        raise ValueError(
            f"The tokenizer has {len(processing_class)} tokens, but {type(model).__name__} has embeddings for {size}: "
            "use the tokenizer of this model."
        )


def check_max_length(
    max_length: int | None, model: PreTrainedModel, processing_class: PreTrainedTokenizerBase, pair: bool = False
) -> int | None:
    """
    Returns a limit in tokens of a text or of two in one sequence (`pair`), `None` for the lower one of tokenizer and
    model. Raises a `ValueError` for a limit above that of the model, or without room for text.
    """
    most = max_tokens(model, processing_class)
    if max_length is None:
        return None if most is None else min(most, processing_class.model_max_length)
    if most is not None and max_length > most:
        raise ValueError(f"max_length={max_length} is above the {most} tokens this model takes: pass at most {most}.")
    least = processing_class.num_special_tokens_to_add(pair) + (2 if pair else 1)
    if max_length < least:
        what = "two sentences" if pair else "a text"
        raise ValueError(f"max_length={max_length} leaves no room for {what}: pass at least {least}.")
    return max_length


def lengths(dataset: Dataset, processing_class: PreTrainedTokenizerBase, *, max_length: int | None = None) -> Dataset:
    """Returns pairs or texts with a column `length`, the tokens of the longer sentence, at most `max_length`."""
    names = ("sentence1", "sentence2") if "sentence1" in dataset.column_names else ("text",)
    sizes = zip(*(token_lengths(processing_class, dataset[name][:]) for name in names), strict=True)
    longest = [max(row) if max_length is None else min(max(row), max_length) for row in sizes]
    if "length" in dataset.column_names:
        dataset = dataset.remove_columns("length")
    return dataset.add_column("length", longest)


def token_lengths(
    processing_class: PreTrainedTokenizerBase, first: list[str], second: list[str] | None = None
) -> list[int]:
    """Counts the tokens of sentences or pairs, including special tokens, without truncation."""
    sizes: list[int] = []
    for start in range(0, len(first), 1000):
        part = slice(start, start + 1000)
        encoded = processing_class(
            first[part], second and second[part], truncation=False, return_attention_mask=False, verbose=False
        )
        sizes += [len(ids) for ids in encoded["input_ids"]]
    return sizes
