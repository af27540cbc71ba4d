# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Indexes in parquet files: texts, their vectors and the model that computed them."""

import json
from functools import partial
from io import BytesIO
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet

from hf_dse.common.files import output_path, to_path, write_atomically
from hf_dse.data.tables import check_texts, read_table
from hf_dse.data.texts import read_texts
from hf_dse.retrieval.arguments import DOCUMENT_COLUMN, EMBEDDING_COLUMN
from hf_dse.retrieval.chunks import fit_chunk_size, split_texts
from hf_dse.retrieval.sentence_transformer import (
    embed,
    fingerprint_of,
    length_of,
    load_sentence_transformer,
    prompt_of,
)


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

# The key of the settings in the metadata of a file, as `run_on_shards` writes them too.
SETTINGS_KEY = b"hf_dse"


def encode_file(
    model: "SentenceTransformer",
    model_name: str,
    source: str,
    output: str,
    *,
    text_column: str = "text",
    prompt_name: str = "document",
    normalize: bool = False,
    truncation: bool = True,
    chunk_size: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> tuple[int, int]:
    """
    Embeds the texts that [`read_texts`] finds in `source`, and writes the vectors: a .npy file for an array, or a
    .parquet file for an index, which [`search_corpus`] reads: the columns of the input with their types, and
    `embedding`. An index names the model and its weights. With `chunk_size`, it has a row for each chunk of a text of
    up to so many tokens: the columns of the text, the row of the text in the input (`document`), and the chunk in
    place of the text. The other options are those of [`embed`].

    Returns:
        `tuple[int, int]`: the number of vectors and their size.
    """
    path = output_path(output, (".npy", ".parquet"))
    table = _open(source, text_column)
    texts = table[text_column].to_pylist()
    settings = encode_settings(model, model_name, text_column, prompt_name, normalize)
    if chunk_size is not None:
        if path.suffix == ".npy":
            raise ValueError("A .npy file does not tell which text a chunk is of: write .parquet.")
        chunks = split_texts(model, texts, chunk_size)
        rows = [row for row, parts in enumerate(chunks) for _ in parts]
        texts = [chunk for parts in chunks for chunk in parts]
        table = table.take(rows).set_column(table.column_names.index(text_column), text_column, [texts])
        table = _append(table, DOCUMENT_COLUMN, pyarrow.array(rows))
        settings["chunk_size"] = fit_chunk_size(model, chunk_size)
    if path.suffix == ".parquet":
        _check_columns(_append(table, EMBEDDING_COLUMN, table[text_column]), source)
    options: dict[str, Any] = {"truncation": truncation, "batch_size": batch_size, "show_progress": show_progress}
    vectors = embed(model, texts, prompt_name, normalize=normalize, **options)
    if path.suffix == ".npy":
        # `np.save` into a file object of Python writes through C, where a full disk is not an error.
        write_atomically(path, lambda file: np.save(SimpleNamespace(write=file.write), vectors))
    else:
        table = _append(table, EMBEDDING_COLUMN, to_lists(vectors))
        table = table.replace_schema_metadata({SETTINGS_KEY: json.dumps(settings)})
        write_atomically(path, partial(pyarrow.parquet.write_table, table))
    return vectors.shape[0], vectors.shape[1]


def encode_settings(
    model: "SentenceTransformer", model_name: str, text_column: str, prompt_name: str, normalize: bool
) -> dict[str, Any]:
    """All that the vectors of an index depend on, and the name of the model."""
    return {
        "model": fingerprint_of(model),
        "model_name_or_path": model_name,
        "columns": [text_column],
        "prompt": prompt_of(model, prompt_name),
        "max_length": length_of(model, prompt_name),
        "normalize": normalize,
    }


class TextEncoder:
    """The worker of [`run_on_shards`] for `hf-dse encode --engine ray`."""

    def __init__(self, device: str, *, name: str, text_column: str, loading: dict[str, Any], **options: Any):
        self.model = load_sentence_transformer(name, device=device, **loading)
        self.text_column, self.options = text_column, options

    def __call__(self, columns: dict[str, list]) -> pyarrow.Array:
        return to_lists(embed(self.model, columns[self.text_column], show_progress=False, **self.options))


def to_lists(vectors: np.ndarray) -> pyarrow.FixedSizeListArray:
    """Vectors as lists of a fixed size, which vector databases read without conversion."""
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])


