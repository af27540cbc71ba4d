# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading any embedding model with sentence-transformers, and embedding texts with it."""

import hashlib
import math
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers.utils import logging

from hf_dse.common.devices import advise_bf16, choose_device
from hf_dse.common.hub import split_revision
from hf_dse.common.loading import load_config, reading
from hf_dse.common.provenance import fingerprint, weight_bytes
from hf_dse.data.tokenization import check_max_length
from hf_dse.retrieval.encoding import check_embeddings, list_texts


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)


def load_sentence_transformer(
    name_or_path: str | PathLike,
    *,
    trust_remote_code: bool = False,
    dtype: str = "float32",
    device: str | torch.device | None = None,
    max_length: int | None = None,
) -> "SentenceTransformer":
    """
    Loads a folder or a Hub id (`user/name` or `user/name@commit`) with sentence-transformers, which applies its
    pooling, prompts and lengths. Weights of transformers are read from safetensors only, and code of the checkpoint
    runs only with `trust_remote_code`; sentence-transformers checks that, and that no module is outside the folder.

    Args:
        name_or_path (`str` or `os.PathLike`):
            The folder or the Hub id.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str`, *optional*, defaults to `"float32"`):
            Data type of the weights; `"auto"` for that of the checkpoint.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to an accelerator if there is one.
        max_length (`int`, *optional*):
            Maximum number of tokens per text, in place of the lengths of the checkpoint.
    """
    try:
        from sentence_transformers import SentenceTransformer
    except ImportError as error:
        raise ImportError(
            "Models are loaded with sentence-transformers: `pip install hf-dse[st]` (version 6.2 or later)."
        ) from error

    name, revision = split_revision(name_or_path)
    config = load_config(name_or_path, trust_remote_code=trust_remote_code)
    kind = next(iter(config.architectures or []), "")
    if kind.endswith("ForSequenceClassification") and config.model_type != "dse":
        raise ValueError(
            f"{name_or_path} is a {kind}, which scores pairs of texts and has no embeddings: pass an encoder, and "
            "this model as the reranker (`--rerank`) or teacher."
        )
    chosen = choose_device(device)
    if dtype == "bfloat16":
        advise_bf16(chosen, "dtype=bfloat16")
    with reading(name_or_path):
        model = SentenceTransformer(
            name,
            revision=None if revision == "main" else revision,
            trust_remote_code=trust_remote_code,
            device=str(chosen),
            model_kwargs={"dtype": dtype, "use_safetensors": True},
        )
    tokenizer = model.tokenizer
    # sentence-transformers takes tokenizers as they are: without a mask it averages padding too, and after padding on
    # the left a model with learned positions reads other positions in each batch.
    tokenizer.padding_side = "right"
    if "attention_mask" not in tokenizer.model_input_names:
        tokenizer.model_input_names = [*tokenizer.model_input_names, "attention_mask"]
    if max_length is not None:
        if model.transformers_model is not None:
            check_max_length(max_length, model.transformers_model, tokenizer)
        model.max_seq_length = max_length
        for name in ("query_length", "document_length"):
            if getattr(model[0], name, None) is not None:
                setattr(model[0], name, max_length)
    return model.eval()


def embed(
    model: "SentenceTransformer",
    texts: Sequence[str],
    prompt_name: str | None = "document",
    *,
    batch_size: int = 32,
    normalize: bool = False,
    truncation: bool = True,
    show_progress: bool = True,
) -> np.ndarray:
    """
    `encode_query` or `encode_document` of sentence-transformers, or `encode` with another `prompt_name`, `None` for
    the default prompt of the model. sentence-transformers cuts long texts without a word: here a warning counts them,
    or without `truncation` an error, as well as blank texts and texts that the vocabulary does not know. Vectors that
    are NaN or infinite are an error.

    Returns:
        `np.ndarray` of shape `(num_texts, embedding_size)` and type float32, of unit length with `normalize`.
    """
    texts = list_texts(texts)
    warn_of_texts(model, texts, prompt_name, truncation)
    vectors = embed_silently(model, texts, prompt_name, batch_size=batch_size, show_progress=show_progress)
    return nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy() if normalize else vectors


