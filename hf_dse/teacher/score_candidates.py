# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What teachers tell about the candidates of queries: scores of a cross-encoder, embeddings of a bi-encoder."""

from collections.abc import Iterable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import pyarrow
import torch
from datasets import Dataset, concatenate_datasets
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.passages import split_text
from hf_dse.data.ranking_batches import keep_documents
from hf_dse.data.rankings import FEATURES, Rankings, make_rankings
from hf_dse.inference.encoding import encode_document, encode_query
from hf_dse.teacher.arguments import check_windows
from hf_dse.teacher.cache import Pair
from hf_dse.teacher.rerankers import Reranker, load_reranker
from hf_dse.teacher.score import score_texts


if TYPE_CHECKING:
    from hf_dse.teacher.rerankers import Teacher

logger = logging.get_logger(__name__)

# Queries for which a teacher is compared with chance.
CHECKED_QUERIES = 50

# What a search found: the scores of a text by their names, and its position in the corpus.
Hit: TypeAlias = tuple[dict[str, float], int]

# Documents that are tokenized together.
DOCUMENTS_PER_BATCH = 64


def score_candidates(
    teacher: "Teacher",
    rankings: Rankings,
    *,
    processing_class: PreTrainedTokenizerBase | None = None,
    batch_size: int = 64,
    max_length: int | None = None,
    windows: str = "first",
    cache_dir: str | Path | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Rankings:
    """
    Scores the candidates of each query with a teacher, the query first and the document second. Each distinct pair is
    scored once, in batches of similar length.

    A query is always read whole. A document that does not fit next to it is cut into windows of as many tokens as
    fit, one after the other; the last one ends with the document, so it overlaps the one before.

    Args:
        teacher (`str`, `PreTrainedModel` or `CrossEncoder`):
            A cross-encoder with one logit, or two (their difference is the score): a loaded model of transformers or
            sentence-transformers, or a Hub id or folder.
        rankings ([`Rankings`]):
            The queries and their candidates.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer; required with a loaded model of transformers.
        batch_size (`int`, *optional*, defaults to 64):
            Maximum number of pairs per batch; fewer for pairs longer than 512 tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens of query and document together. Defaults to the teacher's own limit.
        windows (`str`, *optional*, defaults to `"first"`):
            How documents are scored that are longer: by their `"first"` window, as truncation does, or by the `"best"`
            score of all windows.
        cache_dir (`str` or `Path`, *optional*):
            Folder of cached scores. They are saved after every batch, so an interrupted run continues where it
            stopped. The cache is specific to everything in the teacher that affects scores, and to the text read.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of a loaded model, otherwise to an accelerator if available.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        [`Rankings`]: the same with `teacher_logits`, raw logits without sigmoid.

    Raises:
        `ValueError`: if the teacher has more than two logits, a query leaves no room for a document, `max_length` or
        `windows` is invalid, there are no candidates, a score is NaN or infinite, or the cache is damaged.

    Example:

    ```python
    >>> from hf_dse import make_rankings, score_candidates

    >>> corpus = {"text": ["The cat sleeps.", "A new house."]}
    >>> rankings = make_rankings({"query": ["Where is the cat?"], "documents": [[0, 1]]}, corpus)
    >>> # A folder, such as `hf-dse teacher` writes, or a Hub id.
    >>> scored = score_candidates("teacher", rankings, windows="best", show_progress=False)
    >>> len(scored.queries["teacher_logits"][0])
    2
    ```
    """
    check_windows(windows)
    if batch_size < 1:
        raise ValueError(f"batch_size has to be at least 1, got {batch_size}.")
    reranker = load_reranker(teacher, processing_class, device)
    if reranker.num_labels not in (1, 2):
        raise ValueError(
            f"The teacher has {reranker.num_labels} logits, and a reranker has 1, or 2 for irrelevant and relevant: "
            "use a teacher that was trained for ranking, such as by `hf-dse teacher`."
        )
    max_length = reranker.check_max_length(max_length)

    rows = rankings.queries["documents"][:]
    if not any(rows):
        raise ValueError("The queries have no candidates to score: mine them with `mine_candidates` or `hf-dse mine`.")
    needed = sorted({row for documents in rows for row in documents})
    texts = dict(zip(needed, rankings.corpus.select(needed)["text"][:], strict=True))
    lists = [
        [(query, texts[row]) for row in documents]
        for query, documents in zip(rankings.queries["query"][:], rows, strict=True)
    ]
    read = _windows(reranker, dict.fromkeys(pair for pairs in lists for pair in pairs), max_length, windows)
    logits = score_texts(
        reranker,
        list(dict.fromkeys(window for parts in read.values() for window in parts)),
        batch_size=batch_size,
        max_length=max_length,
        truncation="only_second",
        cache_dir=cache_dir,
        description="Scoring candidates",
        show_progress=show_progress,
    )
    scores = {window: _relevance(values) for window, values in logits.items()}
    best = {pair: max(scores[window] for window in parts) for pair, parts in read.items()}
    return with_scores(rankings, [[best[pair] for pair in pairs] for pairs in lists])


def with_scores(rankings: Rankings, scores: list[list[float]]) -> Rankings:
    """The same rankings with the scores of a teacher, which replace earlier ones."""
    queries = rankings.queries
    if rankings.has_scores:
        queries = queries.remove_columns("teacher_logits")
    queries = queries.add_column("teacher_logits", scores, feature=FEATURES["teacher_logits"])
    return Rankings(queries, rankings.corpus)


def _windows(
    reranker: Reranker, pairs: Mapping[Pair, None], max_length: int | None, windows: str
) -> dict[Pair, list[Pair]]:
    """What is read of each pair of a query and a document: the query with each window that is to be scored."""
    if max_length is None:
        return {pair: [pair] for pair in pairs}
    queries = list(dict.fromkeys(query for query, _ in pairs))
    room = {}
    for query, (size, _) in zip(queries, _tokens(reranker, queries), strict=True):
        room[query] = reranker.room(max_length) - size
        if room[query] < 1:
            raise ValueError(
                f"The query {query[:60]!r} has {size} tokens, which leaves no room for a document in max_length="
                f"{max_length}: raise the teacher's max_length if it allows it, or shorten the query."
            )
    queries_of: dict[str, list[str]] = {}
    for query, document in pairs:
        queries_of.setdefault(document, []).append(query)
    read: dict[Pair, list[Pair]] = {}
    num_long = 0
    documents = list(queries_of)
    for document, (size, offsets) in zip(documents, _tokens(reranker, documents), strict=True):
        for query in queries_of[document]:
            parts = [document]
            if size > room[query]:
                num_long += 1
                starts = _starts(size, room[query], windows)
                if offsets is not None:
                    parts = [document[offsets[s][0] : offsets[s + room[query] - 1][1]] for s in starts]
                elif windows != "first":
                    raise ValueError(
                        f"windows={windows!r} needs to know which text a token stands for, which the tokenizer "
                        f"{type(reranker.processing_class).__name__} does not tell: use windows='first'."
                    )
            read[query, document] = [(query, part) for part in parts]
    if num_long and windows == "first":
        logger.warning(
            f"{num_long} of {len(pairs)} documents are longer than what max_length={max_length} leaves next to their "
            "query, and only their first window is scored: raise the teacher's max_length, or pass windows='best', if "
            "their ends matter."
        )
    elif num_long:
        num_windows = sum(len(parts) for parts in read.values()) - (len(pairs) - num_long)
        logger.info(
            f"{num_long} of {len(pairs)} documents are longer than what max_length={max_length} leaves next to their "
            f"query, and are scored by the best of their {num_windows} windows"
        )
    return read


def _starts(size: int, room: int, windows: str) -> list[int]:
    """The first tokens of the windows of a document that is too long."""
    return [0] if windows == "first" else [*range(0, size - room, room), size - room]


def _tokens(reranker: Reranker, texts: list[str]) -> Iterator[tuple[int, list[tuple[int, int]] | None]]:
    """For each text the number of its tokens, and which characters each stands for, if the tokenizer knows it."""
    tokenizer = reranker.processing_class
    for start in range(0, len(texts), DOCUMENTS_PER_BATCH):
        encoded = tokenizer(
            texts[start : start + DOCUMENTS_PER_BATCH],
            add_special_tokens=False,
            return_attention_mask=False,
            return_offsets_mapping=tokenizer.is_fast,
            verbose=False,
        )
        sizes = [len(ids) for ids in encoded["input_ids"]]
        yield from zip(sizes, encoded.get("offset_mapping", [None] * len(sizes)), strict=True)


def embed_rankings(
    encoder: PreTrainedModel,
    rankings: Rankings,
    *,
    processing_class: PreTrainedTokenizerBase,
    batch_size: int = 64,
    max_length: int | None = None,
    chunk_size: int | None = None,
    chunk_processing_class: PreTrainedTokenizerBase | None = None,
    device: str | torch.device | None = None,
    show_progress: bool = True,
) -> Rankings:
    """
    Adds the embeddings of a bi-encoder to queries and their candidates, for the `similarity_weight` of
    [`RankingTrainer`], or with a `chunk_size` for its `anchor_weight`. The prompts of the bi-encoder are put before
    the texts.

    Args:
        encoder (`PreTrainedModel`):
            Any model that [`encode`] accepts. Its tokenizer may differ from that of the student.
        rankings ([`Rankings`]):
            The queries and their candidates.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the encoder.
        batch_size (`int`, *optional*, defaults to 64):
            Maximum number of texts per batch.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to the `model_max_length` of the tokenizer.
        chunk_size (`int`, *optional*):
            Embed each chunk of at most this many tokens of a document alone, instead of the document.
        chunk_processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer that splits the documents, that of the student. Defaults to `processing_class`.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of the encoder.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.

    Returns:
        [`Rankings`]: queries and corpus with the column `embeddings`, or `chunk_embeddings` of the corpus with a
        `chunk_size`. Documents that are no candidates are left out.

    Raises:
        `ValueError`: if an embedding is NaN or infinite.

    Example:

    ```python
    >>> from transformers import AutoModel, AutoTokenizer
    >>> from hf_dse import embed_rankings, make_rankings

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> encoder, tokenizer = AutoModel.from_pretrained(name), AutoTokenizer.from_pretrained(name)
    >>> corpus = {"text": ["The cat sleeps.", "A new house.", "Rain."]}
    >>> rankings = make_rankings({"query": ["Where is the cat?"], "documents": [[0, 1]]}, corpus)
    >>> embedded = embed_rankings(encoder, rankings, processing_class=tokenizer, show_progress=False)
    >>> len(embedded.corpus), len(embedded.queries["embeddings"][0])
    (2, 384)
    ```
    """
    rankings = keep_documents(rankings)
    options: dict[str, Any] = {"batch_size": batch_size, "max_length": max_length, "device": device}
    options["show_progress"] = show_progress
    queries = encode_query(encoder, processing_class, rankings.queries["query"][:], **options)
    texts = rankings.corpus["text"][:]
    if chunk_size is None:
        vectors = encode_document(encoder, processing_class, texts, **options)
        corpus = _with_column(rankings.corpus, "embeddings", _as_rows(vectors))
    else:
        splitter = chunk_processing_class or processing_class
        chunks = [split_text(text, splitter, chunk_size) if text.strip() else [] for text in texts]
        vectors = encode_document(encoder, processing_class, [chunk for parts in chunks for chunk in parts], **options)
        ends = np.cumsum([0, *map(len, chunks)], dtype=np.int32)
        rows = pyarrow.ListArray.from_arrays(pyarrow.array(ends), _as_rows(vectors))
        corpus = _with_column(rankings.corpus, "chunk_embeddings", rows)
    return Rankings(_with_column(rankings.queries, "embeddings", _as_rows(queries)), corpus)


def _as_rows(vectors: np.ndarray) -> pyarrow.Array:
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])


