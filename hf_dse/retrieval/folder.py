# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search in a folder of texts or in a table, whose index is kept and updated."""

import hashlib
import os
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import cached_assets_path
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.passages import line_numbers
from hf_dse.data.tables import to_python
from hf_dse.data.texts import read_texts
from hf_dse.retrieval.index import embed_once
from hf_dse.retrieval.search import check_search, search
from hf_dse.retrieval.sentence_transformer import similarity_of


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# Columns that name a text: ids first, as those of BEIR, then the path of a file.
ID_COLUMNS = ("id", "_id", "doc_id", "file")


def search_corpus(
    model: "SentenceTransformer",
    model_name: str,
    corpus: str,
    queries: Sequence[str],
    *,
    text_column: str = "text",
    bm25_weight: float = 0.0,
    chunk_size: int | None = None,
    index_dir: str | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **ranking: Any,
) -> tuple[list[dict[str, Any]], list[str]]:
    """
    Ranks the texts of a corpus with [`search`], by the best of their passages: files of a folder are split, other
    texts only with a `chunk_size`. Vectors are kept in `index_dir`, by default in the cache of Hugging Face. `ranking`
    is `top_k`, `reranker` and `rerank_top` of a search. Returns for each query its `results`, and the columns of a
    printed table: scores, the place of a text, and the text.
    """
    check_search(model, queries, bm25_weight)
    scores = {"score": similarity_of(model) + (" + BM25" if bm25_weight else "")}
    scores = scores if ranking.get("reranker") is None else {"rerank": "rerank", **scores}
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    columns = to_python(read_texts(corpus, text_column))
    if taken := [name for name in scores.values() if name in columns]:
        raise ValueError(f"{corpus} has a column {taken[0]!r}, which is the name of a score: rename it.")
    is_folder = list(columns) == ["file", text_column] and to_path(corpus).is_dir()
    place = "file:line" if is_folder else next((name for name in ID_COLUMNS if name in columns), "position")
    if place == "position":
        columns = {"position": list(range(len(columns[text_column]))), **columns}
    if not is_folder and chunk_size is None:
        chunk_size = 0
    folder = to_path(index_dir) if index_dir else _index_folder(corpus, model_name)
    entries = embed_once(model, columns[text_column], folder, chunk_size=chunk_size, drop_others=True, **options)
    passages = [part for parts, _ in entries for part in parts]
    groups = [row for row, (parts, _) in enumerate(entries) for _ in parts]
    num_blank = sum(not parts for parts, _ in entries)
    if num_blank:
        logger.warning(f"{num_blank} of {len(entries)} texts are blank and are left out.")
    columns = {name: [column[row] for row in groups] for name, column in columns.items()}
    if is_folder:
        lines = [line for parts, _ in entries for line in line_numbers(parts)]
        columns = {"file": columns["file"], "line": lines}
    columns[text_column] = passages
    what = "files" if is_folder else "texts"
    logger.info(f"Index of {corpus}: {len(set(groups)):,} {what}, {len(passages):,} passages, in {folder}")
    found = search(
        model,
        queries,
        passages,
        vectors=np.concatenate([part for parts, part in entries if parts] or [np.empty((0, 0))]),
        groups=groups,
        bm25_weight=bm25_weight,
        **ranking,
        **options,
    )
    rows: list[dict[str, Any]] = []
    for query, hits in zip(queries, found, strict=True):
        rows.append({"query": query, "results": []})
        for hit in hits:
            values = {name: column[hit["row"]] for name, column in columns.items()}
            rows[-1]["results"].append({**{name: hit[key] for key, name in scores.items()}, **values})
    return rows, [*scores.values(), place, text_column]


def _index_folder(corpus: str, model_name: str) -> Path:
    """Where the index of a folder is. Another training into the same folder replaces its vectors."""
    model = to_path(model_name)
    names = [str(to_path(corpus).resolve()), str(model.resolve() if model.exists() else model_name)]
    digest = hashlib.sha256(os.fsencode("\n".join(names))).hexdigest()
    return cached_assets_path("hf-dse", "search", digest[:16])
