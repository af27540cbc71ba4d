# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse evaluate`."""

import json
from dataclasses import asdict, dataclass, field
from typing import Any

from transformers.utils import logging

from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import CAPTION, format_table
from hf_dse.common.files import output_path, write_atomically
from hf_dse.data.arguments import DataArguments
from hf_dse.evaluation.arguments import ComparisonArguments
from hf_dse.inference.arguments import ChunkArguments, ModelArguments, SizeArguments


logger = logging.get_logger(__name__)


@dataclass
class EvaluateArguments:
    """Which splits to evaluate, and where to write the results."""

    split: list[str] | None = field(
        default=None, metadata={"help": "Splits to evaluate on. Default: validation of pairs, test of a corpus."}
    )
    output_file: str | None = field(default=None, metadata={"help": "JSON file for the results, as fractions of 1."})


def evaluate(argv: list[str]) -> None:
    """Evaluates a model on splits of a pair task, or by the search in a corpus; prints a table and writes JSON."""
    model_args, args, comparison_args, chunk_args, size_args, data_args = parse_args(
        argv,
        ModelArguments,
        EvaluateArguments,
        ComparisonArguments,
        ChunkArguments,
        SizeArguments,
        DataArguments,
        prog="hf-dse evaluate",
        description="Measure a model: correlation or accuracy on sentence pairs, or nDCG@10, MRR@10, MAP and recall "
        "of the search in a corpus, such as a folder in the form of BEIR. `--compare_with` adds a row for another "
        "search, `--bm25` one for BM25 and one for both, `--rerank` one for the reranker.",
    )
    from hf_dse.data.ranking_files import is_ranking_data

    output = None if args.output_file is None else output_path(args.output_file, (".json",))
    if is_ranking_data(data_args):
        names = args.split or ["test"]
        report = evaluate_search(model_args, comparison_args, chunk_args, size_args, data_args, names)
    elif comparison_args != ComparisonArguments() or chunk_args != ChunkArguments():
        raise ValueError(
            "`--bm25`, `--compare_with`, `--rerank` and `--chunks` are for searches in a corpus, and these data are "
            "sentence pairs: leave them out."
        )
    else:
        report = evaluate_pairs(model_args, size_args, data_args, args.split or ["validation"])
    if output is not None:
        report = {"model_name_or_path": model_args.model_name_or_path, **asdict(size_args), **report}
        write_atomically(output, lambda file: file.write((json.dumps(report, indent=2) + "\n").encode()))
        print(f"Written to {output}")


def evaluate_pairs(
    model_args: ModelArguments, size_args: SizeArguments, data_args: DataArguments, splits: list[str]
) -> dict[str, Any]:
    """Prints the metrics of pairs, and returns them with what was measured."""
    from hf_dse.data.pairs import load_pairs, resolve_task
    from hf_dse.evaluation.pairs import evaluate_model
    from hf_dse.inference.loading import load_model

    task = resolve_task(data_args)
    pairs = load_pairs(data_args, splits)
    model, tokenizer = load_model(model_args)
    results = {}
    for split in splits:
        metrics = evaluate_model(
            model,
            tokenizer,
            pairs[split],
            task=task,
            batch_size=model_args.batch_size,
            max_length=model_args.max_length,
            **asdict(size_args),
        )
        results[split] = {"num_pairs": len(pairs[split]), **metrics}
    print(format_table(results))
    logger.info(CAPTION)
    return {
        "task_name": task.name,
        "dataset_name": data_args.dataset_name,
        "max_length": model_args.max_length,
        "results": results,
    }


def evaluate_search(
    model_args: ModelArguments,
    args: ComparisonArguments,
    chunk_args: ChunkArguments,
    size_args: SizeArguments,
    data_args: DataArguments,
    names: list[str],
) -> dict[str, Any]:
    """Prints the metrics of searches, and returns them with what was measured."""
    from hf_dse.data.ranking_files import load_rankings
    from hf_dse.evaluation.comparison import WITH_BM25, compare_searches

    splits = load_rankings(data_args, names)
    compared = compare_searches(model_args, args, chunk_args, splits, size_args)
    num_documents = {split: len(rankings.corpus) for split, rankings in splits.items()}
    for split, rows in compared.items():
        print(f"{split}: each query ranks all {num_documents[split]:,} documents; values x 100")
        print(format_table(rows, "search"))
    if any(len(rows) > 1 for rows in compared.values()):
        print("difference: of nDCG@10 to the first row, with its 95 % interval (bootstrap over the queries)")
    if any(name.endswith(WITH_BM25) for rows in compared.values() for name in rows):
        parts = "; of a chunk the mean of its own and its document's" if chunk_args.chunks else ""
        print(
            f"{WITH_BM25.strip()}: {args.bm25_weight} x BM25 / (best BM25 of the query) is added to the cosine{parts}"
        )
    return {
        "task_name": "retrieval",
        "dataset_name": data_args.dataset_name,
        "max_length": model_args.max_length,
        **(asdict(chunk_args) if chunk_args.chunks else {}),
        **({"bm25_weight": args.bm25_weight} if args.bm25 else {}),
        "num_documents": num_documents,
        "results": {split: next(iter(rows.values())) for split, rows in compared.items()},
        "comparison": compared,
    }
