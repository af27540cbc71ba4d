# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The index of a corpus: its texts with their passages, vectors and words, and every search in it."""

import functools
import hashlib
import json
import math
import struct
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import ExitStack
from functools import cached_property, partial
from itertools import accumulate, chain, islice
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from datasets import Dataset
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.cache import Cache, open_cache
from hf_dse.common.files import to_path, wait_for_lock, write_atomically
from hf_dse.common.loading import named
from hf_dse.common.options import check_at_least
from hf_dse.common.settings import settings_of
from hf_dse.data.passages import with_titles
from hf_dse.data.rankings import Rankings, bodies_of, check_ids, to_lists
from hf_dse.data.tables import check_rows, is_filled, shorten
from hf_dse.data.tokenization import warn_of_texts
from hf_dse.retrieval.blend import blend
from hf_dse.retrieval.bm25 import Words, has_bm25, import_bm25, keep_words, number_groups
from hf_dse.retrieval.graph import dtype_of, graph_of
from hf_dse.retrieval.options import RERANK_WEIGHT, RERANKED, check_reranking
from hf_dse.retrieval.rerankers import Reranker, load_reranker, rerank
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import (
    check_finite,
    embed,
    fingerprint_of,
    length_of,
    list_texts,
    prompt_of,
    room_of,
    similarity_of,
    split_texts,
    title_room,
    to_sentence_transformer,
)


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer
    from transformers import PreTrainedModel, PreTrainedTokenizerBase

logger = logging.get_logger(__name__)

# The files of an index.
VECTORS, TEXTS, INDEX = "vectors.sqlite", "texts.parquet", "index.json"
TEXTS_PER_COMMIT = 1024
# How a number of a vector is kept.
VECTOR = np.dtype("<f4")

# The scores of documents by query id.
Run = dict[str, dict[str, float]]
# Where the passages of a text end, and their vectors.
Entry = tuple[list[int], np.ndarray]


def _locked(method: Callable[..., Any]) -> Callable[..., Any]:
    """A method that sees one corpus from its start to its end, also where another thread updates the index."""

    @functools.wraps(method)
    def call(self: "Index", *args: Any, **options: Any) -> Any:
        with self._lock:
            return method(self, *args, **options)

    return call


