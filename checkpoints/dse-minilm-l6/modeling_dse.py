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
"""PyTorch DSE model: an encoder of transformers with linear attention, which embeds sentences one by one.

`attention_dse.py` has the attention. Here the encoder gets it, texts get their real tokens first, and token vectors
become one vector. Shapes in comments: B batch, N tokens, D hidden size.
"""

import inspect
import json
import os
import sys
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import nn
from transformers import AutoModel
from transformers import initialization as init
from transformers.modeling_outputs import BaseModelOutputWithPooling
from transformers.modeling_utils import PreTrainedModel
from transformers.models.auto.modeling_auto import MODEL_MAPPING
from transformers.processing_utils import Unpack
from transformers.utils import TransformersKwargs, auto_docstring, logging
from transformers.utils.generic import can_return_tuple
from transformers.utils.import_utils import is_tracing

from .attention_dse import (
    IMPLEMENTATION,
    DseLinformer,
    LayerAttention,
    attend_rows_first,
    attend_with_relative_bias,
    mask_of,
    read_padding,
    read_shape,
    restore_order,
    take_rows,
)
from .configuration_dse import DseConfig
from .pairs_dse import DseClassificationHead, DsePairOutput, check_labels, first_line, get_problem_type, split_pairs


logger = logging.get_logger(__name__)

# Attention classes with a forward pass of ours instead of their own: choosing or averaging tokens commutes with the
# projections to keys and values of BERT and its kin, and MPNet calls no attention function.
REPLACED = {
    f"{name}SelfAttention": attend_rows_first
    for name in ("Bert", "Camembert", "Electra", "Ernie", "Roberta", "XLMRoberta")
} | {"MPNetSelfAttention": attend_with_relative_bias}

# Tokens before and after a token, where neither the configuration nor the encoder says how many.
DEFAULT_WINDOW = 64


def build_encoder(config: Any) -> PreTrainedModel:
    """The encoder inside, with linear attention and without its pooler."""
    encoder_config = config.encoder
    is_mpnet = encoder_config.model_type == "mpnet"
    model_class: Any = MODEL_MAPPING[type(encoder_config)]
    parameters = inspect.signature(model_class).parameters
    options: dict[str, Any] = {"add_pooling_layer": False} if "add_pooling_layer" in parameters else {}
    # The type of the whole model, which is the default one while it is made.
    options |= {"attn_implementation": IMPLEMENTATION, "dtype": torch.get_default_dtype()}
    encoder = AutoModel.from_config(encoder_config, **options)
    table, length = find_table(encoder), config.max_position_embeddings
    # RoBERTa's table has rows that no token uses.
    if table is not None and length <= table.num_embeddings:
        config.max_position_embeddings = min(length, count_positions(table))
    shared = None
    for module, layer in zip(find_attentions(encoder), plan_layers(config, encoder), strict=True):
        module.linformer_layer = layer
        # CODEPATH: checkpoints converted with `linformer_projection="learned"` have E and F
        if config.linformer_projection == "learned" and "linear" in layer.layer_type:
            # CODEPATH: checkpoints converted with `linformer_sharing="layerwise"` have one E = F for all layers
            if shared is None or config.linformer_sharing != "layerwise":
                num_heads = config.num_attention_heads // getattr(module, "num_key_value_groups", 1)
                shared = module.linformer = DseLinformer(config, layer.num_slots, num_heads)
            else:
                # Not a parameter of this module, too.
                module.__dict__["linformer"] = shared
        forward = REPLACED.get(type(module).__name__)
        # CODEPATH: with `linformer_sharing="none"` the heads have rows of their own
        has_one = config.linformer_sharing != "none" or config.linformer_projection != "learned"
        if forward is not None and (is_mpnet or (layer.layer_type == "linear_attention" and has_one)):
            module.forward = partial(forward, module)
    if is_mpnet:
        encoder.encoder.compute_position_bias = partial(pass_encoder, encoder.encoder)
    encoder._init_weights = partial(init_weights, encoder._init_weights)
    return encoder


