# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The general stage: a student learns the layers of its teacher, an encoder with softmax attention, on text."""

from collections.abc import Iterator, Mapping
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

from hf_dse.data.arguments import TextArguments
from hf_dse.data.collators import TextCollator
from hf_dse.data.texts import load_texts
from hf_dse.data.tokenization import check_max_length, text_lengths
from hf_dse.inference.loading import load_config, load_tokenizer
from hf_dse.modeling import DseModel
from hf_dse.student.checkpoint import limit_tokens
from hf_dse.student.convert import convert_encoder
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.base import ReproducibleTrainer, resuming
from hf_dse.training.inputs import OWN_BATCHES, plain_rows
from hf_dse.training.layerwise import LayerwiseDistillation
from hf_dse.training.progress import show_progress


logger = logging.get_logger(__name__)

PROJECTIONS_FILE = "distillation.safetensors"


class ProgressiveCallback(TrainerCallback):
    """
    Progressive knowledge transfer ([MobileBERT](https://huggingface.co/papers/2004.02984)) for a student of M layers:
    the training is divided into M + 1 equal parts. Part m trains layer m on its hidden states only, and all other
    layers are frozen; the last part trains all layers on all losses. One learning rate schedule spans all parts.

    The step determines the part, so a resumed training continues in the right one.
    """

    def on_train_begin(self, args, state, control, model=None, **kwargs):
        num_parts = len(model.layer_mapping) + 1
        if state.max_steps < num_parts:
            raise ValueError(
                f"`progressive` divides the training into {num_parts} parts, one for each student layer and one for "
                f"all layers, but the training has only {state.max_steps} steps: train longer."
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
    [`~transformers.Trainer`] for [`LayerwiseDistillation`]. It logs the parts of the loss in addition to `loss`, and
    evaluates `eval_loss` and the same parts. A checkpoint is a model folder of the student; projections of the
    distillation are saved in the same folder as `distillation.safetensors`.

    Args:
        model ([`LayerwiseDistillation`] or `str`):
            Student and teacher. A string is the folder or Hub id of an encoder: it is the teacher, and its conversion
            with the defaults of [`convert_encoder`] is the student.
        args ([`GeneralTrainingArguments`], *optional*):
            Training arguments. The weights of the losses and the mapping of the layers are those of `model`, unless
            `model` is a string. Defaults to `GeneralTrainingArguments("tmp_trainer")`.
        train_dataset (`datasets.Dataset`, *optional*):
            Texts, in the column `text`.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation. With it the student is evaluated and saved after each epoch and the best one, by
            the loss on the first of several datasets, is kept, unless `args` says otherwise.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of student and teacher, or its folder or Hub id. Defaults to the one of `model` if that is a
            string.
        kwargs:
            Other arguments of [`~transformers.Trainer`].

    Raises:
        `TypeError`: for the arguments of another trainer, or a streaming dataset.
        `ValueError`: without a tokenizer, or for several devices in one process.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse import GeneralTrainer, GeneralTrainingArguments

    >>> trainer = GeneralTrainer(
    ...     model="sentence-transformers/all-MiniLM-L6-v2",
    ...     args=GeneralTrainingArguments("outputs", num_train_epochs=1, report_to="none"),
    ...     train_dataset=Dataset.from_dict({"text": ["A cat sleeps.", "Rain again."]}),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    # The loss is the mean over a batch.
    loss_is_scaled_for_ga = False
    arguments_class = GeneralTrainingArguments
    refused = OWN_BATCHES
    args: GeneralTrainingArguments
    model: LayerwiseDistillation

    def __init__(
        self,
        model: LayerwiseDistillation | str,
        args: GeneralTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | None = None,
        **kwargs: Any,
    ):
        args = self.check_args(args, kwargs)
        self._check_datasets(train_dataset, eval_dataset)
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        if isinstance(model, str):
            name, model = model, self._load_model(model, args)
            if processing_class is None:
                processing_class = load_tokenizer(name)
        if processing_class is None:
            raise ValueError(
                "`GeneralTrainer` needs `processing_class`, the tokenizer of student and teacher: pass the tokenizer, "
                "its folder or its Hub id."
            )
        processing_class = load_tokenizer(processing_class)
        check_max_length(args.max_length, model.student, processing_class)
        # What loads a checkpoint reads as much of a text as the training.
        processing_class = limit_tokens(processing_class, model.student, args.max_length)
        if args.n_gpu > 1:
            raise ValueError(
                f"`GeneralTrainer` cannot use {args.n_gpu} devices in one process, because the teacher is not "
                "replicated: start one process per device with `accelerate launch` or torchrun."
            )
        if train_dataset is not None and args.groups_by_length:
            train_dataset = text_lengths(train_dataset, processing_class, args.max_length)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=TextCollator(processing_class, args.max_length, args.teacher_chunk_length),
            # Without `compute_metrics` the Trainer would keep the loss only.
            compute_metrics=lambda result: dict(zip(model.weights, np.mean(result.predictions, axis=0), strict=True)),
            **kwargs,
        )
        # Part of the loss -> its sum over the steps since the last log line, and the number of these steps.
        self._logged_parts: dict[str, torch.Tensor] = {}
        if args.progressive:
            self.add_callback(ProgressiveCallback)

    @staticmethod
    def _load_model(name_or_path: str, args: GeneralTrainingArguments) -> LayerwiseDistillation:
        if load_config(name_or_path).model_type == "dse":
            raise ValueError(
                f"{name_or_path} is a DSE model, so its teacher is unknown: pass the folder or Hub id of an encoder, "
                "or `LayerwiseDistillation(student, teacher)`."
            )
        # New parameters start from random numbers.
        set_seed(args.seed)
        teacher = convert_encoder(name_or_path, layer_types="full_attention")
        return make_distillation(convert_encoder(name_or_path), teacher, args)

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
        # One row for each text, so that the mean over rows is the mean over texts with any batch size.
        parts = torch.stack([losses[name] for name in self.model.weights]).repeat(len(inputs["input_ids"]), 1)
        return losses["loss"], parts, parts

    @contextmanager
    def _as_student(self) -> Iterator[LayerwiseDistillation]:
        """Lets the Trainer write and read checkpoints of the student only."""
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
            with resuming(folder, PROJECTIONS_FILE):
                self.model.projections.load_state_dict(load_file(Path(folder) / PROJECTIONS_FILE))


def make_distillation(student: DseModel, teacher: DseModel, args: GeneralTrainingArguments) -> LayerwiseDistillation:
    """Student and teacher with the loss weights and the layer mapping of the arguments."""
    return LayerwiseDistillation(
        student,
        teacher,
        layer_mapping=args.layer_mapping,
        hidden_weight=args.hidden_weight,
        embedding_weight=args.embedding_weight,
        relation_weight=args.relation_weight,
        sentence_weight=args.sentence_weight,
        relation_heads=args.relation_heads,
    )


def train_general(
    teacher: DseModel,
    student: DseModel,
    tokenizer: PreTrainedTokenizerBase,
    text_args: TextArguments,
    training_args: GeneralTrainingArguments,
    checkpoint: str | None = None,
) -> dict[str, float]:
    """
    Trains a student on the layers, relations and sentence embeddings of its teacher. With a validation file the best
    student is kept, otherwise the last one.

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
            Loss weights, layer mapping and all other options of the training.
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
    >>> from hf_dse import GeneralTrainingArguments, TextArguments, convert_encoder, train_general

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> metrics = train_general(
    ...     teacher=convert_encoder(source, layer_types="full_attention"),
    ...     student=convert_encoder(source, num_hidden_layers=3),
    ...     tokenizer=AutoTokenizer.from_pretrained(source),
    ...     text_args=TextArguments("sentences.txt"),
    ...     training_args=GeneralTrainingArguments("outputs", report_to="none"),
    ... )
    ```
    """
    check_max_length(training_args.teacher_chunk_length or training_args.max_length, teacher, tokenizer)
    check_max_length(training_args.max_length, student, tokenizer)
    train = load_texts(text_args.train_file, text_args.text_column, text_args.max_train_samples)
    validation = None
    if text_args.validation_file is not None:
        validation = load_texts(text_args.validation_file, text_args.text_column, text_args.max_eval_samples)

    # Projections start from random numbers.
    set_seed(training_args.seed)
    model = make_distillation(student, teacher, training_args)
    layers = ", ".join(f"{layer} from {mapped}" for layer, mapped in enumerate(model.layer_mapping, start=1))
    logger.info(f"Student layers learn from teacher layers: {layers}")
    trainer = GeneralTrainer(
        model=model,
        args=training_args,
        train_dataset=train,
        eval_dataset=validation,
        processing_class=tokenizer,
    )
    show_progress(trainer)
    metrics = dict(trainer.train(resume_from_checkpoint=checkpoint).metrics)
    trainer.save_state()
    if validation is not None:
        metrics.update(trainer.evaluate())
    student.eval()
    return metrics
