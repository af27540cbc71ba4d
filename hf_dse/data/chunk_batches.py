# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Batches of queries with documents that have a vector for each of their chunks."""

import re
from collections.abc import Mapping, Sequence
from itertools import accumulate
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedTokenizerBase

from hf_dse.data.chunk_windows import read_windows
from hf_dse.data.passages import split_text
from hf_dse.data.ranking_batches import RankingCollator
from hf_dse.data.tokenization import pad


class ChunkCollator(RankingCollator):
    """
    A [`RankingCollator`] that splits each distinct document into chunks, and says which tokens of one pass over the
    document count to which chunk: the same as [`encode_chunks`] with `contextual=True`. A document longer than
    `max_length` is read in overlapping windows, so nothing of it is cut.

    Args:
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer.
        chunk_size (`int`):
            Maximum tokens of a chunk.
        max_length (`int`):
            Maximum tokens of a window, and of a sentence of a pair.
        query_max_length (`int`, *optional*):
            Maximum tokens of a query. Defaults to `max_length`.
        prompts (`Mapping[str, str]`, *optional*):
            What is put before texts, by the names `"query"` and `"document"`.

    For W windows of D documents with N chunks, a call returns what a [`RankingCollator`] does, but

    - `document_input_ids`, `document_attention_mask` of shape `(W, window_len)`,

    and besides

    - `spans` of shape `(num_spans, 4)`: window, chunk, and the first token of the chunk in the padded window and the
      one after its last,
    - `chunk_documents` of shape `(N,)`, the document of each chunk,
    - `is_evidence` of shape `(Q, N)`, which chunks of the relevant candidates of each query have a part of its
      evidence, if the rows have any,
    - `chunk_embeddings` of shape `(N, size)`, the vectors of another encoder, if the rows have them.
    """

    def __init__(
        self,
        processing_class: PreTrainedTokenizerBase,
        chunk_size: int,
        max_length: int,
        query_max_length: int | None = None,
        prompts: Mapping[str, str] | None = None,
    ):
        super().__init__(processing_class, max_length, query_max_length, prompts)
        self.chunk_size = chunk_size

    def _read_documents(
        self, known: dict[str, list], documents: list[list[int]], lists: Sequence[Mapping[str, Any]]
    ) -> dict[str, torch.Tensor]:
        chunks = [split_text(text, self.processing_class, self.chunk_size) for text in known["documents"]]
        firsts = list(accumulate(map(len, chunks), initial=0))
        prompt, limit = self.prompts.get("document", ""), self.max_lengths["document"]
        windows = [
            window
            for parts, first in zip(chunks, firsts, strict=False)
            for window in read_windows(self.processing_class, parts, first, prompt, limit)
        ]
        padded = pad(self.processing_class, [window.feature for window in windows], torch.device("cpu"))
        batch = {f"document_{name}": padded[name] for name in ("input_ids", "attention_mask")}
        # Tokenizers may pad on the left.
        starts = batch["document_attention_mask"].argmax(dim=1).tolist()
        batch["spans"] = torch.tensor(
            [
                (row, chunk, start + first, start + last)
                for row, (window, start) in enumerate(zip(windows, starts, strict=True))
                for chunk, first, last in window.spans
            ]
        )
        batch["chunk_documents"] = torch.arange(len(chunks)).repeat_interleave(torch.tensor([*map(len, chunks)]))
        if "evidence" in lists[0]:
            is_evidence = torch.zeros(len(lists), firsts[-1], dtype=torch.bool)
            for row, (features, positions) in enumerate(zip(lists, documents, strict=True)):
                for document, label in zip(positions, features["labels"].tolist(), strict=True):
                    found = find_evidence(features["evidence"], chunks[document]) if label > 0 else []
                    is_evidence[row, [firsts[document] + number for number in found]] = True
            batch["is_evidence"] = is_evidence
        if "document_chunk_embeddings" in known:
            vectors = [np.stack([*part]) for part in known["document_chunk_embeddings"]]
            batch["chunk_embeddings"] = torch.from_numpy(np.concatenate(vectors)).float()
        return batch


def find_evidence(evidence: Sequence[str], chunks: Sequence[str]) -> list[int]:
    """
    Which chunks of a document have a part of one of the passages. White space may differ; what the document does not
    have is left out.
    """
    text = "".join(chunks)
    ends = np.cumsum([len(chunk) for chunk in chunks])
    found: set[int] = set()
    for passage in evidence:
        match = re.search(r"\s+".join(map(re.escape, passage.split())), text)
        if match is not None:
            first, last = np.searchsorted(ends, [match.start(), match.end() - 1], side="right")
            found |= set(range(int(first), int(last) + 1))
    return sorted(found)
