# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Rerankers: a `CrossEncoder` of sentence-transformers, checked before its scores count."""

import copy
from collections.abc import Sequence
from os import PathLike
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn

from hf_dse.common.loading import choose_device, import_extra, load_config, reading, source_of
from hf_dse.data.options import PairTask
from hf_dse.data.tokenization import add_mask, check_max_length, count_token_types
from hf_dse.retrieval.sentence_transformer import prompt_of, with_shared_weights


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    Teacher: TypeAlias = str | PathLike | CrossEncoder | SentenceTransformer

Pair = tuple[str, str]

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
    dtype: str | torch.dtype = "float32",
    device: str | torch.device | None = None,
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
        dtype (`str` or `torch.dtype`, *optional*, defaults to `"float32"`):
            Data type of the weights. `"bfloat16"` rounds scores to about 0.4 %.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to that of a loaded model, otherwise to an accelerator if available.
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
        model = _load(str(name_or_model), trust_remote_code, dtype, choose_device(device))
    elif not hasattr(name_or_model, "predict"):
        raise TypeError(
            f"The reranker is a {type(name_or_model).__name__}, and has to be a `CrossEncoder` of "
            "sentence-transformers: save the model and its tokenizer to a folder, and pass the folder."
        )
    else:
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


def _load(name: str, trust_remote_code: bool, dtype: str | torch.dtype, device: torch.device) -> "CrossEncoder":
    (library,) = import_extra("st", "sentence_transformers")
    load_config(name, trust_remote_code=trust_remote_code)
    source = source_of(name, trust_remote_code=trust_remote_code)
    repository = source.pop("pretrained_model_name_or_path")
    with reading(name):
        loading: dict[str, Any] = {"dtype": dtype, "use_safetensors": True}
        model = library.CrossEncoder(repository, device=str(device), model_kwargs=loading, **source)
        # On the meta device no weights are read: sentence-transformers does not say which ones are missing.
        weights = source_of(name, trust_remote_code=trust_remote_code)
        kind = type(model.transformers_model)
        _, info = kind.from_pretrained(**weights, use_safetensors=True, device_map="meta", output_loading_info=True)
    # Sentence embeddings of a bare encoder do not use its pooler.
    is_bare = getattr(model[0], "transformer_task", None) == "feature-extraction"
    missing = sorted(key for key in info["missing_keys"] if not (is_bare and key.startswith("pooler.")))
    if missing:
        raise ValueError(
            f"{name} is not a trained cross-encoder: the checkpoint lacks {', '.join(missing)}, and scores would be "
            "random. Train the head first, with `CrossEncoderTrainer` of sentence-transformers, or name another model."
        )
    return model


def _check_padding(model: "CrossEncoder") -> None:
    """Makes the scores independent of the batch, by padding on the right if needed, or raises a `ValueError`."""
    alone = torch.cat([raw_logits(model, [pair]) for pair in PROBES])
    # Rounding.
    tolerance = (0.01 if next(model.parameters()).dtype == torch.float32 else 0.05) * alone.abs().max()
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
