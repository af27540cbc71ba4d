# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Augmentation: synthetic sentence pairs that a teacher scores, as additional training data for a student
(Augmented SBERT, Thakur et al. 2021, https://arxiv.org/abs/2010.08240).
"""

import itertools
import re
from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from pathlib import Path

import numpy as np
import torch
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.files import to_path
from hf_dse.common.options import check_at_least
from hf_dse.data.pairs import SPLITS
from hf_dse.data.tables import missing_column, read_columns, read_texts
from hf_dse.inference.encoding import encode
from hf_dse.inference.search import BLOCK_ELEMENTS


logger = logging.get_logger(__name__)

# Files with these stems have the name of the corpus in the name of their folder.
PLAIN_STEMS = (*SPLITS, "data")

Pair = tuple[str, str]


def augment_pairs(
    files: Sequence[str | Path],
    *,
    encoder: PreTrainedModel | None = None,
    processing_class: PreTrainedTokenizerBase | None = None,
    row_pairs: int = 1,
    num_neighbors: int = 2,
    neighbor_pool: int = 10,
    num_random: int = 1,
    max_rows: int | None = None,
    exclude_files: Sequence[str | Path] = (),
    exclude_text_files: Sequence[str | Path] = (),
    seed: int = 42,
    batch_size: int = 64,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Dataset:
    """
    Generates unlabelled sentence pairs of three kinds within each file: texts of one row (`row`), similar texts
    (`neighbor`, the semantic search of Augmented SBERT, section 3.1) and random texts (`random`). Most random pairs
    are unrelated, so they cover the lower end of the scores.

    Texts that differ only in case, punctuation and spaces are the same text. Each unordered pair occurs once. The
    pairs of a file do not depend on the other files, so their cached scores stay valid if a file is added. How many
    pairs were generated, dropped and kept is logged at level info.

    Args:
        files (`Sequence[str | Path]`):
            Tables (csv, json, jsonl, parquet) or texts (.txt, one per line), as `FILE` or `FILE:column,column`. A row
            has texts that belong together: one sentence, a pair, the captions of an image. The default columns are
            `sentence1` and `sentence2` if both exist, otherwise `text`. Empty cells are ignored.
        encoder (`PreTrainedModel`, *optional*):
            A model for [`encode`] that finds neighbours. Required unless `num_neighbors` is 0.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of the encoder.
        row_pairs (`int`, *optional*, defaults to 1):
            Maximum number of pairs from the texts of a row; if there are more, random ones.
        num_neighbors (`int`, *optional*, defaults to 2):
            Number of neighbours per text.
        neighbor_pool (`int`, *optional*, defaults to 10):
            Number of nearest texts by cosine, from other rows, from which the neighbours are drawn.
        num_random (`int`, *optional*, defaults to 1):
            Number of random pairs per text.
        max_rows (`int`, *optional*):
            Maximum number of rows of each file; if there are more, random ones. Defaults to all.
        exclude_files (`Sequence[str | Path]`, *optional*, defaults to `()`):
            Files of pairs to exclude, such as evaluation sets, as `FILE` or `FILE:column,column`.
        exclude_text_files (`Sequence[str | Path]`, *optional*, defaults to `()`):
            Files of texts to exclude from all pairs, in the same form. Stricter than `exclude_files`: a sentence of
            an evaluation set is then in no pair at all.
        seed (`int`, *optional*, defaults to 42):
            Random seed.
        batch_size (`int`, *optional*, defaults to 64):
            Texts in a batch of the encoder.
        device (`str` or `torch.device`, *optional*):
            Device of the encoder. Defaults to its current device.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `Dataset`: the columns `sentence1`, `sentence2` and `source`, such as `"multi30k/neighbor"`: the file without
        its ending (its folder where it is called train, validation, test or data) and the kind.

    Raises:
        `ValueError`: for a number out of range, neighbours without an encoder, a missing column, a text that is not a
        string, a file without texts, or if there are no pairs.
        `FileNotFoundError`: if a file does not exist.

    Example:

    ```python
    >>> from hf_dse import augment_pairs, score_pairs
    >>> from hf_dse import balance_scores

    >>> pairs = augment_pairs(["captions.csv:first,second"], num_neighbors=0, show_progress=False)
    >>> scored = score_pairs("teacher", pairs, symmetric=True, cache_dir="scores", show_progress=False)
    >>> balance_scores(scored, max_pairs=10).column_names
    ['sentence1', 'sentence2', 'source', 'teacher_logits']
    ```
    """
    check_at_least(0, row_pairs=row_pairs, num_neighbors=num_neighbors, num_random=num_random)
    check_at_least(num_neighbors, neighbor_pool=neighbor_pool)
    check_at_least(1, max_rows=max_rows)
    if num_neighbors > 0 and (encoder is None or processing_class is None):
        raise ValueError(
            f"num_neighbors={num_neighbors} needs an encoder to find similar texts: pass one with its "
            "tokenizer (`encoder_name_or_path` on the command line), or num_neighbors=0."
        )

    # Read all files before the encoder runs, so that errors come early.
    excluded = {pair_key(*row) for file in exclude_files for row in _read_rows(file, num_columns=2) if len(row) == 2}
    barred = {normalize_text(text) for file in exclude_text_files for row in _read_rows(file) for text in row}
    tables = []
    for file in files:
        rng = np.random.default_rng(seed)
        rows = _read_rows(file)
        if barred:
            kept = ([text for text in row if normalize_text(text) not in barred] for row in rows)
            rows = [row for row in kept if row]
        tables.append((file, _sample(rows, max_rows, rng), rng))

    columns: dict[str, list[str]] = {"sentence1": [], "sentence2": [], "source": []}
    counts: dict[str, Counter[str]] = {}
    seen: set[Pair] = set()
    for file, rows, rng in tables:
        distinct = {normalize_text(text): text for row in rows for text in row}
        texts = list(distinct.values())
        candidates = {"row": _row_pairs(rows, row_pairs, rng)}
        if texts and encoder is not None and processing_class is not None and num_neighbors > 0:
            vectors = encode(
                encoder,
                processing_class,
                texts,
                batch_size=batch_size,
                normalize=True,
                device=device,
                show_progress=show_progress,
            )
            position = {key: number for number, key in enumerate(distinct)}
            neighbors = _neighbors(
                torch.from_numpy(vectors).to(encoder.device),
                [[position[normalize_text(text)] for text in row] for row in rows],
                num_neighbors=num_neighbors,
                neighbor_pool=neighbor_pool,
                rng=rng,
                show_progress=show_progress,
            )
            candidates["neighbor"] = ((texts[first], texts[second]) for first, second in neighbors)
        candidates["random"] = _random_pairs(texts, num_random, rng)

        count = counts.setdefault(str(file), Counter())
        for kind, pairs in candidates.items():
            source = f"{_corpus_name(file)}/{kind}"
            for first, second in pairs:
                key = pair_key(first, second)
                if key[0] == key[1]:
                    fate = "equal"
                elif key in seen:
                    fate = "repeated"
                elif key in excluded:
                    fate = "excluded"
                else:
                    fate = "kept"
                    for name, value in zip(columns, (first, second, source), strict=True):
                        columns[name].append(value)
                seen.add(key)
                count.update(("made", fate))
    logger.info(_format_counts(counts))
    if not columns["source"]:
        raise ValueError(
            "There are no pairs: the files have too few texts, all pairs are excluded, or `row_pairs`, "
            "`num_neighbors` and `num_random` are 0."
        )
    return Dataset.from_dict(columns)


def balance_scores(dataset: Dataset, max_pairs: int, num_bins: int = 10, seed: int = 42) -> Dataset:
    """
    Samples pairs evenly over the range of the teacher's scores. Most pairs of a corpus are unrelated, so a random
    sample would have few pairs with high scores.

    The sample has the same number of pairs from each bin of [`bin_scores`] (plus or minus one). If a bin has too few
    pairs, the others have more. Pairs without scores are a single bin.

    Args:
        dataset (`Dataset`):
            Pairs, usually with the column `teacher_logits`.
        max_pairs (`int`):
            Maximum number of pairs to keep.
        num_bins (`int`, *optional*, defaults to 10):
            Number of bins of a teacher with one logit.
        seed (`int`, *optional*, defaults to 42):
            Random seed.

    Returns:
        `Dataset`: the sampled pairs, in the original order.

    Raises:
        `ValueError`: if `max_pairs` or `num_bins` is below 1.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse import balance_scores

    >>> scored = Dataset.from_dict({"teacher_logits": [[0.1], [0.2], [0.3], [0.4], [4.9], [5.0]]})
    >>> sorted(balance_scores(scored, max_pairs=4, num_bins=2)["teacher_logits"])[2:]
    [[4.9], [5.0]]
    ```
    """
    check_at_least(1, max_pairs=max_pairs, num_bins=num_bins)
    if len(dataset) <= max_pairs:
        return dataset
    bins = np.zeros(len(dataset), dtype=int)
    if "teacher_logits" in dataset.column_names:
        bins, _ = bin_scores(dataset, num_bins)
    rng = np.random.default_rng(seed)
    quotas = _fill_evenly(np.bincount(bins), max_pairs)
    drawn = [rng.choice(np.flatnonzero(bins == number), quota, replace=False) for number, quota in enumerate(quotas)]
    return dataset.select(np.sort(np.concatenate(drawn)))


def bin_scores(dataset: Dataset, num_bins: int = 10) -> tuple[np.ndarray, list[str]]:
    """
    Assigns scored pairs to bins.

    Args:
        dataset (`Dataset`):
            Pairs with the column `teacher_logits`.
        num_bins (`int`, *optional*, defaults to 10):
            Number of bins of equal width between the smallest and the largest score. For a teacher with several
            logits there is one bin per class, the class with the largest logit.

    Returns:
        `tuple[np.ndarray, list[str]]`: the bin of each pair, from 0, of shape `(num_pairs,)`, and the name of each
        bin.
    """
    logits = np.array(dataset["teacher_logits"][:])  # [N, C]
    if logits.shape[1] > 1:
        return logits.argmax(axis=1), [f"class {number}" for number in range(logits.shape[1])]
    edges = np.linspace(logits.min(), logits.max(), num_bins + 1)
    names = [f"{low:8.3f} to {high:8.3f}" for low, high in itertools.pairwise(edges)]
    return np.digitize(logits[:, 0], edges[1:-1]), names


def normalize_text(text: str) -> str:
    """
    Normalizes a text for comparisons: lower case, with one space for each run of characters that are not letters or
    digits. A text without letters and digits is only stripped and in lower case.

    Example:

    ```python
    >>> from hf_dse import normalize_text

    >>> normalize_text("  A cat's nap, at 3:30!")
    'a cat s nap at 3 30'
    ```
    """
    # `\w` is what `str.isalnum` accepts in any script, and the underscore.
    return re.sub(r"[\W_]+", " ", text.lower()).strip() or text.lower().strip()


def pair_key(first: str, second: str) -> Pair:
    """The key of a pair, which does not depend on order, case and punctuation."""
    first, second = sorted((normalize_text(first), normalize_text(second)))
    return first, second


def _split_columns(file: str | Path) -> tuple[Path, list[str]]:
    """Splits `FILE:column,column`, unless it is the path of an existing file."""
    name, _, columns = str(file).rpartition(":")
    # Without an ending it is no file but a Windows drive, or there was no colon.
    if to_path(file).exists() or not Path(name).suffix:
        return to_path(file), []
    return to_path(name), columns.split(",")


def _corpus_name(file: str | Path) -> str:
    path = _split_columns(file)[0].resolve()
    return path.parent.name if path.stem in PLAIN_STEMS else path.stem


def _read_rows(file: str | Path, num_columns: int | None = None) -> list[list[str]]:
    """Reads the rows of a file without empty cells and rows."""
    path, names = _split_columns(file)
    if path.suffix.lower() == ".txt":
        columns = read_texts(path)
    else:
        columns = read_columns(path)
    if not names:
        names = ["sentence1", "sentence2"] if {"sentence1", "sentence2"} <= set(columns) else ["text"]
    missing = [name for name in names if name not in columns]
    if missing:
        raise missing_column(path, missing[0], columns, "Choose those of the texts, as in `FILE:column,column`.")
    if num_columns is not None and len(names) != num_columns:
        raise ValueError(
            f"{path}: {num_columns} columns of texts are required, got {len(names)} ({', '.join(names)}). Choose "
            "them, as in `FILE:column,column`."
        )
    for name in names:
        for row, text in enumerate(columns[name]):
            if not isinstance(text, str | None):
                raise ValueError(f"{path}, row {row}: {name} is {text!r}, not a string.")
    cells = zip(*(columns[name] for name in names), strict=True)
    rows = [texts for row in cells if (texts := [text for text in row if text is not None and text.strip()])]
    if not rows:
        raise ValueError(f"{path}: there are no texts in {', '.join(names)}.")
    return rows


def _sample(rows: list[list[str]], max_rows: int | None, rng: np.random.Generator) -> list[list[str]]:
    if max_rows is None or len(rows) <= max_rows:
        return rows
    return [rows[number] for number in np.sort(rng.choice(len(rows), max_rows, replace=False))]


def _row_pairs(rows: list[list[str]], row_pairs: int, rng: np.random.Generator) -> Iterator[Pair]:
    for row in rows:
        pairs = list(itertools.combinations(row, 2))
        if len(pairs) > row_pairs:
            pairs = [pairs[number] for number in rng.choice(len(pairs), row_pairs, replace=False)]
        yield from pairs


def _random_pairs(texts: list[str], num_random: int, rng: np.random.Generator) -> Iterator[Pair]:
    if len(texts) < 2:
        return
    # A step of 1 to n - 1, modulo n, leads to any other text.
    steps = rng.integers(1, len(texts), size=(len(texts), num_random))
    for first, others in enumerate(steps):
        for step in others:
            yield texts[first], texts[(first + step) % len(texts)]


def _neighbors(
    vectors: torch.Tensor,
    groups: list[list[int]],
    *,
    num_neighbors: int,
    neighbor_pool: int,
    rng: np.random.Generator,
    show_progress: bool,
) -> Iterator[tuple[int, int]]:
    """Yields the positions of texts and their neighbours, by unit vectors of shape `(num_texts, embedding_size)`."""
    # Text -> positions of all texts in its rows, which are no neighbours.
    barred: list[list[int]] = [[] for _ in vectors]
    for group in groups:
        for position in group:
            barred[position] += group
    size = max(1, BLOCK_ELEMENTS // len(vectors))
    starts = range(0, len(vectors), size)
    for start in tqdm(starts, desc="Finding neighbours", unit="block", disable=not show_progress):
        similarities = vectors[start : start + size] @ vectors.T  # [B, N]
        own = [(row, position) for row, group in enumerate(barred[start : start + size]) for position in group]
        first, second = torch.tensor(own, device=vectors.device).T
        similarities[first, second] = -torch.inf
        values, nearest = (part.cpu().numpy() for part in similarities.topk(min(neighbor_pool, len(vectors))))
        # The positions of the smallest random numbers are a random sample without replacement.
        draws = np.where(np.isfinite(values), rng.random(values.shape), np.inf)
        for row, columns in enumerate(draws.argsort(axis=1)[:, :num_neighbors]):
            drawn = [column for column in columns if np.isfinite(draws[row, column])]
            yield from ((start + row, int(nearest[row, column])) for column in drawn)


def _fill_evenly(supplies: np.ndarray, total: int) -> np.ndarray:
    """Splits a total evenly over supplies; the smallest supply first, so that the others can fill its gap."""
    quotas = np.zeros_like(supplies)
    for rank, number in enumerate(np.argsort(supplies, kind="stable")):
        quotas[number] = min(supplies[number], total // (len(supplies) - rank))
        total -= quotas[number]
    return quotas


def _format_counts(counts: Mapping[str, Mapping[str, int]]) -> str:
    names = ("made", "equal", "repeated", "excluded", "kept")
    width = max(map(len, ["file", *counts]))
    lines = [f"{'file':<{width}}" + "".join(f"{name:>11}" for name in names)]
    lines += [f"{file:<{width}}" + "".join(f"{count[name]:>11,}" for name in names) for file, count in counts.items()]
    return "\n".join(lines)
