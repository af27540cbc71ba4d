# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: a student learns the layers of its teacher, an encoder with softmax attention, on plain text."""

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from safetensors.torch import load_file, save_file
from torch import nn
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed
from transformers.utils import logging

from hf_dse.data.collators import TextCollator
from hf_dse.data.texts import TextArguments, load_texts
from hf_dse.data.tokenization import check_max_length, token_lengths
from hf_dse.modeling import DseModel
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.base import ReproducibleTrainer
from hf_dse.training.layerwise import LayerwiseDistillation


logger = logging.get_logger(__name__)

PROJECTIONS_FILE = "distillation.safetensors"


class ProgressiveCallback(TrainerCallback):
    """
    Progressive knowledge transfer ([MobileBERT](https://huggingface.co/papers/2004.02984)) for a student of M layers:
    the training is divided into M + 1 equal parts. In part m layer m is trained, on its hidden states alone, on top of
    layers that stay as they are; in the last part everything is, on all losses. The learning rate follows its one
    schedule over all parts.

    The part follows from the step, so a resumed run goes on in the right one.
    """

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        num_parts = len(model.layer_mapping) + 1
        if state.max_steps < num_parts:
            raise ValueError(
                f"`progressive` divides the training into {num_parts} parts, one for each student layer and one for "
                f"all, but it has only {state.max_steps} steps: train longer."
            )

    def on_step_begin(self, args, state, control, model=None, **kwargs):
        num_layers = len(model.layer_mapping)
        part = 1 + state.global_step * (num_layers + 1) // state.max_steps
        layer = part if part <= num_layers else None
        if layer != model.trained_layer:
            model.train_only(layer)

    def on_train_end(self, args, state, control, model=None, **kwargs):
        # Another callback may have ended the training in any part.
        model.train_only(None)


