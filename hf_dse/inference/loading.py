# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading any model with its tokenizer, and with its classification head if it has one."""

import json
from dataclasses import dataclass, field
from typing import Any

from safetensors import safe_open
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file

from hf_dse.common.devices import choose_device


@dataclass
class ModelArguments:
    """Which model to run, and how."""

    model_name_or_path: str = field(metadata={"help": "Hub id or folder of the model and its tokenizer."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "Data type of the weights; auto: that of the checkpoint.",
            "choices": ["auto", "float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum number of tokens per text. Default: the `model_max_length` of the tokenizer."},
    )
    batch_size: int = field(default=32, metadata={"help": "Texts per batch; fewer for texts longer than 512 tokens."})


def load_model(args: ModelArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """
    Loads a model and its tokenizer, with the classification head if the checkpoint has one.

    Args:
        args (`ModelArguments`):
            Which model to load, and how to run it.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model, on its device, and the tokenizer.

    Raises:
        `ValueError`: if the config names a classification head, but the checkpoint has no weights for it.
    """
    source: dict[str, Any] = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    config = AutoConfig.from_pretrained(args.model_name_or_path, **source)
    if config.model_type == "dse":
        has_head = stores_head(args.model_name_or_path, args.model_revision)
    else:
        has_head = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
    auto_class = AutoModelForSequenceClassification if has_head else AutoModel
    model, info = auto_class.from_pretrained(
        args.model_name_or_path, dtype=args.dtype, output_loading_info=True, **source
    )
    # A head that is missing in the checkpoint is randomly initialized, so its scores are noise.
    if has_head and info["missing_keys"]:
        raise ValueError(
            f"The checkpoint {args.model_name_or_path} has no {', '.join(sorted(info['missing_keys']))}: train it "
            "first, or remove the head from `architectures` in its config.json."
        )
    return model.to(choose_device(args.device)), AutoTokenizer.from_pretrained(args.model_name_or_path, **source)


def stores_head(name_or_path: str, revision: str = "main") -> bool:
    """Whether a DSE checkpoint has weights of a head for sentence pairs. Its config always names the encoder."""
    optional = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_gated_repo": False}
    index = cached_file(name_or_path, SAFE_WEIGHTS_INDEX_NAME, revision=revision, **optional)
    if index is not None:
        with open(index, encoding="utf-8") as file:
            names = set(json.load(file)["weight_map"])
    else:
        weights = cached_file(name_or_path, SAFE_WEIGHTS_NAME, revision=revision, **optional)
        if weights is None:
            return False
        with safe_open(weights, framework="pt") as tensors:
            names = set(tensors.keys())
    return any(name.startswith("similarity.") for name in names)
