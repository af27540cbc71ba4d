# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Any embedding model as a `SentenceTransformer`, from a folder, the Hub or memory, and embedding texts with it."""

import copy
import hashlib
import json
import math
from collections.abc import Iterable, Mapping, Sequence
from functools import partial
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.loading import check_named, import_extra, load_config, reading, same_start, source_of
from hf_dse.common.provenance import fingerprint, weight_bytes
from hf_dse.common.settings import DOCUMENT_PROMPTS, has_source, settings_of, warn_of_mean
from hf_dse.data.passages import split_text
from hf_dse.data.tables import check_texts, is_filled
from hf_dse.data.tokenization import TOKENS_PER_TEXT, add_mask, check_max_length, warn_of_texts
from hf_dse.retrieval.graph import choose_runtime, compute_by, graph_of


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)


def load_sentence_transformer(
    name_or_path: str | PathLike,
    *,
    trust_remote_code: bool = False,
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
    backend: str = "torch",
) -> "SentenceTransformer":
    """Loads a folder or a Hub id (`user/name@commit`)."""
    chosen, kind = choose_runtime(backend, dtype, device)
    (library,) = import_extra("st", "sentence_transformers")
    source = source_of(name_or_path, trust_remote_code=trust_remote_code)
    name = source.pop("pretrained_model_name_or_path")
    config = load_config(name_or_path, trust_remote_code=trust_remote_code)
    architecture = next(iter(config.architectures or []), "")
    if architecture.endswith("ForSequenceClassification") and config.model_type != "dse":
        raise ValueError(
            f"{name_or_path} is a {architecture}, which scores pairs of texts and has no embeddings: pass an "
            "encoder, and this model as the reranker (`--rerank`) or teacher."
        )
    loading = {"dtype": kind if backend == "torch" else "float32", "use_safetensors": True}
    with reading(name_or_path), same_start():
        model = library.SentenceTransformer(name, device=str(chosen), model_kwargs=loading, **source)
    model = with_right_padding(model).eval()
    compute_by(model, backend, kind)
    return model


def to_sentence_transformer(
    model: "SentenceTransformer | PreTrainedModel | str | PathLike",
    processing_class: PreTrainedTokenizerBase | None = None,
    *,
    max_length: int | None = None,
    **loading: Any,
) -> "SentenceTransformer":
    """
    Any embedding model as a `SentenceTransformer`. That of a loaded model shares its weights and nothing else, so
    whatever is done with it leaves the loaded model and its tokenizer as they are.

    Args:
        model (`SentenceTransformer`, `PreTrainedModel` or `str`):
            A folder or a Hub id (`user/name`, or `user/name@commit`); or a loaded model, such as a [`DseModel`] with
            or without its head, or any other encoder. Its embedding is the `pooler_output` of DSE models, and the mean
            of `last_hidden_state` without padding of all others. Its prompts and its lengths for queries and documents
            are those of its source, its longest text that of the tokenizer.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of a `PreTrainedModel`.
        max_length (`int`, *optional*):
            Maximum number of tokens of a text. Defaults to the lengths of the model or its tokenizer.
        loading (*optional*):
            `trust_remote_code`, `dtype`, `device` and `backend` of a model that is loaded. The `dtype` defaults to
            `"float32"`; `"auto"` is bfloat16 on a GPU or CPU that computes in it, otherwise float32. The `backend` is
            `"torch"`, or `"onnx"` (in float32) or `"openvino"`, which compute on the CPU by a graph of the model that
            is made once and kept in the cache of Hugging Face.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, to_sentence_transformer

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> student = to_sentence_transformer(convert_encoder(name), AutoTokenizer.from_pretrained(name))
    >>> student.encode(["A cat sleeps.", "Rain again."]).shape
    (2, 384)
    ```
    """
    is_loaded = isinstance(model, PreTrainedModel) or hasattr(model, "get_base_model")
    if processing_class is not None and not is_loaded:
        raise TypeError(f"`processing_class` is for a `PreTrainedModel`, and the model is a {type(model).__name__}.")
    for option in loading:
        check_named(option, model)
    if isinstance(model, str | PathLike):
        encoder = load_sentence_transformer(model, **loading)
    elif is_loaded:
        encoder = _of_encoder(model, processing_class, max_length)
    elif not hasattr(model, "encode_query") or model.transformers_model is None:
        raise TypeError(
            f"The model is a {type(model).__name__}, and has to be a `SentenceTransformer` with a transformer, a "
            "`PreTrainedModel` with its tokenizer, or a folder or a Hub id."
        )
    else:
        encoder = with_right_padding(with_shared_weights(model))
    if max_length is not None:
        limit_length(encoder, max_length)
    return encoder


