# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Texts in, sentence embeddings out."""

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.data.tokenization import check_max_length, length_batches, max_tokens, pad, tokenize


logger = logging.get_logger(__name__)

# Texts are sorted by length within a window of this many batches, so that memory stays flat on any corpus.
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
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> np.ndarray:
    """
    Embeds texts. They are batched by length, so a long one does not slow the others, and returned in their order.

    Args:
        model (`PreTrainedModel`):
            A DSE model, with or without its classification head, or any other encoder. The embedding is the
            `pooler_output` of DSE, and the mean over the real tokens of `last_hidden_state` otherwise.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        texts (`Sequence[str]`):
            What to embed.
        batch_size (`int`, *optional*, defaults to 32):
            Largest number of texts in a batch; of texts above 512 tokens a batch takes fewer.
        max_length (`int`, *optional*):
            Tokens after which a text is cut. Defaults to what model and tokenizer allow.
        truncation (`bool`, *optional*, defaults to `True`):
            Whether to cut texts that are longer, with a warning that counts them, or to refuse them.
        normalize (`bool`, *optional*, defaults to `False`):
            Whether to scale the embeddings to length 1, so that their dot product is their cosine.
        device (`str` or `torch.device`, *optional*):
            Where to run; the model is moved there and stays. Defaults to where the model is.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32.

    Raises:
        TypeError: `texts` is one string, or not a sequence.
        ValueError: a text that is not a string, a `max_length` that does not fit the model, a longer text in spite of
            `truncation=False`, a batch size below 1, a model with a decoder, or an embedding that is NaN or infinite.

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

    def embed(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
        vectors = sentence_embeddings(model, batch)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    return embed_texts(
        model,
        processing_class,
        texts,
        embed,
        batch_size=batch_size,
        max_length=max_length,
        truncation=truncation,
        device=device,
        show_progress=show_progress,
    )


def embed_texts(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    embed: Callable[[PreTrainedModel, Mapping[str, torch.Tensor]], torch.Tensor],
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    truncation: bool = True,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> np.ndarray:
    """
    [`encode`] with any function of a model and a tokenized batch in the place of the sentence embedding. It returns
    floating-point vectors of shape `(batch_size, size)`.
    """
    texts = _check_texts(texts)
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{type(model).__name__} has a decoder: pass its encoder alone (such as `T5EncoderModel`).")
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    if not texts:
        # Only a text shows the size of an embedding for every architecture.
        options: dict[str, Any] = {"max_length": max_length, "device": device, "show_progress": False}
        return embed_texts(model, processing_class, ["empty"], embed, **options)[:0]
    max_length = check_max_length(max_length, model, processing_class)
    if device is not None:
        model.to(device)  # type: ignore[arg-type]

    embeddings = np.empty((len(texts), 0), dtype=np.float32)
    window_size, num_cut = BATCHES_PER_WINDOW * batch_size, 0
    progress = tqdm(total=len(texts), desc="Encoding texts", unit="text", disable=not show_progress)
    with evaluating(model), torch.inference_mode(), progress:
        for start in range(0, len(texts), window_size):
            window = texts[start : start + window_size]
            features, cut = tokenize(processing_class, window, max_length)
            num_cut += cut
            if cut and not truncation:
                raise ValueError(
                    f"{cut} of texts[{start}:{start + len(window)}] are longer than {max_length} tokens: split them, "
                    "or pass `truncation=True` to embed their beginnings."
                )
            for rows in length_batches([len(feature["input_ids"]) for feature in features], batch_size):
                batch = pad(processing_class, [features[row] for row in rows], model.device)
                vectors = embed(model, batch)
                if not embeddings.shape[1]:
                    embeddings = np.empty((len(texts), vectors.shape[-1]), dtype=np.float32)
                embeddings[[start + row for row in rows]] = vectors.float().cpu().numpy()
                progress.update(len(rows))
    if num_cut:
        is_most = max_length == max_tokens(model, processing_class)
        remedy = "use a model with more positions" if is_most else "raise max_length"
        logger.warning(
            f"{num_cut} of {len(texts)} texts are longer than {max_length} tokens and were cut: {remedy} if their "
            "ends matter."
        )
    _check_embeddings(embeddings)
    return embeddings


def encode_pairs(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    first: Sequence[str],
    second: Sequence[str],
    *,
    encoder: Callable[..., np.ndarray] = encode,
    **options: Any,
) -> tuple[np.ndarray, np.ndarray]:
    """
    Embeds the sentences of pairs, each distinct one once.

    Args:
        model (`PreTrainedModel`):
            What [`encode`] takes.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        first (`Sequence[str]`):
            First sentences.
        second (`Sequence[str]`):
            Second sentences, as many.
        encoder (`Callable`, *optional*, defaults to [`encode`]):
            What embeds a list of texts, called as [`encode`] is.
        options:
            The other arguments of the encoder.

    Returns:
        `tuple[np.ndarray, np.ndarray]`: the embeddings of both, of shape `(num_pairs, embedding_size)`.
    """
    texts = list(dict.fromkeys([*first, *second]))
    embeddings = encoder(model, processing_class, texts, **options)
    row_of = {text: row for row, text in enumerate(texts)}
    return embeddings[[row_of[text] for text in first]], embeddings[[row_of[text] for text in second]]


def sentence_embeddings(model: PreTrainedModel, batch: Mapping[str, torch.Tensor]) -> torch.Tensor:
    """
    Embeds a tokenized batch.

    Args:
        model (`PreTrainedModel`):
            A DSE model or another encoder, with or without a head.
        batch (`Mapping[str, torch.Tensor]`):
            `input_ids` and `attention_mask` of shape `(batch_size, seq_len)`, and what else the model takes.

    Returns:
        `torch.Tensor` of shape `(batch_size, embedding_size)` and type float32.
    """
    return pool_outputs(model, model.base_model(**batch), batch["attention_mask"])


def pool_outputs(model: PreTrainedModel, outputs: Any, attention_mask: torch.Tensor) -> torch.Tensor:
    """The sentence embeddings in what the base model returned: those of DSE, or the mean over the real tokens."""
    if model.config.model_type == "dse":
        return outputs.pooler_output.float()
    return mean_tokens(outputs.last_hidden_state, attention_mask)


def mean_tokens(hidden_states: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """The mean over the real tokens, in float32: `(batch_size, seq_len, size)` to `(batch_size, size)`."""
    mask = attention_mask[..., None].float()  # [B, N, 1]
    return (hidden_states.float() * mask).sum(dim=1) / mask.sum(dim=1).clamp(min=1.0)


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Switches a model to evaluation; afterwards every module is as before, also those kept in evaluation mode."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True


def _check_texts(texts: Iterable[str]) -> list[str]:
    if isinstance(texts, str) or not isinstance(texts, Iterable):
        raise TypeError(f"`texts` has to be a list of strings, got {type(texts).__name__}: pass [text] for one text.")
    texts = list(texts)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{row}] is {text!r}, not a string: drop missing values and convert numbers first.")
    blank = [row for row, text in enumerate(texts) if not text.strip()]
    if blank:
        logger.warning(
            f"{len(blank)} of {len(texts)} texts are blank, the first is texts[{blank[0]}]: their embeddings mean "
            "nothing. Drop them, or ignore those rows."
        )
    return texts


def _check_embeddings(embeddings: np.ndarray) -> None:
    wrong = np.flatnonzero(~np.isfinite(embeddings).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(embeddings)} embeddings are NaN or infinite, the first that of texts[{wrong[0]}]: "
            "load the model in float32 or bfloat16 if it runs in float16; otherwise its weights are damaged."
        )
