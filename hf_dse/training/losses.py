# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Losses of pairs, of queries with candidates, and between the layers of a student and its teacher. The margins of a
ranking teacher (MarginMSE) taught no more than its distribution on SciFact (studies/notebook.md), and `MarginMSELoss`
less on SQuAD (docs/comparison.md), so there is no loss for them.
"""

import torch
from torch import nn

from hf_dse.training.arguments import check_alpha


# Gold classes 0 and 1 as logits: a probability of 0.88, confident but not certain.
CLASS_LOGIT = 2.0

# Spread of the logits that a softmax over candidates sees. With one relevant document among eight, a spread of 1.5 is
# a gap of 4.5 logits: 93 % of the probability is on that document, and the rest still tells the others apart.
LOGIT_SPREAD = 1.5


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
        # Labels of the shape (batch_size, 1) would be compared with the logits of all pairs.
        labels = None if labels is None else labels.reshape(len(logits))
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
        # Classes alone have -1 for an unknown one.
        is_class = self.problem_type != "regression" and not labels.is_floating_point()
        is_labelled = labels >= 0 if is_class else labels.isfinite()
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


def find_negatives(
    documents: torch.Tensor, labels: torch.Tensor, document_ids: torch.Tensor, positives: torch.Tensor
) -> torch.Tensor:
    """
    Which documents are negatives of which query, `(Q, D)`. Of documents with the same text only the first counts.
    """
    own = document_ids[documents.clamp(min=0)].masked_fill((labels == 0) | (documents < 0), -1)
    excluded = torch.cat([positives, own], dim=1)  # [Q, P + C]
    is_excluded = torch.stack([torch.isin(document_ids, row) for row in excluded])
    is_repeated = (document_ids[:, None] == document_ids[None, :]).tril(-1).any(dim=1)
    return ~(is_excluded | is_repeated)


def contrastive_loss(
    scores: torch.Tensor, documents: torch.Tensor, labels: torch.Tensor, is_negative: torch.Tensor
) -> torch.Tensor:
    """Cross-entropy of each positive against the negatives: the mean over positives of a query, then over queries."""
    own = scores.gather(1, documents.clamp(min=0))  # [Q, C]
    # Not -inf, whose gradient would be NaN where a query has no negative.
    rest = scores.masked_fill(~is_negative, torch.finfo(scores.dtype).min).logsumexp(dim=1, keepdim=True)
    is_positive = (labels > 0) & (documents >= 0)
    count = is_positive.sum(dim=1)
    means = (torch.logaddexp(own, rest) - own).masked_fill(~is_positive, 0.0).sum(dim=1) / count.clamp(min=1)
    return means.sum() / (count > 0).sum().clamp(min=1)


def listwise_loss(student: torch.Tensor, teacher: torch.Tensor) -> torch.Tensor:
    """KL(teacher || student) of the softmax over candidates, the mean over the queries with two scores or more."""
    is_known = teacher.isfinite()
    lowest = torch.finfo(student.dtype).min
    target, output = (
        values.masked_fill(~is_known, lowest).log_softmax(dim=1).masked_fill(~is_known, 0.0)
        for values in (teacher, student)
    )
    divergence = (target.exp() * (target - output)).sum(dim=1)
    is_list = is_known.sum(dim=1) > 1
    return divergence.masked_fill(~is_list, 0.0).sum() / is_list.sum().clamp(min=1)


class RankingLoss(nn.Module):
    """
    The weighted sum of a contrastive loss (a positive against all other documents of the batch) and the KL divergence
    from the teacher's distribution over the candidates, both of logits in units of one temperature: a student that
    agrees with its teacher has the same logits, and the temperature, which depends on the teacher's scores alone, only
    says how large a difference between two logits is.

    Args:
        contrastive_weight (`float`, *optional*, defaults to 1.0):
            Weight of the labels.
        kl_weight (`float`, *optional*, defaults to 1.0):
            Weight of the teacher's distribution over the candidates.
        temperature (`float`, *optional*, defaults to 1.0):
            What logits are divided by; [`RankingTrainer`] finds it from the teacher's scores.

    Inputs:
        | Name             | Shape                           |                                                    |
        |------------------|---------------------------------|----------------------------------------------------|
        | `logits`         | `(num_queries, num_documents)`  | of the student, for all documents of the batch     |
        | `documents`      | `(num_queries, num_candidates)` | positions of each query's candidates, -1 for none  |
        | `labels`         | `(num_queries, num_candidates)` | above 0 relevant, 0 not, NaN unknown               |
        | `teacher_logits` | `(num_queries, num_candidates)` | NaN unknown                                        |
        | `document_ids`   | `(num_documents,)`              | a number for each text                             |
        | `positives`      | `(num_queries, num_positives)`  | numbers of all relevant texts, -1 for none         |

    Example:

    ```python
    >>> import torch
    >>> from hf_dse import RankingLoss

    >>> # One query, its relevant document and another one.
    >>> loss = RankingLoss(kl_weight=0.0)
    >>> documents, labels, positives = torch.tensor([[0, 1]]), torch.tensor([[1.0, 0.0]]), torch.tensor([[7]])
    >>> loss(torch.tensor([[2.0, 2.0]]), documents, labels, labels, torch.tensor([7, 8]), positives)
    tensor(0.6931)
    ```
    """

    def __init__(self, contrastive_weight: float = 1.0, kl_weight: float = 1.0, temperature: float = 1.0):
        super().__init__()
        self.contrastive_weight = contrastive_weight
        self.kl_weight = kl_weight
        self.temperature = temperature

    def forward(
        self,
        logits: torch.Tensor,
        documents: torch.Tensor,
        labels: torch.Tensor,
        teacher_logits: torch.Tensor,
        document_ids: torch.Tensor,
        positives: torch.Tensor,
    ) -> torch.Tensor:
        scores, targets = logits / self.temperature, teacher_logits / self.temperature
        own = scores.gather(1, documents.clamp(min=0))
        targets = targets.masked_fill(documents < 0, torch.nan)
        loss = 0.0 * scores.sum()
        if self.contrastive_weight:
            is_negative = find_negatives(documents, labels, document_ids, positives)
            loss = loss + self.contrastive_weight * contrastive_loss(scores, documents, labels, is_negative)
        if self.kl_weight:
            loss = loss + self.kl_weight * listwise_loss(own, targets)
        return loss


def hidden_loss(student: torch.Tensor, teacher: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """
    Squared error of hidden states `(batch_size, seq_len, size)`, each text with the same weight
    ([TinyBERT](https://huggingface.co/papers/1909.10351), equations 8 and 9). The mask is 0 for padding.
    """
    squares = (to_full_precision(student) - to_full_precision(teacher)).square().mean(dim=-1)
    return _mean_of_texts(squares, mask).mean()


def to_full_precision(states: torch.Tensor) -> torch.Tensor:
    """Converts to at least float32, because half precision is too coarse for the small differences of the losses."""
    return states.to(torch.promote_types(states.dtype, torch.float32))


def _mean_of_texts(values: torch.Tensor, mask: torch.Tensor) -> torch.Tensor:
    """The mean of values `(batch_size, seq_len)` over the real tokens of each text, `(batch_size,)`."""
    is_token = mask.bool()
    return values.masked_fill(~is_token, 0.0).sum(dim=1) / is_token.sum(dim=1).clamp(min=1)
