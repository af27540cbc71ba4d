# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What an encoder knows of similarity after each of its layers."""

from collections.abc import Mapping
from typing import Any

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from ..encoding import embed_texts, sentence_embeddings
from ..evaluation import PearsonSpearman
from .report import markdown


def probe_layers(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    pairs: datasets.Dataset,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    show_progress: bool = True,
) -> dict[str, dict[str, float]]:
    """
    Correlates the cosine of two sentences with their label, after every layer: the layer-wise analysis of
    [Pan, 2025](https://huggingface.co/papers/2502.14620), for any encoder.

    Args:
        model (`PreTrainedModel`):
            The encoder, with or without a head.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        pairs (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2` and `label`, a number that is higher for more alike ones.
        batch_size (`int`, *optional*, defaults to 32):
            Sentences in a batch.
        max_length (`int`, *optional*):
            Tokens after which a sentence is cut. Defaults to what model and tokenizer allow.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `dict[str, dict[str, float]]`: `pearson` and `spearman` as fractions of 1, after the embeddings (`"0"`) and
        after each layer (`"1"`, ...) of the mean over the real tokens, and of the model's own `"embedding"`.

    Raises:
        `ValueError`: if there are no labels, or they or the embeddings are constant, NaN or infinite, or the model
        changes the number of tokens on the way.

    Example:

    ```python
    >>> from hf_dse import load_pairs
    >>> from hf_dse.studies.probe import probe_layers

    >>> probe_layers(model, tokenizer, pairs["validation"])["6"]["spearman"]
    0.8672
    ```
    """
    missing = [name for name in ("sentence1", "sentence2", "label") if name not in pairs.column_names]
    if missing:
        raise ValueError(f"The pairs have no column {missing[0]!r}, only {', '.join(pairs.column_names)}.")
    num_states = 0

    def pool_layers(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        nonlocal num_states
        states = model.base_model(**batch, output_hidden_states=True).hidden_states
        num_states = len(states)
        mask = batch["attention_mask"][..., None].float()  # [B, N, 1]
        if any(state.shape[1] != mask.shape[1] for state in states):
            raise ValueError(f"{type(model).__name__} changes the number of tokens on the way: it cannot be probed.")
        pooled = [(state.float() * mask).sum(dim=1) / mask.sum(dim=1) for state in states]
        return torch.cat([*pooled, sentence_embeddings(model, batch)], dim=1)

    first, second = pairs["sentence1"][:], pairs["sentence2"][:]
    texts = list(dict.fromkeys([*first, *second]))
    options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length, "show_progress": show_progress}
    vectors = embed_texts(model, processing_class, texts, pool_layers, **options)
    row_of = {text: row for row, text in enumerate(texts)}
    rows = [[row_of[text] for text in column] for column in (first, second)]
    size, labels = model.config.hidden_size, np.asarray(pairs["label"], dtype=np.float64)
    layers = np.split(vectors, [size * number for number in range(1, num_states + 1)], axis=1)
    results = {}
    for name, layer in zip([*map(str, range(num_states)), "embedding"], layers, strict=True):
        layer = layer / np.maximum(np.linalg.norm(layer, axis=1, keepdims=True), np.finfo(np.float32).tiny)
        cosine = np.einsum("pd,pd->p", layer[rows[0]], layer[rows[1]], dtype=np.float64)
        results[name] = PearsonSpearman().compute(predictions=cosine, references=labels)
    return results


def probe_table(results: Mapping[str, Mapping[str, Mapping[str, float]]]) -> str:
    """Lays out what [`probe_layers`] returns for each of several models, times 100, in Markdown."""
    names = list(dict.fromkeys(name for layers in results.values() for name in layers if name != "embedding"))
    header = ["after layer", *(f"{model}: {metric}" for model in results for metric in ("Pearson", "Spearman"))]
    rows = []
    for name in [*names, "embedding"]:
        cells = []
        for layers in results.values():
            found = layers.get(name)
            cells += ["", ""] if found is None else [f"{100 * found[key]:.2f}" for key in ("pearson", "spearman")]
        rows.append([name, *cells])
    return markdown(header, rows, 1)
