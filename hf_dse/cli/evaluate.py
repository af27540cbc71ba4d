# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse evaluate`."""

import json
from dataclasses import dataclass, field

from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import format_table
from hf_dse.common.files import output_path, write_atomically
from hf_dse.data.pairs import DataArguments, load_pairs, resolve_task
from hf_dse.evaluation import evaluate_model
from hf_dse.inference.loading import ModelArguments, load_model


@dataclass
class EvaluateArguments:
    """Which splits to evaluate, and where to write the results."""

    split: list[str] = field(default_factory=lambda: ["validation"], metadata={"help": "Splits to evaluate on."})
    output_file: str | None = field(default=None, metadata={"help": "JSON file for the results, as fractions of 1."})


def evaluate(argv: list[str]) -> None:
    """Evaluates a model on splits of a pair task; prints a table and writes JSON."""
    model_args, args, data_args = parse_args(
        argv,
        ModelArguments,
        EvaluateArguments,
        DataArguments,
        prog="hf-dse evaluate",
        description="Evaluate a model on a sentence-pair task.",
    )
    task = resolve_task(data_args)
    output = None if args.output_file is None else output_path(args.output_file, (".json",))
    pairs = load_pairs(data_args, args.split)
    model, tokenizer = load_model(model_args)
    results = {}
    for split in args.split:
        metrics = evaluate_model(
            model,
            tokenizer,
            pairs[split],
            task=task,
            batch_size=model_args.batch_size,
            max_length=model_args.max_length,
        )
        results[split] = {"num_pairs": len(pairs[split]), **metrics}
    print(format_table(results))
    if output is not None:
        report = {
            "model_name_or_path": model_args.model_name_or_path,
            "task_name": task.name,
            "dataset_name": data_args.dataset_name,
            "max_length": model_args.max_length,
            "results": results,
        }
        write_atomically(output, lambda file: file.write((json.dumps(report, indent=2) + "\n").encode()))
        print(f"Written to {output}")
