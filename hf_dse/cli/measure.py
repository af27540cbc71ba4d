# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse assess` and `hf-dse evaluate`."""

import logging
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING, Any

from hf_dse.cli.output import say_next, to_words
from hf_dse.cli.parsing import MODEL, LoadArguments
from hf_dse.common.display import CAPTION, format_table
from hf_dse.common.options import HfArg, check_at_least, given_options
from hf_dse.data.options import DataArguments
from hf_dse.retrieval.options import BM25_WEIGHT, RERANK_TOP, RERANK_WEIGHT, check_reranking
from hf_dse.teacher.options import WindowOptions


if TYPE_CHECKING:
    from hf_dse.data.rankings import Rankings
    from hf_dse.measure.assess import Assessment

logger = logging.getLogger(__name__)

# Columns of the table of `assess`.
COLUMNS = ("ndcg@10", "recall@100", "difference", "low", "high", "share", "tokens", "query_ms", "corpus_seconds")
WEIGHTS = (
    f"share: of BM25 / (the best BM25 of the query) beside the cosine ({BM25_WEIGHT} if nothing else is known), or of "
    f"the reranker beside the search ({RERANK_WEIGHT}; 1: its order alone)"
)
# Fewer labelled queries teach little.
ENOUGH_QUERIES = 100


@dataclass
class AssessArguments:
    """Models to compare, and on which queries."""

    model_name_or_path: str = field(metadata=MODEL)
    rerank: str | None = HfArg(default=None, help="The reranker that may be distilled: a Hub id or a folder.")
    rerank_top: list[int] | None = HfArg(
        default=None,
        help=f"How many documents of a query the reranker reads. Default: {' and '.join(map(str, RERANK_TOP))}.",
    )
    compare_with: list[str] = HfArg(default_factory=list, help="Other models, such as a student.")
    split: str | None = HfArg(default=None, help="Split of the judged queries. Default: test, or else validation.")
    bm25_weight: float | None = HfArg(
        default=None,
        help="Weight of BM25 / (the best BM25 of the query) beside the cosine. Default: fitted for each model on "
        f"judged queries of another split, or kept in its folder, or {BM25_WEIGHT}.",
    )
    rerank_weight: float | None = HfArg(
        default=None,
        help="Share of the reranker's score beside the search's, from 0 to 1. Default: fitted on judged queries of "
        f"another split, or {RERANK_WEIGHT}.",
    )
    max_queries: int = HfArg(default=200, help="Queries to draw, or to make of the documents.")

    def __post_init__(self) -> None:
        check_at_least(1, max_queries=self.max_queries, rerank_top=min(self.rerank_top or RERANK_TOP))
        check_reranking(self.rerank, rerank_top=self.rerank_top, rerank_weight=self.rerank_weight)


def assess(
    args: AssessArguments, load_args: LoadArguments, window_args: WindowOptions, data_args: DataArguments
) -> None:
    """
    Tell whether there is something to distil: a model, BM25, both together and a reranker on the same queries, at
    equal length, with what each costs. Without judged queries, headings and sentences of the documents stand in.

    hf-dse assess --model encoder --corpus docs --test_file queries.csv --rerank reranker
    """
    from hf_dse.measure import assess as assessment

    # Before data are read.
    windows = None if window_args.windows == "first" else window_args.windows
    check_reranking(args.rerank, windows=windows, teacher_max_length=window_args.teacher_max_length)
    split, rankings, fit_on, num_train = _load(args, data_args)
    names = ("compare_with", "rerank_top", "bm25_weight", "rerank_weight", "max_queries")
    options = {"fit_on": fit_on} | {name: getattr(args, name) for name in names} | vars(load_args)
    options |= {"windows": window_args.windows, "reranker_max_length": window_args.teacher_max_length}
    found = assessment.assess(args.model_name_or_path, rankings, reranker=args.rerank, **options)
    print(f"{split}: {found.num_queries} queries rank {found.unit}; values x 100")
    rows = {name: {key: row[key] for key in COLUMNS if key in row} for name, row in found.searches.items()}
    print(format_table(rows, "search"))
    print("difference: of nDCG@10 to the first row, low and high: its 95 % interval (bootstrap over the queries)")
    print(WEIGHTS)
    for name, search in found.found.items():
        if search.share is not None and search.share.num_queries:
            print(f"{name}: share {search.share}")
    print("tokens: read of a text or passage; query_ms, corpus_seconds: to search once, and to make the index")
    print(f"\n{found}")
    for name, part in found.shares_of_ceiling().items():
        print(f"{name} has {100 * part:.0f} % of what the reranker adds to {args.model_name_or_path}.")
    _say_next(args, load_args, window_args, data_args, found, num_train)


