# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of teachers."""

from dataclasses import dataclass, field

from hf_dse.common.options import HfArg


# Which windows of a document that is longer than the teacher reads are scored.
WINDOWS = ("first", "best")

WINDOWS_OPTION = {
    "help": "How documents longer than the teacher reads are scored: by the first window, or the best of all windows.",
    "choices": list(WINDOWS),
}


@dataclass
class ScoreOptions:
    """Which teacher scores which split, and where to write the scores."""

    model_name_or_path: list[str] = HfArg(
        help="The reranker (any `CrossEncoder`) or bi-encoder: a Hub id (user/name, or user/name@revision) or a "
        "folder; or several, whose scores are averaged: those of candidates on one scale, those of pairs as they are."
    )
    output_file: str = HfArg(help="File of the scored pairs or rankings, .jsonl or .parquet.")
    weights: list[float] | None = HfArg(default=None, help="Weights of several models. Default: equal ones.")
    bm25_weight: float = HfArg(
        default=0.0,
        help="For rankings: add so many times BM25 / (the best BM25 of the query) to the cosine of a bi-encoder; 0.3 "
        "is a good start.",
    )
    split: str = HfArg(default="train", help="Split to score; for a folder, the name of any file in it.")
    windows: str = field(default="first", metadata=WINDOWS_OPTION)
    cache_dir: str | None = HfArg(
        default=None, help="Folder of kept scores and vectors. Default: `.hf-dse-scores` next to the output file."
    )


@dataclass(kw_only=True)
class WindowOptions:
    """How much a teacher reads of a long document."""

    teacher_max_length: int | None = HfArg(
        default=None, help="Tokens of a query with a document that the teacher reads. Default: its own limit."
    )
    windows: str = field(default="first", metadata=WINDOWS_OPTION)
