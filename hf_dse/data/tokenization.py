# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tokens: tokenizing and padding texts, their lengths, and batches of similar length."""

from collections.abc import Iterator, Mapping, Sequence

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase


# A full batch has texts of up to this many tokens; of longer ones it takes fewer.
TOKENS_PER_TEXT = 512

# Below this length padding costs less than another batch would.
SHORT_TEXT = 64


def tokenize(
    processing_class: PreTrainedTokenizerBase, texts: list[str], max_length: int | None
) -> tuple[list[dict[str, list[int]]], int]:
    """Tokenizes texts, unpadded; returns one `dict` for each text and how many texts were cut."""
    truncation = {"truncation": max_length is not None, "max_length": max_length}
    encoded = processing_class(texts, **truncation, verbose=False)
    lengths = [len(ids) for ids in encoded["input_ids"]]
    if not all(lengths):
        raise ValueError(f"The text {texts[lengths.index(0)]!r} has no tokens, so it has no embedding: drop it.")
    if encoded.encodings is not None:
        num_cut = sum(bool(encoding.overflowing) for encoding in encoded.encodings)
    else:
        # A tokenizer in Python. Only a text that fills the limit can have been cut; those alone are counted whole.
        full = [text for text, length in zip(texts, lengths, strict=True) if length == max_length]
        whole = processing_class(full, verbose=False)["input_ids"] if full else []
        num_cut = sum(len(ids) > (max_length or 0) for ids in whole)
    features = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    return features, num_cut


def pad(
    processing_class: PreTrainedTokenizerBase, features: list[dict[str, list[int]]], device: torch.device
) -> Mapping[str, torch.Tensor]:
    """Pads tokenized texts to the longest and stacks them to tensors of shape `(batch_size, seq_len)`."""
    return processing_class.pad(features, return_tensors="pt", verbose=False).to(device)


def length_batches(lengths: Sequence[int], batch_size: int) -> Iterator[list[int]]:
    """
    Groups texts of similar length, the longest first: memory that suffices for the first batch suffices for all.

    Args:
        lengths (`Sequence[int]`):
            Number of tokens of each text.
        batch_size (`int`):
            Largest number of texts in a batch; `batch_size * 512` padded tokens are not exceeded either, unless by
            one text alone.

    Returns:
        `Iterator[list[int]]`: positions of the texts of each batch; every text occurs once.
    """
    batch: list[int] = []
    longest = 0
    for row in sorted(range(len(lengths)), key=lambda row: -lengths[row]):
        is_full = len(batch) == batch_size or (len(batch) + 1) * longest > batch_size * TOKENS_PER_TEXT
        if batch and (is_full or longest > max(SHORT_TEXT, 2 * lengths[row])):
            yield batch
            batch = []
        if not batch:
            longest = lengths[row]
        batch.append(row)
    if batch:
        yield batch


def max_tokens(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> int | None:
    """The longest input that both model and tokenizer take, special tokens included; `None` without a limit."""
    limits = [processing_class.model_max_length, getattr(model.config, "max_position_embeddings", None)]
    for name, module in model.base_model.named_modules():
        # RoBERTa-like models count positions from the padding index on, so their table is longer than their inputs.
        if (
            name.endswith("position_embeddings")
            and isinstance(module, nn.Embedding)
            and module.padding_idx is not None
        ):
            limits.append(module.num_embeddings - module.padding_idx - 1)
    # A tokenizer without a limit has a huge number, relative positions may have -1.
    known = [limit for limit in limits if limit is not None and 0 < limit < 10**9]
    return min(known, default=None)


def check_max_length(
    max_length: int | None, model: PreTrainedModel, processing_class: PreTrainedTokenizerBase, pair: bool = False
) -> int | None:
    """
    Checks a limit in tokens, special tokens included.

    Args:
        max_length (`int`, *optional*):
            The limit; `None` stands for what model and tokenizer allow.
        model (`PreTrainedModel`):
            The model.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        pair (`bool`, *optional*, defaults to `False`):
            Whether it holds for two sentences in one sequence.

    Returns:
        `int`, *optional*: the limit; `None` if there is none at all.

    Raises:
        `ValueError`: if the model takes fewer tokens, or nothing is left for the text.
    """
    most = max_tokens(model, processing_class)
    if max_length is None:
        return most
    if most is not None and max_length > most:
        raise ValueError(f"max_length={max_length} is above the {most} tokens this model takes: pass at most {most}.")
    least = processing_class.num_special_tokens_to_add(pair) + (2 if pair else 1)
    if max_length < least:
        what = "two sentences" if pair else "a text"
        raise ValueError(f"max_length={max_length} leaves no room for {what}: pass at least {least}.")
    return max_length


def lengths(
    dataset: Dataset, processing_class: PreTrainedTokenizerBase, *, max_length: int | None = None, joint: bool = False
) -> Dataset:
    """
    Adds a column `length`, for sampling batches of similar length.

    Args:
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`, *optional*):
            Upper limit of the lengths.
        joint (`bool`, *optional*, defaults to `False`):
            `True` counts the tokens of the encoded pair (cross-encoder), `False` those of the longer sentence.

    Returns:
        `Dataset`: the dataset with the column `length`.
    """

    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    if joint:
        sizes = token_lengths(processing_class, first, second)
    else:
        both = (token_lengths(processing_class, first), token_lengths(processing_class, second))
        sizes = [max(pair) for pair in zip(*both, strict=True)]
    if max_length is not None:
        sizes = [min(size, max_length) for size in sizes]
    if "length" in dataset.column_names:
        dataset = dataset.remove_columns("length")
    return dataset.add_column("length", sizes)


def token_lengths(
    processing_class: PreTrainedTokenizerBase, first: list[str], second: list[str] | None = None
) -> list[int]:
    """Counts tokens of sentences or pairs, special tokens included and nothing truncated."""
    sizes: list[int] = []
    for start in range(0, len(first), 1000):
        part = slice(start, start + 1000)
        # verbose=False: the tokenizer would warn of long sequences that are never given to a model in this form.
        encoded = processing_class(
            first[part], second and second[part], truncation=False, return_attention_mask=False, verbose=False
        )
        sizes += [len(ids) for ids in encoded["input_ids"]]
    return sizes
