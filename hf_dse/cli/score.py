# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score` and `hf-dse mine`: what students learn from."""

import logging
import shlex
from dataclasses import dataclass
from typing import Any

from hf_dse.cli.arguments import LoadArguments
from hf_dse.cli.output import say_next
from hf_dse.common.files import output_path
from hf_dse.common.options import HfArg
from hf_dse.data.arguments import DataArguments
from hf_dse.data.tables import OUTPUT_ENDINGS
from hf_dse.retrieval.arguments import QUERY_KINDS, SAMPLINGS, check_num_queries
from hf_dse.teacher.arguments import ScoreArguments, WindowArguments


logger = logging.getLogger(__name__)


def score(args: ScoreArguments, data_args: DataArguments) -> None:
    """
    Add a teacher's scores to sentence pairs, or to queries with candidates. Both orders of a pair are scored if the
    task is symmetric: `--symmetric` overrides the setting of the task. A query always comes first, and only the
    document is cut.

    hf-dse score --model teacher --task_name stsb --split train --output_file scored.parquet
    """
    from hf_dse.teacher.score_files import score_files

    what = score_files(args, data_args)
    print(f"{what} written to {args.output_file}")
    stage = "--stage ranking" if "queries" in what else f"--task_name {data_args.task_name or 'TASK'}"
    say_next(distill=f"{stage} --model ENCODER --train_file {shlex.quote(args.output_file)} --output_dir student")


@dataclass
class MineArguments:
    """How to search for hard negatives, and where to write the queries with their candidates."""

    output_file: str = HfArg(help=f"File of the candidates: {' or '.join(OUTPUT_ENDINGS)}.")
    encoder_name_or_path: str | None = HfArg(
        default=None, help="Encoder to search with: a Hub id or a folder. Optional with `--bm25`."
    )
    bm25: bool = HfArg(default=False, help="Search with BM25; with an encoder, both ranks count.")
    teacher_name_or_path: str | None = HfArg(
        default=None, help="Reranker whose scores tell negatives from documents that lack a label."
    )
    split: str = HfArg(default="train", help="Split of the queries.")
    queries_from: str = HfArg(
        default="none",
        help="Make queries from the documents of the corpus, and take them out of their documents.",
        metadata={"choices": ["none", *QUERY_KINDS]},
    )
    num_queries: int | None = HfArg(default=None, help="Number of queries to make. Default: all.")
    num_negatives: int = HfArg(default=15, help="Negatives to mine per query.")
    range_min: int = HfArg(default=0, help="First rank to mine from; known documents have no rank.")
    range_max: int = HfArg(default=100, help="Rank to end before.")
    relative_margin: float = HfArg(
        default=0.05, help="Share of a positive's score by which negatives must score lower. Below 0 for no margin."
    )
    sampling: str = HfArg(
        default="top",
        help="top: the first in the range. random: any in the range.",
        metadata={"choices": list(SAMPLINGS)},
    )
    seed: int = HfArg(default=42, help="Seed of the random sampling, and of drawn queries.")
    cache_dir: str | None = HfArg(
        default=None, help="Folder of kept vectors and scores. Default: beside the output file."
    )

    def __post_init__(self) -> None:
        check_num_queries(self.queries_from, self.num_queries)


def mine(
    args: MineArguments, load_args: LoadArguments, window_args: WindowArguments, data_args: DataArguments
) -> None:
    """
    Find hard negatives for queries: documents of a corpus that look relevant but are not.

    hf-dse mine --dataset beir-folder --split train --bm25 --output_file mined.parquet
    """
    from hf_dse.data.ranking_files import load_corpus
    from hf_dse.data.rankings import write_rankings
    from hf_dse.data.reading import to_rankings
    from hf_dse.teacher import mining

    output, is_made = output_path(args.output_file, OUTPUT_ENDINGS), args.queries_from != "none"
    data: Any = load_corpus(data_args) if is_made else to_rankings(data_args, args.split)
    options = {name: value for name, value in vars(args).items() if not name.endswith(("_file", "_path"))}
    options["cache_dir"] = args.cache_dir or output.parent / ".hf-dse-mining"
    options |= {"teacher": args.teacher_name_or_path, **vars(window_args), **vars(load_args)}
    mined = mining.mine(data, args.encoder_name_or_path, **options)
    write_rankings(mined, output)
    # A made query comes with its document.
    num_known = len(mined) if is_made else sum(map(len, data.queries["documents"]))
    num_mined = sum(map(len, mined.queries["documents"])) - num_known
    print(f"{len(mined)} queries with {num_mined} mined candidates written to {output}")
    if num_mined:
        # A teacher that was asked has scored the candidates already.
        known = {
            "--model": args.encoder_name_or_path or "ENCODER",
            "--teacher": None if mined.has_scores else "RERANKER",
        }
        words = "".join(f" {name} {shlex.quote(value)}" for name, value in known.items() if value)
        say_next(distill=f"--stage ranking{words} --train_file {shlex.quote(str(output))} --output_dir student")
    else:
        logger.warning("Nothing was mined: lower `--relative_margin`, or raise `--range_max`.")