def _of_encoder(
    model: Any, processing_class: PreTrainedTokenizerBase | None, max_length: int | None
) -> "SentenceTransformer":
    if processing_class is None:
        raise TypeError("A loaded `model` needs its tokenizer: pass `processing_class`.")
    (library,) = import_extra("st", "sentence_transformers")
    from hf_dse.retrieval.encoder import Encoder

    # An adapter of PEFT is inside of its model too.
    model = model.get_base_model() if hasattr(model, "get_base_model") else model
    settings, config = settings_of(model), model.config
    tokenizer = copy.deepcopy(processing_class)
    tokenizer.model_max_length = check_max_length(None, model, tokenizer) or tokenizer.model_max_length
    if config.model_type != "dse" and has_source(model.base_model):
        warn_of_mean(model.base_model.name_or_path, tokenizer, max_length)
    module = with_shared_weights(Encoder(model.base_model, tokenizer, **settings.lengths))
    prompts = {"query": "", "document": "", **settings.prompts}
    similarity = "dot" if getattr(config, "similarity", None) == "dot" else "cosine"
    options = {"prompts": prompts, "similarity_fn_name": similarity, "device": str(model.device)}
    return with_right_padding(library.SentenceTransformer(modules=[module], **options))


def with_shared_weights(module: nn.Module) -> Any:
    """A copy of a module with the weights of the original: another tokenizer, other settings and another mode."""
    shared = {id(tensor): tensor for tensor in (*module.parameters(), *module.buffers())}
    return copy.deepcopy(module, shared)


def with_right_padding(model: Any) -> Any:
    """
    sentence-transformers takes the tokenizer of a loaded model as it is: with padding on the left, a model with
    learned positions would read other positions in each batch.
    """
    model.tokenizer.padding_side = "right"
    add_mask(model.tokenizer)
    return model


