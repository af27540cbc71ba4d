# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Steps of the trainers: embedding the texts of a batch, and one batch of those of all processes."""

from collections.abc import Mapping
from functools import partial

import numpy as np
import pandas as pd
import torch
from accelerate import Accelerator
from accelerate.utils import gather_object
from torch import nn
from torch.nn.utils.rnn import pad_sequence
from torch.utils.checkpoint import checkpoint


# Texts that are embedded at a time.
PART_SIZE = 32

# Columns of the queries of a batch, and the value that fills it up to a common number of columns.
TARGETS = {
    "documents": -1,
    "labels": torch.nan,
    "teacher_logits": torch.nan,
    "positives": -1,
    "document_ids": None,
}


def forward_texts(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """Embeddings of single texts, `(num_texts, embedding_size)`, by the `forward` of a model for pairs."""
    # Two texts are a pair; an odd number is made even.
    pairs = [torch.cat([part, part[:1]])[: len(part) + len(part) % 2] for part in (input_ids, attention_mask)]
    ids, mask = (part.unflatten(0, (-1, 2)) for part in pairs)
    return model(input_ids=ids, attention_mask=mask).embeddings.flatten(0, 1)[: len(input_ids)].float()


def forward_in_parts(
    model: nn.Module,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    mini_batch_size: int = PART_SIZE,
    is_cached: bool = False,
) -> torch.Tensor:
    """
    The embeddings of all texts, in mini-batches of similar length. `is_cached` keeps the memory of one mini-batch, by
    a second forward pass: GradCache ([Gao et al., 2021](https://huggingface.co/papers/2101.06983)) as gradient
    checkpointing.
    """
    order = attention_mask.sum(dim=1).argsort(stable=True)
    batches = []
    for rows in order.split(mini_batch_size):
        columns = attention_mask[rows].any(dim=0)
        batches.append((input_ids[rows][:, columns], attention_mask[rows][:, columns]))
    # The forward pass of a wrapped model prepares the backward pass, so it must not happen within that. The last
    # mini-batch is the first of the backward pass: what is kept of it is gone before others need the memory.
    # accelerate compiles what it has wrapped.
    inner = getattr(model, "_orig_mod", model)
    module = inner.module if isinstance(inner, nn.parallel.DistributedDataParallel) else model
    embed_part = partial(checkpoint, forward_texts, use_reentrant=False) if is_cached else forward_texts
    vectors = [embed_part(module, *batch) for batch in batches[:-1]]
    vectors.append(forward_texts(model, *batches[-1]))
    return torch.cat(vectors)[order.argsort()]


def gather_lists(
    accelerator: Accelerator,
    vectors: Mapping[str, torch.Tensor],
    inputs: Mapping[str, torch.Tensor],
    num_pairs: int,
) -> tuple[dict[str, torch.Tensor], int]:
    """
    Embeddings and targets of the queries of all processes, with each text once, and the number of all pairs. Only the
    embeddings of this process have a gradient: of the sum over processes, which DDP divides by their number.
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
            parts, value = [batch[name].to(accelerator.device) for batch in filled], TARGETS.get(name)
            rows = [row for part in parts for row in part]
            lists[name] = torch.cat(parts) if value is None else pad_sequence(rows, True, value)
        lists = _merge_documents(lists)
    return lists, sum(count for _, count in gathered)


def _merge_documents(lists: dict[str, torch.Tensor]) -> dict[str, torch.Tensor]:
    """The same with each text once, where several processes have it: the first."""
    device = lists["documents"].device
    positions = pd.factorize(lists["document_ids"].cpu().numpy())[0]
    rows = np.unique(positions, return_index=True)[1]
    documents = torch.from_numpy(positions).to(device)[lists["documents"].clamp(min=0)]
    merged = {name: lists[name][rows] for name in ("document", "document_ids")}
    return {**lists, **merged, "documents": documents.masked_fill(lists["documents"] < 0, -1)}
