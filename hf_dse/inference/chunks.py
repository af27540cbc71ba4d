# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Many vectors a document: one for each of its chunks."""

import math
from collections.abc import Iterable, Sequence
from itertools import accumulate, islice
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.data.chunk_windows import read_windows
from hf_dse.data.passages import check_chunk_size, split_text
from hf_dse.data.tokenization import check_max_length, length_batches, pad
from hf_dse.inference.arguments import CHUNK_SIZE
from hf_dse.inference.encoding import (
    check_embeddings,
    check_encoder,
    check_list,
    encode,
    encode_document,
    evaluating,
    find_length,
    find_prompt,
    list_texts,
)
from hf_dse.inference.quantization import check_precision, quantize, truncate
from hf_dse.inference.search import number_groups


logger = logging.get_logger(__name__)

# Macro-chunks are sorted by length in groups of this many batches, which bounds the memory on any corpus.
BATCHES_PER_GROUP = 8


def encode_chunks(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    documents: Sequence[str] | Sequence[Sequence[str]],
    *,
    chunk_size: int | None = None,
    contextual: bool = False,
    batch_size: int = 32,
    max_length: int | None = None,
    normalize: bool = False,
    prompt_name: str | None = "document",
    truncate_dim: int | None = None,
    precision: str = "float32",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> tuple[np.ndarray | Any, list[list[str]]]:
    """
    Computes many vectors a document, one for each chunk. For a search, [`rank_groups`] takes the best of a document.

    Plain chunks are encoded each alone, as by [`encode`]. Contextual ones are pooled from the token states of one pass
    over the whole document, so that they depend on what stands around them (late chunking,
    [Günther et al., 2024](https://arxiv.org/abs/2409.04701)); the first token of the text, such as `[CLS]`, counts to
    the first chunk, the last to the last, so that a document of one chunk has the vector of [`encode`]. A document
    longer than `max_length` is read in macro-chunks that overlap by a quarter, and each token counts where it has more
    context, so nothing is cut. With encoders that were not trained for it, plain chunks find more.

    Args:
        model (`PreTrainedModel`):
            Any model that [`encode`] takes.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        documents (`Sequence[str]` or `Sequence[Sequence[str]]`):
            The documents: texts, which are split into chunks by [`split_text`], or the chunks of each.
        chunk_size (`int`, *optional*):
            Maximum number of tokens of a chunk of a text, without special tokens. Defaults to 128, or to what the
            model reads if that is less.
        contextual (`bool`, *optional*, defaults to `False`):
            Whether a chunk is read with its document instead of alone.
        batch_size (`int`, *optional*, defaults to 32):
            Maximum number of chunks, or of macro-chunks, per batch; fewer for those longer than 512 tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens that the model reads at once. Defaults to that of [`encode`].
        normalize (`bool`, *optional*, defaults to `False`):
            Whether to scale the vectors to unit length.
        prompt_name (`str`, *optional*, defaults to `"document"`):
            Which of the model's prompts stands before what is read: each plain chunk, or each macro-chunk.
        truncate_dim (`int`, *optional*):
            Keep only so many numbers of each vector, see [`encode`].
        precision (`str`, *optional*, defaults to `"float32"`):
            For vectors that take less memory, see [`quantize`].
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `tuple[np.ndarray, list[list[str]]]`: the vectors of all chunks, of shape `(num_chunks, embedding_size)` and
        type float32, or [`QuantizedEmbeddings`] of another precision; and the chunks of each document. A text that is
        empty or blank has none.

    Raises:
        `TypeError`: if `documents` is a single string, not iterable, or has something else than texts and lists, or
            `model` is no model of transformers.
        `ValueError`: if a chunk is not a string, `chunk_size` is more than the model reads, contextual chunks are
        asked of a tokenizer that does not tell which text a token stands for or of a model that does not pool its
        tokens, or as [`encode`].

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, encode_chunks

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> documents = ["Cats purr. Dogs bark at cats. Birds sing.", "It rains."]
    >>> vectors, chunks = encode_chunks(model, tokenizer, documents, chunk_size=8, show_progress=False)
    >>> chunks
    [['Cats purr. ', 'Dogs bark at cats. Birds sing.'], ['It rains.']]
    >>> vectors.shape
    (3, 384)
    ```
    """
    check_encoder(model)
    if chunk_size is not None:
        check_chunk_size(chunk_size)
    max_length = find_length(model, prompt_name, max_length)
    limit = check_max_length(max_length, model, processing_class)
    prompt = find_prompt(model, prompt_name)
    chunk_size = fit_chunk_size(chunk_size, limit, prompt, processing_class)
    documents = _list(documents)
    chunks = [_chunks_of(document, row, processing_class, chunk_size) for row, document in enumerate(documents)]
    texts = [chunk for parts in chunks for chunk in parts]
    without = [row for row, parts in enumerate(chunks) if not parts]
    if without:
        logger.info(f"{len(without)} of {len(chunks)} documents have no text, the first is documents[{without[0]}]")
    shared: dict[str, Any] = {"batch_size": batch_size, "device": device, "show_progress": show_progress}
    if not contextual or not texts:
        vectors = encode(
            model,
            processing_class,
            texts,
            max_length=max_length,
            normalize=normalize,
            prompt_name=prompt_name,
            truncate_dim=truncate_dim,
            precision=precision,
            **shared,
        )
        return vectors, chunks
    check_precision(precision)
    # Chunks of a text are all of it; between others there may be a word's end.
    are_texts = [isinstance(document, str) for document in documents]
    list_texts(texts)
    joined = [
        parts if is_text else [part if part[-1:].isspace() else f"{part} " for part in parts]
        for parts, is_text in zip(chunks, are_texts, strict=True)
    ]
    pooled = _pool_chunks(model, processing_class, joined, prompt, limit, **shared)
    check_embeddings(pooled)
    kept = truncate(torch.from_numpy(pooled), truncate_dim, model)
    kept = nn.functional.normalize(kept, dim=-1) if normalize else kept
    return quantize(kept.numpy(), precision), chunks


def add_context(embeddings: np.ndarray, groups: Sequence, weight: float = 0.2) -> np.ndarray:
    """
    Makes vectors of chunks know their document: adds to each, scaled to unit length, `weight` times the direction in
    which the mean of its document's chunks differs from the mean of all documents. No model has to run again. A search
    by the cosine finds more for it; one with BM25, which counts the words of the document too, does not.

    Args:
        embeddings (`np.ndarray` of shape `(num_chunks, embedding_size)`):
            The vectors of all chunks of a corpus, such as those of [`encode_chunks`]. Keep them, for a corpus that
            grows has another mean.
        groups (`Sequence`):
            The document of each chunk, as in [`rank_groups`].
        weight (`float`, *optional*, defaults to 0.2):
            How much the document counts; with 0 vectors are only scaled.

    Returns:
        `np.ndarray` of shape `(num_chunks, embedding_size)`: vectors of unit length (float32). Those of a corpus of
        one document keep their directions.

    Raises:
        `ValueError`: if there is not one group for each chunk, or the weight or a vector is NaN or infinite, or the
            weight negative.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_dse import add_context

    >>> chunks = np.array([[1.0, 0.0], [0.8, 0.6], [0.6, -0.8]])
    >>> add_context(chunks, ["one.txt", "one.txt", "two.txt"]).round(2)
    array([[ 0.98,  0.18],
           [ 0.73,  0.68],
           [ 0.48, -0.88]], dtype=float32)
    ```
    """
    if not 0 <= weight < math.inf:
        raise ValueError(f"weight={weight}: it has to be a finite number of at least 0.")
    vectors = np.asarray(embeddings, dtype=np.float32)
    if vectors.ndim != 2 or len(groups) != len(vectors):
        raise ValueError(
            f"embeddings of shape {vectors.shape} and {len(groups)} groups: pass a row and a group for each chunk."
        )
    check_embeddings(vectors)
    if not len(vectors):
        return vectors
    vectors = _unit(vectors)
    rows = number_groups(groups)
    means = np.zeros((rows.max() + 1, vectors.shape[1]), dtype=np.float32)
    np.add.at(means, rows, vectors)
    means /= np.bincount(rows)[:, None]
    return _unit(vectors + weight * _unit(means - means.mean(axis=0))[rows])


def _unit(vectors: np.ndarray) -> np.ndarray:
    return nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy()


def encode_corpus(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    texts: list[str],
    *,
    chunks: bool = False,
    chunk_size: int | None = None,
    contextual: bool = False,
    **options: Any,
) -> tuple[np.ndarray | Any, np.ndarray, list[str]]:
    """The vectors of documents, one of each or those of its chunks, and the document's row and the text of each."""
    if not chunks:
        return encode_document(model, processing_class, texts, **options), np.arange(len(texts)), texts
    options |= {"chunk_size": chunk_size, "contextual": contextual}
    vectors, parts = encode_chunks(model, processing_class, texts, **options)
    rows = np.repeat(np.arange(len(texts)), [len(part) for part in parts])
    return vectors, rows, [chunk for part in parts for chunk in part]


def fit_chunk_size(
    wanted: int | None, limit: int | None, prompt: str, processing_class: PreTrainedTokenizerBase
) -> int:
    """The tokens of a chunk, without special tokens and the prompt: no more than the model reads."""
    if wanted == 0 or limit is None:
        return CHUNK_SIZE if wanted is None else wanted
    room = limit - len(processing_class(prompt, verbose=False)["input_ids"])
    if room < 1:
        raise ValueError(
            f"max_length={limit}: the model's prompt and special tokens are {limit - room} tokens, which leaves none "
            "for a passage: raise it if the model allows it."
        )
    if wanted is None:
        wanted = min(CHUNK_SIZE, room)
    if wanted > room:
        raise ValueError(
            f"chunk_size={wanted}: the model reads {limit} tokens, which leaves {room} for a passage: take fewer, "
            "or raise `--max_length` if the model allows it."
        )
    return wanted


def _list(documents: Iterable) -> list:
    check_list(documents, "documents", "texts, or of lists of chunks")
    return list(documents)


def _chunks_of(
    document: str | Sequence[str], row: int, processing_class: PreTrainedTokenizerBase, chunk_size: int
) -> list[str]:
    if isinstance(document, str):
        return split_text(document, processing_class, chunk_size) if document.strip() else []
    if not isinstance(document, list | tuple):
        raise TypeError(f"documents[{row}] is {document!r}: it has to be a text, or a list of its chunks.")
    return list(document)


def check_pooling(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> str:
    """How a model pools its tokens; a `ValueError` if chunks cannot be pooled from one pass over their document."""
    is_dse = model.config.model_type == "dse"
    pooling = model.config.pooling_mode if is_dse else getattr(model.config, "sentence_pooling", "mean")
    if pooling not in ("mean", "max"):
        raise ValueError(
            f"The embedding of this model is its {pooling!r} token, so chunks cannot be pooled from one pass: encode "
            "plain chunks (`contextual=False`)."
        )
    if not processing_class.is_fast:
        raise ValueError(
            f"The tokenizer {type(processing_class).__name__} does not tell which text a token stands for: use a fast "
            "tokenizer, or encode plain chunks (`contextual=False`)."
        )
    return pooling


def _pool_chunks(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    chunks: list[list[str]],
    prompt: str,
    limit: int | None,
    *,
    batch_size: int,
    device: str | torch.device | None,
    show_progress: bool,
) -> np.ndarray:
    """Token states of all documents, pooled over their chunks: `(num_chunks, embedding_size)`."""
    is_max = check_pooling(model, processing_class) == "max"
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    if device is not None:
        model.to(device)  # type: ignore[arg-type]
    first_chunks = accumulate(map(len, chunks), initial=0)
    windows = (
        window
        for parts, first in zip(chunks, first_chunks, strict=False)
        if parts
        for window in read_windows(processing_class, parts, first, prompt, limit)
    )
    # A chunk may be in two macro-chunks.
    combine = np.maximum if is_max else np.add
    vectors = np.empty((0, 0), dtype=np.float32)
    counts = np.zeros(sum(map(len, chunks)), dtype=np.int64)
    progress = tqdm(total=len(counts), desc="Encoding chunks", unit="chunk", disable=not show_progress)
    with evaluating(model), torch.inference_mode(), progress:
        while group := list(islice(windows, BATCHES_PER_GROUP * batch_size)):
            for rows in length_batches([len(window.feature["input_ids"]) for window in group], batch_size):
                batch = pad(processing_class, [group[row].feature for row in rows], model.device)
                # Of DSE after its projection, which comes before pooling.
                states = model.base_model(**batch).last_hidden_state.float()
                if not vectors.size:
                    vectors = np.full((len(counts), states.shape[-1]), -np.inf if is_max else 0.0, dtype=np.float32)
                for place, row in enumerate(rows):
                    # Tokenizers may pad on the left.
                    start = int(batch["attention_mask"][place].argmax())
                    spans = group[row].spans
                    parts = [states[place, start + first : start + last] for _, first, last in spans]
                    pooled = torch.stack([part.amax(dim=0) if is_max else part.sum(dim=0) for part in parts])
                    for (chunk, first, last), vector in zip(spans, pooled.cpu().numpy(), strict=True):
                        vectors[chunk] = combine(vectors[chunk], vector)
                        progress.update(int(not counts[chunk]))
                        counts[chunk] += last - first
    if not is_max:
        vectors /= counts[:, None]
    if getattr(model.config, "normalize_embeddings", False):
        vectors = nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy()
    return vectors
