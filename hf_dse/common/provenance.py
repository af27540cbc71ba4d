# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The provenance of results: machine, commit, models and data."""

import hashlib
import json
import os
import platform
import re
import subprocess
from dataclasses import dataclass
from pathlib import Path

import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.display import escape_markdown
from hf_dse.common.loading import HUB_ID, split_revision


@dataclass(frozen=True)
class Origin:
    """A model or dataset that the card names; as a string, a Markdown link if it is on the Hub."""

    name: str
    hub_id: str | None = None
    url: str | None = None
    task: str | None = None

    def __str__(self) -> str:
        name = escape_markdown(self.name)
        return name if self.url is None else f"[{name}]({self.url})"


def describe_source(name: str, prefix: str = "") -> Origin:
    """Describes a model or dataset for the card, by the last part of a local path."""
    local = Path(name).expanduser()
    if local.exists() or local.is_absolute() or name.startswith((".", "~")):
        # A folder in the cache of the Hub: models--owner--name/snapshots/commit.
        if cached := re.search(r"/(?:models|datasets)--([\w.-]+)/snapshots/\w+/?$", name):
            return describe_source(cached[1].replace("--", "/"), prefix)
        return Origin(Path(os.path.abspath(local)).name)
    hub_id, revision = split_revision(name)
    if "/" not in hub_id or not HUB_ID.fullmatch(hub_id):
        return Origin(name)
    url = f"https://huggingface.co/{prefix}{hub_id}" + ("" if revision == "main" else f"/tree/{revision}")
    return Origin(name, hub_id, url)


def describe_machine() -> str:
    """Describes the hardware that affects speed and rounding."""
    if torch.cuda.is_available():
        return torch.cuda.get_device_name()
    return f"{os.cpu_count()} {platform.machine()} CPU cores, {torch.backends.cpu.get_cpu_capability()}"


def code_commit() -> str | None:
    """Returns the commit of this code; `None` if it does not run from a repository."""
    command = ["git", "-C", str(Path(__file__).parent), "describe", "--always", "--dirty"]
    try:
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()
    except (OSError, subprocess.CalledProcessError):
        return None


def weight_bytes(tensor: torch.Tensor) -> memoryview:
    """Returns the bytes of a tensor, the same on each device."""
    return tensor.detach().cpu().contiguous().reshape(-1).view(torch.uint8).numpy().data


def acting_adapters(model: torch.nn.Module) -> list[tuple]:
    """Which adapters of PEFT change what the layers of a model compute, and by how much."""
    names = ("active_adapters", "disable_adapters", "merged_adapters", "scaling")
    layers = [(name, layer) for name, layer in model.named_modules() if hasattr(layer, "merged_adapters")]
    return [(name, *(str(getattr(layer, key, None)) for key in names)) for name, layer in layers]


def fingerprint(model: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> str:
    """Returns a SHA-256 of all that affects scores: weights, configuration, vocabulary and rules of the tokenizer."""
    digest = hashlib.sha256()
    for name, tensor in sorted(model.state_dict().items()):
        digest.update(f"{name} {tensor.dtype} {tuple(tensor.shape)}".encode())
        digest.update(weight_bytes(tensor))
    config = model.config.to_dict()
    # The origin of a model and the library that reads it do not affect its scores.
    inside = config.get("encoder")
    for part in (config, inside) if isinstance(inside, dict) else (config,):
        for name in ("_name_or_path", "transformers_version", "sentence_transformers", "architectures"):
            part.pop(name, None)
    digest.update(json.dumps(config, sort_keys=True, default=str).encode())
    backend = getattr(processing_class, "backend_tokenizer", None)
    rules = json.loads(backend.to_str()) if backend is not None else processing_class.get_vocab()
    for name in ("truncation", "padding"):
        rules.pop(name, None)
    digest.update(json.dumps(rules, sort_keys=True).encode())
    sides = processing_class.padding_side, processing_class.truncation_side
    digest.update(f"{type(processing_class).__name__} {sides} {acting_adapters(model)}".encode())
    return digest.hexdigest()
