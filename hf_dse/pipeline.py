# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The main job: data, teacher scores, training, evaluation and a documented model folder, stage by stage."""

import hashlib
import json
from contextlib import nullcontext
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, concatenate_datasets
from filelock import FileLock
from transformers import AutoConfig, AutoModel, AutoTokenizer, TrainingArguments, set_seed
from transformers.utils import logging

from hf_dse.common.display import format_table
from hf_dse.common.files import write_atomically
from hf_dse.common.provenance import describe_command, describe_machine
from hf_dse.data.pairs import DataArguments, load_pairs, mix_pairs, resolve_task
from hf_dse.data.texts import TextArguments
from hf_dse.data.tokenization import max_tokens
from hf_dse.evaluation import evaluate_model
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.metrics import compute_metrics_for
from hf_dse.publish.export import export_model
from hf_dse.publish.push import push_model
from hf_dse.student.checkpoint import limit_tokens, load_student
from hf_dse.student.convert import ConvertArguments, convert_encoder
from hf_dse.teacher.load import check_num_labels, load_teacher
from hf_dse.teacher.score import embed_pairs, score_pairs
from hf_dse.training.arguments import DseTrainingArguments, GeneralTrainingArguments
from hf_dse.training.base import check_output_dir
from hf_dse.training.general_trainer import train_general
from hf_dse.training.pair_trainer import DseTrainer


logger = logging.get_logger(__name__)

# The last file that a training writes.
RESULTS_FILE = "results.json"


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


STAGES: dict[str, tuple[type, ...]] = {
    "general": (GeneralArguments, ConvertArguments, TextArguments, GeneralTrainingArguments),
    "pairs": (StudentArguments, ConvertArguments, DataArguments, DseTrainingArguments),
}


def load_augmented(files: list[str], data_args: DataArguments) -> Dataset:
    """Reads pairs that `hf-dse augment` made, in the way of `data_args` but for what names the labelled pairs."""
    own: dict[str, Any] = {"dataset_name": None, "validation_file": None, "test_file": None, "max_train_samples": None}
    # No column has the name "": labels of another task would be taken for this one's.
    own |= {"sentence1_column": None, "sentence2_column": None, "label_column": ""}
    parts = [load_pairs(replace(data_args, train_file=file, **own), require_labels=False)["train"] for file in files]
    return concatenate_datasets(parts)


def run_stages(stages: list[tuple[Any, ...]], cache_dir: str | None = None) -> None:
    """
    Runs stages one after the other, each in a folder of its own below the output folder. Each but the first starts
    from the model of the one before. When resuming, finished stages are left out.

    Args:
        stages (`list[tuple]`):
            What [`parse_stage`] returns for each stage.
        cache_dir (`str`, *optional*):
            Folder of all stages but the last, by their options: a stage that another recipe with the same options has
            finished there is taken from there. Runs at the same time wait for each other.
    """
    base_model, student, key = stages[0][0].model_name_or_path, None, ""
    for number, (args, convert_args, data_args, training_args) in enumerate(stages, start=1):
        if student is not None:
            args.model_name_or_path, convert_args = str(student), ConvertArguments()
        name = f"{number}-{args.stage}"
        is_shared = cache_dir is not None and number < len(stages)
        folder = Path(training_args.output_dir) / name
        if cache_dir is not None and is_shared:
            key = stage_key(key, args, convert_args, data_args, training_args)
            folder = Path(cache_dir) / f"{name}-{key}"
            folder.parent.mkdir(parents=True, exist_ok=True)
        training_args.output_dir, student = str(folder), folder / "model"
        title = f"Stage {number} of {len(stages)} ({args.stage})"
        with FileLock(f"{folder}.lock") if is_shared else nullcontext():
            if is_shared or training_args.resume_from_checkpoint:
                if (folder / RESULTS_FILE).is_file():
                    print(f"{title} is finished: {student}")
                    continue
                is_begun = any(folder.glob("checkpoint-*/trainer_state.json"))
                training_args.resume_from_checkpoint = "last" if is_begun else None
                args.overwrite_output_dir = not is_begun
            print(f"{title}: {args.model_name_or_path} to {student}")
            run_stage(args, convert_args, data_args, training_args, base_model)


def stage_key(previous: str, *arguments: Any) -> str:
    """Identifies a stage by all options that decide about its result, and by the stages before it."""
    options: dict[str, Any] = {}
    for part in arguments:
        options |= part.to_dict() if isinstance(part, TrainingArguments) else asdict(part)
    for name in ("output_dir", "resume_from_checkpoint", "overwrite_output_dir", "logging_dir", "run_name"):
        options.pop(name, None)
    text = previous + json.dumps(options, sort_keys=True, default=str)
    return hashlib.sha256(text.encode()).hexdigest()[:12]


