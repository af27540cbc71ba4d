# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Embedding the texts of a batch in a training step, in parts of similar length, which may need less memory."""

from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint


# Texts that are embedded at a time.
PART_SIZE = 32


def embed(model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor) -> torch.Tensor:
    """
    Embeddings of single texts, `(num_texts, embedding_size)` and float32, by a model for pairs, through its `forward`,
    which distributed training needs. Ids and mask are `(num_texts, seq_len)`.
    """
    # Two texts are a pair; an odd number is made even.
    pairs = [torch.cat([part, part[:1]])[: len(part) + len(part) % 2] for part in (input_ids, attention_mask)]
    ids, mask = (part.unflatten(0, (-1, 2)) for part in pairs)
    return model(input_ids=ids, attention_mask=mask).embeddings.flatten(0, 1)[: len(input_ids)].float()


def embed_in_parts(
    model: nn.Module,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    mini_batch_size: int = PART_SIZE,
    is_cached: bool = False,
) -> torch.Tensor:
    """
    The same embeddings of all texts, `mini_batch_size` texts at a time. Texts of similar length are together, so that
    short ones are not padded to the longest of all.

    With `is_cached` it takes the memory of one mini-batch only, at the cost of a second forward pass: GradCache
    ([Gao et al., 2021](https://huggingface.co/papers/2101.06983)), which is gradient checkpointing of mini-batches. A
    mini-batch is embedded without keeping anything of it, and again, with the same random numbers, when the gradients
    of its embeddings are known.
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
    embed_part = partial(checkpoint, embed, use_reentrant=False) if is_cached else embed
    vectors = [embed_part(module, *batch) for batch in batches[:-1]]
    vectors.append(embed(model, *batches[-1]))
    return torch.cat(vectors)[order.argsort()]
