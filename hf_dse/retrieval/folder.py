# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The texts of a folder or a table: a search whose index is kept and updated, and files of their vectors."""

import hashlib
import os
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet
from huggingface_hub import cached_assets_path
from transformers.utils import logging

from hf_dse.common.files import output_path, to_path, write_atomically
from hf_dse.common.settings import read_settings
from hf_dse.data.options import CHUNK_SIZE
from hf_dse.data.passages import line_of
from hf_dse.data.rankings import check_ids
from hf_dse.data.tables import to_json, to_python, to_table
from hf_dse.data.texts import is_folder_of_files, read_columns, read_texts, texts_of
from hf_dse.retrieval.index import Index, kept_weight
from hf_dse.retrieval.sentence_transformer import embed, similarity_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# Columns that name the place of a text, the first of these that there is.
ID_COLUMNS = ("id", "_id", "doc_id", "file")
EMBEDDING_COLUMN = "embedding"


def search_corpus(
    model: "SentenceTransformer",
    model_name: str,
    corpus: str,
    queries: Sequence[str],
    *,
    text_column: str = "text",
    bm25_weight: float | None = None,
    chunk_size: int | None = None,
    index_dir: str | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **ranking: Any,
) -> tuple[list[dict[str, Any]], list[str]]:
    """
    Ranks the texts of a corpus by the best of their passages: files of a folder are split, other texts only with a
    `chunk_size`. The weight of BM25 is that which the model has kept, or 0. Vectors and words are kept in `index_dir`,
    by default in the cache of Hugging Face. `ranking` is `top_k`, `reranker`, `rerank_top` and `rerank_weight` of a
    search. Returns for each query its `results`, and the columns of a
    printed table: scores, the place of a text, and the text.
    """
    if bm25_weight is None:
        bm25_weight = kept_weight(model)
    scores = {"score": similarity_of(model) + (" + BM25" if bm25_weight else "")}
    if ranking.get("reranker") is not None:
        scores = {name: name for name in ("blend", "rerank")} | scores
    columns = to_python(read_texts(corpus, text_column))
    if taken := [name for name in scores.values() if name in columns]:
        raise ValueError(f"{corpus} has a column {taken[0]!r}, which is the name of a score: rename it.")
    is_folder = is_folder_of_files(corpus)
    place = "file:line" if is_folder else next((name for name in ID_COLUMNS if name in columns), "position")
    check_ids(columns.get(place, ()), f"{corpus}, {place}")
    if place == "position":
        columns = {"position": list(range(len(columns[text_column]))), **columns}
    if chunk_size is None:
        learned = read_settings(model_name).chunk_size
        chunk_size = (CHUNK_SIZE if learned is None else learned) if is_folder else 0
    folder = to_path(index_dir) if index_dir else _index_folder(corpus, model_name)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    index = Index(model, columns[text_column], chunk_size=chunk_size, cache_dir=folder, **options)
    index.check(queries, bm25_weight)
    share = f", BM25 with the weight {bm25_weight:g}" if bm25_weight else ""
    logger.info(f"Index of {corpus}: {index.unit}{share}, in {folder}")
    found = index.search(queries, bm25_weight=bm25_weight, **ranking)
    index.prune()
    rows: list[dict[str, Any]] = []
    for query, hits in zip(queries, found, strict=True):
        rows.append({"query": query, "results": []})
        for hit in hits:
            values = {name: column[hit["row"]] for name, column in columns.items()}
            if is_folder:
                values = {"file": values["file"], "line": line_of(values[text_column], hit["start"])}
            values[text_column] = hit["text"]
            rows[-1]["results"].append({**{name: hit[key] for key, name in scores.items()}, **values})
    return rows, [*scores.values(), place, text_column]


def _index_folder(corpus: str, model_name: str) -> Path:
    """Where the index of a folder is. Another training into the same folder replaces its vectors."""
    model = to_path(model_name)
    names = [str(to_path(corpus).resolve()), str(model.resolve() if model.exists() else model_name)]
    digest = hashlib.sha256(os.fsencode("\n".join(names))).hexdigest()
    return cached_assets_path("hf-dse", "search", digest[:16])


def encode_file(
    model: "SentenceTransformer",
    source: str,
    output: str,
    *,
    text_column: str = "text",
    **options: Any,
) -> tuple[int, int]:
    """
    Embeds the texts of `source`, after their titles if they have any, into a .parquet file with their columns, or a
    .npy file, beside which a file that ends in .ids.jsonl names the text of each row. Returns the number of vectors
    and their size. The options are those of [`embed`].
    """
    path = output_path(output, (".npy", ".parquet"))
    # The columns stay as they are, also where a text is read after its title.
    columns = read_columns(source, text_column)
    table, texts = to_table(columns, source), texts_of(columns, text_column, source)
    name = next((name for name in ID_COLUMNS if name in table.column_names), None)
    ids = range(len(texts)) if name is None else table[name].to_pylist()
    check_ids(ids, f"{source}, {name}")
    if EMBEDDING_COLUMN in table.column_names and path.suffix == ".parquet":
        raise ValueError(f"{source} already has a column {EMBEDDING_COLUMN!r}: rename it.")
    vectors = embed(model, texts, **options)
    if path.suffix == ".npy":
        # `np.save` into a file object of Python writes through C, where a full disk is not an error.
        write_atomically(path, lambda file: np.save(SimpleNamespace(write=file.write), vectors))
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
