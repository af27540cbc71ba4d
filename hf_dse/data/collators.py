# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Collators: from rows of a data set to tokenized batches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.tokenization import pad, tokenize


logger = logging.get_logger(__name__)


def _targets(features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
    targets = {}
    if "label" in features[0]:
        labels = [feature["label"] for feature in features]
        if all(isinstance(label, int) for label in labels):
            targets["labels"] = torch.tensor(labels)
        else:
            # A missing label is NaN, which the losses ignore.
            targets["labels"] = torch.tensor([math.nan if label is None else float(label) for label in labels])
    if "teacher_logits" in features[0]:
        scores = [feature["teacher_logits"] for feature in features]
        size = max(len(score or []) for score in scores)
        targets["teacher_logits"] = torch.tensor([score or [math.nan] * size for score in scores])
    if "embeddings" in features[0]:
        targets["embeddings"] = torch.tensor([feature["embeddings"] for feature in features])
    if "weight" in features[0]:
        targets["weights"] = torch.tensor([feature["weight"] for feature in features])
    return targets


class PairCollator:
    """
    Tokenizes the two sentences of each pair separately, for a bi-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a sentence; `n_truncated` counts the truncated sentences.

    A call returns `input_ids` and `attention_mask` of shape `(batch_size, 2, seq_len)`, and if the features have them
    `labels` and `weights` of shape `(batch_size,)`, `teacher_logits` of shape `(batch_size, num_labels)` and
    `embeddings` of shape `(batch_size, 2, embedding_size)`.
    Labels and scores that are `None` become NaN.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int):
        self.processing_class = processing_class
        self.max_length = max_length
        self.n_truncated = 0

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        texts = [feature[key] for feature in features for key in ("sentence1", "sentence2")]
        encoded, cut = tokenize(self.processing_class, texts, self.max_length)
        if cut and not self.n_truncated:
            logger.warning(
                f"{cut} of {len(texts)} sentences of this batch are longer than {self.max_length} tokens and were "
                "truncated: raise `max_length` if the ends of the texts matter. Later ones are only counted."
            )
        self.n_truncated += cut
        batch = pad(self.processing_class, encoded, torch.device("cpu"))
        pairs = {key: batch[key].view(len(features), 2, -1) for key in ("input_ids", "attention_mask")}  # [B, 2, S]
        return pairs | _targets(features)


class CrossEncoderCollator:
    """
    Tokenizes each pair as one sequence, for a cross-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a pair; the longer sentence is truncated first.
        swap (`bool`, *optional*, defaults to `False`):
            Whether to swap the sentences of a pair with probability 1/2. It uses PyTorch's random numbers, so a
            seeded training is reproducible and sees both orders over the epochs.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int, swap: bool = False):
        self.processing_class = processing_class
        self.max_length = max_length
        self.swap = swap

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        pairs = [(feature["sentence1"], feature["sentence2"]) for feature in features]
        if self.swap:
            swapped = (torch.rand(len(pairs)) < 0.5).tolist()
            pairs = [pair[::-1] if change else pair for pair, change in zip(pairs, swapped, strict=True)]
        first, second = (list(texts) for texts in zip(*pairs, strict=True))
        encoded = self.processing_class(
            first, second, truncation="longest_first", max_length=self.max_length, padding=True, return_tensors="pt"
        )
        return {**encoded, **_targets(features)}


class TextCollator:
    """
    Tokenizes texts. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a text; `n_truncated` counts the truncated texts.
        chunk_length (`int`, *optional*):
            Tokens of a chunk, including special tokens. A text is truncated to a whole number of chunks, rounded to
            the number nearest to `max_length`.

    A call accepts rows with a `text` and returns `input_ids` and `attention_mask` of shape `(batch_size, seq_len)`;
    of rows with `embeddings` also these, of shape `(batch_size, embedding_size)`; with a chunk length also
    `chunk_input_ids` and `chunk_attention_mask` of shape `(num_chunks, chunk_len)` and `chunk_texts` of shape
    `(num_chunks,)`, the row number of each chunk.
    """

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int, chunk_length: int | None = None):
        self.processing_class = processing_class
        self.max_length = max_length
        self.chunk_length = chunk_length
        self.n_truncated = 0

    def __call__(self, rows: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        features, cut = tokenize(self.processing_class, [row["text"] for row in rows], self.max_length)
        if cut and not self.n_truncated:
            logger.warning(
                f"{cut} of {len(rows)} texts of this batch are longer than {self.max_length} tokens and were "
                "truncated: raise `max_length` if the ends of the texts matter. Later ones are only counted."
            )
        self.n_truncated += cut
        batch = pad(self.processing_class, features, torch.device("cpu"))
        inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
        if "embeddings" in rows[0]:
            vectors = np.stack([np.asarray(row["embeddings"], dtype=np.float32) for row in rows])
            inputs["embeddings"] = torch.from_numpy(vectors)
        return inputs | (self._chunks([row["text"] for row in rows]) if self.chunk_length is not None else {})

    def _chunks(self, texts: list[str]) -> dict[str, torch.Tensor]:
        encoded = self.processing_class(
            texts, truncation=True, max_length=self.chunk_length, return_overflowing_tokens=True, verbose=False
        )
        of_text = encoded.pop("overflow_to_sample_mapping")
        num_special = self.processing_class.num_special_tokens_to_add()
        num_chunks = max(1, round((self.max_length - num_special) / ((self.chunk_length or 0) - num_special)))
        first = {text: chunk for chunk, text in reversed(list(enumerate(of_text)))}
        kept = [chunk for chunk, text in enumerate(of_text) if chunk - first[text] < num_chunks]
        features = [{name: values[chunk] for name, values in encoded.items()} for chunk in kept]
        batch = pad(self.processing_class, features, torch.device("cpu"))
        return {
            "chunk_input_ids": batch["input_ids"],
            "chunk_attention_mask": batch["attention_mask"],
            "chunk_texts": torch.tensor([of_text[chunk] for chunk in kept]),
        }
