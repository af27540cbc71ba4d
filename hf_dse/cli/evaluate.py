# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse evaluate`."""

import json
import logging
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.arguments import MODEL, LoadArguments
from hf_dse.common.display import CAPTION, format_table
from hf_dse.common.files import output_path, write_atomically
from hf_dse.common.options import HfArg
from hf_dse.data.arguments import DataArguments
from hf_dse.retrieval.arguments import BM25_WEIGHT, WITH_BM25


logger = logging.getLogger(__name__)


@dataclass
class EvaluateArguments:
    """The model to evaluate, and others to compare it with."""

    model_name_or_path: str = field(metadata=MODEL)
    split: list[str] | None = HfArg(
        default=None, help="Splits to evaluate on. Default: validation of pairs, test of a corpus."
    )
    output_file: str | None = HfArg(default=None, help="JSON file for the results, as fractions of 1.")
    compare_with: list[str] = HfArg(
        default_factory=list, help="On a corpus: other encoders, such as the source of the student."
    )
    bm25: bool = HfArg(default=False, help="On a corpus: add rows for BM25, alone and with each model.")
    bm25_weight: float = HfArg(
        default=BM25_WEIGHT, help="With `--bm25`: weight of BM25 / (the best BM25 of the query) beside the cosine."
    )
    chunk_size: int | None = HfArg(
        default=None,
        help="On a corpus: a vector per chunk of at most so many tokens, such as 128, of which the best counts.",
    )


def evaluate(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """
    Measure a model: correlation or accuracy on sentence pairs, or nDCG@10, MRR@10, MAP and recall of the search in a
    corpus.

    hf-dse evaluate --model student/model --task_name stsb --split validation
    hf-dse evaluate --model student/model --dataset beir-folder --bm25
    """
    from hf_dse.data.ranking_files import is_ranking_data

    output = None if args.output_file is None else output_path(args.output_file, (".json",))
    if is_ranking_data(data_args):
        report = evaluate_search(args, load_args, data_args)
    elif args.compare_with or args.bm25 or args.chunk_size is not None:
        raise ValueError("`--compare_with`, `--bm25` and `--chunk_size` are for a corpus, not sentence pairs.")
    else:
        report = evaluate_pairs(args, load_args, data_args)
    if output is not None:
        report = {"model_name_or_path": args.model_name_or_path, "max_length": load_args.max_length, **report}
        write_atomically(output, lambda file: file.write((json.dumps(report, indent=2) + "\n").encode()))
        print(f"Written to {output}")


def evaluate_pairs(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> dict[str, Any]:
    """Prints the metrics of sentence pairs, and returns them with what was measured."""
    from hf_dse.data.pairs import load_pairs, resolve_task
    from hf_dse.pipeline.evaluate import load_for_pairs
    from hf_dse.retrieval import evaluation

    splits, task = args.split or ["validation"], resolve_task(data_args)
    pairs = load_pairs(data_args, splits)
    model, tokenizer = load_for_pairs(args.model_name_or_path, **load_args.loading)
    options: dict[str, Any] = {"batch_size": load_args.batch_size, "max_length": load_args.max_length}
    results: dict[str, dict[str, float]] = {}
    for split in splits:
        metrics = evaluation.evaluate_pairs(model, tokenizer, pairs[split], task, **options)
        results[split] = {"num_pairs": len(pairs[split]), **metrics}
    print(format_table(results))
    logger.info(CAPTION)
    return {"task_name": task.name, "dataset_name": data_args.dataset_name, "results": results}


def evaluate_search(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> dict[str, Any]:
    """Prints the metrics of searches, and returns them with what was measured."""
    from hf_dse.data.ranking_files import load_rankings
    from hf_dse.retrieval.comparison import compare_searches

    splits = load_rankings(data_args, args.split or ["test"])
    names = dict.fromkeys([args.model_name_or_path, *args.compare_with])
    compared = compare_searches(
        {name: load_args.load(name) for name in names},
        splits,
        bm25=args.bm25,
        bm25_weight=args.bm25_weight,
        chunk_size=args.chunk_size,
        batch_size=load_args.batch_size,
    )
    num_documents = {split: len(rankings.corpus) for split, rankings in splits.items()}
    for split, rows in compared.items():
        print(f"{split}: each query ranks all {num_documents[split]:,} documents; values x 100")
        print(format_table(rows, "search"))
    if any(len(rows) > 1 for rows in compared.values()):
        print("difference: of nDCG@10 to the first row, with its 95 % interval (bootstrap over the queries)")
    print("tokens: of a text that are read at most")
    if any(name.endswith(WITH_BM25) for rows in compared.values() for name in rows):
        print(f"{WITH_BM25.strip()}: the cosine plus {args.bm25_weight} x BM25 / (best BM25 of the query)")
    return {
        "task_name": "retrieval",
        "dataset_name": data_args.dataset_name,
        "num_documents": num_documents,
        "chunk_size": args.chunk_size,
        "bm25_weight": args.bm25_weight if args.bm25 else None,
        "results": {split: next(iter(rows.values())) for split, rows in compared.items()},
        "comparison": compared,
    }
