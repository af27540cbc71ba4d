# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What an encoder knows of similarity after each of its layers."""

from collections.abc import Mapping
from functools import partial

import datasets
import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.display import markdown
from hf_dse.evaluation.pairs import check_labelled, cosines
from hf_dse.inference.encoding import embed_texts, encode_pairs, mean_tokens, pool_outputs
from hf_dse.metrics import PearsonSpearman


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
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from hf_dse import DataArguments, load_pairs, probe_layers

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> model, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_eval_samples=32))["test"]
    >>> layers = probe_layers(model, tokenizer, pairs, show_progress=False)
    >>> layers["0"]["spearman"] < layers["6"]["spearman"]
    True
    ```
    """
    check_labelled(pairs)
    num_states = 0

    def pool_layers(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        nonlocal num_states
        outputs, mask = model.base_model(**batch, output_hidden_states=True), batch["attention_mask"]
        num_states = len(outputs.hidden_states)
        if any(states.shape[1] != mask.shape[1] for states in outputs.hidden_states):
            raise ValueError(f"{type(model).__name__} changes the number of tokens on the way: it cannot be probed.")
        layers = [mean_tokens(states, mask) for states in outputs.hidden_states]
        return torch.cat([*layers, pool_outputs(model, outputs, mask)], dim=1)

    sentences = encode_pairs(
        model,
        processing_class,
        pairs["sentence1"][:],
        pairs["sentence2"][:],
        encoder=partial(embed_texts, embed=pool_layers),
        batch_size=batch_size,
        max_length=max_length,
        show_progress=show_progress,
    )
    ends = [model.config.hidden_size * number for number in range(1, num_states + 1)]
    layers = zip(*(np.split(vectors, ends, axis=1) for vectors in sentences), strict=True)
    labels = np.asarray(pairs["label"], dtype=np.float64)
    return {
        name: PearsonSpearman().compute(predictions=cosines(*layer), references=labels)
        for name, layer in zip([*map(str, range(num_states)), "embedding"], layers, strict=True)
    }


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
