# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score`."""

from functools import partial
from pathlib import Path

import numpy as np
from transformers import AutoConfig

from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path
from hf_dse.data.pairs import DataArguments, load_pairs, resolve_task
from hf_dse.data.tables import OUTPUT_ENDINGS, write_pairs
from hf_dse.inference.ray_engine import EngineArguments, local_or_hub, refuse_options, run_on_shards
from hf_dse.teacher.load import check_num_labels
from hf_dse.teacher.score_files import PairScorer, ScoreArguments, load_scorer, score_with


def score(argv: list[str]) -> None:
    """Adds a teacher's logits to the pairs of a split and writes them to a file."""
    args, data_args, engine_args = parse_args(
        argv,
        ScoreArguments,
        DataArguments,
        EngineArguments,
        prog="hf-dse score",
        description="Add a teacher's scores to sentence pairs. Both orders of a pair are scored where the task is "
        "symmetric; `--symmetric true` or `--symmetric false` overrides what the task says.",
    )
    is_local = engine_args.engine == "local"
    output = output_path(args.output_file, OUTPUT_ENDINGS) if is_local else Path(args.output_file)
    names = list(dict.fromkeys(args.model_name_or_path))
    source = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    num_logits = dict.fromkeys(names, 1)
    if not args.bi_encoder:
        # What cannot be averaged shall fail before hours of scoring.
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
        num_rows = run_on_shards(load, data_args.dataset_name, args.output_file, columns, engine_args)
        print(f"{num_rows} scored pairs written to {output}")
        return
    pairs = load_pairs(data_args, [args.split], require_labels=False)[args.split]
    options = {
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
    print(f"{len(scored)} scored pairs written to {output}")