def find_attentions(encoder: Any) -> list[Any]:
    """The attention modules of an encoder, in the order of its layers; one, where layers share their weights."""
    if encoder.config.model_type == "mpnet":
        return [layer.attention.attn for layer in encoder.encoder.layer]
    recorders = (getattr(encoder, "_can_record_outputs", None) or {}).get("attentions", [])
    recorders = recorders if isinstance(recorders, list) else [recorders]
    classes: Any = tuple(getattr(recorder, "target_class", recorder) for recorder in recorders)
    return [module for module in encoder.modules() if isinstance(module, classes)]


def plan_layers(config: Any, encoder: PreTrainedModel) -> list[LayerAttention]:
    """How each attention module attends."""
    modules = find_attentions(encoder)
    layers: list[LayerAttention] = []
    if not modules or not (config.encoder.model_type == "mpnet" or encoder._can_set_attn_implementation()):
        raise ValueError(f"transformers cannot exchange the attention of the encoder {config.encoder.model_type!r}.")
    for kind, num_slots in zip(config.layer_types or [], config.projected_lengths, strict=True):
        # transformers counts the token itself, too.
        own = getattr(modules[len(layers) % len(modules)], "sliding_window", None) or DEFAULT_WINDOW + 1
        window = config.attention_chunk_size if kind == "chunked_attention" else config.sliding_window or own - 1
        layers.append(
            LayerAttention(kind, num_slots, config.linformer_start, window, len(layers), config.num_hidden_layers)
        )
    if len(modules) < len(layers) and len({layer._replace(layer_idx=0) for layer in layers}) > 1:
        raise ValueError(
            f"The layers of {config.encoder.model_type} share their weights, so they have one kind of attention and "
            f"one projected length, got {config.layer_types} and {config.linformer_length}."
        )
    return layers[: len(modules)]


def pass_encoder(encoder: nn.Module, *args: Any, **kwargs: Any) -> nn.Module:
    """Instead of MPNet's n x n table of biases by distance: the encoder, where layers look up those that they need."""
    return encoder


@torch.no_grad()
def init_weights(init_encoder: Any, module: nn.Module) -> None:
    """Initializes a module inside the encoder; E and F start at 0."""
    init_encoder(module)
    if isinstance(module, DseLinformer):
        for weight in module.parameters():
            init.zeros_(weight)


def find_table(encoder: nn.Module) -> nn.Embedding | None:
    """The table of learned positions, if there is one."""
    for name, module in encoder.named_modules():
        if name.endswith("position_embeddings") and isinstance(module, nn.Embedding):
            return module
    return None


def count_positions(table: nn.Embedding) -> int:
    """Positions of a table; RoBERTa counts them from the one after the padding token's."""
    return table.num_embeddings - first_position(table)


def first_position(table: nn.Embedding) -> int:
    return 0 if table.padding_idx is None else table.padding_idx + 1


def save_pooling(config: DseConfig, folder: str | os.PathLike) -> None:
    """
    Writes `modules.json` and `1_Pooling/config.json`, by which sentence-transformers, and the tools that read its
    files, get the `pooler_output` of [`DseModel`].
    """
    kinds = ["Transformer", "Pooling"] + ["Normalize"] * config.normalize_embeddings
    paths = ["", "1_Pooling", "2_Normalize"]
    modules = [
        {"idx": idx, "name": str(idx), "path": path, "type": f"sentence_transformers.models.{kind}"}
        for idx, (kind, path) in enumerate(zip(kinds, paths, strict=False))
    ]
    pooling = {
        "word_embedding_dimension": config.embedding_size,
        "pooling_mode_cls_token": config.pooling_mode == "cls",
        "pooling_mode_mean_tokens": config.pooling_mode == "mean",
        # Tools that pool themselves expect these keys, too.
        "pooling_mode_max_tokens": False,
        "pooling_mode_mean_sqrt_len_tokens": False,
        "pooling_mode_weightedmean_tokens": False,
        "pooling_mode_lasttoken": False,
        "include_prompt": True,
    }
    path = Path(folder) / paths[1] / "config.json"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(pooling, indent=2) + "\n", encoding="utf-8")
    (Path(folder) / "modules.json").write_text(json.dumps(modules, indent=2) + "\n", encoding="utf-8")


