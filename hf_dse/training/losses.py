# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pair objective of DSE, on gold labels and teacher scores; losses on the ranking of pairs and on similarities."""

import torch
from torch import nn


# Gold classes 0 and 1 as logits: a probability of 0.88, confident but not certain.
CLASS_LOGIT = 2.0


def collapse_logits(logits: torch.Tensor) -> torch.Tensor:
    """
    Turns the two logits of a binary teacher into one: z = logit_1 - logit_0, as in DSE. The sigmoid of z is the
    softmax probability of class 1.

    Args:
        logits (`torch.Tensor` of shape `(batch_size, 2)`):
            Raw logits.

    Returns:
        `torch.Tensor` of shape `(batch_size, 1)`.
    """
    return logits[:, 1:] - logits[:, :1]


def match_teacher_logits(teacher_logits: torch.Tensor, num_labels: int) -> torch.Tensor:
    """
    Converts the logits of a teacher to the shape of the student's.

    Args:
        teacher_logits (`torch.Tensor` of shape `(batch_size, num_teacher_labels)`):
            Raw logits of the teacher.
        num_labels (`int`):
            Number of logits of the student.

    Returns:
        `torch.Tensor` of shape `(batch_size, num_labels)`.

    Raises:
        `ValueError`: if teacher and student have different numbers of labels.
    """
    num_teacher_labels = teacher_logits.shape[1]
    if num_teacher_labels == num_labels:
        return teacher_logits
    if num_teacher_labels == 2 and num_labels == 1:
        return collapse_logits(teacher_logits)
    raise ValueError(
        f"The teacher has {num_teacher_labels} logits per pair and the student {num_labels}. Score the pairs with a "
        f"teacher for the same task, or use a student with num_labels={num_teacher_labels}."
    )


def has_label(labels: torch.Tensor) -> torch.Tensor:
    """Whether each of the labels `(batch_size,)` is known: neither NaN (scores) nor negative (classes)."""
    return labels.isfinite() if labels.is_floating_point() else labels >= 0


def task_losses(logits: torch.Tensor, labels: torch.Tensor, problem_type: str) -> torch.Tensor:
    """
    The task loss of each pair. All labels must be known.

    Args:
        logits (`torch.Tensor` of shape `(batch_size, num_labels)`):
            Logits of the student.
        labels (`torch.Tensor` of shape `(batch_size,)`):
            Scores or classes.
        problem_type (`str`):
            `"regression"` (squared error), `"multi_label_classification"` (binary cross-entropy on one logit) or
            `"single_label_classification"` (cross-entropy).

    Returns:
        `torch.Tensor` of shape `(batch_size,)`.
    """
    if problem_type == "regression":
        return (logits[:, 0] - labels.to(logits.dtype)).square()
    if problem_type == "multi_label_classification":
        return nn.functional.binary_cross_entropy_with_logits(logits[:, 0], labels.to(logits.dtype), reduction="none")
    return nn.functional.cross_entropy(logits, labels.long(), reduction="none")


