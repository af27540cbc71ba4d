# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Conversion of a pretrained encoder of any architecture to a DSE encoder with linear attention."""

import copy
import dataclasses
from dataclasses import replace
from typing import Any

import torch
from transformers import AutoModel, PreTrainedConfig, PreTrainedModel
from transformers.utils import logging

from hf_dse.common.loading import load_config, load_encoder, load_tokenizer
from hf_dse.common.settings import (
    POOLINGS,
    read_embedding,
    read_settings,
    set_settings,
    settings_of,
    warn_of_lost_settings,
)
from hf_dse.convert.options import PROMPTS, ConvertOptions
from hf_dse.modeling import DseConfig, DseForSequenceClassification, DseModel
from hf_dse.modeling.modeling_dse import count_positions, find_attentions, find_table


logger = logging.get_logger(__name__)

# Names that encoders have for the two kinds of dropout.
HIDDEN_DROPOUT = ("hidden_dropout_prob", "dropout", "embedding_dropout", "mlp_dropout")
ATTENTION_DROPOUT = ("attention_probs_dropout_prob", "attention_dropout")

# A converted encoder is compared with its source on a text of so many tokens, at most, in float32.
CHECKED_TOKENS = 32
MOST_DIFFERENCE = 1e-3


def convert_with_options(name_or_path: str, options: ConvertOptions) -> DseModel:
    """`convert_encoder` with options of a command."""
    chosen = {name: value for name, value in vars(options).items() if value is not None and name not in PROMPTS}
    if len(options.linformer_length) == 1:
        chosen["linformer_length"] = options.linformer_length[0]
    model = convert_encoder(name_or_path, **chosen)
    if model.config.linformer_projection != "learned":
        for name in ("linformer_init", "linformer_sharing"):
            if chosen[name] != getattr(ConvertOptions, name):
                projection = model.config.linformer_projection
                logger.warning(f"{name}={chosen[name]} is not used: the projection is {projection}, not learned.")
    set_settings(model, options.with_prompts(settings_of(model)))
    return model


