# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Which student learns from whom."""

from dataclasses import dataclass, field


@dataclass
class StudentArguments:
    """Which student learns from which teacher."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(
        default="pairs",
        metadata={
            "help": "pairs: from labels and a cross-encoder's scores. general: from unlabelled text and the layers of "
            "the source encoder; `hf-dse distill --stage general --help` lists its options.",
            "choices": ["general", "pairs"],
        },
    )
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Cross-encoder that scores the training pairs, unless they have `teacher_logits` already."},
    )
    teacher_revision: str = field(default="main", metadata={"help": "Branch, tag or commit of the teacher."})
    teacher_dtype: str = field(
        default="float32",
        metadata={
            "help": "Number format of the teacher's weights; bfloat16 is faster where the hardware has it.",
            "choices": ["float32", "bfloat16", "float16"],
        },
    )
    trust_remote_code: bool = field(
        default=False, metadata={"help": "Run the code that comes with teacher and bi-encoder."}
    )
    bi_encoder_name_or_path: str | None = field(
        default=None,
        metadata={
            "help": "Bi-encoder, such as the source, whose similarities between sentences of different pairs the "
            "student keeps; `--similarity_weight` says how much."
        },
    )
    score_cache_dir: str | None = field(
        default=None, metadata={"help": "Folder where the teacher's scores are kept for other runs."}
    )
    augmented_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "Files of pairs without labels, as `hf-dse augment` makes them: they learn from the teacher."
        },
    )
    augmented_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of an augmented pair."})
    labelled_weight: float = field(default=1.0, metadata={"help": "Weight of the loss of a labelled pair."})
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )


@dataclass
class GeneralArguments:
    """Which student learns from the layers of which encoder."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(default="general", metadata={"help": "This stage.", "choices": ["general", "pairs"]})
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder with softmax attention to learn from. Default: the student's source."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )
