# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What the stages with a cross-encoder are given or load, and share between processes."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any, TypeVar

import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, load_from_disk
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from hf_dse.data.rankings import Rankings
from hf_dse.data.tokenization import max_tokens
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.pipeline.arguments import DistillationArguments


Data = TypeVar("Data", Dataset, DatasetDict)

# Folder in which the first of several processes passes the training data to the others.
TRAIN_FOLDER = ".train-data"


@dataclass(frozen=True)
class Given:
    """Models, tokenizers and datasets that a Python caller has already loaded."""

    model: PreTrainedModel | None = None
    processing_class: PreTrainedTokenizerBase | None = None
    teacher: PreTrainedModel | None = None
    teacher_processing_class: PreTrainedTokenizerBase | None = None
    dataset: Dataset | Rankings | Mapping[str, Dataset | Rankings] | None = None


def check_bi_encoder(args: DistillationArguments, training_args: Any) -> None:
    """Raises a `ValueError` for a bi-encoder without its weight in the loss, or the reverse."""
    is_named = args.bi_encoder_name_or_path is not None
    anchor_weight = getattr(training_args, "anchor_weight", 0.0)
    if getattr(training_args, "chunk_size", None) is not None:
        # Its vectors of plain chunks say which of them a query should find, where no evidence does.
        if anchor_weight > 0 and not is_named:
            raise ValueError(
                f"anchor_weight={anchor_weight}: name the bi-encoder whose chunks are the anchors, such as the source "
                "of the student, with `--bi_encoder_name_or_path`."
            )
    elif (training_args.similarity_weight > 0) != is_named:
        raise ValueError(
            "`--bi_encoder_name_or_path` and `--similarity_weight` need each other: pass the bi-encoder whose "
            "similarities the student keeps, and their weight in the loss."
        )


def load_bi_encoder(
    args: DistillationArguments, max_length: int, device: torch.device
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, int]:
    """The bi-encoder, its tokenizer, and how many tokens of a text it reads: as many as the student if it can."""
    name = str(args.bi_encoder_name_or_path)
    model_args = ModelArguments(name, trust_remote_code=args.trust_remote_code, device=str(device))
    encoder, tokenizer = load_model(model_args)
    return encoder, tokenizer, min(max_tokens(encoder, tokenizer) or max_length, max_length)


def make_once(make: Callable[[], Data], training_args: TrainingArguments, folder: Path) -> Data:
    """Makes a dataset in the first of several processes; the others wait, and load it from disk."""
    if training_args.world_size <= 1:
        return make()
    path = folder / TRAIN_FOLDER
    state = PartialState()
    if training_args.process_index == 0:
        shutil.rmtree(path, ignore_errors=True)
        make().save_to_disk(path)
    state.wait_for_everyone()
    # In memory, so that the files can be deleted.
    dataset = load_from_disk(str(path), keep_in_memory=True)
    state.wait_for_everyone()
    if training_args.process_index == 0:
        shutil.rmtree(path, ignore_errors=True)
    return dataset
