# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading any model with its tokenizer, and with its classification head if it has one."""

import inspect
import json
from dataclasses import dataclass, field
from pathlib import Path
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
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, logging

from hf_dse import __version__
from hf_dse.common.devices import choose_device
from hf_dse.common.hub import pin, source_of, split_revision, weights_of
from hf_dse.modeling import DseModel


logger = logging.get_logger(__name__)

# The file of sentence-transformers' settings.
SETTINGS = "config_sentence_transformers.json"

# How sentence-transformers names the poolings, in the keys of 1_Pooling/config.json.
POOLINGS = {"mean": "mean_tokens", "cls": "cls_token", "max": "max_tokens", "lasttoken": "lasttoken"}


@dataclass
class ModelArguments:
    """Which model to run, and how."""

    model_name_or_path: str = field(
        metadata={"help": "Hub id (user/name, or user/name@revision) or folder of the model and its tokenizer."}
    )
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
    Loads a model and its tokenizer, with the classification head if the checkpoint has one. Of a sentence-transformers
    folder, its prompts become `config.prompts`, and its pooling and similarity those of [`encode`] and
    `similarity_of`.

    Args:
        args (`ModelArguments`):
            Which model to load, and how to run it.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model, on its device, and the tokenizer.

    Raises:
        `ValueError`: if the config names a classification head, but the checkpoint has no weights for it.
    """
    source = (args.model_name_or_path, args.model_revision, args.trust_remote_code)
    config = AutoConfig.from_pretrained(**source_of(*source))
    if config.model_type == "dse":
        has_head = stores_head(args.model_name_or_path, args.model_revision)
    else:
        has_head = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
    auto_class = AutoModelForSequenceClassification if has_head else AutoModel
    model, info = auto_class.from_pretrained(**weights_of(*source), dtype=args.dtype, output_loading_info=True)
    # A head that is missing in the checkpoint is randomly initialized, so its scores are noise.
    if has_head and info["missing_keys"]:
        raise ValueError(
            f"The checkpoint {args.model_name_or_path} has no {', '.join(sorted(info['missing_keys']))}: train it "
            "first, or remove the head from `architectures` in its config.json."
        )
    _apply_settings(model, args.model_name_or_path, args.model_revision)
    return model.to(choose_device(args.device)), AutoTokenizer.from_pretrained(**source_of(*source))


def _apply_settings(model: PreTrainedModel, name: str, revision: str) -> None:
    """Sets in the config of a loaded model what the files of sentence-transformers beside it say."""
    set_prompts(model, name, revision)
    if model.config.model_type == "dse":
        warn_of_other_code(model, name, revision)
        return
    if read_json(name, SETTINGS, revision).get("similarity_fn_name") in ("dot", "dot_product"):
        model.config.similarity = "dot"
    pooling = read_pooling(name, revision)
    if pooling in POOLINGS and pooling != "mean":
        model.config.sentence_pooling = pooling
    lost = [module for module in read_modules(name, revision) if module not in ("Transformer", "Pooling", "Normalize")]
    if pooling not in POOLINGS or lost:
        logger.warning(
            f"{name} is a sentence-transformers model with {' and '.join(lost) or f'the pooling {pooling}'}, which is "
            "not applied here: its embeddings differ from those of sentence-transformers."
        )


def set_prompts(model: PreTrainedModel, name_or_path: str, revision: str = "main") -> None:
    """Sets `config.prompts` of a loaded model to those that sentence-transformers reads, if it has settings for it."""
    prompts = read_prompts(name_or_path, revision)
    if prompts is not None:
        model.config.prompts = prompts or None


def read_prompts(name_or_path: str, revision: str = "main") -> dict[str, str] | None:
    """
    The prompts of a sentence-transformers checkpoint that are not empty; `None` if it has no settings. As in
    `encode_document`, a prompt for passages or for a corpus is that for documents if there is no other.
    """
    stored = read_json(name_or_path, SETTINGS, revision).get("prompts")
    if stored is None:
        return None
    document = next((stored[name] for name in ("document", "passage", "corpus") if name in stored), None)
    return {name: text for name, text in {**stored, "document": document}.items() if text}


def read_pooling(name_or_path: str, revision: str = "main") -> str:
    """The pooling of a sentence-transformers checkpoint, its settings if it is none of ours; mean for others."""
    pooling = read_json(name_or_path, "1_Pooling/config.json", revision)
    if not pooling:
        return "mean"
    chosen = [
        mode
        for mode, key in POOLINGS.items()
        if pooling.get(f"pooling_mode_{key}") or pooling.get("pooling_mode") == mode
    ]
    return chosen[0] if len(chosen) == 1 else str(pooling)


def read_modules(name_or_path: str, revision: str = "main") -> list[str]:
    """The names of the modules of a sentence-transformers checkpoint; none for other checkpoints."""
    return [module["type"].rpartition(".")[2] for module in read_json(name_or_path, "modules.json", revision) or []]


def warn_of_other_code(model: PreTrainedModel, name_or_path: str, revision: str = "main") -> None:
    """Names a DSE checkpoint with other code than that of the installed hf_dse, if it is the latter that runs."""
    ours = Path(inspect.getfile(DseModel)).parent
    if Path(inspect.getfile(type(model))).parent != ours:
        return
    different = [
        file.name
        for file in sorted(ours.glob("*_dse.py"))
        if read_file(name_or_path, file.name, revision) not in (None, file.read_text(encoding="utf-8"))
    ]
    if different:
        logger.warning(
            f"{pin(name_or_path, revision)} has its own code in {', '.join(different)}, and that of the installed "
            f"hf_dse {__version__} runs: if the results are not those of its card, install the version that the card "
            "names."
        )


def read_json(name_or_path: str, filename: str, revision: str = "main") -> Any:
    """The content of a json file of a checkpoint; `{}` if the file does not exist."""
    text = read_file(name_or_path, filename, revision)
    return {} if text is None else json.loads(text)


def read_file(name_or_path: str, filename: str, revision: str = "main") -> str | None:
    """The text of a file of a checkpoint; `None` if the file does not exist."""
    name, revision = split_revision(name_or_path, revision)
    path = cached_file(
        name,
        filename,
        revision=revision,
        _raise_exceptions_for_gated_repo=False,
        _raise_exceptions_for_missing_entries=False,
        _raise_exceptions_for_connection_errors=False,
    )
    return None if path is None else Path(path).read_text(encoding="utf-8")


def stores_head(name_or_path: str, revision: str = "main") -> bool:
    """Whether a DSE checkpoint has weights of a head for sentence pairs. Its config always names the encoder."""
    optional = {"_raise_exceptions_for_missing_entries": False, "_raise_exceptions_for_gated_repo": False}
    name, revision = split_revision(name_or_path, revision)
    index = cached_file(name, SAFE_WEIGHTS_INDEX_NAME, revision=revision, **optional)
    if index is not None:
        with open(index, encoding="utf-8") as file:
            names = set(json.load(file)["weight_map"])
    else:
        weights = cached_file(name, SAFE_WEIGHTS_NAME, revision=revision, **optional)
        if weights is None:
            return False
        with safe_open(weights, framework="pt") as tensors:
            names = set(tensors.keys())
    return any(name.startswith("similarity.") for name in names)
