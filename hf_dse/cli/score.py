# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score` and `hf-dse mine`: what students learn from."""

import logging
import shlex
from dataclasses import dataclass
from typing import Any

from hf_dse.cli.output import say_next, to_words
from hf_dse.cli.parsing import LoadArguments
from hf_dse.common.files import output_path
from hf_dse.common.options import HfArg, given_options
from hf_dse.data.options import DataArguments
from hf_dse.data.tables import OUTPUT_ENDINGS, write_table
from hf_dse.retrieval.options import QUERY_KINDS, SAMPLINGS
from hf_dse.teacher.options import ScoreOptions


logger = logging.getLogger(__name__)


def score(args: ScoreOptions, load_args: LoadArguments, data_args: DataArguments) -> None:
    """
    Add a teacher's scores to sentence pairs, or to queries with candidates. Both orders of a pair are scored if the
    task is symmetric: `--symmetric` overrides the setting of the task. A query always comes first, and only the
    document is cut.

    hf-dse score --model teacher --task_name stsb --split train --output_file scored.parquet
    """
    from hf_dse.common.provenance import describe_source
    from hf_dse.data.rankings import Rankings, write_rankings
    from hf_dse.data.report import class_names
    from hf_dse.teacher import score as scoring

    output = output_path(args.output_file, OUTPUT_ENDINGS)
    options = {**vars(args), **vars(load_args), "cache_dir": args.cache_dir or output.parent / ".hf-dse-scores"}
    del options["output_file"]
    scored = scoring.score(options.pop("model_name_or_path"), data_args, **options)
    if isinstance(scored, Rankings):
        names = " and ".join(describe_source(name).name for name in args.model_name_or_path)
        scoring.check_scores(scored, names, are_raw=True)
        write_rankings(scored, output)
        what, stage = "queries with scored candidates", "--stage ranking"
    else:
        write_table([scored], output)
        if class_names(scored) and data_args.task_name is None and output.suffix == ".jsonl":
            logger.warning("A .jsonl file has no names of classes, and a student of it neither: write .parquet.")
        what, stage = "scored pairs", f"--task_name {data_args.task_name or 'TASK'}"
    print(f"{len(scored)} {what} written to {args.output_file}")
    say_next(distill=f"{stage} --model ENCODER --train_file {shlex.quote(args.output_file)} --output_dir student")


@dataclass
class MineArguments:
    """How to search for hard negatives, and where to write the queries with their candidates."""

    output_file: str = HfArg(help=f"File of the candidates: {' or '.join(OUTPUT_ENDINGS)}.")
    encoder_name_or_path: str | None = HfArg(
        default=None, help="Encoder to search with: a Hub id or a folder. Optional with `--bm25`."
    )
    bm25: bool = HfArg(
        default=False, help="Search with BM25; with an encoder, by the sum of both, as `hf-dse search`."
    )
    split: str = HfArg(default="train", help="Split of the queries.")
    queries_from: str = HfArg(
        default="none",
        help="Make queries from the documents of the corpus, and take them out: headings, where there are some, or "
        "first sentences.",
        metadata={"choices": ["none", *QUERY_KINDS]},
    )
    num_queries: int | None = HfArg(default=None, help="Number of queries to make. Default: all.")
    num_negatives: int = HfArg(default=15, help="Negatives to mine per query.")
    range_max: int = HfArg(default=100, help="First ranks to mine from; known documents have no rank.")
    relative_margin: float = HfArg(
        default=0.05, help="Share of a positive's cosine by which negatives are below it. Below 0: no margin."
    )
    sampling: str = HfArg(
        default="top",
        help="top: the first in the range. random: any in the range.",
        metadata={"choices": list(SAMPLINGS)},
    )
    seed: int = HfArg(default=42, help="Seed of the random sampling, and of drawn queries.")
    cache_dir: str | None = HfArg(default=None, help="Folder of kept vectors. Default: beside the output file.")


def mine(args: MineArguments, load_args: LoadArguments, data_args: DataArguments) -> None:
    """
    Find hard negatives for queries: documents of a corpus that look relevant but are not.

    hf-dse mine --dataset beir-folder --split train --bm25 --output_file mined.parquet
    """
    from hf_dse.data.rankings import write_rankings
    from hf_dse.retrieval import negatives

    output = output_path(args.output_file, OUTPUT_ENDINGS)
    loading = vars(load_args)
    if args.encoder_name_or_path is None:
        # What was not given does not count, and what was given is refused.
        loading = given_options(load_args)
    options: dict[str, Any] = {**vars(args), **loading, "chunk_size": data_args.chunk_size}
    options["cache_dir"] = args.cache_dir or output.parent / ".hf-dse-mining"
    del options["output_file"]
    mined = negatives.mine(data_args, options.pop("encoder_name_or_path"), **options)
    write_rankings(mined, output)
    print(f"{len(mined)} queries with {sum(map(len, mined.queries['documents']))} candidates written to {output}")
    files: dict[str, Any] = {"dataset": data_args.dataset_name}
    files |= {name: getattr(data_args, name) for name in ("validation_file", "test_file")}
    if any(files.values()):
        # What measures the student, and fits its share of BM25.
        files |= {"corpus": data_args.corpus_file, "chunk_size": data_args.chunk_size}
    given = {"train_file": output, **files, "relevance_threshold": data_args.relevance_threshold}
    trained = to_words(model=args.encoder_name_or_path or "ENCODER", teacher="RERANKER", **given, output_dir="student")
    say_next(distill=f"--stage ranking {trained}")
