# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rerankers: a `CrossEncoder` of sentence-transformers, checked before its scores count, and its scores of texts."""

import copy
import math
from collections.abc import Callable, Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np
import torch
from torch import nn
from transformers.utils import logging
from transformers.utils.logging import tqdm

from hf_dse.common.cache import key_of, open_cache
from hf_dse.common.files import to_path
from hf_dse.common.loading import check_named, import_extra, load_config, reading, same_start, source_of
from hf_dse.data.options import PairTask
from hf_dse.data.tokenization import (
    add_mask,
    check_max_length,
    count_token_types,
    length_batches,
    token_lengths,
    warn_of_texts,
)
from hf_dse.retrieval.graph import choose_runtime, compute_by, dtype_of
from hf_dse.retrieval.sentence_transformer import fingerprint_of, prompt_of, with_shared_weights


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    Teacher: TypeAlias = str | PathLike | CrossEncoder | SentenceTransformer

logger = logging.get_logger(__name__)

Pair = tuple[str, str]
# A function of queries and their texts that returns a score of each text.
Reranker = Callable[[list[str], list[list[str]]], list[list[float]]]

# Documents that are tokenized together.
DOCUMENTS_AT_ONCE = 1000
# A text may have a few more tokens between the other text of a template than alone.
TEMPLATE_MARGIN = 8

# Pairs of different lengths, whose scores must not depend on the batch.
PROBES = [
    ("a", "b"),
    ("The cat sleeps.", "A cat is asleep."),
    (
        "How do planes fly?",
        "Air flows faster over a wing than under it, and the difference in pressure lifts the wing.",
    ),
]


def load_reranker(
    name_or_model: "str | PathLike | CrossEncoder",
    *,
    trust_remote_code: bool = False,
    dtype: str | torch.dtype = "auto",
    device: str | torch.device | None = None,
    backend: str = "torch",
    max_length: int | None = None,
) -> "CrossEncoder":
    """
    Loads a `CrossEncoder` of sentence-transformers, or checks a copy of a loaded one that shares its weights, before
    its scores count.

    A head that the checkpoint lacks, and that would be random, is an error. The attention mask is always read, and
    token types that the model lacks are dropped. A model whose scores depend on the padding of their batch is padded
    on the right, and refused if that does not help.

    Args:
        name_or_model (`str`, `Path` or `CrossEncoder`):
            A folder or Hub id (`user/name`, or `user/name@revision`) of a classifier, a `CrossEncoder` or a causal
            language model that answers "yes" or "no"; or a loaded model.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str` or `torch.dtype`, *optional*, defaults to `"auto"`):
            Data type of the weights: bfloat16 on a GPU or CPU that computes in it, which rounds scores to about 0.4 %,
            otherwise float32.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to that of a loaded model, otherwise to an accelerator if available.
        backend (`str`, *optional*, defaults to `"torch"`):
            What computes a model that is loaded here, as [`to_sentence_transformer`] takes it.
        max_length (`int`, *optional*):
            Maximum number of tokens per pair. Defaults to the model's own limit.

    Example:

    ```python
    >>> from hf_dse import load_reranker

    >>> # A folder or a Hub id.
    >>> reranker = load_reranker("teacher", max_length=64)
    >>> reranker.num_labels, reranker.max_seq_length
    (1, 64)
    ```
    """
    if isinstance(name_or_model, str | PathLike):
        model = _load(str(name_or_model), trust_remote_code, dtype, device, backend)
    elif not hasattr(name_or_model, "predict"):
        raise TypeError(
            f"The reranker is a {type(name_or_model).__name__}, and has to be a `CrossEncoder` of "
            "sentence-transformers: save the model and its tokenizer to a folder, and pass the folder."
        )
    else:
        given = {"trust_remote_code": trust_remote_code, "dtype": dtype != "auto", "backend": backend != "torch"}
        for name in filter(given.get, given):
            check_named(name, name_or_model)
        # The caller's model stays as it is.
        is_moved = device is not None and torch.device(device) != name_or_model.device
        model = copy.deepcopy(name_or_model).to(device) if is_moved else with_shared_weights(name_or_model)
    tokenizer = model.tokenizer
    add_mask(tokenizer)
    config: Any = model.config
    if count_token_types(config) < 2:
        tokenizer.model_input_names = [name for name in tokenizer.model_input_names if name != "token_type_ids"]
    model.max_seq_length = limit_of(model, max_length)
    _check_padding(model)
    return model


