# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading packages, configurations, tokenizers and encoders, with clear errors; the choice of a device."""

import json
import os
import re
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from importlib import import_module
from pathlib import Path
from typing import Any

import torch
from safetensors import safe_open
from tokenizers import normalizers
from transformers import AutoConfig, AutoTokenizer, PreTrainedConfig, PreTrainedTokenizerBase, PreTrainedTokenizerFast
from transformers.utils import SAFE_WEIGHTS_INDEX_NAME, SAFE_WEIGHTS_NAME, cached_file, logging

from hf_dse.common.display import one_line


logger = logging.get_logger(__name__)

# How sentence-transformers reads texts with a checkpoint.
LENGTHS = "sentence_bert_config.json"
# Options of models that are loaded.
LOADING = ("trust_remote_code", "dtype", "device", "backend")
# The folder of the model in the folder of a training.
MODEL_FOLDER = "model"
Name = str | os.PathLike
# `user/name@revision`, with a branch, a tag or a commit of the Hub.
HUB_ID = re.compile(r"\w[\w.-]*(/\w[\w.-]*)?")
PINNED = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@((?!.*\.\.)[\w./-]+)")


def import_extra(extra: str, *modules: str) -> list[Any]:
    """Imports packages that an extra of hf-dse installs; an `ImportError` names it."""
    try:
        return [import_module(name) for name in modules]
    except ImportError as error:
        raise ImportError(f"{error}: `pip install hf-dse[{extra}]`.") from error


def split_revision(name_or_path: Name) -> tuple[str, str]:
    """
    Splits `user/name@revision`, which every command takes, into name and revision, by default `"main"`. The folder of
    a training stands for the model in it.
    """
    name = os.fspath(name_or_path)
    inside = Path(name, MODEL_FOLDER)
    if (inside / "config.json").is_file() and not Path(name, "config.json").exists():
        return str(inside), "main"
    match = PINNED.fullmatch(name)
    return (name, "main") if match is None or Path(name).exists() else (match[1], match[2])