def convert_encoder(
    name_or_path: str,
    *,
    num_hidden_layers: int | None = None,
    max_position_embeddings: int | None = None,
    hidden_dropout_prob: float | None = None,
    attention_probs_dropout_prob: float = 0.0,
    **config_overrides: Any,
) -> DseModel:
    """
    Converts a pretrained encoder to a [`DseModel`] with its weights: any encoder of transformers that dispatches its
    attention, such as BERT, RoBERTa, XLM-R, ModernBERT, GTE, NomicBERT, EuroBERT or EmbeddingGemma, and MPNet. Only
    the parameters of learned length projections (Linformer's E and F) and, with a `projection_dim`, of the linear
    layer of the embedding are new. On inputs of up to `linformer_length` tokens the outputs equal those of the source,
    which is checked. What is kept is logged at level info.

    Args:
        name_or_path (`str`):
            Hub id (`user/name` or `user/name@revision`) or folder of the source encoder. The pooling mode of a
            sentence-transformers model, its prompts, its lengths for queries and documents and its similarity (cosine
            or dot product) are kept, and if it scales its embeddings to length 1 (`Normalize`), so does the student.
        num_hidden_layers (`int`, *optional*):
            Layers of the student, evenly spaced ones of the source. Defaults to all.
        max_position_embeddings (`int`, *optional*):
            Longest input in tokens. Defaults to the source's limit. Beyond it rotary positions go on, as the source
            defines them, and those of a table start again. Inputs that the source takes stay exact.
        hidden_dropout_prob (`float`, *optional*):
            Dropout of the layers. Defaults to the source's.
        attention_probs_dropout_prob (`float`, *optional*, defaults to 0.0):
            Dropout of the attention weights, which has no fast kernel on a CPU.
        config_overrides:
            Fields of [`DseConfig`]. `layer_types` may name one type for all layers. By default layers that attend to
            all tokens become linear, and layers that attend to a window keep it, computed in blocks. The default of
            `linformer_projection` is `"learned"`, and `"strided"` where positions are rotary or relative, which an
            average of keys would blur.

    Returns:
        [`DseModel`] in float32 and evaluation mode.

    Raises:
        `ValueError`: for an encoder whose attention cannot be replaced, a decoder, missing weights, layers that the
            source does not have, or config fields that do not exist or are invalid.

    Example:

    ```python
    >>> from hf_dse import convert_encoder

    >>> model = convert_encoder("sentence-transformers/all-MiniLM-L6-v2", linformer_length=128)
    >>> model.config.layer_types[0], model.config.linformer_length
    ('linear_attention', 128)
    ```
    """
    _check_names(config_overrides)
    _check_config(load_config(name_or_path), name_or_path)
    source = load_encoder(AutoModel, name_or_path, dtype=torch.float32)
    attentions = _check_attention(source, name_or_path)
    table, num_layers = find_table(source), source.config.num_hidden_layers
    limit = source.config.max_position_embeddings if table is None else count_positions(table)
    _check_outputs(source.eval(), attentions, limit, name_or_path)
    stem = name_of_layers(source, attentions[0])
    # Where layers share their weights they are in groups, which all stay.
    layers: Any = [] if "groups" in stem else [*source.get_submodule(stem)]
    # As in ModernBERT, whose first layer has no norm before its attention.
    has_own_start = len({frozenset(layer.state_dict()) for layer in layers[:2]}) > 1
    num_kept = num_layers if num_hidden_layers is None else num_hidden_layers
    keep_layers = _evenly_spaced(num_layers, num_kept, has_own_start)
    if len(attentions) not in (1, num_layers) and num_kept != num_layers:
        raise ValueError(f"{name_or_path} has groups of layers that share their weights: keep all of its layers.")
    encoder: Any = copy.deepcopy(source.config)
    encoder.num_hidden_layers = num_kept
    if getattr(encoder, "layer_types", None) is not None:
        encoder.layer_types = [encoder.layer_types[layer] for layer in keep_layers]
    # The weights have the type of the whole model.
    encoder.dtype = encoder.architectures = None
    set_dropout(encoder, hidden_dropout_prob, attention_probs_dropout_prob)

    fields = {"num_labels": 1, "dtype": torch.float32, **read_embedding(name_or_path), **_pair_format(name_or_path)}
    fields |= {name: value for name, value in config_overrides.items() if value is not None}
    if fields.setdefault("pooling_mode", "mean") not in POOLINGS:
        raise ValueError(
            f"The pooling of {name_or_path} ({fields['pooling_mode']}) is not mean or cls alone: choose one with "
            "`pooling_mode`."
        )
    warn_of_lost_settings(name_or_path)
    kinds = fields.get("layer_types")
    kinds = [kinds] if isinstance(kinds, str) else kinds
    fields["layer_types"] = kinds * len(keep_layers) if kinds and len(kinds) == 1 else kinds
    has_plain_keys = table is not None and encoder.model_type != "mpnet"
    fields.setdefault("linformer_projection", "learned" if has_plain_keys else "strided")
    length = fields["max_position_embeddings"] = limit if max_position_embeddings is None else max_position_embeddings
    model = DseModel(DseConfig(encoder=encoder, **fields))
    settings = read_settings(name_or_path)
    lengths = {name: min(limit, length) for name, limit in settings.lengths.items()}
    set_settings(model, replace(settings, lengths=lengths))
    if layers:
        source.set_submodule(stem, torch.nn.ModuleList([layers[layer] for layer in keep_layers]))
    _copy_weights(source, model, keep_layers, name_or_path)
    logger.info(_report(name_or_path, model.config, num_layers, keep_layers, limit))
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
    fields = encoder.config.to_dict()
    if "num_labels" in config_overrides:
        # They also set the number of labels, and override `num_labels`.
        fields.pop("id2label", None)
        fields.pop("label2id", None)
    model: Any = DseForSequenceClassification(DseConfig(**{**fields, **config_overrides}))
    model.dse.load_state_dict(encoder.state_dict())
    set_settings(model, settings_of(encoder))
    return model.to(encoder.device, encoder.dtype).eval()


