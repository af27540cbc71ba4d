# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse mine`."""

import shlex
from dataclasses import dataclass, field
from functools import partial
from typing import Any

from transformers.utils import logging

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path
from hf_dse.common.options import refuse_options
from hf_dse.data.arguments import DataArguments
from hf_dse.data.tables import OUTPUT_ENDINGS
from hf_dse.inference.arguments import ModelArguments
from hf_dse.mining.arguments import QUERY_KINDS, SAMPLINGS
from hf_dse.teacher.arguments import WindowArguments


logger = logging.get_logger(__name__)


@dataclass
class MineArguments:
    """How to search for hard negatives, and where to write the queries with their candidates."""

    output_file: str = field(
        metadata={"help": f"File for the queries with their candidates: {' or '.join(OUTPUT_ENDINGS)}."}
    )
    encoder_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder to search with: a Hub id or a folder. Optional with `--bm25`."}
    )
    bm25: bool = field(default=False, metadata={"help": "Search by words; with an encoder, both ranks count."})
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Reranker whose scores tell negatives from documents that only lack a label."},
    )
    split: str = field(default="train", metadata={"help": "Split of the queries."})
    queries_from: str = field(
        default="none",
        metadata={
            "help": "For a corpus without queries (`--corpus_file` or `--dataset_name`): what stands in for them, and "
            "is taken out of the document that it is from. none: the queries of the split.",
            "choices": ["none", *QUERY_KINDS],
        },
    )
    num_queries: int | None = field(
        default=None, metadata={"help": "Number of such queries, at most one of each document. Default: all."}
    )
    num_candidates: int = field(default=7, metadata={"help": "Negatives per query."})
    range_min: int = field(default=0, metadata={"help": "First rank to mine from; known documents have no rank."})
    range_max: int = field(default=100, metadata={"help": "Rank to end before."})
    relative_margin: float = field(
        default=0.05,
        metadata={
            "help": "Share of a positive's score by which negatives must score lower, by the teacher or else by the "
            "encoder; the positive with the lowest score counts. Below 0 for no margin."
        },
    )
    sampling: str = field(
        default="top",
        metadata={"help": "top: the first in the range. random: any in the range.", "choices": list(SAMPLINGS)},
    )
    seed: int = field(default=42, metadata={"help": "Seed of the random sampling, and of drawn queries."})
    max_length: int | None = field(
        default=None, metadata={"help": "Tokens of a text that the encoder reads. Default: its own limit."}
    )
    batch_size: int = field(default=32, metadata={"help": "Texts per batch."})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "Data type of the weights; auto: that of the encoder's checkpoint, and float32 for the teacher.",
            "choices": ["auto", "float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the models."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of embeddings and scores, from which an interrupted run goes on; it stays, and can be "
            "deleted. Defaults to `.hf-dse-mining` next to the output file."
        },
    )

    def __post_init__(self) -> None:
        if self.num_queries is not None and self.queries_from == "none":
            raise ValueError(
                f"num_queries={self.num_queries}: it is the number of queries to make; choose of what with "
                f"`--queries_from {'|'.join(QUERY_KINDS)}`."
            )
        if self.encoder_name_or_path is None and not self.bm25:
            raise ValueError("There is nothing to search with: pass `--encoder_name_or_path`, `--bm25`, or both.")


def mine(argv: list[str]) -> None:
    """Mines hard negatives and writes the queries with their candidates."""
    args, window_args, data_args = parse_args(
        argv,
        MineArguments,
        WindowArguments,
        DataArguments,
        prog="hf-dse mine",
        description="Find hard negatives for queries: documents of a corpus that look like answers, and are none.",
    )
    from hf_dse.data.ranking_files import load_corpus, load_rankings
    from hf_dse.data.rankings import write_rankings
    from hf_dse.inference.loading import load_model
    from hf_dse.mining.candidates import mine_candidates
    from hf_dse.mining.queries import make_queries
    from hf_dse.teacher.rerankers import load_reranker
    from hf_dse.teacher.score_candidates import score_candidates

    output = output_path(args.output_file, OUTPUT_ENDINGS)
    cache_dir = args.cache_dir or output.parent / ".hf-dse-mining"
    if args.queries_from == "none":
        rankings = load_rankings(data_args, [args.split])[args.split]
    else:
        reason = "is an option of queries, and `--queries_from` makes them of documents"
        refuse_options(args, reason, "split")
        refuse_options(data_args, reason, "train_file", "validation_file", "test_file", "max_train_samples")
        corpus = load_corpus(data_args)
        rankings = make_queries(corpus, args.queries_from, num_queries=args.num_queries, seed=args.seed)
    model, tokenizer = None, None
    if args.encoder_name_or_path is not None:
        model, tokenizer = load_model(
            ModelArguments(
                args.encoder_name_or_path,
                trust_remote_code=args.trust_remote_code,
                dtype=args.dtype,
                device=args.device,
            )
        )
    score: Any = None
    if args.teacher_name_or_path is not None:
        # Loaded once, as it scores several times.
        teacher = load_reranker(
            args.teacher_name_or_path,
            device=args.device,
            trust_remote_code=args.trust_remote_code,
            dtype="float32" if args.dtype == "auto" else args.dtype,
        )
        score = partial(
            score_candidates,
            teacher,
            batch_size=args.batch_size,
            max_length=window_args.teacher_max_length,
            windows=window_args.windows,
            cache_dir=cache_dir,
        )
    mined = mine_candidates(
        rankings,
        model,
        tokenizer,
        bm25=args.bm25,
        num_candidates=args.num_candidates,
        range_min=args.range_min,
        range_max=args.range_max,
        relative_margin=None if args.relative_margin < 0 else args.relative_margin,
        score=score,
        sampling=args.sampling,
        seed=args.seed,
        batch_size=args.batch_size,
        max_length=args.max_length,
        cache_dir=cache_dir,
    )
    write_rankings(mined, output)
    num_mined = sum(map(len, mined.queries["documents"])) - sum(map(len, rankings.queries["documents"]))
    print(f"{len(mined)} queries with {num_mined} mined candidates written to {output}")
    if not num_mined:
        logger.warning(
            "Nothing was mined: all that was found is a candidate already, or above the margin, see the counts. Lower "
            "`--relative_margin`, raise `--range_max`, or use a better teacher."
        )
    else:
        say_next(distill=f"--stage ranking --train_file {shlex.quote(str(output))}")
