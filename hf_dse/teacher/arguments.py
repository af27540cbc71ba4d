# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of teachers, and of the engine that runs models on shards."""

from dataclasses import dataclass, field


# Which windows of a document that is longer than the teacher reads are scored.
WINDOWS = ("first", "best")

WINDOWS_OPTION = {
    "help": "How the teacher scores a document that is longer than it reads: by its first window, or by the best "
    "score of all its windows.",
    "choices": list(WINDOWS),
}


@dataclass
class ScoreArguments:
    """Which teacher scores which split, and where to write the scores."""

    model_name_or_path: list[str] = field(
        metadata={
            "help": "The reranker, any `CrossEncoder` of sentence-transformers: a Hub id (user/name, or "
            "user/name@revision) or a folder. The scores of several, such as several seeds, are averaged."
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
        metadata={"help": "The model is a bi-encoder, such as the source of a student: the score is the cosine."},
    )
    bm25_weight: float = field(
        default=0.0,
        metadata={
            "help": "Rankings, with `--bi_encoder`: add this weight times BM25 / (the best BM25 of the query) to the "
            "cosine. BM25 counts the words of the whole corpus: name the corpus with `--corpus_file`, or the "
            "candidates of all queries stand in for it. 0.3 is a good start."
        },
    )
    split: str = field(default="train", metadata={"help": "Split to score; for a folder, the name of any file in it."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Default: a GPU if any."})
    max_length: int | None = field(
        default=None,
        metadata={"help": "Maximum tokens of a pair, or of a text of a bi-encoder. Default: the teacher's limit."},
    )
    windows: str = field(default="first", metadata=WINDOWS_OPTION)
    batch_size: int = field(default=64, metadata={"help": "Pairs per batch; fewer for pairs longer than 512 tokens."})
    cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder of kept scores and vectors, from which an interrupted run continues. Default: "
            "`.hf-dse-scores` next to the output file."
        },
    )


@dataclass(kw_only=True)
class WindowArguments:
    """How much a teacher reads of a long document."""

    teacher_max_length: int | None = field(
        default=None,
        metadata={"help": "Tokens of a query with a document that the teacher reads. Default: its own limit."},
    )
    windows: str = field(default="first", metadata=WINDOWS_OPTION)


@dataclass
class EngineArguments:
    """Where the model runs: in this process, or in the workers of a Ray cluster."""

    engine: str = field(
        default="local",
        metadata={
            "help": "local: this process. ray: workers of the cluster at RAY_ADDRESS, or of a local one. The input is "
            "then parquet shards (a file, a folder or a glob), the output a folder with one file per shard.",
            "choices": ["local", "ray"],
        },
    )
    num_workers: int | None = field(
        default=None, metadata={"help": "Ray workers. Default: as many as GPUs or CPU cores allow."}
    )
    num_gpus: float | None = field(
        default=None,
        metadata={"help": "GPUs per Ray worker, also a fraction. Default: 1 if the cluster has GPUs, otherwise 0."},
    )
