# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a cross-encoder's pair scores into a sentence embedding model."""

import math
from collections.abc import Callable, Iterable, Mapping
from os import PathLike
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainerCallback, set_seed
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.common.loading import load_tokenizer
from hf_dse.convert.convert import ConvertArguments
from hf_dse.convert.student import limit_tokens, load_dse_model, load_student
from hf_dse.data.collators import PairCollator
from hf_dse.data.tokenization import lengths
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.pairs_dse import fit_similarity, get_problem_type
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import Optimizers, StudentTrainer, check_head_learns, is_of_head, plain_rows
from hf_dse.training.losses import PairDistillationLoss, match_teacher_logits, similarity_loss


logger = logging.get_logger(__name__)

NEW_PARAMETERS = ("similarity.", "linformer.", "dse.projection.")


class DseTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] with the pair objective of DSE (see [`PairDistillationLoss`]).

    Args:
        model ([`DseForSequenceClassification`] or `str`):
            The student. A string is the folder or Hub id of a DSE model, with or without a head for this task, or of
            an encoder, which is converted with the defaults of [`convert_encoder`]. The head follows from the
            training data: float labels are a regression, integer labels are classes; without labels the number of
            teacher scores decides. Two classes have one logit, as in DSE.
        args ([`DseTrainingArguments`], *optional*):
            Training arguments; `distillation_alpha` weighs labels against teacher scores. Defaults to
            `DseTrainingArguments("tmp_trainer")`.
        train_dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2`, `label` (not needed if `distillation_alpha` is 1) and
            `teacher_logits` (not needed if it is 0), as [`load_pairs`] and [`score_pairs`] return them. A pair with
            the label `None` is trained on its teacher scores only. With a `similarity_weight` also the column
            `embeddings` with a bi-encoder's vectors of the two sentences.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation; its teacher scores are not used. With it the student is evaluated and saved after
            each epoch and the best one, by the loss on the first of several datasets, is kept, unless `args` says
            otherwise. Without labels, for predictions, the last model is kept.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. It may differ from the teacher's. Defaults to the
            one of `model` if that is a string.
        data_collator, compute_metrics, callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`]. The loss is that of this trainer.

    Raises:
        `TypeError`: for the arguments of another trainer, a model without a head, or a streaming dataset.
        `ValueError`: if labels or teacher scores are missing, or do not fit the student.

    Example:

    ```python
    >>> from hf_dse import DataArguments, DseTrainer, DseTrainingArguments, load_pairs

    >>> # The embedded pairs have the scores of a teacher; `score_pairs` adds them to other pairs.
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=16, max_eval_samples=16))
    >>> trainer = DseTrainer(
    ...     model="sentence-transformers/all-MiniLM-L6-v2",
    ...     args=DseTrainingArguments("outputs", distillation_alpha=0.5, num_train_epochs=1, report_to="none"),
    ...     train_dataset=pairs["train"],
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    arguments_class = DseTrainingArguments
    args: DseTrainingArguments

    def __init__(
        self,
        model: DseForSequenceClassification | str | PathLike,
        args: DseTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | PathLike | None = None,
        data_collator: Callable[[list], dict[str, Any]] | None = None,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
    ):
        args = self.check_args(args)
        self._check_datasets(train_dataset=train_dataset, eval_dataset=eval_dataset)
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        if isinstance(model, str | PathLike):
            processing_class = processing_class or str(model)
            model = self._load_model(str(model), args, train_dataset)
        if not hasattr(model, "similarity"):
            raise TypeError(
                f"`model` is a `{type(model).__name__}`, and `DseTrainer` needs a `DseForSequenceClassification`: put "
                "a head on an encoder with `hf_dse.make_pair_model(model, num_labels=...)`, or pass the folder or Hub "
                "id of the encoder."
            )
        tokenizer: Any = None if processing_class is None else load_tokenizer(processing_class)
        parts = eval_dataset if isinstance(eval_dataset, Mapping) else {"": eval_dataset}
        evaluation = {f"{name} evaluation pairs".strip(): part for name, part in parts.items() if part is not None}
        if tokenizer is None and (data_collator is None or args.groups_by_length):
            raise ValueError(
                "`DseTrainer` needs `processing_class`, the tokenizer of the student: pass the tokenizer, or the "
                "folder or Hub id of the student as `model`."
            )
        if data_collator is None:
            # What loads a checkpoint reads as much of a text as the training.
            tokenizer = limit_tokens(tokenizer, model, args.max_length)
            data_collator = PairCollator(tokenizer, args.max_length)
            for part in (train_dataset, *evaluation.values()):
                for name in ("sentence1", "sentence2"):
                    read_column(part, name, str, "it has to be a text")
        self.pair_loss = PairDistillationLoss(args.distillation_alpha, get_problem_type(model.config))
        for where, part in evaluation.items():
            check_evaluation(part, where, model.config)
        if train_dataset is not None:
            check_training(train_dataset, args, model.config)
            if args.groups_by_length:
                train_dataset = lengths(train_dataset, tokenizer, max_length=args.max_length)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            data_collator=data_collator,
            compute_metrics=compute_metrics,
            callbacks=callbacks,
            optimizers=optimizers,
        )

    @classmethod
    def _eval_loss(cls, eval_dataset: Any) -> str | None:
        part = next(iter(eval_dataset.values()), None) if isinstance(eval_dataset, Mapping) else eval_dataset
        has_labels = part is None or "label" in part.column_names
        return super()._eval_loss(eval_dataset) if has_labels else None

    @staticmethod
    def _load_model(
        name_or_path: str, args: DseTrainingArguments, dataset: Dataset | None
    ) -> DseForSequenceClassification:
        # A new head starts from random numbers.
        set_seed(args.seed)
        if dataset is not None:
            num_labels, problem_type = infer_labels(dataset)
            return load_student(name_or_path, ConvertArguments(), num_labels, problem_type)
        model = load_dse_model(name_or_path)
        if isinstance(model, DseForSequenceClassification):
            return model
        raise ValueError(
            f"{name_or_path} has no head for pairs, and without a `train_dataset` its labels are unknown: pass the "
            "training pairs, or a model with a head."
        )

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        inputs = dict(inputs)
        teacher_logits, embeddings = inputs.pop("teacher_logits", None), inputs.pop("embeddings", None)
        # Evaluation compares with the labels only, with any `distillation_alpha`.
        if not model.training and "labels" in inputs:
            outputs = model(**inputs)
            loss = outputs.loss
        else:
            labels = inputs.pop("labels", None)
            outputs = model(**inputs)
            loss = self.pair_loss(outputs.logits, labels, teacher_logits)
            if self.args.similarity_weight and embeddings is not None:
                loss = loss + self.args.similarity_weight * similarity_loss(outputs.embeddings, embeddings)
        return (loss, outputs) if return_outputs else loss

    def _train(self, checkpoint: str | None, *args: Any, **kwargs: Any) -> TrainOutput:
        if checkpoint is None:
            self.calibrate_similarity()
        return super()._train(checkpoint, *args, **kwargs)

    def calibrate_similarity(self) -> None:
        """
        Fits scale and bias of an untrained cosine or dot head to the training targets by least squares. If the
        similarities hardly correlate with the targets yet, the scale of a single logit is larger than that, and always
        above 0: a scale of 0 blocks the gradient of the embeddings, and a negative scale reverses it.
        """
        head = self.model.similarity
        # A trained head has a bias, which a ranking stage without a teacher leaves at 0.
        if head.kind == "mlp" or bool((head.start[1] + head.bias != 0).any()):
            return
        check_head_learns(head)
        if self.train_dataset is None:
            return
        sample = self.sample_pairs(self.train_dataset)
        loader = torch.utils.data.DataLoader(sample, self.args.eval_batch_size, collate_fn=self.data_collator)
        head.calibrate(*fit_similarity(self.measure_pairs(loader, self.pair_loss)))
        start = [", ".join(f"{value:.4g}" for value in part.tolist()) for part in (head.scale, head.bias)]
        logger.info(f"The head starts with the scale {start[0]} and the bias {start[1]}.")

    def own_rate(self, name: str) -> float | None:
        if self.model.similarity.kind != "mlp" and is_of_head(name, "scale", "bias"):
            return self.scale_rate()
        return self.args.head_learning_rate if any(part in name for part in NEW_PARAMETERS) else None


def infer_labels(dataset: Dataset) -> tuple[int, str]:
    """
    Number of labels and problem type of training pairs, `"regression"` or `"single_label_classification"`: float
    labels are a regression, integer labels classes. Without labels, one teacher score is a regression and several are
    classes.
    """
    dataset = plain_rows(dataset)
    labels = [label for label in read_labels(dataset) if label is not None]
    if labels:
        if all(isinstance(label, int) for label in labels):
            # A `ClassLabel` also counts classes that do not occur.
            num_labels = getattr(dataset.features["label"], "num_classes", None) or max(labels) + 1
            return max(2, num_labels), "single_label_classification"
        return 1, "regression"
    scores = [score for score in read_scores(dataset) if score is not None]
    if not scores:
        raise ValueError(
            "The training pairs have neither labels nor teacher scores, only the columns "
            f"{', '.join(dataset.column_names)}: add a column 'label', or score them with `score_pairs`."
        )
    return len(scores[0]), "regression" if len(scores[0]) == 1 else "single_label_classification"


def read_labels(dataset: Dataset) -> list:
    """The labels of pairs, as far as they have any: numbers, and `None` for an unknown one."""
    advice = (
        "a label is a number: a float is a score, an integer from 0 a class. Names become classes with "
        "`dataset.class_encode_column('label')`"
    )
    return read_column(dataset, "label", int | float | None, advice)


def read_scores(dataset: Dataset) -> list:
    """The teacher scores of pairs, as far as they have any: lists, and `None` for unknown ones."""
    advice = "each pair needs a list of numbers, also of one number, or `None`: make it with `score_pairs`"
    return read_column(dataset, "teacher_logits", list | None, advice)


def read_column(dataset: Dataset | None, name: str, kind: Any, advice: str) -> list:
    """The values of a column, none without it. Raises a `ValueError` for a value of another kind."""
    values = [] if dataset is None or name not in dataset.column_names else dataset[name][:]
    for row, value in enumerate(values):
        if not isinstance(value, kind):
            raise ValueError(f"Row {row}: the column {name!r} holds {value!r}, and {advice}.")
    return values


def check_labels(labels: Iterable[float | None], where: str, problem_type: str, num_labels: int) -> None:
    """Raises a `ValueError` for a known label that a student does not have."""
    if problem_type == "regression":
        return
    is_binary = problem_type == "multi_label_classification"
    for row, label in enumerate(labels):
        if label is None or math.isnan(label):
            continue
        if not (0 <= label <= 1 if is_binary else label in range(num_labels)):
            raise ValueError(
                f"Row {row} of the {where} has the label {label!r}, and the student has labels from 0 to "
                f"{1 if is_binary else num_labels - 1}: use a student with one label for each class, or with "
                '`num_labels=1` and `problem_type="regression"` for scores.'
            )


def check_evaluation(dataset: Dataset, where: str, config: Any) -> None:
    """Checks the labels of an evaluation, and warns if its correlations will be undefined."""
    labels = read_labels(dataset)
    if None in labels:
        raise ValueError(
            f"Row {labels.index(None)} of the {where} has no label, and the evaluation compares with labels: remove "
            "it, or leave out the column 'label'."
        )
    check_labels(labels, where, get_problem_type(config), config.num_labels)
    if labels and get_problem_type(config) == "regression" and min(labels) == max(labels):
        logger.warning(
            f"The {where} all have the label {labels[0]}, so correlations with them are undefined, and only the loss "
            "is measured: pass pairs with different labels."
        )


def check_training(dataset: Dataset, args: DseTrainingArguments, config: Any) -> None:
    """Raises a `ValueError` if a training pair has nothing to learn from, or what the student does not have."""
    alpha = args.distillation_alpha
    needed = {"label": alpha < 1, "teacher_logits": alpha > 0, "embeddings": args.similarity_weight > 0}
    remedies = {
        "label": "add it, or train on teacher scores only with `distillation_alpha=1`",
        "teacher_logits": "add it with `score_pairs` (or `hf-dse score`), or train on labels only with "
        "`distillation_alpha=0`",
        "embeddings": "name the bi-encoder of `similarity_weight` with `--bi_encoder_name_or_path`",
    }
    for name, is_needed in needed.items():
        if is_needed and name not in dataset.column_names:
            columns = ", ".join(dataset.column_names)
            raise ValueError(f"The training pairs have no column {name!r}, only {columns}: {remedies[name]}.")
    labels, logits = read_labels(dataset), read_scores(dataset)
    check_labels(labels, "training pairs", get_problem_type(config), config.num_labels)
    if not logits:
        return
    is_labelled = [label is not None for label in labels] or [False] * len(logits)
    for row, scores in enumerate(logits):
        if scores is None and (alpha > 0.0 or not is_labelled[row]):
            raise ValueError(
                f"Row {row} of the training pairs has no `teacher_logits`: score it, or train labelled pairs on their "
                "labels only with `distillation_alpha=0`."
            )
    known = [scores for scores in logits if scores is not None]
    if known and (alpha > 0.0 or not all(is_labelled)):
        match_teacher_logits(torch.tensor(known[:1]), config.num_labels)
