# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scoring the pairs of files, with one teacher or the mean of several, here or with Ray."""

from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.devices import default_device
from hf_dse.common.provenance import fingerprint
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.teacher.load import load_teacher
from hf_dse.teacher.score import score_pairs, score_similarities


@dataclass
class ScoreArguments:
    """Which teacher scores which split, and where the result goes."""

    model_name_or_path: list[str] = field(
        metadata={
            "help": "The cross-encoder: a folder or a Hub name. The logits of several, such as one recipe with "
            "several seeds, are averaged."
        }
    )
    output_file: str = field(
        metadata={
            "help": "File for the pairs with their scores: .jsonl or .parquet. With `--engine ray` a folder: "
            "`--dataset_name` names .parquet files, and each of them gets one there."
        }
    )
    bi_encoder: bool = field(
        default=False,
        metadata={
            "help": "The model embeds each sentence alone, as a student's source does: its score is the cosine, times "
            "`similarity_scale`, plus `similarity_bias`."
        },
    )
    similarity_scale: float = field(default=5.0, metadata={"help": "What a bi-encoder's cosine is multiplied with."})
    similarity_bias: float = field(default=0.0, metadata={"help": "What is added to it, the score of a cosine of 0."})
    split: str = field(default="train", metadata={"help": "The split to score; in a folder the name of any file."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Number format of the teacher's weights; bfloat16 is faster where the hardware has it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    max_length: int = field(default=128, metadata={"help": "Tokens after which a pair is cut."})
    batch_size: int = field(default=64, metadata={"help": "Pairs in a batch; fewer above 512 tokens a pair."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of known scores, from which a run that was stopped goes on. Defaults to `.hf-dse-scores` "
            "beside the output file."
        },
    )


def load_scorer(name: str, args: ScoreArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a cross-encoder, or a bi-encoder where `args` says so, and its tokenizer."""
    if args.bi_encoder:
        return load_model(ModelArguments(name, args.model_revision, args.trust_remote_code, args.dtype, args.device))
    return load_teacher(name, dtype=args.dtype, revision=args.model_revision, trust_remote_code=args.trust_remote_code)


def score_with(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    pairs: Dataset,
    args: ScoreArguments,
    *,
    max_length: int,
    symmetric: bool,
    cache_dir: str | Path | None = None,
    show_progress: bool = True,
) -> Dataset:
    """Adds the scores of one model to pairs in the way that `args` says."""
    options: dict[str, Any] = {
        "processing_class": processing_class,
        "batch_size": args.batch_size,
        "max_length": max_length,
        "device": args.device or default_device(),
        "show_progress": show_progress,
    }
    if args.bi_encoder:
        return score_similarities(model, pairs, scale=args.similarity_scale, bias=args.similarity_bias, **options)
    return score_pairs(model, pairs, symmetric=symmetric, cache_dir=cache_dir, **options)


class PairScorer:
    """What scores the shards of `hf-dse score --engine ray`, see [`~hf_dse.inference.ray_engine.ShardModel`]."""

    column = "teacher_logits"
    type = pyarrow.list_(pyarrow.float64())

    def __init__(self, args: ScoreArguments, max_length: int, symmetric: bool, device: str):
        self.args = replace(args, device=device)
        self.num_rows = 128 * args.batch_size
        self.options: dict[str, Any] = {"max_length": max_length, "symmetric": symmetric}
        self.models = [load_scorer(name, self.args) for name in args.model_name_or_path]
        self.settings = {"models": [fingerprint(*model) for model in self.models], **self.options}
        if args.bi_encoder:
            self.settings |= {"scale": args.similarity_scale, "bias": args.similarity_bias}
        # A limit that does not fit the teacher shall fail now.
        self([[], []])

    def __call__(self, columns: list[list[str]]) -> pyarrow.Array:
        first, second = columns
        for row, pair in enumerate(zip(first, second, strict=True)):
            if not all(isinstance(text, str) and text.strip() for text in pair):
                raise ValueError(f"pair {row} is {pair!r}, and both have to be texts: repair it or leave it out.")
        pairs = Dataset.from_dict({"sentence1": first, "sentence2": second})
        options = {"show_progress": False, **self.options}
        logits = [score_with(*model, pairs, self.args, **options)[self.column][:] for model in self.models]
        return pyarrow.array(np.mean(logits, axis=0).tolist(), self.type)
