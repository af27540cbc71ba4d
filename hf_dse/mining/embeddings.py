# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Embeddings of many texts, block by block on disk, so that an interrupted run continues."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils.logging import tqdm

from hf_dse.common.files import save_array, write_atomically
from hf_dse.common.provenance import fingerprint
from hf_dse.inference.encoding import encode, find_prompt


# Texts of a file. An interrupted run loses at most one block.
TEXTS_PER_BLOCK = 1024
# How far the length of a unit vector may be from 1, in any precision of the model.
UNIT_TOLERANCE = 1e-2


def encode_blocks(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    prompt_name: str | None = None,
    cache_dir: Path | None = None,
    *,
    max_length: int | None = None,
    show_progress: bool = True,
    **options: Any,
) -> np.ndarray:
    """
    Computes unit vectors of texts, and keeps those of each block in a file, so that no block is encoded twice.

    Args:
        model (`PreTrainedModel`):
            Any model that [`encode`] accepts.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        texts (`Sequence[str]`):
            The texts; only a block of them is in memory.
        prompt_name (`str`, *optional*):
            Which of the model's prompts stands before each text, as for [`encode`].
        cache_dir (`Path`, *optional*):
            Folder of the files. Their names are hashes of model, settings and texts, so that any number of runs can
            share it, and a file whose texts are not needed any more can be deleted. Defaults to none.
        max_length (`int`, *optional*):
            Maximum number of tokens per text.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.
        options:
            Other arguments of [`encode`], which do not change the embeddings.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32.

    Raises:
        `ValueError`: if a file is damaged, and as [`encode`].
    """
    settings = []
    if cache_dir is not None:
        settings = [fingerprint(model, processing_class), find_prompt(model, prompt_name), max_length]
    options |= {"prompt_name": prompt_name, "max_length": max_length, "normalize": True, "show_progress": False}

    def encode_block(texts: list[str]) -> np.ndarray:
        return encode(model, processing_class, texts, **options)

    size = None if cache_dir is None else encode_block([]).shape[1]
    return keep_blocks(encode_block, texts, settings, cache_dir, size=size, show_progress=show_progress)


def keep_blocks(
    encode_block: Callable[[list[str]], np.ndarray],
    texts: Sequence[str],
    settings: Sequence[Any],
    cache_dir: Path | None = None,
    *,
    size: int | None = None,
    dtype: Any = np.float32,
    show_progress: bool = True,
) -> np.ndarray:
    """
    Computes unit vectors of texts with any function, as [`encode_blocks`] does.

    Args:
        encode_block (`Callable`):
            Returns the unit vectors of a list of texts.
        texts (`Sequence[str]`):
            The texts.
        settings (`Sequence`):
            All that the vectors depend on besides the text: values of JSON.
        cache_dir (`Path`, *optional*):
            Folder of the files.
        size (`int`, *optional*):
            The size of a vector, which those in files must have.
        dtype (`numpy.dtype`, *optional*, defaults to `np.float32`):
            Type of the result; the files are float32.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)`.

    Raises:
        `ValueError`: if a file is damaged, or there are no texts.
    """
    vectors: np.ndarray | None = None
    with tqdm(total=len(texts), desc="Encoding texts", unit="text", disable=not show_progress) as progress:
        for start in range(0, len(texts), TEXTS_PER_BLOCK):
            block = list(texts[start : start + TEXTS_PER_BLOCK])
            path = None if cache_dir is None else cache_dir / f"{_digest(settings, block)}.npy"
            if path is not None and path.exists():
                part = _read(path, len(block), size)
            else:
                part = encode_block(block)
                if path is not None:
                    write_atomically(path, partial(save_array, array=part))
            if vectors is None:
                size = part.shape[1]
                vectors = np.empty((len(texts), size), dtype=dtype)
            vectors[start : start + len(block)] = part
            progress.update(len(block))
    if vectors is None:
        raise ValueError("There are no texts to encode.")
    return vectors


def _digest(settings: Any, texts: list[str]) -> str:
    return hashlib.sha256(json.dumps([settings, texts]).encode()).hexdigest()[:32]


def _read(path: Path, num_texts: int, size: int | None) -> np.ndarray:
    """The unit vectors in a file, which anybody may have written; the size of a vector if it is known."""
    try:
        # A pipe would be waited for.
        if not path.is_file():
            raise ValueError("it is no file")
        # Mapped, so that a header with a huge shape takes no memory.
        part = np.lib.format.open_memmap(path, mode="r")
        if part.dtype != np.float32 or part.ndim != 2 or part.shape != (num_texts, size or part.shape[1]):
            raise ValueError(f"it has {part.dtype} of the shape {part.shape}")
        lengths = np.linalg.norm(part, axis=1)
        # A text without any token has the vector 0.
        if not np.all((abs(lengths - 1) < UNIT_TOLERANCE) | (lengths == 0)):
            raise ValueError("its vectors do not have the length 1")
    except (ValueError, EOFError) as error:
        reason = " ".join(str(error).split())
        raise ValueError(f"The file of embeddings {path} is damaged ({reason}): delete it and run again.") from error
    return part