def is_index(name: str) -> bool:
    """Whether a corpus is a parquet file, or a folder of them, with vectors."""
    return any(EMBEDDING_COLUMN in pyarrow.parquet.read_schema(shard).names for shard in _find_shards(name))


def read_index(
    name: str, text_column: str, model: "SentenceTransformer"
) -> tuple[dict[str, list], np.ndarray, list | None]:
    """
    Reads an index of `hf-dse encode` for a search with a model.

    Returns:
        `tuple`: the columns; the vectors of shape `(num_texts, embedding_size)`; and for chunks the row of the text
        that each is of, otherwise `None`.

    Raises:
        `ValueError`: if the vectors are not those that the model would compute.
    """
    expected = encode_settings(model, name, text_column, "document", False)
    tables, vectors = [], []
    for shard in _find_shards(name):
        settings = json.loads((pyarrow.parquet.read_schema(shard).metadata or {}).get(SETTINGS_KEY, b"{}"))
        others = [key for key in ("model", "columns", "prompt") if settings.get(key) != expected[key]]
        if settings.get("normalize") and model.similarity_fn_name == "dot":
            others.append("length (`--normalize`)")
        if others:
            raise ValueError(
                f"{shard} was encoded with {settings.get('model_name_or_path', 'another program')}, and its vectors "
                f"are of another {' and '.join(others)} than those of the model for {text_column!r}: run `hf-dse "
                "encode` again with this model and `--dtype`, or search with the other."
            )
        table = read_table(shard)
        column = table[EMBEDDING_COLUMN].combine_chunks()
        vectors.append(column.flatten().to_numpy(zero_copy_only=False).reshape(len(table), -1))
        tables.append(table.drop_columns([EMBEDDING_COLUMN]))
    columns = pyarrow.concat_tables(tables, promote_options="permissive").to_pydict()
    return columns, np.concatenate(vectors), columns[DOCUMENT_COLUMN] if "chunk_size" in settings else None


def _open(source: str, text_column: str) -> pyarrow.Table:
    """The texts of a file or folder with their other columns; those of a parquet file keep their types."""
    path = to_path(source)
    if path.suffix.lower() != ".parquet" or not path.is_file():
        try:
            return pyarrow.table(read_texts(source, text_column))
        except pyarrow.ArrowException as error:
            raise ValueError(f"{source} has a column with values of different types: {error}") from error
    table = read_table(path)
    if text_column not in table.column_names:
        read_texts(source, text_column)
    check_texts(table[text_column].to_pylist(), source, text_column)
    return table


def _check_columns(table: pyarrow.Table, source: str) -> None:
    """Columns that cannot be written fail before the texts are embedded."""
    try:
        pyarrow.parquet.ParquetWriter(BytesIO(), table.schema).close()
    except pyarrow.ArrowException as error:
        raise ValueError(f"{source} has a column that parquet cannot hold: {error}") from error


def _append(table: pyarrow.Table, name: str, values: pyarrow.Array) -> pyarrow.Table:
    if name in table.column_names:
        raise ValueError(f"The input already has a column {name!r}: rename it.")
    return table.append_column(name, values)


def _find_shards(name: str) -> list[Path]:
    path = to_path(name)
    if path.is_dir():
        return sorted(file for file in path.glob("*.parquet") if file.is_file())
    return [path] if path.suffix == ".parquet" and path.is_file() else []