@auto_docstring
class DsePreTrainedModel(PreTrainedModel):
    config: DseConfig
    base_model_prefix = "dse"
    supports_gradient_checkpointing = True
    _supports_sdpa = True
    # Servers such as vLLM, which ask `is_backend_compatible()`, would attend to all tokens.
    _supports_attention_backend = False
    # Packed rows of several texts would be mixed by the projection along the sequence.
    _supports_flash_attn = False
    _supports_flex_attn = False

    def set_attn_implementation(self, attn_implementation: str | dict, allow_all_kernels: bool = False) -> None:
        """Changes nothing and says so: the encoder inside keeps its linear attention."""
        logger.warning(
            f"attn_implementation={attn_implementation!r} changes nothing: the layers of a DSE model attend by their "
            '`layer_types`. For softmax attention convert with `layer_types="full_attention"`.'
        )

    def save_pretrained(
        self, save_directory: str | os.PathLike, is_main_process: bool = True, *args: Any, **kwargs: Any
    ) -> None:
        """
        Saves the model, and how sentence-transformers pools its token vectors. Takes the arguments of
        [`~transformers.PreTrainedModel.save_pretrained`], but for `push_to_hub`.
        """
        if kwargs.get("push_to_hub"):
            raise ValueError("`push_to_hub=True` would leave files out: use `model.push_to_hub(repo_id)`.")
        super().save_pretrained(save_directory, is_main_process, *args, **kwargs)
        if is_main_process:
            save_pooling(self.config, save_directory)

    @torch.no_grad()
    def _init_weights(self, module: nn.Module) -> None:
        super()._init_weights(module)
        if isinstance(module, DseClassificationHead) and module.kind != "mlp":
            init.ones_(module.scale)
            init.zeros_(module.bias)
            init.zeros_(module.moments)
            init.copy_(module.start, first_line(len(module.scale)))


