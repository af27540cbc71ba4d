# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Losses of pairs, and between the layers of a student and its teacher."""

import torch
from torch import nn
from torch.utils.checkpoint import checkpoint as recompute

from hf_dse.training.arguments import check_alpha


# Gold classes 0 and 1 as logits: a probability of 0.88, confident but not certain.
CLASS_LOGIT = 2.0

# Relations of longer texts are computed in blocks of this many rows.
RELATION_BLOCK = 512


def task_losses(logits: torch.Tensor, labels: torch.Tensor, problem_type: str) -> torch.Tensor:
    """The task loss of each pair, `(batch_size,)`, for a problem type of transformers. All labels must be known."""
    if problem_type == "regression":
        return (logits[:, 0] - labels.to(logits.dtype)).square()
    if problem_type == "multi_label_classification":
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), reduction="none")
    return nn.functional.cross_entropy(logits, labels.long(), reduction="none")


class PairDistillationLoss(nn.Module):
    """
    The DSE objective ([Barkan et al., 2020](https://huggingface.co/papers/1908.05161)), for each pair

        loss = (1 - alpha) * task_loss(student_logits, label) + alpha * squared_error(student_logits, teacher_logits)

    averaged over the batch. The task loss is the squared error (regression), binary cross-entropy (one logit) or
    cross-entropy. The distillation term is the squared difference of raw logits, summed over logits, without
    temperature. For a pair without a label (NaN, or a negative class) the loss is the distillation term only, for a
    pair without teacher scores (NaN) the task loss only.

    Args:
        alpha (`float`, *optional*, defaults to 0.5):
            Weight of the teacher: 0 for labels only, 1 for the teacher only.
        problem_type (`str`, *optional*, defaults to `"regression"`):
            As in the config of the student; `"multi_label_classification"` is one logit.

    Inputs:
        | Name             | Shape                      |                             |
        |------------------|----------------------------|-----------------------------|
        | `logits`         | `(batch_size, num_labels)` | of the student              |
        | `labels`         | `(batch_size,)`            | not needed if alpha is 1    |
        | `teacher_logits` | `(batch_size, num_labels)` | not needed if alpha is 0    |

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import PairDistillationLoss

    >>> loss = PairDistillationLoss(alpha=0.5)
    >>> loss(torch.tensor([[1.0], [3.0]]), torch.tensor([1.0, 1.0]), torch.tensor([[1.0], [1.0]]))
    tensor(2.)
    ```
    """

    def __init__(self, alpha: float = 0.5, problem_type: str = "regression"):
        super().__init__()
        check_alpha(alpha)
        self.alpha = alpha
        self.problem_type = problem_type

    def forward(
        self, logits: torch.Tensor, labels: torch.Tensor | None = None, teacher_logits: torch.Tensor | None = None
    ) -> torch.Tensor:
        labels, teacher_logits, alphas = self.fill_gaps(logits, labels, teacher_logits)
        losses = (1.0 - alphas) * task_losses(logits, labels, self.problem_type)
        return (losses + alphas * (logits - teacher_logits).square().sum(dim=1)).mean()

    def targets(
        self, num_labels: int, labels: torch.Tensor | None = None, teacher_logits: torch.Tensor | None = None
    ) -> torch.Tensor:
        """The target logits of the pairs, `(batch_size, num_labels)` and float64; classes are logits of 2 and -2."""
        known = labels if teacher_logits is None else teacher_logits
        like = torch.zeros(0 if known is None else len(known), num_labels, dtype=torch.float64)
        labels, teacher_logits, alphas = self.fill_gaps(like, labels, teacher_logits)
        if num_labels > 1:
            gold = CLASS_LOGIT * (2 * nn.functional.one_hot(labels.long(), num_labels) - 1).to(like)
        elif self.problem_type == "multi_label_classification":
            gold = CLASS_LOGIT * (2 * labels.to(like)[:, None] - 1)
        else:
            gold = labels.to(like)[:, None]
        return (1.0 - alphas)[:, None] * gold + alphas[:, None] * teacher_logits

    def fill_gaps(
        self, logits: torch.Tensor, labels: torch.Tensor | None, teacher_logits: torch.Tensor | None
    ) -> tuple[torch.Tensor, torch.Tensor, torch.Tensor]:
        """Labels and teacher scores with 0 where they are unknown, and the weight of the teacher for each pair."""
        if self.alpha < 1.0 and labels is None:
            raise ValueError("`distillation_alpha` below 1 needs labels: add the column 'label', or pass 1.")
        if self.alpha > 0.0 and teacher_logits is None:
            raise ValueError(
                "`distillation_alpha` above 0 needs the teacher's scores: add the column 'teacher_logits' (`hf-dse "
                "score`), or pass 0."
            )
        if labels is None:
            labels = torch.full((len(logits),), torch.nan)
        labels = labels.to(logits.device)
        is_labelled = labels.isfinite() if labels.is_floating_point() else labels >= 0
        # At alpha 0 or 1 one of the two is only a fallback. Where it is not needed, it is not looked at.
        if teacher_logits is None or (self.alpha == 0.0 and is_labelled.all()):
            teacher_logits = torch.full_like(logits, torch.nan)
        if self.problem_type == "multi_label_classification" and teacher_logits.shape[1] == 2:
            # Two logits become one by their difference, as in DSE.
            teacher_logits = teacher_logits.diff(dim=1)
        if teacher_logits.shape[1] != logits.shape[1]:
            raise ValueError(
                f"The teacher has {teacher_logits.shape[1]} logits per pair and the student {logits.shape[1]}. Score "
                "the pairs with a teacher for the same task, or use a student with "
                f"num_labels={teacher_logits.shape[1]}."
            )
        teacher_logits = teacher_logits.to(logits)
        is_scored = teacher_logits.isfinite().all(dim=1)
        if self.alpha == 1.0:
            is_labelled = is_labelled & ~is_scored
        if not (is_labelled | is_scored).all():
            raise ValueError("A pair of the batch has neither a label nor finite teacher scores: remove it.")
        alphas = torch.where(is_labelled & is_scored, self.alpha, is_scored.to(logits.dtype))
        # 0 * NaN would still be NaN.
        return labels.masked_fill(~is_labelled, 0), teacher_logits.masked_fill(~is_scored[:, None], 0.0), alphas


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Squared error of hidden states `(batch_size, seq_len, size)`, each text with the same weight
    ([TinyBERT](https://huggingface.co/papers/1909.10351), equations 8 and 9). The mask is 0 for padding.
    """
    squares = (to_full_precision(student) - to_full_precision(teacher)).square().mean(dim=-1)
    return _mean_of_texts(squares, mask).mean()


def relation_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    KL(teacher || student) of softmax(X X^T / sqrt(d)) of queries, keys or values `(batch_size, num_heads, seq_len,
    d)`, averaged over heads ([MiniLMv2](https://huggingface.co/papers/2012.15828)). Blocks of rows bound the memory of
    long texts.
    """
    num_tokens, is_padding = student.shape[2], ~mask.bool()
    blocks = []
    for start in range(0, num_tokens, RELATION_BLOCK):
        rows = slice(start, start + RELATION_BLOCK)
        inputs = (student[:, :, rows], student, teacher[:, :, rows], teacher, is_padding)
        if num_tokens <= RELATION_BLOCK:
            blocks.append(_row_divergence(*inputs))
        else:
            blocks.append(recompute(_row_divergence, *inputs, use_reentrant=False, preserve_rng_state=False))
    return _mean_of_texts(torch.cat(blocks, dim=1), mask).mean()


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
            rows, states = to_full_precision(rows), to_full_precision(states)
            logits = torch.matmul(rows, states.mT) * states.shape[-1] ** -0.5  # [B, H, R, N]
            # Not infinity, because the difference of two infinities is NaN.
            logits = logits.masked_fill(is_padding[:, None, None], torch.finfo(logits.dtype).min)
            logs.append(logits.log_softmax(dim=-1))
        of_student, of_teacher = logs
        divergence = nn.functional.kl_div(of_student, of_teacher, reduction="none", log_target=True)
    return divergence.sum(dim=-1).mean(dim=1)


def to_full_precision(states: torch.Tensor) -> torch.Tensor:
    """Converts to at least float32, because half precision is too coarse for the small differences of the losses."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def _mean_of_texts(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of values `(batch_size, seq_len)` over the real tokens of each text, `(batch_size,)`."""
    is_token = mask.bool()
    return values.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)
