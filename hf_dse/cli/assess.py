# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse assess`."""

import logging
import shlex
from dataclasses import dataclass, field, replace
from typing import TYPE_CHECKING

from hf_dse.cli.options import MODEL, LoadArguments
from hf_dse.cli.output import say_next
from hf_dse.common.display import format_table
from hf_dse.common.options import HfArg, check_at_least
from hf_dse.data.options import DataArguments
from hf_dse.retrieval.options import BM25_WEIGHT, RERANK_TOP
from hf_dse.teacher.options import WindowOptions


if TYPE_CHECKING:
    from hf_dse.data.rankings import Rankings
    from hf_dse.measure.assess import Assessment

logger = logging.getLogger(__name__)

# Columns of the table.
COLUMNS = ("ndcg@10", "recall@100", "difference", "low", "high", "tokens", "query_ms", "corpus_seconds")
# Fewer labelled queries teach little.
ENOUGH_QUERIES = 100


@dataclass
class AssessArguments:
    """Models to compare, and on which queries."""

    model_name_or_path: str = field(metadata=MODEL)
    rerank: str | None = HfArg(default=None, help="The reranker that may be distilled: a Hub id or a folder.")
    rerank_top: list[int] = HfArg(
        default_factory=lambda: list(RERANK_TOP), help="How many documents of a query the reranker reads."
    )
    compare_with: list[str] = HfArg(default_factory=list, help="Other models, such as a student.")
    split: str | None = HfArg(default=None, help="Split of the judged queries. Default: test, or else validation.")
    bm25_weight: float = HfArg(
        default=BM25_WEIGHT, help="Weight of BM25 / (the best BM25 of the query) beside the cosine."
    )
    max_queries: int = HfArg(default=200, help="Queries to draw, or to make of the documents.")

    def __post_init__(self) -> None:
        check_at_least(1, max_queries=self.max_queries, rerank_top=min(self.rerank_top))


def assess(
    args: AssessArguments, load_args: LoadArguments, window_args: WindowOptions, data_args: DataArguments
) -> None:
    """
    Tell whether there is something to distil: a model, BM25, both together and a reranker on the same queries, at
    equal length, with what each costs. Without judged queries, sentences of the documents stand in for them.

    hf-dse assess --model encoder --corpus docs --test_file queries.csv --rerank reranker
    """
    from hf_dse.measure import assess as assessment

    split, rankings, num_train = _load(args, data_args)
    names = ("compare_with", "rerank_top", "bm25_weight", "max_queries")
    found = assessment.assess(
        args.model_name_or_path,
        rankings,
        reranker=args.rerank,
        windows=window_args.windows,
        reranker_max_length=window_args.teacher_max_length,
        **{name: getattr(args, name) for name in names},
        **vars(load_args),
    )
    print(f"{split}: {found.num_queries} queries rank {found.unit}; values x 100")
    rows = {name: {key: row[key] for key in COLUMNS if key in row} for name, row in found.searches.items()}
    print(format_table(rows, "search"))
    print("difference: of nDCG@10 to the first row, low and high: its 95 % interval (bootstrap over the queries)")
    print("tokens: read of a text or passage; query_ms, corpus_seconds: to search once, and to make the index")
    print(f"\n{found}")
    _say_next(args, data_args, found, num_train)


def _load(args: AssessArguments, data_args: DataArguments) -> tuple[str, "Rankings", int]:
    """The name of a split, its judged queries, and the number of labelled queries to train with."""
    from hf_dse.data.ranking_files import choose_split, load_rankings, to_corpus
    from hf_dse.retrieval.queries import make_queries

    files = (data_args.train_file, data_args.validation_file, data_args.test_file)
    if data_args.dataset_name is None and not any(files):
        corpus, size = to_corpus(data_args)
        logger.warning(
            "There are no queries, so sentences of the documents stand in for them, taken out of their documents: "
            "real queries may give another answer. Name judged ones with `--test_file`."
        )
        made = make_queries(corpus, "sentences", num_queries=args.max_queries)
        return "made queries", replace(made, chunk_size=size), 0
    splits = load_rankings(data_args)
    split = args.split or choose_split(splits)
    if split not in splits:
        raise ValueError(f"There is no split {split!r}, only {', '.join(splits)}.")
    train = splits.get("train") if split != "train" else None
    return split, splits[split], 0 if train is None else sum(map(bool, train.positives()))


def _say_next(args: AssessArguments, data_args: DataArguments, found: "Assessment", num_train: int) -> None:
    """Logs the command for what was found."""
    corpus = data_args.corpus_file or data_args.dataset_name
    # A student begins where the best model is, in the unit that was the best.
    model, teacher = {"model": found.model}, {"teacher": args.rerank}
    unit = {"chunk_size": str(found.chunk_size) if found.has_units else None}
    is_labelled = num_train >= ENOUGH_QUERIES
    if found.pays or is_labelled:
        data: dict[str, str | None] = {"corpus": corpus, "queries_from": "sentences"}
        judged: dict[str, str | None] = {}
        if is_labelled:
            judged = {name: getattr(data_args, name) for name in ("validation_file", "test_file")}
            judged |= {"dataset": data_args.dataset_name, "corpus": data_args.corpus_file}
            data = {**judged, "train_file": data_args.train_file}
        if not found.pays:
            logger.info(f"The {num_train} labelled queries of the train split can teach more.")
            teacher = {}
        unit_of_test = unit if judged else {}
        trained = _words(
            train_file="mined.parquet", output_dir="student", **model, **teacher, **judged, **unit_of_test
        )
        say_next(
            mine=f"--bm25 true --output_file mined.parquet {_words(**model, **data, **unit)}",
            distill=f"--stage ranking {trained}",
        )
        return
    weight = found.bm25_weight
    if found.by_words and found.has_both:
        logger.info("BM25 alone was the best: with a high weight the search is nearly that.")
        weight = 10
    share = f"--bm25_weight {weight:g} " if weight else ""
    say_next(search=f"{share}--query '...' {_words(**model, corpus=corpus, **unit)}")


def _words(**options: str | None) -> str:
    return " ".join(f"--{name} {shlex.quote(value)}" for name, value in options.items() if value is not None)
