# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""One batch of queries with candidates from those of all processes, so that they have the same loss and negatives."""

from collections.abc import Mapping, Sequence

import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn


# What describes the queries of a batch, and what it is filled up with to a common number of columns.
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
            The embeddings `query` and `document` of this process, of no text if it has no queries.
        inputs (`Mapping[str, torch.Tensor]`):
            What [`RankingCollator`] returns.
        num_pairs (`int`):
            Pairs of this process.

    Returns:
        `tuple[dict[str, torch.Tensor], int]`: the embeddings and the targets of all queries, with each text once, and
        the number of all pairs. Without queries the first is empty. Only the embeddings of this process have a
        gradient: that of the sum over the processes, which distributed training divides by their number.
    """
    own = {name: inputs[name] for name in TARGETS if name in inputs}
    if accelerator.num_processes == 1:
        return ({**vectors, **own} if own else {}), num_pairs
    parts = gather_object([({name: part.cpu() for name, part in own.items()}, num_pairs)])
    all_pairs = sum(count for _, count in parts)
    batches = [batch for batch, _ in parts]
    filled = [batch for batch in batches if batch]
    if not filled:
        return {}, all_pairs
    start = 0
    for batch in filled:
        batch["documents"] = torch.where(batch["documents"] < 0, -1, batch["documents"] + start)
        start += len(batch["document_ids"])
    lists = {
        name: _stack([batch[name] for batch in filled], value).to(accelerator.device)
        for name, value in TARGETS.items()
        if name in filled[0]
    }
    for kind, name in (("query", "documents"), ("document", "document_ids")):
        lists[kind] = _gather_vectors(accelerator, vectors[kind], [len(batch.get(name, ())) for batch in batches])
    return _merge_documents(lists), all_pairs


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


def _gather_vectors(accelerator: Accelerator, own: torch.Tensor, sizes: Sequence[int]) -> torch.Tensor:
    """The embeddings of all processes, `sizes` of each."""
    padded = nn.functional.pad(own.detach(), (0, 0, 0, max(sizes) - len(own)))
    gathered = accelerator.gather(padded).split(max(sizes))
    parts = [part[:size] for part, size in zip(gathered, sizes, strict=True)]
    if own.requires_grad:
        own = own.clone()
        own.register_hook(lambda gradient: gradient * accelerator.num_processes)
    parts[accelerator.process_index] = own
    return torch.cat(parts)


def _stack(parts: Sequence[torch.Tensor], value: float | None) -> torch.Tensor:
    if value is not None:
        longest = max(part.shape[1] for part in parts)
        parts = [nn.functional.pad(part, (0, longest - part.shape[1]), value=value) for part in parts]
    return torch.cat(list(parts))
