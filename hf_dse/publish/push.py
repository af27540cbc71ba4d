# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Publishing a model folder on the Hub: it is checked first, then uploaded in one commit."""

import json
import os
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi
from huggingface_hub.errors import HTTPError
from transformers.utils import logging

from hf_dse import __version__
from hf_dse.common.display import one_line
from hf_dse.common.files import to_path
from hf_dse.common.loading import read_json
from hf_dse.convert.folder import LENGTHS
from hf_dse.convert.student import CODE_FILES, TRAINING_STATE


logger = logging.get_logger(__name__)

# Files in every folder that `export` writes, beside the vocabulary of the tokenizer.
MODEL_FILES = (
    "config.json",
    "model.safetensors",
    *CODE_FILES,
    "tokenizer_config.json",
    "modules.json",
    "1_Pooling/config.json",
    "config_sentence_transformers.json",
    "README.md",
)


def push_model(
    path: str | os.PathLike,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
    commit_message: str | None = None,
    dry_run: bool = False,
) -> CommitInfo | dict[str, int]:
    """
    Publishes a model folder that [`export`] wrote on the Hub, in one commit: the Hub has all files or none.
    Hidden files are not uploaded. Files that are only on the Hub stay there, except the text lengths of an earlier
    model (`sentence_bert_config.json`).

    Args:
        path (`str` or `os.PathLike`): The model folder; other files may have been added to it.
        repo_id (`str`): Repository, such as `"user/my-model"`. It is created if it does not exist.
        private (`bool`, *optional*): Whether a new repository is private. Defaults to the setting of the Hub.
        revision (`str`, *optional*, defaults to `"main"`): Branch, created from `"main"` if it does not exist.
        token (`str`, *optional*): Token with write access. Defaults to that of `HF_TOKEN` or `hf auth login`.
        commit_message (`str`, *optional*): First line of the commit.
        dry_run (`bool`, *optional*, defaults to `False`): Whether to only check the folder; it sends no request.

    Returns:
        `huggingface_hub.CommitInfo`: the commit; `str` gives its URL. For a dry run, `dict[str, int]`: the files and
        their sizes in bytes.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, export, push_model

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> folder = export(model, "my-model", tokenizer, model_id="user/my-model")
    >>> sorted(push_model(folder, "user/my-model", dry_run=True))[:2]
    ['1_Pooling/config.json', 'README.md']
    ```
    """
    folder = to_path(path)
    files = _list_files(folder)
    _check_model(folder, files)
    if repo_id not in files["README.md"].read_text(encoding="utf-8"):
        logger.warning(
            f"README.md does not mention {repo_id}: its examples load the model under another name. Edit them, or "
            f"write the folder with `hf-dse export --model_id {repo_id}`."
        )
    if dry_run:
        return {name: file.stat().st_size for name, file in files.items()}
    api = HfApi(token=token, library_name="hf-dse", library_version=__version__)
    try:
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        if private and not api.model_info(repo_id).private:
            raise ValueError("it exists and is public, which `private` does not change")
        if revision is not None:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        operations: list[Any] = [CommitOperationAdd(name, file) for name, file in files.items()]
        if LENGTHS not in files and api.file_exists(repo_id, LENGTHS, revision=revision):
            operations.append(CommitOperationDelete(LENGTHS))
        # `upload_folder` would make several commits where hf_xet is installed.
        message = commit_message or "Upload model"
        return api.create_commit(repo_id, operations, commit_message=message, revision=revision)
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        # A failed upload raises a RuntimeError whose cause is the actual error.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        reason = one_line(cause)
        raise OSError(f"Pushing {repo_id} failed: {reason} The Hub has all files of a push or none.") from error


def _list_files(folder: Path) -> dict[str, Path]:
    """Returns the files to upload, by their names on the Hub."""
    found = {}
    for file in sorted(folder.rglob("*")):
        name = file.relative_to(folder)
        if any(part.startswith(".") or part == "__pycache__" for part in name.parts):
            continue
        if file.is_symlink():
            raise ValueError(f"{file} is a link to a file outside: put a copy in its place, or delete it.")
        if file.is_file():
            found[name.as_posix()] = file
    return found


def _check_model(folder: Path, files: dict[str, Path]) -> None:
    """Raises an error for a folder that is incomplete, or has what must not be published."""
    again = "write the folder with `hf-dse export`."
    states = [name for name, file in files.items() if any(fnmatch(file.name, pattern) for pattern in TRAINING_STATE)]
    if states:
        raise ValueError(f"{folder} has training state ({', '.join(states)}), which is not published: {again}")
    missing = [name for name in MODEL_FILES if name not in files]
    if missing:
        raise FileNotFoundError(f"{folder} is incomplete, missing {', '.join(missing)}: {again}")
    for name in ("config.json", "tokenizer_config.json"):
        if "--" in json.dumps(read_json(str(folder), name).get("auto_map")):
            raise ValueError(
                f"{files[name]} names code of another repository (`auto_map`), which everyone who loads the model "
                f"would run: {again}"
            )
