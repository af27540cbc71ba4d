# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scoring the pairs of files, with one teacher or the mean of several, here or with Ray."""

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
from hf_dse.teacher.load import check_num_labels, load_teacher
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


def score_files(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> int:
    """
    Scores the pairs of a split, or of parquet shards with Ray, and writes them with a column `teacher_logits`.

    Args:
        args ([`ScoreArguments`]):
            The teachers, and where the result goes.
        data_args ([`DataArguments`]):
            The pairs.
        engine_args ([`EngineArguments`]):
            This process, or workers of Ray.

    Returns:
        `int`: the number of scored pairs.

    Raises:
        `ValueError`: for teachers, data or options that do not fit.
    """
    is_local = engine_args.engine == "local"
    output = output_path(args.output_file, OUTPUT_ENDINGS) if is_local else Path(args.output_file)
    names = list(dict.fromkeys(args.model_name_or_path))
    source = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    num_logits = dict.fromkeys(names, 1)
    if not args.bi_encoder:
        # Fail before hours of scoring.
        num_logits = {name: AutoConfig.from_pretrained(name, **source).num_labels for name in names}
    if len(set(num_logits.values())) > 1:
        found = ", ".join(f"{number} in {name}" for name, number in num_logits.items())
        raise ValueError(f"Teachers that are averaged need equally many logits: {found}. Score with each alone.")
    if data_args.task_name is None and data_args.num_labels is None:
        data_args.num_labels = num_logits[names[0]]
    task = resolve_task(data_args)
    if args.bi_encoder and task.num_labels != 1:
        raise ValueError(
            f"A bi-encoder's cosine is one number, and task {task.name!r} has {task.num_labels} labels: score it with "
            "a cross-encoder, or as a task with `num_labels=1`."
        )
    check_num_labels(num_logits[names[0]], task)
    if not is_local:
        unused = ("dataset_config_name", "train_file", "validation_file", "test_file")
        refuse_options(data_args, *unused, "max_train_samples", "max_eval_samples", "drop_empty_sentences")
        refuse_options(args, "device", "cache_dir", "split")
        if data_args.dataset_name is None:
            raise ValueError("`--engine ray` reads parquet files: name one, a folder or a glob with `--dataset_name`.")
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
        # One teacher at a time is in memory.
        scored = score_with(*load_scorer(name, args), pairs, args, **options)
        logits.append(scored["teacher_logits"][:])
    scored = scored.remove_columns("teacher_logits").add_column("teacher_logits", np.mean(logits, axis=0).tolist())
    write_pairs(scored, output)
    return len(scored)


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
        "device": choose_device(args.device),
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
