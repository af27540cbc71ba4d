# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""From rows of a data set to tokenized batches: the candidates of a step, and the collators."""

import math
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.rankings import Rankings, fold
from hf_dse.data.tables import shorten
from hf_dse.data.tokenization import token_lengths


logger = logging.get_logger(__name__)


class TextCollator:
    """Tokenizes rows with a `text`; `n_truncated` counts those longer than `max_length` tokens."""

    def __init__(self, processing_class: PreTrainedTokenizerBase, max_length: int):
        self.processing_class = processing_class
        self.max_length = max_length
        self.n_truncated = 0

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        return self.tokenize([feature["text"] for feature in features], "texts", self.max_length)

    def tokenize(self, texts: list[str], kind: str, limit: int, option: str = "max_length") -> dict[str, torch.Tensor]:
        """Returns token ids and mask; the first batch with truncated texts is a warning."""
        # Some tokenizers return an attention mask only on request.
        encoded = self.processing_class(
            texts, truncation=True, max_length=limit, return_attention_mask=True, verbose=False
        )
        sizes = [len(ids) for ids in encoded["input_ids"]]
        if not all(sizes):
            raise ValueError(f"The text {texts[sizes.index(0)]!r} has no tokens, so it has no embedding: remove it.")
        if encoded.encodings is not None:
            num_cut = sum(bool(encoding.overflowing) for encoding in encoded.encodings)
        else:
            # A tokenizer in Python does not say which texts it has cut.
            num_cut = sum(size > limit for size in token_lengths(self.processing_class, texts))
        if num_cut and not self.n_truncated:
            logger.warning(
                f"{num_cut} of {len(texts)} {kind} of this batch are longer than {limit} tokens and were truncated: "
                f"raise `{option}` if the ends of the texts matter. Later ones are only counted."
            )
        self.n_truncated += num_cut
        batch = self.processing_class.pad(encoded, return_attention_mask=True, return_tensors="pt", verbose=False)
        return {name: batch[name] for name in ("input_ids", "attention_mask")}


class PairCollator(TextCollator):
    """
    Tokenizes the two sentences of each pair separately, for a bi-encoder. Use it with `remove_unused_columns=False`.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        max_length (`int`):
            Maximum tokens of a sentence; `n_truncated` counts the truncated sentences.

    A call returns `input_ids` and `attention_mask` of shape `(batch_size, 2, seq_len)`, and if the features have them
    `labels` `(batch_size,)` and `teacher_logits` `(batch_size, num_labels)`. Labels and scores that are `None` become
    NaN, which the losses ignore.
    """

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        texts = [feature[key] for feature in features for key in ("sentence1", "sentence2")]
        batch = self.tokenize(texts, "sentences", self.max_length)
        batch = {name: values.view(len(features), 2, -1) for name, values in batch.items()}  # [B, 2, S]
        if "label" in features[0]:
            labels = [feature["label"] for feature in features]
            batch["labels"] = torch.tensor([math.nan if label is None else label for label in labels])
        if "teacher_logits" in features[0]:
            scores = [feature["teacher_logits"] for feature in features]
            size = max(len(score or []) for score in scores)
            unknown = [math.nan] * size
            batch["teacher_logits"] = torch.tensor(
                [unknown if score is None or None in score else score or unknown for score in scores]
            )
        return batch


def number_texts(texts: Sequence[str], processing_class: PreTrainedTokenizerBase | None) -> list[int]:
    """For each text, the row of the first with the same tokens; without a tokenizer, of the first that is equal."""
    spellings: dict[str, list[str]] = defaultdict(list)
    for text in dict.fromkeys(texts):
        spellings[fold(text)].append(text)
    similar = [text for group in spellings.values() if len(group) > 1 for text in group]
    tokens: dict[str, Any] = {}
    if processing_class is not None and similar:
        ids = processing_class(similar, verbose=False)["input_ids"]
        tokens = {text: tuple(found) for text, found in zip(similar, ids, strict=True)}
    first: dict[Any, int] = {}
    return [first.setdefault(tokens.get(text, text), row) for row, text in enumerate(texts)]


