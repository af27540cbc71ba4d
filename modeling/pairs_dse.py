# Copyright 2026 The hf-dse authors.
#
# Licensed under the Apache License, Version 2.0 (the "License");
# you may not use this file except in compliance with the License.
# You may obtain a copy of the License at
#
#     http://www.apache.org/licenses/LICENSE-2.0
#
# Unless required by applicable law or agreed to in writing, software
# distributed under the License is distributed on an "AS IS" BASIS,
# WITHOUT WARRANTIES OR CONDITIONS OF ANY KIND, either express or implied.
# See the License for the specific language governing permissions and
# limitations under the License.
"""Sentence pairs: their output, the comparison of two embeddings, and the splitting of pairs."""

from dataclasses import dataclass
from typing import Any

import torch
from torch import nn
from transformers.utils import ModelOutput, auto_docstring
from transformers.utils.import_utils import is_tracing

from .attention_dse import order_tokens, take_rows
from .configuration_dse import DseConfig


# Labelled pairs that a new head is fitted to. Below the second number the pairs only say where it is centred.
FIT_PAIRS = 256
MIN_PAIRS = 16

# A fitted head trusts the similarity at least as much as with this correlation to the labels.
MIN_CORRELATION = 0.25


@auto_docstring(
    custom_intro="""
    Logits of sentence pairs, and the two embeddings of each pair that they were computed from.
    """
)
@dataclass
class DsePairOutput(ModelOutput):
    r"""
    loss (`torch.FloatTensor` of shape `(1,)`, *optional*, returned when `labels` is provided):
        Mean squared error, binary cross-entropy or cross-entropy.
    logits (`torch.FloatTensor` of shape `(batch_size, num_labels)`):
        Similarity of the two sentences, before softmax.
    embeddings (`torch.FloatTensor` of shape `(batch_size, 2, embedding_size)`):
        The sentence embeddings of each pair.
    """

    loss: torch.FloatTensor | None = None
    logits: torch.FloatTensor | None = None
    embeddings: torch.FloatTensor | None = None
    hidden_states: tuple[torch.FloatTensor, ...] | None = None
    attentions: tuple[torch.FloatTensor, ...] | None = None


