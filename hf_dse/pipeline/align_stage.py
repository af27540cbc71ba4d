# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The align stage: a student learns the vectors of a larger bi-encoder on unlabelled text."""

import shutil
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import datasets
import numpy as np
import pyarrow
import torch
from accelerate.utils import broadcast_object_list
from datasets import Dataset, DatasetDict
from transformers import set_seed
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.common.hub import pin
from hf_dse.common.provenance import describe_source
from hf_dse.data.arguments import TextArguments
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.texts import load_texts
from hf_dse.data.tokenization import check_max_length
from hf_dse.evaluation.pairs import cosines
from hf_dse.inference.encoding import encode, encode_pairs
from hf_dse.inference.loading import load_tokenizer
from hf_dse.metrics import _score
from hf_dse.modeling import DseModel
from hf_dse.pipeline.arguments import AlignArguments
from hf_dse.pipeline.inputs import Given, make_once
from hf_dse.pipeline.results import MODEL_FOLDER, DistillationResult, describe_recipe, push_result, write_results
from hf_dse.publish.export import export_model
from hf_dse.student.checkpoint import limit_tokens, load_converted
from hf_dse.student.convert import ConvertArguments
from hf_dse.student.projection import drop_projection
from hf_dse.teacher.bi_encoders import BiEncoder
from hf_dse.training.align_trainer import AlignTrainer
from hf_dse.training.arguments import AlignTrainingArguments
from hf_dse.training.base import check_output_dir, locks_output_dir
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)

# Folder of the teacher's vectors within the output folder, until the stage is finished.
VECTORS_FOLDER = ".hf-dse-vectors"

Metrics = dict[str, dict[str, float]]


@locks_output_dir
def run_align(
    args: AlignArguments,
    convert_args: ConvertArguments,
    text_args: TextArguments,
    training_args: AlignTrainingArguments,
    base_model: str | None = None,
    given: Given | None = None,
) -> DistillationResult:
    """
    Computes the vectors of the teacher for unlabelled texts, trains the student to meet them, and writes a complete
    model folder to `training_args.output_dir`. With several processes, only the first one runs the teacher.

    Args:
        args ([`AlignArguments`]):
            Student and teacher.
        convert_args ([`ConvertArguments`]):
            How to convert an encoder to a student.
        text_args ([`TextArguments`]):
            The texts.
        training_args ([`AlignTrainingArguments`]):
            The training.
        base_model (`str`, *optional*):
            The source that the model card names. Defaults to `args.model_name_or_path`.
        given ([`Given`], *optional*):
            A loaded student and its tokenizer, and loaded texts, to use instead of those that the arguments name.

    Returns:
        [`DistillationResult`]: the student. Its metrics are `before` and `after` the training, and those of the
        `teacher`: `teacher_cosine`, the mean cosine to the teacher's vectors on the validation texts, and with
        `args.sts_file` the `cosine_spearman` of the pairs and its `share` of the teacher's.

    Raises:
        `FileExistsError`: if the output folder is not empty.
        `ValueError`: if texts, models or options are invalid or do not match.
    """
    given = given or Given()
    output_dir = Path(str(training_args.output_dir))
    checkpoint = check_output_dir(str(output_dir), training_args.resume_from_checkpoint, args.overwrite_output_dir)
    texts = _load_splits(text_args, given)
    pairs = None
    if args.sts_file is not None:
        pairs = load_pairs(DataArguments(test_file=args.sts_file, num_labels=1), ["test"])["test"]
    set_seed(training_args.seed)
    student: Any = given.model
    if student is None:
        student = load_converted(args.model_name_or_path, convert_args)
    keeps_projection = args.keep_projection or student.projection is not None
    source_tokenizer = given.processing_class or load_tokenizer(args.model_name_or_path)
    # Fail early, not after hours of the teacher.
    check_max_length(training_args.max_length, student, source_tokenizer)
    tokenizer = limit_tokens(source_tokenizer, student, training_args.max_length)
    is_first = training_args.process_index == 0
    metrics: Metrics = {}

    own_cache = output_dir / VECTORS_FOLDER
    cache_dir = own_cache if args.score_cache_dir is None else to_path(args.score_cache_dir)

    def embed() -> DatasetDict:
        teacher = BiEncoder(
            str(args.teacher_name_or_path),
            revision=args.teacher_revision,
            trust_remote_code=args.trust_remote_code,
            dtype=args.teacher_dtype,
            prompt_name=args.teacher_prompt_name,
            max_length=training_args.max_length,
            batch_size=training_args.per_device_eval_batch_size,
            device=training_args.device,
        )
        if pairs is not None:
            known = dict.fromkeys([*pairs["sentence1"][:], *pairs["sentence2"][:]])
            vectors = dict(zip(known, teacher.encode(list(known), cache_dir), strict=True))
            first, second = (np.stack([vectors[text] for text in pairs[name]]) for name in ("sentence1", "sentence2"))
            metrics["teacher"] = _spearman(first, second, pairs)
        return DatasetDict({split: _with_vectors(part, teacher, cache_dir) for split, part in texts.items()})

    texts = make_once(embed, training_args, output_dir)
    # Before the student has a linear layer.
    of_pairs = _measure_pairs(student, tokenizer, pairs, training_args)
    trainer = AlignTrainer(
        model=student,
        args=training_args,
        train_dataset=texts["train"],
        eval_dataset=texts.get("validation"),
        processing_class=tokenizer,
    )
    show_progress(trainer)
    before = _measure_texts(student, tokenizer, texts.get("validation"), training_args) | of_pairs
    training = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    trainer.save_state()
    after = _measure_texts(student, tokenizer, texts.get("validation"), training_args)
    student.eval()
    if not keeps_projection and student.projection is not None:
        drop_projection(student)
    after |= _measure_pairs(student, tokenizer, pairs, training_args)
    if is_first:
        metrics = _table(before, after, metrics.get("teacher"))
        teacher_name = pin(str(args.teacher_name_or_path), args.teacher_revision)
        recipe = {
            "learned from": f"vectors of {describe_source(teacher_name).name}",
            **{
                f"cosine to the teacher, {when}": f"{row['teacher_cosine']:.4f}"
                for when, row in metrics.items()
                if "teacher_cosine" in row
            },
            **describe_recipe(training_args, "projection_learning_rate"),
        }
        export_model(
            student,
            tokenizer,
            output_dir / MODEL_FOLDER,
            base_model=base_model or args.model_name_or_path or None,
            datasets=[text_args.train_file],
            recipe=recipe,
            max_length=training_args.max_length,
            model_id=training_args.hub_model_id or output_dir.name,
            overwrite=True,
        )
        shutil.rmtree(own_cache, ignore_errors=True)
        write_results(output_dir, {"metrics": metrics, "training": training}, args, convert_args, text_args, recipe)
        push_result(training_args)
    if training_args.world_size > 1:
        (metrics,) = broadcast_object_list([metrics])
    return DistillationResult(student, tokenizer, metrics, output_dir / MODEL_FOLDER)


