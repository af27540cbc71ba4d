# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exporting a model as a folder that transformers and sentence-transformers load, with its code and a model card."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import EvalResult
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.files import check_target, folder_in_one_step, to_path
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.publish.card import make_model_card, rename_card
from hf_dse.student.checkpoint import CODE_FILES, check_no_adapter, limit_tokens


logger = logging.get_logger(__name__)


def export_model(
    model: DseModel | DseForSequenceClassification,
    processing_class: PreTrainedTokenizerBase,
    path: str | os.PathLike,
    *,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    base_model: str | None = None,
    teacher: str | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    max_length: int | None = None,
    license: str | None = None,
    eval_results: Sequence[EvalResult] | None = None,
    model_id: str | None = None,
    card: str | None = None,
    dtype: torch.dtype | None = None,
    overwrite: bool = False,
) -> Path:
    """
    Writes a complete model folder: weights, configuration, code, tokenizer, files of sentence-transformers, and a
    model card. It loads without hf_dse installed. If an error occurs, nothing is written.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model to save, with its head for sentence pairs if it has one.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        path (`str` or `os.PathLike`):
            Folder to write.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*):
            Measured metrics by split, as [`evaluate_model`] or [`evaluate_retrieval`] returns them: `{"test":
            {"pearson": 0.86}}`; `num_pairs` is allowed too. They were measured on the first of `datasets`.
        base_model (`str`, *optional*):
            The encoder that the model was converted from.
        teacher (`str`, *optional*):
            The cross-encoder that it was distilled from.
        datasets (`Sequence[str]`, *optional*):
            Training data: names of pair tasks, Hub ids or folders. Only the last part of a local path is published.
        recipe (`Mapping[str, Any]`, *optional*):
            Settings of the training for a table in the card, such as learning rate, epochs, seed and machine.
            `recipe["command"]` is shown as a shell command; with a `recipe["chunk_size"]` the card says that documents
            were searched by contextual chunks of so many tokens.
        max_length (`int`, *optional*):
            Maximum number of tokens per text that everything that loads the folder reads, best the one of training and
            evaluation. It is saved as `model_max_length` of the tokenizer. Defaults to that of `processing_class`. Of
            queries and documents a `query_length` and `document_length` of the model's config are read instead.
        license (`str`, *optional*):
            Hub identifier of the license of the weights, such as `"apache-2.0"`.
        eval_results (`Sequence[huggingface_hub.EvalResult]`, *optional*):
            Further results, of other data than the first of `datasets`: numbers from 0 to 1, with the Hub id of the
            data as `dataset_type`, or `"custom"`.
        model_id (`str`, *optional*):
            Name under which the examples of the card load the model. Defaults to the name of the folder.
        card (`str`, *optional*):
            Text of a model card to write instead of a new one with the facts above, such as that of the folder from
            which the model was loaded. In a card of hf-dse the model gets the name `model_id`.
        dtype (`torch.dtype`, *optional*):
            Type in which the weights are stored; whoever loads them gets that of `model`, which is the default.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace an existing model folder with all its files.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if `path` is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `TypeError`: if `model` is not a DSE model, or is of a custom subclass.
        `ValueError`: if `metrics` are not finite numbers by split, or `eval_results` not finite numbers, if
        `max_length` is out of range, or if there are both a `card` and facts for a new one.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, export_model

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> export_model(model, tokenizer, "my-model", base_model=name)
    PosixPath('my-model')
    ```
    """
    path = to_path(path)
    target = path.resolve()
    check_target(target, overwrite)
    check_no_adapter(model)
    tokenizer = limit_tokens(processing_class, model, max_length)
    name = model_id or target.name
    facts: dict[str, Any] = {
        "metrics": metrics,
        "base_model": base_model,
        "teacher": teacher,
        "datasets": datasets,
        "recipe": recipe,
        "license": license,
        "eval_results": eval_results,
    }
    given = [fact for fact, value in facts.items() if value is not None]
    if card is not None and given:
        raise ValueError(f"`{given[0]}` is for a new model card, and `card` is a finished one: pass one of the two.")
    if card is None:
        new_card = make_model_card(model, model_id=name, max_length=tokenizer.model_max_length, **facts)
    else:
        card = rename_card(card, name)
        if model_id is not None and model_id not in card:
            logger.warning(f"README.md is kept as it was and does not mention {model_id}: edit it in {path}.")
        if tokenizer.model_max_length != processing_class.model_max_length:
            logger.warning(
                f"README.md is kept and describes a model that reads {processing_class.model_max_length} tokens of a "
                f"text, but that in {path} reads {tokenizer.model_max_length}: edit it there."
            )
    limit = model.config.max_position_embeddings
    if max_length is None and model.config.position_extension and tokenizer.model_max_length < limit:
        logger.warning(
            f"The tokenizer reads {tokenizer.model_max_length} tokens of a text, and so will all who load {path}, but "
            f"the model takes {limit}: pass `max_length` to choose another length."
        )
    with folder_in_one_step(target, overwrite) as new:
        weights = {key: tensor.to(dtype or tensor.dtype) for key, tensor in model.state_dict().items()}
        model.save_pretrained(new, state_dict=weights)
        missing = [name for name in CODE_FILES if not (new / name).is_file()]
        if missing:
            raise TypeError(
                f"{type(model).__name__} of {type(model).__module__} was saved without {', '.join(missing)}: "
                "export a `DseModel` or `DseForSequenceClassification`, not a subclass."
            )
        tokenizer.save_pretrained(new)
        if card is None:
            new_card.save(new / "README.md")
        else:
            (new / "README.md").write_text(card, encoding="utf-8")
    return path
