# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of teachers."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least, check_positive, refuse_options


# Which windows of a document that is longer than the teacher reads are scored.
WINDOWS = ("first", "best")

# Maximum number of tokens of a pair of sentences.
PAIR_LENGTH = 128


def check_windows(windows: str) -> None:
    """Checks which windows are scored."""
    if windows not in WINDOWS:
        raise ValueError(f"windows={windows!r}: it has to be {' or '.join(map(repr, WINDOWS))}.")


@dataclass
class TeacherArguments:
    """Which encoder becomes a cross-encoder."""

    model_name_or_path: str = field(metadata={"help": "The encoder to fine-tune: a Hub id or a folder."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    num_negatives: int = field(
        default=4,
        metadata={"help": "Rankings: negatives that a relevant document is compared with, drawn anew in each epoch."},
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; checkpoints in it are deleted."}
    )

    def __post_init__(self) -> None:
        check_positive(self, "num_negatives")


@dataclass
class ScoreArguments:
    """Which teacher scores which split, and where to write the scores."""

    model_name_or_path: list[str] = field(
        metadata={
            "help": "The cross-encoder, of transformers or sentence-transformers: a Hub id or a folder. The scores of "
            "several, such as several seeds, are averaged."
        }
    )
    output_file: str = field(
        metadata={
            "help": "File for the scored pairs, with all their columns, or rankings: .jsonl or .parquet. With "
            "`--engine ray`: a folder with one file for each .parquet file of `--dataset_name`."
        }
    )
    bi_encoder: bool = field(
        default=False,
        metadata={
            "help": "The model is a bi-encoder, such as the source of a student. The score of a pair of sentences is "
            "`similarity_scale` times the cosine, plus `similarity_bias`; that of a candidate is the cosine, and "
            "BM25 with `bm25_weight`."
        },
    )
    similarity_scale: float = field(default=5.0, metadata={"help": "Pairs: factor of a bi-encoder's cosine."})
    similarity_bias: float = field(default=0.0, metadata={"help": "Pairs: score of a bi-encoder's cosine of 0."})
    bm25_weight: float = field(
        default=0.0,
        metadata={
            "help": "Rankings, with `--bi_encoder`: adds so many times BM25 / (the best BM25 of the query) to the "
            "cosine. BM25 counts the words of the whole corpus: name it with `--corpus_file`, or the candidates of "
            "all queries stand in for it. 0.3 is a good start; 0: the cosine alone."
        },
    )
    split: str = field(default="train", metadata={"help": "Split to score; for a folder, the name of any file in it."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Maximum number of tokens per pair, and per text of a bi-encoder. Default: "
            f"{PAIR_LENGTH} for pairs of sentences, the teacher's own limit for rankings."
        },
    )
    windows: str = field(
        default="first",
        metadata={
            "help": "How a document of a ranking is scored that is longer than the teacher reads: by its first "
            "window, or by the best score of all windows, of a bi-encoder too.",
            "choices": list(WINDOWS),
        },
    )
    batch_size: int = field(default=64, metadata={"help": "Pairs per batch; fewer for pairs longer than 512 tokens."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of cached scores, from which an interrupted run continues. Defaults to `.hf-dse-scores` "
            "next to the output file."
        },
    )

    def __post_init__(self) -> None:
        check_at_least(0, bm25_weight=self.bm25_weight)
        if self.bm25_weight and not self.bi_encoder:
            raise ValueError(
                f"bm25_weight={self.bm25_weight}: BM25 is added to the cosine of a bi-encoder: pass `--bi_encoder` "
                "too, or leave it out."
            )
        if not self.bi_encoder:
            refuse_options(self, "is an option of `--bi_encoder`", "similarity_scale", "similarity_bias")


@dataclass(kw_only=True)
class WindowArguments:
    """What a teacher reads of a long document."""

    teacher_max_length: int | None = field(
        default=None,
        metadata={"help": "Tokens of a query with a document that the teacher reads. Default: its own limit."},
    )
    windows: str = field(
        default="first",
        metadata={
            "help": "How the teacher scores a document that is longer than it reads: by its first window, or by the "
            "best score of all windows.",
            "choices": list(WINDOWS),
        },
    )