class GeneralTrainer(ReproducibleTrainer):
    """
    [`~transformers.Trainer`] for [`LayerwiseDistillation`]. It logs the parts of the loss beside `loss`, and evaluates
    to `eval_loss` and the same parts. A checkpoint is a model folder of the student; projections of the distillation
    lie beside it in `distillation.safetensors`.

    Args:
        model ([`LayerwiseDistillation`]):
            Student and teacher.
        args ([`GeneralTrainingArguments`]):
            Training arguments. The weights of the losses and the layers are those of `model`.
        train_dataset (`datasets.Dataset`, *optional*):
            Texts, in the column `text`.
        eval_dataset (`datasets.Dataset`, *optional*):
            The same for evaluation.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of student and teacher.
        kwargs:
            Anything else that [`~transformers.Trainer`] takes.

    Raises:
        `ValueError`: without a tokenizer, or for several devices in one process.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder
    >>> from hf_dse.training.arguments import GeneralTrainingArguments
    >>> from hf_dse.training.general_trainer import GeneralTrainer
    >>> from hf_dse.training.layerwise import LayerwiseDistillation

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> student = convert_encoder(source, num_hidden_layers=3, verbose=False)
    >>> teacher = convert_encoder(source, layer_types="full_attention", verbose=False)
    >>> trainer = GeneralTrainer(
    ...     model=LayerwiseDistillation(student, teacher),
    ...     args=GeneralTrainingArguments(
    ...         "outputs", eval_strategy="no", load_best_model_at_end=False, report_to="none", save_strategy="no"
    ...     ),
    ...     train_dataset=Dataset.from_dict({"text": ["A cat sleeps.", "Rain again."]}),
    ...     processing_class=AutoTokenizer.from_pretrained(source),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    # The loss is the mean over a batch.
    loss_is_scaled_for_ga = False
    args: GeneralTrainingArguments
    model: LayerwiseDistillation

    def __init__(
        self,
        model: LayerwiseDistillation,
        args: GeneralTrainingArguments,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ):
        if processing_class is None:
            raise ValueError("`GeneralTrainer` needs `processing_class`, the tokenizer of student and teacher.")
        if args.n_gpu > 1:
            raise ValueError(
                f"One process cannot use {args.n_gpu} devices here, for there is one teacher: start a process for "
                "each with `accelerate launch` or torchrun."
            )
        if args.train_sampling_strategy in ("group_by_length", "batch_rebalance"):
            train_dataset, eval_dataset = (
                None if part is None else _with_lengths(part, processing_class, args.max_length)
                for part in (train_dataset, eval_dataset)
            )
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=TextCollator(processing_class, args.max_length, args.teacher_chunk_length),
            # Without metrics the Trainer would keep nothing but the loss.
            compute_metrics=lambda result: dict(zip(model.weights, np.mean(result.predictions, axis=0), strict=True)),
            **kwargs,
        )
        # For each part of the loss its sum over the steps since the last line of the log, and their number.
        self._logged_parts: dict[str, torch.Tensor] = {}
        if args.progressive:
            self.add_callback(ProgressiveCallback)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        losses = model(**inputs)
        for name in losses.keys() & self.model.weights.keys():
            part = torch.stack([losses[name].detach(), losses[name].new_ones(())])
            step = part / self.current_gradient_accumulation_steps
            self._logged_parts[name] = self._logged_parts.get(name, 0.0) + step
        return (losses["loss"], losses) if return_outputs else losses["loss"]

    def log(self, logs: dict[str, float], start_time: float | None = None) -> None:
        if "loss" in logs:
            for name in sorted(self._logged_parts):
                total, steps = self.accelerator.reduce(self._logged_parts.pop(name), reduction="mean").tolist()
                logs[name] = total / steps
        super().log(logs, start_time)

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            losses = model(**inputs)
        if prediction_loss_only:
            return losses["loss"], None, None
        # A row for each text, so that the mean over rows is that over texts, however they were batched.
        parts = torch.stack([losses[name] for name in self.model.weights]).repeat(len(inputs["input_ids"]), 1)
        return losses["loss"], parts, parts

    @contextmanager
    def _as_student(self) -> Iterator[LayerwiseDistillation]:
        """Lets the Trainer write and read checkpoints of the student alone."""
        distillation, self.model = self.model, self.model.student
        try:
            yield distillation
        finally:
            self.model = distillation

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        with self._as_student() as distillation:
            super()._save(output_dir)
        if distillation.projections and self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            save_file(distillation.projections.state_dict(), folder / PROJECTIONS_FILE)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with self._as_student():
            super()._load_from_checkpoint(resume_from_checkpoint)
        self._load_projections(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        with self._as_student():
            super()._load_best_model()
        self._load_projections(str(self.state.best_model_checkpoint))

    def _load_projections(self, folder: str) -> None:
        if self.model.projections:
            self.model.projections.load_state_dict(load_file(Path(folder) / PROJECTIONS_FILE))


def _with_lengths(dataset: Dataset, processing_class: PreTrainedTokenizerBase, max_length: int) -> Dataset:
    if "length" in dataset.column_names:
        return dataset
    sizes = token_lengths(processing_class, dataset["text"][:])
    return dataset.add_column("length", [min(size, max_length) for size in sizes])


def train_general(
    teacher: DseModel,
    student: DseModel,
    tokenizer: PreTrainedTokenizerBase,
    text_args: TextArguments,
    training_args: GeneralTrainingArguments,
    checkpoint: str | None = None,
) -> dict[str, float]:
    """
    Trains a student on the layers, relations and sentence embeddings of its teacher, and prints which teacher layer
    each student layer learns from. With a validation file the best student is kept, else the last.

    Args:
        teacher ([`DseModel`]):
            The source encoder with softmax attention.
        student ([`DseModel`]):
            Its conversion; afterwards it holds the trained weights, in evaluation mode.
        tokenizer (`PreTrainedTokenizerBase`):
            The tokenizer of both.
        text_args ([`TextArguments`]):
            The texts.
        training_args ([`GeneralTrainingArguments`]):
            Losses, layers, and everything else.
        checkpoint (`str`, *optional*):
            Folder of a checkpoint to resume from.

    Returns:
        `dict[str, float]`: the metrics of the training and, with a validation file, `eval_loss` and the `eval_*` of
        its parts.

    Raises:
        `ValueError`: for texts, limits, weights or layers that do not fit, or a loss that is not finite.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder
    >>> from hf_dse.data.texts import TextArguments
    >>> from hf_dse.training.arguments import GeneralTrainingArguments
    >>> from hf_dse.training.general_trainer import train_general

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> metrics = train_general(
    ...     teacher=convert_encoder(source, layer_types="full_attention", verbose=False),
    ...     student=convert_encoder(source, num_hidden_layers=3, verbose=False),
    ...     tokenizer=AutoTokenizer.from_pretrained(source),
    ...     text_args=TextArguments("sentences.txt"),
    ...     training_args=GeneralTrainingArguments(
    ...         "outputs", eval_strategy="no", load_best_model_at_end=False, report_to="none", save_strategy="no"
    ...     ),
    ... )
    Student layers learn from teacher layers: 1 from 2, 2 from 4, 3 from 6
    {'train_runtime': ...}
    ```
    """
    check_max_length(training_args.teacher_chunk_length or training_args.max_length, teacher, tokenizer)
    check_max_length(training_args.max_length, student, tokenizer)
    train = load_texts(text_args.train_file, text_args.text_column, text_args.max_train_samples)
    validation = None
    if text_args.validation_file is not None:
        validation = load_texts(text_args.validation_file, text_args.text_column, text_args.max_eval_samples)
    elif training_args.eval_strategy != "no":
        logger.warning("There is no `validation_file`: nothing is evaluated, and the last student is kept.")
        training_args.eval_strategy, training_args.load_best_model_at_end = "no", False

    # Projections start from random numbers.
    set_seed(training_args.seed)
    model = LayerwiseDistillation(
        student,
        teacher,
        layer_mapping=training_args.layer_mapping,
        hidden_weight=training_args.hidden_weight,
        embedding_weight=training_args.embedding_weight,
        relation_weight=training_args.relation_weight,
        sentence_weight=training_args.sentence_weight,
        relation_heads=training_args.relation_heads,
    )
    if training_args.process_index == 0:
        pairs = ", ".join(f"{layer} from {mapped}" for layer, mapped in enumerate(model.layer_mapping, start=1))
        print(f"Student layers learn from teacher layers: {pairs}")
    trainer = GeneralTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
    )
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    trainer.save_state()
    if validation is not None:
        metrics.update(trainer.evaluate())
    student.eval()
    return metrics
