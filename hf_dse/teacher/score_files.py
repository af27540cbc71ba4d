# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Scores of the pairs or rankings of files, by one teacher or the mean of several: what `hf-dse score` does."""

from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import pyarrow
from datasets import Dataset

from hf_dse.common.files import output_path
from hf_dse.common.provenance import describe_source
from hf_dse.data.arguments import DataArguments
from hf_dse.data.pairs import check_pairs, load_pairs, resolve_task
from hf_dse.data.ranking_files import is_ranking_data, load_rankings
from hf_dse.data.rankings import Rankings, make_rankings, write_rankings
from hf_dse.data.shards import run_on_shards
from hf_dse.data.tables import OUTPUT_ENDINGS, write_table
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer
from hf_dse.teacher.arguments import EngineArguments, ScoreArguments
from hf_dse.teacher.rerankers import check_labels, identify, load_reranker
from hf_dse.teacher.score import score_pairs, with_logits
from hf_dse.teacher.score_candidates import check_scores, score_candidates


# The options of the data that have an effect on shards.
SHARD_OPTIONS = ("dataset_name", "task_name", "num_labels", "sentence1_column", "sentence2_column", "symmetric")


def score_files(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> str:
    """Scores a split, or parquet shards with Ray, writes it, and returns what it was, such as `120 scored pairs`."""
    args = replace(args, model_name_or_path=list(dict.fromkeys(args.model_name_or_path)))
    if engine_args.engine == "ray":
        return _score_shards(args, data_args, engine_args)
    output = output_path(args.output_file, OUTPUT_ENDINGS)
    args = replace(args, cache_dir=args.cache_dir or str(output.parent / ".hf-dse-scores"))
    is_ranking = is_ranking_data(data_args)
    teachers = _load_teachers(args, is_ranking)
    if not is_ranking:
        data_args = _with_task(data_args, teachers)
        pairs = load_pairs(data_args, [args.split], require_labels=False, keep_columns=True)[args.split]
        logits = _mean_scores(teachers, pairs, args, resolve_task(data_args).symmetric)
        write_table([with_logits(pairs, logits)], output)
        return f"{len(pairs)} scored pairs"
    rankings = load_rankings(data_args, [args.split])[args.split]
    scored = Rankings(with_logits(rankings.queries, _mean_scores(teachers, rankings, args)), rankings.corpus)
    names = " and ".join(describe_source(name).name for name in args.model_name_or_path)
    check_scores(scored, names, are_raw=True)
    write_rankings(scored, output, f"{names} ({_how(args)})")
    return f"{len(scored)} queries with scored candidates ({_how(args)})"


def _load_teachers(args: ScoreArguments, is_ranking: bool) -> list[Any]:
    if not is_ranking and (args.bm25_weight or args.windows != "first"):
        raise ValueError("`--bm25_weight` and `--windows` are options of rankings, and the data are sentence pairs.")
    options: dict[str, Any] = {"trust_remote_code": args.trust_remote_code, "dtype": args.dtype, "device": args.device}
    load = load_sentence_transformer if args.bi_encoder else load_reranker
    return [load(name, max_length=args.max_length, **options) for name in args.model_name_or_path]


def _with_task(data_args: DataArguments, teachers: list[Any]) -> DataArguments:
    """The data with a task, which has to fit the teachers: without a name, one of as many labels as logits."""
    if data_args.task_name is None and data_args.num_labels is None:
        data_args = replace(data_args, num_labels=getattr(teachers[0], "num_labels", 1))
    for teacher in teachers:
        check_labels(teacher, resolve_task(data_args))
    return data_args


def _mean_scores(
    teachers: list[Any], data: Dataset | Rankings, args: ScoreArguments, symmetric: bool = False
) -> list[list[float]]:
    """For each row, the mean over teachers of its logits, or of the scores of its candidates."""
    options: dict[str, Any] = {"batch_size": args.batch_size, "cache_dir": args.cache_dir}
    scores = []
    for teacher in teachers:
        if isinstance(data, Rankings):
            options |= {"windows": args.windows, "bm25_weight": args.bm25_weight}
            scores.append(score_candidates(teacher, data, **options).queries["teacher_logits"][:])
        else:
            scores.append(score_pairs(teacher, data, symmetric=symmetric, **options)["teacher_logits"][:])
    return [np.mean(rows, axis=0).tolist() for rows in zip(*scores, strict=True)]


def _score_shards(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> str:
    if data_args != DataArguments(**{name: getattr(data_args, name) for name in SHARD_OPTIONS}):
        known = ", ".join(f"`--{name}`" for name in SHARD_OPTIONS)
        raise ValueError(f"`--engine ray` scores all rows: leave out options of the data except {known}.")
    if args.bm25_weight:
        raise ValueError("`--bm25_weight` needs the whole corpus, and with `--engine ray` a worker knows one shard.")
    is_ranking = data_args.task_name is None and data_args.num_labels is None
    # Fail early, and tell the outputs of one teacher from those of another.
    teachers = _load_teachers(replace(args, device="cpu"), is_ranking)
    columns, symmetric = ["query", "documents"], False
    if not is_ranking:
        task = resolve_task(_with_task(data_args, teachers))
        columns, symmetric = [task.sentence1, task.sentence2], task.symmetric
    settings = {"teachers": [identify(teacher) for teacher in teachers], "columns": columns, "symmetric": symmetric}
    settings |= {"max_length": args.max_length, "windows": args.windows}
    # Paths that any process finds.
    names = [str(Path(name).absolute()) if Path(name).exists() else name for name in args.model_name_or_path]
    num_rows = run_on_shards(
        partial(ShardScorer, replace(args, model_name_or_path=names), data_args, columns, symmetric),
        str(data_args.dataset_name),
        args.output_file,
        columns,
        "teacher_logits",
        settings=settings,
        num_workers=engine_args.num_workers,
        num_gpus=engine_args.num_gpus,
    )
    return f"{num_rows} {f'queries with scored candidates ({_how(args)})' if is_ranking else 'scored pairs'}"


class ShardScorer:
    """Scores the rows of a shard in a Ray worker, for [`run_on_shards`]."""

    def __init__(
        self, args: ScoreArguments, data_args: DataArguments, columns: list[str], symmetric: bool, device: str
    ):
        self.args, self.data_args, self.columns, self.symmetric = args, data_args, columns, symmetric
        self.is_ranking = columns == ["query", "documents"]
        self.teachers = _load_teachers(replace(args, device=device), self.is_ranking)

    def __call__(self, batch: dict[str, list]) -> pyarrow.Array:
        first, second = (batch[name] for name in self.columns)
        scores: list[list[float]] = []
        if first and self.is_ranking:
            rows = {text: row for row, text in enumerate(dict.fromkeys(text for texts in second for text in texts))}
            queries = {"query": first, "documents": [[rows[text] for text in texts] for texts in second]}
            scores = _mean_scores(self.teachers, make_rankings(queries, {"text": list(rows)}), self.args)
        elif first:
            pairs = check_pairs(Dataset.from_dict(batch), self.data_args, require_labels=False)["train"]
            scores = _mean_scores(self.teachers, pairs, self.args, self.symmetric)
        return pyarrow.array(scores, pyarrow.list_(pyarrow.float64()))


def _how(args: ScoreArguments) -> str:
    """How candidates are scored."""
    parts = ["cosine + BM25" if args.bm25_weight else "cosine"] if args.bi_encoder else []
    if args.windows != "first" or not args.bi_encoder:
        parts.append(f"windows: {args.windows}")
    return ", ".join(parts)
