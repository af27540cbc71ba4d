# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Vectors of chunks from one pass over their document, in a training step, and the losses on them."""

from collections.abc import Mapping
from functools import partial

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint

from hf_dse.data.tokenization import length_batches
from hf_dse.modeling import DseForSequenceClassification


# Windows are long: reading more of them at once saves no time, and pads the shorter ones.
MOST_WINDOWS = 8


def embed_chunks(
    model: DseForSequenceClassification,
    inputs: Mapping[str, torch.Tensor],
    batch_size: int,
    is_cached: bool = False,
) -> torch.Tensor:
    """
    Token states of one pass over each document, pooled over its chunks, as [`encode_chunks`] pools them.

    Args:
        model ([`DseForSequenceClassification`]):
            The student, whose pooling is the mean or the maximum.
        inputs (`Mapping[str, torch.Tensor]`):
            What [`ChunkCollator`] returns.
        batch_size (`int`):
            Windows that are read together, at most, and no more than 8, or 4,096 tokens. Windows of similar length are
            together.
        is_cached (`bool`, *optional*, defaults to `False`):
            Whether to keep the activations of no more than one such batch, see [`embed_in_parts`].

    Returns:
        `torch.Tensor` of shape `(num_chunks, embedding_size)` and type float32.
    """
    ids, mask, spans = inputs["document_input_ids"], inputs["document_attention_mask"], inputs["spans"]
    num_chunks, is_max = len(inputs["chunk_documents"]), model.config.pooling_mode == "max"
    pool = partial(_pool_spans, model, num_chunks=num_chunks, is_max=is_max)
    batches = list(length_batches(mask.sum(dim=1).tolist(), min(batch_size, MOST_WINDOWS)))
    vectors: torch.Tensor | None = None
    for number, rows in enumerate(batches):
        columns = mask[rows].any(dim=0)
        # Padding is at one side, so that a token moves by as many columns as are left out before it.
        place = torch.full((len(mask),), -1, device=mask.device)
        place[rows] = torch.arange(len(rows), device=mask.device)
        own = spans[place[spans[:, 0]] >= 0]
        own = torch.stack([place[own[:, 0]], own[:, 1], *(own[:, 2:] - columns.int().argmax()).unbind(1)], dim=1)
        part = [ids[rows][:, columns], mask[rows][:, columns], own]
        is_last = number == len(batches) - 1
        found = pool(*part) if is_last or not is_cached else checkpoint(pool, *part, use_reentrant=False)
        # A chunk may be in two windows.
        vectors = found if vectors is None else torch.maximum(vectors, found) if is_max else vectors + found
    if vectors is None:
        raise ValueError("There are no documents to read.")
    if not is_max:
        sizes = torch.zeros(num_chunks, device=mask.device).index_add(
            0, spans[:, 1], (spans[:, 3] - spans[:, 2]).float()
        )
        vectors = vectors / sizes[:, None]
    return nn.functional.normalize(vectors, dim=-1) if model.config.normalize_embeddings else vectors


def _pool_spans(
    model: DseForSequenceClassification,
    input_ids: torch.Tensor,
    attention_mask: torch.Tensor,
    spans: torch.Tensor,
    num_chunks: int,
    is_max: bool,
) -> torch.Tensor:
    """Sums or maxima of the token states of each chunk, `(num_chunks, embedding_size)`; 0 or -inf without any."""
    states = model.base_model(input_ids=input_ids, attention_mask=attention_mask).last_hidden_state.float()
    tokens = [torch.arange(first, last) + row * states.shape[1] for row, _, first, last in spans.tolist()]
    states = states.flatten(0, 1)[torch.cat(tokens).to(spans.device)]
    chunks = spans[:, 1].repeat_interleave(spans[:, 3] - spans[:, 2])
    if is_max:
        lowest = states.new_full((num_chunks, states.shape[1]), -torch.inf)
        return lowest.scatter_reduce(0, chunks[:, None].expand_as(states), states, "amax")
    return states.new_zeros(num_chunks, states.shape[1]).index_add(0, chunks, states)


def best_of_chunks(similarities: torch.Tensor, chunk_documents: torch.Tensor, num_documents: int) -> torch.Tensor:
    """
    The similarity of queries and documents, that of the best chunk.

    Args:
        similarities (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            Those of the chunks.
        chunk_documents (`torch.Tensor` of shape `(num_chunks,)`):
            The document of each chunk.
        num_documents (`int`):
            Number of documents, each with a chunk.

    Returns:
        `torch.Tensor` of shape `(num_queries, num_documents)`.
    """
    lowest = similarities.new_full((len(similarities), num_documents), -torch.inf)
    return lowest.scatter_reduce(1, chunk_documents.expand_as(similarities), similarities, "amax")


