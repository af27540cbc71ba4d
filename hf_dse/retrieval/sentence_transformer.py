# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading any embedding model with sentence-transformers, and embedding texts and their chunks with it."""

import hashlib
import json
import math
from collections.abc import Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers.utils import logging

from hf_dse.common.loading import choose_device, import_extra, load_config, reading, source_of
from hf_dse.common.provenance import fingerprint, weight_bytes
from hf_dse.data.passages import split_text
from hf_dse.data.tables import is_filled
from hf_dse.data.tokenization import add_mask, check_max_length, warn_of_texts
from hf_dse.retrieval.arguments import CHUNK_SIZE
from hf_dse.retrieval.encoding import check_finite, list_texts, warn_of_blank


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)


def load_sentence_transformer(
    name_or_path: str | PathLike,
    *,
    trust_remote_code: bool = False,
    dtype: str = "float32",
    device: str | torch.device | None = None,
    max_length: int | None = None,
) -> "SentenceTransformer":
    """Loads a folder or a Hub id (`user/name@commit`). `max_length` replaces its lengths in tokens."""
    (library,) = import_extra("st", "sentence_transformers")
    source = source_of(name_or_path, trust_remote_code=trust_remote_code)
    name = source.pop("pretrained_model_name_or_path")
    config = load_config(name_or_path, trust_remote_code=trust_remote_code)
    kind = next(iter(config.architectures or []), "")
    if kind.endswith("ForSequenceClassification") and config.model_type != "dse":
        raise ValueError(
            f"{name_or_path} is a {kind}, which scores pairs of texts and has no embeddings: pass an encoder, and "
            "this model as the reranker (`--rerank`) or teacher."
        )
    chosen = choose_device(device)
    with reading(name_or_path):
        loading = {"dtype": dtype, "use_safetensors": True}
        model = library.SentenceTransformer(name, device=str(chosen), model_kwargs=loading, **source)
    if max_length is not None:
        limit_length(model, max_length)
    return model.eval()


def to_sentence_transformer(
    model: "SentenceTransformer | str | PathLike", *, max_length: int | None = None, **loading: Any
) -> "SentenceTransformer":
    """A model itself, or that of a folder or a Hub id, with the options of [`load_sentence_transformer`]."""
    if isinstance(model, str | PathLike):
        return load_sentence_transformer(model, max_length=max_length, **loading)
    if not hasattr(model, "encode_query") or model.transformers_model is None:
        raise TypeError(
            f"The model is a {type(model).__name__}, and has to be a `SentenceTransformer` with a transformer, or a "
            "folder or a Hub id: `export` writes a folder of a model with its tokenizer."
        )
    if max_length is not None:
        raise ValueError(f"max_length={max_length} is for a model that is named: set its `max_seq_length` instead.")
    return model


def limit_length(model: "SentenceTransformer", max_length: int) -> None:
    """Sets how many tokens of a text a model reads. Warns above the length that a student was trained with."""
    transformer: Any = model.transformers_model
    check_max_length(max_length, transformer, model.tokenizer)
    before, is_dse = length_of(model, "document"), transformer.config.model_type == "dse"
    if is_dse and before is not None and max_length > before:
        logger.warning(
            f"max_length={max_length} is above the {before} tokens that this student is made for: what it reads "
            "beyond them it was not trained on, and its vectors may become worse. Measure both lengths."
        )
    model.max_seq_length = max_length
    for name in ("query_length", "document_length"):
        if getattr(model[0], name, None) is not None:
            setattr(model[0], name, max_length)


