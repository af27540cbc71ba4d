# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The code of a checkpoint beside the code of this package, which is used in its place."""

import functools
import os
from pathlib import Path
from typing import Any

from transformers.utils import cached_file, logging

from hf_dse import modeling


logger = logging.get_logger(__name__)

# The cache of the Hub alone is asked. What is not there has not been read by anything.
FROM_CACHE: dict[str, Any] = {
    "local_files_only": True,
    **{f"_raise_exceptions_for_{kind}": False for kind in ("gated_repo", "missing_entries", "connection_errors")},
}


def other_code(name_or_path: str | os.PathLike, **source: Any) -> list[str]:
    """
    The names of a checkpoint's Python files whose lines differ from those of this package. A file that is missing, or
    not in the cache of the Hub, does not differ. `source` is `revision`, `cache_dir` and `subfolder`.
    """
    found = []
    for own in sorted(Path(modeling.__file__).parent.glob("*_dse.py")):
        path = cached_file(name_or_path, own.name, **source, **FROM_CACHE)
        if path is not None and Path(path).read_bytes().splitlines() != own.read_bytes().splitlines():
            found.append(own.name)
    return found


def warn_of_other_code(model_class: Any) -> None:
    """Makes `from_pretrained` of a model class of this package name checkpoints that have other code."""
    load = model_class.from_pretrained.__func__

    @functools.wraps(load)
    def from_pretrained(cls: Any, pretrained_model_name_or_path: Any, *args: Any, **options: Any) -> Any:
        if pretrained_model_name_or_path is not None:
            source = {key: options[key] for key in ("revision", "cache_dir", "subfolder") if options.get(key)}
            if files := other_code(pretrained_model_name_or_path, **source):
                logger.warning(
                    f"{pretrained_model_name_or_path} has other code than this version of hf-dse, whose own is used: "
                    f"{', '.join(files)}. Its vectors may differ from those that it gives without hf-dse. `hf-dse "
                    "export` writes a copy with the code of this version; to run the code of the folder, load it "
                    "where hf_dse is not imported."
                )
        return load(cls, pretrained_model_name_or_path, *args, **options)

    model_class.from_pretrained = classmethod(from_pretrained)