def embed_silently(
    model: "SentenceTransformer",
    texts: list[str],
    prompt_name: str | None = "document",
    *,
    batch_size: int = 32,
    show_progress: bool = False,
) -> np.ndarray:
    """[`embed`] without the warnings, for parts of a list that was checked."""
    if not texts:
        return np.empty((0, model.get_embedding_dimension() or 0), dtype=np.float32)
    encoders: dict[str | None, Any] = {"query": model.encode_query, "document": model.encode_document}
    encode = encoders.get(prompt_name, partial(model.encode, prompt_name=prompt_name))
    vectors = np.asarray(encode(texts, batch_size=batch_size, show_progress_bar=show_progress), dtype=np.float32)
    check_embeddings(vectors)
    return vectors


def prompt_of(model: "SentenceTransformer", prompt_name: str | None) -> str:
    """The text that [`embed`] puts before each text."""
    names = ["document", "passage", "corpus"] if prompt_name == "document" else [prompt_name]
    found = next((name for name in names if name in model.prompts), model.default_prompt_name)
    return (model.prompts[found] or "") if found else ""


def length_of(model: "SentenceTransformer", prompt_name: str | None) -> int | None:
    """How many tokens of a text the model reads; `None` without a limit."""
    return getattr(model[0], f"{prompt_name}_length", None) or model.max_seq_length


def warn_of_texts(
    model: "SentenceTransformer", texts: list[str], prompt_name: str | None, truncation: bool = True
) -> None:
    """
    Counts the texts that are longer than the model reads, in a warning or, without truncation, an error, and the texts
    that its vocabulary does not know, whose vectors are all alike.
    """
    tokenizer, prompt = model.tokenizer, prompt_of(model, prompt_name)
    limit, special = length_of(model, prompt_name) or math.inf, tokenizer.num_special_tokens_to_add()
    # A token has at least one byte, and a vocabulary knows ASCII.
    room = limit - special - len(prompt.encode())
    suspects = [text for text in texts if not text.isascii() or len(text) > room]
    num_cut = num_unknown = 0
    for start in range(0, len(suspects), 1000):
        block = [prompt + text for text in suspects[start : start + 1000]]
        for ids in tokenizer(block, verbose=False)["input_ids"]:
            num_cut += len(ids) > limit
            num_unknown += 2 * ids.count(tokenizer.unk_token_id) >= max(1, len(ids) - special)
    counted = f"{num_cut} of {len(texts)} texts are longer than {limit} tokens"
    if num_cut and not truncation:
        raise ValueError(f"{counted}: split them, or truncate them.")
    if num_cut:
        logger.warning(
            f"{counted} and were truncated: raise the maximum length, or split them into chunks, if their ends matter."
        )
    if num_unknown:
        logger.warning(
            f"{num_unknown} of {len(texts)} texts are mostly unknown to the vocabulary of the model, so their vectors "
            "say nothing: use a model for their language."
        )


def similarity_of(model: "SentenceTransformer") -> str:
    """
    How embeddings of a model are compared, `"cosine"` or `"dot"`.

    Raises:
        `ValueError`: if the model was made for distances, by which [`nearest`] does not rank.
    """
    name = model.similarity_fn_name
    if name not in ("cosine", "dot"):
        raise ValueError(
            f"The model compares embeddings by {name!r}, and a search ranks by the cosine or the dot product: set "
            '`model.similarity_fn_name = "cosine"` if it may.'
        )
    return name


def fingerprint_of(model: "SentenceTransformer") -> str:
    """Identifies a model by its weights, configuration and modules, as SHA-256 in hexadecimal digits."""
    digest = hashlib.sha256()
    if model.transformers_model is not None:
        digest.update(fingerprint(model.transformers_model, model.tokenizer).encode())
    for module in list(model)[model.transformers_model is not None :]:
        digest.update(repr(module).encode())
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(weight_bytes(tensor))
    return digest.hexdigest()
