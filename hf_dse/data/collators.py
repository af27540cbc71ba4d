# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Collators: from rows of a data set to tokenized batches."""

import math
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.tokenization import tokenize


logger = logging.get_logger(__name__)


class TextCollator:
    """Tokenizes rows with a `text`; `n_truncated` counts those longer than `max_length` tokens."""

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int):
        self.processing_class = processing_class
        self.max_length = max_length
        self.n_truncated = 0

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        return self.tokenize([feature["text"] for feature in features], "texts")

    def tokenize(self, texts: list[str], kind: str, limit: int | None = None, option: str = "max_length") -> dict:
        """Returns token ids and mask; the first batch with truncated texts is a warning."""
        limit = limit or self.max_length
        encoded, cut = tokenize(self.processing_class, texts, limit)
        if cut and not self.n_truncated:
            logger.warning(
                f"{cut} of {len(texts)} {kind} of this batch are longer than {limit} tokens and were truncated: raise "
                f"`{option}` if the ends of the texts matter. Later ones are only counted."
            )
        self.n_truncated += cut
        batch = self.processing_class.pad(encoded, return_attention_mask=True, return_tensors="pt", verbose=False)
        return {name: batch[name] for name in ("input_ids", "attention_mask")}


class PairCollator(TextCollator):
    """
    Tokenizes the two sentences of each pair separately, for a bi-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a sentence; `n_truncated` counts the truncated sentences.

    A call returns `input_ids` and `attention_mask` of shape `(batch_size, 2, seq_len)`, and if the features have them
    `labels` `(batch_size,)` and `teacher_logits` `(batch_size, num_labels)`. Labels and scores that are `None` become
    NaN, which the losses ignore.
    """

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        texts = [feature[key] for feature in features for key in ("sentence1", "sentence2")]
        batch = self.tokenize(texts, "sentences")
        batch = {name: values.view(len(features), 2, -1) for name, values in batch.items()}  # [B, 2, S]
        if "label" in features[0]:
            labels = [feature["label"] for feature in features]
            batch["labels"] = torch.tensor([math.nan if label is None else label for label in labels])
        if "teacher_logits" in features[0]:
            scores = [feature["teacher_logits"] for feature in features]
            size = max(len(score or []) for score in scores)
            batch["teacher_logits"] = torch.tensor([score or [math.nan] * size for score in scores])
        return batch
