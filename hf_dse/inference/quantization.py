# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Smaller vectors: fewer numbers, and fewer bits for each."""

from collections.abc import Sequence
from dataclasses import dataclass, replace
from numbers import Integral
from typing import Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel

from hf_dse.inference.arguments import PRECISIONS


@dataclass(eq=False)
class QuantizedEmbeddings:
    """
    Embeddings with 8 bits or 1 bit for each number, as [`quantize`] makes them. `embeddings[rows]`, for any rows that
    NumPy takes, are their values in float32, and `len(embeddings)` is their number. [`rank`] takes them as a corpus,
    and restores only a block at a time.

    Args:
        codes (`np.ndarray`):
            The codes of sentence-transformers' `quantize_embeddings`, of shape `(num_texts, embedding_size)` and type
            int8 or uint8, or with one bit for each number `(num_texts, ceil(embedding_size / 8))`.
        precision (`str`):
            `"int8"`, `"uint8"`, `"binary"` or `"ubinary"`.
        size (`int`):
            The embedding size.
        ranges (`np.ndarray` of shape `(2, embedding_size)`, *optional*):
            The least and the greatest value of each number, for codes of 8 bits. Bits are the signs of the numbers,
            with the values -1 and 1.

    Raises:
        `ValueError`: if the parts do not fit together.
    """

    codes: np.ndarray
    precision: str
    size: int
    ranges: np.ndarray | None = None

    def __post_init__(self) -> None:
        check_precision(self.precision)
        if type(self.size) is not int:
            raise ValueError(f"size={self.size!r}: it has to be a whole number.")
        kind = "int8" if self.precision in ("int8", "binary") else "uint8"
        width = self.size if self.precision.endswith("int8") else -(-self.size // 8)
        if self.precision == "float32" or self.codes.dtype != kind or self.codes.shape[1:] != (width,):
            raise ValueError(
                f"Codes of {self.codes.dtype} and shape {self.codes.shape} are none of {self.size} numbers with the "
                f"precision {self.precision}: quantize the vectors again."
            )
        if not self.precision.endswith("int8"):
            self.ranges = None
        else:
            try:
                with np.errstate(over="ignore", invalid="ignore"):
                    self.ranges = np.asarray(self.ranges, dtype=np.float32)
                    widths = np.diff(self.ranges, axis=0)
                    # So small that vectors within them have a length.
                    is_small = np.isfinite(np.linalg.norm(self.ranges))
                if self.ranges.shape != (2, self.size) or not (is_small and (widths >= 0).all()):
                    raise ValueError
            except (OverflowError, TypeError, ValueError) as error:
                raise ValueError(
                    f"{self.precision} codes need ranges, the least and the greatest of each of the {self.size} "
                    "numbers, that are finite: quantize the vectors again."
                ) from error

    @property
    def shape(self) -> tuple[int, int]:
        return len(self.codes), self.size

    def __len__(self) -> int:
        return len(self.codes)

    def __getitem__(self, rows: slice | Sequence[int] | np.ndarray) -> np.ndarray:
        codes = self.codes[rows]
        if self.ranges is None:
            # `binary` is `ubinary` less 128.
            bits = codes.view(np.uint8) ^ np.uint8(128 if self.precision == "binary" else 0)
            return np.unpackbits(bits, axis=-1, count=self.size).astype(np.float32) * 2 - 1
        low, high = self.ranges
        # The middle of the interval that a code stands for.
        steps = codes.astype(np.float32) + (128.5 if self.precision == "int8" else 0.5)
        return low + steps * ((high - low) / 255)

    def __array__(self, dtype: Any = None, copy: bool | None = None) -> np.ndarray:
        return self[:].astype(dtype or np.float32, copy=False)


def quantize(vectors: np.ndarray, precision: str, ranges: np.ndarray | None = None) -> np.ndarray | Any:
    """
    Quantizes embeddings with sentence-transformers' `quantize_embeddings`, and keeps what is needed to compare them
    with others. `"int8"` and `"uint8"` take a quarter of the memory, `"binary"` and `"ubinary"` a 32nd.

    Args:
        vectors (`np.ndarray` of shape `(num_texts, embedding_size)`):
            Output of [`encode`]. For codes of 8 bits, unit vectors are best.
        precision (`str`):
            `"float32"`, which changes nothing, `"int8"`, `"uint8"`, `"binary"` or `"ubinary"`.
        ranges (`np.ndarray` of shape `(2, embedding_size)`, *optional*):
            For codes of 8 bits, the least and the greatest value of each number; values beyond them are cut. Defaults
            to those of `vectors`.

    Returns:
        `np.ndarray` or [`QuantizedEmbeddings`]: the vectors themselves for `"float32"`.

    Raises:
        `ImportError`: if sentence-transformers is missing.
        `ValueError`: for another precision, and for vectors or ranges of another shape, or that are not finite.

    Example:

    ```python
    >>> import numpy as np
    >>> from hf_dse import quantize, rank

    >>> corpus = quantize(np.array([[0.6, 0.8], [1.0, 0.0], [-0.8, 0.6]]), "int8")
    >>> corpus.codes.tolist()
    [[70, 127], [127, -128], [-128, 63]]
    >>> scores, positions = rank(np.array([[0.5, 0.8]]), corpus, top_k=1, show_progress=False)
    >>> positions.tolist()
    [[0]]
    ```
    """
    check_precision(precision)
    vectors = np.asarray(vectors, dtype=np.float32)
    if precision == "float32":
        return vectors
    if vectors.ndim != 2 or not vectors.shape[1] or not np.isfinite(vectors).all():
        raise ValueError(
            f"vectors of shape {vectors.shape} cannot be quantized: they must have the shape (number, embedding_size) "
            "and be finite."
        )
    try:
        from sentence_transformers.util import quantize_embeddings
    except ImportError as error:
        raise ImportError(
            f"precision={precision!r} needs sentence-transformers, which is not installed: `pip install hf-dse[st]`."
        ) from error
    size = vectors.shape[1]
    if not precision.endswith("int8"):
        # Whole bytes, which older versions need.
        padded = np.pad(vectors, ((0, 0), (0, -size % 8)))
        codes: Any = padded[:, ::8].astype("u1" if precision == "ubinary" else "i1")
        if len(vectors):
            codes = quantize_embeddings(padded, precision=precision)  # type: ignore[arg-type]
        return QuantizedEmbeddings(codes, precision, size)
    if ranges is None:
        # Of no vectors, any will do.
        some = vectors if len(vectors) else np.zeros((1, size), dtype=np.float32)
        ranges = np.stack([some.min(axis=0), some.max(axis=0)])
    # First without codes, which checks the ranges.
    none = QuantizedEmbeddings(np.empty((0, size), dtype=precision), precision, size, ranges)
    low, high = ranges = np.asarray(none.ranges)
    # Older versions round negative codes up, and have those without a sign right.
    codes = quantize_embeddings(vectors.clip(low, high), precision="uint8", ranges=ranges)
    codes = codes if precision == "uint8" else (codes.astype(np.int16) - 128).astype(np.int8)
    return replace(none, codes=codes)


def check_precision(precision: str) -> None:
    if precision not in PRECISIONS:
        raise ValueError(f"precision={precision!r}: it has to be one of {', '.join(PRECISIONS)}.")


def truncate(vectors: torch.Tensor, truncate_dim: int | None, model: PreTrainedModel) -> torch.Tensor:
    """
    The first numbers of each vector, of unit length again if those of the model are.

    Args:
        vectors (`torch.Tensor` of shape `(batch_size, embedding_size)`):
            Sentence embeddings.
        truncate_dim (`int`, *optional*):
            How many numbers to keep; all without it.
        model (`PreTrainedModel`):
            The model of the embeddings.

    Raises:
        `ValueError`: if there are not so many.
    """
    if truncate_dim is None:
        return vectors
    size = vectors.shape[-1]
    if isinstance(truncate_dim, bool) or not isinstance(truncate_dim, Integral) or not 0 < truncate_dim <= size:
        raise ValueError(
            f"truncate_dim={truncate_dim!r}: it has to be a whole number from 1 to {size}, the size of the model's "
            "vectors."
        )
    vectors = vectors[..., :truncate_dim]
    is_unit = getattr(model.config, "normalize_embeddings", False)
    return nn.functional.normalize(vectors, dim=-1) if is_unit else vectors
