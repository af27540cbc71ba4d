# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence embeddings of a bare model and its tokenizer. Folders and Hub ids are for `load_sentence_transformer`."""

import inspect
from collections.abc import Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.data.tables import check_texts, is_filled
from hf_dse.data.tokenization import (
    check_max_length,
    count_token_types,
    is_unknown,
    length_batches,
    tokenize,
    warn_of_read,
)


logger = logging.get_logger(__name__)

# Texts are tokenized and sorted by length in windows of this many batches, which bounds the memory.
BATCHES_PER_WINDOW = 64


def encode(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    normalize: bool = False,
    prompt_name: str | None = None,
    show_progress: bool = True,
) -> np.ndarray:
    """
    Computes the sentence embeddings of a model that is in memory, such as one that is being trained. For a saved
    model, use `SentenceTransformer.encode`, which gives the same vectors and has more options. Longer texts are
    truncated, with a warning that counts them.

    Args:
        model (`PreTrainedModel`):
            A DSE model, with or without its classification head, or any other encoder. The embedding is the
            `pooler_output` of DSE models, and the mean of `last_hidden_state` without padding of all others.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        texts (`Sequence[str]`):
            The texts to embed.
        batch_size (`int`, *optional*, defaults to 32):
            Maximum number of texts per batch; fewer for texts longer than 512 tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to the `query_length` or `document_length` of the config for
            the prompts of these names, if it has them, and to the `model_max_length` of the tokenizer.
        normalize (`bool`, *optional*, defaults to `False`):
            Whether to scale the embeddings to unit length, so that their dot product is their cosine.
        prompt_name (`str`, *optional*):
            Which of the prompts of the config stands before each text. `"query"` and `"document"` are empty for
            models without prompts.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32.

    Example:

    ```python
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from hf_dse import encode

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), AutoModel.from_pretrained(name)
    >>> encode(model, tokenizer, ["A cat sleeps.", "Rain again."], show_progress=False).shape
    (2, 384)
    ```
    """
    prompt = ""
    if prompt_name is not None:
        prompts = {"query": "", "document": "", **(getattr(model.config, "prompts", None) or {})}
        if prompt_name not in prompts:
            raise ValueError(f"prompt_name={prompt_name!r}: the model has the prompts {', '.join(prompts)}.")
        prompt = prompts[prompt_name]
        if max_length is None:
            max_length = getattr(model.config, f"{prompt_name}_length", None)
    texts = list_texts(texts)
    warn_of_blank(texts)
    texts = [prompt + text for text in texts]
    if not texts:
        # The embedding size of an arbitrary architecture is known only after a text.
        return encode(model, processing_class, ["empty"], show_progress=False)[:0]
    max_length = check_max_length(max_length, model, processing_class)
    embeddings = np.empty((len(texts), 0), dtype=np.float32)
    window_size, num_cut, num_unknown = BATCHES_PER_WINDOW * batch_size, 0, 0
    # On the right: with padding on the left, a model with learned positions reads other positions in each batch.
    padding: dict[str, Any] = {"padding_side": "right", "return_attention_mask": True, "return_tensors": "pt"}
    progress = tqdm(total=len(texts), desc="Encoding texts", unit="text", disable=not show_progress)
    with evaluating(model), torch.inference_mode(), progress:
        for start in range(0, len(texts), window_size):
            window = texts[start : start + window_size]
            features, cut = tokenize(processing_class, window, max_length)
            num_cut += cut
            read = zip(window, features, strict=True)
            num_unknown += sum(is_unknown(processing_class, text, feature["input_ids"]) for text, feature in read)
            for rows in length_batches([len(feature["input_ids"]) for feature in features], batch_size):
                batch = processing_class.pad([features[row] for row in rows], verbose=False, **padding)
                vectors = sentence_embeddings(model, batch.to(model.device))
                vectors = nn.functional.normalize(vectors, dim=-1) if normalize else vectors
                if not embeddings.shape[1]:
                    embeddings = np.empty((len(texts), vectors.shape[-1]), dtype=np.float32)
                embeddings[[start + row for row in rows]] = vectors.cpu().numpy()
                progress.update(len(rows))
    warn_of_read(len(texts), num_cut, num_unknown, max_length)
    check_finite("embeddings", embeddings)
    return embeddings


def sentence_embeddings(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """Embeds a tokenized batch in float32: `(batch_size, seq_len)` to `(batch_size, embedding_size)`."""
    has_types = "token_type_ids" in inspect.signature(model.base_model.forward).parameters
    if not has_types or count_token_types(model.config) < 2:
        # The tokenizer of BERT before a RoBERTa gives types beyond its embeddings.
        batch = {name: values for name, values in batch.items() if name != "token_type_ids"}
    outputs = model.base_model(**batch)
    if model.config.model_type == "dse":
        return outputs.pooler_output.float()
    mask = batch["attention_mask"][..., None].float()  # [B, N, 1]
    return (outputs.last_hidden_state.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts a model in evaluation mode, and restores the mode of every module at the end."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def list_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list. One text or a table, which are iterable too, and values that are no texts are an error."""
    if isinstance(texts, str | Mapping) or hasattr(texts, "columns"):
        raise TypeError(f"`texts` has to be a list of strings, got {type(texts).__name__}.")
    texts = list(texts)
    check_texts(texts, "The texts", "the text")
    return texts


def warn_of_blank(texts: Sequence[str]) -> None:
    """Counts the texts that are blank."""
    blank = [row for row, text in enumerate(texts) if not is_filled(text)]
    if blank:
        logger.warning(
            f"{len(blank)} of {len(texts)} texts are blank, the first is texts[{blank[0]}]: their embeddings are "
            "meaningless."
        )


def check_finite(name: str, values: np.ndarray) -> None:
    """Raises a `ValueError` if a row of embeddings, predictions or labels is NaN or infinite."""
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(values)} {name} are NaN or infinite, the first at row {wrong[0]}: float16 "
            "overflows easily, a learning rate may be too high, or weights may be damaged."
        )