def ranking_loss(scores: torch.Tensor, targets: torch.Tensor, scale: float) -> torch.Tensor:
    """
    CoSENT, the logarithm of 1 + the sum of exp(scale * (scores_j - scores_i)) over all i, j with targets_i > targets_j
    ([Huang et al., 2024](https://doi.org/10.1109/TASLP.2024.3402087)): every pair is ranked against all other pairs
    of the batch. Only the order of the targets matters.

    Args:
        scores (`torch.Tensor` of shape `(batch_size,)`):
            Scores of the student for the pairs.
        targets (`torch.Tensor` of shape `(batch_size,)`):
            Targets that give the right order.
        scale (`float`):
            20 is usual for cosines; for scores of another range, divide 20 by the range.

    Returns:
        `torch.Tensor`: a scalar.
    """
    differences = scale * (scores[None, :] - scores[:, None])  # [i, j]
    differences = differences[targets[:, None] > targets[None, :]]
    return torch.cat([differences.new_zeros(1), differences]).logsumexp(dim=0)


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

    averaged over the batch, with a weight for each pair if there are `weights`. The task loss is the squared error
    (regression), binary cross-entropy (one logit) or cross-entropy. The distillation term is the squared difference of
    raw logits, summed over logits, without temperature. For a pair without a label (NaN, or a negative class) the loss
    is the distillation term only, for a pair without teacher scores (NaN) the task loss only.

    Args:
        alpha (`float`):
            Weight of the teacher: 0 for labels only, 1 for the teacher only.
        problem_type (`str`, *optional*, defaults to `"regression"`):
            As in the config of the student: `"regression"`, `"multi_label_classification"` (one logit) or
            `"single_label_classification"`.
        ranking_weight (`float`, *optional*, defaults to 0.0):
            Weight of the [`ranking_loss`] that is added in a regression. Its targets are
            (1 - alpha) * label + alpha * teacher_logit.
        ranking_scale (`float`, *optional*, defaults to 4.0):
            Scale of the ranking loss: 20 for cosines from 0 to 1 is 4 for labels from 0 to 5.

    Inputs:
        | Name             | Shape                      |                             |
        |------------------|----------------------------|-----------------------------|
        | `logits`         | `(batch_size, num_labels)` | of the student              |
        | `labels`         | `(batch_size,)`            | not needed if alpha is 1    |
        | `teacher_logits` | `(batch_size, num_labels)` | not needed if alpha is 0    |
        | `weights`        | `(batch_size,)`            | optional                    |

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

    def __init__(
        self,
        alpha: float = 0.5,
        problem_type: str = "regression",
        ranking_weight: float = 0.0,
        ranking_scale: float = 4.0,
    ):
        super().__init__()
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(
                f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got {alpha}."
            )
        if ranking_weight and problem_type != "regression":
            raise ValueError(
                f"`ranking_weight` is {ranking_weight}, but the ranking loss needs a regression, and the problem type "
                f"is {problem_type!r}: set it to 0."
            )
        self.alpha = alpha
        self.problem_type = problem_type
        self.ranking_weight = ranking_weight
        self.ranking_scale = ranking_scale

    def forward(
        self,
        logits: torch.Tensor,
        labels: torch.Tensor | None = None,
        teacher_logits: torch.Tensor | None = None,
        weights: torch.Tensor | None = None,
    ) -> torch.Tensor:
        labels, teacher_logits, alphas = self.fill_gaps(logits, labels, teacher_logits)
        losses = (1.0 - alphas) * task_losses(logits, labels, self.problem_type)
        losses = losses + alphas * (logits - teacher_logits).square().sum(dim=1)
        loss = (losses if weights is None else losses * weights.to(losses)).mean()
        if self.ranking_weight:
            targets = (1.0 - alphas) * labels + alphas * teacher_logits[:, 0]
            loss = loss + self.ranking_weight * ranking_loss(logits[:, 0], targets, self.ranking_scale)
        return loss

    def targets(
        self, num_labels: int, labels: torch.Tensor | None = None, teacher_logits: torch.Tensor | None = None
    ) -> torch.Tensor:
        """
        The target logits of the pairs; classes are logits of 2 and -2. Raises the errors of `forward`.

        Returns:
            `torch.Tensor` of shape `(batch_size, num_labels)` and type float64.
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
        # At alpha 0 or 1 one of the two is only a fallback. If it is not needed, it is not checked.
        if self.alpha == 0.0 and labels is not None and has_label(labels).all():
            teacher_logits = None
        if self.alpha == 1.0 and teacher_logits is not None and teacher_logits.isfinite().all():
            labels = None
        if labels is None:
            labels = torch.full((len(logits),), torch.nan)
        if teacher_logits is None:
            teacher_logits = torch.full_like(logits, torch.nan)
        labels = labels.to(logits.device)
        teacher_logits = match_teacher_logits(teacher_logits, logits.shape[1]).to(logits)
        is_labelled, is_scored = has_label(labels), teacher_logits.isfinite().all(dim=1)
        if not (is_labelled | is_scored).all():
            raise ValueError(
                "A pair of the batch has neither a label nor finite teacher scores: label it, score it, or remove it."
            )
        alphas = torch.where(is_labelled & is_scored, self.alpha, is_scored.to(logits.dtype))
        # 0 * NaN would still be NaN.
        return labels.masked_fill(~is_labelled, 0), teacher_logits.masked_fill(~is_scored[:, None], 0.0), alphas


def alignment_loss(embeddings: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """
    The squared distance between the vectors of a student and those of its teacher, all scaled to length 1, text by
    text: the objective of [LEAF](https://huggingface.co/papers/2509.12539). It is 2 - 2 * cosine.

    Args:
        embeddings (`torch.Tensor` of shape `(batch_size, size)`):
            Vectors of the student, of any length.
        targets (`torch.Tensor` of shape `(batch_size, size)`):
            Vectors of the teacher for the same texts.

    Returns:
        `torch.Tensor`: a scalar, the mean over the texts; from 0 to 4.

    Raises:
        `ValueError`: if the vectors have different shapes.

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import alignment_loss

    >>> alignment_loss(torch.tensor([[3.0, 0.0], [0.0, 2.0]]), torch.tensor([[1.0, 0.0], [1.0, 0.0]]))
    tensor(1.)
    ```
    """
    if embeddings.shape != targets.shape:
        raise ValueError(
            f"The vectors of the student have the shape {tuple(embeddings.shape)}, and those of the teacher "
            f"{tuple(targets.shape)}: give the student a linear layer to the size of the teacher's."
        )
    ours, theirs = (nn.functional.normalize(vectors.float(), dim=-1) for vectors in (embeddings, targets))
    return (ours - theirs).square().sum(dim=-1).mean()
