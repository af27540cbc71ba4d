# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The names of models: `user/name@revision` pins a branch, a tag or a commit of the Hub."""

import os
import re
from pathlib import Path
from typing import Any


Name = str | os.PathLike

PINNED = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@((?!.*\.\.)[\w./-]+)")


def split_revision(name_or_path: Name) -> tuple[str, str]:
    """
    Splits `user/name@revision`, which every command takes as the name of a model, and returns the name and the
    revision, by default `"main"`. A commit pins code and weights.
    """
    name = os.fspath(name_or_path)
    match = PINNED.fullmatch(name)
    return (name, "main") if match is None or Path(name).exists() else (match[1], match[2])


def source_of(name_or_path: Name, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Returns the arguments of `from_pretrained` for a config or a tokenizer."""
    name, revision = split_revision(name_or_path)
    # Without `trust_remote_code` transformers would ask at the terminal whether to run code.
    return {"pretrained_model_name_or_path": name, "revision": revision, "trust_remote_code": trust_remote_code}


def weights_of(name_or_path: Name, *, trust_remote_code: bool = False) -> dict[str, Any]:
    """Returns the arguments of `from_pretrained` for a model, whose weights have to be safetensors."""
    return {**source_of(name_or_path, trust_remote_code=trust_remote_code), "use_safetensors": True}
