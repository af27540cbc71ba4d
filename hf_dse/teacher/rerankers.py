# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Cross-encoders of transformers and of sentence-transformers, read and run in the same way."""

import hashlib
import json
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeAlias

import torch
from torch import nn
from transformers import PreTrainedConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.devices import advise_bf16, choose_device
from hf_dse.common.hub import split_revision
from hf_dse.common.provenance import fingerprint
from hf_dse.data.tokenization import check_max_length, token_lengths
from hf_dse.inference.encoding import evaluating
from hf_dse.inference.loading import SETTINGS, check_modules, load_config, module_types, read_json, reading
from hf_dse.teacher.cache import Pair
from hf_dse.teacher.load import load_teacher


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder

    Teacher: TypeAlias = "str | Path | PreTrainedModel | CrossEncoder | Reranker"

# Text between other text may have a few more tokens than alone.
MARGIN_OF_TEMPLATES = 8


class Reranker:
    """
    A cross-encoder of transformers: a model with a classification head.

    Args:
        model (`PreTrainedModel`):
            The model.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
    """

    # Tokens of a pair that are neither of its texts nor special tokens of the tokenizer.
    template_tokens = 0

    def __init__(self, model: Any, processing_class: PreTrainedTokenizerBase):
        self.model, self.processing_class = model, processing_class

    @property
    def num_labels(self) -> int:
        return self.model.config.num_labels

    def fingerprint(self) -> str:
        """Identifies everything that affects scores, see [`~hf_dse.common.provenance.fingerprint`]."""
        return fingerprint(self.model, self.processing_class)

    def check_max_length(self, max_length: int | None) -> int | None:
        """Checks a limit in tokens of a pair; `None` is the own limit of the reranker, if it has one."""
        return check_max_length(max_length, self.model, self.processing_class, pair=True)

    def room(self, max_length: int) -> int:
        """The tokens that a query and a document can have together."""
        return max_length - self.processing_class.num_special_tokens_to_add(pair=True) - self.template_tokens

    def lengths(self, pairs: Sequence[Pair]) -> list[int]:
        """The number of tokens of each pair, without truncation."""
        sizes = token_lengths(self.processing_class, [first for first, _ in pairs], [second for _, second in pairs])
        return [size + self.template_tokens for size in sizes]

    @contextmanager
    def scoring(self, max_length: int | None) -> Iterator[None]:
        """Within this context the model is in evaluation mode and reads pairs of up to `max_length` tokens."""
        with evaluating(self.model), torch.inference_mode():
            yield

    def logits(self, pairs: Sequence[Pair], max_length: int | None, truncation: str) -> torch.Tensor:
        """The raw logits of a batch of pairs, of shape `(batch_size, num_labels)`."""
        encoded = self.processing_class(
            [first for first, _ in pairs],
            [second for _, second in pairs],
            truncation=truncation if max_length is not None else False,
            max_length=max_length,
            padding=True,
            return_tensors="pt",
            verbose=False,
        )
        return self.model(**encoded.to(self.model.device)).logits


class CrossEncoderReranker(Reranker):
    """
    A `CrossEncoder` of sentence-transformers with all that it consists of: its modules, its prompt and its template.

    Args:
        model (`sentence_transformers.CrossEncoder`):
            The model.
    """

    def __init__(self, model: "CrossEncoder"):
        super().__init__(model, model.tokenizer)
        self.prompt = model.prompts.get(model.default_prompt_name) if model.default_prompt_name is not None else None
        rendered = model.preprocess([("a", "a")], prompt=self.prompt)["input_ids"].shape[1]
        self.template_tokens = rendered - token_lengths(self.processing_class, ["a"], ["a"])[0]
        if "message" in model.modalities:
            self.template_tokens += MARGIN_OF_TEMPLATES

    @property
    def num_labels(self) -> int:
        return self.model.num_labels

    def fingerprint(self) -> str:
        # The text of a model names its modules and their settings.
        parts = [super().fingerprint(), str(self.model), self.prompt, self.processing_class.chat_template]
        return hashlib.sha256(json.dumps(parts).encode()).hexdigest()

    def check_max_length(self, max_length: int | None) -> int | None:
        return check_max_length(max_length, self.model.transformers_model, self.processing_class, pair=True)

    @contextmanager
    def scoring(self, max_length: int | None) -> Iterator[None]:
        before = self.model.max_seq_length
        with super().scoring(max_length):
            try:
                if max_length is not None:
                    self.model.max_seq_length = max_length
                yield
            finally:
                self.model.max_seq_length = before

    def logits(self, pairs: Sequence[Pair], max_length: int | None, truncation: str) -> torch.Tensor:
        scores = self.model.predict(
            list(pairs),
            prompt=self.prompt,
            batch_size=len(pairs),
            activation_fn=nn.Identity(),
            convert_to_tensor=True,
            show_progress_bar=False,
        )
        return scores.reshape(len(pairs), -1)