def _load_splits(text_args: TextArguments, given: Given) -> dict[str, Dataset]:
    """The texts to learn from, and those to evaluate on if there are any."""
    if given.dataset is None and text_args.train_file is None:
        raise TypeError("The align stage needs texts: pass a file or a `datasets.Dataset` as `dataset`.")
    if given.dataset is None:
        files = {"train": text_args.train_file, "validation": text_args.validation_file}
        limits = {"train": text_args.max_train_samples, "validation": text_args.max_eval_samples}
        return {
            split: load_texts(file, text_args.text_column, limits[split])
            for split, file in files.items()
            if file is not None
        }
    splits: Any = given.dataset if isinstance(given.dataset, Mapping) else {"train": given.dataset}
    for name, part in splits.items():
        if not isinstance(part, Dataset) or "text" not in part.column_names:
            columns = f" with the columns {', '.join(part.column_names)}" if isinstance(part, Dataset) else ""
            raise TypeError(
                f"Split {name!r} is a `{type(part).__name__}`{columns}, and the align stage needs a "
                "`datasets.Dataset` with the column `text`."
            )
    if "train" not in splits:
        raise ValueError(f"There is no train split to learn from, only {', '.join(splits)}.")
    return {name: part.select_columns(["text"]) for name, part in splits.items() if name in ("train", "validation")}


def _with_vectors(texts: Dataset, teacher: BiEncoder, cache_dir: Path) -> Dataset:
    # Half the memory; a cosine changes by less than 1e-6.
    vectors = teacher.encode(texts["text"][:], cache_dir, dtype=np.float16)
    rows = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
    texts = texts.flatten_indices()
    return datasets.concatenate_datasets([texts, Dataset(pyarrow.table({"embeddings": rows}))], axis=1)


def _measure_texts(
    model: DseModel, tokenizer: Any, texts: Dataset | None, training_args: AlignTrainingArguments
) -> dict[str, float]:
    # An evaluation by the Trainer before its training would change the steps of several processes.
    if texts is None or training_args.process_index > 0:
        return {}
    vectors = _encode(encode, model, tokenizer, texts["text"][:], training_args=training_args)
    targets = np.asarray(texts.with_format("numpy")["embeddings"][:], dtype=np.float32)
    return {"teacher_cosine": float(cosines(vectors, targets).mean())}


def _measure_pairs(
    model: DseModel, tokenizer: Any, pairs: Dataset | None, training_args: AlignTrainingArguments
) -> dict[str, float]:
    if pairs is None or training_args.process_index > 0:
        return {}
    both = (pairs[name][:] for name in ("sentence1", "sentence2"))
    first, second = _encode(encode_pairs, model, tokenizer, *both, training_args=training_args)
    return _spearman(first, second, pairs)


def _encode(encoder: Callable, *inputs: Any, training_args: AlignTrainingArguments) -> Any:
    """Vectors in the precision of the training."""
    batch_size, device = training_args.per_device_eval_batch_size, training_args.device
    with torch.autocast(device.type, torch.bfloat16, enabled=training_args.bf16):
        return encoder(*inputs, batch_size=batch_size, device=device)


def _spearman(first: np.ndarray, second: np.ndarray, pairs: Dataset) -> dict[str, float]:
    scores = _score(cosines(first, second), np.asarray(pairs["label"]), "regression", 1)
    return {"cosine_spearman": scores["spearman"]}


def _table(before: dict[str, float], after: dict[str, float], teacher: dict[str, float] | None) -> Metrics:
    """The metrics before and after, and with pairs also the teacher's and their share of it."""
    rows = {"before": before, "after": after} if before or after else {}
    if teacher is not None:
        rows["teacher"] = teacher
        # Of nothing there is no share.
        if teacher["cosine_spearman"]:
            for row in rows.values():
                row["share"] = row["cosine_spearman"] / teacher["cosine_spearman"]
    return rows
