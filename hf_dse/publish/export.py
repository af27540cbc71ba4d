# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model as a folder that transformers and sentence-transformers load, with its code and a model card."""

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
    Writes a complete model folder: weights, configuration, code, tokenizer, what sentence-transformers needs, and a
    model card. It loads where hf_dse is not installed. The folder appears whole or not at all.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            What to save; a head for sentence pairs is kept.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model. A copy that does not allow more tokens than the model takes is saved.
        path (`str` or `os.PathLike`):
            Folder to write.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*):
            Measured metrics by split, as [`evaluate_model`] returns them: `{"test": {"pearson": 0.86}}`; `num_pairs`
            may stand among them. They belong to the first of `datasets`.
        base_model (`str`, *optional*):
            The encoder that the model was made from.
        teacher (`str`, *optional*):
            The cross-encoder whose scores it learned.
        datasets (`Sequence[str]`, *optional*):
            Training data: names of pair tasks, Hub ids or folders. Of local paths only the last part is published.
        recipe (`Mapping[str, Any]`, *optional*):
            How it was trained, row by row of a table in the card: learning rate, epochs, seed, machine.
            `recipe["command"]` is shown as a command line.
        max_length (`int`, *optional*):
            Tokens after which texts were cut in training and evaluation; sentence-transformers will cut there too.
            Defaults to what the model takes.
        license (`str`, *optional*):
            Hub identifier of the license of the weights, such as `"apache-2.0"`.
        model_id (`str`, *optional*):
            Name to load the model by in the examples of the card. Defaults to the name of the folder.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace a model folder that is already there, with all that is in it.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if there is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `TypeError`: if `model` is not a DSE model, or of a class made from one.
        `ValueError`: if `metrics` are not finite numbers by split, or `max_length` does not fit the model.

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
                f"{type(model).__name__} of {type(model).__module__} does not bring {', '.join(missing)} with it: "
                "export a `DseModel` or `DseForSequenceClassification`, not a class made from one."
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
            # The head of DSE ("mlp") is not among the similarities of sentence-transformers.
            "similarity_fn_name": "dot" if model.config.similarity == "dot" else "cosine",
        },
    }
