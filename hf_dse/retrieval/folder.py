# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Search in a folder of texts, whose index is kept and updated, in a table, or in an index of `hf-dse encode`."""

import hashlib
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np
from huggingface_hub import cached_assets_path
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.passages import line_numbers
from hf_dse.data.tables import READERS, check_texts, find_column, find_table, read_columns
from hf_dse.data.texts import read_texts
from hf_dse.retrieval.arguments import DOCUMENT_COLUMN
from hf_dse.retrieval.index import is_index, read_index
from hf_dse.retrieval.kept_vectors import embed_once
from hf_dse.retrieval.search import Reranker, check_search, search
from hf_dse.retrieval.sentence_transformer import similarity_of


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)

# Columns that name a text: ids first, as those of BEIR, then the path of a file, then the row of a document.
ID_COLUMNS = ("id", "_id", "doc_id", "file", DOCUMENT_COLUMN)


@dataclass
class Results:
    """
    The results of a search. `rows` has `query` and `results` of each query, the best texts. A text has its scores
    first (`rerank` if there is a reranker, then `cosine`, `dot` or `cosine + BM25`), its `position` in a corpus
    without ids, and its columns. `shown` names the columns of a table: the scores, the place (an id, `file:line` or
    `position`) and the text; the first `num_scores` of them are the scores.
    """

    rows: list[dict[str, Any]]
    shown: list[str]
    num_scores: int


def search_corpus(
    model: "SentenceTransformer",
    model_name: str,
    corpus: str,
    queries: Sequence[str],
    *,
    text_column: str = "text",
    top_k: int = 10,
    bm25_weight: float = 0.0,
    reranker: "CrossEncoder | Reranker | None" = None,
    rerank_top: int = 50,
    chunk_size: int | None = None,
    index_dir: str | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
) -> Results:
    """
    Ranks the texts of a corpus for queries with [`search`], whose options are the same. Blank texts are left out.

    A folder of .txt and .md files is split into passages of up to `chunk_size` tokens, of which the best one of a file
    counts; 0 takes whole files, cut at the model's limit. The vectors are kept in `index_dir`, by default in the cache
    of Hugging Face by the names of corpus and model, so that only new and changed files are embedded, and an
    interrupted search keeps what it has. The index is made anew for another model, prompt or `chunk_size`.

    Other texts are ranked whole: a .txt file with one text per line, a table, whose texts are in `text_column`, a
    folder with a table named corpus, as those of BEIR, or an index that `hf-dse encode` wrote.

    Raises:
        `ValueError`: if there are no texts, options do not fit the corpus, or an index is of another model.
        `OSError`: if the index of the folder cannot be written.
    """
    check_search(model, top_k, bm25_weight, None if reranker is None else rerank_top)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    columns: dict[str, list] = {}
    vectors, groups = None, None
    if is_index(corpus):
        columns, vectors, groups = read_index(corpus, text_column, model)
    else:
        columns = read_texts(corpus, text_column)
    is_folder = list(columns) == ["file", text_column] and to_path(corpus).is_dir()
    if is_folder:
        folder = to_path(index_dir) if index_dir else _index_folder(corpus, model_name)
        columns, vectors = _read_passages(model, columns, text_column, folder, chunk_size, **options)
        groups = columns["file"]
        logger.info(f"Index of {corpus}: {len(set(groups)):,} files, {len(groups):,} passages, in {folder}")
    elif chunk_size is not None or index_dir is not None:
        raise ValueError(f"{corpus} is not a folder of files: leave out `--chunk_size` and `--index_dir`.")
    place = "file:line" if is_folder else next((name for name in ID_COLUMNS if name in columns), "position")
    if place == "position":
        columns = {"position": list(range(len(columns[text_column]))), **columns}
    kept = [row for row, text in enumerate(columns[text_column]) if text.strip()]
    if len(kept) < len(columns[text_column]):
        logger.warning(f"{corpus}: {len(columns[text_column]) - len(kept)} blank texts are left out.")
        columns = {name: [values[row] for row in kept] for name, values in columns.items()}
        vectors = None if vectors is None else vectors[kept]
        groups = None if groups is None else [groups[row] for row in kept]
    if not kept:
        raise ValueError(f"{corpus} holds no texts.")
    found = search(
        model,
        queries,
        columns[text_column],
        vectors=vectors,
        groups=groups,
        top_k=top_k,
        bm25_weight=bm25_weight,
        reranker=reranker,
        rerank_top=rerank_top,
        **options,
    )
    scores = {"score": similarity_of(model) + (" + BM25" if bm25_weight else "")}
    scores = scores if reranker is None else {"rerank": "rerank", **scores}
    results = [
        [
            {name: hit[key] for key, name in scores.items()}
            # JSON does not have NaN, which a data frame writes for nothing.
            | {name: value if (value := values[hit["row"]]) == value else None for name, values in columns.items()}
            for hit in hits
        ]
        for hits in found
    ]
    rows = [{"query": query, "results": hits} for query, hits in zip(queries, results, strict=True)]
    return Results(rows, [*scores.values(), place, text_column], len(scores))


def read_queries(path: str, text_column: str = "text") -> list[str]:
    """
    The queries of a file: a .txt with one per line, a table with a column `query`, `text_column` or `text`, or the
    `queries` of a folder in the layout of BEIR.
    """
    file = to_path(path)
    file = find_table(file, "queries") or file
    if file.suffix.lower() not in READERS:
        return [query for query in read_texts(file, "query")["query"] if query.strip()]
    columns = read_columns(file)
    name = find_column(columns, file, ("query", text_column, "text"))
    check_texts(columns[name], file, name)
    return columns[name]


def _index_folder(corpus: str, model_name: str) -> Path:
    """
    Where the index of a folder is. Another training into the same folder is the same model: it replaces the vectors.
    """
    model = to_path(model_name)
    names = [str(to_path(corpus).resolve()), str(model.resolve() if model.exists() else model_name)]
    digest = hashlib.sha256(os.fsencode("\n".join(names))).hexdigest()
    return cached_assets_path("hf-dse", "search", digest[:16])


def _read_passages(
    model: "SentenceTransformer",
    files: dict[str, list],
    text_column: str,
    folder: Path,
    chunk_size: int | None,
    **options: Any,
) -> tuple[dict[str, list], np.ndarray]:
    """`file`, `line` (where it begins, counted from 1) and the text of each passage of a folder, and its vector."""
    entries, num_embedded = embed_once(
        model, files[text_column], folder, chunk_size=chunk_size, drop_others=True, **options
    )
    logger.info(f"{num_embedded:,} files are new or changed, and were embedded")
    columns: dict[str, list] = {"file": [], "line": [], text_column: []}
    for file, (passages, _) in zip(files["file"], entries, strict=True):
        columns["file"] += [file] * len(passages)
        columns["line"] += line_numbers(passages)
        columns[text_column] += passages
    return columns, np.concatenate([vectors for passages, vectors in entries if passages] or [np.empty((0, 0))])