def _load(name: str, trust_remote_code: bool, dtype: Any, device: Any, backend: str) -> "CrossEncoder":
    chosen, kind = choose_runtime(backend, dtype, device)
    (library,) = import_extra("st", "sentence_transformers")
    load_config(name, trust_remote_code=trust_remote_code)
    source = source_of(name, trust_remote_code=trust_remote_code)
    repository = source.pop("pretrained_model_name_or_path")
    with reading(name), same_start():
        loading: dict[str, Any] = {"dtype": kind if backend == "torch" else "float32", "use_safetensors": True}
        model = library.CrossEncoder(repository, device=str(chosen), model_kwargs=loading, **source)
        # On the meta device no weights are read: sentence-transformers does not say which ones are missing.
        options: dict[str, Any] = {"use_safetensors": True, "device_map": "meta", "output_loading_info": True}
        _, info = type(model.transformers_model).from_pretrained(repository, **source, **options)
    # Sentence embeddings of a bare encoder do not use its pooler.
    is_bare = getattr(model[0], "transformer_task", None) == "feature-extraction"
    missing = sorted(key for key in info["missing_keys"] if not (is_bare and key.startswith("pooler.")))
    if missing:
        raise ValueError(
            f"{name} is not a trained cross-encoder: the checkpoint lacks {', '.join(missing)}, and scores would be "
            "random. Train the head first, with `CrossEncoderTrainer` of sentence-transformers, or name another model."
        )
    compute_by(model.eval(), backend, kind)
    return model


def _check_padding(model: "CrossEncoder") -> None:
    """Makes the scores independent of the batch, by padding on the right if needed, or raises a `ValueError`."""
    alone = torch.cat([raw_logits(model, [pair]) for pair in PROBES])
    # Rounding.
    tolerance = (0.01 if dtype_of(model) == "float32" else 0.05) * alone.abs().max()
    given = model.tokenizer.padding_side
    for side in (given, "right"):
        model.tokenizer.padding_side = side
        # A score that is NaN is an error when pairs are scored.
        if not ((raw_logits(model, PROBES) - alone).abs() > tolerance).any():
            return
    model.tokenizer.padding_side = given
    raise ValueError(
        "The reranker's score of a pair depends on the other pairs of its batch, because the model does not ignore "
        "padding: check `padding_side` and `pad_token` of its tokenizer, or use another one."
    )


def raw_logits(
    model: "CrossEncoder", pairs: Sequence[Pair], max_length: int | None = None, truncation: str = "longest_first"
) -> torch.Tensor:
    """The logits of a batch of pairs, `(batch_size, num_labels)`. The longer text is cut, or that of `truncation`."""
    text: dict[str, Any] = {"truncation": truncation} | ({} if max_length is None else {"max_length": max_length})
    scores = model.predict(
        list(pairs),
        batch_size=len(pairs),
        show_progress_bar=False,
        activation_fn=nn.Identity(),
        convert_to_tensor=True,
        processing_kwargs={"text": text},
    )
    return scores.reshape(len(pairs), -1).cpu().double()


def limit_of(model: "CrossEncoder", max_length: int | None) -> int:
    """`max_length`, which has to be in range, or the model's own limit, in tokens of a pair."""
    transformer: Any = model.transformers_model
    return check_max_length(max_length, transformer, model.tokenizer, pair=True) or 10**9


