# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse score` and `hf-dse mine`: what students learn from."""

import logging
import shlex
from dataclasses import dataclass
from functools import partial
from typing import Any

from hf_dse.cli.arguments import LoadArguments
from hf_dse.cli.output import say_next
from hf_dse.common.files import output_path
from hf_dse.common.options import HfArg
from hf_dse.data.arguments import DataArguments
from hf_dse.data.tables import OUTPUT_ENDINGS
from hf_dse.retrieval.arguments import QUERY_KINDS, SAMPLINGS
from hf_dse.teacher.arguments import EngineArguments, ScoreArguments, WindowArguments


logger = logging.getLogger(__name__)


def score(args: ScoreArguments, data_args: DataArguments, engine_args: EngineArguments) -> None:
    """
    Add a teacher's scores to sentence pairs, or to queries with candidates. Both orders of a pair are scored if the
    task is symmetric: `--symmetric` overrides the setting of the task. A query always comes first, and only the
    document is cut.

    hf-dse score --model teacher --task_name stsb --split train --output_file scored.parquet
    """
    from hf_dse.teacher.score_files import score_files

    what = score_files(args, data_args, engine_args)
    print(f"{what} written to {args.output_file}")
    stage = "--stage ranking " if "queries" in what else ""
    say_next(distill=f"{stage}--train_file {shlex.quote(args.output_file)}")


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
        if self.num_queries is not None and self.queries_from == "none":
            raise ValueError(f"num_queries={self.num_queries}: add `--queries_from {'|'.join(QUERY_KINDS)}`.")


def mine(
    args: MineArguments, load_args: LoadArguments, window_args: WindowArguments, data_args: DataArguments
) -> None:
    """
    Find hard negatives for queries: documents of a corpus that look relevant but are not.

    hf-dse mine --dataset beir-folder --split train --bm25 --output_file mined.parquet
    """
    from hf_dse.data.ranking_files import load_corpus, load_rankings
    from hf_dse.data.rankings import write_rankings
    from hf_dse.retrieval.mining import mine_candidates
    from hf_dse.retrieval.queries import make_queries
    from hf_dse.teacher.rerankers import load_reranker
    from hf_dse.teacher.score_candidates import leave_out_long, score_candidates

    output = output_path(args.output_file, OUTPUT_ENDINGS)
    kept: dict[str, Any] = {
        "batch_size": load_args.batch_size,
        "cache_dir": args.cache_dir or output.parent / ".hf-dse-mining",
    }
    if args.queries_from == "none":
        rankings = load_rankings(data_args, [args.split])[args.split]
    else:
        corpus = load_corpus(data_args)
        rankings = make_queries(corpus, args.queries_from, num_queries=args.num_queries, seed=args.seed)
    encoder, score = None, None
    if args.encoder_name_or_path is not None:
        encoder = load_args.load(args.encoder_name_or_path)
    if args.teacher_name_or_path is not None:
        teacher = load_reranker(
            args.teacher_name_or_path, trust_remote_code=load_args.trust_remote_code, device=load_args.device
        )
        length, windows = window_args.teacher_max_length, window_args.windows
        if args.queries_from != "none":
            rankings = leave_out_long(teacher, rankings, length)
        score = partial(score_candidates, teacher, max_length=length, windows=windows, **kept)
    mined = mine_candidates(
        rankings,
        encoder,
        bm25=args.bm25,
        num_negatives=args.num_negatives,
        range_min=args.range_min,
        range_max=args.range_max,
        relative_margin=None if args.relative_margin < 0 else args.relative_margin,
        score=score,
        sampling=args.sampling,
        seed=args.seed,
        **kept,
    )
    write_rankings(mined, output)
    num_mined = sum(map(len, mined.queries["documents"])) - sum(map(len, rankings.queries["documents"]))
    print(f"{len(mined)} queries with {num_mined} mined candidates written to {output}")
    if num_mined:
        # A teacher that was asked has scored the candidates already.
        known = {"--model": args.encoder_name_or_path, "--teacher": None if mined.has_scores else "RERANKER"}
        options = "".join(f" {name} {shlex.quote(value)}" for name, value in known.items() if value)
        say_next(distill=f"--stage ranking{options} --train_file {shlex.quote(str(output))} --output_dir student")
    else:
        logger.warning("Nothing was mined: lower `--relative_margin`, or raise `--range_max`.")