def set_dropout(encoder: PreTrainedConfig, hidden: float | None = None, attention: float | None = None) -> None:
    """Sets the dropout of an encoder in its configuration, by the names that it has there."""
    for names, value in ((HIDDEN_DROPOUT, hidden), (ATTENTION_DROPOUT, attention)):
        for name in names:
            if value is not None and hasattr(encoder, name):
                setattr(encoder, name, value)


def _check_names(config_overrides: dict[str, Any]) -> None:
    # PreTrainedConfig accepts any name, so a misspelt one would have no effect.
    known = {entry.name for entry in dataclasses.fields(DseConfig)} - {"encoder"} | {"num_labels"}
    unknown = sorted(set(config_overrides) - known)
    if unknown:
        raise ValueError(f"`DseConfig` has no fields {unknown} that can be chosen. These are {sorted(known)}.")


def _check_config(config: PreTrainedConfig, name_or_path: str) -> None:
    """Raises a `ValueError` for a source that cannot be converted, as far as its configuration says."""
    if config.model_type == "dse":
        raise ValueError(f"{name_or_path} is already a DSE model: load it with `AutoModel.from_pretrained`.")
    if config.is_encoder_decoder or getattr(config, "is_decoder", False):
        raise ValueError(f"{name_or_path} has a decoder, whose causal attention cannot be converted. It can teach.")
    if not hasattr(config, "num_hidden_layers"):
        raise ValueError(
            f"{name_or_path} is of the type {config.model_type!r}, which is not one text encoder: save its text "
            "encoder alone."
        )
    relative = getattr(config, "position_embedding_type", None)
    if relative not in (None, "absolute", "rotary"):
        raise ValueError(
            f"{name_or_path} has `position_embedding_type={relative!r}`: relative positions are part of n x n "
            "attention logits and cannot be converted. Convert an encoder with absolute or rotary positions."
        )


def _check_attention(source: PreTrainedModel, name_or_path: str) -> list[Any]:
    """The attention modules of a source; a `ValueError` if their attention cannot be replaced."""
    attentions = find_attentions(source)
    is_causal = any(getattr(module, "is_causal", False) for module in attentions)
    if attentions and not is_causal and (source.config.model_type == "mpnet" or source._can_set_attn_implementation()):
        return attentions
    reason = (
        "its attention is causal" if is_causal else "transformers cannot exchange its attention, as that of DeBERTa"
    )
    raise ValueError(
        f"{name_or_path} is of the type {source.config.model_type!r} and cannot be converted: {reason}. Convert an "
        "encoder whose attention transformers can exchange, such as BERT, RoBERTa, XLM-R, ModernBERT, GTE, NomicBERT, "
        "EuroBERT or EmbeddingGemma, or MPNet. Any architecture can be the teacher."
    )


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
        "num_pair_separators": min(2, max(1, tokenizer.num_special_tokens_to_add(pair=True) - 2)),
    }