def _with_column(part: Dataset, name: str, rows: pyarrow.Array) -> Dataset:
    """A dataset with a column, which replaces an earlier one."""
    if name in part.column_names:
        part = part.remove_columns(name)
    # Selected rows are not those of the table behind them.
    return concatenate_datasets([part.flatten_indices(), Dataset(pyarrow.table({name: rows}))], axis=1)


def check_scores(rankings: Rankings, name: str = "The teacher", *, are_raw: bool = False) -> None:
    """
    Checks the scores of a teacher before a student learns from them.

    Warns if all scores lie between 0 and 1, as those that went through a sigmoid do, and if the documents that are
    known to be relevant score lower than the other candidates.

    Args:
        rankings ([`Rankings`]):
            Queries with `teacher_logits`.
        name (`str`, *optional*, defaults to `"The teacher"`):
            Who made the scores, for the messages.
        are_raw (`bool`, *optional*, defaults to `False`):
            Whether they are known not to come from a sigmoid: cosines of a bi-encoder, or logits that were just made,
            may all lie between 0 and 1.

    Raises:
        `ValueError`: if there are no scores, or all are equal.
    """
    if not rankings.has_scores:
        raise ValueError(f"{name} has no scores: add them with `score_candidates` or `hf-dse score`.")
    check_score_lists(rankings.queries["teacher_logits"][:], rankings.queries["labels"][:], name, are_raw)


