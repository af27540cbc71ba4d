# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Bi-encoders as teachers: their vectors, as sentence-transformers computes them."""

import hashlib
import json
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import torch

from hf_dse.common.provenance import fingerprint
from hf_dse.data.tokenization import max_tokens
from hf_dse.inference.arguments import ModelArguments
from hf_dse.inference.encoding import encode, evaluating
from hf_dse.inference.loading import (
    POOLINGS,
    SETTINGS,
    load_config,
    load_model,
    read_json,
    read_modules,
    read_pooling,
    read_prompts,
)
from hf_dse.mining.embeddings import keep_blocks
from hf_dse.teacher.rerankers import load_sentence_transformers


# The modules of sentence-transformers that `encode` applies itself.
OWN_MODULES = {"Transformer", "Pooling", "Normalize"}


class BiEncoder:
    """
    A larger bi-encoder with any tokenizer, whose vectors a student learns.

    Args:
        name_or_path (`str`):
            A folder or Hub id of sentence-transformers, or of another encoder. Pooling, prompts and further layers
            are those of its files; for layers besides the pooling, sentence-transformers has to be installed.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch, tag or commit on the Hub.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str`, *optional*, defaults to `"float32"`):
            Data type of the weights.
        prompt_name (`str`, *optional*):
            Which of its prompts stands before each text. Defaults to its `default_prompt_name`, usually none.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text, if it reads so many. Defaults to all that it reads.
        batch_size (`int`, *optional*, defaults to 32):
            Maximum number of texts in a batch.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to an accelerator if available.

    Raises:
        `ValueError`: for a cross-encoder, an unknown prompt, or a damaged checkpoint.
    """

    def __init__(
        self,
        name_or_path: str,
        *,
        revision: str = "main",
        trust_remote_code: bool = False,
        dtype: str = "float32",
        prompt_name: str | None = None,
        max_length: int | None = None,
        batch_size: int = 32,
        device: str | torch.device | None = None,
    ):
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        config = load_config(name_or_path, **source)
        heads = [name for name in config.architectures or [] if name.endswith("ForSequenceClassification")]
        if heads and config.model_type != "dse":
            raise ValueError(
                f"{name_or_path} is a {heads[0]}, a cross-encoder without vectors of single texts: name a bi-encoder, "
                "or learn from its scores with `--stage pairs` or `--stage ranking`."
            )
        name = prompt_name or read_json(name_or_path, SETTINGS, revision).get("default_prompt_name")
        prompts = read_prompts(name_or_path, revision) or {}
        if name is not None and name not in prompts:
            raise ValueError(
                f"teacher_prompt_name={name!r}: {name_or_path} has no such prompt, "
                f"{'only ' + ', '.join(prompts) if prompts else 'and no others'}."
            )
        self.prompt = "" if name is None else prompts[name]
        is_plain = set(read_modules(name_or_path, revision)) <= OWN_MODULES
        if config.model_type == "dse" or (is_plain and read_pooling(name_or_path, revision) in POOLINGS):
            own = ModelArguments(
                name_or_path, model_revision=revision, trust_remote_code=trust_remote_code, dtype=dtype
            )
            model, tokenizer = load_model(own)
            limit = _lower(max_length, max_tokens(model, tokenizer), tokenizer.model_max_length)
            encode_block: Callable = partial(encode, model, tokenizer, max_length=limit, device=device)
            self.settings = [fingerprint(model, tokenizer), "encode", limit]
            options = {"normalize": True, "show_progress": False}
        else:
            model = load_sentence_transformers("SentenceTransformer", name_or_path, dtype, **source)
            if device is not None:
                model.to(device)
            limit = model.max_seq_length = _lower(max_length, model.max_seq_length)
            # The text of a model names its modules and their settings.
            weights = {name: value.float().sum().item() for name, value in model.state_dict().items()}
            text = json.dumps([str(model), sorted(weights.items())])
            inner = fingerprint(model.transformers_model, model.tokenizer)
            self.settings = [inner, hashlib.sha256(text.encode()).hexdigest(), limit]
            encode_block = partial(_encode_with, model)
            options = {}
        self.model = model
        self._encode = partial(encode_block, batch_size=batch_size, **options)
        self.size = self._encode(["a"]).shape[1]

    def encode(
        self, texts: Sequence[str], cache_dir: str | Path | None = None, *, dtype: Any = np.float32
    ) -> np.ndarray:
        """
        The unit vectors of texts, of shape `(num_texts, embedding_size)`. With `cache_dir` those of each 1,024 texts
        are kept in a file there, by texts, weights and settings, so that none is computed twice.
        """
        texts = [self.prompt + text for text in texts] if self.prompt else texts
        folder = None if cache_dir is None else Path(cache_dir)
        return keep_blocks(self._encode, texts, self.settings, folder, size=self.size, dtype=dtype)


def _encode_with(model: Any, texts: list[str], batch_size: int) -> np.ndarray:
    with evaluating(model):
        vectors = model.encode(
            texts, prompt="", batch_size=batch_size, normalize_embeddings=True, show_progress_bar=False
        )
    if not np.isfinite(vectors).all():
        raise ValueError("Vectors of the teacher are NaN or infinite: load it in float32, or its weights are damaged.")
    return np.asarray(vectors, dtype=np.float32)


def _lower(*limits: int | None) -> int | None:
    """The lowest of the limits that are known."""
    return min((limit for limit in limits if limit is not None and limit < 10**9), default=None)
