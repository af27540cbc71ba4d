# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What the stages are given or load, and share between processes."""

import shutil
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING, Any, TypeVar

import torch
from accelerate import PartialState
from datasets import Dataset, DatasetDict, load_from_disk
from transformers import PreTrainedModel, PreTrainedTokenizerBase, TrainingArguments

from hf_dse.data.rankings import Rankings
from hf_dse.pipeline.arguments import ScoredArguments
from hf_dse.publish.export import export_model
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer
from hf_dse.teacher.bi_encoders import is_bi_encoder
from hf_dse.teacher.rerankers import load_reranker
from hf_dse.training.arguments import DseTrainingArguments, RankingTrainingArguments


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

Data = TypeVar("Data", Dataset, DatasetDict)

# Folder in which the first of several processes passes the training data to the others.
TRAIN_FOLDER = ".train-data"


@dataclass(frozen=True)
class Given:
    """Models, tokenizers and datasets that a Python caller has already loaded."""

    model: PreTrainedModel | None = None
    processing_class: PreTrainedTokenizerBase | None = None
    teacher: "CrossEncoder | SentenceTransformer | None" = None
    dataset: Dataset | Rankings | Mapping[str, Dataset | Rankings] | None = None


def check_bi_encoder(args: ScoredArguments, training_args: DseTrainingArguments | RankingTrainingArguments) -> None:
    """Raises a `ValueError` for a bi-encoder without its weight in the loss, or the reverse."""
    if (training_args.similarity_weight > 0) != (args.bi_encoder_name_or_path is not None):
        raise ValueError(
            "`--bi_encoder_name_or_path` and `--similarity_weight` need each other: pass the bi-encoder whose "
            "similarities the student keeps, and their weight in the loss."
        )


def load_teacher(
    args: ScoredArguments, given: Given, device: torch.device
) -> "CrossEncoder | SentenceTransformer | None":
    """The teacher whose scores the student learns, if there is one."""
    teacher = given.teacher or args.teacher_name_or_path
    if teacher is None or is_bi_encoder(teacher):
        return teacher
    return load_reranker(teacher, trust_remote_code=args.trust_remote_code, dtype=args.teacher_dtype, device=device)


def load_bi_encoder(
    name_or_path: str, args: ScoredArguments, training_args: DseTrainingArguments | RankingTrainingArguments
) -> "SentenceTransformer":
    """A bi-encoder that reads as many tokens of a text as the student, or its own limit if that is lower."""
    encoder = load_sentence_transformer(
        name_or_path, trust_remote_code=args.trust_remote_code, device=training_args.device
    )
    limit = encoder.max_seq_length or training_args.max_length
    encoder.max_seq_length = min(limit, training_args.max_length)
    return encoder


def as_sentence_transformer(model: Any, tokenizer: Any, device: torch.device) -> "SentenceTransformer":
    """A student as everybody loads it from its folder."""
    with TemporaryDirectory() as folder:
        return load_sentence_transformer(str(export_model(model, tokenizer, Path(folder, "model"))), device=device)


def make_once(make: Callable[[], Data], training_args: TrainingArguments) -> Data:
    """Makes a dataset in the first of several processes; the others wait, and load it from disk."""
    if training_args.world_size <= 1:
        return make()
    path, state = Path(str(training_args.output_dir)) / TRAIN_FOLDER, PartialState()
    if state.is_main_process:
        shutil.rmtree(path, ignore_errors=True)
        make().save_to_disk(path)
    state.wait_for_everyone()
    # In memory, so that the files can be deleted.
    dataset = load_from_disk(str(path), keep_in_memory=True)
    state.wait_for_everyone()
    if state.is_main_process:
        shutil.rmtree(path, ignore_errors=True)
    return dataset