class Index:
    """
    A corpus to search in: texts, their passages, and the vectors and words of these, which are made once, when they
    are first needed. Several threads can use it, one at a time. The model and its tokenizer are left as they are.

    Args:
        model (`SentenceTransformer`, `PreTrainedModel` or `str`):
            The model, as [`to_sentence_transformer`] takes it; a name is loaded in bfloat16 on a GPU or CPU that
            computes in it, otherwise in float32. Queries and texts get its prompts. Without one (`None`) only `run` by
            words works.
        texts (`Sequence[str]`):
            The texts. Blank ones are never found.
        ids (`Sequence[str]`, *optional*):
            A name of each text, which hits have too.
        groups (`Sequence`, *optional*):
            Which document each text is a passage of: of each document only the best passage is found.
        chunk_size (`int`, *optional*, defaults to 0):
            Split texts into passages of at most so many tokens, which are read after the title of their text; a text
            is found by its best passage. 0: whole texts, of which the first tokens are read.
        cache_dir (`str` or `Path`, *optional*):
            Folder that keeps vectors and words, so that only new texts are embedded.
        vectors (`np.ndarray` of shape `(num_texts, embedding_size)`, *optional*):
            The vectors of whole texts by `model.encode_document`.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of a `PreTrainedModel`.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text or passage. Defaults to the lengths of the model.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.

    Example:

    ```python
    >>> from hf_dse import Index

    >>> texts = ["Rain again.", "The kitten is asleep.", "My dog sleeps."]
    >>> index = Index("sentence-transformers/all-MiniLM-L6-v2", texts, show_progress=False)
    >>> (hits,) = index.search(["A cat rests."], bm25_weight=0.3)
    >>> hits[0]["text"], index.search(["Is it wet outside?"])[0][0]["row"]
    ('The kitten is asleep.', 0)
    ```
    """

    def __init__(
        self,
        model: "SentenceTransformer | PreTrainedModel | str | PathLike | None",
        texts: Sequence[str],
        *,
        ids: Sequence[str] | None = None,
        groups: Sequence | None = None,
        chunk_size: int = 0,
        cache_dir: str | PathLike | None = None,
        vectors: np.ndarray | None = None,
        processing_class: "PreTrainedTokenizerBase | None" = None,
        max_length: int | None = None,
        batch_size: int = 32,
        show_progress: bool = True,
    ):
        check_at_least(0, chunk_size=chunk_size)
        if model is None and (chunk_size or vectors is not None):
            raise ValueError("`chunk_size` and `vectors` need a model: pass one, or leave them out.")
        if chunk_size and vectors is not None:
            raise ValueError(f"chunk_size={chunk_size}, and `vectors` are those of whole texts: leave one out.")
        self.model: Any = None
        self.chunk_size = chunk_size
        if model is not None:
            fastest = named(model, {"dtype": "auto"})
            self.model = to_sentence_transformer(model, processing_class, max_length=max_length, **fastest)
            self.similarity = similarity_of(self.model)
            # The adapters of a model are copied with it, and the weights are the caller's.
            self._weights = [weight for weight in self.model.parameters() if not weight.is_inference()]
            self._versions = self._count_changes()
            self._title_room = title_room(self.model, chunk_size)
        self.folder = None if cache_dir is None else to_path(cache_dir)
        self.batch_size = batch_size
        self.show_progress = show_progress
        # Guards the tokenizer, and everything that is made once.
        self._lock = threading.RLock()
        self._kept: dict[str, Entry] = {}
        self._vectors: np.ndarray | None = None
        self._words: Words | None = None
        self._corpus: Dataset | None = None
        self._read(texts, ids, groups)
        if vectors is not None:
            vectors = np.asarray(torch.as_tensor(vectors).float().cpu())
            _check_size("vectors", vectors, self.texts)
            if vectors.ndim != 2:
                raise ValueError(f"`vectors` has the shape {vectors.shape}, not (num_texts, embedding_size).")
            check_finite("vectors", vectors)
            self._vectors = self._comparable(vectors[self.text_of])

    @classmethod
    def of(cls, model: Any, rankings: Rankings, chunk_size: int | None = None, **options: Any) -> "Index":
        """The corpus of rankings in their unit, or in passages of `chunk_size`; `options` are those of an index."""
        ids, groups = rankings.corpus["doc_id"][:], rankings.document_ids
        # Passages are split already.
        size = 0 if rankings.has_passages else rankings.chunk_size if chunk_size is None else chunk_size
        index = cls(model, rankings.corpus["text"][:], ids=ids, groups=groups, chunk_size=size or 0, **options)
        if rankings.has_passages:
            # Their titles do not count again for each.
            bodies = bodies_of(rankings.corpus)
            index.passages = [bodies[row] for row in index.text_of]
        return index

    def _read(self, texts: Sequence[str], ids: Sequence[str] | None, groups: Sequence | None) -> None:
        found = list_texts(texts)
        ids, groups = (_to_names(name, values, found) for name, values in (("ids", ids), ("groups", groups)))
        self.texts, self.ids = found, ids
        # The number of the document of each text.
        self.groups = np.arange(len(self.texts)) if groups is None else number_groups(groups)
        num_without = 0 if groups is None else sum(value is None or value != value for value in groups)
        if num_without > 1:
            logger.warning(
                f"{num_without} of {len(found)} texts have no group, so they are one document, of which the best "
                "passage is found: give each text without a document a group of its own."
            )
        self._vectors = self._words = self._corpus = None
        self._split()
        # Blank ones have no passages.
        if num_blank := self._ends.count([]):
            logger.warning(f"{num_blank} of {len(self.texts)} texts are blank and are left out.")

    def _check_model(self) -> None:
        if self.model is None:
            raise ValueError(
                "This needs a model, and the index has none: pass one to `Index`. Without a model only "
                "`Index.run(..., by_words=True)` works."
            )
        if self._count_changes() != self._versions:
            raise ValueError("The model has learned since this index was made: make another one.")

    def _count_changes(self) -> list[int]:
        return [weight._version for weight in self._weights]

    def __len__(self) -> int:
        return len(self.texts)

    def __repr__(self) -> str:
        return f"Index({self.unit})"

    @property
    def unit(self) -> str:
        """Description of the corpus, such as "219 documents, 11,628 passages of at most 128 tokens"."""
        num_documents = len(np.unique(self.groups))
        documents = f"{num_documents:,} documents"
        if self.chunk_size:
            size = int(min(self.chunk_size, room_of(self.model)))
            return f"{documents}, {len(self.passages):,} passages of at most {size} tokens"
        return documents if num_documents == len(self) else f"{documents}, {len(self):,} passages"

    # Made once

    def _split(self) -> None:
        """Finds the passages of the texts: those that are kept, and those of new texts."""
        wanted = dict.fromkeys(self.texts)
        ends = {text: entry[0] for text, entry in self._kept.items() if text in wanted}
        # Whole texts end where they end.
        if self.folder is not None and self.chunk_size:
            with open_cache(self.folder / VECTORS) as cache:
                ends |= {text: entry[0] for text, entry in self._read_entries(cache, wanted.keys() - ends.keys())}
        new = [text for text in wanted if text not in ends]
        for text, parts in zip(new, split_texts(self.model, new, self.chunk_size), strict=True):
            ends[text] = list(accumulate(map(len, parts)))
        self._ends = [ends[text] for text in self.texts]
        # Where the passages of each text begin among all, the row of the text of each, and the number of its document.
        self._bounds = [0, *accumulate(map(len, self._ends))]
        self.text_of = np.repeat(np.arange(len(self)), np.diff(self._bounds))
        self.document_of = number_groups(self.groups[self.text_of])
        # The passages, and the characters at which they start.
        self.passages: list[str] = []
        self.starts: list[int] = []
        # What models read of the texts that were asked for, because finding a title may take a millisecond.
        self._reads: dict[int, list[str]] = {}
        for text, last in zip(self.texts, self._ends, strict=True):
            start = 0
            for end in last:
                self.starts.append(start)
                self.passages.append(text[start:end])
                start = end

    def _span(self, row: int) -> slice:
        """Where the passages of a text are among all."""
        return slice(self._bounds[row], self._bounds[row + 1])

    def _read_text(self, row: int) -> list[str]:
        """What a model reads of a text: its passages, after its title."""
        if not self.chunk_size:
            return [self.texts[row]] * len(self._ends[row])
        return with_titles(self.texts[row], self.passages[self._span(row)], self._title_room)

    def read(self, place: int) -> str:
        """What a model reads of a passage, which stands after the title of its text."""
        row = int(self.text_of[place])
        if row not in self._reads:
            self._reads[row] = self._read_text(row)
        return self._reads[row][place - self._bounds[row]]

    @property
    def vectors(self) -> np.ndarray:
        """The vectors of the passages (float32), `(num_passages, size)`, of length 1 where cosines are compared."""
        self._check_model()
        with self._lock:
            if self._vectors is None:
                self._vectors = self._comparable(self._embed())
                self._kept = {}
            return self._vectors

    @property
    def words(self) -> Words:
        """The words of the passages, and of their documents."""
        with self._lock:
            if self._words is None:
                self._words = Words(self.passages, self.document_of, self.folder)
            return self._words

    def _comparable(self, vectors: np.ndarray) -> np.ndarray:
        if self.similarity == "cosine":
            matrix = torch.from_numpy(vectors)
            matrix /= matrix.norm(dim=1, keepdim=True).clamp(min=1e-12)
        return vectors

    def _embed(self) -> np.ndarray:
        """One matrix of the vectors that are kept, and of those of new texts, which one process at a time embeds."""
        matrix = np.empty((len(self.passages), self.model.get_embedding_dimension()), np.float32)
        rows: dict[str, int] = {}
        # For each text the first row of its copies.
        firsts = [rows.setdefault(text, row) for row, text in enumerate(self.texts)]
        missing, bounds = dict.fromkeys(rows), self._bounds
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress": False}

        def take(entries: Iterable[tuple[str, Entry]]) -> None:
            for text, (_, vectors) in entries:
                if text in missing:
                    del missing[text]
                    matrix[bounds[rows[text]] : bounds[rows[text] + 1]] = vectors

        take(self._kept.items())
        with ExitStack() as stack:
            cache = None
            if self.folder is not None:
                cache = stack.enter_context(open_cache(self.folder / VECTORS))
                take(self._read_entries(cache, list(missing)))
                if missing:
                    stack.enter_context(wait_for_lock(self.folder))
                    # Another process may have embedded them meanwhile.
                    take(self._read_entries(cache, list(missing)))
            new = [rows[text] for text in missing]
            texts = [part for row in new for part in self._read_text(row)]
            limit, prompt = length_of(self.model, "document"), prompt_of(self.model, "document")
            warn_of_texts(self.model.tokenizer, texts, limit, prompt)
            read = iter(texts)
            with tqdm(total=len(new), desc="Embedding", unit="text", disable=not self.show_progress) as progress:
                for start in range(0, len(new), TEXTS_PER_COMMIT):
                    group = new[start : start + TEXTS_PER_COMMIT]
                    sizes = [len(self._ends[row]) for row in group]
                    vectors = embed(self.model, list(islice(read, sum(sizes))), "document", warn=False, **options)
                    parts = zip(group, np.split(vectors, np.cumsum(sizes)[:-1]), strict=True)
                    entries = {self.texts[row]: (self._ends[row], found) for row, found in parts}
                    take(entries.items())
                    if cache is not None:
                        self._write_entries(cache, entries)
                    progress.update(len(group))
            counts = [sum(bool(self._ends[row]) for row in texts) for texts in (new, rows.values())]
            logger.info("{:,} of {:,} texts are new or changed, and were embedded".format(*counts))
        for row, first in enumerate(firsts):
            if first < row:
                matrix[self._span(row)] = matrix[self._span(first)]
        return matrix

    # Searching

    @_locked
    def search(
        self,
        queries: Sequence[str],
        top_k: int = 10,
        *,
        bm25_weight: float | None = None,
        reranker: "CrossEncoder | Reranker | str | PathLike | None" = None,
        rerank_top: int | None = None,
        rerank_weight: float | None = None,
    ) -> list[list[dict[str, Any]]]:
        """
        Ranks texts for queries: by their vectors, with BM25 added to the cosine, and with the scores of a reranker.
        The search is exact. Of equal scores that of the earlier text comes first.

        Args:
            queries (`Sequence[str]`):
                The queries.
            top_k (`int`, *optional*, defaults to 10):
                Number of texts to return per query.
            bm25_weight (`float`, *optional*):
                Weight of BM25 beside the cosine, known as hybrid search. Defaults to that which was fitted for the
                model and is kept in its folder, else to 0. The text with the best BM25 of a query gets so much, and
                every other text its share. 0.3 is a good start, and 0.6 for passages of long documents, of which half
                is the score of the whole document. [Bruch et al., 2022](https://huggingface.co/papers/2210.11934)
                found such sums better than a fusion of ranks.
            reranker (`CrossEncoder`, `str` or `Callable`, *optional*):
                Orders the best passages of each query: a `CrossEncoder`, or its folder or Hub id, as
                [`load_reranker`] takes them; or a function of the queries and their passages, which returns a number
                for each passage of each query; those without one (`None`, NaN or minus infinity) come last. A longer
                text has the score of its best window.
            rerank_top (`int`, *optional*):
                How many texts of each query the reranker reads, at least `top_k`. Defaults to 50.
            rerank_weight (`float`, *optional*):
                Share of the reranker's score beside that of the search, see [`blend`]: 1 is its order alone, which
                may throw away what the search knew, 0 that of the search. Defaults to 0.5; [`assess`] fits it. Each
                counts by the mean spread of its scores over the queries of the call, as in [`assess`]; one query alone
                has its own, so its order may be another.

        Returns:
            `list[list[dict]]`: for each query the best texts, the best first: `score`, `row` (the place in the texts),
            `id` if there are ids, `text` (the best passage), `start` (the character at which it starts in its text),
            and with a reranker `rerank`, its score, and `blend`, that of both, by which they are ordered.
        """
        queries = list_texts(queries)
        bm25_weight = self.bm25_weight if bm25_weight is None else bm25_weight
        self.check(queries, bm25_weight)
        check_at_least(1, top_k=top_k, rerank_top=rerank_top)
        check_reranking(reranker, rerank_top=rerank_top, rerank_weight=rerank_weight)
        rerank_weight = RERANK_WEIGHT if rerank_weight is None else rerank_weight
        if not 0 <= rerank_weight <= 1:
            raise ValueError(f"rerank_weight={rerank_weight}: it has to be between 0 and 1.")
        score: Any = reranker
        # An embedding model can be called too.
        if isinstance(reranker, str | PathLike) or hasattr(reranker, "predict") or hasattr(reranker, "encode"):
            # A head that its checkpoint lacks is refused before the texts are embedded.
            loaded = load_reranker(reranker)  # type: ignore[arg-type]
            # Only fast tokenizers tell where windows begin.
            windows = "best" if loaded.tokenizer.is_fast else "first"
            options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress": self.show_progress}
            score = partial(rerank, loaded, windows=windows, **options)
        found = self.find(queries, top_k if reranker is None else max(top_k, rerank_top or RERANKED), bm25_weight)
        hits = [[self._hit(*pair) for pair in zip(*row, strict=True)] for row in zip(*found, strict=True)]
        if reranker is not None:
            read = [list(map(self.read, row)) for row in found[1].tolist()]
            scores = _to_scores(score(queries, read), read)
            blended = blend(
                [scores, [[hit["score"] for hit in row] for row in hits]], [rerank_weight, 1 - rerank_weight]
            )
            for row, *columns in zip(hits, scores, blended, strict=True):
                for hit, value, mixed in zip(row, *columns, strict=True):
                    hit |= {"rerank": float(value), "blend": mixed}
                # What has no score comes last.
                row.sort(key=lambda hit: (math.isnan(hit["blend"]), -hit["blend"]))
        return [row[:top_k] for row in hits]

    @cached_property
    def bm25_weight(self) -> float:
        """The weight of BM25 beside the cosine that is kept in the folder of the model; 0 without one or BM25."""
        self._check_model()
        return kept_weight(self.model)

    def _hit(self, score: np.float32, position: np.int64) -> dict[str, Any]:
        row = int(self.text_of[position])
        name = {} if self.ids is None else {"id": self.ids[row]}
        place = {"text": self.passages[position], "start": self.starts[position]}
        return {"score": float(score), "row": row, **name, **place}

    def check(self, queries: Sequence[str], bm25_weight: float = 0.0) -> None:
        """Fails for queries and options that do not fit, before a corpus is embedded."""
        self._check_model()
        check_rows(list_texts(queries), is_filled, "The queries", "the query is {}, not a text")
        if not 0 <= bm25_weight < math.inf:
            raise ValueError(f"bm25_weight={bm25_weight}: it has to be a finite number of at least 0.")
        if bm25_weight:
            import_bm25()
            if self.similarity == "dot":
                raise ValueError("BM25 is added to the cosine, and this model is made for dot products: leave it out.")

    def find(
        self,
        queries: Sequence[str],
        top_k: int,
        bm25_weight: float = 0.0,
        *,
        by_words: bool = False,
        vectors: np.ndarray | None = None,
    ) -> tuple[np.ndarray, np.ndarray]:
        """
        The best documents of each query, the best first: their scores (float32) and the positions of their best
        passages, `(num_queries, number)`. `by_words` ranks by BM25 alone; a document that shares no word with the
        query has the position -1. `vectors` are those of [`Index.encode_queries`], if they are there already.
        """
        if by_words:
            nothing, found = np.zeros((len(queries), 1)), self.words.scores(queries)
            none = np.zeros((len(self.passages), 1))
            scores, positions = nearest(nothing, none, top_k, added_scores=found, groups=self.document_of)
            return scores, np.where(scores > 0, positions, -1)
        added = self.words.scores(queries, bm25_weight) if bm25_weight else None
        vectors = self.encode_queries(queries) if vectors is None else vectors
        options: dict[str, Any] = {"groups": self.document_of, "show_progress": self.show_progress}
        return nearest(vectors, self.vectors, top_k, added_scores=added, device=self.model.device, **options)

    @_locked
    def encode_queries(self, queries: Sequence[str]) -> np.ndarray:
        """The vectors of queries (float32), `(num_queries, size)`, of length 1 where cosines are compared."""
        self._check_model()
        options: dict[str, Any] = {"batch_size": self.batch_size, "show_progress": False}
        return self._comparable(embed(self.model, queries, "query", **options))

    @_locked
    def scores(self, queries: Sequence[str], lists: Sequence[Iterable[int]]) -> list[list[float]]:
        """For each query the scores of the texts of these rows, each by its best passage; 0 for a blank text."""
        matrix, found = self.vectors, []
        for query, rows in zip(self.encode_queries(queries), lists, strict=True):
            values = [matrix[self._span(row)] @ query for row in rows]
            found.append([float(of.max()) if len(of) else 0.0 for of in values])
        return found

    @_locked
    def ranked(
        self, rankings: Rankings, depth: int = 100, bm25_weight: float = 0.0, **how: Any
    ) -> dict[str, list[tuple[str, float, int]]]:
        """
        What is found for queries whose corpus is that of the index: by query id, the ids of the best documents, their
        scores, and the positions of their best passages. A document that has the id of the query and contains its text
        is the query itself, and is left out unless it is relevant. `how` are options of [`Index.find`].
        """
        queries, names = rankings.queries["query"][:], rankings.document_ids
        is_own = rankings.corpus is self._corpus or rankings.corpus["text"][:] == self.texts
        if not is_own:
            raise ValueError(
                f"The corpus of the rankings has {len(names)} texts, and the index {len(self)}, which are others or "
                "in another order: pass its own."
            )
        # Compared once, because a weight is fitted by many searches.
        self._corpus = rankings.corpus
        # One more, because the query itself may be found.
        found = self.find(queries, depth + 1, bm25_weight, **how)
        rows_of: dict[str, list[int]] = {}
        for row, name in enumerate(names):
            rows_of.setdefault(name, []).append(row)
        result = {}
        columns = (rankings.queries["query_id"][:], queries, rankings.positives(), *(part.tolist() for part in found))
        for query_id, query, positives, scores, positions in zip(*columns, strict=True):
            own = rows_of.get(query_id, [])
            if set(own) & set(positives) or not any(query in self.texts[row] for row in own):
                own = []
            best: dict[str, tuple[str, float, int]] = {}
            for score, place in zip(scores, positions, strict=True):
                row = int(self.text_of[place])
                if place >= 0 and row not in own:
                    best.setdefault(names[row], (names[row], score, place))
            result[query_id] = list(best.values())[:depth]
        return result

    def run(self, rankings: Rankings, depth: int = 100, bm25_weight: float = 0.0, *, by_words: bool = False) -> Run:
        """
        The scores of the best documents of each query, the best first, as measures of rankings take them.

        Args:
            rankings ([`Rankings`]):
                The queries; the texts of the index are their corpus.
            depth (`int`, *optional*, defaults to 100):
                Number of documents per query.
            bm25_weight (`float`, *optional*, defaults to 0.0):
                Weight of BM25 beside the cosine.
            by_words (`bool`, *optional*, defaults to `False`):
                Whether BM25 alone counts. Documents that share no word with a query are not found.

        Returns:
            `dict[str, dict[str, float]]`: the scores by the ids of the query and of the document.
        """
        check_at_least(0, depth=depth)
        if not by_words:
            self.check(rankings.queries["query"][:], bm25_weight)
        return run_of(self.ranked(rankings, depth, bm25_weight, by_words=by_words))

    # Keeping

    def prune(self) -> None:
        """Deletes what the folder of the index keeps of other texts, models and units."""
        if self.folder is not None and self.model is not None:
            with self._lock, open_cache(self.folder / VECTORS) as cache:
                cache.drop_others(self._stored(self.texts))
            if self._words is not None:
                keep_words(self.folder, self._words)

    @_locked
    def update(
        self, texts: Sequence[str], *, ids: Sequence[str] | None = None, groups: Sequence | None = None
    ) -> None:
        """Puts other texts in the place of those of the index. Only what is new is embedded."""
        before = dict(vars(self))
        try:
            self._kept = self._kept if self._vectors is None else self._entries()
            self._read(texts, ids, groups)
        except BaseException:
            # Also an interrupt: half of an update would give texts the vectors of others.
            vars(self).update(before)
            raise

    def _entries(self) -> dict[str, Entry]:
        vectors = self.vectors
        return {text: (self._ends[row], vectors[self._span(row)]) for row, text in enumerate(self.texts)}

    @_locked
    def save(self, folder: str | PathLike) -> None:
        """Writes the texts with their ids and groups, the vectors and the words; [`Index.load`] reads them."""
        path = to_path(folder)
        columns: dict[str, Any] = {"text": self.texts, "group": self.groups.tolist(), "id": self.ids}
        kinds = {type(name) for name in self.ids or [""]}
        if kinds not in ({str}, {int}):
            names = ", ".join(sorted(kind.__name__ for kind in kinds))
            raise TypeError(f"The ids are of the types {names}: to be saved, all have to be texts, or whole numbers.")
        table = pyarrow.table({name: values for name, values in columns.items() if values is not None})
        # Before anything is written, because the model may have learned since.
        entries = self._entries()
        with open_cache(path / VECTORS) as cache:
            self._write_entries(cache, entries)
            cache.drop_others(self._stored(self.texts))
        if self._words is not None:
            keep_words(path, self._words)
        write_atomically(path / TEXTS, partial(pyarrow.parquet.write_table, table))
        settings = {"chunk_size": self.chunk_size, "made_by": hashlib.sha256(self._settings).hexdigest()}
        graph = graph_of(self.model)
        settings |= {"dtype": dtype_of(self.model), "backend": "torch" if graph is None else graph.backend}
        write_atomically(path / INDEX, lambda file: file.write(json.dumps(settings).encode()))

    @classmethod
    def load(cls, folder: str | PathLike, model: Any, **options: Any) -> "Index":
        """
        Reads an index that [`Index.save`] wrote.

        Args:
            folder (`str` or `Path`):
                The folder.
            model (`SentenceTransformer`, `PreTrainedModel` or `str`):
                The model that made the vectors, loaded with their backend and data type if it is a name. Another one
                is an error.
            options (*optional*):
                `processing_class`, `max_length`, `batch_size` and `show_progress` of an [`Index`].
        """
        path = to_path(folder)
        if not (path / INDEX).is_file():
            raise FileNotFoundError(f"{folder} holds no index: write one with `Index.save`.")
        settings = json.loads((path / INDEX).read_text(encoding="utf-8"))
        with pyarrow.parquet.ParquetFile(path / TEXTS) as file:
            columns = file.read().to_pydict()
        if isinstance(model, str | PathLike):
            model = to_sentence_transformer(model, dtype=settings["dtype"], backend=settings["backend"])
        index = cls(model, [], chunk_size=settings["chunk_size"], cache_dir=folder, **options)
        if hashlib.sha256(index._settings).hexdigest() != settings["made_by"]:
            raise ValueError(
                f"{folder} was made by another model, or with another prompt, length, backend or data type "
                f"({settings['backend']}, {settings['dtype']}) than given: pass the same, or make the index anew with "
                "`Index(...).save`."
            )
        index.update(columns["text"], ids=columns.get("id"), groups=columns["group"])
        return index

    @cached_property
    def _settings(self) -> bytes:
        """The model, its reading of a text, and the unit: vectors of other settings differ."""
        read = [prompt_of(self.model, "document"), length_of(self.model, "document"), self.chunk_size, self.similarity]
        return json.dumps([fingerprint_of(self.model), *read]).encode()

    def _stored(self, texts: Iterable[str]) -> dict[bytes, str]:
        """Texts by the keys under which a folder keeps their vectors."""
        return {hashlib.sha256(self._settings + text.encode()).digest(): text for text in texts}

    def _read_entries(self, cache: Cache, texts: Iterable[str]) -> Iterator[tuple[str, Entry]]:
        stored, width = self._stored(texts), self.model.get_embedding_dimension()
        for key, value in cache.read(stored):
            size = int.from_bytes(value[:8], "little")
            ends = list(struct.unpack_from(f"<{size}q", value, 8))
            vectors = np.frombuffer(value, VECTOR, offset=8 + 8 * size)
            yield stored[key], (ends, vectors.reshape(size, width))

    def _write_entries(self, cache: Cache, entries: Mapping[str, Entry]) -> None:
        """Writes per text the number of passages, their ends and their vectors."""
        values: dict[bytes, bytes] = {}
        for key, text in self._stored(entries).items():
            ends, vectors = entries[text]
            values[key] = np.array([len(ends), *ends], "<i8").tobytes() + vectors.astype(VECTOR).tobytes()
        cache.write(values)


