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
from hf_dse.convert.folder import write_settings
from hf_dse.convert.student import CODE_FILES, limit_tokens
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.publish.card import make_model_card, rename_card


logger = logging.get_logger(__name__)

WEIGHTS = "model.safetensors"


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
    model card. The folder loads without hf_dse installed. If an error occurs, nothing is written.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]): The model, with its head for sentence pairs if any.
        processing_class (`PreTrainedTokenizerBase`): The tokenizer of the model.
        path (`str` or `os.PathLike`): Folder to write.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*): Metrics by split on the first of `datasets`.
        base_model (`str`, *optional*): The encoder that the model was converted from.
        teacher (`str`, *optional*): The cross-encoder that the model was distilled from.
        datasets (`Sequence[str]`, *optional*): Training data: names of pair tasks, Hub ids or folders.
        recipe (`Mapping[str, Any]`, *optional*): Settings of the training; `recipe["command"]` is a shell command.
        max_length (`int`, *optional*): Tokens per text that everything that loads the folder reads. Defaults to the
            `model_max_length` of `processing_class`.
        license (`str`, *optional*): Hub identifier of the license of the weights, such as `"apache-2.0"`.
        eval_results (`Sequence[huggingface_hub.EvalResult]`, *optional*): Results on other data, from 0 to 1.
        model_id (`str`, *optional*): Name of the model in the examples of the card. Defaults to that of the folder.
        card (`str`, *optional*): Text of a finished model card; if hf-dse made it, it gets the name `model_id`.
        dtype (`torch.dtype`, *optional*): Data type in which the weights are stored. Defaults to that of `model`.
        overwrite (`bool`, *optional*, defaults to `False`): Whether to replace an existing model folder.

    Returns:
        `pathlib.Path`: the folder.

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
    tokenizer = limit_tokens(processing_class, model, max_length)
    name = model_id or target.name
    if card is None:
        card = make_model_card(
            model,
            model_id=name,
            metrics=metrics,
            base_model=base_model,
            teacher=teacher,
            datasets=datasets,
            recipe=recipe,
            max_length=tokenizer.model_max_length,
            license=license,
            eval_results=eval_results,
        ).content
    else:
        card = rename_card(card, name)
        if model_id is not None and model_id not in card:
            logger.warning(f"README.md is kept and does not mention {model_id}: edit it in {path}.")
        old = processing_class.model_max_length
        if tokenizer.model_max_length != old:
            logger.warning(f"README.md is kept and may name {old} tokens per text: edit it in {path}.")
    with folder_in_one_step(target, overwrite) as new:
        weights = {key: tensor.to(dtype or tensor.dtype) for key, tensor in model.state_dict().items()}
        model.save_pretrained(new, state_dict=weights)
        missing = [file for file in (WEIGHTS, *CODE_FILES) if not (new / file).is_file()]
        if missing:
            raise TypeError(
                f"{type(model).__name__} was saved without {', '.join(missing)}: export a `DseModel` or "
                "`DseForSequenceClassification`, not a subclass; merge an adapter first (`merge_and_unload`)."
            )
        tokenizer.save_pretrained(new)
        write_settings(model, new)
        (new / "README.md").write_text(card, encoding="utf-8")
    return path