def merge_copies(rankings: Rankings, numbers: Sequence[int]) -> Rankings:
    """Rankings in which a query has each number of a text once, with the best label; a warning if labels differ."""
    if len(set(numbers)) == len(numbers):
        return rankings
    names = [name for name in ("documents", "labels", "teacher_logits") if name in rankings.queries.column_names]
    columns = {name: rankings.queries[name][:] for name in names}
    unlike = []
    for row, (documents, given) in enumerate(zip(columns["documents"], columns["labels"], strict=True)):
        labels = [-math.inf if math.isnan(label) else label for label in given]
        kept: dict[int, int] = {}
        for place, document in enumerate(documents):
            best = kept.setdefault(numbers[document], place)
            if len({labels[best], labels[place]} - {-math.inf}) > 1:
                unlike.append(document)
            kept[numbers[document]] = max(best, place, key=labels.__getitem__)
        for name in names:
            columns[name][row] = [columns[name][row][place] for place in sorted(kept.values())]
    if unlike:
        logger.warning(
            f"{len(unlike):,} candidates have the tokens of another one of their query, and another label, such as "
            f"{shorten(rankings.corpus[unlike[0]]['text'])}: the higher label counts."
        )
    others = {name: rankings.queries[name][:] for name in rankings.queries.column_names if name not in names}
    return replace(rankings, queries=Dataset.from_dict({**others, **columns}, features=rankings.queries.features))


class RankingRows(torch.utils.data.Dataset):
    """
    Queries with candidates drawn anew in each epoch, and optionally pairs of sentences after them. A query has
    `num_candidates`: one of its positives first, then others in random order, and further relevant ones only if there
    are not enough others. Positives are the relevant candidates of the best grade of the query: a low grade may mean
    bad, and is neither a positive nor a negative. An index is `row + epoch * len(rows)`: its item is the same in every
    process and resumed run.
    """

    def __init__(
        self,
        rankings: Rankings,
        num_candidates: int,
        seed: int,
        pairs: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
    ):
        rankings = rankings.keep_documents()
        # Documents with the same tokens have one number, that of the first.
        numbers = number_texts(rankings.corpus["text"][:], processing_class)
        rankings = merge_copies(rankings, numbers)
        self.num_candidates = num_candidates
        self.seed = seed
        self.pairs = pairs
        self.queries, self.corpus = rankings.queries.select_columns("query"), rankings.corpus.select_columns("text")
        self.documents = [np.asarray(rows, dtype=np.int64) for rows in rankings.queries["documents"][:]]
        # 1 for a positive, 0 for what is not relevant; NaN if unknown, or relevant but not the best.
        self.labels: list[np.ndarray] = []
        self.is_relevant: list[np.ndarray] = []
        for grades in map(np.array, rankings.queries["labels"][:]):
            is_relevant = rankings.is_relevant(grades)
            is_best = is_relevant & (grades == np.max(grades, where=is_relevant, initial=0.0))
            self.is_relevant.append(is_relevant)
            self.labels.append(np.where(is_best, 1.0, np.where(is_relevant | np.isnan(grades), math.nan, 0.0)))
        self.logits = [np.full(len(rows), math.nan) for rows in self.documents]
        if rankings.has_scores:
            self.logits = [np.asarray(row, dtype=np.float64) for row in rankings.queries["teacher_logits"][:]]
        self.text_ids = np.asarray(numbers, dtype=np.int64)
        # Queries with the same tokens share their positives, and other passages of their documents are no negatives.
        shared: dict[int, set[int]] = defaultdict(set)
        passages: dict[str, list[int]] = defaultdict(list)
        names, documents = number_texts(rankings.queries["query"][:], processing_class), rankings.document_ids
        for document, number in zip(documents, numbers, strict=True):
            passages[document].append(number)
        for name, rows in zip(names, rankings.positives(), strict=True):
            shared[name].update(number for row in rows for number in passages[documents[row]])
        self.positives = [sorted(shared[name]) for name in names]

    def __len__(self) -> int:
        return len(self.queries) + (0 if self.pairs is None else len(self.pairs))

    def draw(self, row: int, epoch: int) -> np.ndarray:
        """Returns the positions of the candidates of a query that an epoch sees."""
        is_relevant = self.is_relevant[row]
        generator = np.random.default_rng((self.seed, epoch, row))
        positives, others = (generator.permutation(np.flatnonzero(part)) for part in (is_relevant, ~is_relevant))
        positives = positives[np.argsort(np.isnan(self.labels[row][positives]), kind="stable")]
        # Those that the teacher knows come first.
        others = others[np.argsort(np.isnan(self.logits[row][others]), kind="stable")]
        return np.concatenate([positives[:1], others, positives[1:]])[: self.num_candidates]

    def __getitem__(self, index: int) -> dict[str, Any]:
        epoch, row = divmod(index, len(self))
        if self.pairs is not None and row >= len(self.queries):
            return self.pairs[row - len(self.queries)]
        drawn = self.draw(row, epoch)
        rows = self.documents[row][drawn]
        return {
            "query": self.queries[row]["query"],
            "documents": self.corpus[rows.tolist()]["text"],
            "document_ids": self.text_ids[rows],
            "labels": self.labels[row][drawn],
            "teacher_logits": self.logits[row][drawn],
            "positives": self.positives[row],
        }