def find_own_chunks(documents: torch.Tensor, labels: torch.Tensor, chunk_documents: torch.Tensor) -> torch.Tensor:
    """
    Which chunks are of a relevant candidate of which query.

    Args:
        documents (`torch.Tensor` of shape `(num_queries, num_candidates)`):
            Positions of the candidates among the documents; -1 for none.
        labels (`torch.Tensor` of shape `(num_queries, num_candidates)`):
            Their labels.
        chunk_documents (`torch.Tensor` of shape `(num_chunks,)`):
            The document of each chunk.

    Returns:
        `torch.Tensor` of shape `(num_queries, num_chunks)` and type bool.
    """
    relevant = documents.masked_fill(~(labels > 0), -1)
    return (relevant[:, :, None] == chunk_documents).any(dim=1)


def find_best_chunks(
    queries: torch.Tensor, chunks: torch.Tensor, is_own: torch.Tensor, is_evidence: torch.Tensor | None = None
) -> torch.Tensor:
    """
    The chunks to find for each query: those with evidence, or the one that another encoder finds best.

    Args:
        queries (`torch.Tensor` of shape `(num_queries, size)`):
            Vectors of another encoder.
        chunks (`torch.Tensor` of shape `(num_chunks, size)`):
            The same of the chunks, each encoded alone.
        is_own (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            The chunks of the relevant documents.
        is_evidence (`torch.Tensor` of shape `(num_queries, num_chunks)`, *optional*):
            Those with evidence.

    Returns:
        `torch.Tensor` of shape `(num_queries, num_chunks)` and type bool.
    """
    cosines = nn.functional.normalize(queries, dim=-1) @ nn.functional.normalize(chunks, dim=-1).mT
    best = cosines.masked_fill(~is_own, -torch.inf).argmax(dim=1, keepdim=True)
    is_best = torch.zeros_like(is_own).scatter(1, best, True) & is_own
    return is_best if is_evidence is None else torch.where(is_evidence.any(dim=1, keepdim=True), is_evidence, is_best)


def passage_loss(logits: torch.Tensor, is_wanted: torch.Tensor, is_own: torch.Tensor) -> torch.Tensor:
    """
    Cross-entropy of the chunks that a query should find against the others of the same document, which tell how much
    a chunk must differ from its neighbours (InSeNT, [Conti et al., 2025](https://huggingface.co/papers/2505.24782)).
    Of several chunks to find any will do.

    Args:
        logits (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            Logits of all chunks of the batch.
        is_wanted (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            The chunks to find.
        is_own (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            All chunks of the documents that they are in.

    Returns:
        `torch.Tensor`: the mean over the queries with a chunk to find and another one; 0 without any.
    """
    lowest = torch.finfo(logits.dtype).min
    own, wanted = (logits.masked_fill(~mask, lowest).logsumexp(dim=1) for mask in (is_own | is_wanted, is_wanted))
    is_known = is_wanted.any(dim=1) & (is_own & ~is_wanted).any(dim=1)
    return (own - wanted).masked_fill(~is_known, 0.0).sum() / is_known.sum().clamp(min=1)


def anchor_loss(chunks: torch.Tensor, anchors: torch.Tensor) -> torch.Tensor:
    """
    The mean cosine distance of chunks, read with their document, from the same chunks, each read alone by another
    encoder; both of shape `(num_chunks, size)`.
    """
    return 1 - nn.functional.cosine_similarity(chunks, anchors, dim=-1).mean()


def chunks_loss(
    logits: torch.Tensor, lists: Mapping[str, torch.Tensor], passage_weight: float, anchor_weight: float
) -> torch.Tensor:
    """
    The weighted sum of [`passage_loss`] and [`anchor_loss`].

    Args:
        logits (`torch.Tensor` of shape `(num_queries, num_chunks)`):
            Logits of all chunks of the batch.
        lists (`Mapping[str, torch.Tensor]`):
            The batch of [`ChunkCollator`], with the vectors of the chunks as `document`.
        passage_weight (`float`):
            Weight of the chunks to find against the others of their document.
        anchor_weight (`float`):
            Weight of the distance from plain chunks.

    Returns:
        `torch.Tensor`: a scalar.
    """
    loss = logits.new_zeros(())
    if passage_weight:
        is_own = find_own_chunks(lists["documents"], lists["labels"], lists["chunk_documents"])
        is_wanted = lists.get("is_evidence")
        if "chunk_embeddings" in lists:
            is_wanted = find_best_chunks(lists["query_embeddings"], lists["chunk_embeddings"], is_own, is_wanted)
        if is_wanted is not None:
            loss = loss + passage_weight * passage_loss(logits, is_wanted, is_own)
    if anchor_weight:
        chunks = lists["document"]
        loss = loss + anchor_weight * anchor_loss(chunks, lists["chunk_embeddings"][:, : chunks.shape[1]])
    return loss
