# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of models that run."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least, check_positive
from hf_dse.data.tables import READERS


EMBEDDING_COLUMN = "embedding"
# Of chunks, the row of their document in the input.
DOCUMENT_COLUMN = "document"

# What `quantize_embeddings` of sentence-transformers makes.
PRECISIONS = ("float32", "int8", "uint8", "binary", "ubinary")

# Tokens of a passage if nothing else is said.
CHUNK_SIZE = 128


@dataclass
class ModelArguments:
    """Which model to run, and how."""

    model_name_or_path: str = field(
        metadata={"help": "Hub id (user/name, or user/name@revision) or folder of the model and its tokenizer."}
    )
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "Data type of the weights; auto: that of the checkpoint.",
            "choices": ["auto", "float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Maximum number of tokens per text. Default: that of the model for such texts, mostly "
            "the `model_max_length` of the tokenizer."
        },
    )
    batch_size: int = field(default=32, metadata={"help": "Texts per batch; fewer for texts longer than 512 tokens."})


@dataclass
class EncodeArguments:
    """Which texts to embed, and where to write the vectors."""

    input: str = field(
        metadata={
            "help": f"Texts: .txt with one text per line, a table ({', '.join(READERS)}), or a folder of .txt and .md "
            "files or with such a table named corpus. With `--engine ray`: a .parquet file, a folder of them or a "
            "glob."
        }
    )
    output: str = field(
        metadata={
            "help": "Vectors: .npy, an array with one row per text, float32 or of `--precision`, or .parquet, the "
            f"columns of the input and `{EMBEDDING_COLUMN}`, which `hf-dse search` reads. With `--engine ray`: a "
            "folder of .parquet files."
        }
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    truncation: bool = field(default=True, metadata={"help": "Truncate longer texts. If false, they raise an error."})
    normalize: bool = field(default=False, metadata={"help": "Scale the vectors to unit length."})
    prompt_name: str = field(
        default="document",
        metadata={"help": "Which of the model's prompts stands before each text: document, query or another it has."},
    )


@dataclass
class SizeArguments:
    """How large the vectors are."""

    truncate_dim: int | None = field(
        default=None, metadata={"help": "Keep only so many numbers of each vector, the first ones. Default: all."}
    )
    precision: str = field(
        default="float32",
        metadata={
            "help": "Of each number: float32; int8 or uint8, a quarter of the memory; binary or ubinary, the sign "
            "alone, a 32nd. Queries of a search stay float32.",
            "choices": list(PRECISIONS),
        },
    )

    def __post_init__(self) -> None:
        check_positive(self, "truncate_dim")


@dataclass
class ChunkArguments:
    """Whether a document has one vector or many."""

    chunks: bool = field(
        default=False,
        metadata={"help": "A vector for each chunk of a document, of which the best counts, instead of one vector."},
    )
    chunk_size: int | None = field(
        default=None,
        metadata={
            "help": "With `--chunks`: tokens of a chunk, at most; it ends with a paragraph or a sentence. Default: "
            f"{CHUNK_SIZE}, or what the model reads."
        },
    )
    contextual: bool = field(
        default=False,
        metadata={
            "help": "With `--chunks`: pool the chunks from one pass over their document. The default, to encode each "
            "alone, is better for models that were not trained for it."
        },
    )

    def __post_init__(self) -> None:
        check_positive(self, "chunk_size")
        if not self.chunks and (self.chunk_size is not None or self.contextual):
            raise ValueError("`--chunk_size` and `--contextual` are options of chunks: add `--chunks`.")


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
        default=None, metadata={"help": "Number of Ray workers. Default: as many as GPUs or CPU cores allow."}
    )
    num_gpus: float | None = field(
        default=None,
        metadata={
            "help": "GPUs per Ray worker; a fraction shares a GPU. Default: 1 if the cluster has GPUs, otherwise 0."
        },
    )

    def __post_init__(self) -> None:
        check_positive(self, "num_workers")
        if self.num_gpus is not None and self.num_gpus < 0:
            raise ValueError(f"num_gpus={self.num_gpus}: it must not be negative.")
        if self.engine == "local" and (self.num_workers, self.num_gpus) != (None, None):
            raise ValueError("num_workers and num_gpus are options of Ray: pass `--engine ray`, or leave them out.")


@dataclass
class FolderArguments:
    """How the files of a folder are read, and where their index is."""

    chunk_size: int | None = field(
        default=None,
        metadata={
            "help": "For a folder of files: split them into passages of up to so many tokens, at ends of paragraphs "
            f"and sentences. 0: whole files, cut at the model's limit. Default: {CHUNK_SIZE}, or what the model reads."
        },
    )
    index_dir: str | None = field(
        default=None,
        metadata={
            "help": "For a folder of files: folder of its index, which is made and updated as needed. Default: one in "
            "the cache of Hugging Face (HF_HOME), by the paths of the files and of the model."
        },
    )

    def __post_init__(self) -> None:
        check_at_least(0, chunk_size=self.chunk_size)