def source_of(name_or_path: Name, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Returns the arguments of `from_pretrained` for a config or a tokenizer."""
    name, revision = split_revision(name_or_path)
    # Without `trust_remote_code` transformers would ask at the terminal whether to run code.
    return {"pretrained_model_name_or_path": name, "revision": revision, "trust_remote_code": trust_remote_code}


def choose_device(device: str | torch.device | None = None) -> torch.device:
    """Returns the given device; without one, an accelerator if available, otherwise the CPU."""
    accelerator = torch.accelerator.current_accelerator() if torch.accelerator.is_available() else None
    default = accelerator or torch.device("cpu")
    if device is None:
        return default
    try:
        torch.zeros(1, device=device)
    # torch raises an AssertionError where it was built without CUDA.
    except (RuntimeError, AssertionError) as error:
        raise ValueError(
            f"device={str(device)!r} cannot be used: {str(error).splitlines()[0]}. The device of this machine is "
            f"{default}: leave the option out to use it."
        ) from error
    return torch.device(device)


def computes_bfloat16(device: torch.device) -> bool:
    """Whether a device computes in bfloat16, such as a CPU with AMX or AVX-512 bf16, and does not only imitate it."""
    if device.type == "cuda":
        return torch.cuda.is_bf16_supported(including_emulation=False)
    units = ("_is_amx_tile_supported", "_is_avx512_bf16_supported")
    has_unit = device.type == "cpu" and any(getattr(torch.cpu, name, bool)() for name in units)
    # oneDNN does, and can be told not to.
    return has_unit and torch.backends.mkldnn.is_available() and torch.ops.mkldnn._is_mkldnn_bf16_supported()


def choose_dtype(dtype: str | torch.dtype, device: torch.device) -> str | torch.dtype:
    """The given data type of weights; for `"auto"` bfloat16 where the device computes in it, otherwise float32."""
    if dtype != "auto":
        return dtype
    if not computes_bfloat16(device):
        return "float32"
    logger.info_once(
        f"Models compute in bfloat16, which is faster on this {device.type.upper()}; `--dtype float32`, of a teacher "
        "`--teacher_dtype float32`, is exact."
    )
    return "bfloat16"


@contextmanager
def reading(name_or_path: Name) -> Iterator[None]:
    """Makes the errors of damaged files a `ValueError` that names the checkpoint."""
    try:
        yield
    except (ImportError, MemoryError, OSError):
        raise
    except Exception as error:
        raise ValueError(
            f"{name_or_path} cannot be loaded: its files are damaged or do not fit together: {error!r}"
        ) from error


@contextmanager
def same_start() -> Iterator[None]:
    """Weights that a checkpoint lacks, such as a pooler that nothing reads, get the same values in each load."""
    with torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(0)
        yield


def check_named(option: str, *models: Any) -> None:
    """Raises a `TypeError` for an option of loading where no model is named."""
    if not any(isinstance(model, str | os.PathLike) for model in models):
        raise TypeError(f"`{option}` is for a model that is named, to load it, and none is named: leave it out.")


def named(model: Any, options: Mapping[str, Any]) -> dict[str, Any]:
    """The options of loading for a model that is named, and none for one that is loaded."""
    return dict(options) if isinstance(model, str | os.PathLike) else {}


def load_config(name_or_path: Name, *, trust_remote_code: bool = False) -> PreTrainedConfig:
    """`AutoConfig.from_pretrained` with errors that name the checkpoint."""
    name = split_revision(name_or_path)[0]
    if not Path(name).exists() and HUB_ID.fullmatch(name) is None:
        raise FileNotFoundError(f"There is no folder {name}: pass a folder of a model, or a Hub id, `user/name`.")
    if Path(name_or_path).is_dir() and not read_json(name_or_path, "config.json"):
        if adapter := read_json(name_or_path, "adapter_config.json"):
            base = adapter.get("base_model_name_or_path") or "a model that it does not name"
            raise ValueError(
                f"{name_or_path} is a PEFT adapter for {base}: merge it first with `merge_and_unload` of its "
                "`PeftModel`, and save the model that it returns."
            )
    modules = read_json(name_or_path, "modules.json", kind=list)
    if modules and modules[0]["type"].endswith("StaticEmbedding"):
        raise ValueError(f"{name_or_path} is a static model, without a transformer: name one with an encoder.")
    try:
        with reading(name_or_path):
            return AutoConfig.from_pretrained(**source_of(name_or_path, trust_remote_code=trust_remote_code))
    except OSError as error:
        if Path(name).exists():
            raise
        raise OSError(f"There is no folder {name}, and no such model can be had from the Hub: {error}") from error


def load_tokenizer(tokenizer: PreTrainedTokenizerBase | Name) -> PreTrainedTokenizerBase:
    """
    The tokenizer itself, or the one of a folder or a Hub id. It makes texts lowercase where the settings of
    sentence-transformers say so (`do_lower_case`).
    """
    if isinstance(tokenizer, PreTrainedTokenizerBase):
        return tokenizer
    with reading(tokenizer):
        loaded = AutoTokenizer.from_pretrained(**source_of(tokenizer))
    if not (loaded.is_fast and read_json(str(tokenizer), LENGTHS).get("do_lower_case")):
        return loaded
    backend = loaded.backend_tokenizer
    steps = [] if backend.normalizer is None else [backend.normalizer]
    backend.normalizer = normalizers.Sequence([normalizers.Lowercase(), *steps])
    # Other classes make their normalizer anew when a saved tokenizer is loaded.
    settings = {**loaded.init_kwargs, "model_input_names": loaded.model_input_names, "tokenizer_object": backend}
    return PreTrainedTokenizerFast(**settings)


def load_encoder(auto_class: Any, name_or_path: Name, **options: Any) -> Any:
    """
    `from_pretrained` of a class, from safetensors only. A checkpoint that lacks weights other than those of the
    pooler, which is not used, is a `ValueError`.
    """
    load_config(name_or_path)
    logger.info(f"Loading {one_line(name_or_path)}")
    options |= source_of(name_or_path)
    with reading(name_or_path):
        model, info = auto_class.from_pretrained(output_loading_info=True, use_safetensors=True, **options)
    lost = sorted(name for name in info["missing_keys"] if not name.startswith("pooler."))
    if lost:
        raise ValueError(
            f"The checkpoint {name_or_path} lacks {len(lost)} weights of its architecture, such as `{lost[0]}`: they "
            "would be random. Use a complete checkpoint."
        )
    return model


def loading_options(function: str, options: Mapping[str, Any], *models: Any) -> dict[str, Any]:
    """
    The options of loading models whose vectors or scores are only ranked and learned, by default in the fastest data
    type. A `TypeError` for any other option, and where no model is named.
    """
    for name in options:
        if name not in LOADING:
            raise TypeError(f"{function}() has no option {name!r}; those of loading are {', '.join(LOADING)}.")
        check_named(name, *models)
    return {"dtype": "auto", **options}


def read_file(name_or_path: Name, filename: str) -> str | None:
    """The text of a file of a checkpoint; `None` if the file does not exist."""
    path = _find_file(name_or_path, filename)
    return None if path is None else Path(path).read_text(encoding="utf-8-sig")


def read_json(name_or_path: Name, filename: str, kind: type = dict) -> Any:
    """The object (or a list, as `kind`) in a json file of a checkpoint; an empty one if the file does not exist."""
    try:
        return json.loads(read_file(name_or_path, filename) or json.dumps(kind()))
    # A file that is not UTF-8 raises a ValueError too.
    except (ValueError, RecursionError) as error:
        raise ValueError(f"{name_or_path}: {filename} is not valid JSON: {error}.") from error


def stored_dtypes(name_or_path: Name) -> dict[str, str]:
    """The types of the weights in a checkpoint, such as "F32", although they may be loaded in another."""
    shards = read_json(name_or_path, SAFE_WEIGHTS_INDEX_NAME).get("weight_map", {})
    kinds: dict[str, str] = {}
    for file in set(shards.values()) or {SAFE_WEIGHTS_NAME}:
        if (weights := _find_file(name_or_path, file)) is not None:
            with reading(name_or_path), safe_open(weights, framework="pt") as tensors:
                kinds |= {name: tensors.get_slice(name).get_dtype() for name in tensors.keys()}
    return kinds


def _find_file(name_or_path: Name, filename: str) -> str | None:
    name, revision = split_revision(name_or_path)
    kinds = ("gated_repo", "missing_entries", "connection_errors")
    return cached_file(name, filename, revision=revision, **{f"_raise_exceptions_for_{kind}": False for kind in kinds})