def run_stage(
    args: Any, convert_args: ConvertArguments, data_args: Any, training_args: Any, base_model: str | None = None
) -> None:
    """Runs one stage with arguments of the classes that [`STAGES`] names for it."""
    run = run_general if args.stage == "general" else run_distillation
    run(args, convert_args, data_args, training_args, base_model)


def run_general(
    args: GeneralArguments,
    convert_args: ConvertArguments,
    text_args: TextArguments,
    training_args: GeneralTrainingArguments,
    base_model: str | None = None,
) -> dict[str, float]:
    """
    Trains a student on unlabelled text towards the layers of its source encoder, and writes a complete model folder to
    `training_args.output_dir`. The model card names `base_model` as what it was made from, by default
    `args.model_name_or_path`.

    Returns:
        `dict[str, float]`: the metrics of [`train_general`].
    """
    output_dir = str(training_args.output_dir)
    checkpoint = check_output_dir(output_dir, training_args.resume_from_checkpoint, args.overwrite_output_dir)
    set_seed(training_args.seed)
    is_converted = AutoConfig.from_pretrained(args.model_name_or_path).model_type == "dse"
    if is_converted and args.teacher_name_or_path is None:
        raise ValueError(
            f"{args.model_name_or_path} is a DSE model already, so the encoder that it shall learn from is unknown: "
            "name it with `--teacher_name_or_path`."
        )
    teacher_name = args.teacher_name_or_path or args.model_name_or_path
    teacher = convert_encoder(teacher_name, layer_types="full_attention", verbose=False)
    if is_converted:
        student = AutoModel.from_pretrained(args.model_name_or_path)
    else:
        student = convert_args.convert(args.model_name_or_path)
    tokenizer = limit_tokens(AutoTokenizer.from_pretrained(args.model_name_or_path), student)
    metrics = train_general(teacher, student, tokenizer, text_args, training_args, checkpoint)
    if training_args.process_index == 0:
        names = ("hidden_weight", "embedding_weight", "relation_weight", "sentence_weight", "layer_mapping")
        recipe = {"learned from": f"layers of {Path(teacher_name).name}", **describe_recipe(training_args, *names)}
        export_model(
            student,
            tokenizer,
            Path(output_dir) / "model",
            base_model=base_model or args.model_name_or_path,
            datasets=[text_args.train_file],
            recipe=recipe,
            max_length=training_args.max_length,
            model_id=Path(output_dir).name,
            overwrite=True,
        )
        write_results(output_dir, {"training": metrics}, args, convert_args, text_args, recipe)
        print(f"Saved to {Path(output_dir) / 'model'}")
    return metrics


