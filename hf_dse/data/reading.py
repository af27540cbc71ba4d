# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Data that functions take: loaded, or by the name of a data set, a folder or a file."""

from collections.abc import Collection
from dataclasses import replace
from os import PathLike
from typing import Any, TypeAlias

from datasets import Dataset

from hf_dse.data.options import DataArguments, to_arguments
from hf_dse.data.pairs import load_pairs
from hf_dse.data.ranking_files import is_ranking_data, load_corpus, load_rankings, unit_of
from hf_dse.data.rankings import Rankings


Data: TypeAlias = Dataset | Rankings | DataArguments | str | PathLike


def choose_split(splits: Collection[str]) -> str:
    """The split of judged queries that is searched, if none is named."""
    return next((name for name in ("test", "validation") if name in splits), next(iter(splits)))


def to_rankings(data: Data, split: str | None = None, chunk_size: int | None = None) -> Rankings:
    """
    Rankings themselves, or a split of those that a name stands for, by default that of [`choose_split`]. `chunk_size`
    replaces that of their documents.
    """
    if isinstance(data, Rankings):
        if chunk_size is None or chunk_size == data.chunk_size:
            return data
        if data.has_passages:
            raise ValueError(f"chunk_size={chunk_size}: the documents are passages already, of {data.chunk_size}.")
        return replace(data, chunk_size=chunk_size)
    args = to_arguments(data)
    args = args if chunk_size is None else replace(args, chunk_size=chunk_size)
    splits = load_rankings(args, None if split is None else [split])
    return splits[choose_split(splits) if split is None else split]


def to_corpus(data: Data, chunk_size: int | None = None) -> tuple[Dataset, int | None]:
    """Documents without queries, loaded or by their name, and the tokens of the passages that they are searched by."""
    if isinstance(data, Dataset):
        return data, chunk_size
    args = to_arguments(data)
    args = args if chunk_size is None else replace(args, chunk_size=chunk_size)
    return load_corpus(args), unit_of(args)


def options_of(data: Data, **options: Any) -> DataArguments:
    """How data are read, with the options that are not `None`; loaded data have these alone."""
    is_loaded = isinstance(data, Dataset | Rankings)
    args = DataArguments() if is_loaded else to_arguments(data)
    return replace(args, **{name: value for name, value in options.items() if value is not None})


def are_rankings(data: Data, data_args: DataArguments) -> bool:
    """Whether data, with their [`options_of`], are queries with candidates, not sentence pairs."""
    return isinstance(data, Rankings) or is_ranking_data(data_args)


def to_pairs(data: Data, data_args: DataArguments, split: str, **options: Any) -> Dataset:
    """Sentence pairs themselves, or a split of those that a name stands for. `options` are of [`load_pairs`]."""
    if not isinstance(data, Dataset):
        return load_pairs(data_args, [split], **options)[split]
    missing = {"sentence1", "sentence2"} - set(data.column_names)
    if missing:
        raise ValueError(
            f"The data have the columns {', '.join(data.column_names)}, and sentence pairs need sentence1 and "
            "sentence2: rename them, or make `Rankings` of queries with documents (`make_rankings`)."
        )
    return data