def _evenly_spaced(num_source_layers: int, num_layers: int, has_own_start: bool) -> list[int]:
    """
    The last layer of each of `num_layers` equal parts, TinyBERT's uniform mapping g(m) = m * N / M; the first, where
    only the first layer of the source can be the first of a model.
    """
    if not 1 <= num_layers <= num_source_layers:
        raise ValueError(
            f"`num_hidden_layers` must be between 1 and {num_source_layers}, the layers of the source, got "
            f"{num_layers}."
        )
    if has_own_start:
        return [layer * num_source_layers // num_layers for layer in range(num_layers)]
    return [(layer + 1) * num_source_layers // num_layers - 1 for layer in range(num_layers)]


def name_of_layers(encoder: PreTrainedModel, first_attention: torch.nn.Module) -> str:
    """The name of the list of layers in an encoder, such as `encoder.layer`."""
    name = next(name for name, module in encoder.named_modules() if module is first_attention)
    # As in `encoder.layer.0.attention`.
    return name.partition(".0.")[0]


def _copy_weights(source: PreTrainedModel, model: DseModel, keep_layers: list[int], name_or_path: str) -> None:
    """Copies a source that is cut to its kept layers. Parameters of length projections stay as they are."""
    own = {name: weight for name, weight in model.encoder.state_dict().items() if ".linformer." in name}
    weights = {name: weight for name, weight in source.state_dict().items() if not name.startswith("pooler.")}
    try:
        model.encoder.load_state_dict(own | weights)
    except RuntimeError as error:
        raise ValueError(
            f"{name_or_path} cannot be cut to the layers {keep_layers}: {str(error).splitlines()[-1].strip()}"
        ) from error


@torch.no_grad()
def _check_outputs(source: PreTrainedModel, attentions: list[Any], limit: int, name_or_path: str) -> None:
    """
    Checks that all layers of a source attend by our function, which changes nothing on a text of up to k tokens, and
    that padding changes nothing either.
    """

    def difference(ours: torch.Tensor, theirs: torch.Tensor) -> float:
        return ((ours - theirs).abs().max() / theirs.abs().max().clamp(min=1)).item()

    vocab_size, length = source.config.vocab_size, min(CHECKED_TOKENS, limit)
    ids = torch.randint(vocab_size // 2, vocab_size, (1, length), generator=torch.Generator().manual_seed(0))
    mask = torch.ones(2, length, dtype=torch.long)
    mask[1, -1] = 0
    states = source(input_ids=ids).last_hidden_state
    # MPNet has another attention, which only its student gets.
    own, is_mpnet = source.config._attn_implementation, source.config.model_type == "mpnet"
    if not is_mpnet:
        source.config._attn_implementation = "linformer"
    for module in attentions:
        module.linformer_record = []
    ours = source(input_ids=ids).last_hidden_state
    padded = source(input_ids=ids.repeat(2, 1), attention_mask=mask).last_hidden_state[1:, :-1]
    alone = source(input_ids=ids[:, :-1]).last_hidden_state
    source.config._attn_implementation = own
    unseen = [module for module in attentions if not module.linformer_record]
    if unseen and not is_mpnet:
        raise ValueError(
            f"{name_or_path} cannot be converted: {len(unseen)} of its layers do not call the attention function that "
            "they are given. It can be a teacher."
        )
    # A NaN is no small difference.
    if not (gap := difference(ours, states)) <= MOST_DIFFERENCE:
        raise ValueError(
            f"{name_or_path} cannot be converted exactly: on a text of {length} tokens its outputs and those of the "
            f"student differ by {gap:.2g} of the largest, as those of a causal encoder do."
        )
    if not difference(padded, alone) <= MOST_DIFFERENCE:
        raise ValueError(
            f"{name_or_path} cannot be converted: the vector of a text depends on the padding behind it (as that of "
            "MobileBERT, whose embeddings read the tokens beside). It can be a teacher."
        )


def _report(name: str, config: DseConfig, num_layers: int, keep_layers: list[int], limit: int) -> str:
    length, types = config.max_position_embeddings or limit, config.layer_types or []
    counts = [f"{kind} in {types.count(kind)} of {len(types)} layers" for kind in dict.fromkeys(types)]
    if any("linear" in kind for kind in types):
        counts.append(f"{config.linformer_projection} projection to k = {config.linformer_length}")
    extension = f" (the source has {limit})" if length > limit else ""
    return (
        f"Converted {name}: {', '.join(counts)}, {config.pooling_mode} pooling\n"
        f"  kept: layers {keep_layers} of {num_layers}, {length} positions{extension}"
    )
