# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: a student learns the layers of its source encoder on unlabelled text."""

from pathlib import Path

from transformers import set_seed

from hf_dse.common.provenance import describe_source
from hf_dse.data.arguments import TextArguments
from hf_dse.data.tokenization import check_max_length
from hf_dse.inference.loading import load_config, load_tokenizer
from hf_dse.pipeline.arguments import GeneralArguments
from hf_dse.pipeline.results import MODEL_FOLDER, DistillationResult, describe_recipe, push_result, write_results
from hf_dse.publish.export import export_model
from hf_dse.student.checkpoint import limit_tokens, load_converted
from hf_dse.student.convert import ConvertArguments, convert_encoder
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.base import check_output_dir, locks_output_dir
from hf_dse.training.general_trainer import train_general


@locks_output_dir
def run_general(
    args: GeneralArguments,
    convert_args: ConvertArguments,
    text_args: TextArguments,
    training_args: GeneralTrainingArguments,
    base_model: str | None = None,
) -> DistillationResult:
    """
    Trains a student to match the layers of its source encoder on unlabelled text, and writes a complete model folder
    to `training_args.output_dir`. The model card names `base_model` as the source, by default
    `args.model_name_or_path`.

    Returns:
        [`DistillationResult`]: the student, with the metrics of [`train_general`] under `"training"`.
    """
    output_dir = Path(str(training_args.output_dir))
    checkpoint = check_output_dir(str(output_dir), training_args.resume_from_checkpoint, args.overwrite_output_dir)
    set_seed(training_args.seed)
    is_converted = load_config(args.model_name_or_path).model_type == "dse"
    if is_converted and args.teacher_name_or_path is None:
        raise ValueError(
            f"{args.model_name_or_path} is already a DSE model, so the encoder to learn from is unknown: name it with "
            "`--teacher_name_or_path`."
        )
    teacher_name = args.teacher_name_or_path or args.model_name_or_path
    teacher = convert_encoder(teacher_name, layer_types="full_attention")
    student = load_converted(args.model_name_or_path, convert_args)
    source_tokenizer = load_tokenizer(args.model_name_or_path)
    check_max_length(training_args.max_length, student, source_tokenizer)
    tokenizer = limit_tokens(source_tokenizer, student, training_args.max_length)
    metrics = train_general(teacher, student, tokenizer, text_args, training_args, checkpoint)
    if training_args.process_index == 0:
        names = ("hidden_weight", "embedding_weight", "relation_weight", "sentence_weight", "layer_mapping")
        recipe = {
            "learned from": f"layers of {describe_source(teacher_name).name}",
            **describe_recipe(training_args, *names),
        }
        export_model(
            student,
            tokenizer,
            output_dir / MODEL_FOLDER,
            base_model=base_model or args.model_name_or_path,
            datasets=[text_args.train_file],
            recipe=recipe,
            max_length=training_args.max_length,
            model_id=training_args.hub_model_id or output_dir.name,
            overwrite=True,
        )
        write_results(output_dir, {"training": metrics}, args, convert_args, text_args, recipe)
        push_result(training_args)
    return DistillationResult(student, tokenizer, {"training": metrics}, output_dir / MODEL_FOLDER)
