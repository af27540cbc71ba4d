# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Computing sentence embeddings."""

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
from hf_dse.inference.quantization import check_precision, quantize, truncate


logger = logging.get_logger(__name__)

# Texts are tokenized and sorted by length in windows of this many batches, which bounds the memory on any corpus.
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
    truncate_dim: int | None = None,
    precision: str = "float32",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> np.ndarray | Any:
    """
    Computes sentence embeddings. Texts are batched by length to limit padding; the embeddings keep their order. For a
    search, use [`encode_query`] and [`encode_document`].

    Args:
        model (`PreTrainedModel`):
            A DSE model, with or without its classification head, or any other encoder. The embedding is the
            `pooler_output` of DSE models. Of all others it is the mean of `last_hidden_state` without padding, or
            what their sentence-transformers files say if they were loaded by [`load_model`].
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
            Which of the model's prompts, `config.prompts`, stands before each text: `"query"`, `"document"` (nothing
            for models without) or another name that it has. Defaults to none.
        truncate_dim (`int`, *optional*):
            Keep only so many numbers of each embedding, the first ones, before it is normalized: for models trained
            for it ([Kusupati et al., 2022](https://huggingface.co/papers/2205.13147)), and at some loss for others.
        precision (`str`, *optional*, defaults to `"float32"`):
            `"int8"`, `"uint8"`, `"binary"` or `"ubinary"` for embeddings that take less memory, see [`quantize`].
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32, or [`QuantizedEmbeddings`] of another
        precision.

    Raises:
        `TypeError`: if `texts` is a single string, or not iterable, or `model` is no model of transformers.
        `ValueError`: if a text is not a string, `max_length` is out of range, a text is too long for
        `truncation=False`, `batch_size` is below 1, the model has no such prompt or a decoder, its embeddings have
        fewer numbers than `truncate_dim`, there is no such precision, or an embedding is NaN or infinite.

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
        vectors = truncate(sentence_embeddings(model, batch), truncate_dim, model)
        return nn.functional.normalize(vectors, dim=-1) if normalize else vectors

    check_encoder(model)
    check_precision(precision)
    prompt = find_prompt(model, prompt_name)
    if prompt:
        texts = [prompt + text for text in list_texts(texts)]
    vectors = embed_texts(
        model,
        processing_class,
        texts,
        embed,
        batch_size=batch_size,
        max_length=find_length(model, prompt_name, max_length),
        truncation=truncation,
        device=device,
        show_progress=show_progress,
    )
    return quantize(vectors, precision)


def encode_query(
    model: PreTrainedModel, processing_class: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any
) -> np.ndarray | Any:
    """Like [`encode`], with the model's prompt and length for queries if it has them, as in sentence-transformers."""
    return encode(model, processing_class, texts, **{"prompt_name": "query", **options})


def encode_document(
    model: PreTrainedModel, processing_class: PreTrainedTokenizerBase, texts: Sequence[str], **options: Any
) -> np.ndarray | Any:
    """Like [`encode_query`], for the texts of a corpus."""
    return encode(model, processing_class, texts, **{"prompt_name": "document", **options})


def check_encoder(model: PreTrainedModel) -> None:
    """Raises a `TypeError` for what is no model of transformers, and a `ValueError` for one with a decoder."""
    name = type(model).__name__
    if not hasattr(model, "base_model"):
        own = ", or call its own `encode`" if hasattr(model, "encode_query") else ""
        raise TypeError(f"`model` has to be a model of transformers, got {name}: pass what `load_model` returns{own}.")
    if getattr(model.config, "is_encoder_decoder", False):
        raise ValueError(f"{name} has a decoder: pass only its encoder (such as `T5EncoderModel`).")


def find_prompt(model: PreTrainedModel, name: str | None) -> str:
    """
    The text of a prompt, `""` without a name. Every model has the prompts `"query"` and `"document"`, which are empty
    where `config.prompts` has none.

    Raises:
        `ValueError`: if the model has no prompt of this name.
    """
    if name is None:
        return ""
    prompts = {"query": "", "document": "", **(getattr(model.config, "prompts", None) or {})}
    if name not in prompts:
        raise ValueError(f"prompt_name={name!r}: the model has no such prompt, only {', '.join(prompts)}.")
    return prompts[name]