def run_of(found: Mapping[str, Sequence[tuple]]) -> Run:
    """The scores of the documents that were found: their ids and scores, and what else is known of them."""
    return {query_id: {name: score for name, score, *_ in hits} for query_id, hits in found.items()}


def search(
    model: "SentenceTransformer | str | PathLike", queries: Sequence[str], texts: Sequence[str], **options: Any
) -> list[list[dict[str, Any]]]:
    """
    Ranks texts for queries once. For several searches in the same texts make an [`Index`].

    Args:
        model (`SentenceTransformer` or `str`):
            The model, or its folder or Hub id, as [`Index`] takes it. Queries and texts get its prompts.
        queries (`Sequence[str]`):
            The queries.
        texts (`Sequence[str]`):
            The texts. Blank ones are left out.
        options (*optional*):
            The options of [`Index`], such as `groups` and `chunk_size`, and of [`Index.search`], such as `top_k`,
            `bm25_weight`, `reranker`, `rerank_top` and `rerank_weight`.

    Returns:
        `list[list[dict]]`: for each query the best texts, see [`Index.search`].

    Example:

    ```python
    >>> from hf_dse import search

    >>> texts = ["Rain again.", "The kitten is asleep.", "My dog sleeps."]
    >>> (hits,) = search("sentence-transformers/all-MiniLM-L6-v2", ["A cat sleeps."], texts, show_progress=False)
    >>> hits[0]["text"]
    'The kitten is asleep.'
    ```
    """
    names = ("top_k", "bm25_weight", "reranker", "rerank_top", "rerank_weight")
    how = {name: options.pop(name) for name in names if name in options}
    return Index(model, texts, **options).search(queries, **how)


