# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scoring pairs of files with one teacher or the mean of several, in this process or with Ray."""

from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset
from transformers import AutoConfig, PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.devices import choose_device
from hf_dse.common.files import output_path
from hf_dse.common.provenance import fingerprint
from hf_dse.data.pairs import DataArguments, load_pairs, resolve_task
from hf_dse.data.tables import OUTPUT_ENDINGS, write_pairs
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.inference.ray_engine import EngineArguments, local_or_hub, refuse_options, run_on_shards
from hf_dse.teacher.load import check_labels, load_teacher
from hf_dse.teacher.score import score_pairs, score_similarities


@dataclass
class ScoreArguments:
    """Which teacher scores which split, and where to write the scores."""

    model_name_or_path: list[str] = field(
        metadata={
            "help": "The cross-encoder: a Hub id or a folder. The logits of several, such as several seeds, are "
            "averaged."
        }
    )
    output_file: str = field(
        metadata={
            "help": "File for the scored pairs: .jsonl or .parquet. With `--engine ray`: a folder with one file for "
            "each .parquet file of `--dataset_name`."
        }
    )
    bi_encoder: bool = field(
        default=False,
        metadata={
            "help": "The model is a bi-encoder, such as the source of a student. The score is `similarity_scale` "
            "times the cosine, plus `similarity_bias`."
        },
    )
    similarity_scale: float = field(default=5.0, metadata={"help": "Factor of a bi-encoder's cosine."})
    similarity_bias: float = field(default=0.0, metadata={"help": "Score of a bi-encoder's cosine of 0."})
    split: str = field(default="train", metadata={"help": "Split to score; for a folder, the name of any file in it."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    max_length: int = field(default=128, metadata={"help": "Maximum number of tokens per pair."})
    batch_size: int = field(default=64, metadata={"help": "Pairs per batch; fewer for pairs longer than 512 tokens."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of cached scores, from which an interrupted run continues. Defaults to `.hf-dse-scores` "
            "next to the output file."
        },
    )


def score_files(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> int:
    """
    Scores the pairs of a split, or of parquet shards with Ray, and writes them with a column `teacher_logits`.

    Args:
        args ([`ScoreArguments`]):
            The teachers, and where to write the scores.
        data_args ([`DataArguments`]):
            The pairs.
        engine_args ([`EngineArguments`]):
            Whether to run in this process or in Ray workers.

    Returns:
        `int`: the number of scored pairs.

    Raises:
        `ValueError`: if teachers, data or options are invalid or do not match.
    """
    is_local = engine_args.engine == "local"
    output = output_path(args.output_file, OUTPUT_ENDINGS) if is_local else Path(args.output_file)
    names = list(dict.fromkeys(args.model_name_or_path))
    source = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    # Fail early, before hours of scoring.
    configs = {} if args.bi_encoder else {name: AutoConfig.from_pretrained(name, **source) for name in names}
    num_logits = {name: configs[name].num_labels if name in configs else 1 for name in names}
    if len(set(num_logits.values())) > 1:
        found = ", ".join(f"{number} in {name}" for name, number in num_logits.items())
        raise ValueError(f"Averaged teachers need the same number of logits: {found}. Score with each separately.")
    if data_args.task_name is None and data_args.num_labels is None:
        data_args.num_labels = num_logits[names[0]]
    task = resolve_task(data_args)
    if args.bi_encoder and task.num_labels != 1:
        raise ValueError(
            f"A bi-encoder gives one score per pair, but task {task.name!r} has {task.num_labels} labels: use a "
            "cross-encoder, or a task with `num_labels=1`."
        )
    for config in configs.values():
        check_labels(config, task)
    if not is_local:
        unused = ("dataset_config_name", "train_file", "validation_file", "test_file")
        refuse_options(data_args, *unused, "max_train_samples", "max_eval_samples", "drop_empty_sentences")
        refuse_options(args, "device", "cache_dir", "split")
        if data_args.dataset_name is None:
            raise ValueError("`--engine ray` reads parquet files: pass one, a folder or a glob as `--dataset_name`.")
        args.model_name_or_path = [local_or_hub(name) for name in names]
        load = partial(PairScorer, args, args.max_length, task.symmetric)
        columns = [task.sentence1, task.sentence2]
        return run_on_shards(load, data_args.dataset_name, args.output_file, columns, engine_args)
    pairs = load_pairs(data_args, [args.split], require_labels=False)[args.split]
    options: dict[str, Any] = {
        "max_length": args.max_length,
        "symmetric": task.symmetric,
        "cache_dir": args.cache_dir or output.parent / ".hf-dse-scores",
    }
    logits = []
    for name in names:
        # Only one teacher is in memory at a time.
        scored = score_with(*load_scorer(name, args), pairs, args, **options)
        logits.append(scored["teacher_logits"][:])
    scored = scored.remove_columns("teacher_logits").add_column("teacher_logits", np.mean(logits, axis=0).tolist())
    write_pairs(scored, output)
    return len(scored)


def load_scorer(name: str, args: ScoreArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """Loads a cross-encoder, or a bi-encoder if `args.bi_encoder` is set, with its tokenizer."""
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
    """Adds the scores of one model to pairs, with the options of `args`."""
    options: dict[str, Any] = {
        "processing_class": processing_class,
        "batch_size": args.batch_size,
        "max_length": max_length,
        "device": choose_device(args.device),
        "show_progress": show_progress,
    }
    if args.bi_encoder:
        return score_similarities(model, pairs, scale=args.similarity_scale, bias=args.similarity_bias, **options)
    return score_pairs(model, pairs, symmetric=symmetric, cache_dir=cache_dir, **options)


class PairScorer:
    """The [`~hf_dse.inference.ray_engine.ShardModel`] of `hf-dse score --engine ray`."""

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
        # Fail early if `max_length` does not fit the teacher.
        self([[], []])

    def __call__(self, columns: list[list[str]]) -> pyarrow.Array:
        first, second = columns
        for row, pair in enumerate(zip(first, second, strict=True)):
            if not all(isinstance(text, str) and text.strip() for text in pair):
                raise ValueError(f"pair {row} is {pair!r}, but both have to be non-empty texts: fix or remove it.")
        pairs = Dataset.from_dict({"sentence1": first, "sentence2": second})
        options = {"show_progress": False, **self.options}
        logits = [score_with(*model, pairs, self.args, **options)[self.column][:] for model in self.models]
        return pyarrow.array(np.mean(logits, axis=0).tolist(), self.type)
