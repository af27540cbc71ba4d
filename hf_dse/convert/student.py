# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of a DSE model folder, the length that it stores, and loading models."""

import copy
from dataclasses import asdict
from typing import Any

from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.loading import load_config, load_encoder, stored_dtypes
from hf_dse.common.settings import read_settings, set_settings, settings_of
from hf_dse.convert.convert import convert_with_options, make_pair_model, set_dropout
from hf_dse.convert.options import LATER_OPTIONS, PROMPTS, ConvertOptions
from hf_dse.data.tokenization import add_mask, check_vocabulary
from hf_dse.modeling import DseForSequenceClassification, DseModel


CODE_FILES = ("attention_dse.py", "configuration_dse.py", "modeling_dse.py", "pairs_dse.py")

# Traces of padding and truncation in a `tokenizer_config.json`, and code of the source that is not in our folder, but
# would run with `trust_remote_code`.
LEFTOVERS = "max_length stride truncation_strategy pad_to_multiple_of is_local local_files_only auto_map".split()


def has_head(model: Any) -> bool:
    """Whether a DSE model has a head for sentence pairs."""
    # By name, because a model that was loaded with the code of its folder has another class.
    return type(model).__name__ == "DseForSequenceClassification"


def limit_tokens(
    processing_class: PreTrainedTokenizerBase,
    model: DseModel | DseForSequenceClassification,
    max_length: int | None = None,
) -> PreTrainedTokenizerBase:
    """
    A copy of a tokenizer whose `model_max_length` is the number of tokens that a model reads, by default the limit of
    the tokenizer, or of the model if it is lower: the one place where a model folder stores it.
    """
    check_vocabulary(model, processing_class)
    limit: Any = model.config.max_position_embeddings
    if max_length is not None and not 1 <= max_length <= limit:
        raise ValueError(f"`max_length` must be between 1 and {limit}, the positions of this model, got {max_length}.")
    tokenizer = copy.deepcopy(processing_class)
    add_mask(tokenizer)
    tokenizer.model_max_length = max_length or min(limit, tokenizer.model_max_length)
    # A side that was set as an attribute is not saved otherwise.
    tokenizer.init_kwargs["truncation_side"] = tokenizer.truncation_side
    # Some tools cut texts at the length in a tokenizer's leftovers of an earlier use.
    for name in LEFTOVERS:
        tokenizer.init_kwargs.pop(name, None)
    if tokenizer.is_fast:
        tokenizer.backend_tokenizer.no_truncation()
        tokenizer.backend_tokenizer.no_padding()
    return tokenizer


def load_dse_model(name_or_path: str, **options: Any) -> DseModel | DseForSequenceClassification:
    """Loads a DSE model, with its head for sentence pairs if it has one."""
    config = load_config(name_or_path)
    if config.model_type != "dse":
        raise ValueError(
            f"{name_or_path} is of the type {config.model_type!r} and has to be a DSE model: convert it with "
            "`hf-dse convert`."
        )
    # The config names the encoder also for checkpoints with a head.
    has_similarity = any(name.startswith("similarity.") for name in stored_dtypes(name_or_path))
    kind = DseForSequenceClassification if has_similarity else DseModel
    model = load_encoder(kind, name_or_path, **options)
    set_settings(model, read_settings(name_or_path))
    return model


def exact_kinds(encoder: PreTrainedConfig) -> list[str]:
    """The type of each layer as the encoder has it: `"full_attention"`, or `"sliding_attention"`."""
    return getattr(encoder, "layer_types", None) or ["full_attention"] * encoder.num_hidden_layers


def with_own_attention(model: DseModel) -> DseModel:
    """
    A copy of a DSE model whose layers attend as those of its source do: to all tokens, or to a window.

    Args:
        model ([`DseModel`]):
            The model. Parameters of its length projections are left out.

    Returns:
        [`DseModel`] on the device, in the data type and in the mode of the model.

    Example:

    ```python
    >>> from hf_dse import convert_encoder, with_own_attention

    >>> student = convert_encoder("sentence-transformers/all-MiniLM-L6-v2")
    >>> with_own_attention(student).config.layer_types[0]
    'full_attention'
    ```
    """
    config: Any = copy.deepcopy(model.config)
    config.layer_types = exact_kinds(config.encoder)
    config.sliding_window = None
    copied: Any = DseModel(config)
    # Without the learned projections.
    copied.load_state_dict(model.state_dict(), strict=False)
    set_settings(copied, settings_of(model))
    return copied.to(model.device, model.dtype).train(model.training)


def listed(value: Any) -> list[Any]:
    return value if isinstance(value, list) else [value]


def load_or_convert(model: Any, options: ConvertOptions) -> Any:
    """
    A DSE model, loaded or by its name, with the prompts of the options, and with their dropout if it is not loaded
    yet; or a converted encoder. Raises a `ValueError` for another option that the model does not have already.
    """
    is_loaded = not isinstance(model, str)
    config: Any = model.config if is_loaded else load_config(model)
    if config.model_type != "dse":
        if not is_loaded:
            return convert_with_options(model, options)
        raise TypeError(
            f"A loaded student has to be a DSE model, got {type(model).__name__}: convert it with `convert_encoder`, "
            "or pass the name that it was loaded by."
        )
    taken = PROMPTS if is_loaded else LATER_OPTIONS
    for name, default in asdict(ConvertOptions()).items():
        value, own = getattr(options, name), getattr(config, name, None)
        # One value may stand for all layers.
        if value not in (default, own, [own]) and name not in taken and {*listed(value)} != {*listed(own)}:
            raise ValueError(
                f"{name}={value}: {type(model).__name__ if is_loaded else model} is a DSE model already, with {own}: "
                f"leave `{name}` out, or convert its source again."
            )
    if not is_loaded:
        set_dropout(config.encoder, options.hidden_dropout_prob, options.attention_probs_dropout_prob)
        model = load_dse_model(model, config=config)
    set_settings(model, options.with_prompts(settings_of(model)))
    return model


def load_student(
    model: str | PreTrainedModel, options: ConvertOptions, num_labels: int, problem_type: str
) -> DseForSequenceClassification:
    """The student of [`load_or_convert`] with a head for a task; one that fits is kept."""
    if num_labels == 2:
        # One logit, as in DSE. In transformers, its binary cross-entropy is called "multi_label_classification".
        num_labels, problem_type = 1, "multi_label_classification"
    student = load_or_convert(model, options)
    if not has_head(student) or student.config.num_labels != num_labels:
        return make_pair_model(student.base_model, num_labels=num_labels, problem_type=problem_type)
    student.config.problem_type = problem_type
    return student