def load_reranker(
    teacher: "Teacher",
    processing_class: PreTrainedTokenizerBase | None = None,
    device: str | torch.device | None = None,
    *,
    revision: str = "main",
    trust_remote_code: bool = False,
    dtype: str | torch.dtype = "float32",
) -> Reranker:
    """
    Loads a cross-encoder of transformers or sentence-transformers, if it is not a loaded model already.

    Args:
        teacher (`str`, `PreTrainedModel` or `CrossEncoder`):
            A Hub id or folder of a cross-encoder that [`load_teacher`] loads, or of a `CrossEncoder` of any modules,
            such as a causal language model with a prompt and `LogitScore`; or a loaded model.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer; required with a loaded model of transformers.
        device (`str` or `torch.device`, *optional*):
            Device to run on. Defaults to the device of a loaded model, otherwise to an accelerator if available.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch, tag or commit on the Hub.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str` or `torch.dtype`, *optional*, defaults to `"float32"`):
            Data type of the weights.

    Returns:
        `Reranker`: the model with its tokenizer, which [`score_candidates`] and [`score_pairs`] take as a teacher.

    Raises:
        `ImportError`: if the folder needs sentence-transformers, which is not installed.
        `ValueError`: if the tokenizer of a loaded model is missing, or the checkpoint has no trained head.
    """
    if isinstance(teacher, Reranker):
        reranker = teacher
    elif isinstance(teacher, str | Path):
        name, device = str(teacher), choose_device(device)
        if dtype in ("bfloat16", torch.bfloat16):
            advise_bf16(device, f"dtype=bfloat16 of {name}")
        source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
        if needs_sentence_transformers(name, **source):
            reranker = CrossEncoderReranker(load_sentence_transformers("CrossEncoder", name, dtype, **source))
        else:
            model, tokenizer = load_teacher(name, dtype=dtype, **source)
            reranker = Reranker(model, processing_class or tokenizer)
    elif isinstance(teacher, PreTrainedModel):
        if processing_class is None:
            raise ValueError("A teacher given as a model needs its tokenizer: pass `processing_class`.")
        reranker = Reranker(teacher, processing_class)
    else:
        reranker = CrossEncoderReranker(teacher)
    if device is not None:
        reranker.model.to(device)
    return reranker


def teacher_config(name_or_path: str, *, revision: str = "main", trust_remote_code: bool = False) -> PreTrainedConfig:
    """The config of a cross-encoder, whose `num_labels` is the number of its logits."""
    source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    config = load_config(name_or_path, **source)
    is_classifier = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
    if not is_classifier and needs_sentence_transformers(name_or_path, **source):
        config.num_labels = 1
    return config


def needs_sentence_transformers(name_or_path: str, *, revision: str = "main", trust_remote_code: bool = False) -> bool:
    """
    Whether only sentence-transformers reads a folder as it was meant: a `CrossEncoder` that is more than a model with
    a classification head, or a causal language model.
    """
    settings = read_json(name_or_path, SETTINGS, revision)
    if settings.get("model_type") == "CrossEncoder":
        modules = module_types(name_or_path, revision)
        text = read_json(name_or_path, "sentence_bert_config.json", revision)
        has_template = "message" in text.get("modality_config", {}) or bool(text.get("processing_kwargs"))
        return len(modules) > 1 or settings.get("default_prompt_name") is not None or has_template
    config = load_config(name_or_path, revision=revision, trust_remote_code=trust_remote_code)
    return any(name.endswith("ForCausalLM") for name in config.architectures or [])


def load_sentence_transformers(kind: str, name: str, dtype: str | torch.dtype, **source: Any) -> Any:
    """A model of a class of sentence-transformers, `"CrossEncoder"` or `"SentenceTransformer"`, on the CPU."""
    try:
        import sentence_transformers
    except ImportError as error:
        raise ImportError(
            f"{name} is a model of sentence-transformers, which is not installed: `pip install hf-dse[st]`."
        ) from error
    # Before version 6, sentence-transformers trusts the code of each local folder.
    types = module_types(name, source["revision"])
    theirs = [kind for kind in types if not kind.startswith("sentence_transformers.")]
    if theirs and not source["trust_remote_code"]:
        raise ValueError(f"{name} has code of its own, {theirs[0]}: read it, then pass `trust_remote_code=True`.")
    check_modules(name, source["revision"])
    repository, source["revision"] = split_revision(name, source["revision"])
    weights = {"dtype": dtype, "use_safetensors": True}
    with reading(name):
        return getattr(sentence_transformers, kind)(repository, device="cpu", model_kwargs=weights, **source)
