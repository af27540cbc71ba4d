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
from hf_dse.data.tables import read_text
from hf_dse.inference.loading import module_types, read_json
from hf_dse.modeling import DseConfig
from hf_dse.modeling.configuration_dse import LENGTHS
from hf_dse.student.checkpoint import CODE_FILES, TRAINING_STATE


logger = logging.get_logger(__name__)

WEIGHTS = "model.safetensors"

# Files in every folder that `export_model` writes, and the possible names of a tokenizer's vocabulary.
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

VOCABULARIES = ("tokenizer.json", "vocab.txt", "vocab.json", "spiece.model", "sentencepiece.bpe.model")

# HTTP status -> what is wrong, what to do
ANSWERS = {
    401: (
        "the Hub does not accept the token",
        "Log in with `hf auth login` or pass a valid `token`; HF_TOKEN takes precedence over the login.",
    ),
    403: (
        "the token has no write access to it",
        "Use a token with write access (https://huggingface.co/settings/tokens), or a repository of your own.",
    ),
    404: (
        "the Hub has no such repository or revision, or hides it from this token",
        "Check the name, the revision and the token.",
    ),
    409: ("another commit was pushed meanwhile", "Push again."),
    412: ("another commit was pushed meanwhile", "Push again."),
    429: ("the Hub received too many requests", "Wait, then push again."),
}


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
    Publishes a model folder on the Hub, or on the server that `HF_ENDPOINT` names. It takes a folder, not a model:
    write one with [`export_model`] first.

    All files are uploaded in one commit, so that the Hub has all of them or none. Hidden files and compiled Python
    files are not uploaded. Files that are only on the Hub are kept, except the lengths of queries and documents of a
    model that was there before (`sentence_bert_config.json`). Without changes, no commit is made.

    Args:
        path (`str` or `os.PathLike`):
            A folder that [`export_model`] wrote; other files may have been added to it.
        repo_id (`str`):
            Repository to publish in, such as `"user/my-model"`. It is created if it does not exist.
        private (`bool`, *optional*):
            Whether a new repository is private. Defaults to the setting of the Hub, which is public for users.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch to commit to. It is created from `"main"` if it does not exist.
        token (`str`, *optional*):
            Token with write access. Defaults to that of `HF_TOKEN` or `hf auth login`.
        commit_message (`str`, *optional*):
            First line of the commit.
        create_pr (`bool`, *optional*, defaults to `False`):
            Whether to open a pull request with the commit. It needs no write access to the repository.
        dry_run (`bool`, *optional*, defaults to `False`):
            Whether to only check the folder and return what would be pushed. Needs no token and sends no request.

    Returns:
        `huggingface_hub.CommitInfo`: the commit; `str` gives its URL. For a dry run, `dict[str, int]`: the files and
        their sizes in bytes (the Hub decides which of them use LFS).

    Raises:
        `FileNotFoundError`: if the folder or files in it are missing.
        `ValueError`: if the folder has a Trainer checkpoint, a link, another kind of model, code of another repository
        or damaged weights, if `repo_id` is not a valid name, or if `private=True` and the repository is already
        public.
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
    >>> # Without `dry_run` it needs a token.
    >>> push_model(folder, "user/my-model").commit_url  # doctest: +SKIP
    'https://huggingface.co/user/my-model/commit/...'
    ```
    """
    try:
        validate_repo_id(repo_id)
    except HFValidationError as error:
        raise ValueError(
            f"{repo_id!r} is not a valid repository name: use a name such as `user/my-model`, with letters, digits, "
            "'-', '_' and '.', but without '--' or '..', and without '-' or '.' at either end."
        ) from error
    folder = to_path(path)
    files = _list_files(folder)
    _check_model(folder, files)
    if repo_id not in read_text(files["README.md"]):
        logger.warning(
            f"README.md does not mention {repo_id}, so its examples load the model under another name: fix them, or "
            f"write the folder with `hf-dse export --model_id {repo_id}` (`export_model(..., model_id=...)`)."
        )
    if dry_run:
        return {name: file.stat().st_size for name, file in files.items()}
    if not (token or get_token()):
        raise PermissionError(
            f"{repo_id} was not pushed: there is no token. Log in with `hf auth login`, or pass `token`."
        )

    api = HfApi(token=token, library_name="hf-dse", library_version=__version__)
    with _explained(repo_id, api.endpoint):
        repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
        is_exposed = private and not api.model_info(repo_id).private
    if is_exposed:
        raise ValueError(
            f"{repo_id} was not pushed: it already exists and is public, which `private` does not change. Push "
            "to another name, or make it private in its settings first."
        )
    with _explained(repo_id, api.endpoint):
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
            raise ValueError(
                f"{file} is a link, and what it points to would be published: put a copy in its place, or delete it."
            )
        if file.is_file():
            found[name.as_posix()] = file
    return found


def _check_model(folder: Path, files: dict[str, Path]) -> None:
    states = [name for name, file in files.items() if any(fnmatch(file.name, pattern) for pattern in TRAINING_STATE)]
    if states:
        raise ValueError(
            f"{folder} has training state ({', '.join(states)}), which cannot be published: write a model folder from "
            "the checkpoint with `hf-dse export` first."
        )
    # Damaged files are named, and not published.
    settings = {
        name: read_json(str(folder), name) for name in MODEL_FILES if name.endswith(".json") and name != "modules.json"
    }
    module_types(str(folder))
    if "config.json" in files:
        config, _ = DseConfig.get_config_dict(folder)
        if config.get("model_type") != "dse":
            raise ValueError(
                f"{folder} has a model of type {config.get('model_type')!r}, but only DSE models can be pushed: "
                "convert it with `hf-dse convert`."
            )
        if not {"AutoConfig", "AutoModel"} <= set(config.get("auto_map") or {}):
            raise ValueError(
                f"The config.json of {folder} does not name the code of the model (`auto_map`), so it would load only "
                "where hf_dse is installed: write the folder with `hf-dse export`."
            )
    for name in ("config.json", "tokenizer_config.json"):
        if "--" in str(settings[name].get("auto_map")):
            raise ValueError(
                f"{files[name]} names code of another repository (`auto_map`), which whoever loads the model would "
                "run: write the folder with `hf-dse export`."
            )
    missing = [name for name in MODEL_FILES if name not in files]
    if not any(name in files for name in VOCABULARIES):
        missing.append(VOCABULARIES[0])
    if missing:
        raise FileNotFoundError(
            f"{folder} is incomplete, missing {', '.join(missing)}: write it with `hf-dse export` (`export_model`)."
        )
    try:
        with safe_open(files[WEIGHTS], framework="pt"):
            pass
    except SafetensorError as error:
        raise ValueError(
            f"{files[WEIGHTS]} is damaged ({error}): write the folder again with `hf-dse export`."
        ) from error


@contextmanager
def _explained(repo_id: str, endpoint: str) -> Iterator[None]:
    """Reports errors of the Hub in one line: the problem, the outcome of the push, and what to do."""
    try:
        yield
    except (HTTPError, OSError, RuntimeError, ValueError) as error:
        raise _explain(error, repo_id, endpoint) from error


def _explain(error: Exception, repo_id: str, endpoint: str) -> OSError:
    # A failed upload raises a RuntimeError whose cause is the actual error.
    answer = error.__cause__ if isinstance(error, RuntimeError) else error
    status, request = None, None
    if isinstance(answer, HfHubHTTPError):
        status, request = answer.response.status_code, answer.response.request
        fault = ("the Hub has a server error", "Push again later.")
        refusal = ("the Hub rejected it", "Fix what the message names, then push again.")
        problem, advice = ANSWERS.get(status) or (fault if status >= 500 else refusal)
        said = answer.server_message or str(answer).partition("\n")[0]
        problem += f" (HTTP {status}: {said})"
    elif isinstance(answer, HTTPError):
        request = answer.request
        problem = f"the connection to {endpoint} failed ({answer})"
        advice = "Check the network and its proxies, and HF_ENDPOINT if it is set."
    elif isinstance(answer, json.JSONDecodeError):
        problem = f"the response of {endpoint} is not that of a Hub"
        advice = "Push again later; if that does not help, check proxies, and HF_ENDPOINT if it is set."
    else:
        problem, advice = str(error), ""

    is_committing = request is not None and "/commit/" in request.url.path
    if isinstance(answer, json.JSONDecodeError) or (is_committing and (status is None or status >= 500)):
        outcome = f"It is not known whether the commit was made; see {endpoint}/{repo_id}. It has all files or none."
    else:
        outcome = "No file was published."
    kind = PermissionError if status in (401, 403) else OSError
    # Messages of libraries may have several lines.
    return kind(" ".join(f"Pushing {repo_id} failed: {problem.rstrip('.')}. {outcome} {advice}".split()))
