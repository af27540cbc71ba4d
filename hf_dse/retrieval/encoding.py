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

from hf_dse.data.tokenization import check_max_length, length_batches, max_tokens, tokenize


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
    truncation: bool = True,
    normalize: bool = False,
    prompt_name: str | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> np.ndarray:
    """
    Computes the sentence embeddings of a model that is in memory, such as one that is being trained. For a saved
    model, use `SentenceTransformer.encode`, which gives the same vectors and has more options. Texts are batched by
    length to limit padding; the embeddings keep their order.

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
            Maximum number of tokens per text. Defaults to the `query_length` and `document_length` of the model's
            config for the prompts of these names, if it has them, and to the `model_max_length` of the tokenizer.
        truncation (`bool`, *optional*, defaults to `True`):
            Whether to truncate longer texts, with a warning that counts them. If `False`, they raise an error.
        normalize (`bool`, *optional*, defaults to `False`):
            Whether to scale the embeddings to unit length, so that their dot product is their cosine.
        prompt_name (`str`, *optional*):
            Which of the model's prompts, `config.prompts`, stands before each text: `"query"`, `"document"` (empty
            for models without prompts) or another name that the model has. Defaults to none.
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32.

    Raises:
        `TypeError`: if `texts` is a single string or a table, or `model` is not a model of transformers.
        `ValueError`: if a text is not a string, `max_length` is out of range, a text is too long for
        `truncation=False`, the model does not have the prompt, or an embedding is NaN or infinite.

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

    if not isinstance(model, PreTrainedModel):
        raise TypeError(
            f"`model` has to be a model of transformers, got {type(model).__name__}: pass it with its tokenizer. A "
            "SentenceTransformer has an `encode` of its own."
        )
    prompt, max_length = find_prompt(model, prompt_name), find_length(model, prompt_name, max_length)
    texts = [prompt + text for text in list_texts(texts)]
    if not texts:
        # The embedding size of an arbitrary architecture is known only after a text.
        return encode(model, processing_class, ["empty"], device=device, show_progress=False)[:0]
    max_length = check_max_length(max_length, model, processing_class)
    if device is not None:
        model.to(device)  # type: ignore[arg-type]

    embeddings = np.empty((len(texts), 0), dtype=np.float32)
    window_size, num_cut = BATCHES_PER_WINDOW * batch_size, 0
    # On the right: with padding on the left, a model with learned positions reads other positions in each batch.
    padding: dict[str, Any] = {"padding_side": "right", "return_attention_mask": True, "return_tensors": "pt"}
    progress = tqdm(total=len(texts), desc="Encoding texts", unit="text", disable=not show_progress)
    with evaluating(model), torch.inference_mode(), progress:
        for start in range(0, len(texts), window_size):
            window = texts[start : start + window_size]
            features, cut = tokenize(processing_class, window, max_length)
            num_cut += cut
            if cut and not truncation:
                raise ValueError(
                    f"{cut} of texts[{start}:{start + len(window)}] are longer than {max_length} tokens: split them, "
                    "or pass `truncation=True`."
                )
            for rows in length_batches([len(feature["input_ids"]) for feature in features], batch_size):
                batch = processing_class.pad([features[row] for row in rows], verbose=False, **padding)
                vectors = sentence_embeddings(model, batch.to(model.device))
                vectors = nn.functional.normalize(vectors, dim=-1) if normalize else vectors
                if not embeddings.shape[1]:
                    embeddings = np.empty((len(texts), vectors.shape[-1]), dtype=np.float32)
                embeddings[[start + row for row in rows]] = vectors.cpu().numpy()
                progress.update(len(rows))
    if num_cut:
        is_most = max_length == max_tokens(model, processing_class)
        remedy = "use a model with more positions" if is_most else "raise max_length"
        logger.warning(
            f"{num_cut} of {len(texts)} texts are longer than {max_length} tokens and were truncated: {remedy} if "
            "their ends matter."
        )
    check_embeddings(embeddings)
    return embeddings


def find_prompt(model: PreTrainedModel, name: str | None) -> str:
    """The text of a prompt of the config; `"query"` and `"document"` are empty where the config has none."""
    if name is None:
        return ""
    prompts = {"query": "", "document": "", **(getattr(model.config, "prompts", None) or {})}
    if name not in prompts:
        raise ValueError(f"prompt_name={name!r}: the model does not have this prompt, only {', '.join(prompts)}.")
    return prompts[name]


def find_length(model: PreTrainedModel, prompt_name: str | None, max_length: int | None) -> int | None:
    """`max_length`, or else the length that the config has for `"query"` or `"document"`; `None` without one."""
    if max_length is not None or prompt_name not in ("query", "document"):
        return max_length
    return getattr(model.config, f"{prompt_name}_length", None)


def sentence_embeddings(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """
    Embeds a tokenized batch in float32: `input_ids` and `attention_mask` of shape `(batch_size, seq_len)`, and other
    inputs of the model, to `(batch_size, embedding_size)`.
    """
    outputs = model.base_model(**model_inputs(model, batch))
    if model.config.model_type == "dse":
        return outputs.pooler_output.float()
    return mean_tokens(outputs.last_hidden_state, batch["attention_mask"])


def model_inputs(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """
    A batch without the token types that a model does not have, such as those of the tokenizer of BERT before a
    RoBERTa, which would index beyond its embeddings.
    """
    has_types = "token_type_ids" in inspect.signature(model.base_model.forward).parameters
    if has_types and getattr(model.config, "type_vocab_size", 2) > 1:
        return dict(batch)
    return {name: values for name, values in batch.items() if name != "token_type_ids"}


def mean_tokens(hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Averages all tokens except padding in float32: `(batch_size, seq_len, size)` to `(batch_size, size)`."""
    mask = attention_mask[..., None].float()  # [B, N, 1]
    return (hidden_states.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


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
    """
    Texts as a list, with a warning for blank ones. Raises a `TypeError` for one text and for a table, whose characters
    or column names would be embedded, and a `ValueError` for values that are not texts.
    """
    is_table = isinstance(texts, Mapping) or hasattr(texts, "columns")
    if isinstance(texts, str) or is_table:
        advice = "one of its columns" if is_table else "[text] for one text"
        raise TypeError(f"`texts` has to be a list of strings, got {type(texts).__name__}: pass {advice}.")
    texts = list(texts)
    wrong = next((row for row, text in enumerate(texts) if not isinstance(text, str)), None)
    if wrong is not None:
        raise ValueError(
            f"texts[{wrong}] is {texts[wrong]!r}, not a string: drop missing values and convert numbers first."
        )
    blank = [row for row, text in enumerate(texts) if not text.strip()]
    if blank:
        logger.warning(
            f"{len(blank)} of {len(texts)} texts are blank, the first is texts[{blank[0]}]: their embeddings are "
            "meaningless. Drop these texts, or ignore their rows."
        )
    return texts


def check_embeddings(embeddings: np.ndarray) -> None:
    """Raises a `ValueError` if an embedding is NaN or infinite."""
    wrong = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(embeddings)} embeddings are NaN or infinite, the first at row {wrong[0]}: load the "
            "model in float32 or bfloat16 if it runs in float16; otherwise its weights are damaged."
        )
