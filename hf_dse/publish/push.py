# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Publishing a model folder on the Hub."""

import os

from huggingface_hub import CommitInfo, HfApi

from hf_dse import __version__
from hf_dse.common.files import to_path
from hf_dse.common.loading import LENGTHS


# Files that Trainer saves next to a model for resuming.
TRAINING_STATE = "optimizer.* scheduler.* scaler.pt rng_state*.pth trainer_state.json training_args.bin".split()


def push_model(
    path: str | os.PathLike,
    repo_id: str,
    *,
    private: bool | None = None,
    revision: str | None = None,
    token: str | None = None,
) -> CommitInfo:
    """
    Publishes a model folder that [`export`] wrote on the Hub, without its hidden files. Files that are only on the Hub
    stay there, except the text lengths of an earlier model (`sentence_bert_config.json`).

    Args:
        path (`str` or `os.PathLike`): The model folder; other files may have been added to it.
        repo_id (`str`): Repository, such as `"user/my-model"`. It is created if it does not exist.
        private (`bool`, *optional*): Whether a new repository is private. Defaults to the setting of the Hub.
        revision (`str`, *optional*, defaults to `"main"`): Branch, created from `"main"` if it does not exist.
        token (`str`, *optional*): Token with write access. Defaults to that of `HF_TOKEN` or `hf auth login`.

    Returns:
        `huggingface_hub.CommitInfo`: the commit; `str` gives its URL.
    """
    folder = to_path(path)
    states = [file.name for pattern in TRAINING_STATE for file in folder.rglob(pattern)]
    if states:
        raise ValueError(
            f"{folder} has training state ({', '.join(sorted(states))}), which is not published: write the folder "
            "with `hf-dse export`."
        )
    missing = [name for name in ("config.json", "model.safetensors", "README.md") if not (folder / name).is_file()]
    if missing:
        raise FileNotFoundError(
            f"{folder} is incomplete, missing {', '.join(missing)}: write the folder with `hf-dse export`."
        )
    api = HfApi(token=token, library_name="hf-dse", library_version=__version__)
    repo_id = api.create_repo(repo_id, private=private, exist_ok=True).repo_id
    if private and not api.model_info(repo_id).private:
        raise ValueError(f"{repo_id} exists and is public, which `private` does not change: name another repository.")
    if revision is not None:
        api.create_branch(repo_id, branch=revision, exist_ok=True)
    return api.upload_folder(
        repo_id=repo_id,
        folder_path=folder,
        revision=revision,
        commit_message="Upload model",
        ignore_patterns=[".*", "*/.*", "*__pycache__*"],
        # sentence-transformers would cut the texts of a model without them.
        delete_patterns=LENGTHS,
    )
