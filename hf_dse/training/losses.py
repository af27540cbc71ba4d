# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pair objective of DSE, on gold labels and teacher scores, and a loss on similarities."""

import torch
from torch import nn

from hf_dse.training.arguments import check_alpha


# Gold classes 0 and 1 as logits: a probability of 0.88, confident but not certain.
CLASS_LOGIT = 2.0


def match_teacher_logits(teacher_logits: torch.Tensor, num_labels: int) -> torch.Tensor:
    """
    Converts teacher logits of shape `(batch_size, num_teacher_labels)` to the shape of the student's, `(batch_size,
    num_labels)`. The two logits of a binary teacher become one, logit 1 - logit 0, as in DSE: its sigmoid is the
    softmax probability of class 1. Raises a `ValueError` for any other difference.
    """
    num_teacher_labels = teacher_logits.shape[1]
    if num_teacher_labels == num_labels:
        return teacher_logits
    if num_teacher_labels == 2 and num_labels == 1:
        return teacher_logits[:, 1:] - teacher_logits[:, :1]
    raise ValueError(
        f"The teacher has {num_teacher_labels} logits per pair and the student {num_labels}. Score the pairs with a "
        f"teacher for the same task, or use a student with num_labels={num_teacher_labels}."
    )


def task_losses(logits: torch.Tensor, labels: torch.Tensor, problem_type: str) -> torch.Tensor:
    """
    The task loss of each pair, `(batch_size,)`: squared error for `"regression"`, binary cross-entropy on one logit
    for `"multi_label_classification"`, otherwise cross-entropy. All labels must be known.
    """
    if problem_type == "regression":
        return (logits[:, 0] - labels.to(logits.dtype)).square()
    if problem_type == "multi_label_classification":
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), reduction="none")
    return nn.functional.cross_entropy(logits, labels.long(), reduction="none")


def similarity_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """
    Distils the similarities of a bi-encoder: the squared difference between the cosines of student and teacher,
    averaged over all combinations of two sentences of a batch that are from different pairs (the angles of
    [similarity-preserving distillation](https://huggingface.co/papers/1907.09682), without those that have a label or
    a score of the cross-encoder).

    Args:
        student (`torch.Tensor` of shape `(batch_size, 2, embedding_size)`):
            Embeddings of the student.
        teacher (`torch.Tensor` of shape `(batch_size, 2, teacher_size)`):
            Embeddings of the bi-encoder. Only their angles matter, so they may have another size.

    Returns:
        `torch.Tensor`: a scalar; 0 for a single pair.
    """
    pairs = torch.arange(2 * len(student), device=student.device) // 2
    is_other = pairs[:, None] != pairs[None, :]
    return cosine_loss(student.flatten(0, 1), teacher.flatten(0, 1), is_other)


def cosine_loss(student: torch.Tensor, teacher: torch.Tensor, is_counted: torch.Tensor) -> torch.Tensor:
    """
    The mean squared difference between the cosines of student and teacher, over the combinations of two texts that
    `is_counted`, of shape `(num_texts, num_texts)`, names; 0 without any. Embeddings are `(num_texts, size)`.
    """
    cosines = []
    for embeddings in (student, teacher):
        units = nn.functional.normalize(embeddings.float(), dim=-1)
        cosines.append(units @ units.mT)
    squares = (cosines[0] - cosines[1]).square().masked_fill(~is_counted, 0.0)
    return squares.sum() / is_counted.sum().clamp(min=1)


class PairDistillationLoss(nn.Module):
    """
    The DSE objective ([Barkan et al., 2020](https://huggingface.co/papers/1908.05161)), for each pair

        loss = (1 - alpha) * task_loss(student_logits, label) + alpha * squared_error(student_logits, teacher_logits)

    averaged over the batch. The task loss is the squared error (regression), binary cross-entropy (one logit) or
    cross-entropy. The distillation term is the squared difference of raw logits, summed over logits, without
    temperature. For a pair without a label (NaN, or a negative class) the loss is the distillation term only, for a
    pair without teacher scores (NaN) the task loss only.

    Args:
        alpha (`float`):
            Weight of the teacher: 0 for labels only, 1 for the teacher only.
        problem_type (`str`, *optional*, defaults to `"regression"`):
            As in the config of the student: `"regression"`, `"multi_label_classification"` (one logit) or
            `"single_label_classification"`.

    Inputs:
        | Name             | Shape                      |                             |
        |------------------|----------------------------|-----------------------------|
        | `logits`         | `(batch_size, num_labels)` | of the student              |
        | `labels`         | `(batch_size,)`            | not needed if alpha is 1    |
        | `teacher_logits` | `(batch_size, num_labels)` | not needed if alpha is 0    |

    Raises:
        `ValueError`: if labels or teacher scores are missing, or the teacher has another number of labels.

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
        """
        The target logits of the pairs, `(batch_size, num_labels)` and float64; classes are logits of 2 and -2. Raises
        the errors of `forward`.
        """
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
            raise ValueError("`distillation_alpha` below 1 needs labels, but the batch has none.")
        if self.alpha > 0.0 and teacher_logits is None:
            raise ValueError("`distillation_alpha` above 0 needs teacher scores, but the batch has none.")
        if labels is None:
            labels = torch.full((len(logits),), torch.nan)
        labels = labels.to(logits.device)
        is_labelled = labels.isfinite() if labels.is_floating_point() else labels >= 0
        # At alpha 0 or 1 one of the two is only a fallback. Where it is not needed, it is not looked at.
        if teacher_logits is None or (self.alpha == 0.0 and is_labelled.all()):
            teacher_logits = torch.full_like(logits, torch.nan)
        teacher_logits = match_teacher_logits(teacher_logits, logits.shape[1]).to(logits)
        is_scored = teacher_logits.isfinite().all(dim=1)
        if self.alpha == 1.0:
            is_labelled = is_labelled & ~is_scored
        if not (is_labelled | is_scored).all():
            raise ValueError(
                "A pair of the batch has neither a label nor finite teacher scores: label it, score it, or remove it."
            )
        alphas = torch.where(is_labelled & is_scored, self.alpha, is_scored.to(logits.dtype))
        # 0 * NaN would still be NaN.
        return labels.masked_fill(~is_labelled, 0), teacher_logits.masked_fill(~is_scored[:, None], 0.0), alphas
