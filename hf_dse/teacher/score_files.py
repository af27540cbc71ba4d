# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scoring pairs and rankings of files with one teacher or the mean of several, in this process or with Ray."""

import math
from collections.abc import Mapping
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset
from transformers.utils import logging

from hf_dse.common.devices import choose_device
from hf_dse.common.files import output_path, to_path
from hf_dse.common.hub import pin
from hf_dse.common.options import refuse_options
from hf_dse.common.provenance import describe_source
from hf_dse.data.pairs import DataArguments, load_pairs, resolve_task
from hf_dse.data.ranking_files import is_ranking_data, load_rankings
from hf_dse.data.ranking_rows import is_ranking
from hf_dse.data.rankings import Rankings, make_rankings, write_rankings
from hf_dse.data.tables import OUTPUT_ENDINGS, read_schema, read_table, to_columns, write_pairs
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.inference.ray_engine import (
    EngineArguments,
    count_rows,
    find_shards,
    local_or_hub,
    refuse_with_ray,
    run_on_shards,
)
from hf_dse.teacher.arguments import PAIR_LENGTH, ScoreArguments
from hf_dse.teacher.bi_encoders import BiEncoder, score_candidates_by_similarity
from hf_dse.teacher.load import check_labels
from hf_dse.teacher.rerankers import Reranker, load_reranker, teacher_config
from hf_dse.teacher.score import score_pairs, score_similarities
from hf_dse.teacher.score_candidates import check_score_lists, check_scores, score_candidates, with_scores


logger = logging.get_logger(__name__)


