# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Publishing a model folder on the Hub: it is checked first, then uploaded in one commit."""

import json
import os
from collections.abc import Iterator
from contextlib import contextmanager
from fnmatch import fnmatch
from pathlib import Path
from typing import Any

from huggingface_hub import CommitInfo, CommitOperationAdd, CommitOperationDelete, HfApi, get_token
from huggingface_hub.errors import HfHubHTTPError, HFValidationError, HTTPError
from huggingface_hub.utils import validate_repo_id
from safetensors import SafetensorError, safe_open
from transformers.utils import logging

from hf_dse import __version__
from hf_dse.common.files import to_path
from hf_dse.common.loading import read_json
from hf_dse.convert.folder import LENGTHS
from hf_dse.convert.student import CODE_FILES, TRAINING_STATE


logger = logging.get_logger(__name__)

WEIGHTS = "model.safetensors"

# Files in every folder that `export_model` writes, beside the vocabulary of the tokenizer.
MODEL_FILES = (
    "config.json",
    WEIGHTS,
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
    create_pr: bool = False,
    dry_run: bool = False,
) -> CommitInfo | dict[str, int]:
    """
    Publishes a model folder that [`export_model`] wrote on the Hub, or on the server that `HF_ENDPOINT` names.

    All files are uploaded in one commit: the Hub has all of them or none. Hidden files and compiled Python files are
    not uploaded. Files that are only on the Hub stay there, except the text lengths of an earlier model
    (`sentence_bert_config.json`). Without changes, no commit is made.

    Args:
        path (`str` or `os.PathLike`): The model folder; other files may have been added to it.
        repo_id (`str`): Repository, such as `"user/my-model"`. It is created if it does not exist.
        private (`bool`, *optional*): Whether a new repository is private. Defaults to the setting of the Hub.
        revision (`str`, *optional*, defaults to `"main"`): Branch, created from `"main"` if it does not exist.
        token (`str`, *optional*): Token with write access. Defaults to that of `HF_TOKEN` or `hf auth login`.
        commit_message (`str`, *optional*): First line of the commit.
        create_pr (`bool`, *optional*, defaults to `False`): Whether to open a pull request, without write access.
        dry_run (`bool`, *optional*, defaults to `False`): Whether to only check the folder; it sends no request.

    Returns:
        `huggingface_hub.CommitInfo`: the commit; `str` gives its URL. For a dry run, `dict[str, int]`: the files and
        their sizes in bytes.

    Raises:
        `FileNotFoundError`: if the folder or files in it are missing.
        `ValueError`: if the folder has a Trainer checkpoint, a link, another kind of model, code of another repository
        or damaged weights, or if `private=True` and the repository is public.
        `PermissionError`: if there is no token, or the Hub does not accept it.
        `OSError`: if the Hub cannot be reached or rejects the push. The error of huggingface_hub is its `__cause__`.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, export_model, push_model

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> folder = export_model(model, tokenizer, "my-model", model_id="user/my-model")
    >>> sorted(push_model(folder, "user/my-model", dry_run=True))[:2]
    ['1_Pooling/config.json', 'README.md']
    ```
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(f"{repo_id!r} is not a valid repository name, such as `user/my-model`: {error}") from error
    folder = to_path(path)
    files = _list_files(folder)
    _check_model(folder, files)
    if repo_id not in files["README.md"].read_text(encoding="utf-8"):
        logger.warning(
            f"README.md does not mention {repo_id}: its examples load the model under another name. Edit them, or "
            f"write the folder with `hf-dse export --model_id {repo_id}` (`export_model(..., model_id=...)`)."
        )
    if dry_run:
        return {name: file.stat().st_size for name, file in files.items()}
    if not (token or get_token()):
        raise PermissionError(
            f"{repo_id} was not pushed: there is no token. Log in with `hf auth login`, or pass `token`."
        )
    api = HfApi(token=token, library_name="hf-dse", library_version=__version__)
    with _in_one_line(repo_id, api.endpoint):
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        is_exposed = private and not api.model_info(repo_id).private
    if is_exposed:
        raise ValueError(
            f"{repo_id} was not pushed: it already exists and is public, which `private` does not change. Push "
            "to another name, or make it private in its settings first."
        )
    with _in_one_line(repo_id, api.endpoint):
        if revision is not None and not revision.startswith("refs/") and not create_pr:
            api.create_branch(repo_id, branch=revision, exist_ok=True)
        operations: list[Any] = [CommitOperationAdd(name, file) for name, file in files.items()]
        if LENGTHS not in files and api.file_exists(repo_id, LENGTHS, revision=revision):
            operations.append(CommitOperationDelete(LENGTHS))
        # `upload_folder` would make several commits where hf_xet is installed.
        return api.create_commit(
            repo_id,
            operations,
            commit_message=commit_message or "Upload model",
            revision=revision,
            create_pr=create_pr,
        )


def _list_files(folder: Path) -> dict[str, Path]:
    """Returns the files to upload, by their names on the Hub."""
    if not folder.is_dir():
        raise FileNotFoundError(f"{folder} is not a folder: write one with `hf-dse export` (`export_model`).")
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
    again = "write the folder with `hf-dse export` (`export_model`)."
    states = [name for name, file in files.items() if any(fnmatch(file.name, pattern) for pattern in TRAINING_STATE)]
    if states:
        raise ValueError(f"{folder} has training state ({', '.join(states)}), which is not published: {again}")
    missing = [name for name in MODEL_FILES if name not in files]
    if missing:
        raise FileNotFoundError(f"{folder} is incomplete, missing {', '.join(missing)}: {again}")
    config = read_json(str(folder), "config.json")
    if config.get("model_type") != "dse" or "AutoModel" not in config.get("auto_map", {}):
        raise ValueError(f"{folder} does not hold a DSE model with its code (`auto_map` of config.json): {again}")
    for name in ("config.json", "tokenizer_config.json"):
        if "--" in json.dumps(read_json(str(folder), name).get("auto_map")):
            raise ValueError(
                f"{files[name]} names code of another repository (`auto_map`), which everyone who loads the model "
                f"would run: {again}"
            )
    try:
        with safe_open(files[WEIGHTS], framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(f"{files[WEIGHTS]} is damaged ({error}): {again}") from error


@contextmanager
def _in_one_line(repo_id: str, endpoint: str) -> Iterator[None]:
    """Reports an error of the Hub in one line: the problem, and what to do."""
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        # A failed upload raises a RuntimeError whose cause is the actual error.
        cause = error.__cause__ if isinstance(error, RuntimeError) and error.__cause__ else error
        problem, kind = str(cause), OSError
        advice = "Check the network and HF_ENDPOINT, or push again later."
        if isinstance(cause, HfHubHTTPError):
            status = cause.response.status_code
            problem = f"HTTP {status} of {endpoint}, {cause.server_message or problem.partition(chr(10))[0]}"
            if status in (401, 403):
                kind = PermissionError
                advice = "Log in with `hf auth login` or pass a `token` with write access; HF_TOKEN comes first."
        message = f"Pushing {repo_id} failed: {problem.rstrip('.')}. {advice} The Hub has all files of a push or none."
        raise kind(" ".join(message.split())) from error
