# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: a student learns the layers of its source encoder on unlabelled text."""

from typing import Any

from transformers import set_seed

from hf_dse.common.loading import load_config
from hf_dse.common.provenance import describe_source
from hf_dse.convert.convert import convert_encoder
from hf_dse.convert.student import limit_tokens, load_or_convert, with_own_attention
from hf_dse.data.texts import load_texts
from hf_dse.stages.shared import DistillationResult, Stage
from hf_dse.training.base import check_batches
from hf_dse.training.general_trainer import GeneralTrainer


def run_general(stage: Stage) -> DistillationResult:
    """Trains a student to match the layers of its source. With validation texts the best student is kept."""
    args, text_args, training_args = stage.args, stage.data_args, stage.training_args
    is_student = stage.model is not None or load_config(args.model_name_or_path).model_type == "dse"
    if is_student and args.teacher_name_or_path is None:
        raise ValueError(
            f"{args.model_name_or_path} is already a DSE model, so the encoder to learn from is unknown: name it with "
            "`--teacher`."
        )
    teacher_name = args.teacher_name_or_path or args.model_name_or_path
    splits: Any = stage.dataset
    if splits is None:
        splits = {"train": load_texts(text_args.train_file, text_args.text_column, text_args.max_train_samples)}
        if (file := text_args.validation_file) is not None:
            splits["validation"] = load_texts(file, text_args.text_column, text_args.max_eval_samples)
    splits = stage.limit(splits)
    check_batches(training_args, len(splits["train"]))

    set_seed(training_args.seed)
    student = load_or_convert(stage.model or args.model_name_or_path, stage.convert_args).base_model
    trainer = GeneralTrainer(
        model=student,
        args=training_args,
        train_dataset=splits["train"],
        eval_dataset=splits.get("validation"),
        # Before the teacher is loaded.
        processing_class=limit_tokens(stage.load_tokenizer(), student, training_args.max_length),
        teacher=with_own_attention(convert_encoder(teacher_name)),
    )
    weights = {name: getattr(training_args, name) for name in ("hidden_weight", "sentence_weight")}
    return stage.train(
        trainer,
        # It has learned no task.
        dict,
        recipe={"learned from": f"layers of {describe_source(teacher_name).name}", **weights},
        datasets=[text_args.train_file],
    )
