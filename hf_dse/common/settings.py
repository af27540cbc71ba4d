# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The files of sentence-transformers in a model folder, which alone say how a model reads and embeds texts."""

import json
import math
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from transformers import PreTrainedModel
from transformers.utils import logging

from hf_dse.common.loading import LENGTHS, read_json, reading


logger = logging.get_logger(__name__)

SETTINGS = "config_sentence_transformers.json"
POOLING = "1_Pooling/config.json"
# Transformers that run the code of a checkpoint. Older ones fail on it with unclear errors.
TRANSFORMERS_NEEDED = ">=5.20"
# The names of the prompt for documents, the first of these that there is.
DOCUMENT_PROMPTS = ("document", "passage", "corpus")
# How the file of the pooling names the modes that a student has.
POOLINGS = {"mean": "pooling_mode_mean_tokens", "cls": "pooling_mode_cls_token"}


@dataclass(frozen=True)
class TextSettings:
    """
    How a model reads texts: the `prompts` before them by their names, the maximum number of tokens of queries and
    documents where they have limits of their own (`query_length`, `document_length`), the `chunk_size` of the passages
    that it learned to search, and the weight of BM25 beside its cosine that was fitted (`bm25_weight`).
    """

    prompts: dict[str, str] = field(default_factory=dict)
    lengths: dict[str, int] = field(default_factory=dict)
    chunk_size: int | None = None
    bm25_weight: float | None = None


def read_settings(name_or_path: str) -> TextSettings:
    """
    How a checkpoint reads texts, as far as its files say. A prompt for passages or a corpus is the prompt for
    documents, if there is no other.
    """
    with reading(name_or_path):
        settings, lengths = read_json(name_or_path, SETTINGS), read_json(name_or_path, LENGTHS)
        prompts = settings.get("prompts") or {}
        size = settings.get("chunk_size")
        if size is not None and (not isinstance(size, int) or isinstance(size, bool) or size < 0):
            raise ValueError(f"{SETTINGS}: chunk_size is {size!r}, not a whole number of tokens")
        weight = settings.get("bm25_weight")
        if weight is not None and (not isinstance(weight, int | float) or not 0 <= weight < math.inf):
            raise ValueError(f"{SETTINGS}: bm25_weight is {weight!r}, not a finite number of at least 0")
        document = next((prompts[name] for name in DOCUMENT_PROMPTS if prompts.get(name)), None)
        # Empty prompts are none, so that they leave no trace.
        prompts = {name: text for name, text in {**prompts, "document": document}.items() if text}
        limits = {name: lengths[name] for name in ("query_length", "document_length") if lengths.get(name) is not None}
        return TextSettings(prompts, limits, size, weight)


def settings_of(model: Any) -> TextSettings:
    """
    How a model in memory reads texts: as its source does, as the folder says that it was loaded from, or as
    [`set_settings`] was told.
    """
    base = model.base_model
    if hasattr(base, "text_settings"):
        return base.text_settings
    return read_settings(base.name_or_path) if has_source(base) else TextSettings()


def has_source(model: Any) -> bool:
    """Whether the checkpoint that a model was loaded from can be read. A folder may be gone since."""
    name = model.name_or_path
    return bool(name) and (Path(name).exists() or not Path(name).is_absolute())


def set_settings(model: Any, settings: TextSettings) -> None:
    """Tells a model in memory how it reads texts, which [`write_settings`] writes beside it."""
    model.base_model.text_settings = settings


def read_embedding(name_or_path: str) -> dict[str, Any]:
    """Fields of [`DseConfig`] by which a model embeds texts as a checkpoint does, as far as its files say."""
    fields: dict[str, Any] = {}
    with reading(name_or_path):
        if settings := read_json(name_or_path, SETTINGS):
            is_dot = settings.get("similarity_fn_name") in ("dot", "dot_product")
            fields["similarity"] = "dot" if is_dot else "cosine"
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


def warn_of_mean(name_or_path: str, tokenizer: Any, max_length: int | None = None) -> None:
    """Warns if a loaded encoder, the mean of the tokens of a tokenizer, embeds otherwise than its checkpoint."""
    with reading(name_or_path):
        fields, lengths = read_embedding(name_or_path), read_json(name_or_path, LENGTHS)
        others = [name for name in read_modules(name_or_path) if name not in ("Transformer", "Pooling", "Normalize")]
    most = tokenizer.model_max_length
    limit = most if max_length else lengths.get("max_seq_length") or most
    pooling = fields.get("pooling_mode", "mean")
    found = [f"{pooling} pooling"] * (pooling != "mean")
    found += [f"the module {name}" for name in others]
    found += ["dot products"] * (fields.get("similarity") == "dot")
    found += [f"at most {limit} tokens of a text, not {most}"] * (limit < most)
    is_cased = tokenizer.tokenize("A") != tokenizer.tokenize("a")
    found += ["lower case"] * (is_cased and bool(lengths.get("do_lower_case")))
    if found:
        logger.warning(
            f"{name_or_path} embeds with {', '.join(found)}, and a loaded encoder as the mean of its tokens: pass the "
            "name of the checkpoint, or a `SentenceTransformer` of it."
        )


def write_settings(model: PreTrainedModel, folder: Path) -> None:
    """Writes how a model reads and compares texts into the folder that it is saved in, for sentence-transformers."""
    settings, config = settings_of(model), model.config
    content: dict[str, Any] = {
        "model_type": "SentenceTransformer",
        "prompts": {"query": "", "document": "", **settings.prompts},
        "default_prompt_name": None,
        # sentence-transformers has no similarity function for the head of DSE ("mlp").
        "similarity_fn_name": "dot" if config.similarity == "dot" else "cosine",
        "requirements": {"transformers": TRANSFORMERS_NEEDED},
    }
    kept = {"chunk_size": settings.chunk_size, "bm25_weight": settings.bm25_weight}
    content |= {name: value for name, value in kept.items() if value is not None}
    (folder / SETTINGS).write_text(json.dumps(content, indent=2) + "\n", encoding="utf-8")
    # A model that was saved here before may have had lengths.
    (folder / LENGTHS).unlink(missing_ok=True)
    if settings.lengths:
        (folder / LENGTHS).write_text(json.dumps(settings.lengths, indent=2) + "\n", encoding="utf-8")
