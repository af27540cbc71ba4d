# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The pair objective of DSE: gold labels and the scores of a teacher."""

import torch
from torch import nn


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
    Gives the logits of a teacher the shape of the student's.

    Args:
        teacher_logits (`torch.Tensor` of shape `(batch_size, num_teacher_labels)`):
            Raw logits of the teacher.
        num_labels (`int`):
            Number of logits of the student.

    Returns:
        `torch.Tensor` of shape `(batch_size, num_labels)`.

    Raises:
        `ValueError`: if teacher and student do not have the same labels.
    """
    num_teacher_labels = teacher_logits.shape[1]
    if num_teacher_labels == num_labels:
        return teacher_logits
    if num_teacher_labels == 2 and num_labels == 1:
        return collapse_logits(teacher_logits)
    raise ValueError(
        f"The teacher has {num_teacher_labels} logits a pair and the student {num_labels}. Score the pairs with a "
        f"teacher of the same task, or make a student with num_labels={num_teacher_labels}."
    )


class PairDistillationLoss(nn.Module):
    """
    The DSE objective ([Barkan et al., 2020](https://huggingface.co/papers/1908.05161)):

        loss = (1 - alpha) * task_loss(student_logits, labels) + alpha * mse(student_logits, teacher_logits)

    The task loss is the squared error (regression), binary cross-entropy (one logit) or cross-entropy. The
    distillation term is the squared difference of raw logits, summed over logits and averaged over the batch, without
    temperature.

    Args:
        alpha (`float`):
            Weight of the teacher: 0 for labels only, 1 for the teacher only.

    Inputs:
        | Name             | Shape                      |                             |
        |------------------|----------------------------|-----------------------------|
        | `logits`         | `(batch_size, num_labels)` | of the student              |
        | `task_loss`      | scalar                     | not needed if alpha is 1    |
        | `teacher_logits` | `(batch_size, num_labels)` | not needed if alpha is 0    |

    Example:

    ```python
    >>> import torch
    >>> from hf_dse.losses import PairDistillationLoss

    >>> loss = PairDistillationLoss(alpha=0.5)
    >>> loss(torch.tensor([[1.0], [3.0]]), torch.tensor(2.0), torch.tensor([[1.0], [1.0]]))
    tensor(2.)
    ```
    """

    def __init__(self, alpha: float = 0.5):
        super().__init__()
        if not 0.0 <= alpha <= 1.0:
            raise ValueError(
                f"`distillation_alpha` must be between 0 (labels only) and 1 (teacher only), got {alpha}."
            )
        self.alpha = alpha

    def forward(
        self,
        logits: torch.Tensor,
        task_loss: torch.Tensor | None = None,
        teacher_logits: torch.Tensor | None = None,
    ) -> torch.Tensor:
        loss = logits.new_zeros(())
        if self.alpha < 1.0:
            if task_loss is None:
                raise ValueError("`distillation_alpha` below 1 needs labels, and the batch has none.")
            loss = loss + (1.0 - self.alpha) * task_loss
        if self.alpha > 0.0:
            if teacher_logits is None:
                raise ValueError("`distillation_alpha` above 0 needs teacher scores, and the batch has none.")
            teacher_logits = match_teacher_logits(teacher_logits, logits.shape[1]).to(logits)
            loss = loss + self.alpha * (logits - teacher_logits).square().sum(dim=1).mean()
        return loss