@auto_docstring(
    custom_intro="""
    The bare DSE encoder: texts in, one sentence embedding each (`pooler_output`) beside the token states out. An
    embedding never depends on the other texts of a batch or on its padding.
    """
)
class DseModel(DsePreTrainedModel):
    # The head of a checkpoint for sentence pairs is not a part of the encoder.
    _keys_to_ignore_on_load_unexpected = [r"^similarity\."]

    def __init__(self, config: DseConfig):
        # Arguments of `from_pretrained` replace fields after the fields of the file were checked.
        config.validate()
        super().__init__(config)
        self.encoder = build_encoder(config)
        self.has_token_types = "token_type_ids" in inspect.signature(self.encoder.forward).parameters
        self.first_position, self.num_positions = 0, sys.maxsize
        if (table := find_table(self.encoder)) is not None:
            self.first_position, self.num_positions = first_position(table), count_positions(table)
        # CODEPATH: checkpoints that were whitened or converted with a `projection_dim` have a projection
        self.projection = nn.Linear(config.pooled_size, config.projection_dim) if config.projection_dim else None
        self.post_init()

    def get_input_embeddings(self) -> nn.Module:
        return self.encoder.get_input_embeddings()

    def set_input_embeddings(self, value: nn.Module) -> None:
        self.encoder.set_input_embeddings(value)

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        position_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> BaseModelOutputWithPooling:
        if torch.jit.is_tracing():
            raise ValueError("`torch.jit.trace` keeps one length: use `torch.export`, or `hf-dse export`.")
        shape = read_shape(input_ids, inputs_embeds)
        self.check_shapes(shape, attention_mask)
        if input_ids is not None:
            self.warn_if_padding_and_no_attention_mask(input_ids, attention_mask)
        if position_ids is not None and (position_ids.is_floating_point() or position_ids.shape[-1:] != shape[1:]):
            raise ValueError(
                f"`position_ids` must be integers of the shape {tuple(shape)}, got {position_ids.dtype} of the shape "
                f"{tuple(position_ids.shape)}."
            )
        inputs: dict[str, Any] = {
            "input_ids": input_ids,
            "inputs_embeds": inputs_embeds,
            "token_type_ids": token_type_ids,
            "position_ids": position_ids,
        }
        inputs = {name: tokens for name, tokens in inputs.items() if tokens is not None}
        if position_ids is not None:
            inputs["position_ids"] = position_ids.expand(shape)
        if not self.has_token_types:
            inputs.pop("token_type_ids", None)
        lengths, order = read_padding(attention_mask)
        # The encoder and pooling get the real tokens first, and what they return is in the order of the input again.
        if order is not None:
            for name, tokens in inputs.items():
                inputs[name] = take_rows(tokens.expand(*shape, *tokens.shape[2:]), order.tokens)
        if lengths is not None:
            inputs["attention_mask"] = mask_of(lengths, shape[1]).long()
        if position_ids is None and (positions := self.repeat_positions(inputs)) is not None:
            inputs["position_ids"] = positions
            # Otherwise the encoder would look the type of a token up at its position.
            if self.has_token_types:
                inputs.setdefault("token_type_ids", torch.zeros(shape, dtype=torch.long, device=positions.device))
        for name in ("output_hidden_states", "output_attentions"):
            kwargs.setdefault(name, getattr(self.config, name))
        outputs = self.encoder(**inputs, **kwargs, return_dict=True)
        # Tools that pool the last hidden state themselves get the sentence embedding, too.
        states = outputs.last_hidden_state
        if self.projection is not None:
            states = self.projection(states)
        embeddings = self.pool(states, lengths)
        # CODEPATH: checkpoints converted from sentence-transformers models that end in `Normalize`
        if self.config.normalize_embeddings:
            embeddings = nn.functional.normalize(embeddings, dim=-1)
        result = BaseModelOutputWithPooling(
            last_hidden_state=states,
            pooler_output=embeddings,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )
        return result if order is None else restore_order(result, order, self.config.layer_types or [])

    def check_shapes(self, shape: torch.Size, attention_mask: torch.Tensor | None) -> None:
        if len(shape) != 2:
            raise ValueError(
                f"`input_ids` must have the shape (batch_size, seq_len), got {tuple(shape)}. For pairs use "
                "`DseForSequenceClassification`."
            )
        if 0 in shape:
            raise ValueError(f"The input has the shape {tuple(shape)}: pass at least one text, each with a token.")
        if attention_mask is not None and attention_mask.shape != shape:
            raise ValueError(
                f"`attention_mask` must have the shape (batch_size, seq_len) of the input, {tuple(shape)}, got "
                f"{tuple(attention_mask.shape)}: n x n masks have no meaning after projection to k slots."
            )
        limit: Any = self.config.max_position_embeddings
        if shape[1] > limit:
            raise ValueError(
                f"The input has {shape[1]} tokens, but this model takes at most {limit} (`max_position_embeddings`). "
                f"Truncate with `tokenizer(..., truncation=True, max_length={limit})`, or convert an encoder with "
                f"`convert_encoder(..., max_position_embeddings={shape[1]})`."
            )

    def repeat_positions(self, inputs: dict[str, Any]) -> torch.Tensor | None:
        """Positions `(1, seq_len)` that start again at the end of the table, where the input may be longer than it."""
        tokens: Any = inputs.get("input_ids", inputs.get("inputs_embeds"))
        length: Any = self.config.max_position_embeddings if is_tracing(tokens) else tokens.shape[1]
        if length <= self.num_positions:
            return None
        positions = torch.arange(tokens.shape[1], device=tokens.device)[None]
        return self.first_position + positions % self.num_positions

    def pool(self, hidden_states: torch.Tensor, lengths: torch.Tensor | None) -> torch.Tensor:
        """Token states `(batch_size, seq_len, size)` to one vector each, `(batch_size, size)`."""
        # CODEPATH: checkpoints converted with `pooling_mode="cls"`
        if self.config.pooling_mode == "cls":
            return hidden_states[:, 0]
        if lengths is None:
            return hidden_states.mean(dim=1)
        is_token = mask_of(lengths, hidden_states.shape[1])[..., None]  # [B, N, 1]
        # In float16 the sum over thousands of tokens would overflow.
        wide = torch.promote_types(hidden_states.dtype, torch.float32)
        total = (hidden_states * is_token).sum(dim=1, dtype=wide)
        return (total / lengths.clamp(min=1)).to(hidden_states.dtype)