def run_distillation(
    args: StudentArguments,
    convert_args: ConvertArguments,
    data_args: DataArguments,
    training_args: DseTrainingArguments,
    base_model: str | None = None,
) -> dict[str, dict[str, float]]:
    """
    Loads pairs, scores them with the teacher where needed, trains the student, evaluates it on the labelled
    validation and test splits, and writes a complete model folder to `training_args.output_dir`. The model card names
    `base_model` as what it was made from, by default `args.model_name_or_path`.

    Returns:
        `dict[str, dict[str, float]]`: metrics by split.
    """
    output_dir = str(training_args.output_dir)
    checkpoint = check_output_dir(output_dir, training_args.resume_from_checkpoint, args.overwrite_output_dir)
    task = resolve_task(data_args)
    if (training_args.similarity_weight > 0) != (args.bi_encoder_name_or_path is not None):
        raise ValueError(
            "`--bi_encoder_name_or_path` and `--similarity_weight` go together: name the bi-encoder whose "
            "similarities shall be kept, and give the weight of keeping them."
        )
    pairs = load_pairs(data_args, require_labels=False)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from, only {', '.join(pairs)}.")

    set_seed(training_args.seed)
    model = load_student(args.model_name_or_path, convert_args, task.num_labels, task.problem_type)
    tokenizer = limit_tokens(AutoTokenizer.from_pretrained(args.model_name_or_path), model)
    # What cannot work shall fail now, not after hours of scoring or training.
    if training_args.max_length > model.config.max_position_embeddings:
        raise ValueError(
            f"`max_length` is {training_args.max_length}, but the student takes at most "
            f"{model.config.max_position_embeddings} tokens: lower it, or convert an encoder with a larger "
            "`max_position_embeddings`."
        )
    parts = {"train": pairs["train"]}
    if args.augmented_file:
        parts["augmented"] = load_augmented(args.augmented_file, data_args)
    needed = [name for name in parts if name != "train" or training_args.distillation_alpha > 0]
    unscored = [name for name in needed if "teacher_logits" not in parts[name].column_names]
    if unscored and args.teacher_name_or_path is not None:
        teacher, teacher_tokenizer = load_teacher(args.teacher_name_or_path)
        check_num_labels(teacher.config.num_labels, task)
        # The teacher reads of both sentences what the student reads, as far as it can.
        limits = [2 * training_args.max_length, max_tokens(teacher, teacher_tokenizer)]
        for name in unscored:
            parts[name] = score_pairs(
                teacher,
                parts[name],
                processing_class=teacher_tokenizer,
                max_length=min(limit for limit in limits if limit is not None),
                symmetric=task.symmetric,
                cache_dir=args.score_cache_dir,
                device=training_args.device,
            )
        del teacher
    train = parts["train"]
    if "augmented" in parts:
        train = mix_pairs(train, parts["augmented"], args.labelled_weight, args.augmented_weight)
    if args.bi_encoder_name_or_path is not None:
        encoder, encoder_tokenizer = load_model(ModelArguments(args.bi_encoder_name_or_path))
        # Of long texts both read the same, as far as the bi-encoder can.
        most = max_tokens(encoder, encoder_tokenizer) or training_args.max_length
        with torch.autocast(training_args.device.type, torch.bfloat16, enabled=training_args.bf16):
            train = embed_pairs(
                encoder,
                train,
                processing_class=encoder_tokenizer,
                max_length=min(most, training_args.max_length),
                device=training_args.device,
            )
        del encoder

    labelled = {name: part for name, part in pairs.items() if name != "train" and "label" in part.column_names}
    if "validation" not in labelled:
        logger.warning("There is no labelled validation split: the last model is kept, not the best.")
        training_args.eval_strategy, training_args.load_best_model_at_end = "no", False
    elif training_args.load_best_model_at_end and training_args.metric_for_best_model in (None, "loss"):
        training_args.metric_for_best_model, training_args.greater_is_better = task.metric_for_best_model, True
    trainer = DseTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=labelled.get("validation"),
        processing_class=tokenizer,
        compute_metrics=compute_metrics_for(task.problem_type, task.num_labels),
    )
    trained = trainer.train(resume_from_checkpoint=checkpoint)
    trainer.save_state()

    metrics = {
        split: evaluate_model(
            trainer.model,
            tokenizer,
            part,
            task=task,
            batch_size=training_args.per_device_eval_batch_size,
            max_length=training_args.max_length,
        )
        for split, part in labelled.items()
    }
    if trainer.is_world_process_zero():
        names = ("distillation_alpha", "ranking_weight", "similarity_weight", "scale_learning_rate")
        recipe = describe_recipe(training_args, *names)
        export_model(
            trainer.model,
            tokenizer,
            Path(output_dir) / "model",
            metrics=metrics,
            base_model=base_model or args.model_name_or_path,
            teacher=args.teacher_name_or_path,
            datasets=[data_args.task_name or data_args.dataset_name],
            recipe=recipe,
            max_length=training_args.max_length,
            model_id=training_args.hub_model_id or Path(output_dir).name,
            overwrite=True,
        )
        results = {"metrics": metrics, "training": trained.metrics}
        write_results(output_dir, results, args, convert_args, data_args, recipe)
        if metrics:
            print(format_table(metrics))
        print(f"Saved to {Path(output_dir) / 'model'}")
        if training_args.push_to_hub:
            commit = push_model(
                Path(output_dir) / "model",
                str(trainer.hub_model_id),
                revision=training_args.hub_revision,
                token=training_args.hub_token,
            )
            print(f"Pushed to {commit}")
    return metrics


def describe_recipe(training_args: TrainingArguments, *names: str) -> dict[str, Any]:
    """What a reader of the model card wants to know of a training: what all have, and the fields named."""
    recipe = {
        **{name: getattr(training_args, name) for name in names},
        "learning_rate": training_args.learning_rate,
        "num_train_epochs": training_args.num_train_epochs,
        "train_batch_size": training_args.train_batch_size
        * training_args.gradient_accumulation_steps
        * training_args.world_size,
        "precision": "bf16" if training_args.bf16 else "fp16" if training_args.fp16 else "float32",
        "seed": training_args.seed,
        "machine": describe_machine(),
    }
    command = describe_command()
    return recipe if command is None else {**recipe, "command": command}


def write_results(output_dir: str, results: dict[str, Any], *arguments: Any) -> None:
    """Writes results together with the arguments, dataclasses or mappings, that they come from. Written last."""
    recipe: dict[str, Any] = {}
    for part in arguments:
        recipe |= part if isinstance(part, dict) else asdict(part)
    text = json.dumps({**results, "recipe": recipe}, indent=2)
    write_atomically(Path(output_dir) / RESULTS_FILE, lambda file: file.write(text.encode()))