def overhead(model: "CrossEncoder") -> int:
    """The tokens of a pair that belong to neither of its texts: special tokens, a prompt and a template."""
    rendered = model.preprocess([("a", "a")], prompt=prompt_of(model, None) or None)["input_ids"].shape[1]
    return rendered - 2 * len(model.tokenizer("a", add_special_tokens=False)["input_ids"])


def check_labels(teacher: "CrossEncoder | SentenceTransformer", task: PairTask) -> None:
    """Raises a `ValueError` if the logits do not fit a task, or a teacher of scores is to teach classes."""
    num_logits = getattr(teacher, "num_labels", 1)
    allowed = {2: (1, 2)}.get(task.num_labels, (task.num_labels,))
    is_regression = not hasattr(teacher, "num_labels") or getattr(teacher.config, "problem_type", None) == "regression"
    if num_logits not in allowed or (is_regression and task.num_labels > 1):
        raise ValueError(
            f"The teacher has {num_logits} logits{' of scores, not of classes' if is_regression else ''}, but task "
            f"{task.name!r} has {task.num_labels} labels and needs {' or '.join(map(str, allowed))}: use a teacher "
            f"trained for this task, or pairs of the teacher's own (`num_labels={num_logits}`)."
        )


def rerank(
    reranker: "CrossEncoder",
    queries: Sequence[str],
    texts: Sequence[Sequence[str]],
    *,
    windows: str = "best",
    max_length: int | None = None,
    **options: Any,
) -> list[list[float]]:
    """
    The scores of the texts of each query, such as a search finds. They are NaN where a query leaves no room for a
    text, and it is an error if every query does so. `options` are of `score_texts`.
    """
    if reranker.num_labels not in (1, 2):
        raise ValueError(
            f"The reranker has {reranker.num_labels} logits, and needs 1, or 2 for irrelevant and relevant: use one "
            "that was trained for ranking."
        )
    limit = limit_of(reranker, max_length)
    parts = _windows(reranker, queries, texts, limit, windows)
    pairs = [(query, part) for query, lists in zip(queries, parts, strict=True) for read in lists for part in read]
    logits = score_texts(reranker, pairs, max_length=limit, truncation="only_second", **options)
    # The second of two logits is that of "relevant".
    scores = {pair: values[-1] - (values[0] if len(values) == 2 else 0.0) for pair, values in logits.items()}
    return [
        [max((scores[query, part] for part in read), default=math.nan) for read in lists]
        for query, lists in zip(queries, parts, strict=True)
    ]


def _windows(
    reranker: "CrossEncoder",
    queries: Sequence[str],
    texts: Sequence[Sequence[str]],
    max_length: int,
    windows: str,
) -> list[list[list[str]]]:
    """For each query, the windows of each of its documents that are scored; none where it leaves no room for them."""
    tokenizer = reranker.tokenizer
    if not tokenizer.is_fast:
        # Only fast tokenizers tell which characters a token stands for.
        if windows == "best":
            raise ValueError(
                f"windows='best' needs a fast tokenizer, and that of the reranker is a {type(tokenizer).__name__}: "
                "pass windows='first' (`--windows first`), or use another reranker."
            )
        return [[[document] for document in documents] for documents in texts]
    options: dict[str, Any] = {"add_special_tokens": False, "verbose": False}
    room = max_length - overhead(reranker) - (TEMPLATE_MARGIN if "message" in reranker.modalities else 0)
    # The tokens that each query leaves for a document.
    rooms = [room - len(ids) for ids in tokenizer(list(queries), **options)["input_ids"]] if queries else []
    too_long = [row for row, length in enumerate(rooms) if texts[row] and length < 1]
    if too_long:
        first = too_long[0]
        message = (
            f"{len(too_long)} of {len(queries)} queries leave no room for a document in the max_length={max_length} "
            f"of the reranker ({queries[first][:60]!r}, {room - rooms[first]} tokens): shorten them, or use a "
            "reranker that reads more"
        )
        if len(too_long) == len(queries):
            raise ValueError(f"{message}.")
        logger.warning(f"{message}. Their documents get no scores.")
    # Each document that is too long for a query is tokenized once: where its tokens begin and end.
    spans: dict[str, np.ndarray] = {}
    distinct = list(dict.fromkeys(text for documents in texts for text in documents))
    for start in range(0, len(distinct), DOCUMENTS_AT_ONCE):
        block = distinct[start : start + DOCUMENTS_AT_ONCE]
        found = tokenizer(block, return_offsets_mapping=True, **options)["offset_mapping"]
        spans.update({text: np.array(of) for text, of in zip(block, found, strict=True) if len(of) > min(rooms)})
    parts, num_cut = [], 0
    for length, documents in zip(rooms, texts, strict=True):
        parts.append([_cut(text, spans.get(text, ()), length, windows) for text in documents])
        num_cut += sum(len(spans.get(text, ())) > length > 0 for text in documents)
    if num_cut and windows == "first":
        logger.warning(
            f"{num_cut} candidates are longer than what max_length={max_length} leaves next to their query, and only "
            "their first window is scored: raise the reranker's max_length, or pass windows='best'."
        )
    return parts