def _load(args: AssessArguments, data_args: DataArguments) -> tuple[str, "Rankings", "Rankings | None", int]:
    """
    The name of a split, its judged queries, others to fit weights on, and how many labelled ones there are to train
    with.
    """
    from hf_dse.data.ranking_files import choose_split, load_rankings, to_corpus
    from hf_dse.measure.shares import judged_queries
    from hf_dse.retrieval.queries import make_queries

    files = (data_args.train_file, data_args.validation_file, data_args.test_file)
    if data_args.dataset_name is None and not any(files):
        if args.split is not None:
            raise ValueError(f"split={args.split}: there are no queries, so leave it out, or name a file of queries.")
        corpus, size = to_corpus(data_args)
        logger.warning(
            "There are no queries, so headings and sentences of the documents stand in for them, and are taken out: "
            "real queries may give another answer. Name judged ones with `--test_file`."
        )
        made = make_queries(corpus, "headings", num_queries=args.max_queries)
        return "made queries", replace(made, chunk_size=size), None, 0
    splits = load_rankings(data_args)
    split = args.split or choose_split(splits)
    if split not in splits:
        raise ValueError(f"There is no split {split!r}, only {', '.join(splits)}.")
    train = splits.get("train") if split != "train" else None
    num_train = 0 if train is None else sum(map(bool, train.positives()))
    return split, splits[split], judged_queries(splits, split), num_train


def _say_next(
    args: AssessArguments,
    load_args: LoadArguments,
    window_args: WindowOptions,
    data_args: DataArguments,
    found: "Assessment",
    num_train: int,
) -> None:
    """Logs the command for what was found, with the options that it was found with."""
    corpus = data_args.corpus_file or data_args.dataset_name
    # A student begins where the best model is, in the unit that was the best.
    best = found.found[found.best]
    model = {"model": best.model or args.model_name_or_path}
    has_units = len({search.chunk_size for search in found.found.values()}) > 1
    unit = {"chunk_size": best.chunk_size if has_units or data_args.chunk_size is not None else None}
    loading = given_options(load_args)
    is_labelled = num_train >= ENOUGH_QUERIES
    if found.pays or is_labelled:
        if not found.pays:
            logger.info(f"The {num_train} labelled queries of the train split can teach more.")
        data: dict[str, Any] = {"corpus": corpus, "queries_from": "headings"}
        judged: dict[str, Any] = {}
        if is_labelled:
            judged = {
                name: getattr(data_args, name) for name in ("validation_file", "test_file", "relevance_threshold")
            }
            judged |= {"dataset": data_args.dataset_name, "corpus": data_args.corpus_file}
            data = {**judged, "train_file": data_args.train_file}
            judged |= unit
        files = {"train_file": "mined.parquet", "output_dir": "student"}
        teachers = {**_teachers(args, found), **given_options(window_args)} if found.pays else {}
        loaded = {name: loading.get(name) for name in ("max_length", "trust_remote_code")}
        trained = to_words(**files, **model, **teachers, **judged, **loaded)
        say_next(
            mine=f"--bm25 true --output_file mined.parquet {to_words(**model, **data, **unit, **loading)}",
            distill=f"--stage ranking {trained}",
        )
        return
    weight = best.bm25_weight
    if best.model is None and any(search.bm25_weight for search in found.found.values()):
        logger.info("BM25 alone was the best: with a high weight the search is nearly that.")
        weight = 10
    # Also 0, because the folder of the model may keep another.
    say_next(search=f"--bm25_weight {weight:g} --query '...' {to_words(**model, corpus=corpus, **unit, **loading)}")


