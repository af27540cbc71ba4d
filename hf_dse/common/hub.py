# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Where a model is loaded from: its name, the revision it is pinned to, and whether its own code may run."""

import os
import re
from pathlib import Path
from typing import Any


Name = str | os.PathLike

PINNED = re.compile(r"([\w.-]+(?:/[\w.-]+)?)@((?!.*\.\.)[\w./-]+)")


def split_revision(name_or_path: Name, revision: str = "main") -> tuple[str, str]:
    """
    Splits `user/name@revision`, which any command takes as the name of a model: with a branch, a tag, or a commit,
    whose code and weights cannot change.

    Raises:
        `ValueError`: if the name and `revision` differ.
    """
    name = os.fspath(name_or_path)
    match = PINNED.fullmatch(name)
    if match is None or Path(name).exists():
        return name, revision
    if revision not in ("main", match[2]):
        raise ValueError(f"{name} has a revision, and {revision!r} is another one: name one of them.")
    return match[1], match[2]


def pin(name_or_path: Name, revision: str = "main") -> str:
    """The name of a model with its revision, if it is not the default one."""
    name, revision = split_revision(name_or_path, revision)
    return name if revision == "main" or Path(name).exists() else f"{name}@{revision}"


def source_of(name_or_path: Name, revision: str = "main", trust_remote_code: bool = False) -> dict[str, Any]:
    """The arguments of `from_pretrained` for a config or a tokenizer."""
    name, revision = split_revision(name_or_path, revision)
    # Without the last one transformers would ask at the terminal whether to run code.
    return {"pretrained_model_name_or_path": name, "revision": revision, "trust_remote_code": trust_remote_code}


def weights_of(name_or_path: Name, revision: str = "main", trust_remote_code: bool = False) -> dict[str, Any]:
    """The arguments of `from_pretrained` for a model, whose weights may be nothing but safetensors."""
    return {**source_of(name_or_path, revision, trust_remote_code), "use_safetensors": True}
