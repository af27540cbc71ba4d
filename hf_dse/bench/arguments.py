# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the benchmarks."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least, check_positive
from hf_dse.mining.arguments import BM25_WEIGHT


# name -> fields of `DseConfig`
PROJECTIONS: dict[str, dict[str, str]] = {
    "mean": {"linformer_projection": "mean"},
    "max": {"linformer_projection": "max"},
    "strided": {"linformer_projection": "strided"},
    "learned": {"linformer_projection": "learned"},
    "random": {"linformer_projection": "learned", "linformer_init": "random"},
}


# The models of `hf-dse bench speed`.
MODELS = (
    "bert-sdpa",
    "dse-learned",
    "dse-mean",
    "dse-strided",
    "dse-max",
    "dse-conv",
    "dse-chunked",
    "dse-funnel",
    "no-attention",
    "bert-eager",
    "modernbert",
    "nystromformer",
    "longformer",
    "bigbird",
    "fnet",
    "linformer",
    "linformer-pytorch",
    "bert-base",
)


@dataclass
class SpeedArguments:
    """Which models to time, at which lengths, and how."""

    lengths: list[int] = field(
        default_factory=lambda: [128, 512, 2048], metadata={"help": "Lengths of the texts, in tokens."}
    )
    batch_tokens: int = field(
        default=2048, metadata={"help": "Tokens in a batch, which has batch_tokens / length texts, and at least one."}
    )
    batch_size: int | None = field(default=None, metadata={"help": "Texts of a batch at every length instead."})
    models: list[str] = field(
        default_factory=lambda: ["bert-sdpa", "dse-learned", "dse-strided"],
        metadata={
            "help": "Models to time, all of one shape but bert-base: 12 layers of 768, the size of a teacher. Ratios "
            "are to bert-sdpa, or else to the first one. no-attention is dse-strided with attention left out. "
            "longformer and bigbird take minutes on a CPU.",
            "choices": list(MODELS),
        },
    )
    linformer_length: int = field(
        default=128, metadata={"help": "Projected length k of the Linformer models, in tokens."}
    )
    shape_from: str | None = field(
        default=None,
        metadata={
            "help": "Folder or Hub name of an encoder whose sizes the models get, with random weights. Default: those "
            "of all-MiniLM-L6-v2, 6 layers of 384 numbers."
        },
    )
    dtype: str = field(
        default="float32",
        metadata={"help": "Number format of weights and activations.", "choices": ["float32", "bfloat16"]},
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    rounds: int = field(default=3, metadata={"help": "Timings of each model at each length; the median counts."})
    min_seconds: float = field(default=0.5, metadata={"help": "Seconds of a timing, at least: it repeats the batch."})
    max_seconds: float = field(
        default=60.0, metadata={"help": "Seconds of a batch, at most: a slower model is left out at longer lengths."}
    )
    train: bool = field(default=False, metadata={"help": "Time forward and backward pass instead of the forward."})
    memory: bool = field(
        default=False,
        metadata={"help": "Measure the memory on a CPU too, in a new process for each model and length."},
    )
    matmul_size: int | None = field(
        default=None,
        metadata={"help": "Rows of the square matrices by which the machine is rated. Default: 2048, on a GPU 8192."},
    )
    threads: int | None = field(default=None, metadata={"help": "CPU threads. Default: torch's."})
    output_dir: str = field(default="outputs/bench-speed", metadata={"help": "Folder of results.json and plot.png."})

    def __post_init__(self) -> None:
        counts = ("lengths", "batch_tokens", "batch_size", "linformer_length", "rounds", "matmul_size", "threads")
        check_positive(self, *counts)
        unknown = [name for name in self.models if name not in MODELS]
        if unknown or not self.models:
            raise ValueError(f"models={self.models}: the known models are {', '.join(MODELS)}.")


@dataclass
class RankArguments:
    """What is ranked, and by whom."""

    cross_encoder: str = field(metadata={"help": "The cross-encoder: a folder or a Hub name."})
    candidates: list[int] = field(
        default_factory=lambda: [100, 1000, 10_000, 100_000, 1_000_000],
        metadata={"help": "Numbers of candidates. A million vectors of 384 need about 8 GB."},
    )
    texts: str | None = field(
        default=None,
        metadata={"help": "Queries and candidates: .txt, one a line, or a table. Default: the embedded pairs."},
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    max_pairs: int = field(
        default=1000,
        metadata={"help": "Texts and pairs that go through a model; the time of more is extrapolated."},
    )
    top_k: int = field(default=10, metadata={"help": "Candidates to return."})
    pool: int = field(
        default=100, metadata={"help": "Nearest candidates that the mlp head, or the cross-encoder, ranks."}
    )
    hnsw_from: int = field(
        default=100_000, metadata={"help": "Number of candidates from which faiss's graph index is timed too."}
    )
    rounds: int = field(default=5, metadata={"help": "Queries that are timed; the median counts."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads. Default: torch's."})
    output_dir: str = field(default="outputs/bench-rank", metadata={"help": "Folder of results.json."})

    def __post_init__(self) -> None:
        check_positive(self, "candidates", "max_pairs", "top_k", "pool", "hnsw_from", "rounds", "threads")
        if self.pool < self.top_k:
            raise ValueError(f"pool={self.pool} is below top_k={self.top_k}: raise `pool`.")


@dataclass
class AttentionArguments:
    """Which encoder, which texts, and which projections of its attention."""

    model_name_or_path: str = field(metadata={"help": "The encoder with softmax attention: a folder or a Hub name."})
    texts: str = field(
        metadata={"help": "Texts, joined and cut to the lengths: .txt, one a line, or csv, jsonl, json, parquet."}
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    num_texts: int = field(default=8, metadata={"help": "Texts of each length; means are over them."})
    lengths: list[int] = field(
        default_factory=lambda: [128, 256, 512, 1024, 2048], metadata={"help": "Lengths n of the texts, in tokens."}
    )
    projected_lengths: list[int] = field(
        default_factory=lambda: [32, 64, 128, 256], metadata={"help": "Projected lengths k, in tokens."}
    )
    projections: list[str] = field(
        default_factory=lambda: list(PROJECTIONS),
        metadata={
            "help": "learned: its start, which is that of mean. random: as in theorem 2 of the Linformer paper.",
            "choices": list(PROJECTIONS),
        },
    )
    position_extension: str = field(
        default="dynamic",
        metadata={"help": "Positions beyond the encoder's limit.", "choices": ["dynamic", "tile"]},
    )
    max_spectrum_length: int = field(
        default=1024, metadata={"help": "Longest text whose n x n attention is decomposed, which costs n^3."}
    )
    seed: int = field(default=42, metadata={"help": "Seed of random projections."})
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads. Default: torch's."})
    output_dir: str = field(
        default="outputs/bench-attention", metadata={"help": "Folder of results.json and plot.png."}
    )

    def __post_init__(self) -> None:
        check_positive(self, "num_texts", "lengths", "projected_lengths", "threads")
        unknown = [name for name in self.projections if name not in PROJECTIONS]
        if unknown or not self.projections:
            raise ValueError(f"projections={self.projections}: the projections are {', '.join(PROJECTIONS)}.")


# The ways of reading a long document of `hf-dse bench long`.
WAYS = ("first", "chunks", "softmax", "linear", "mixed", "chunked", "bm25")
# Its tasks that are made, as those of LongEmbed.
NEEDLES = ("passkey", "needle")
# Tokens of its documents: shorter ones hold no needle, and a hundred longer ones would take more memory than there is.
SHORTEST, LONGEST = 64, 1_000_000


@dataclass
class LongArguments:
    """Which ways of reading long documents to compare, and on what."""

    ways: list[str] = field(
        default_factory=lambda: list(WAYS),
        metadata={
            "help": "first: the tokens up to the model's limit. chunks: plain chunks, their mean and the best. "
            "Converted to read all at once: softmax; linear; mixed, lower layers in chunks of the model's limit and "
            "the upper ones linear; chunked, all layers in chunks. bm25: by words, alone and with each of the others. "
            "Differences are to the first way, which bm25, always the last row, never is.",
            "choices": list(WAYS),
        },
    )
    bm25_weight: float = field(
        default=BM25_WEIGHT,
        metadata={
            "help": "What multiplies BM25 over the best BM25 score of the query, before the cosine is added; of a "
            "chunk the mean of its own and its document's. 0.6 is better for chunks; 0: BM25 alone only."
        },
    )
    students: list[str] = field(
        default_factory=list, metadata={"help": "Your own encoders of long texts, folders or Hub names."}
    )
    chunk_sizes: list[int] = field(
        default_factory=lambda: [128], metadata={"help": "Tokens of a chunk, at most; each size is a way."}
    )
    projected_lengths: list[int] = field(
        default_factory=lambda: [256, 1024],
        metadata={"help": "Projected lengths k of linear attention, in tokens; each is a way, mixed has the longest."},
    )
    linear_layers: int = field(default=2, metadata={"help": "Linear layers of mixed, the upper ones."})
    many: bool = field(
        default=True,
        metadata={"help": "Of one pass over all, chunks too (`--contextual` of `hf-dse encode`), of the first size."},
    )
    long_length: int = field(
        default=16384, metadata={"help": "Tokens read in one pass, at most; longer documents are cut, with a warning."}
    )
    metric: str = field(
        default="recall@1", metadata={"help": "What is compared.", "choices": ["recall@1", "ndcg@10", "mrr@10"]}
    )
    split: str = field(default="test", metadata={"help": "Split of the queries."})
    needles: list[str] = field(
        default_factory=list,
        metadata={
            "help": "Instead of a dataset, tasks made here as those of LongEmbed: which of 100 documents has a "
            "passkey, or a sentence on another subject.",
            "choices": list(NEEDLES),
        },
    )
    lengths: list[int] = field(
        default_factory=lambda: [256, 512, 1024, 2048, 4096, 8192, 16384, 32768],
        metadata={"help": "With `--needles`: lengths of the documents, in tokens of 0.75 words."},
    )
    texts: str | None = field(
        default=None,
        metadata={
            "help": "With `--needles needle`: the texts between which a sentence is hidden, .txt or a table. Default: "
            "the sentences of the embedded pairs."
        },
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    seed: int = field(default=42, metadata={"help": "Seed of the needles and their places."})
    timed_documents: int = field(
        default=4, metadata={"help": "Documents that are timed, one by one, evenly spaced in the corpus."}
    )
    rounds: int = field(default=3, metadata={"help": "Timings of each way, in turn; the median counts."})
    threads: int | None = field(default=None, metadata={"help": "CPU threads. Default: torch's."})
    output_dir: str = field(default="outputs/bench-long", metadata={"help": "Folder of results.json."})

    def __post_init__(self) -> None:
        counts = ("chunk_sizes", "projected_lengths", "linear_layers", "long_length", "lengths", "timed_documents")
        check_positive(self, *counts, "rounds", "threads")
        check_at_least(0, seed=self.seed, bm25_weight=self.bm25_weight)
        for name, known in (("ways", WAYS), ("needles", NEEDLES)):
            if unknown := [value for value in getattr(self, name) if value not in known]:
                raise ValueError(f"{name}={unknown}: the {name} are {', '.join(known)}.")
        if not self.ways and not self.students:
            raise ValueError("There is nothing to compare: name `--ways` or `--students`.")
        if min(self.lengths) < SHORTEST or max(self.lengths) > LONGEST:
            raise ValueError(
                f"lengths={self.lengths}: they have to be at least {SHORTEST} tokens, which hold a needle, and at "
                f"most {LONGEST:,}."
            )
