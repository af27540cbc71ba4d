# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Evaluation of encoders by the search in a corpus."""

from collections.abc import Callable, Iterator, Mapping
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.options import check_at_least
from hf_dse.data.rankings import Rankings
from hf_dse.inference.chunks import encode_corpus
from hf_dse.inference.encoding import encode_query
from hf_dse.inference.search import rank_groups, similarity_of
from hf_dse.metrics import Run, as_run, ranking_metrics, relevance


# `recall@100` needs so many documents.
TOP_K = 100


def evaluate_retrieval(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    rankings: Rankings,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    top_k: int = TOP_K,
    truncate_dim: int | None = None,
    precision: str = "float32",
    chunks: bool = False,
    chunk_size: int | None = None,
    contextual: bool = False,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """
    Evaluates an encoder by the search in a corpus: each query ranks all documents of `rankings.corpus`, by the cosine
    or, for a model made for it, by the dot product (see `similarity_of`). Queries and documents get the prompts of
    the model. A document that has the id of a query and contains its text is the query itself, and not ranked for it.

    Args:
        model (`PreTrainedModel`):
            A student or any other encoder that [`encode`] takes.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        rankings ([`Rankings`]):
            The queries with the known relevance of documents, and the corpus, as [`load_rankings`] reads them. The
            corpus of lists of candidates is all that are in the lists.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to the `model_max_length` of the tokenizer.
        top_k (`int`, *optional*, defaults to 100):
            Documents to find for each query. With fewer than 100, the recall is that of fewer, too.
        truncate_dim (`int`, *optional*):
            Keep only so many numbers of each embedding, see [`encode`].
        precision (`str`, *optional*, defaults to `"float32"`):
            Of the embeddings of the documents, see [`quantize`]; those of queries stay float32.
        chunks (`bool`, *optional*, defaults to `False`):
            Whether a document has a vector for each of its chunks, as by [`encode_chunks`], and the best of them
            counts.
        chunk_size (`int`, *optional*):
            Tokens of a chunk, at most. Defaults to 128, or to what the model reads if that is less.
        contextual (`bool`, *optional*, defaults to `False`):
            Whether the chunks are pooled from one pass over their document, instead of encoded each alone.
        device (`str` or `torch.device`, *optional*):
            Device to run on; the model is moved there and stays. Defaults to the device of the model.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Returns:
        `dict[str, float]`: `num_queries`, those that have a relevant document, and the means of [`ranking_metrics`]
        over them: `ndcg@10`, `mrr@10`, `map`, `recall@1`, `recall@10` and `recall@100`, as fractions of 1. They are
        those of MTEB.

    Raises:
        `ImportError`: if pytrec_eval is missing.
        `ValueError`: if the model scores pairs of texts, no query has a relevant document, or for invalid arguments of
        [`encode`] and [`rank`].

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, evaluate_retrieval, make_rankings

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> evaluate_retrieval(model, tokenizer, rankings, show_progress=False)["ndcg@10"]
    1.0
    ```
    """
    options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length, "device": device}
    options |= {"truncate_dim": truncate_dim, "precision": precision}
    options |= {"chunks": chunks, "chunk_size": chunk_size, "contextual": contextual, "show_progress": show_progress}
    runs = search_corpus(model, processing_class, {"": rankings}, top_k, **options)
    return measure_run(runs[""], rankings)


def search_corpus(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    splits: Mapping[str, Rankings],
    top_k: int,
    *,
    show_progress: bool = True,
    **options: Any,
) -> dict[str, Run]:
    """
    The `top_k` documents of a corpus with the most similar embeddings to each query of each split. The other arguments
    are those of [`embed_splits`].
    """
    check_at_least(1, top_k=top_k)
    embedded = embed_splits(model, processing_class, splits, show_progress=show_progress, **options)
    return {
        split: find_documents(model, splits[split], *vectors, top_k, show_progress=show_progress)
        for split, vectors, _ in embedded
    }


def embed_splits(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    splits: Mapping[str, Rankings],
    *,
    precision: str = "float32",
    chunks: bool = False,
    chunk_size: int | None = None,
    contextual: bool = False,
    show_progress: bool = True,
    **options: Any,
) -> Iterator[tuple[str, tuple[np.ndarray, Any, np.ndarray], list[str]]]:
    """
    Embeds the queries and the corpus of each split. A corpus that splits share, as those of [`load_rankings`] do, is
    embedded once.

    Args:
        model (`PreTrainedModel`):
            The encoder.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        splits (`Mapping[str, Rankings]`):
            The queries and the corpus of each split.
        precision (`str`, *optional*, defaults to `"float32"`):
            Of the embeddings of the documents, see [`quantize`].
        chunks, chunk_size, contextual (*optional*):
            Whether a document has many vectors, and which, see [`evaluate_retrieval`].
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.
        options:
            Other arguments of [`encode`].

    Returns:
        `Iterator[tuple[str, tuple, list[str]]]`: the name of each split; of [`find_documents`] the `queries`,
        `vectors` and `documents`; and the text of each vector.

    Raises:
        `ValueError`: if the model scores pairs of texts.
    """
    if type(model).__name__.endswith("ForSequenceClassification") and model.config.model_type != "dse":
        raise ValueError(
            f"{type(model).__name__} scores pairs of texts, so it cannot search in a corpus: evaluate an encoder, and "
            "pass this model as `--rerank` to rank what the encoder finds."
        )
    options["show_progress"] = show_progress
    # Codes of 8 bits are those of unit vectors where these rank alike.
    coded: dict[str, Any] = {
        "precision": precision,
        "normalize": precision != "float32" and similarity_of(model) == "cosine",
    }
    coded |= {"chunks": chunks, "chunk_size": chunk_size, "contextual": contextual}
    embedded: dict[int, tuple[Any, np.ndarray, list[str]]] = {}
    for split, rankings in splits.items():
        if id(rankings.corpus) not in embedded:
            embedded[id(rankings.corpus)] = encode_corpus(
                model, processing_class, rankings.corpus["text"][:], **coded, **options
            )
        corpus, documents, texts = embedded[id(rankings.corpus)]
        queries = encode_query(model, processing_class, rankings.queries["query"][:], **options)
        yield split, (queries, corpus, documents), texts


def find_documents(
    model: PreTrainedModel,
    rankings: Rankings,
    queries: np.ndarray,
    vectors: np.ndarray | Any,
    documents: np.ndarray,
    top_k: int,
    show_progress: bool = True,
    added_scores: Callable[[slice], np.ndarray] | None = None,
) -> Run:
    """
    What a search finds for each query, where a document has one vector or many: `documents` has the row of each.
    `added_scores` are those of [`rank`], for each vector.
    """
    hits = rank_groups(
        queries,
        vectors,
        documents.tolist(),
        # One more, for the query itself may be found.
        top_k=top_k + 1,
        similarity=similarity_of(model),
        added_scores=added_scores,
        device=model.device,
        show_progress=show_progress,
    )
    found: np.ndarray = np.array(hits)
    return as_run(rankings, found[..., 0], documents[found[..., 1].astype(int)], top_k)


def measure_run(run: Run, rankings: Rankings) -> dict[str, float]:
    """The number of queries, and the means of their metrics, of what a search has found."""
    return mean_metrics(ranking_metrics(run, relevance(rankings), per_query=True))


def mean_metrics(per_query: dict[str, dict[str, float]]) -> dict[str, float]:
    """The number of queries, and the means of their metrics."""
    names = next(iter(per_query.values()))
    return {
        "num_queries": len(per_query),
        **{name: float(np.mean([values[name] for values in per_query.values()])) for name in names},
    }
