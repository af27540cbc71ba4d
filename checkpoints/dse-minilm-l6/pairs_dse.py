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

from dataclasses import dataclass

import torch
from torch import nn
from transformers.utils import ModelOutput, auto_docstring
from transformers.utils.import_utils import is_tracing

from .configuration_dse import DseConfig
from .layout_dse import order_tokens, take_tokens


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
    """Two embeddings to logits: a learned scale and bias of their cosine or dot product, or the head of DSE."""

    def __init__(self, config: DseConfig):
        super().__init__()
        self.kind = config.similarity
        if self.kind == "mlp":
            self.dense = nn.Linear(4 * config.projection_dim, config.similarity_hidden_size)
            self.out_proj = nn.Linear(config.similarity_hidden_size, config.num_labels)
        else:
            self.scale = nn.Parameter(torch.empty(config.num_labels))
            self.bias = nn.Parameter(torch.empty(config.num_labels))

    def forward(self, first: torch.Tensor, second: torch.Tensor) -> torch.Tensor:
        """Embeddings of shape `(batch_size, projection_dim)` to logits of shape `(batch_size, num_labels)`."""
        if self.kind == "mlp":
            features = torch.cat([first, second, first * second, (first - second).abs()], dim=-1)
            return self.out_proj(nn.functional.relu(self.dense(features)))
        if self.kind == "cosine":
            similarity = nn.functional.cosine_similarity(first, second, dim=-1)
        else:
            similarity = (first * second).sum(dim=-1)
        return similarity[:, None] * self.scale + self.bias


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