def check_score_lists(
    scores: list[list[float]], relevance: list[list[float]], name: str, are_raw: bool = False
) -> None:
    """[`check_scores`] for lists, one for each query; what is unknown is NaN."""
    logits, labels = ([np.array(row, dtype=float) for row in lists] for lists in (scores, relevance))
    known = np.concatenate([row[~np.isnan(row)] for row in logits])
    if not known.size or np.ptp(known) == 0:
        raise ValueError(f"{name}: all {known.size} scores are equal, so there is nothing to learn from them.")
    if not are_raw and known.min() >= 0 and known.max() <= 1:
        logger.warning(
            f"{name}: all scores lie between {known.min():.3g} and {known.max():.3g}, as after a sigmoid, which hides "
            "how much better one document is than another: distil raw logits, which `hf-dse score` writes (in "
            "sentence-transformers, `predict(..., activation_fn=torch.nn.Identity())`). Cosines are fine."
        )
    _warn_of_order(logits, labels, name, "another candidate")


def check_teacher(
    reranker: Reranker, rankings: Rankings, name: str, max_length: int | None, cache_dir: str | Path | None = None
) -> None:
    """
    Warns if the documents that are known to be relevant for some queries score lower than random ones of the corpus,
    before hours of scoring. Longer documents are cut to `max_length`.
    """
    draw = np.random.default_rng(0)
    texts, positives = rankings.corpus["text"], rankings.positives()
    judged = draw.permutation([row for row, known in enumerate(positives) if known])[:CHECKED_QUERIES].tolist()
    lists: list[list[Pair]] = []
    for row in judged:
        candidates = rankings.queries["documents"][row]
        others = [other for other in draw.integers(len(texts), size=8).tolist() if other not in candidates]
        rows = dict.fromkeys([positives[row][0], *others[:2]])
        lists.append([(rankings.queries["query"][row], texts[document]) for document in rows])
    logits = score_texts(
        reranker,
        list(dict.fromkeys(pair for pairs in lists for pair in pairs)),
        batch_size=CHECKED_QUERIES,
        max_length=reranker.check_max_length(max_length),
        cache_dir=cache_dir,
        description="Checking the teacher",
        show_progress=False,
    )
    scores = [np.array([_relevance(logits[pair]) for pair in pairs]) for pairs in lists]
    labels = [np.array([1.0] + [0.0] * (len(pairs) - 1)) for pairs in lists]
    _warn_of_order(scores, labels, name, "a random one of the corpus")