def _teachers(args: AssessArguments, found: "Assessment") -> dict[str, Any]:
    """The options of the teachers: the reranker, and the search beside it with the weights that were the best."""
    ceiling = found.found[str(found.ceiling)]
    weight: Any = ceiling.rerank_weight
    if weight == 1:
        return {"teacher": args.rerank}
    weights = {"teacher_weights": [f"{part:g}" for part in (weight, 1 - weight)]}
    return {"teacher": [args.rerank, ceiling.model], **weights, "teacher_bm25_weight": f"{ceiling.bm25_weight:g}"}


@dataclass
class EvaluateArguments:
    """The model to evaluate, and others to compare it with."""

    model_name_or_path: str = field(metadata=MODEL)
    split: list[str] | None = HfArg(
        default=None, help="Splits to evaluate on. Default: validation of pairs; of a corpus test, or else validation."
    )
    compare_with: list[str] = HfArg(
        default_factory=list, help="On a corpus: other encoders, such as the source of the student."
    )
    bm25: bool = HfArg(default=False, help="On a corpus: add rows for BM25, alone and with each model.")
    bm25_weight: float | None = HfArg(
        default=None,
        help="With `--bm25`: weight of BM25 / (the best BM25 of the query) beside the cosine. Default: fitted and "
        f"kept in the folder of a model, or {BM25_WEIGHT}.",
    )


def evaluate(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """
    Measure a model: correlation or accuracy on sentence pairs, or nDCG@10, MRR@10, MAP and recall of the search in a
    corpus.

    hf-dse evaluate --model student/model --task_name stsb --split validation
    hf-dse evaluate --model student/model --dataset beir-folder --bm25
    """
    from hf_dse.data.ranking_files import is_ranking_data

    if args.bm25_weight is not None and not args.bm25:
        raise ValueError(f"bm25_weight={args.bm25_weight}: add `--bm25`, or leave it out.")
    if is_ranking_data(data_args):
        evaluate_search(args, load_args, data_args)
    elif args.compare_with or args.bm25:
        raise ValueError("`--compare_with` and `--bm25` are for a corpus, not sentence pairs.")
    else:
        evaluate_pairs(args, load_args, data_args)


def evaluate_pairs(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """Prints the metrics of sentence pairs."""
    from hf_dse.data.pairs import load_pairs, resolve_task
    from hf_dse.measure import evaluate as measuring
    from hf_dse.measure.evaluate import load_for_pairs

    task, splits = resolve_task(data_args), load_pairs(data_args, args.split or ["validation"])
    model, tokenizer = load_for_pairs(args.model_name_or_path, **load_args.loading)
    options: dict[str, Any] = {"batch_size": load_args.batch_size, "max_length": load_args.max_length}
    results: dict[str, dict[str, float]] = {}
    for split, pairs in splits.items():
        metrics = measuring.evaluate_pairs(model, tokenizer, pairs, task, **options)
        results[split] = {"num_pairs": len(pairs), **metrics}
    print(format_table(results))
    logger.info(CAPTION)


def evaluate_search(args: EvaluateArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """Prints the metrics of searches."""
    from hf_dse.data.ranking_files import choose_split, load_rankings
    from hf_dse.measure.compare import compare_searches
    from hf_dse.retrieval.sentence_transformer import to_sentence_transformer

    splits = load_rankings(data_args, args.split)
    if args.split is None:
        splits = {choose_split(splits): splits[choose_split(splits)]}
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
        print("share: of BM25 / (best BM25 of the query) beside the cosine")
