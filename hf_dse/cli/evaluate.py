# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse evaluate`."""

import logging
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.options import MODEL, LoadArguments
from hf_dse.common.display import CAPTION, format_table
from hf_dse.common.options import HfArg
from hf_dse.data.options import DataArguments
from hf_dse.retrieval.options import BM25_WEIGHT


logger = logging.getLogger(__name__)


@dataclass
class EvaluateArguments:
    """The model to evaluate, and others to compare it with."""

    model_name_or_path: str = field(metadata=MODEL)
    split: list[str] | None = HfArg(
        default=None, help="Splits to evaluate on. Default: validation of pairs, test of a corpus."
    )
    compare_with: list[str] = HfArg(
        default_factory=list, help="On a corpus: other encoders, such as the source of the student."
    )
    bm25: bool = HfArg(default=False, help="On a corpus: add rows for BM25, alone and with each model.")
    bm25_weight: float = HfArg(
        default=BM25_WEIGHT, help="With `--bm25`: weight of BM25 / (the best BM25 of the query) beside the cosine."
    )


def evaluate(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """
    Measure a model: correlation or accuracy on sentence pairs, or nDCG@10, MRR@10, MAP and recall of the search in a
    corpus.

    hf-dse evaluate --model student/model --task_name stsb --split validation
    hf-dse evaluate --model student/model --dataset beir-folder --bm25
    """
    from hf_dse.data.ranking_files import is_ranking_data

    if is_ranking_data(data_args):
        evaluate_search(args, load_args, data_args)
    elif args.compare_with or args.bm25 or data_args.chunk_size is not None:
        raise ValueError("`--compare_with`, `--bm25` and `--chunk_size` are for a corpus, not sentence pairs.")
    else:
        evaluate_pairs(args, load_args, data_args)


def evaluate_pairs(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """Prints the metrics of sentence pairs."""
    from hf_dse.data.pairs import load_pairs, resolve_task
    from hf_dse.measure import pairs as measuring
    from hf_dse.measure.evaluate import load_for_pairs

    splits, task = args.split or ["validation"], resolve_task(data_args)
    pairs = load_pairs(data_args, splits)
    model, tokenizer = load_for_pairs(args.model_name_or_path, **load_args.loading)
    options: dict[str, Any] = {"batch_size": load_args.batch_size, "max_length": load_args.max_length}
    results: dict[str, dict[str, float]] = {}
    for split in splits:
        metrics = measuring.evaluate_pairs(model, tokenizer, pairs[split], task, **options)
        results[split] = {"num_pairs": len(pairs[split]), **metrics}
    print(format_table(results))
    logger.info(CAPTION)


def evaluate_search(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """Prints the metrics of searches."""
    from hf_dse.data.ranking_files import load_rankings
    from hf_dse.measure.compare import compare_searches
    from hf_dse.retrieval.sentence_transformer import to_sentence_transformer

    splits = load_rankings(data_args, args.split or ["test"])
    names = dict.fromkeys([args.model_name_or_path, *args.compare_with])
    compared = compare_searches(
        {name: to_sentence_transformer(name, **load_args.loading) for name in names},
        splits,
        bm25=args.bm25,
        bm25_weight=args.bm25_weight,
        batch_size=load_args.batch_size,
    )
    for split, rows in compared.items():
        size = splits[split].chunk_size
        unit = f"by their best passage of at most {size} tokens" if size else "by their first tokens"
        print(f"{split}: each query ranks all {len(set(splits[split].document_ids)):,} documents {unit}; values x 100")
        print(format_table(rows, "search"))
    if any(len(rows) > 1 for rows in compared.values()):
        print("difference: of nDCG@10 to the first row, with its 95 % interval (bootstrap over the queries)")
    print("tokens: of a text that are read at most")
    if args.bm25:
        print(f"with BM25: the cosine plus {args.bm25_weight} x BM25 / (best BM25 of the query)")