def embed(
    model: "SentenceTransformer",
    texts: Sequence[str],
    prompt_name: str | None = "document",
    *,
    batch_size: int = 32,
    normalize: bool = False,
    warn: bool = True,
    show_progress: bool = True,
) -> np.ndarray:
    """`encode` of sentence-transformers, checked: float32, `(num_texts, embedding_size)`. `warn` counts cut texts."""
    texts = list_texts(texts)
    # sentence-transformers takes the tokenizer of a loaded model as it is: with padding on the left, a model with
    # learned positions would read other positions in each batch.
    model.tokenizer.padding_side = "right"
    add_mask(model.tokenizer)
    if warn:
        warn_of_blank(texts)
        warn_of_texts(model.tokenizer, texts, length_of(model, prompt_name), prompt_of(model, prompt_name))
    if not texts:
        return np.empty((0, model.get_embedding_dimension() or 0), dtype=np.float32)
    encoders: dict[str | None, Any] = {"query": model.encode_query, "document": model.encode_document}
    encode = partial(model.encode, prompt_name=prompt_name)
    if prompt_name in encoders:
        # sentence-transformers adds an empty prompt for documents, and then overlooks one for passages or a corpus.
        encode = partial(encoders[prompt_name], prompt=prompt_of(model, prompt_name))
    vectors = np.asarray(encode(texts, batch_size=batch_size, show_progress_bar=show_progress), dtype=np.float32)
    check_finite("embeddings", vectors)
    return nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy() if normalize else vectors


def prompt_of(model: "SentenceTransformer | CrossEncoder", prompt_name: str | None) -> str:
    """The text that [`embed`] puts before each text; without a name the prompt that a reranker reads."""
    names = ["document", "passage", "corpus"] if prompt_name == "document" else [prompt_name]
    known = [name for name in names if name in model.prompts]
    found = next((name for name in known if model.prompts[name]), next(iter(known), model.default_prompt_name))
    return (model.prompts[found] or "") if found else ""


def length_of(model: "SentenceTransformer", prompt_name: str | None) -> int | None:
    """How many tokens of a text the model reads; `None` without a limit."""
    length = getattr(model[0], f"{prompt_name}_length", None) or model.max_seq_length
    return None if length == math.inf else length


def fit_chunk_size(model: "SentenceTransformer", chunk_size: int | None) -> int:
    """The tokens of a chunk, without special tokens and the prompt: at most what the model reads. 0 is whole texts."""
    size, limit = CHUNK_SIZE if chunk_size is None else chunk_size, length_of(model, "document")
    if not size or limit is None:
        return size
    room = limit - len(model.tokenizer(prompt_of(model, "document"), verbose=False)["input_ids"])
    if room < 1:
        raise ValueError(f"There is no room for chunks: the model reads {limit} tokens, and its prompt takes all.")
    return min(size, room)


def split_texts(model: "SentenceTransformer", texts: Sequence[str], chunk_size: int | None) -> list[list[str]]:
    """The chunks of each text, see [`fit_chunk_size`]. A blank text has no chunks."""
    size, tokenizer = fit_chunk_size(model, chunk_size), model.tokenizer
    parts = ((split_text(text, tokenizer, size) if size else [text]) if is_filled(text) else [] for text in texts)
    return list(parts)


def similarity_of(model: "SentenceTransformer") -> str:
    """How embeddings of a model are compared, `"cosine"` or `"dot"`; [`nearest`] does not rank by distances."""
    name = model.similarity_fn_name
    if name not in ("cosine", "dot"):
        raise ValueError(
            f"The model compares embeddings by {name!r}, and a search ranks by the cosine or the dot product: set "
            '`model.similarity_fn_name = "cosine"` if it may.'
        )
    return name


def fingerprint_of(model: "SentenceTransformer | CrossEncoder") -> str:
    """A SHA-256 of a model's weights, configuration, tokenizer, template, modules and dimensions, without prompts."""
    settings = [getattr(model, "truncate_dim", None), model.tokenizer.chat_template]
    digest = hashlib.sha256(json.dumps(settings).encode())
    transformer: Any = model.transformers_model
    digest.update(fingerprint(transformer, model.tokenizer).encode())
    for module in list(model)[1:]:
        digest.update(repr(module).encode())
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(weight_bytes(tensor))
    return digest.hexdigest()