class DseClassificationHead(nn.Module):
    """
    Two embeddings to logits: a learned scale and bias of their cosine or dot product, or the head of DSE.

    A cosine is at most 1, so labels from 0 to 5 would pull all embeddings together. Scale and bias therefore start
    from a line, which is fitted to the first `FIT_PAIRS` labelled pairs of a training: `logits = scale * (start[0] *
    similarity) + start[1] + bias`. As in batch normalization, running statistics are buffers, and change in training
    mode alone.
    """

    moments: torch.Tensor
    start: torch.Tensor

    def __init__(self, config: DseConfig):
        super().__init__()
        self.config = config
        self.kind = config.similarity
        num_labels: Any = config.num_labels
        if self.kind == "mlp":
            self.dense = nn.Linear(4 * config.embedding_size, config.similarity_hidden_size)
            self.out_proj = nn.Linear(config.similarity_hidden_size, num_labels)
        else:
            self.scale = nn.Parameter(torch.empty(num_labels))
            self.bias = nn.Parameter(torch.empty(num_labels))
            self.register_buffer("moments", torch.zeros(6, num_labels))
            self.register_buffer("start", first_line(num_labels))

    def forward(self, first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Embeddings of shape `(batch_size, embedding_size)` to logits of shape `(batch_size, num_labels)`."""
        if self.kind == "mlp":
            # CODEPATH: checkpoints with `normalize_embeddings`, whose vectors have numbers too small to learn from
            if self.config.normalize_embeddings:
                first, second = (embeddings * embeddings.shape[-1] ** 0.5 for embeddings in (first, second))
            features = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
            return self.out_proj(nn.functional.relu(self.dense(features)))
        similarity = self.compare(first, second)
        # A frozen head, such as one that an adapter does not save, stays as it is.
        if self.training and labels is not None and self.scale.requires_grad:
            self.track(similarity, labels)
        # A copy, because the next forward pass may change the buffer before the backward pass of this one.
        slope, intercept = self.start.clone()
        return similarity[..., None] * slope * self.scale + intercept + self.bias

    def compare(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """The similarity of two embeddings, by cosine or dot product."""
        if self.kind == "cosine":
            return nn.functional.cosine_similarity(first, second, dim=-1)
        return (first * second).sum(dim=-1)

    @torch.no_grad()
    def track(self, similarity: torch.Tensor, labels: torch.Tensor) -> None:
        """Adds labelled pairs to those seen before, up to `FIT_PAIRS`, and fits the line to them."""
        before = self.moments.float()
        moments = add_moments(before, measure(similarity.float(), read_targets(self.config, labels)))
        start = torch.stack(fit_similarity(moments, get_problem_type(self.config)))
        is_open = before[0] < FIT_PAIRS
        self.moments.copy_(torch.where(is_open, moments, before))
        self.start.copy_(torch.where(is_open, start, self.start.float()))

    @torch.no_grad()
    def calibrate(self, scale: torch.Tensor | float, bias: torch.Tensor | float) -> None:
        """Sets `logits = scale * similarity + bias`, which labels do not change any more."""
        for parameter, value in ((self.scale, scale), (self.bias, bias)):
            parameter.copy_(torch.as_tensor(value).expand_as(parameter))
        self.start.copy_(torch.tensor([[1.0], [0.0]]).expand_as(self.start))
        self.moments.zero_()
        self.moments[0] = FIT_PAIRS


def first_line(num_labels: int) -> torch.Tensor:
    """Slopes, from -1 to 1 for several labels, and intercepts of a new head, `(2, num_labels)`."""
    # Equal slopes would give equal logits, and the encoder no gradient.
    slope = torch.arange(num_labels) * 2.0 / (num_labels - 1) - 1.0 if num_labels > 1 else torch.ones(1)
    return torch.stack([slope, torch.zeros(num_labels)])


def get_problem_type(config: DseConfig) -> str:
    """The `problem_type` of a configuration, which follows from the number of labels if it is not set."""
    default = "regression" if config.num_labels == 1 else "single_label_classification"
    return config.problem_type or default


def check_labels(config: DseConfig, labels: torch.Tensor, num_pairs: int) -> None:
    """Raises an error for labels that a model with this `problem_type` and `num_labels` cannot have."""
    problem_type, num_labels = get_problem_type(config), config.num_labels or 1
    if problem_type == "single_label_classification":
        wanted = f"one class from 0 to {num_labels - 1} for each of {num_pairs} pairs, as integers"
        fits = labels.numel() == num_pairs and not labels.is_floating_point()
    else:
        wanted = f"numbers of the shape {(num_pairs, num_labels)}"
        fits = labels.numel() == num_pairs * num_labels
    if fits and problem_type != "regression" and not is_tracing(labels):
        # -100 stands for no class, as in all models.
        is_known = (labels >= 0) & (labels <= (num_labels - 1 if problem_type.startswith("single") else 1))
        fits = bool((is_known | (labels == -100)).all())
        if not fits:
            wanted += f" within their range, not {labels.min().item():g} to {labels.max().item():g}"
    if not fits:
        raise ValueError(
            f"A model with `num_labels={num_labels}` and the `problem_type` {problem_type!r} needs as `labels` "
            f"{wanted}, got {labels.dtype} of the shape {tuple(labels.shape)}. For scores load the model with "
            '`num_labels=1, problem_type="regression"`, for classes with `num_labels=...` and '
            '`problem_type="single_label_classification"`.'
        )


def read_targets(config: DseConfig, labels: torch.Tensor) -> torch.Tensor:
    """Labels as one target for each logit, `(num_pairs, num_labels)`; NaN where a pair has no label."""
    num_labels: Any = config.num_labels
    if get_problem_type(config) != "single_label_classification":
        return labels.reshape(-1, num_labels).float()
    targets = labels.reshape(-1, 1) == torch.arange(num_labels, device=labels.device)
    return targets.float().masked_fill(~targets.any(dim=1, keepdim=True), torch.nan)


def measure(similarity: torch.Tensor, targets: torch.Tensor) -> torch.Tensor:
    """
    Moments of similarities `(num_pairs,)` and targets `(num_pairs, num_labels)`, without pairs that lack a finite
    number. For each label: the number of pairs, the two means, the variance of the similarity, the covariance, and the
    variance of the target, `(6, num_labels)`.
    """
    is_known = (similarity.isfinite() & targets.isfinite().all(dim=1))[:, None]  # [P, 1]
    count = is_known.sum()
    values = torch.stack([similarity[:, None].expand_as(targets), targets]).masked_fill(~is_known, 0.0)  # [2, P, L]
    means = values.sum(dim=1) / count.clamp(min=1)
    x, y = (values - means[:, None]) * is_known
    squares = torch.stack([x * x, x * y, y * y]).sum(dim=1) / count.clamp(min=1)
    return torch.cat([count.to(means).expand(1, means.shape[1]), means, squares])


def add_moments(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Moments of two groups of pairs together, by the formula of Chan et al., which does not cancel."""
    count = first[0] + second[0]
    share = second[0] / count.clamp(min=1)
    x, y = second[1:3] - first[1:3]
    gap = share * (1 - share) * torch.stack([x * x, x * y, y * y])
    means, squares = (torch.lerp(first[1:3], second[1:3], share), torch.lerp(first[3:], second[3:], share))
    return torch.cat([count[None], means, squares + gap])


def fit_similarity(moments: torch.Tensor, problem_type: str = "regression") -> tuple[torch.Tensor, torch.Tensor]:
    """
    Scale and bias that make logits of a similarity: least squares for scores; for classes the logits whose
    probabilities rise with the similarity, at its mean, as the least squares of the classes do.

    `moments` are the result of [`measure`]; scale and bias have the shape `(num_labels,)`. The scale is as large as
    for a correlation of `MIN_CORRELATION`, at least, and above 0 for a single logit: a scale of 0 blocks the gradient
    of the embeddings, and a negative scale reverses it. With fewer than `MIN_PAIRS` pairs, or similarities that hardly
    differ, the scale is the one of a new head.
    """
    count, center, target, variance, joint, target_variance = moments
    num_labels = len(center)
    level, rate = target, torch.ones_like(target)
    if problem_type != "regression":
        is_softmax = problem_type == "single_label_classification"
        # As if one more pair of each class had been seen.
        prior = (target * count + 1) / (count + (num_labels if is_softmax else 2))
        level = prior.log() if is_softmax else prior.logit()
        # How much a probability rises with its logit.
        rate = prior if is_softmax else prior * (1 - prior)
    tiny = torch.finfo(moments.dtype).tiny
    correlation = joint / (variance * target_variance).sqrt().clamp(min=tiny)
    if num_labels == 1:
        correlation = correlation.clamp(min=MIN_CORRELATION)
    else:
        correlation = correlation * (MIN_CORRELATION / correlation.norm().clamp(min=tiny)).clamp(min=1)
    scale = correlation * (target_variance / variance.clamp(min=tiny)).sqrt() / rate
    # Below that variance the similarities differ by rounding errors only.
    is_known = (count >= MIN_PAIRS) & (variance > 1e-6) & joint.any()
    scale = torch.where(is_known, scale, first_line(num_labels)[0].to(moments))
    return scale, level - scale * center


def split_pairs(
    config: DseConfig,
    input_ids: torch.Tensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.Tensor | None,
    inputs_embeds: torch.Tensor | None,
) -> dict[str, torch.Tensor]:
    """
    Splits pairs `[CLS] a [SEP] b [SEP]` into the sentences `[CLS] a [SEP]` and `[CLS] b [SEP]`: the inputs of
    [`DseModel`] with `2 * batch_size` rows, the two sentences of a pair one after the other, right-padded. A
    `ValueError` if a row is not a pair, or cannot be split without doubt.
    """
    inputs: Any = input_ids if inputs_embeds is None else inputs_embeds
    is_checked = not is_tracing(inputs)
    if attention_mask is None:
        is_token = torch.ones(inputs.shape[:2], dtype=torch.bool, device=inputs.device)
    else:
        is_token = attention_mask.bool()
    # Tokenizers without token types may give zeros for all of them.
    if token_type_ids is not None and (not is_checked or (token_type_ids * is_token).any()):
        is_second = is_token & (token_type_ids == 1)
        is_first = is_token & ~is_second
    else:
        is_first, is_second = split_at_separators(config, input_ids, is_token, is_checked)
    if is_checked:
        check_pairs(is_second.any(dim=1))

    # The second sentence begins with the token that the pair begins with.
    opening = is_token & (is_token.cumsum(dim=1) == 1)
    members = torch.stack([is_first, is_second | opening], dim=1).flatten(0, 1)  # [2B, N]
    tokens = order_tokens(members).tokens
    mask = members.gather(1, tokens)
    if is_checked:
        longest = int(mask.sum(dim=1).max())
        tokens, mask = tokens[:, :longest], mask[:, :longest]
    name = "input_ids" if inputs_embeds is None else "inputs_embeds"
    sentences = take_rows(inputs, tokens.unflatten(0, (-1, 2))).flatten(0, 1)
    return {name: sentences, "attention_mask": mask.long()}


def split_at_separators(
    config: DseConfig, input_ids: torch.Tensor | None, is_token: torch.Tensor, is_checked: bool
) -> tuple[torch.Tensor, torch.Tensor]:
    """Tokens of the first and of the second sentence, both `(batch_size, seq_len)`, told apart by separators."""
    if input_ids is None:
        raise ValueError("Pairs given as `inputs_embeds` need `token_type_ids`, 1 for the second sentence.")
    if config.sep_token_id is None:
        raise ValueError(
            "Pairs without `token_type_ids` are split at their separators, but the config has no `sep_token_id`: set "
            "it to the one of the tokenizer (`convert_encoder` does)."
        )
    is_separator = is_token & (input_ids == config.sep_token_id)
    if is_checked:
        check_separators(config, is_separator)
    num_before = is_separator.cumsum(dim=1) - is_separator.long()
    return is_token & (num_before == 0), is_token & (num_before >= config.num_pair_separators)


def check_separators(config: DseConfig, is_separator: torch.Tensor) -> None:
    """Raises an error unless each row has the separators of one pair, and nothing else."""
    num_separators = is_separator.sum(dim=1)
    expected = config.num_pair_separators + 1
    check_pairs(num_separators >= expected)
    is_unclear = num_separators > expected
    # RoBERTa has two separators side by side between the sentences.
    if config.num_pair_separators == 2:
        is_unclear |= ~(is_separator[:, 1:] & is_separator[:, :-1]).any(dim=1)
    if is_unclear.any():
        row = int(is_unclear.nonzero()[0])
        raise ValueError(
            f"Row {row} holds {int(num_separators[row])} separator tokens (`sep_token_id` {config.sep_token_id}) that "
            "do not separate one pair, so it cannot be split without doubt. Remove them from the text, give "
            "`token_type_ids`, or encode the two sentences alone and stack them to the shape (batch_size, 2, seq_len)."
        )


def check_pairs(is_pair: torch.Tensor) -> None:
    """Raises an error for the first row that is not a pair."""
    if not is_pair.all():
        row = int((~is_pair).nonzero()[0])
        raise ValueError(
            f"Row {row} holds only one sentence, but `DseForSequenceClassification` compares two. Encode pairs with "
            "`tokenizer(first, second)`, or embed single sentences with `AutoModel` (`DseModel`)."
        )
