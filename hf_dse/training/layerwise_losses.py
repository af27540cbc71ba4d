# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses between the layers of a student and those of its teacher."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute


# Relations of longer texts are computed in blocks of this many rows.
RELATION_BLOCK = 512


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Squared error of hidden states ([TinyBERT](https://huggingface.co/papers/1909.10351), equations 8 and 9, with the
    projection already applied): the mean over features, then over the real tokens of a text, then over texts. Long and
    short texts have the same weight, so the loss does not depend on the batch size.

    Args:
        student (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            Hidden states of the student, projected to the size of the teacher's.
        teacher (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`):
            Hidden states of the teacher.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.

    Returns:
        `torch.Tensor`: a scalar.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import hidden_loss

    >>> hidden_loss(torch.ones(1, 2, 4), torch.zeros(1, 2, 4), torch.tensor([[1, 0]]))
    tensor(1.)
    ```
    """
    return _mean_over_texts((to_full_precision(student) - to_full_precision(teacher)).square().mean(dim=-1), mask)


def relation_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor, num_heads: int) -> torch.Tensor:
    """
    Divergence of token relations ([MiniLM](https://huggingface.co/papers/2002.10957),
    [MiniLMv2](https://huggingface.co/papers/2012.15828)). Queries (or keys, or values) X are split into relation
    heads, independently of the attention heads; the relations of a head are softmax(X X^T / sqrt(d)) with its d
    features, so student and teacher may differ in width. The loss is KL(teacher || student), averaged over heads
    and the real tokens of a text, then over texts.

    Above 512 tokens the rows are computed in blocks, and again in the backward pass: memory grows with 512 * n instead
    of n * n, and the result is the same.

    Args:
        student (`torch.Tensor` of shape `(batch_size, seq_len, student_size)`):
            Queries, keys or values of all heads of the student.
        teacher (`torch.Tensor` of shape `(batch_size, seq_len, teacher_size)`):
            The same of the teacher.
        mask (`torch.Tensor` of shape `(batch_size, seq_len)`):
            1 for real tokens, 0 for padding.
        num_heads (`int`):
            Number of relation heads, a divisor of both sizes.

    Returns:
        `torch.Tensor`: a scalar.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import relation_loss

    >>> values = torch.randn(1, 3, 8)
    >>> relation_loss(values, values, torch.ones(1, 3), num_heads=2)
    tensor(0.)
    ```
    """
    num_tokens, is_padding = student.shape[1], ~mask.bool()
    student, teacher = (states.unflatten(-1, (num_heads, -1)).transpose(1, 2) for states in (student, teacher))
    blocks = []
    for start in range(0, num_tokens, RELATION_BLOCK):
        rows = slice(start, start + RELATION_BLOCK)
        inputs = (student[:, :, rows], student, teacher[:, :, rows], teacher, is_padding)
        if num_tokens <= RELATION_BLOCK:
            blocks.append(_row_divergence(*inputs))
        else:
            blocks.append(recompute(_row_divergence, *inputs, use_reentrant=False, preserve_rng_state=False))
    return _mean_over_texts(torch.cat(blocks, dim=1), mask)


def _row_divergence(
    student_rows: torch.Tensor,
    student: torch.Tensor,
    teacher_rows: torch.Tensor,
    teacher: torch.Tensor,
    is_padding: torch.Tensor,
) -> torch.Tensor:
    """KL divergence of some rows of the relations, averaged over heads, `(batch_size, num_rows)`."""
    with torch.autocast(student.device.type, enabled=False):
        logs = []
        for rows, states in ((student_rows, student), (teacher_rows, teacher)):
            logits = (
                torch.matmul(to_full_precision(rows), to_full_precision(states).mT) * states.shape[-1] ** -0.5
            )  # [B, H, R, N]
            # Not infinity, because the difference of two infinities is NaN.
            logits = logits.masked_fill(is_padding[:, None, None], torch.finfo(logits.dtype).min)
            logs.append(logits.log_softmax(dim=-1))
        of_student, of_teacher = logs
        divergence = nn.functional.kl_div(of_student, of_teacher, reduction="none", log_target=True)
    return divergence.sum(dim=-1).mean(dim=1)


def chunk_mean(embeddings: torch.Tensor, weights: torch.Tensor, texts: torch.Tensor) -> torch.Tensor:
    """
    Sentence embeddings of texts in chunks: the mean of the chunk embeddings, scaled to length 1 and weighted by their
    numbers of tokens.

    Args:
        embeddings (`torch.Tensor` of shape `(num_chunks, embedding_size)`):
            Embeddings of the chunks.
        weights (`torch.Tensor` of shape `(num_chunks,)`):
            Number of tokens of each chunk.
        texts (`torch.Tensor` of shape `(num_chunks,)`):
            The text of each chunk, counted from 0; every text has a chunk.

    Returns:
        `torch.Tensor` of shape `(batch_size, embedding_size)`.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import chunk_mean

    >>> chunks = torch.tensor([[2.0, 0.0], [0.0, 1.0], [0.0, 3.0]])
    >>> chunk_mean(chunks, torch.tensor([3, 1, 5]), torch.tensor([0, 0, 1]))
    tensor([[0.7500, 0.2500],
            [0.0000, 1.0000]])
    ```
    """
    units, weights = nn.functional.normalize(to_full_precision(embeddings), dim=-1), weights.to(torch.float32)
    size = int(texts.max()) + 1
    sums = units.new_zeros(size, units.shape[-1]).index_add_(0, texts, units * weights[:, None])
    return sums / weights.new_zeros(size).index_add_(0, texts, weights)[:, None]


def to_full_precision(states: torch.Tensor) -> torch.Tensor:
    """Converts to at least float32, because half precision is too coarse for the small differences of the losses."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def _mean_over_texts(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of values `(batch_size, seq_len)` over the real tokens of each text, then over texts."""
    is_token = mask.bool()
    return (values.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)).mean()
