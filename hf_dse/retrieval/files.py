# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of the texts of a file or folder, in files for numpy and vector databases."""

from functools import partial
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet

from hf_dse.common.files import output_path, to_path, write_atomically
from hf_dse.data.tables import to_json, to_table
from hf_dse.data.texts import read_texts
from hf_dse.retrieval.folder import ID_COLUMNS
from hf_dse.retrieval.sentence_transformer import embed


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

EMBEDDING_COLUMN = "embedding"


def encode_file(
    model: "SentenceTransformer",
    source: str,
    output: str,
    *,
    text_column: str = "text",
    **options: Any,
) -> tuple[int, int]:
    """
    Embeds the texts of `source` into a .parquet file with their columns, or a .npy file, beside which a file that ends
    in .ids.jsonl names the text of each row. Returns the number of vectors and their size. The options are those of
    [`embed`].
    """
    path = output_path(output, (".npy", ".parquet"))
    table = to_table(read_texts(source, text_column), source)
    texts = table[text_column].to_pylist()
    if EMBEDDING_COLUMN in table.column_names and path.suffix == ".parquet":
        raise ValueError(f"{source} already has a column {EMBEDDING_COLUMN!r}: rename it.")
    vectors = embed(model, texts, **options)
    if path.suffix == ".npy":
        # `np.save` into a file object of Python writes through C, where a full disk is not an error.
        write_atomically(path, lambda file: np.save(SimpleNamespace(write=file.write), vectors))
        name = next((name for name in ID_COLUMNS if name in table.column_names), None)
        ids = range(len(texts)) if name is None else table[name].to_pylist()
        rows = ({"row": row, name or "position": value} for row, value in enumerate(ids))
        write_atomically(path.with_suffix(".ids.jsonl"), lambda file: file.writelines(map(to_json, rows)))
    else:
        # Lists of a fixed size, which vector databases read without conversion.
        lists = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
        # Metadata of `datasets` would describe the columns of the input alone; that of pandas names its index.
        is_parquet = to_path(source).is_file() and to_path(source).suffix.lower() == ".parquet"
        found = (pyarrow.parquet.read_schema(to_path(source)).metadata or {}) if is_parquet else {}
        kept = {key: value for key, value in found.items() if key == b"pandas"}
        table = table.append_column(EMBEDDING_COLUMN, lists).replace_schema_metadata(kept or None)
        write_atomically(path, partial(pyarrow.parquet.write_table, table))
    return vectors.shape[0], vectors.shape[1]