def _relevance(logits: Sequence[float]) -> float:
    """Of two logits the second is that of "relevant"."""
    return logits[-1] - (logits[0] if len(logits) == 2 else 0.0)


def _warn_of_order(logits: Iterable[np.ndarray], labels: Iterable[np.ndarray], name: str, others: str) -> None:
    wins = [share for row in zip(logits, labels, strict=True) if (share := _share_of_wins(*row)) is not None]
    if wins and np.mean(wins) < 0.5:
        logger.warning(
            f"{name}: over {len(wins)} queries, a relevant document scores higher than {others} in only "
            f"{100 * np.mean(wins):.0f} % of the cases: the teacher is not one for this task, or its scores have the "
            "wrong sign."
        )


def _share_of_wins(scores: np.ndarray, labels: np.ndarray) -> float | None:
    """How often a relevant document has a higher score than another candidate; a tie counts half."""
    relevant, others = (scores[part & ~np.isnan(scores)] for part in (labels > 0, ~(labels > 0)))
    if not relevant.size or not others.size:
        return None
    differences = relevant[:, None] - others
    return float(np.mean((differences > 0) + 0.5 * (differences == 0)))


def rerank(
    reranker: Reranker, queries: list[str], texts: list[str], hits: list[list[Hit]], batch_size: int
) -> list[list[Hit]]:
    """Orders what was found for each query by the scores of a reranker, which reads all of a text."""
    positions = sorted({position for found in hits for _, position in found})
    row_of = {position: row for row, position in enumerate(positions)}
    documents = [[row_of[position] for _, position in found] for found in hits]
    corpus = {"text": [texts[position] for position in positions]}
    rankings = make_rankings({"query": queries, "documents": documents}, corpus, "The queries")
    scored = score_candidates(reranker, rankings, batch_size=batch_size, windows="best")
    return [
        sorted(
            (({"rerank": logit} | scores, position) for logit, (scores, position) in zip(logits, found, strict=True)),
            key=lambda hit: -hit[0]["rerank"],
        )
        for logits, found in zip(scored.queries["teacher_logits"][:], hits, strict=True)
    ]
