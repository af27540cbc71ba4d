# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Fine-tuning a cross-encoder on sentence pairs."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import torch
from transformers import (
    AutoModelForSequenceClassification,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    set_seed,
)
from transformers.utils import logging

from hf_dse.common.files import writing
from hf_dse.data.collators import CrossEncoderCollator
from hf_dse.data.pairs import DataArguments, load_pairs, resolve_task
from hf_dse.data.tokenization import check_max_length, lengths
from hf_dse.inference.loading import load_tokenizer, load_weights
from hf_dse.metrics import compute_metrics_for
from hf_dse.teacher.arguments import TeacherArguments
from hf_dse.training.arguments import PairTrainingArguments
from hf_dse.training.base import ReproducibleTrainer, check_output_dir, locks_output_dir
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)


class CrossEncoderTrainer(ReproducibleTrainer):
    """A [`~transformers.Trainer`] that swaps the sentences of pairs in training only."""

    def get_eval_dataloader(self, eval_dataset=None):
        training = self.data_collator
        if isinstance(training, CrossEncoderCollator):
            self.data_collator = CrossEncoderCollator(training.processing_class, training.max_length)
        try:
            return super().get_eval_dataloader(eval_dataset)
        finally:
            self.data_collator = training


@locks_output_dir
def train_teacher(
    teacher_args: TeacherArguments, data_args: DataArguments, training_args: PairTrainingArguments
) -> dict[str, float]:
    """
    Fine-tunes an encoder as a cross-encoder on a pair task and saves it with its tokenizer.

    In symmetric tasks each pair is shown in random order, so that both orders are learned over the epochs.

    Args:
        teacher_args (`TeacherArguments`):
            The encoder.
        data_args (`DataArguments`):
            The pairs. The split `train` is required. `validation` is evaluated during training, and both `validation`
            and `test` at the end, if they are labelled.
        training_args ([`PairTrainingArguments`]):
            The training arguments.

    Returns:
        `dict[str, float]`: the metrics of the training, and of the saved model as `eval_*` (validation) and `test_*`.

    Raises:
        `FileExistsError`: if the output folder is not empty.
        `ValueError`: if the data are invalid, the loss is NaN or infinite, or all predictions are equal.

    Example:

    ```python
    >>> from hf_dse import DataArguments, PairTrainingArguments, TeacherArguments, train_teacher

    >>> metrics = train_teacher(
    ...     TeacherArguments("sentence-transformers/all-MiniLM-L6-v2"),
    ...     DataArguments(dataset_name="embedded", max_train_samples=16, max_eval_samples=16),
    ...     PairTrainingArguments("trained_teacher", num_train_epochs=1, report_to="none"),
    ... )
    >>> sorted(name for name in metrics if name.endswith("pearson"))
    ['eval_pearson', 'test_pearson']
    ```
    """
    task = resolve_task(data_args)
    checkpoint = check_output_dir(
        str(training_args.output_dir), training_args.resume_from_checkpoint, teacher_args.overwrite_output_dir
    )
    pairs = load_pairs(data_args)
    if "train" not in pairs:
        raise ValueError(f"There is no train split to learn from; found {', '.join(pairs)}.")
    labelled = {split for split, part in pairs.items() if "label" in part.column_names}
    if training_args.metric_for_best_model is None and not training_args.prediction_loss_only:
        training_args.metric_for_best_model = task.metric_for_best_model

    set_seed(training_args.seed)
    model, tokenizer, new = load_base(teacher_args, task.num_labels, task.problem_type)
    if task.num_labels == 1:
        _center_head(model, new, pairs["train"]["label"][:])
    check_max_length(training_args.max_length, model, tokenizer, pair=True)
    parts = {split: lengths(part, tokenizer, joint=True) for split, part in pairs.items()}
    for split, part in parts.items():
        cut = sum(length > training_args.max_length for length in part["length"][:])
        if cut:
            logger.warning(
                f"{cut} of {len(part)} {split} pairs are longer than {training_args.max_length} tokens and are "
                "truncated: raise `max_length` if their ends matter."
            )
    trainer = CrossEncoderTrainer(
        model=model,
        args=training_args,
        train_dataset=parts["train"],
        eval_dataset=parts["validation"] if "validation" in labelled else None,
        processing_class=tokenizer,
        data_collator=CrossEncoderCollator(tokenizer, training_args.max_length, swap=task.symmetric),
        compute_metrics=compute_metrics_for(task.problem_type, task.num_labels),
    )
    show_progress(trainer)
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    with writing(Path(str(training_args.output_dir))):
        trainer.save_model()
    trainer.save_state()
    for split, prefix in (("validation", "eval"), ("test", "test")):
        if split in labelled:
            metrics.update(trainer.evaluate(parts[split], metric_key_prefix=prefix))
    trainer.save_metrics("all", metrics, combined=False)
    return metrics


def load_base(
    teacher_args: TeacherArguments, num_labels: int, problem_type: str | None
) -> tuple[PreTrainedModel, PreTrainedTokenizerBase, set[str]]:
    """Loads the encoder with a head, its tokenizer, and the names of the parameters that start from random numbers."""
    source: dict[str, Any] = {
        "revision": teacher_args.model_revision,
        "trust_remote_code": teacher_args.trust_remote_code,
    }
    # Train float32 weights even if the checkpoint is in half precision; bf16 and fp16 are mixed precision.
    model, info = load_weights(
        AutoModelForSequenceClassification,
        teacher_args.model_name_or_path,
        num_labels=num_labels,
        problem_type=problem_type,
        dtype=torch.float32,
        # A cross-encoder for another task can be the base too; its head is replaced.
        ignore_mismatched_sizes=True,
        **source,
    )
    new = {*info["missing_keys"], *(key for key, *_ in info["mismatched_keys"])}
    return model, load_tokenizer(teacher_args.model_name_or_path, **source), new


def _center_head(model: PreTrainedModel, new: set[str], labels: Sequence[float]) -> None:
    """
    Initializes the bias of a new regression head with the mean label. Otherwise the first epoch is spent on learning
    this offset with the small learning rate of fine-tuning.
    """
    for name, parameter in model.named_parameters():
        if name in new and name.endswith("bias") and parameter.shape == (1,):
            with torch.no_grad():
                parameter.fill_(sum(labels) / len(labels))
