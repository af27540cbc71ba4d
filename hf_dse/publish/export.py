# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exporting a model as a folder that transformers and sentence-transformers load, with its code and a model card."""

import json
import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
import transformers
from transformers import PreTrainedTokenizerBase

from hf_dse.common.files import check_target, folder_in_one_step
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.publish.card import make_model_card
from hf_dse.student.checkpoint import CODE_FILES, SENTENCE_TRANSFORMERS_FORMAT, TRANSFORMERS_NEEDED, limit_tokens


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
    model_id: str | None = None,
    overwrite: bool = False,
) -> Path:
    """
    Writes a complete model folder: weights, configuration, code, tokenizer, files of sentence-transformers, and a
    model card. It loads without hf_dse installed. If an error occurs, nothing is written.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model to save, with its head for sentence pairs if it has one.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model. The saved copy truncates to the maximum length of the model.
        path (`str` or `os.PathLike`):
            Folder to write.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*):
            Measured metrics by split, as [`evaluate_model`] returns them: `{"test": {"pearson": 0.86}}`; `num_pairs`
            is allowed too. They were measured on the first of `datasets`.
        base_model (`str`, *optional*):
            The encoder that the model was converted from.
        teacher (`str`, *optional*):
            The cross-encoder that it was distilled from.
        datasets (`Sequence[str]`, *optional*):
            Training data: names of pair tasks, Hub ids or folders. Only the last part of a local path is published.
        recipe (`Mapping[str, Any]`, *optional*):
            Settings of the training for a table in the card, such as learning rate, epochs, seed and machine.
            `recipe["command"]` is shown as a shell command.
        max_length (`int`, *optional*):
            Maximum number of tokens per text in training and evaluation, to which sentence-transformers truncates too.
            Defaults to the limit of the model.
        license (`str`, *optional*):
            Hub identifier of the license of the weights, such as `"apache-2.0"`.
        model_id (`str`, *optional*):
            Name under which the examples of the card load the model. Defaults to the name of the folder.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace an existing model folder with all its files.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if `path` is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `TypeError`: if `model` is not a DSE model, or is of a custom subclass.
        `ValueError`: if `metrics` are not finite numbers by split, or `max_length` is out of range.

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
    path = Path(path).expanduser()
    target = path.resolve()
    check_target(target, overwrite)
    card = make_model_card(
        model,
        model_id=model_id or target.name,
        metrics=metrics,
        base_model=base_model,
        teacher=teacher,
        datasets=datasets,
        recipe=recipe,
        max_length=max_length,
        license=license,
    )
    with folder_in_one_step(target) as new:
        model.save_pretrained(new)
        missing = [name for name in CODE_FILES if not (new / name).is_file()]
        if missing:
            raise TypeError(
                f"{type(model).__name__} of {type(model).__module__} was saved without {', '.join(missing)}: "
                "export a `DseModel` or `DseForSequenceClassification`, not a subclass."
            )
        limit_tokens(processing_class, model).save_pretrained(new)
        for name, content in _sentence_transformers_files(model, max_length).items():
            (new / name).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
        card.save(new / "README.md")
    return path


def _sentence_transformers_files(
    model: DseModel | DseForSequenceClassification, max_length: int | None
) -> dict[str, Any]:
    """The files that make `SentenceTransformer(folder)` return the `pooler_output` of `DseModel`, by name."""
    transformer: dict[str, Any] = {
        "transformer_task": "feature-extraction",
        "modality_config": {"text": {"method": "forward", "method_output_name": "pooler_output"}},
        "module_output_name": "sentence_embedding",
    }
    if max_length is not None:
        transformer["max_seq_length"] = max_length
    return {
        "modules.json": [
            {"idx": 0, "name": "0", "path": "", "type": "sentence_transformers.base.modules.transformer.Transformer"}
        ],
        "sentence_bert_config.json": transformer,
        "config_sentence_transformers.json": {
            "__version__": {
                "pytorch": torch.__version__,
                "sentence_transformers": SENTENCE_TRANSFORMERS_FORMAT,
                "transformers": transformers.__version__,
            },
            "default_prompt_name": None,
            "model_type": "SentenceTransformer",
            "prompts": {"document": "", "query": ""},
            "requirements": {"transformers": TRANSFORMERS_NEEDED},
            # sentence-transformers has no similarity function for the head of DSE ("mlp").
            "similarity_fn_name": "dot" if model.config.similarity == "dot" else "cosine",
        },
    }
