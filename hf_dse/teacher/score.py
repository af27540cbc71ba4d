# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scoring sentence pairs with a cross-encoder or a bi-encoder."""

from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np
import pyarrow
import torch
from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.data.tokenization import length_batches
from hf_dse.inference.encoding import encode_pairs
from hf_dse.teacher.cache import Pair, open_cache
from hf_dse.teacher.rerankers import Reranker, load_reranker


if TYPE_CHECKING:
    from hf_dse.teacher.rerankers import Teacher


logger = logging.get_logger(__name__)


def score_pairs(
    teacher: "Teacher",
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    symmetric: bool = False,
    cache_dir: str | Path | None = None,
    column: str = "teacher_logits",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds a teacher's raw logits to sentence pairs. Each distinct pair is scored once, in batches of similar length.

    Args:
        teacher (`str`, `PreTrainedModel` or `CrossEncoder`):
            A cross-encoder: a loaded model of transformers or sentence-transformers, or a Hub id or folder.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer; required with a loaded model of transformers.
        batch_size (`int`, *optional*, defaults to 64):
            Maximum number of pairs per batch; fewer for pairs longer than 512 tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens per pair; the longer sentence is truncated first. Defaults to the
            `model_max_length` of its tokenizer.
        symmetric (`bool`, *optional*, defaults to `False`):
            Whether to score both orders of a pair and average.
        cache_dir (`str` or `Path`, *optional*):
            Folder of cached scores. They are saved after every batch, so an interrupted run continues where it
            stopped. The cache is specific to the weights, the configuration and the tokenizer of the teacher.
        column (`str`, *optional*, defaults to `"teacher_logits"`):
            Name of the new column; an existing one is replaced.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of a loaded model, otherwise to an accelerator if available.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with a list of `num_labels` raw logits per row, without sigmoid or softmax.

    Raises:
        `ValueError`: if a column or the tokenizer is missing, `max_length` is out of range, a score is NaN or
        infinite, or the cache is damaged.

    Example:

    ```python
    >>> from hf_dse import DataArguments, load_pairs, score_pairs

    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=8))["train"]
    >>> # A folder, such as `hf-dse teacher` writes, or a Hub id.
    >>> scored = score_pairs("teacher", pairs, symmetric=True, cache_dir="scores", show_progress=False)
    >>> scored["teacher_logits"][0]
    [...]
    ```
    """
    missing = {"sentence1", "sentence2"} - set(dataset.column_names)
    if missing:
        raise ValueError(
            f"There is no column {' or '.join(sorted(missing))} to score; the columns are "
            f"{', '.join(dataset.column_names)}. Rename them, or read the data with `load_pairs`."
        )
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    reranker = load_reranker(teacher, processing_class, device)
    max_length = reranker.check_max_length(max_length)

    rows = list(zip(dataset["sentence1"][:], dataset["sentence2"][:], strict=True))
    orders = [rows, [pair[::-1] for pair in rows]] if symmetric else [rows]
    pairs = list(dict.fromkeys(pair for order in orders for pair in order))
    scores = score_texts(
        reranker,
        pairs,
        batch_size=batch_size,
        max_length=max_length,
        cache_dir=cache_dir,
        description="Scoring pairs",
        show_progress=show_progress,
    )
    logits = np.mean([[scores[pair] for pair in order] for order in orders], axis=0)  # [N, C]
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    return dataset.add_column(column, logits.tolist())


def score_texts(
    reranker: Reranker,
    pairs: Sequence[Pair],
    *,
    batch_size: int,
    max_length: int | None,
    truncation: str = "longest_first",
    cache_dir: str | Path | None = None,
    description: str,
    show_progress: bool = True,
) -> dict[Pair, list[float]]:
    """
    The raw logits of distinct pairs of texts: those that are in the cache, and the others in batches of similar
    length, each of which is written to the cache at once.

    Args:
        reranker (`Reranker`):
            The teacher.
        pairs (`Sequence[tuple[str, str]]`):
            The pairs, each once.
        batch_size (`int`):
            Maximum number of pairs per batch; fewer for pairs longer than 512 tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens per pair.
        truncation (`str`, *optional*, defaults to `"longest_first"`):
            What is truncated: the longer text, or the second with `"only_second"`.
        cache_dir (`str` or `Path`, *optional*):
            Folder of cached scores.
        description (`str`):
            What the progress bar says.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `dict[tuple[str, str], list[float]]`: the logits of each pair.

    Raises:
        `ValueError`: if a score is NaN or infinite, or the cache is damaged.

    Example:

    ```python
    >>> from hf_dse import load_reranker, score_texts

    >>> pair = ("A cat sleeps.", "The cat is asleep.")
    >>> # A folder, such as `hf-dse teacher` writes, or a Hub id.
    >>> scores = score_texts(load_reranker("teacher"), [pair], batch_size=8, max_length=128, description="Scoring")
    >>> scores[pair]
    [...]
    ```
    """
    teacher = "" if cache_dir is None else reranker.fingerprint()
    cut = max_length if truncation == "longest_first" else (max_length, truncation)
    with open_cache(cache_dir, teacher, reranker.num_labels) as cache:
        scores = cache.read(pairs, cut)
        unknown = [pair for pair in pairs if pair not in scores]
        with tqdm(total=len(unknown), desc=description, unit="pair", disable=not show_progress) as progress:
            for batch in _score(reranker, unknown, batch_size, max_length, truncation):
                cache.write(batch, cut)
                scores.update(batch)
                progress.update(len(batch))
    return scores


def score_similarities(
    encoder: PreTrainedModel,
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase,
    scale: float = 5.0,
    bias: float = 0.0,
    batch_size: int = 64,
    max_length: int | None = None,
    column: str = "teacher_logits",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds the similarities of a bi-encoder to sentence pairs, as the scores of a second teacher. On texts of its own
    task, such as queries and passages, the source encoder helps its student to keep its quality there.

    Args:
        encoder (`PreTrainedModel`):
            Any model that [`encode`] accepts.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the encoder.
        scale (`float`, *optional*, defaults to 5.0):
            The score of a pair is `scale * cosine + bias`, on the scale of the labels.
        bias (`float`, *optional*, defaults to 0.0):
            See `scale`.
        batch_size (`int`, *optional*, defaults to 64):
            Maximum number of texts per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to the `model_max_length` of the tokenizer.
        column (`str`, *optional*, defaults to `"teacher_logits"`):
            Name of the new column; an existing one is replaced.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of the encoder.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with a list of one float per row.

    Raises:
        `ValueError`: if an embedding is NaN or infinite.

    Example:

    ```python
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from hf_dse import DataArguments, load_pairs, score_similarities

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> encoder, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=8))["train"]
    >>> scored = score_similarities(encoder, pairs, processing_class=tokenizer, show_progress=False)
    >>> scored["teacher_logits"][0]
    [...]
    ```
    """
    first, second = encode_pairs(
        encoder,
        processing_class,
        dataset["sentence1"][:],
        dataset["sentence2"][:],
        batch_size=batch_size,
        max_length=max_length,
        normalize=True,
        device=device,
        show_progress=show_progress,
    )
    cosines = np.einsum("nd,nd->n", first, second, dtype=np.float64)
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    return dataset.add_column(column, (scale * cosines + bias)[:, None].tolist())


def embed_pairs(
    encoder: PreTrainedModel,
    dataset: Dataset,
    *,
    processing_class: PreTrainedTokenizerBase,
    batch_size: int = 64,
    max_length: int | None = None,
    column: str = "embeddings",
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Adds the embeddings of a bi-encoder to sentence pairs, for [`similarity_loss`].

    Args:
        encoder (`PreTrainedModel`):
            Any model that [`encode`] accepts. Its tokenizer may differ from that of the student.
        dataset (`Dataset`):
            Pairs with the columns `sentence1` and `sentence2`.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the encoder.
        batch_size (`int`, *optional*, defaults to 64):
            Maximum number of texts per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to the `model_max_length` of the tokenizer.
        column (`str`, *optional*, defaults to `"embeddings"`):
            Name of the new column; an existing one is replaced.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of the encoder.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        `Dataset`: the dataset with two float32 embeddings per row.

    Raises:
        `ValueError`: if an embedding is NaN or infinite.

    Example:

    ```python
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from hf_dse import DataArguments, embed_pairs, load_pairs

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> encoder, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=8))["train"]
    >>> embedded = embed_pairs(encoder, pairs, processing_class=tokenizer, show_progress=False)
    >>> len(embedded["embeddings"][0]), len(embedded["embeddings"][0][0])
    (2, 384)
    ```
    """
    vectors = encode_pairs(
        encoder,
        processing_class,
        dataset["sentence1"][:],
        dataset["sentence2"][:],
        batch_size=batch_size,
        max_length=max_length,
        device=device,
        show_progress=show_progress,
    )
    both = np.stack(vectors, axis=1)
    if column in dataset.column_names:
        dataset = dataset.remove_columns(column)
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(both.reshape(-1)), both.shape[2])
    table = pyarrow.table({column: pyarrow.FixedSizeListArray.from_arrays(rows, 2)})
    return concatenate_datasets([dataset, Dataset(table)], axis=1)


def _score(
    reranker: Reranker, pairs: Sequence[Pair], batch_size: int, max_length: int | None, truncation: str
) -> Iterator[dict[Pair, list[float]]]:
    """Yields the logits of batches of pairs."""
    if not pairs:
        return
    sizes = reranker.lengths(pairs)
    if max_length is not None:
        cut = sum(size > max_length for size in sizes)
        if cut and truncation == "longest_first":
            logger.warning(
                f"{cut} of {len(pairs)} pairs are longer than {max_length} tokens and were truncated: raise "
                "the teacher's max_length, or use a teacher with more positions, if their ends matter."
            )
        sizes = [min(size, max_length) for size in sizes]
    with reranker.scoring(max_length):
        for positions in length_batches(sizes, batch_size):
            batch = [pairs[position] for position in positions]
            logits = reranker.logits(batch, max_length, truncation).cpu().double()  # [B, C]
            for pair, row in zip(batch, logits.isfinite().all(dim=-1).tolist(), strict=True):
                if not row:
                    raise ValueError(
                        f"The teacher's score of the pair {pair!r} is NaN or infinite: its weights are damaged, or "
                        "its precision is too low (float16 overflows easily)."
                    )
            yield dict(zip(batch, logits.tolist(), strict=True))
