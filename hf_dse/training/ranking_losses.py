# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Losses on queries with candidates: contrastive and listwise, in one unit of logits. The teacher's margins (MarginMSE)
taught no more than its distribution on SciFact (studies/notebook.md), and `MarginMSELoss` less on SQuAD
(docs/comparison.md).

Shapes: Q queries with up to C candidates each, from a batch of D documents. `documents` `(Q, C)` are the positions of
the candidates among the documents, -1 for none; `labels` `(Q, C)` are above 0 for relevant ones, 0 for others, NaN if
unknown; `document_ids` `(D,)` has a number for each text, and `positives` `(Q, P)` the numbers of all texts that are
known to be relevant for a query, filled up with -1. Scores of student and teacher for the candidates are `(Q, C)`, NaN
where the teacher's are unknown.
"""

import math
from collections.abc import Iterable, Sequence

import numpy as np
import torch
from torch import nn


# Spread of the logits that a softmax over candidates sees. With one relevant document among eight, a spread of 1.5 is
# a gap of 4.5 logits: 93 % of the probability is on that document, and the rest still tells the others apart.
LOGIT_SPREAD = 1.5


def mean_spread(lists: Iterable[Sequence[float] | np.ndarray]) -> float:
    """The mean standard deviation within lists of scores, in which NaN is unknown; NaN without a list of two."""
    known = (np.asarray(values)[np.isfinite(values)] for values in lists)
    return float(np.mean([values.std() for values in known if len(values) > 1] or [math.nan]))


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
