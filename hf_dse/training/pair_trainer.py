# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a cross-encoder's pair scores into a sentence embedding model."""

import math
from collections.abc import Callable, Mapping, Sequence
from os import PathLike
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.convert.student import limit_tokens
from hf_dse.data.collators import PairCollator
from hf_dse.data.report import (
    are_numbers,
    check_order,
    class_names,
    class_order,
    known_scores,
    match_scale,
)
from hf_dse.data.tokenization import lengths
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.pairs_dse import DsePairOutput, get_problem_type
from hf_dse.teacher.score import with_logits
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import Optimizers, StudentTrainer, check_head_learns, plain_rows, read_tokenizer
from hf_dse.training.losses import PairDistillationLoss
from hf_dse.training.steps import forward_in_parts


logger = logging.get_logger(__name__)


class DseTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] with the pair objective of DSE (see [`PairDistillationLoss`]).

    Args:
        model ([`DseForSequenceClassification`]):
            The student, such as `make_pair_model(convert_encoder(name), num_labels=1)`. A regression has one label,
            classes have one each; two classes have one logit, as in DSE, with `num_labels=1` and
            `problem_type="multi_label_classification"`.
        args ([`DseTrainingArguments`], *optional*):
            Training arguments. Defaults to `DseTrainingArguments()`.
        train_dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2`, `label` (not needed if `distillation_alpha` is 1) and
            `teacher_logits` (not needed if it is 0), as [`load_pairs`] and [`score`] return them. `None` is
            unknown.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation, which compares with the labels. Of several datasets the first tells the best
            model; without labels, for predictions, the last model is kept.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. It is required.
        compute_metrics, callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`].

    Example:

    ```python
    >>> from hf_dse import DataArguments, DseTrainer, DseTrainingArguments
    >>> from hf_dse import convert_encoder, load_pairs, make_pair_model

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> # The embedded pairs have the scores of a teacher; `score` adds them to other pairs.
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=16, max_eval_samples=16))
    >>> trainer = DseTrainer(
    ...     model=make_pair_model(convert_encoder(name), num_labels=1),
    ...     args=DseTrainingArguments("outputs", distillation_alpha=0.5, num_train_epochs=1, report_to="none"),
    ...     train_dataset=pairs["train"],
    ...     processing_class=name,
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    args: DseTrainingArguments

    def __init__(
        self,
        model: DseForSequenceClassification,
        args: DseTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | PathLike | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
    ):
        args = args or DseTrainingArguments()
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        # What loads a checkpoint reads as much of a text as the training.
        tokenizer = limit_tokens(read_tokenizer(model, processing_class), model, args.max_length)
        parts = eval_dataset if isinstance(eval_dataset, Mapping) else {"": eval_dataset}
        first = next(iter(parts.values()))
        for name, part in parts.items():
            if part is not None and "label" in part.column_names:
                check_pair_targets(part, f"{name} evaluation pairs".strip(), model.config, needs_label=True)
        if train_dataset is not None:
            check_pair_targets(train_dataset, "training pairs", model.config)
            name_classes(model.config, class_names(train_dataset))
            train_dataset = match_scores(train_dataset, args.distillation_alpha, model.config)
            if args.groups_by_length:
                train_dataset = lengths(train_dataset, tokenizer, max_length=args.max_length)
        self.pair_loss = PairDistillationLoss(args.distillation_alpha, get_problem_type(model.config))
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            has_eval_loss=first is None or "label" in first.column_names,
            processing_class=tokenizer,
            data_collator=PairCollator(tokenizer, args.max_length),
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
        )

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        inputs = dict(inputs)
        teacher_logits = inputs.pop("teacher_logits", None)
        # Evaluation compares with the labels only, with any `distillation_alpha`.
        if not model.training and "labels" in inputs:
            outputs = model(**inputs)
            loss = outputs.loss
        else:
            labels = inputs.pop("labels", None)
            outputs = self._forward_by_length(model, **inputs) if model.training else model(**inputs)
            loss = self.pair_loss(outputs.logits, labels, teacher_logits)
        return (loss, outputs) if return_outputs else loss

    def _forward_by_length(
        self, model: nn.Module, input_ids: torch.Tensor, attention_mask: torch.Tensor
    ) -> DsePairOutput:
        """The shorter and the longer half of the sentences of a batch, each padded to its longest."""
        half = len(input_ids) + len(input_ids) % 2
        ids, mask = input_ids.flatten(0, 1), attention_mask.flatten(0, 1)
        # Parts of a batch do not pass through what accelerate has wrapped.
        with self.accelerator.autocast():
            embeddings = forward_in_parts(model, ids, mask, half).unflatten(0, (-1, 2))  # [B, 2, D]
        return DsePairOutput(logits=self.model.similarity(*embeddings.unbind(1)), embeddings=embeddings)

    def _train(self, checkpoint: str | None, *args: Any, **kwargs: Any) -> TrainOutput:
        if checkpoint is None:
            self.calibrate_similarity()
        return super()._train(checkpoint, *args, **kwargs)

    def calibrate_similarity(self) -> None:
        """Fits scale and bias of an untrained cosine or dot head to the training targets by least squares."""
        head = self.model.similarity
        # A trained head has a bias, which a ranking stage without a teacher leaves at 0.
        if head.kind == "mlp" or bool((head.start[1] + head.bias != 0).any()):
            return
        check_head_learns(self.model)
        if self.train_dataset is None:
            return
        head.calibrate(*self.fit_line(self.train_dataset, self.data_collator, self.pair_loss))
        start = [", ".join(f"{value:.4g}" for value in part.tolist()) for part in (head.scale, head.bias)]
        logger.info(f"The head starts with the scale {start[0]} and the bias {start[1]}.")


def name_classes(config: Any, names: Sequence[str] | None) -> None:
    """Gives a student the names of the classes of its pairs; of two classes, one logit is that of the second."""
    own = list(config.id2label.values())
    if names is None or get_problem_type(config) == "regression":
        return
    if are_numbers(own):
        names = names[-1:] if len(own) == 1 else names
        config.id2label, config.label2id = dict(enumerate(names)), {name: row for row, name in enumerate(names)}
    elif class_order(own, names) not in (None, list(range(len(own)))):
        raise ValueError(
            f"The student's classes are {', '.join(own)}, and those of the pairs {', '.join(names)}: give the pairs "
            "the order of the student (`dataset.align_labels_with_mapping`), or train a new head."
        )


def match_scores(pairs: Dataset, alpha: float, config: Any) -> Dataset:
    """
    Pairs whose teacher's scores are on the scale of their labels, where both teach. A `ValueError` if the scores
    contradict the labels.
    """
    labels, scores = known_scores(pairs)
    # Scores alone, or labels alone, are targets as they are.
    if not len(labels) or (alpha == 0 and len(labels) == len(pairs)):
        return pairs
    if get_problem_type(config) != "regression":
        check_order(labels, scores)
        return pairs
    line = match_scale(labels, scores) if alpha < 1 else None
    if line is None:
        return pairs
    lists = [[line.slope * score + line.intercept for score in row] for row in pairs["teacher_logits"][:]]
    return with_logits(pairs, lists)


def check_pair_targets(dataset: Dataset, where: str, config: Any, *, needs_label: bool = False) -> None:
    """
    Raises a `ValueError` for a pair with a label that the student does not have, with an infinite score, or with
    nothing to learn or to compare with.
    """
    names = ("label", "teacher_logits")
    targets = [dataset[name][:] if name in dataset.column_names else [None] * len(dataset) for name in names]
    if any(isinstance(label, str) for label in targets[0]):
        raise ValueError(
            "The labels of the pairs are texts, and have to be numbers: `dataset.class_encode_column('label')`."
        )
    problem_type = get_problem_type(config)
    allowed = {"regression": "any number", "multi_label_classification": "from 0 to 1"}
    for row, (label, scores) in enumerate(zip(*targets, strict=True)):
        is_labelled = label is not None and not math.isnan(label)
        # A score that is missing is not a number here.
        known = np.array([] if scores is None else scores, dtype=float)
        is_target = is_labelled or (not needs_label and known.size > 0 and not np.isnan(known).any())
        if is_labelled and problem_type == "regression":
            is_target = math.isfinite(label)
        elif is_labelled:
            is_target = 0 <= label <= 1 if problem_type in allowed else label in range(config.num_labels)
        if not is_target or np.isinf(known).any():
            labels = allowed.get(problem_type, f"a class from 0 to {config.num_labels - 1}")
            raise ValueError(
                f"Row {row} of the {where} has the label {label} and the teacher scores {scores}. A label of this "
                f"student is {labels}, scores are finite, `None` is unknown, and a pair needs its label"
                f"{'' if needs_label else ' or scores'}: correct the row, or remove it."
            )
