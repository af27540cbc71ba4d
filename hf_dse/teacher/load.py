# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Loading a cross-encoder."""

from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedConfig,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_dse.data.tasks import PairTask
from hf_dse.data.tokenization import check_vocabulary
from hf_dse.inference.loading import load_tokenizer, load_weights


def load_teacher(
    model_name_or_path: str,
    *,
    revision: str = "main",
    trust_remote_code: bool = False,
    dtype: str | torch.dtype = "float32",
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """
    Loads a cross-encoder together with its tokenizer.

    Args:
        model_name_or_path (`str`):
            Hub id or folder of any model that `AutoModelForSequenceClassification` loads, including CrossEncoders of
            sentence-transformers.
        revision (`str`, *optional*, defaults to `"main"`):
            Branch, tag or commit on the Hub.
        trust_remote_code (`bool`, *optional*, defaults to `False`):
            Whether to run the code that comes with the model.
        dtype (`str` or `torch.dtype`, *optional*, defaults to `"float32"`):
            Data type of the weights. `"bfloat16"` is several times faster on hardware that supports it, and rounds
            scores to about 0.4 %.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model in evaluation mode, and the tokenizer.

    Raises:
        `ValueError`: if the checkpoint has no trained classification head, or its files are damaged.
    """
    source: dict[str, Any] = {"revision": revision, "trust_remote_code": trust_remote_code}
    model, info = load_weights(AutoModelForSequenceClassification, model_name_or_path, dtype=dtype, **source)
    # A head that is missing in the checkpoint is randomly initialized, so its scores are noise.
    if info["missing_keys"]:
        raise ValueError(
            f"{model_name_or_path} is not a trained cross-encoder: it has no "
            f"{', '.join(sorted(info['missing_keys']))}. Fine-tune it on pairs first, with `hf-dse teacher`."
        )
    tokenizer = load_tokenizer(model_name_or_path, **source)
    check_vocabulary(model, tokenizer)
    return model.eval(), tokenizer


def check_labels(config: PreTrainedConfig, task: PairTask) -> None:
    """
    Checks that the head of a teacher fits a task.

    Args:
        config (`PreTrainedConfig`):
            The config of the teacher.
        task (`PairTask`):
            The task; binary tasks accept one or two logits.

    Raises:
        `ValueError`: if the number of logits does not fit the task, or the teacher is a regression and the task has
        classes.
    """
    num_logits = config.num_labels
    allowed = {2: (1, 2)}.get(task.num_labels, (task.num_labels,))
    if num_logits not in allowed:
        raise ValueError(
            f"The teacher has {num_logits} logits, but task {task.name!r} has {task.num_labels} labels and needs "
            f"{' or '.join(map(str, allowed))}: use a teacher trained for this task, or the task it was trained for."
        )
    if task.num_labels > 1 and config.problem_type == "regression":
        raise ValueError(
            f"The teacher predicts scores (`problem_type` is 'regression'), but task {task.name!r} has classes: use a "
            "teacher trained for this task, or name the task of the teacher, such as `stsb` (or `num_labels=1`)."
        )
