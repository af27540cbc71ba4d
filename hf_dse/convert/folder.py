# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of sentence-transformers in a model folder: how a source embeds texts, and the settings of a student."""

import json
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging

from hf_dse.common.loading import LENGTHS, read_json, reading


logger = logging.get_logger(__name__)

SETTINGS = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"

# Maximum tokens of texts of one kind.
TEXT_LENGTHS = ("query_length", "document_length")

# Transformers that run the code of a checkpoint. Older ones fail on it with unclear errors.
TRANSFORMERS_NEEDED = ">=5.20"

# How the file of the pooling names the modes that a student has.
POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


def read_settings(name_or_path: str) -> dict[str, Any]:
    """
    Fields of [`DseConfig`] by which a model embeds texts as a sentence-transformers checkpoint does, as far as its
    files say. A prompt for passages or a corpus is the prompt for documents, if there is no other.
    """
    fields: dict[str, Any] = {}
    with reading(name_or_path):
        settings, lengths = read_json(name_or_path, SETTINGS), read_json(name_or_path, LENGTHS)
        if settings:
            prompts = settings.get("prompts") or {}
            document = next((prompts[name] for name in ("document", "passage", "corpus") if name in prompts), None)
            fields["prompts"] = {name: text for name, text in {**prompts, "document": document}.items() if text}
            is_dot = settings.get("similarity_fn_name") in ("dot", "dot_product")
            fields["similarity"] = "dot" if is_dot else "cosine"
        if lengths:
            fields |= {name: lengths.get(name) for name in TEXT_LENGTHS}
        if modules := read_modules(name_or_path):
            fields["normalize_embeddings"] = "Normalize" in modules
        if pooling := read_json(name_or_path, POOLING):
            modes = [mode for mode, key in POOLINGS.items() if pooling.get(key) or pooling.get("pooling_mode") == mode]
            # The keys of other modes are their own.
            others = [key for key, value in pooling.items() if value is True and key.startswith("pooling_mode")]
            is_one = len(modes) == 1 and not set(others) - set(POOLINGS.values())
            fields["pooling_mode"] = modes[0] if is_one else str(pooling)
    return fields


def read_modules(name_or_path: str) -> list[str]:
    """The names of the modules of a sentence-transformers checkpoint; none for other checkpoints."""
    return [module["type"].rpartition(".")[2] for module in read_json(name_or_path, "modules.json", kind=list)]


def warn_of_lost_settings(name_or_path: str) -> None:
    """Warns of a source that embeds texts otherwise than any student can."""
    with reading(name_or_path):
        settings = read_json(name_or_path, SETTINGS)
        lost = [name for name in read_modules(name_or_path) if name not in ("Transformer", "Pooling", "Normalize")]
        prompts, default = settings.get("prompts") or {}, settings.get("default_prompt_name")
        if prompts.get(default):
            lost.append(f"the default prompt {default!r}")
        if settings.get("similarity_fn_name") in ("euclidean", "manhattan"):
            lost.append(f"the similarity {settings['similarity_fn_name']!r}")
        if settings.get("truncate_dim"):
            lost.append(f"vectors that are cut to {settings['truncate_dim']} dimensions (`truncate_dim`)")
        if any(prompts.values()) and read_json(name_or_path, POOLING).get("include_prompt") is False:
            lost.append("a pooling that leaves out the tokens of prompts (`include_prompt`)")
    if lost:
        logger.warning(
            f"{name_or_path} is a sentence-transformers model with {', '.join(lost)}, which cannot be converted: the "
            "student embeds texts otherwise than its source until it is trained."
        )


def write_settings(model: PreTrainedModel, folder: Path) -> None:
    """
    Writes the settings that sentence-transformers reads beside a saved model: prompts, the similarity, and the maximum
    lengths of queries and documents.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model.
        folder (`pathlib.Path`):
            The folder that it is saved in.
    """
    config: Any = model.config
    settings = {
        "model_type": "SentenceTransformer",
        "prompts": {"query": "", "document": "", **(config.prompts or {})},
        "default_prompt_name": None,
        # sentence-transformers has no similarity function for the head of DSE ("mlp").
        "similarity_fn_name": "dot" if config.similarity == "dot" else "cosine",
        "requirements": {"transformers": TRANSFORMERS_NEEDED},
    }
    lengths = {name: length for name in TEXT_LENGTHS if (length := getattr(config, name)) is not None}
    (folder / SETTINGS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
    # A model that was saved here before may have had lengths.
    (folder / LENGTHS).unlink(missing_ok=True)
    if lengths:
        (folder / LENGTHS).write_text(json.dumps(lengths, indent=2) + "\n", encoding="utf-8")
