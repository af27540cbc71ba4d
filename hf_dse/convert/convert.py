# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of a pretrained encoder with softmax attention to a DSE encoder with Linformer attention."""

import copy
import os
import re
from collections.abc import Collection
from dataclasses import asdict, dataclass
from dataclasses import fields as dataclass_fields
from typing import Any

import torch
from transformers import AutoModel
from transformers.utils import logging

from hf_dse.common.loading import check_complete, load_config, load_tokenizer, load_weights
from hf_dse.convert.folder import POOLINGS, TEXT_LENGTHS, read_settings, warn_of_lost_settings
from hf_dse.convert.options import ConvertOptions
from hf_dse.convert.sources import FREE_FIELDS, find_architecture, rename
from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel


logger = logging.get_logger(__name__)


@dataclass
class ConvertArguments(ConvertOptions):
    """How an encoder is converted to a student, by fields of `DseConfig`."""

    def convert(self, name_or_path: str) -> DseModel:
        """`convert_encoder` with these arguments."""
        overrides = asdict(self)
        del overrides["query_prompt"], overrides["document_prompt"]
        overrides["prompts"] = self.prompts(read_settings(name_or_path).get("prompts"))
        if len(self.linformer_length) == 1:
            overrides["linformer_length"] = self.linformer_length[0]
        return convert_encoder(name_or_path, **overrides)

    def prompts(self, known: dict[str, str] | None) -> dict[str, str]:
        """The prompts of a model, those given here in place of its own."""
        given = {"query": self.query_prompt, "document": self.document_prompt}
        return {**(known or {}), **{name: text for name, text in given.items() if text is not None}}