@auto_docstring(
    custom_intro="""
    DSE for sentence pairs: embeds both sentences of a pair alone and compares the embeddings. Takes what
    `tokenizer(first, second)` returns, like any model for sequence classification, and splits it inside; or a batch of
    shape `(batch_size, 2, seq_len)`, two sentences each.
    """
)
class DseForSequenceClassification(DsePreTrainedModel):
    # The loss is the mean over a batch: gradient accumulation has to scale it.
    accepts_loss_kwargs = False

    def __init__(self, config: DseConfig):
        super().__init__(config)
        self.num_labels = config.num_labels
        self.dse = DseModel(config)
        self.similarity = DseClassificationHead(config)
        self.post_init()

    @can_return_tuple
    @auto_docstring
    def forward(
        self,
        input_ids: torch.LongTensor | None = None,
        attention_mask: torch.Tensor | None = None,
        token_type_ids: torch.LongTensor | None = None,
        inputs_embeds: torch.FloatTensor | None = None,
        labels: torch.Tensor | None = None,
        **kwargs: Unpack[TransformersKwargs],
    ) -> DsePairOutput:
        r"""
        input_ids (`torch.LongTensor` of shape `(batch_size, seq_len)` or `(batch_size, 2, seq_len)`, *optional*):
            Pairs encoded by `tokenizer(first, second)`, or the two sentences of each pair encoded alone.
        attention_mask (`torch.Tensor` of the shape of `input_ids`, *optional*):
            1 for tokens, 0 for padding.
        token_type_ids (`torch.LongTensor` of the shape of `input_ids`, *optional*):
            0 for the first sentence of a pair, 1 for the second; without them a pair is split at its separator tokens.
            Of sentences encoded alone, their token types.
        labels (`torch.Tensor` of shape `(batch_size,)`, *optional*):
            With one label: a score (mean squared error), or 0 and 1 if `config.problem_type` is
            `"multi_label_classification"` (binary cross-entropy). With several: a class (cross-entropy), or numbers
            of shape `(batch_size, num_labels)` if `config.problem_type` says so.
        """
        shape = read_shape(input_ids, inputs_embeds)
        for name, tokens in (("attention_mask", attention_mask), ("token_type_ids", token_type_ids)):
            if tokens is not None and tokens.shape != shape:
                raise ValueError(
                    f"`{name}` must have the shape {tuple(shape)} of the input, got {tuple(tokens.shape)}."
                )
        if 0 in shape or len(shape) not in (2, 3) or (len(shape) == 3 and shape[1] != 2):
            raise ValueError(
                "The input must have the shape (batch_size, seq_len), or (batch_size, 2, seq_len) for sentences that "
                f"were encoded alone, got {tuple(shape)}."
            )
        if len(shape) == 2:
            inputs = split_pairs(self.config, input_ids, attention_mask, token_type_ids, inputs_embeds)
        else:
            given = {
                "input_ids": input_ids,
                "attention_mask": attention_mask,
                "token_type_ids": token_type_ids,
                "inputs_embeds": inputs_embeds,
            }
            inputs = {name: tokens.flatten(0, 1) for name, tokens in given.items() if tokens is not None}
        outputs = self.dse(**inputs, return_dict=True, **kwargs)
        embeddings = outputs.pooler_output.unflatten(0, (-1, 2))  # [B, 2, D]
        if labels is not None:
            labels = labels.to(embeddings.device)
            check_labels(self.config, labels, len(embeddings))
        logits = self.similarity(embeddings[:, 0], embeddings[:, 1], labels)
        loss: Any = None if labels is None else self.compute_loss(logits, labels)
        return DsePairOutput(
            loss=loss,
            logits=logits,
            embeddings=embeddings,
            hidden_states=outputs.hidden_states,
            attentions=outputs.attentions,
        )

    def compute_loss(self, logits: torch.Tensor, labels: torch.Tensor) -> torch.Tensor:
        """The task loss of the DSE paper: squared error, binary cross-entropy or cross-entropy."""
        problem_type = get_problem_type(self.config)
        if problem_type == "regression":
            return nn.functional.mse_loss(logits, labels.view_as(logits).to(logits.dtype))
        if problem_type == "multi_label_classification":
            return nn.functional.binary_cross_entropy_with_logits(logits, labels.view_as(logits).to(logits.dtype))
        return nn.functional.cross_entropy(logits, labels.view(-1))


__all__ = ["DseForSequenceClassification", "DseModel", "DsePairOutput", "DsePreTrainedModel"]
