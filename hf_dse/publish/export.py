# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model folder that transformers and sentence-transformers load, with code and card, or a graph; and the Hub."""

import os
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from huggingface_hub import CommitInfo, HfApi
from transformers import PreTrainedTokenizerBase
from transformers.modeling_utils import str_to_torch_dtype
from transformers.utils import SAFE_WEIGHTS_NAME, logging

from hf_dse import __version__
from hf_dse.common.files import check_target, folder_in_one_step, to_path
from hf_dse.common.loading import LENGTHS, load_tokenizer, read_file, stored_dtypes
from hf_dse.common.settings import write_settings
from hf_dse.convert.student import CODE_FILES, limit_tokens, load_dse_model
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.publish.card import make_model_card
from hf_dse.publish.graph import write_graph


logger = logging.get_logger(__name__)

# Files that Trainer saves next to a model for resuming.
TRAINING_STATE = "optimizer.* scheduler.* scaler.pt rng_state*.pth trainer_state.json training_args.bin".split()


def export(
    model: DseModel | DseForSequenceClassification | str | os.PathLike,
    output_dir: str | os.PathLike,
    processing_class: PreTrainedTokenizerBase | None = None,
    *,
    format: str = "transformers",
    int8: bool = False,
    max_length: int | None = None,
    overwrite_output_dir: bool = False,
    model_id: str | None = None,
    metrics: Mapping[str, Mapping[str, float]] | None = None,
    searches: Mapping[str, Mapping[str, Mapping[str, Any]]] | None = None,
    base_model: str | None = None,
    teacher: str | Sequence[str | None] | None = None,
    datasets: Sequence[str | None] | None = None,
    recipe: Mapping[str, Any] | None = None,
    license: str | None = None,
    dtype: torch.dtype | None = None,
) -> Path:
    """
    Writes a complete model folder, like `hf-dse export`: weights, configuration, code, tokenizer, files of
    sentence-transformers, and a model card. The folder loads without hf_dse installed. Or writes an ONNX graph, which
    ONNX Runtime and OpenVINO run, with its tokenizer and the files in which servers read how the model embeds texts.
    If an error occurs, nothing is written.

    A graph has no head for sentence pairs. It takes the output of the tokenizer, `(batch_size, seq_len)` of any size,
    computes in float32, and returns `sentence_embedding`, `(batch_size, embedding_size)`, and `token_embeddings`,
    `(batch_size, seq_len, embedding_size)`.

    Args:
        model ([`DseModel`], [`DseForSequenceClassification`], `str` or `os.PathLike`): The model, with its head for
            sentence pairs if any, or its folder or Hub id.
        output_dir (`str` or `os.PathLike`): Folder to write.
        processing_class (`PreTrainedTokenizerBase`, *optional*): The tokenizer; required with a loaded model.
        format (`str`, *optional*, defaults to `"transformers"`): `"transformers"`: a model folder. `"onnx"`: a
            graph, `onnx/model.onnx`. On CPUs with bfloat16 instructions, OpenVINO computes in bfloat16 unless
            `INFERENCE_PRECISION_HINT` is `"f32"`.
        int8 (`bool`, *optional*, defaults to `False`): Whether to add `onnx/model_quantized.onnx`, with weights of 8
            bits and dynamically quantized activations, whose scale is that of a batch: a vector depends on the texts
            beside it, by up to 0.03 in a dimension.
        max_length (`int`, *optional*): Tokens per text that everything that loads the folder reads. Defaults to the
            `model_max_length` of the tokenizer.
        overwrite_output_dir (`bool`, *optional*, defaults to `False`): Whether to replace an existing model folder.
        model_id (`str`, *optional*): Name of the model in the examples of the card. Defaults to that of the folder.
        metrics (`Mapping[str, Mapping[str, float]]`, *optional*): Metrics by split on the first of `datasets`.
        searches (`Mapping`, *optional*): By split and name `ndcg@10`, `low`, `high` and `share`, this model first.
        base_model (`str`, *optional*): The encoder that the model was converted from.
        teacher (`str` or `Sequence[str]`, *optional*): The teachers that the model was distilled from.
        datasets (`Sequence[str]`, *optional*): Training data: names of pair tasks, Hub ids or folders.
        recipe (`Mapping[str, Any]`, *optional*): Settings of the training; `recipe["command"]` is a shell command.
        license (`str`, *optional*): Hub identifier of the license of the weights, such as `"apache-2.0"`.
        dtype (`torch.dtype`, *optional*): Data type in which the weights are stored. Defaults to that of the model.

    Returns:
        `pathlib.Path`: the folder.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder, export

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> export(model, "my-model", tokenizer, base_model=name)
    PosixPath('my-model')
    >>> # A copy that reads fewer tokens. A graph: `format="onnx"`.
    >>> export("my-model", "shorter", max_length=64)
    PosixPath('shorter')
    ```
    """
    if format not in ("transformers", "onnx"):
        raise ValueError(f"format={format!r}: it has to be transformers or onnx. OpenVINO reads the graph of onnx.")
    if int8 and format != "onnx":
        raise ValueError(f'int8=True quantizes a graph of ONNX, not format={format!r}: add `--format onnx` ("onnx").')
    facts: dict[str, Any] = {"metrics": metrics, "base_model": base_model, "teacher": teacher, "datasets": datasets}
    facts |= {"recipe": recipe, "license": license, "searches": searches}
    path = to_path(output_dir)
    target = path.resolve()
    check_target(target, overwrite_output_dir)
    # A named model keeps its card unless there are facts for a new one.
    card = None
    if isinstance(model, str | os.PathLike):
        source = os.fspath(model)
        model, processing_class = load_dse_model(source), processing_class or load_tokenizer(source)
        if format == "transformers":
            kinds = set(stored_dtypes(source).values())
            dtype = dtype or (str_to_torch_dtype.get(kinds.pop()) if len(kinds) == 1 else None)
            if not any(facts.values()):
                card = read_file(source, "README.md") or None
    elif processing_class is None or getattr(getattr(model, "config", None), "model_type", None) != "dse":
        raise TypeError(
            f"`model` is a {type(model).__name__}{'' if processing_class else ' without `processing_class`'}, and has "
            "to be a DSE model with its tokenizer, `processing_class`, or a folder or Hub id."
        )
    tokenizer = limit_tokens(processing_class, model, max_length)
    if format == "onnx":
        with folder_in_one_step(target, overwrite_output_dir) as new:
            write_graph(model, tokenizer, new, int8)
        return path
    if card is None:
        length = tokenizer.model_max_length
        card = make_model_card(model, model_id=model_id or target.name, max_length=length, **facts).content
    else:
        if model_id is not None and model_id not in card:
            logger.warning(f"README.md is kept and does not mention {model_id}: edit it in {path}.")
        old = processing_class.model_max_length
        if tokenizer.model_max_length != old:
            logger.warning(f"README.md is kept and may name {old} tokens per text: edit it in {path}.")
    with folder_in_one_step(target, overwrite_output_dir) as new:
        weights = {key: tensor.to(dtype or tensor.dtype) for key, tensor in model.state_dict().items()}
        model.save_pretrained(new, state_dict=weights)
        missing = [file for file in (SAFE_WEIGHTS_NAME, *CODE_FILES) if not (new / file).is_file()]
        if missing:
            raise TypeError(
                f"{type(model).__name__} was saved without {', '.join(missing)}: export a `DseModel` or "
                "`DseForSequenceClassification`, not a subclass; merge an adapter first (`merge_and_unload`)."
            )
        tokenizer.save_pretrained(new)
        write_settings(model, new)
        (new / "README.md").write_text(card, encoding="utf-8")
    return path


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