def score_files(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> str:
    """
    Scores the pairs or the candidates of a split, or of parquet shards with Ray, and writes them with a column
    `teacher_logits`.

    Args:
        args ([`ScoreArguments`]):
            The teachers, and where to write the scores.
        data_args ([`DataArguments`]):
            The pairs, or the queries with candidates.
        engine_args ([`EngineArguments`]):
            Whether to run in this process or in Ray workers.

    Returns:
        `str`: what was written, such as `120 scored pairs`.

    Raises:
        `ValueError`: if teachers, data or options are invalid or do not match.
    """
    is_local = engine_args.engine == "local"
    output = output_path(args.output_file, OUTPUT_ENDINGS) if is_local else Path(args.output_file)
    if not is_local:
        unused = ("dataset_config_name", "train_file", "validation_file", "test_file", "corpus_file")
        refuse_with_ray(data_args, *unused, "max_train_samples", "max_eval_samples", "drop_empty_sentences")
        refuse_with_ray(args, "device", "cache_dir", "split")
        if data_args.dataset_name is None:
            raise ValueError("`--engine ray` reads parquet files: pass one, a folder or a glob as `--dataset_name`.")
    if _has_rankings(data_args, is_local):
        return _score_rankings(args, data_args, engine_args)
    refuse_options(args, "is an option of rankings, and the data are pairs of sentences", "bm25_weight", "windows")
    max_length = PAIR_LENGTH if args.max_length is None else args.max_length
    names = list(dict.fromkeys(args.model_name_or_path))
    source: dict[str, Any] = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    # Fail early, before hours of scoring.
    configs = {} if args.bi_encoder else {name: teacher_config(name, **source) for name in names}
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
        args.model_name_or_path = [local_or_hub(name) for name in names]
        load = partial(PairScorer, args, max_length, task.symmetric)
        columns = [task.sentence1, task.sentence2]
        files = run_on_shards(load, str(data_args.dataset_name), args.output_file, columns, engine_args)
        return f"{count_rows(files)} scored pairs"
    pairs = load_pairs(data_args, [args.split], require_labels=False, keep_columns=True)[args.split]
    options: dict[str, Any] = {
        "max_length": max_length,
        "symmetric": task.symmetric,
        "cache_dir": _cache_dir(args, output),
    }
    logits = []
    for name in names:
        # Only one teacher is in memory at a time.
        scored = score_with(load_scorer(name, args), pairs, args, **options)
        logits.append(scored["teacher_logits"][:])
    scored = scored.remove_columns("teacher_logits").add_column("teacher_logits", np.mean(logits, axis=0).tolist())
    write_pairs(scored, output)
    logger.info(_describe_pairs(scored))
    return f"{len(scored)} scored pairs"


def _describe(values: Mapping[str, Any]) -> list[str]:
    """A table of the distribution of scores, and of what they are compared with."""
    lines = [f"{'':<22}{'mean':>9}{'std':>9}{'min':>9}{'max':>9}"]
    for name, column in values.items():
        numbers = (np.mean(column), np.std(column), np.min(column), np.max(column))
        lines.append(f"{name:<22}" + "".join(f"{number:>9.3f}" for number in numbers))
    return lines


def _describe_pairs(pairs: Dataset) -> str:
    logits = np.array(pairs["teacher_logits"][:])
    values = {"teacher's score" if logits.shape[1] == 1 else f"logit {i}": part for i, part in enumerate(logits.T)}
    if "label" not in pairs.column_names:
        return "\n".join(_describe(values))
    labels = np.array(pairs["label"][:], dtype=float)
    lines = _describe({**values, "label": labels})
    if logits.shape[1] > 1:
        lines.append(f"the teacher's class is the label in {np.mean(logits.argmax(1) == labels):.1%} of the pairs")
    elif logits.std() and labels.std():
        lines.append(f"Pearson correlation with the labels: {np.corrcoef(logits[:, 0], labels)[0, 1]:.4f}")
    return "\n".join(lines)


def _describe_rankings(scores: list[list[float]], labels: list[list[float]]) -> str:
    flat = np.array([score for row in scores for score in row])
    relevant = np.array([label > 0 for row in labels for label in row])
    parts = {"relevant candidates": flat[relevant], "other candidates": flat[~relevant]}
    lines = _describe({name: part for name, part in parts.items() if len(part)})
    first = [
        max(zip(row, known, strict=True))[1] > 0
        for row, known in zip(scores, labels, strict=True)
        if any(label > 0 for label in known)
    ]
    if len(parts["other candidates"]) and first:
        lines.append(f"a relevant candidate has the highest score for {np.mean(first):.1%} of the queries")
    return "\n".join(lines)


def _cache_dir(args: ScoreArguments, output: Path) -> str | Path:
    return args.cache_dir or output.parent / ".hf-dse-scores"


def _has_rankings(data_args: DataArguments, is_local: bool) -> bool:
    """Whether the data are queries with candidates; with Ray, the first shard tells."""
    if is_local:
        return is_ranking_data(data_args)
    is_pair_task = data_args.task_name is not None or data_args.num_labels is not None
    return not is_pair_task and is_ranking(read_schema(find_shards(str(data_args.dataset_name))[0]).names)


def _score_rankings(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> str:
    scale = ("similarity_scale", "similarity_bias")
    refuse_options(args, "is an option of pairs of sentences, and the data are queries with candidates", *scale)
    how = f"windows: {args.windows}"
    if args.bi_encoder:
        how = ("cosine + BM25" if args.bm25_weight else "cosine") + ("" if args.windows == "first" else f", {how}")
    names = list(dict.fromkeys(args.model_name_or_path))
    if engine_args.engine != "local":
        refuse_options(args, "needs the whole corpus, and with `--engine ray` a worker knows one shard", "bm25_weight")
        args.model_name_or_path = [local_or_hub(name) for name in names]
        load = partial(RankingScorer, args)
        columns = ["query", "documents"]
        files = run_on_shards(load, str(data_args.dataset_name), args.output_file, columns, engine_args)
        _check_shards(files, " and ".join(names), args.bi_encoder)
        return f"{count_rows(files)} queries with scored candidates ({how})"
    output = to_path(args.output_file)
    rankings = load_rankings(data_args, [args.split])[args.split]
    scores = []
    for name in names:
        # Only one teacher is in memory at a time.
        teacher = load_ranking_scorer(name, args)
        scored = score_rankings_with(teacher, rankings, args, cache_dir=_cache_dir(args, output))
        check_scores(scored, name, are_raw=args.bi_encoder)
        scores.append(scored.queries["teacher_logits"][:])
    means = mean_scores(scores)
    sources = [describe_source(pin(name, args.model_revision)).name for name in names]
    write_rankings(with_scores(rankings, means), output, f"{' and '.join(sources)} ({how})")
    logger.info(_describe_rankings(means, rankings.queries["labels"][:]))
    return f"{len(rankings)} queries with scored candidates ({how})"


def _check_shards(files: list[Path], name: str, are_raw: bool) -> None:
    """Checks the scores in files as [`check_scores`] does, all at once: those of a few queries may well be equal."""
    scores: list[list[float]] = []
    labels: list[list[float]] = []
    for file in files:
        schema = read_schema(file)
        names = [name for name in ("teacher_logits", "labels") if name in schema.names]
        table = to_columns(read_table(file, names), file)
        scores += table["teacher_logits"]
        known = table.get("labels") or [None] * len(table["teacher_logits"])
        labels += [
            row if row and len(row) == len(logits) else [math.nan] * len(logits)
            for row, logits in zip(known, table["teacher_logits"], strict=True)
        ]
    check_score_lists(scores, labels, name, are_raw)


def mean_scores(scores: list[list[list[float]]]) -> list[list[float]]:
    """The mean over teachers of the scores of each candidate."""
    return [np.mean(lists, axis=0).tolist() for lists in zip(*scores, strict=True)]


def load_scorer(name: str, args: ScoreArguments) -> Reranker:
    """Loads a cross-encoder, or a bi-encoder if `args.bi_encoder` is set, with its tokenizer."""
    if args.bi_encoder:
        model_args = ModelArguments(name, args.model_revision, args.trust_remote_code, args.dtype, args.device)
        return Reranker(*load_model(model_args))
    source: dict[str, Any] = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    return load_reranker(name, device=args.device, dtype=args.dtype, **source)


def load_ranking_scorer(name: str, args: ScoreArguments) -> Any:
    """Loads what scores candidates: a cross-encoder, or a `BiEncoder` if `args.bi_encoder` is set."""
    if not args.bi_encoder:
        return load_scorer(name, args)
    return BiEncoder(
        name,
        revision=args.model_revision,
        trust_remote_code=args.trust_remote_code,
        dtype=args.dtype,
        max_length=args.max_length,
        batch_size=args.batch_size,
        device=args.device,
    )


def score_rankings_with(
    teacher: Reranker | BiEncoder,
    rankings: Rankings,
    args: ScoreArguments,
    cache_dir: str | Path | None = None,
    show_progress: bool = True,
) -> Rankings:
    """Adds the scores of one model to rankings, with the options of `args`."""
    options: dict[str, Any] = {"windows": args.windows, "cache_dir": cache_dir, "show_progress": show_progress}
    if isinstance(teacher, BiEncoder):
        return score_candidates_by_similarity(teacher, rankings, bm25_weight=args.bm25_weight, **options)
    options |= {"batch_size": args.batch_size, "max_length": args.max_length}
    return score_candidates(teacher, rankings, **options)


def score_with(
    teacher: Reranker,
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
        "processing_class": teacher.processing_class,
        "batch_size": args.batch_size,
        "max_length": max_length,
        "device": choose_device(args.device),
        "show_progress": show_progress,
    }
    if args.bi_encoder:
        scale, bias = args.similarity_scale, args.similarity_bias
        return score_similarities(teacher.model, pairs, scale=scale, bias=bias, **options)
    return score_pairs(teacher, pairs, symmetric=symmetric, cache_dir=cache_dir, **options)


class PairScorer:
    """The [`~hf_dse.inference.ray_engine.ShardModel`] of `hf-dse score --engine ray`."""

    column = "teacher_logits"
    type = pyarrow.list_(pyarrow.float64())

    def __init__(self, args: ScoreArguments, max_length: int, symmetric: bool, device: str):
        self.args = replace(args, device=device)
        self.num_rows = 128 * args.batch_size
        self.options: dict[str, Any] = {"max_length": max_length, "symmetric": symmetric}
        self.models = [load_scorer(name, self.args) for name in args.model_name_or_path]
        self.settings = {"models": [model.fingerprint() for model in self.models], **self.options}
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
        logits = [score_with(model, pairs, self.args, **options)[self.column][:] for model in self.models]
        return pyarrow.array(np.mean(logits, axis=0).tolist(), self.type)


class RankingScorer:
    """The [`~hf_dse.inference.ray_engine.ShardModel`] of `hf-dse score --engine ray` for queries with candidates."""

    column = "teacher_logits"
    type = pyarrow.list_(pyarrow.float64())

    def __init__(self, args: ScoreArguments, device: str):
        self.args = replace(args, device=device)
        # Queries with about ten candidates each.
        self.num_rows = 16 * args.batch_size
        self.models = [load_ranking_scorer(name, self.args) for name in args.model_name_or_path]
        if args.bi_encoder:
            self.settings: dict[str, Any] = {"models": [[*model.settings, model.prompts] for model in self.models]}
        else:
            # Fail early if `max_length` does not fit the teacher.
            lengths = [model.check_max_length(args.max_length) for model in self.models]
            self.settings = {"models": [model.fingerprint() for model in self.models], "max_length": lengths}
        self.settings["windows"] = args.windows

    def __call__(self, columns: list[list]) -> pyarrow.Array:
        queries, lists = columns
        for row, documents in enumerate(lists):
            if not isinstance(documents, list):
                raise ValueError(f"the documents of query {row} are {documents!r}, not a list of texts.")
        if not queries:
            return pyarrow.array([], self.type)
        rows = {text: row for row, text in enumerate(dict.fromkeys(text for texts in lists for text in texts))}
        candidates = [[rows[text] for text in texts] for texts in lists]
        rankings = make_rankings({"query": queries, "documents": candidates}, {"text": list(rows)})
        scored = [score_rankings_with(model, rankings, self.args, show_progress=False) for model in self.models]
        return pyarrow.array(mean_scores([part.queries[self.column][:] for part in scored]), self.type)
