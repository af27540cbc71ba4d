# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Arguments of the stages: which student learns from which teacher."""

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
            "help": "pairs: train on labels and a cross-encoder's scores. general: train on unlabelled text and the "
            "layers of the source encoder; `hf-dse distill --stage general --help` lists its options.",
            "choices": ["general", "pairs"],
        },
    )
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Cross-encoder that scores the training pairs, unless they already have `teacher_logits`."},
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
            "help": "Bi-encoder, such as the source, whose similarities between sentences of different pairs the "
            "student keeps; `--similarity_weight` is the weight of this loss."
        },
    )
    score_cache_dir: str | None = field(
        default=None, metadata={"help": "Folder where the teacher's scores are cached for other runs."}
    )
    augmented_file: list[str] | None = field(
        default=None,
        metadata={
            "help": "Files of unlabelled pairs from `hf-dse augment`; the student learns their teacher's scores."
        },
    )
    augmented_weight: float = field(default=1.0, metadata={"help": "Weight of augmented pairs in the loss."})
    labelled_weight: float = field(default=1.0, metadata={"help": "Weight of labelled pairs in the loss."})
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )


@dataclass
class GeneralArguments:
    """Which student learns from the layers of which encoder."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    stage: str = field(default="general", metadata={"help": "The stage.", "choices": ["general", "pairs"]})
    teacher_name_or_path: str | None = field(
        default=None, metadata={"help": "Encoder with softmax attention to learn from. Default: the student's source."}
    )
    overwrite_output_dir: bool = field(
        default=False, metadata={"help": "Train into a folder that is not empty; its old checkpoints are deleted."}
    )