def convert_encoder(
    name_or_path: str,
    *,
    keep_layers: list[int] | None = None,
    max_position_embeddings: int | None = None,
    position_extension: str = "dynamic",
    random_init: bool = False,
    **config_overrides: Any,
) -> DseModel:
    """
    Converts a pretrained BERT, RoBERTa, XLM-R or DistilBERT encoder to a [`DseModel`] with its weights. Only the
    parameters of the length projections (Linformer's E and F) and, with a `projection_dim`, of the linear layer of the
    embedding are new. On inputs of up to `linformer_length` tokens the outputs equal those of the source. A report of
    kept, dropped and new weights is logged at level info.

    Args:
        name_or_path (`str`):
            Hub id (`user/name` or `user/name@revision`) or folder of the source encoder. The pooling mode of a
            sentence-transformers model, its prompts, its lengths for queries and documents and its similarity (cosine
            or dot product) are kept, and if it scales its embeddings to length 1 (`Normalize`), so does the student.
        keep_layers (`list[int]`, *optional*):
            Layers of the source to keep, counted from 0. Defaults to evenly spaced ones when `num_hidden_layers` is
            smaller than the source's.
        max_position_embeddings (`int`, *optional*):
            Longest input in tokens. Defaults to the source's limit.
        position_extension (`str`, *optional*, defaults to `"dynamic"`):
            How positions go beyond the source's limit. `"dynamic"`: the positions of a text that is longer than the
            source's table are fractions that span it. `"tile"`: positions start again at the end of the table. Inputs
            that the source takes stay exact.
        random_init (`bool`, *optional*, defaults to `False`):
            Whether to use random weights instead of the source's.
        config_overrides:
            Fields of [`DseConfig`], except the ones that the weights of the source fix, such as `hidden_size`.
            `layer_types` may name one type for all layers.

    Returns:
        [`DseModel`] in float32 and evaluation mode.

    Raises:
        `TypeError`: if `name_or_path` is something else, such as a model.
        `ValueError`: for an architecture that cannot be converted exactly, a source that is a decoder or has missing
            weights, layers that the source does not have, or config fields that do not exist or are invalid.

    Example:

    ```python
    >>> from hf_dse import convert_encoder

    >>> model = convert_encoder("sentence-transformers/all-MiniLM-L6-v2", linformer_length=128)
    >>> model.config.layer_types[0], model.config.linformer_length
    ('linear_attention', 128)
    ```
    """
    if not isinstance(name_or_path, str | os.PathLike):
        raise TypeError(
            f"`name_or_path` is a `{type(name_or_path).__name__}`: pass a Hub id or a folder, such as one that its "
            "`save_pretrained` wrote."
        )
    source_config = load_config(name_or_path)
    architecture = find_architecture(source_config, name_or_path)
    _check_names(config_overrides, fixed={*architecture.fields, *architecture.constants} - FREE_FIELDS)
    source, loading = load_weights(AutoModel, name_or_path, dtype=torch.float32)
    check_complete(name_or_path, loading)
    absent = loading["missing_keys"]
    state = rename({name: value for name, value in source.state_dict().items() if name not in absent}, architecture)
    positions = "embeddings.position_embeddings.weight"
    if architecture.position_offset:
        state[positions] = state[positions][source_config.pad_token_id + 1 :]
    limit = state[positions].shape[0]

    fields = {ours: getattr(source_config, theirs) for ours, theirs in architecture.fields.items()}
    num_source_layers = fields["num_hidden_layers"]
    fields.update(architecture.constants, **_pair_format(name_or_path))
    fields.update({name: value for name, value in config_overrides.items() if value is not None})
    if keep_layers is None:
        keep_layers = _evenly_spaced(num_source_layers, fields["num_hidden_layers"])
    elif config_overrides.get("num_hidden_layers") not in (None, len(keep_layers)):
        raise ValueError(
            f"`keep_layers` lists {len(keep_layers)} layers, but `num_hidden_layers` is "
            f"{config_overrides['num_hidden_layers']}: give one of the two."
        )
    wrong = [layer for layer in keep_layers if not 0 <= layer < num_source_layers]
    if wrong or not keep_layers:
        raise ValueError(
            f"`keep_layers` must name layers of {name_or_path} between 0 and {num_source_layers - 1}, got "
            f"{keep_layers}."
        )
    fields["num_hidden_layers"] = len(keep_layers)
    layer_types = fields.get("layer_types") or []
    layer_types = [layer_types] if isinstance(layer_types, str) else layer_types
    if len(layer_types) == 1:
        fields["layer_types"] = layer_types * len(keep_layers)
    fields = {"num_labels": 1, **read_settings(name_or_path), **fields}
    if fields.setdefault("pooling_mode", "mean") not in POOLINGS:
        raise ValueError(
            f"The pooling of {name_or_path} ({fields['pooling_mode']}) is not mean, cls or max alone: choose one with "
            "`pooling_mode`."
        )
    warn_of_lost_settings(name_or_path)
    fields["max_position_embeddings"] = limit if max_position_embeddings is None else max_position_embeddings
    for name in TEXT_LENGTHS:
        if fields.get(name) is not None and name not in config_overrides:
            fields[name] = min(fields[name], fields["max_position_embeddings"])
    if fields["max_position_embeddings"] > limit:
        fields.update(position_extension=position_extension, original_max_position_embeddings=limit)
    config = DseConfig(**fields)

    model = DseModel(config)
    if random_init:
        logger.warning(
            "The student starts from random weights. On a few thousand pairs such a student does not learn; use it as "
            "a floor for comparisons only."
        )
        return model.eval()
    state[positions] = state[positions][: config.max_position_embeddings]
    state, dropped = _select_layers(state, keep_layers)
    missing, unexpected = model.load_state_dict(state, strict=False)
    not_new = [name for name in missing if not re.search(r"linformer\.(key|value)$|^projection\.", name)]
    dropped_inside = [name for name in unexpected if not name.startswith("pooler.")]
    if not_new or dropped_inside:
        raise ValueError(
            f"{name_or_path} cannot be converted exactly: missing weights {not_new or 'none'}, weights that a DSE "
            f"encoder does not have {dropped_inside or 'none'}."
        )
    unused = [*dropped, *unexpected]
    logger.info(_report(name_or_path, config, num_source_layers, keep_layers, limit, missing, unused))
    return model.eval()


def make_pair_model(encoder: DseModel, **config_overrides: Any) -> DseForSequenceClassification:
    """
    Adds a new similarity head to a DSE encoder.

    Args:
        encoder ([`DseModel`]):
            The encoder; its weights are copied.
        config_overrides:
            Fields of [`DseConfig`], such as `num_labels`, `problem_type` or `similarity`.

    Returns:
        [`DseForSequenceClassification`] in evaluation mode, on the device and in the data type of the encoder.

    Raises:
        `ValueError`: for a config field that does not exist.
    """
    _check_names(config_overrides)
    fields = copy.deepcopy(encoder.config).to_dict()
    if "num_labels" in config_overrides:
        # They also set the number of labels, and override `num_labels`.
        fields.pop("id2label", None)
        fields.pop("label2id", None)
    model: Any = DseForSequenceClassification(DseConfig(**{**fields, **config_overrides}))
    model.dse.load_state_dict(encoder.state_dict())
    model.set_attn_implementation(encoder.config._attn_implementation)
    return model.to(encoder.device, encoder.dtype).eval()


def _check_names(config_overrides: dict[str, Any], fixed: Collection[str] = ()) -> None:
    # PreTrainedConfig accepts any name, so a misspelt one would have no effect.
    known = {entry.name for entry in dataclass_fields(DseConfig)} | {"num_labels"}
    unknown = sorted(set(config_overrides) - known)
    if unknown:
        raise ValueError(f"`DseConfig` has no fields {unknown}. Its fields are {sorted(known - set(fixed))}.")
    chosen = sorted(set(config_overrides) & set(fixed))
    if chosen:
        raise ValueError(f"{chosen} cannot be chosen: the weights of the source fix them. Leave them out.")


def _pair_format(name_or_path: str) -> dict[str, Any]:
    """Separators of a pair in the format of the tokenizer, for models that split pairs at separators."""
    try:
        tokenizer = load_tokenizer(name_or_path)
    except (OSError, ValueError):
        tokenizer = None
    # Without tokenizer files, transformers may create a tokenizer with special tokens only.
    if tokenizer is None or len(tokenizer) <= len(tokenizer.all_special_ids):
        logger.warning(
            f"{name_or_path} has no tokenizer: pairs can be split by token types only, until `sep_token_id` and "
            "`num_pair_separators` are set in the config."
        )
        return {}
    return {
        "sep_token_id": tokenizer.sep_token_id,
        "num_pair_separators": max(1, tokenizer.num_special_tokens_to_add(pair=True) - 2),
    }


def _evenly_spaced(num_source_layers: int, num_layers: int) -> list[int]:
    """The last layer of each of `num_layers` equal parts, TinyBERT's uniform mapping g(m) = m * N / M."""
    if not 1 <= num_layers <= num_source_layers:
        raise ValueError(
            f"`num_hidden_layers` must be between 1 and {num_source_layers}, the layers of the source, got "
            f"{num_layers}."
        )
    return [(layer + 1) * num_source_layers // num_layers - 1 for layer in range(num_layers)]


def _select_layers(
    state: dict[str, torch.Tensor], keep_layers: list[int]
) -> tuple[dict[str, torch.Tensor], list[str]]:
    selected, dropped = {}, []
    for name, tensor in state.items():
        match = re.match(r"encoder\.layer\.(\d+)\.(.*)", name)
        if match is None:
            selected[name] = tensor
        elif int(match[1]) not in keep_layers:
            dropped.append(name)
        else:
            for new, old in enumerate(keep_layers):
                if old == int(match[1]):
                    selected[f"encoder.layer.{new}.{match[2]}"] = tensor
    return selected, dropped


def _report(
    name: str,
    config: DseConfig,
    num_layers: int,
    keep_layers: list[int],
    limit: int,
    new: list[str],
    dropped: list[str],
) -> str:
    kinds = sorted({re.sub(r"encoder\.layer\.\d+\.", "encoder.layer.*.", entry) for entry in new})
    others = sorted({entry.split(".")[0] for entry in dropped if not entry.startswith("encoder.layer.")})
    gone = [layer for layer in range(num_layers) if layer not in keep_layers]
    positions = f"{min(limit, config.max_position_embeddings)} of {limit} positions"
    if config.position_extension is not None:
        positions = f"{limit} positions, extended to {config.max_position_embeddings} ({config.position_extension})"
    kinds_of_layers = config.layer_types or []
    num_linear, num_chunked = (kinds_of_layers.count(f"{kind}_attention") for kind in ("linear", "chunked"))
    chunked = f"{num_chunked} in chunks of {config.attention_chunk_size} tokens, " if num_chunked else ""
    lines = [
        f"Converted {name}: {config.linformer_projection} projection to k = {config.linformer_length}, "
        f"{num_linear} of {config.num_hidden_layers} layers linear, {chunked}{config.pooling_mode} pooling",
        f"  kept:    embeddings, {positions}, layers {keep_layers} of {num_layers}",
        f"  dropped: {', '.join([*others, *([f'layers {gone}'] if gone else [])]) or 'nothing'}",
        f"  new:     {', '.join(kinds) or 'nothing'}",
    ]
    return "\n".join(lines)
