# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Hard negatives: documents that are like a query, and not known to be relevant. `mine_hard_negatives` of
sentence-transformers (6.2) has no BM25, leaves out queries without a positive, and takes the query itself, unlabelled
candidates, and positives in another case as negatives.
"""

import math
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pandas as pd
from datasets import Dataset, Features
from transformers.utils import logging

from hf_dse.common.loading import loading_options, named
from hf_dse.data.options import DataArguments
from hf_dse.data.passages import title_of, with_titles
from hf_dse.data.ranking_files import to_corpus, to_rankings
from hf_dse.data.rankings import FEATURES, Rankings, bare, bodies_of
from hf_dse.data.tables import is_filled
from hf_dse.retrieval.bm25 import has_bm25, import_bm25
from hf_dse.retrieval.index import Index
from hf_dse.retrieval.options import BM25_WEIGHT, QUERY_KINDS, SAMPLINGS
from hf_dse.retrieval.queries import make_queries
from hf_dse.retrieval.sentence_transformer import split_texts, title_room, to_sentence_transformer


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# Passages of a relevant document, of which a teacher may choose the positive.
PASSAGES_PER_POSITIVE = 4


def mine(
    data: Rankings | Dataset | DataArguments | str | PathLike,
    model: "SentenceTransformer | str | PathLike | None" = None,
    *,
    bm25: bool = False,
    split: str = "train",
    queries_from: str = "none",
    num_queries: int | None = None,
    num_negatives: int = 15,
    range_max: int = 100,
    relative_margin: float | None = 0.05,
    sampling: str = "top",
    seed: int = 42,
    max_length: int | None = None,
    chunk_size: int | None = None,
    cache_dir: str | PathLike | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> Rankings:
    """
    Adds hard negatives to the candidates of each query, like `hf-dse mine`: the documents that an encoder, BM25 or
    both find.

    Never mined are the candidates that a query has already, the positives of another query with the same text, the
    query itself, and their copies up to case, white space and punctuation.

    Args:
        data ([`Rankings`], [`DataArguments`] or `str`):
            The queries and the corpus, or their name, as [`load_rankings`] reads them. With `queries_from` the corpus
            alone, or its name, as [`load_corpus`] reads it.
        model (`SentenceTransformer` or `str`, *optional*):
            The encoder to search with, or its folder or Hub id: by the cosine of embeddings, with its prompts for
            queries and documents.
        bm25 (`bool`, *optional*, defaults to `False`):
            Whether to search with BM25, instead of the encoder or beside it, with the weight of a search: that which
            was fitted for the model and is kept in its folder, or 0.3.
        split (`str`, *optional*, defaults to `"train"`):
            The split of named data.
        queries_from (`str`, *optional*, defaults to `"none"`):
            `"headings"` or `"first_sentences"`: make queries from the corpus, see [`make_queries`].
        num_queries (`int`, *optional*):
            Number of queries to make. Defaults to all.
        num_negatives (`int`, *optional*, defaults to 15):
            Number of negatives to add to each query.
        range_max (`int`, *optional*, defaults to 100):
            How many of the first ranks to mine from, counted over what can be mined.
        relative_margin (`float`, *optional*, defaults to 0.05):
            Drop documents with a cosine above `p - relative_margin * abs(p)`, where `p` is the lowest cosine of a
            positive of the query, as [NV-Retriever](https://huggingface.co/papers/2407.15831) does. BM25 alone has no
            margin. `None` or a number below 0 drops none.
        sampling (`str`, *optional*, defaults to `"top"`):
            `"top"`: the first in the range. `"random"`: any in the range.
        seed (`int`, *optional*, defaults to 42):
            Random seed of the sampling, and of made queries.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text, for a named encoder. Defaults to its own limit.
        chunk_size (`int`, *optional*):
            Split documents into passages of at most so many tokens, and mine passages; 0: whole texts. Defaults to 128
            for a folder of files and to 0 for other data. A relevant document stands with the passage that cosine and
            BM25 together rank first, with its label, and its three next ones, without; all others are never mined.
            Queries are made of passages.
        cache_dir (`str` or `Path`, *optional*):
            Folder of embeddings, from which an interrupted run continues. Defaults to none.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.
        loading (*optional*):
            `trust_remote_code`, `dtype`, `device` and `backend` of an encoder that is loaded, see
            [`to_sentence_transformer`]. The `dtype` defaults to `"auto"`.

    Returns:
        [`Rankings`]: the same queries and corpus. The known candidates come first, unchanged, then the mined ones by
        rank with the label 0. A query has fewer than `num_negatives` if there are no more in the range.

    Example:

    ```python
    >>> from hf_dse import make_rankings, mine

    >>> corpus = {"text": ["Planes fly by lift.", "Planes are loud.", "Cats purr.", "planes  fly by lift."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> mined = mine(rankings, bm25=True, show_progress=False)
    >>> mined.queries["documents"][0], mined.queries["labels"][0]
    ([0, 1], [1.0, 0.0])
    ```
    """
    loading = loading_options("mine", loading, model)
    if model is None and not bm25:
        raise ValueError("There is nothing to search with: pass a model, bm25=True (`--bm25`), or both.")
    if model is None and max_length is not None:
        raise ValueError(f"max_length={max_length} is what a model reads, and there is none: leave it out.")
    if bm25:
        import_bm25()
    if not 1 <= num_negatives <= range_max:
        raise ValueError(f"num_negatives={num_negatives}: it has to be from 1 to range_max={range_max}.")
    if sampling not in SAMPLINGS:
        raise ValueError(f"sampling={sampling!r}: it has to be one of {', '.join(SAMPLINGS)}.")
    if num_queries is not None and queries_from == "none":
        raise ValueError(f"num_queries={num_queries}: add `--queries_from {'|'.join(QUERY_KINDS)}`.")
    if queries_from == "none":
        rankings = to_rankings(data, split, chunk_size)
    else:
        given = {"split": None if split == "train" else split}
        given |= {name: getattr(data, name, None) for name in ("max_train_samples", "max_eval_samples")}
        for name, value in given.items():
            if value is not None:
                raise ValueError(
                    f"{name}={value} is for queries that there are, and these are made of the documents: leave it "
                    "out. `num_queries` (`--num_queries`) says how many."
                )
        documents, size = to_corpus(data, chunk_size)
    encoder = None if model is None else to_sentence_transformer(model, max_length=max_length, **named(model, loading))
    if encoder is not None:
        # Also for models that are made for dot products.
        encoder.similarity_fn_name = "cosine"
    if queries_from != "none":
        made = make_queries(split_corpus(documents, encoder, size), queries_from, num_queries=num_queries, seed=seed)
        rankings = replace(made, chunk_size=size)
    corpus, queries = rankings.corpus, rankings.queries["query"][:]
    passages = corpus if rankings.has_passages else split_corpus(corpus, encoder, rankings.chunk_size)
    # A copy in a document of another title is a copy.
    bodies = np.array([bare(text) if is_filled(text) else None for text in bodies_of(passages)], dtype=object)
    text_of, texts = pd.factorize(bodies)
    first_rows = np.flatnonzero(~pd.Series(text_of).duplicated() & (text_of >= 0))
    options: dict[str, Any] = {"cache_dir": cache_dir, "batch_size": batch_size, "show_progress": show_progress}
    index = Index(encoder, passages.select(first_rows)["text"][:], **options)
    asked, vectors = (None, None) if encoder is None else (index.encode_queries(queries), index.vectors)
    if passages is not corpus:
        rankings = _choose_passages(rankings, passages, index, asked, text_of)
    barred = _barred_texts(rankings, text_of, pd.Index(texts))
    # Barred texts may take the first ranks.
    depth = range_max + max(map(len, barred))
    # With both as a search has them.
    weight = (index.bm25_weight or BM25_WEIGHT) if bm25 and encoder is not None else 0.0
    _, positions = index.find(queries, depth, weight, by_words=encoder is None, vectors=asked)
    margin = -1.0 if relative_margin is None else relative_margin
    mined: list[list[int]] = []
    for number, (positives, taboo, found) in enumerate(zip(rankings.positives(), barred, positions, strict=True)):
        free = [text for text in found.tolist() if text >= 0 and text not in taboo]
        pool = np.array(free[:range_max], dtype=np.int64)
        known = [text for text in text_of[positives] if text >= 0]
        if asked is not None and vectors is not None and known and margin >= 0:
            lowest = float((vectors[known] @ asked[number]).min())
            pool = pool[vectors[pool] @ asked[number] <= lowest - margin * abs(lowest)]
        if sampling == "random":
            pool = np.random.default_rng([seed, number]).permutation(pool)
        mined.append(first_rows[pool[:num_negatives]].tolist())
    columns = {name: rankings.queries[name][:] for name in rankings.queries.column_names}
    for number, rows in enumerate(mined):
        columns["documents"][number] += rows
        columns["labels"][number] += [0.0] * len(rows)
        if rankings.has_scores:
            columns["teacher_logits"][number] += [math.nan] * len(rows)
    if not any(mined):
        logger.warning("Nothing was mined: lower `--relative_margin`, or raise `--range_max`.")
    num_short = sum(len(rows) < num_negatives for rows in mined)
    logger.info(f"{num_short:,} of {len(mined):,} queries have fewer than {num_negatives} negatives.")
    return _with_candidates(rankings, columns)


def split_corpus(corpus: Dataset, encoder: "SentenceTransformer | None", chunk_size: int | None) -> Dataset:
    """The passages of documents, with ids such as `file#2` and the ids of their documents as `passage_of`."""
    if not chunk_size:
        return corpus
    if encoder is None:
        raise ValueError(
            f"chunk_size={chunk_size}: passages are counted in the tokens of a model. Pass one (`--model`), or search "
            "whole texts with chunk_size=0 (`--chunk_size 0`)."
        )
    columns: dict[str, list[str]] = {"doc_id": [], "text": [], "passage_of": [], "joined_title": []}
    names, ids = corpus.column_names, corpus["doc_id"][:]
    titles = corpus["joined_title"][:] if "joined_title" in names else [""] * len(corpus)
    parts, room = split_texts(encoder, corpus["text"][:], chunk_size), title_room(encoder, chunk_size)
    for doc_id, title, text, passages in zip(ids, titles, corpus["text"][:], parts, strict=True):
        columns["doc_id"] += [f"{doc_id}#{number}" for number in range(1, len(passages) + 1)]
        columns["text"] += with_titles(text, passages, room)
        columns["passage_of"] += [doc_id] * len(passages)
        # The first passage begins with the title of a table, and others stand after that of the text.
        columns["joined_title"] += [title, *[title_of(text, room)] * (len(passages) - 1)][: len(passages)]
    return Dataset.from_dict(columns)


def _choose_passages(
    rankings: Rankings, passages: Dataset, index: Index, query_vectors: Any, text_of: np.ndarray
) -> Rankings:
    """
    The same queries with passages as candidates: of a relevant document the best has its label, and the next ones an
    unknown label; of another document the best.
    """
    rows_of: dict[str, list[int]] = {}
    for row, document in enumerate(passages["passage_of"][:]):
        rows_of.setdefault(document, []).append(row)
    names, vectors = rankings.corpus["doc_id"][:], index.vectors
    columns: dict[str, Any] = {name: rankings.queries[name][:] for name in ("query_id", "query")}
    columns |= {"documents": [[] for _ in rankings.queries], "labels": [[] for _ in rankings.queries]}
    words = index.words.scores(columns["query"], BM25_WEIGHT / 2) if has_bm25() else None
    for number, known in enumerate(zip(rankings.queries["documents"], rankings.queries["labels"], strict=True)):
        added = None if words is None else words(slice(number, number + 1))[0]
        for document, label in zip(*known, strict=True):
            rows = rows_of.get(names[document], [])
            scores = vectors[text_of[rows]] @ query_vectors[number]
            scores = scores if added is None else scores + added[text_of[rows]]
            best = np.argsort(-scores, kind="stable")[: PASSAGES_PER_POSITIVE if rankings.is_relevant(label) else 1]
            columns["documents"][number] += [rows[place] for place in best]
            columns["labels"][number] += [label, *[math.nan] * (len(best) - 1)][: len(best)]
    return replace(_with_candidates(rankings, columns), corpus=passages)


def _with_candidates(rankings: Rankings, columns: dict[str, list]) -> Rankings:
    """The same queries with other candidates."""
    features = Features({name: FEATURES[name] for name in columns})
    return replace(rankings, queries=Dataset.from_dict(columns, features=features))


def _barred_texts(rankings: Rankings, text_of: np.ndarray, texts: pd.Index) -> list[set[int]]:
    """
    For each query, the texts of its candidates, of the positives of the same query, and of the query; of passages,
    those of the same documents.
    """
    keys = [bare(query) for query in rankings.queries["query"]]
    barred: dict[str, set[int]] = {key: {number} for key, number in zip(keys, texts.get_indexer(keys), strict=True)}
    documents = rankings.document_ids
    texts_of: dict[str, set[int]] = {}
    for document, text in zip(documents, text_of.tolist(), strict=True):
        texts_of.setdefault(document, set()).add(text)
    for key, rows in zip(keys, rankings.positives(), strict=True):
        barred[key].update(*(texts_of[documents[row]] for row in rows))
    own = (set().union(*(texts_of[documents[row]] for row in rows)) for rows in rankings.queries["documents"])
    return [barred[key].union(texts) for key, texts in zip(keys, own, strict=True)]
