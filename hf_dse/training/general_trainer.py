# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils the layers of an encoder into a student, on text without labels."""

from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from os import PathLike
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, TrainerCallback, set_seed
from transformers.utils import logging

from hf_dse.common.loading import load_config, load_tokenizer
from hf_dse.convert.convert import convert_encoder
from hf_dse.convert.student import limit_tokens
from hf_dse.data.collators import TextCollator
from hf_dse.data.tokenization import check_max_length, lengths
from hf_dse.modeling import DseModel
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.base import Optimizers, ReproducibleTrainer, plain_rows
from hf_dse.training.layerwise import LayerwiseDistillation


logger = logging.get_logger(__name__)


class GeneralTrainer(ReproducibleTrainer):
    """
    [`~transformers.Trainer`] for a student that learns the hidden states, relations and sentence embeddings of its
    source on text without labels. It logs the parts of the loss in addition to `loss`. `trainer.model.student` is the
    student, and a checkpoint is its model folder.

    Args:
        model ([`DseModel`] or `str`):
            The student. A string is the folder or Hub id of an encoder, whose conversion with the defaults of
            [`convert_encoder`] is the student.
        args ([`GeneralTrainingArguments`], *optional*):
            Training arguments. Defaults to `GeneralTrainingArguments("tmp_trainer")`.
        train_dataset (`datasets.Dataset`, *optional*):
            Texts, in the column `text`.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation. With it the student is evaluated and saved after each epoch and the best one, by
            the loss on the first of several datasets, is kept, unless `args` says otherwise.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of student and teacher, or its folder or Hub id. Defaults to the one of `model` if that is a
            string.
        teacher ([`DseModel`] or `str`, *optional*):
            The encoder with softmax attention, `convert_encoder(source, layer_types="full_attention")`. A string is
            the folder or Hub id of the source. Defaults to `model` if that is a string.
        callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`].

    Raises:
        `TypeError`: for the arguments of another trainer, or a streaming dataset.
        `ValueError`: without a tokenizer or a teacher, for layers that do not fit, or for several devices in one
            process.

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

    arguments_class = GeneralTrainingArguments
    args: GeneralTrainingArguments
    model: LayerwiseDistillation

    def __init__(
        self,
        model: DseModel | str | PathLike,
        args: GeneralTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | PathLike | None = None,
        teacher: DseModel | str | PathLike | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
    ):
        args = self.check_args(args)
        self._check_datasets(train_dataset=train_dataset, eval_dataset=eval_dataset)
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        if isinstance(model, str | PathLike):
            name = str(model)
            if teacher is None and load_config(name).model_type == "dse":
                raise ValueError(f"{name} is a DSE model, so its source is unknown: pass it as `teacher`.")
            teacher = name if teacher is None else teacher
            processing_class = name if processing_class is None else processing_class
            # New parameters start from random numbers.
            set_seed(args.seed)
            model = convert_encoder(name)
        source: Any = teacher
        if isinstance(teacher, str | PathLike):
            source = convert_encoder(str(teacher), layer_types="full_attention")
        if processing_class is None or source is None:
            raise ValueError(
                "`GeneralTrainer` needs `processing_class`, the tokenizer of student and teacher, and `teacher`, the "
                "source of the student: pass models, folders or Hub ids."
            )
        if args.n_gpu > 1:
            raise ValueError(
                f"`GeneralTrainer` cannot use {args.n_gpu} devices in one process, because the teacher is not "
                "replicated: start one process per device with `accelerate launch` or torchrun."
            )
        processing_class = load_tokenizer(processing_class)
        check_max_length(args.max_length, model, processing_class)
        check_max_length(args.max_length, source, processing_class)
        # What loads a checkpoint reads as much of a text as the training.
        processing_class = limit_tokens(processing_class, model, args.max_length)
        if train_dataset is not None and args.groups_by_length:
            train_dataset = lengths(train_dataset, processing_class, max_length=args.max_length)
        distillation = LayerwiseDistillation(model, source, args)
        layers = enumerate(distillation.layer_mapping, start=1)
        logger.info(f"Student layers learn from teacher layers: {', '.join(f'{m} from {n}' for m, n in layers)}")
        super().__init__(
            model=distillation,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=TextCollator(processing_class, args.max_length),
            callbacks=callbacks,
            optimizers=optimizers,
        )
        # Part of the loss -> its sum over the steps since the last log line, and the number of these steps.
        self._logged_parts: dict[str, torch.Tensor] = {}

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        losses = model(**inputs)
        for name in self.model.weights if model.training else ():
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

    @contextmanager
    def _as_student(self) -> Iterator[None]:
        """Lets the Trainer write and read checkpoints of the student only."""
        distillation: Any = self.model
        self.model = distillation.student
        try:
            yield
        finally:
            self.model = distillation

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        with self._as_student():
            super()._save(output_dir)

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with self._as_student():
            super()._load_from_checkpoint(resume_from_checkpoint)

    def _load_best_model(self) -> None:
        with self._as_student():
            super()._load_best_model()
