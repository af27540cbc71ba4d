# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""One batch of queries with candidates from those of all processes, so that they have the same loss and negatives."""

from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn


# What describes the queries of a batch, and the value that fills it up to a common number of columns.
TARGETS = {
    "documents": -1,
    "labels": torch.nan,
    "teacher_logits": torch.nan,
    "positives": -1,
    "document_ids": None,
    "query_embeddings": None,
    "document_embeddings": None,
}


def gather_lists(
    accelerator: Accelerator,
    vectors: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    num_pairs: int,
) -> tuple[dict[str, torch.Tensor], int]:
    """
    Combines the queries of all processes to one batch.

    Args:
        accelerator (`Accelerator`):
            Knows the processes.
        vectors (`Mapping[str, torch.Tensor]`):
            The embeddings `query` and `document` of this process, empty if it has no queries.
        inputs (`Mapping[str, torch.Tensor]`):
            What [`RankingCollator`] returns.
        num_pairs (`int`):
            Pairs of this process.

    Returns:
        `tuple[dict[str, torch.Tensor], int]`: the embeddings and the targets of all queries, with each text once, and
        the number of all pairs. Without queries the first is empty. Only the embeddings of this process have a
        gradient: that of the sum over the processes, which distributed training divides by their number.
    """
    own = {**vectors, **{name: inputs[name] for name in TARGETS if name in inputs}}
    if accelerator.num_processes == 1:
        return own, num_pairs
    gathered = gather_object([({name: part.detach().cpu() for name, part in own.items()}, num_pairs)])
    batches = [batch for batch, _ in gathered]
    for name, part in vectors.items():
        part = part.clone()
        part.register_hook(lambda gradient: gradient * accelerator.num_processes)
        batches[accelerator.process_index][name] = part
    filled = [batch for batch in batches if batch]
    lists: dict[str, torch.Tensor] = {}
    if filled:
        start = 0
        for batch in filled:
            batch["documents"] = torch.where(batch["documents"] < 0, -1, batch["documents"] + start)
            start += len(batch["document_ids"])
        for name in filled[0]:
            parts = [batch[name].to(accelerator.device) for batch in filled]
            lists[name] = _stack(parts, TARGETS.get(name))
        lists = _merge_documents(lists)
    return lists, sum(count for _, count in gathered)


def _merge_documents(lists: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with each text once, where several processes have it: the first."""
    first: dict[int, int] = {}
    rows: list[int] = []
    positions: list[int] = []
    for row, number in enumerate(lists["document_ids"].tolist()):
        if number not in first:
            first[number] = len(rows)
            rows.append(row)
        positions.append(first[number])
    documents = torch.tensor(positions, device=lists["documents"].device)[lists["documents"].clamp(min=0)]
    merged = {name: part[rows] for name, part in lists.items() if name.startswith("document") and name != "documents"}
    return {**lists, **merged, "documents": documents.masked_fill(lists["documents"] < 0, -1)}


def _stack(parts: Sequence[torch.Tensor], value: float | None) -> torch.Tensor:
    if value is not None:
        longest = max(part.shape[1] for part in parts)
        parts = [nn.functional.pad(part, (0, longest - part.shape[1]), value=value) for part in parts]
    return torch.cat(list(parts))
