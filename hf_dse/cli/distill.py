# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The commands that make students: `convert`, `distill`, `export` and `demo`."""

import json
from dataclasses import asdict, dataclass, field, replace
from pathlib import Path
from typing import Any

from datasets import Dataset, concatenate_datasets
from transformers import AutoConfig, AutoModel, AutoTokenizer, set_seed
from transformers.utils import logging

from ..convert import ConvertArguments, make_pair_model
from ..data import DataArguments, load_pairs, mix_pairs, resolve_task
from ..encoding import max_tokens
from ..evaluation import compute_metrics_for, evaluate_model
from ..export import export_model
from ..modeling import DseForSequenceClassification
from ..teacher import check_num_labels, load_teacher, score_pairs
from ..trainer import DseTrainer
from ..training_args import DseTrainingArguments, check_output_dir
from . import parse_args
from .evaluate import format_table, write_atomically


logger = logging.get_logger(__name__)


@dataclass
class ConvertCommandArguments:
    """What to convert, and where to."""

    model_name_or_path: str = field(metadata={"help": "Encoder to convert: a Hub id or a folder."})
    output_dir: str = field(metadata={"help": "Folder of the new model."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


@dataclass
class StudentArguments:
    """Which student learns from which teacher."""

    model_name_or_path: str = field(
        metadata={"help": "A DSE model, or an encoder that is converted first: a Hub id or a folder."}
    )
    teacher_name_or_path: str | None = field(
        default=None,
        metadata={"help": "Cross-encoder that scores the training pairs, unless they have `teacher_logits` already."},
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
class ExportArguments:
    """What to export, and where to."""

    model_name_or_path: str = field(metadata={"help": "A DSE model: a Hub id, a folder or a Trainer checkpoint."})
    output_dir: str = field(metadata={"help": "Folder to write."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def convert(argv: list[str]) -> None:
    """`hf-dse convert`."""
    args, convert_args = parse_args(
        argv,
        ConvertCommandArguments,
        ConvertArguments,
        prog="hf-dse convert",
        description="Turn a pretrained encoder into one with linear attention.",
    )
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = convert_args.convert(args.model_name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    folder = export_model(
        encoder, tokenizer, args.output_dir, base_model=args.model_name_or_path, overwrite=args.overwrite_output_dir
    )
    print(f"Saved to {folder}")


def load_student(
    name_or_path: str, convert_args: ConvertArguments, num_labels: int, problem_type: str
) -> DseForSequenceClassification:
    """
    Loads a DSE model, or converts an encoder, for sentence pairs.

    Args:
        name_or_path (`str`):
            A DSE model, with or without a head for this task, or an encoder that [`convert_encoder`] takes.
        convert_args (`ConvertArguments`):
            How an encoder is converted; not used for a DSE model.
        num_labels (`int`):
            Labels of the task. A task of two classes gets one logit, as in DSE.
        problem_type (`str`):
            `"regression"` or `"single_label_classification"`.
    """
    # Binary cross-entropy on one logit has the name "multi_label_classification" in transformers.
    labels = {"num_labels": num_labels, "problem_type": problem_type}
    if num_labels == 2:
        labels = {"num_labels": 1, "problem_type": "multi_label_classification"}
    config = AutoConfig.from_pretrained(name_or_path)
    if config.model_type != "dse":
        return make_pair_model(convert_args.convert(name_or_path), **labels)
    if convert_args != ConvertArguments():
        logger.warning(f"{name_or_path} is a DSE model already: the options of conversion are not used.")
    has_head = "DseForSequenceClassification" in (config.architectures or [])
    if has_head and config.num_labels == labels["num_labels"]:
        return DseForSequenceClassification.from_pretrained(name_or_path, problem_type=labels["problem_type"])
    return make_pair_model(AutoModel.from_pretrained(name_or_path), **labels)


def load_augmented(files: list[str], data_args: DataArguments) -> Dataset:
    """Reads pairs that `hf-dse augment` made, in the way of `data_args` but for what names the labelled pairs."""
    own: dict[str, Any] = {"dataset_name": None, "validation_file": None, "test_file": None, "max_train_samples": None}
    # No column has the name "": labels of another task would be taken for this one's.
    own |= {"sentence1_column": None, "sentence2_column": None, "label_column": ""}
    parts = [load_pairs(replace(data_args, train_file=file, **own), require_labels=False)["train"] for file in files]
    return concatenate_datasets(parts)


def distill(argv: list[str]) -> None:
    """`hf-dse distill`."""
    args, convert_args, data_args, training_args = parse_args(
        argv,
        StudentArguments,
        ConvertArguments,
        DataArguments,
        DseTrainingArguments,
        prog="hf-dse distill",
        description="Train a student on labels and teacher scores.",
    )
    run_distillation(args, convert_args, data_args, training_args)


def run_distillation(
    args: StudentArguments,
    convert_args: ConvertArguments,
    data_args: DataArguments,
    training_args: DseTrainingArguments,
) -> dict[str, dict[str, float]]:
    """
    Loads pairs, scores them with the teacher where needed, trains the student, evaluates it on the labelled
    validation and test splits, and writes a complete model folder to `training_args.output_dir`.

    Returns:
        `dict[str, dict[str, float]]`: metrics by split.
    """
    output_dir = str(training_args.output_dir)
    checkpoint = check_output_dir(output_dir, training_args.resume_from_checkpoint, args.overwrite_output_dir)
    task = resolve_task(data_args)
    pairs = load_pairs(data_args, require_labels=False)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from, only {', '.join(pairs)}.")

    set_seed(training_args.seed)
    model = load_student(args.model_name_or_path, convert_args, task.num_labels, task.problem_type)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    # What cannot work shall fail now, not after hours of scoring or training.
    if data_args.max_seq_length > model.config.max_position_embeddings:
        raise ValueError(
            f"`max_seq_length` is {data_args.max_seq_length}, but the student takes at most "
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
        limits = [2 * data_args.max_seq_length, max_tokens(teacher, teacher_tokenizer)]
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
        max_seq_length=data_args.max_seq_length,
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
            max_seq_length=data_args.max_seq_length,
        )
        for split, part in labelled.items()
    }
    if trainer.is_world_process_zero():
        recipe = {
            "distillation_alpha": training_args.distillation_alpha,
            "learning_rate": training_args.learning_rate,
            "num_train_epochs": training_args.num_train_epochs,
            "train_batch_size": training_args.train_batch_size * training_args.gradient_accumulation_steps,
            "seed": training_args.seed,
        }
        export_model(
            trainer.model,
            tokenizer,
            Path(output_dir) / "model",
            metrics=metrics,
            base_model=args.model_name_or_path,
            teacher=args.teacher_name_or_path,
            datasets=[data_args.task_name or data_args.dataset_name],
            recipe=recipe,
            max_seq_length=data_args.max_seq_length,
            model_id=Path(output_dir).name,
            overwrite=True,
        )
        results = {
            "metrics": metrics,
            "recipe": asdict(args) | asdict(convert_args) | asdict(data_args) | recipe,
            "training": trained.metrics,
        }
        write_atomically(
            Path(output_dir) / "results.json", lambda file: file.write(json.dumps(results, indent=2).encode())
        )
        if metrics:
            print(format_table(metrics))
        print(f"Saved to {Path(output_dir) / 'model'}")
    return metrics


def export(argv: list[str]) -> None:
    """`hf-dse export`."""
    (args,) = parse_args(
        argv, ExportArguments, prog="hf-dse export", description="Write a complete, documented model folder."
    )
    config = AutoConfig.from_pretrained(args.model_name_or_path)
    if config.model_type != "dse":
        raise ValueError(
            f"{args.model_name_or_path} is of the type {config.model_type!r}, and only DSE models are exported: make "
            "one of it with `hf-dse convert`."
        )
    has_head = "DseForSequenceClassification" in (config.architectures or [])
    model = (DseForSequenceClassification if has_head else AutoModel).from_pretrained(args.model_name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    folder = export_model(model, tokenizer, args.output_dir, overwrite=args.overwrite_output_dir)
    print(f"Saved to {folder}")


def demo(argv: list[str]) -> None:
    """`hf-dse demo`."""
    from ..demo import DemoArguments, run_demo

    (args,) = parse_args(
        argv, DemoArguments, prog="hf-dse demo", description="The whole way on a small embedded data set."
    )
    run_demo(args)