def kept_weight(model: "SentenceTransformer") -> float:
    """The weight of BM25 beside the cosine that the folder of a model has kept; 0 without one, or without BM25."""
    kept = settings_of(model.transformers_model).bm25_weight
    return kept if kept and has_bm25() and similarity_of(model) == "cosine" else 0.0


def _to_scores(found: Any, read: list[list[str]]) -> list[list[float]]:
    """The scores of a reranker as numbers; NaN where there is none."""
    try:
        rows = [[math.nan if value is None else float(value) for value in row] for row in to_lists(found)]
    except (TypeError, ValueError) as error:
        raise TypeError(f"The reranker has to return lists of numbers, one list for each query ({error}).") from error
    sizes, wanted = list(map(len, rows)), list(map(len, read))
    if sizes != wanted:
        raise ValueError(
            f"The reranker returned {shorten(sizes)} numbers for {shorten(wanted)} passages of the queries: it has to "
            "return one for each."
        )
    if math.inf in chain.from_iterable(rows):
        raise ValueError(
            "The reranker returned an infinite score: only minus infinity says something, that it is last."
        )
    return [[math.nan if value == -math.inf else value for value in row] for row in rows]


def _to_names(name: str, values: Any, texts: list[str]) -> list | None:
    """The ids or groups of texts as a list."""
    if values is None:
        return None
    if isinstance(values, str):
        raise TypeError(f"`{name}` is one text ({values!r}): pass a list with one entry for each text.")
    names = to_lists(values if hasattr(values, "__len__") else list(values))
    _check_size(name, names, texts)
    check_ids(names, f"The {name}")
    return names


def _check_size(name: str, values: Any, texts: Sequence[str]) -> None:
    if len(values) != len(texts):
        raise ValueError(f"`{name}` has {len(values)} entries for {len(texts)} texts: pass one for each.")