class RankingCollator(TextCollator):
    """
    Tokenizes rows of [`RankingRows`] after the `prompts` named `"query"` and `"document"`; a batch has each distinct
    document once. For Q queries with at most C candidates and D documents a call returns

    - `query_input_ids` `(Q, query_len)` and `document_input_ids` `(D, document_len)`, with their masks,
    - `documents` `(Q, C)`, the positions of the candidates among the documents, -1 where there is none, and `labels`
      and `teacher_logits`, NaN where they are unknown,
    - `document_ids` `(D,)`, a number for each text, and `positives` `(Q, num_positives)`, the numbers of all texts
      that are known to be relevant for a query, filled up with -1,
    - `pair_input_ids` and others, named as those of [`PairCollator`], if there are pairs.
    """

    def __init__(
        self,
        processing_class: PreTrainedTokenizerBase,
        max_length: int,
        query_max_length: int | None = None,
        prompts: Mapping[str, str] | None = None,
    ):
        super().__init__(processing_class, max_length)
        self.query_max_length = query_max_length or max_length
        self.prompts = dict(prompts or {})
        self.pair_collator = PairCollator(processing_class, max_length)

    def __call__(self, features: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        lists = [feature for feature in features if "query" in feature]
        pairs = [feature for feature in features if "query" not in feature]
        batch = self._collate_lists(lists) if lists else {}
        if pairs:
            batch |= {f"pair_{name}": values for name, values in self.pair_collator(pairs).items()}
        return batch

    def _collate_lists(self, lists: Sequence[Mapping[str, Any]]) -> dict[str, torch.Tensor]:
        documents: dict[int, str] = {}
        for features in lists:
            for number, text in zip(features["document_ids"].tolist(), features["documents"], strict=True):
                documents.setdefault(number, text)
        position = {number: place for place, number in enumerate(documents)}
        texts = {"query": [features["query"] for features in lists], "document": documents.values()}
        batch: dict[str, torch.Tensor] = {}
        for kind, option in (("query", "query_max_length"), ("document", "max_length")):
            prompted = [self.prompts.get(kind, "") + text for text in texts[kind]]
            tokens = self.tokenize(prompted, f"{kind} texts", getattr(self, option), option)
            batch |= {f"{kind}_{name}": values for name, values in tokens.items()}
        places = [[position[number] for number in features["document_ids"].tolist()] for features in lists]
        positives = [features["positives"] for features in lists]
        for name, numbers in (("documents", places), ("positives", positives)):
            rows = [torch.tensor(row, dtype=torch.long) for row in numbers]
            batch[name] = pad_sequence(rows, batch_first=True, padding_value=-1)
        for name in ("labels", "teacher_logits"):
            rows = [torch.from_numpy(features[name]) for features in lists]
            batch[name] = pad_sequence(rows, batch_first=True, padding_value=math.nan).float()
        batch["document_ids"] = torch.tensor(list(position))
        return batch