def limit_length(model: "SentenceTransformer", max_length: int, *, queries: bool = True) -> None:
    """
    Sets how many tokens of a text a model reads; without `queries`, of these at most so many. Warns above the length
    that a student was trained with.
    """
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
        if (own := getattr(model[0], name, None)) is not None:
            is_kept = name == "query_length" and not queries
            setattr(model[0], name, min(own, max_length) if is_kept else max_length)


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
    """
    `encode` of sentence-transformers, checked: float32, `(num_texts, embedding_size)`. `warn` counts cut texts. The
    model is one of [`to_sentence_transformer`], used by one thread at a time.
    """
    texts = list_texts(texts)
    limit = length_of(model, prompt_name)
    if warn:
        if blank := [row for row, text in enumerate(texts) if not is_filled(text)]:
            logger.warning(
                f"{len(blank)} of {len(texts)} texts are blank, the first is texts[{blank[0]}]: their embeddings are "
                "meaningless."
            )
        warn_of_texts(model.tokenizer, texts, limit, prompt_of(model, prompt_name))
    vectors = np.empty((len(texts), model.get_embedding_dimension() or 0), dtype=np.float32)
    if not texts:
        return vectors
    encoders: dict[str | None, Any] = {"query": model.encode_query, "document": model.encode_document}
    encode = partial(model.encode, prompt_name=prompt_name)
    if prompt_name in encoders:
        # sentence-transformers adds an empty prompt for documents, and then overlooks one for passages or a corpus.
        encode = partial(encoders[prompt_name], prompt=prompt_of(model, prompt_name))
    # By letters, of which a token has about four: fewer long texts at once.
    sizes = [min(len(text) // 4, limit or math.inf) > TOKENS_PER_TEXT for text in texts]
    for is_long in dict.fromkeys(sizes):
        rows = [row for row, found in enumerate(sizes) if found == is_long]
        longest = min(max(len(texts[row]) for row in rows) // 4, limit or math.inf)
        size = max(1, int(batch_size * TOKENS_PER_TEXT / longest)) if is_long else batch_size
        vectors[rows] = encode([texts[row] for row in rows], batch_size=size, show_progress_bar=show_progress)
    check_finite("embeddings", vectors)
    return nn.functional.normalize(torch.from_numpy(vectors), dim=-1).numpy() if normalize else vectors


def prompt_of(model: "SentenceTransformer | CrossEncoder", prompt_name: str | None) -> str:
    """The text that [`embed`] puts before each text; without a name the prompt that a reranker reads."""
    names = DOCUMENT_PROMPTS if prompt_name == "document" else (prompt_name,)
    known = [name for name in names if name in model.prompts]
    found = next((name for name in known if model.prompts[name]), next(iter(known), model.default_prompt_name))
    return (model.prompts[found] or "") if found else ""


def length_of(model: "SentenceTransformer", prompt_name: str | None) -> int | None:
    """How many tokens of a text the model reads; `None` without a limit."""
    length = getattr(model[0], f"{prompt_name}_length", None) or model.max_seq_length
    return None if length == math.inf else length


def split_texts(model: "SentenceTransformer | None", texts: Sequence[str], chunk_size: int) -> list[list[str]]:
    """
    The passages of each text, of at most `chunk_size` tokens without special tokens and the prompt, and of at most
    what the model reads; 0 is whole texts. A blank text has no passages.
    """
    if not chunk_size or model is None:
        return [[text] if is_filled(text) else [] for text in texts]
    room = room_of(model)
    if room < 1:
        limit = length_of(model, "document")
        raise ValueError(f"There is no room for passages: the model reads {limit} tokens, and its prompt takes all.")
    size, beside = int(min(chunk_size, room)), int(min(chunk_size, room - title_room(model, chunk_size)))
    parts: list[list[str]] = []
    for text in texts:
        parts.append(split_text(text, model.tokenizer, size) if is_filled(text) else [])
        if len(parts[-1]) > 1 and beside < size:
            # Room for the title before each passage.
            parts[-1] = split_text(text, model.tokenizer, beside)
    return parts


def room_of(model: "SentenceTransformer") -> float:
    """The tokens of a document that a model reads beside special tokens and the prompt."""
    before = len(model.tokenizer(prompt_of(model, "document"), verbose=False)["input_ids"])
    return (length_of(model, "document") or math.inf) - before


def title_room(model: "SentenceTransformer", chunk_size: int) -> int:
    """
    The bytes, each at most a token, that a title with its line break may have before passages: what the model reads
    beside them, or else a quarter of what it reads, up to 32.
    """
    room = room_of(model)
    return int(min(chunk_size, max(room - chunk_size, min(32, room // 4))))


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
    if (graph := graph_of(model)) is not None:
        settings.append(str(graph))
    digest = hashlib.sha256(json.dumps(settings).encode())
    transformer: Any = model.transformers_model
    digest.update(fingerprint(transformer, model.tokenizer).encode())
    for module in list(model)[1:]:
        digest.update(repr(module).encode())
        for name, tensor in sorted(module.state_dict().items()):
            digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
            digest.update(weight_bytes(tensor))
    return digest.hexdigest()


def list_texts(texts: Iterable[str]) -> list[str]:
    """Texts as a list. One text or a table, which are iterable too, and values that are no texts are an error."""
    if isinstance(texts, str | Mapping) or hasattr(texts, "columns"):
        raise TypeError(f"`texts` has to be a list of strings, got {type(texts).__name__}.")
    texts = list(texts)
    check_texts(texts, "The texts", "the text")
    return texts


def check_finite(name: str, values: np.ndarray) -> None:
    """Raises a `ValueError` if a row of embeddings, predictions or labels is NaN or infinite."""
    wrong = np.flatnonzero(~np.isfinite(values).reshape(len(values), -1).all(axis=1))
    if wrong.size:
        raise ValueError(
            f"{wrong.size} of {len(values)} {name} are NaN or infinite, the first at row {wrong[0]}: float16 "
            "overflows easily, a learning rate may be too high, or weights may be damaged."
        )
