# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""From queries with candidates to tokenized batches: the candidates of a step, and the collator."""

import math
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch.nn.utils.rnn import pad_sequence
from transformers import PreTrainedTokenizerBase

from hf_dse.data.collators import PairCollator, TextCollator
from hf_dse.data.rankings import Rankings, fold


def keep_documents(rankings: Rankings, extra: Iterable[int] = ()) -> Rankings:
    """Returns the same queries with only their candidates, and the rows `extra`, as corpus."""
    lists = rankings.queries["documents"][:]
    rows = sorted({*(row for rows in lists for row in rows), *extra})
    new = {row: number for number, row in enumerate(rows)}
    feature = rankings.queries.features["documents"]
    documents = [[new[row] for row in rows] for rows in lists]
    queries = rankings.queries.remove_columns("documents").add_column("documents", documents, feature=feature)
    return replace(rankings, queries=queries, corpus=rankings.corpus.select(rows))


class RankingRows(torch.utils.data.Dataset):
    """
    Queries with candidates drawn anew in each epoch, and optionally pairs of sentences after them. A query has
    `num_candidates`: one of its positives first, then others in random order, and further positives only if there are
    not enough others. An index is `row + epoch * len(rows)`: its item is the same in every process and resumed run.
    """

    def __init__(self, rankings: Rankings, num_candidates: int, seed: int, pairs: Dataset | None = None):
        rankings = keep_documents(rankings)
        self.num_candidates = num_candidates
        self.seed = seed
        self.pairs = pairs
        self.queries, self.corpus = rankings.queries.select_columns("query"), rankings.corpus.select_columns("text")
        self.documents = [np.asarray(rows, dtype=np.int64) for rows in rankings.queries["documents"][:]]
        self.labels = [np.asarray(labels, dtype=np.float64) for labels in rankings.queries["labels"][:]]
        self.logits = [np.full(len(rows), math.nan) for rows in self.documents]
        if rankings.has_scores:
            self.logits = [np.asarray(row, dtype=np.float64) for row in rankings.queries["teacher_logits"][:]]
        # Documents with the same text have one number, that of the first.
        first: dict[str, int] = {}
        numbers = [first.setdefault(fold(text), row) for row, text in enumerate(rankings.corpus["text"][:])]
        self.text_ids = np.asarray(numbers, dtype=np.int64)
        # Queries with the same text share their positives, and other passages of their documents are no negatives.
        shared: dict[str, set[int]] = {}
        names = [fold(query) for query in rankings.queries["query"][:]]
        documents = rankings.document_ids
        passages: dict[str, list[int]] = {}
        for row, document in enumerate(documents):
            passages.setdefault(document, []).append(int(self.text_ids[row]))
        for name, rows, labels in zip(names, self.documents, self.labels, strict=True):
            for row in rows[labels > 0].tolist():
                shared.setdefault(name, set()).update(passages[documents[row]])
            shared.setdefault(name, set())
        self.positives = [sorted(shared[name]) for name in names]

    def __len__(self) -> int:
        return len(self.queries) + (0 if self.pairs is None else len(self.pairs))

    def draw(self, row: int, epoch: int) -> np.ndarray:
        """Returns the positions of the candidates of a query that an epoch sees."""
        is_positive = self.labels[row] > 0
        generator = np.random.default_rng((self.seed, epoch, row))
        positives, others = (generator.permutation(np.flatnonzero(part)) for part in (is_positive, ~is_positive))
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
        texts = {
            "query": [features["query"] for features in lists],
            "document": list(documents.values()),
        }
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