def find_length(model: PreTrainedModel, prompt_name: str | None, max_length: int | None) -> int | None:
    """`max_length`, or without it what a model has for `"query"` or `"document"` alone; `None` if it has nothing."""
    if max_length is not None or prompt_name not in ("query", "document"):
        return max_length
    return getattr(model.config, f"{prompt_name}_length", None)


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
    Like [`encode`], but with any function `embed` instead of the sentence embedding. It takes a model and a tokenized
    batch, and returns floating-point vectors of shape `(batch_size, size)`.
    """
    texts = list_texts(texts)
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    if not texts:
        # For an arbitrary architecture, the embedding size is only known after encoding a text.
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
                    "or pass `truncation=True`."
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
            f"{num_cut} of {len(texts)} texts are longer than {max_length} tokens and were truncated: {remedy} if "
            "their ends matter."
        )
    check_embeddings(embeddings)
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
    Embeds the sentences of pairs. Each distinct sentence is embedded once.

    Args:
        model (`PreTrainedModel`):
            Any model that [`encode`] accepts.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        first (`Sequence[str]`):
            First sentences.
        second (`Sequence[str]`):
            Second sentences, one for each first sentence.
        encoder (`Callable`, *optional*, defaults to [`encode`]):
            Function that embeds a list of texts; it is called like [`encode`].
        options:
            Other arguments of `encoder`.

    Returns:
        `tuple[np.ndarray, np.ndarray]`: the embeddings of the first and of the second sentences, both of shape
        `(num_pairs, embedding_size)` and type float32; those of another precision are restored.
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
            `input_ids` and `attention_mask` of shape `(batch_size, seq_len)`, and other inputs of the model.

    Returns:
        `torch.Tensor` of shape `(batch_size, embedding_size)` and type float32.
    """
    return pool_outputs(model, model.base_model(**batch), batch["attention_mask"])


def pool_outputs(model: PreTrainedModel, outputs: Any, attention_mask: torch.Tensor) -> torch.Tensor:
    """
    Returns the sentence embeddings: `pooler_output` of DSE, otherwise the mean of all tokens except padding, unless
    [`load_model`] found another pooling, or that the vectors have unit length.
    """
    if model.config.model_type == "dse":
        return outputs.pooler_output.float()
    states = outputs.last_hidden_state
    pooling = getattr(model.config, "sentence_pooling", "mean")
    if pooling == "mean":
        vectors = mean_tokens(states, attention_mask)
    elif pooling == "max":
        vectors = states.float().masked_fill(attention_mask[..., None] == 0, -torch.inf).amax(dim=1)
    else:
        # The first or the last token that is not padding.
        places = torch.arange(attention_mask.shape[1], device=states.device) * attention_mask
        rows = attention_mask.argmax(dim=1) if pooling == "cls" else places.argmax(dim=1)
        vectors = states[torch.arange(len(states), device=states.device), rows].float()
    is_unit = getattr(model.config, "normalize_embeddings", False)
    return nn.functional.normalize(vectors, dim=-1) if is_unit else vectors


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


def check_list(texts: object, name: str, kind: str) -> None:
    """Raises a `TypeError` for what is no list, such as one text, or a table, whose columns' names would be texts."""
    is_table = isinstance(texts, Mapping) or hasattr(texts, "columns")
    if is_table or isinstance(texts, str) or not isinstance(texts, Iterable):
        advice = "one of its columns" if is_table else "[text] for one text"
        raise TypeError(f"`{name}` has to be a list of {kind}, got {type(texts).__name__}: pass {advice}.")


def list_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list, with an error for what is no text and a warning for blank ones."""
    check_list(texts, "texts", "strings")
    texts = list(texts)
    for row, text in enumerate(texts):
        if not isinstance(text, str):
            raise ValueError(f"texts[{row}] is {text!r}, not a string: drop missing values and convert numbers first.")
        try:
            text.encode()
        except UnicodeEncodeError as error:
            raise ValueError(f"texts[{row}] is no text in UTF-8: {error}. Remove such characters.") from error
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
            f"{wrong.size} of {len(embeddings)} embeddings are NaN or infinite, the first is that of texts[{wrong[0]}]"
            ": load the model in float32 or bfloat16 if it runs in float16; otherwise its weights are damaged."
        )
