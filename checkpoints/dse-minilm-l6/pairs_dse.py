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
"""What is particular to sentence pairs: their output, the comparison of two embeddings, and the splitting of pairs."""

import functools
from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput, auto_docstring, logging
from transformers.utils.import_utils import is_tracing

from .configuration_dse import DseConfig
from .layout_dse import order_tokens, take_tokens


logger = logging.get_logger(__name__)

# Labelled pairs to which scale and bias of a new head are fitted. Below the second number only the bias is.
FIT_PAIRS = 256
MIN_PAIRS = 16

# A fitted head trusts the similarity at least and at most as much as with these correlations to the targets.
MIN_CORRELATION = 0.25
MAX_CORRELATION = 0.95


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
    embeddings (`torch.FloatTensor` of shape `(batch_size, 2, projection_dim)`):
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

    In a training with labels, scale and bias of a new head are fitted to the first `FIT_PAIRS` pairs, and learn by
    gradient from then on. A cosine is at most 1: without that, labels from 0 to 5 would draw all embeddings together.
    """

    # Whether labels may still change scale and bias. Each process finds out at its first labelled batches.
    is_open = True

    def __init__(self, config: DseConfig):
        super().__init__()
        self.config = config
        self.kind = config.similarity
        if self.kind == "mlp":
            self.dense = nn.Linear(4 * config.projection_dim, config.similarity_hidden_size)
            self.out_proj = nn.Linear(config.similarity_hidden_size, config.num_labels)
        else:
            self.scale = nn.Parameter(torch.empty(config.num_labels))
            self.bias = nn.Parameter(torch.empty(config.num_labels))
            # Low precision could not count the pairs.
            self.register_buffer("moments", torch.zeros(6, config.num_labels, dtype=torch.float32))

    def forward(self, first: torch.Tensor, second: torch.Tensor, labels: torch.Tensor | None = None) -> torch.Tensor:
        """Embeddings of shape `(batch_size, projection_dim)` to logits of shape `(batch_size, num_labels)`."""
        if self.kind == "mlp":
            # CODEPATH: checkpoints with `normalize_embeddings`, whose vectors have numbers too small to learn from
            if self.config.normalize_embeddings:
                first, second = (embeddings * embeddings.shape[-1] ** 0.5 for embeddings in (first, second))
            features = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
            return self.out_proj(nn.functional.relu(self.dense(features)))
        if self.kind == "cosine":
            similarity = nn.functional.cosine_similarity(first, second, dim=-1)
        else:
            similarity = (first * second).sum(dim=-1)
        if self.training and self.is_open and labels is not None and self.can_change(similarity):
            self.fit(similarity.detach(), labels)
        return similarity[:, None] * self.scale + self.bias

    def can_change(self, similarity: torch.Tensor) -> bool:
        is_eager = torch.compiler.is_dynamo_compiling() or not is_tracing(similarity)
        return is_eager and torch.is_grad_enabled() and self.scale.requires_grad and self.bias.requires_grad

    # The graph of `torch.compile` is left here, until the head is closed.
    @torch.compiler.disable
    @torch.no_grad()
    def fit(self, similarity: torch.Tensor, labels: torch.Tensor):
        """Adds labelled pairs of all processes to those seen before, and fits scale and bias to them."""
        problem_type = get_problem_type(self.config)
        batch = gather_moments(measure(similarity.float(), *read_targets(self.config, labels.to(similarity.device))))
        if torch.finfo(self.moments.dtype).bits < 32:
            self.moments = self.moments.float()
        count = self.moments[0, 0]
        if count < 0 or count >= FIT_PAIRS or (count == 0 and not self.is_new()):
            # A trained head is compared with its first pairs, whose moments are kept below 0 until there are enough.
            batch = add_moments(self.moments.neg() * (count < 0), batch)
            if problem_type == "regression" and batch[0, 0] < MIN_PAIRS:
                self.moments.copy_(-batch)
                return
            self.is_open = problem_type == "regression" and is_out_of_range(batch, self.scale, self.bias)
            self.moments.zero_()
            if not self.is_open:
                # A training that is resumed takes it as it is.
                self.moments[0] = FIT_PAIRS
                return
            logger.warning(
                f"The similarity head has a scale of {self.scale.tolist()} and a bias of {self.bias.tolist()}, but "
                f"labels are about {batch[2].tolist()}: it starts again from a fit to the new labels."
            )
        self.moments.copy_(add_moments(self.moments, batch))
        scale, bias = fit_similarity(self.moments, problem_type, self.scale.to(self.moments))
        self.scale.copy_(scale)
        self.bias.copy_(bias)
        self.is_open = bool(self.moments[0, 0] < FIT_PAIRS)
        if not self.is_open:
            logger.info(f"The similarity head starts from scale {scale.tolist()} and bias {bias.tolist()}.")

    def first_scale(self) -> torch.Tensor:
        # Equal scales would give equal logits, and the encoder no gradient.
        num_labels = self.scale.shape[0]
        return torch.linspace(-1.0 if num_labels > 1 else 1.0, 1.0, num_labels)

    def is_new(self) -> bool:
        return torch.equal(self.scale, self.first_scale().to(self.scale)) and not self.bias.any()

    def _load_from_state_dict(self, state_dict: dict[str, torch.Tensor], prefix: str, *args):
        if self.kind != "mlp":
            # Heads were not fitted in earlier versions.
            moments = state_dict.setdefault(f"{prefix}moments", torch.zeros_like(self.moments))
            # The Trainer resumes through here, with the head of the same training; `from_pretrained` does not.
            self.is_open = bool(moments[0, 0] < FIT_PAIRS)
        super()._load_from_state_dict(state_dict, prefix, *args)


def get_problem_type(config: DseConfig) -> str:
    """The `problem_type` of a configuration, which follows from the number of labels if it is not set."""
    default = "regression" if config.num_labels == 1 else "single_label_classification"
    return config.problem_type or default


def fit_problem_type(config: DseConfig, labels: torch.Tensor, num_pairs: int):
    """Replaces a `problem_type` that labels of this shape cannot have: an encoder keeps that of its last training."""
    before, num_labels = get_problem_type(config), config.num_labels
    are_classes = labels.numel() == num_pairs and not labels.is_floating_point()
    if num_labels > 1 and are_classes:
        config.problem_type = "single_label_classification"
    elif num_labels == 1 and before == "single_label_classification":
        config.problem_type = "regression"
    elif before != "single_label_classification" and labels.numel() != num_pairs * num_labels:
        advice = "pass integers for classes, or load the model with `num_labels=1` for scores"
        raise ValueError(
            f"The `problem_type` {before!r} with `num_labels={num_labels}` needs `labels` of the shape "
            f"{(num_pairs, num_labels)}, got {labels.dtype} of the shape {tuple(labels.shape)}: "
            f"{advice if num_labels > 1 else 'pass one for each pair'}."
        )
    if config.problem_type not in (None, before):
        logger.info(f"`problem_type` is {config.problem_type!r}, as the labels need it, no longer {before!r}.")


def read_targets(config: DseConfig, labels: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """Labels as one target for each logit, `(num_pairs, num_labels)`, and which of the pairs have a label."""
    if get_problem_type(config) == "single_label_classification":
        classes = torch.arange(config.num_labels, device=labels.device)
        targets = (labels.reshape(-1, 1) == classes).float()
        return targets, targets.any(dim=1)
    targets = labels.reshape(-1, config.num_labels).float()
    return targets, targets.isfinite().all(dim=1)


def measure(similarity: torch.Tensor, targets: torch.Tensor, is_valid: torch.Tensor | None = None) -> torch.Tensor:
    """
    Moments of similarities `(num_pairs,)` and targets `(num_pairs, num_labels)`. For each label: the number of pairs,
    the two means, and the sums of squares and products of what differs from them, `(6, num_labels)`.
    """
    is_valid = similarity.isfinite() if is_valid is None else is_valid & similarity.isfinite()
    targets = targets[is_valid]
    similarity = similarity[is_valid, None].expand_as(targets)
    count = len(targets)
    means = similarity.sum(dim=0) / max(count, 1), targets.sum(dim=0) / max(count, 1)
    x, y = similarity - means[0], targets - means[1]
    squares = [(x * x).sum(dim=0), (x * y).sum(dim=0), (y * y).sum(dim=0)]
    return torch.stack([torch.full_like(means[0], count), *means, *squares])


def add_moments(first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
    """Moments of two groups of pairs together, by the formula of Chan et al., which does not cancel."""
    count = first[0] + second[0]
    share = second[0] / count.clamp(min=1)
    x, y = second[1:3] - first[1:3]
    squares = torch.stack([x * x, x * y, y * y]) * first[0] * share
    means = first[1:3] + share * torch.stack([x, y])
    return torch.cat([count[None], means, first[3:] + second[3:] + squares])


def gather_moments(moments: torch.Tensor) -> torch.Tensor:
    """Moments of the pairs of all processes, equal in each."""
    if not (torch.distributed.is_available() and torch.distributed.is_initialized()):
        return moments
    parts = [torch.empty_like(moments) for _ in range(torch.distributed.get_world_size())]
    torch.distributed.all_gather(parts, moments)
    return functools.reduce(add_moments, parts)


def fit_similarity(moments: torch.Tensor, problem_type: str, scale: torch.Tensor) -> tuple[torch.Tensor, torch.Tensor]:
    """
    Scale and bias that make logits of a similarity: least squares for scores, and for classes the linear discriminant,
    in which the similarities of each class have a normal distribution of the same width.

    Args:
        moments (`torch.Tensor` of shape `(6, num_labels)`):
            What [`measure`] returns.
        problem_type (`str`):
            That of the configuration.
        scale (`torch.Tensor` of shape `(num_labels,)`):
            The scale that stays if a few pairs, or similarities that hardly differ, say nothing about it.

    Returns:
        `tuple[torch.Tensor, torch.Tensor]`: scale and bias, `(num_labels,)` each. The scale is as large as for a
        correlation of `MIN_CORRELATION`, at least, and above 0 for a single logit: a scale of 0 blocks the gradient of
        the embeddings, and a negative scale reverses it.
    """
    count, center, target, spread, joint, target_spread = moments
    variance = spread / count.clamp(min=1)
    # Below that the similarities differ by rounding errors only.
    is_known = bool(count[0] >= MIN_PAIRS and variance[0] > 1e-6 and joint.any())
    if problem_type == "regression":
        if is_known:
            scale = joint / spread
            if len(scale) == 1:
                scale = scale.maximum(MIN_CORRELATION * (target_spread / spread).sqrt())
        return scale, target - scale * center

    is_softmax = problem_type == "single_label_classification"
    # As if one more pair of each class had been seen.
    prior = (target * count + 1) / (count + (len(scale) if is_softmax else 2))
    level = prior.log() if is_softmax else prior.logit()
    if not is_known:
        return scale, level - scale * center
    # The gap between the similarities of a class and of all pairs, or of the pairs with a label and those without.
    rest = 0.0 if is_softmax else prior
    correlation = joint / (spread * count * prior * (1 - rest)).sqrt()
    if len(scale) == 1:
        correlation = correlation.clamp(min=MIN_CORRELATION)
    size = correlation.norm() if is_softmax else correlation.abs()
    bounded = size.clamp(MIN_CORRELATION, MAX_CORRELATION)
    gap = correlation * (bounded / size.clamp(min=1e-6)) * (variance / (prior * (1 - rest))).sqrt()
    scale = gap / (variance * (1 - bounded.square()))
    return scale, level - scale * (center + (0.5 - rest) * gap)


def is_out_of_range(moments: torch.Tensor, scale: torch.Tensor, bias: torch.Tensor) -> bool:
    """Whether a head predicts scores so badly that it must have learned another range of labels."""
    count, center, target, spread, joint, target_spread = moments
    error = scale.square() * spread - 2 * scale * joint + target_spread
    error = error + count * (scale * center + bias - target).square()
    return bool((error > 2 * target_spread.maximum(scale.square() * spread)).all())


def split_pairs(
    config: DseConfig,
    input_ids: torch.LongTensor | None,
    attention_mask: torch.Tensor | None,
    token_type_ids: torch.LongTensor | None,
    inputs_embeds: torch.Tensor | None,
) -> dict[str, torch.Tensor]:
    """
    Splits pairs `[CLS] a [SEP] b [SEP]` into the sentences `[CLS] a [SEP]` and `[CLS] b [SEP]`.

    Args:
        config ([`DseConfig`]):
            Says how the tokenizer separates the sentences of a pair.
        input_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
            Token ids; this or `inputs_embeds` is split.
        attention_mask (`torch.Tensor` of shape `(batch_size, seq_len)`, *optional*):
            1 for tokens, 0 for padding.
        token_type_ids (`torch.LongTensor` of shape `(batch_size, seq_len)`, *optional*):
            1 for the tokens of the second sentence. Without them pairs are split at their separators.
        inputs_embeds (`torch.Tensor` of shape `(batch_size, seq_len, hidden_size)`, *optional*):
            Embeddings of the tokens.

    Returns:
        `dict[str, torch.Tensor]`: inputs of [`DseModel`] with `2 * batch_size` rows, the two sentences of a pair one
        after the other, right-padded.

    Raises:
        `ValueError`: if a row is not a pair, or cannot be split without doubt.
    """
    inputs = input_ids if inputs_embeds is None else inputs_embeds
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
    sentences = take_tokens(inputs, tokens.unflatten(0, (-1, 2))).flatten(0, 1)
    return {name: sentences, "attention_mask": mask.long()}


def split_at_separators(
    config: DseConfig, input_ids: torch.LongTensor | None, is_token: torch.BoolTensor, is_checked: bool
) -> tuple[torch.BoolTensor, torch.BoolTensor]:
    """Tokens of the first and of the second sentence, both `(batch_size, seq_len)`, told apart by separators."""
    if input_ids is None:
        raise ValueError("Pairs given as `inputs_embeds` need `token_type_ids`, 1 for the second sentence.")
    if config.sep_token_id is None:
        raise ValueError(
            "Pairs without `token_type_ids` are split at their separators, but the config has no `sep_token_id`: set "
            "it to that of the tokenizer (`convert_encoder` does)."
        )
    is_separator = is_token & (input_ids == config.sep_token_id)
    if is_checked:
        check_separators(config, is_separator)
    num_before = is_separator.cumsum(dim=1) - is_separator.long()
    return is_token & (num_before == 0), is_token & (num_before >= config.num_pair_separators)


def check_separators(config: DseConfig, is_separator: torch.BoolTensor):
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
            "are not those of one pair, so it cannot be split without doubt. Remove them from the text, give "
            "`token_type_ids`, or encode the two sentences alone and stack them to the shape (batch_size, 2, seq_len)."
        )


def check_pairs(is_pair: torch.BoolTensor):
    """Raises an error for the first row that is no pair."""
    if not is_pair.all():
        row = int((~is_pair).nonzero()[0])
        raise ValueError(
            f"Row {row} holds only one sentence, but `DseForSequenceClassification` compares two. Encode pairs with "
            "`tokenizer(first, second)`, or embed single sentences with `AutoModel` (`DseModel`)."
        )