def _cut(document: str, offsets: Sequence | np.ndarray, length: int, windows: str) -> list[str]:
    """The windows of a document, of `length` tokens each; the last ends with it."""
    if length < 1:
        return []
    last = len(offsets) - length
    if last <= 0:
        return [document]
    starts = [0] if windows == "first" else [*range(0, last, length), last]
    return [document[offsets[start][0] : offsets[start + length - 1][1]] for start in starts]


def score_texts(
    reranker: "CrossEncoder",
    pairs: Sequence[Pair],
    *,
    max_length: int,
    truncation: str = "longest_first",
    batch_size: int = 32,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
) -> dict[Pair, list[float]]:
    """The raw logits of pairs of texts, each once: kept ones, and others in batches, each of which is kept at once."""
    if "message" in reranker.modalities:
        # A chat template makes one text of both.
        truncation = "longest_first"
    path, settings = None, None
    if cache_dir is not None:
        path = to_path(cache_dir) / "scores.sqlite"
        settings = [fingerprint_of(reranker), prompt_of(reranker, None), max_length, truncation]
    keys = {pair: key_of([settings, pair]) for pair in pairs}
    with open_cache(path) as cache:
        pair_of = {key: pair for pair, key in keys.items()}
        scores = {pair_of[key]: np.frombuffer(value, "<f8").tolist() for key, value in cache.read(pair_of)}
        unknown = [pair for pair in keys if pair not in scores]
        added = overhead(reranker) - reranker.tokenizer.num_special_tokens_to_add(pair=True)
        texts = [first for first, _ in unknown], [second for _, second in unknown]
        warn_of_texts(reranker.tokenizer, [*texts[0], *texts[1]])
        sizes = [size + added for size in token_lengths(reranker.tokenizer, *texts)]
        num_cut = sum(size > max_length for size in sizes)
        if num_cut and truncation == "longest_first":
            logger.warning(
                f"{num_cut} of {len(unknown)} pairs are longer than {max_length} tokens and were truncated: raise the "
                "reranker's max_length, or use one with more positions, if the ends of the texts matter."
            )
        with tqdm(total=len(unknown), desc="Scoring", unit="pair", disable=not show_progress) as progress:
            for rows in length_batches([min(size, max_length) for size in sizes], batch_size):
                batch = [unknown[row] for row in rows]
                logits = raw_logits(reranker, batch, max_length, truncation)
                damaged = (~logits.isfinite().all(dim=-1)).nonzero()
                if len(damaged):
                    raise ValueError(
                        f"The reranker's score of the pair {batch[int(damaged[0])]!r} is NaN or infinite: its weights "
                        "are damaged, or its precision is too low (float16 overflows easily)."
                    )
                cache.write({keys[pair]: row.numpy().tobytes() for pair, row in zip(batch, logits, strict=True)})
                scores.update(zip(batch, logits.tolist(), strict=True))
                progress.update(len(batch))
    return scores
