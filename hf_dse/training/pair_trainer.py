# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a cross-encoder's pair scores into a sentence embedding model."""

import math
from collections.abc import Callable, Mapping
from itertools import zip_longest
from os import PathLike
from typing import Any

from datasets import Dataset
from transformers import EvalPrediction, PreTrainedTokenizerBase, TrainerCallback
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.convert.convert import ConvertArguments
from hf_dse.convert.student import limit_tokens, load_dse_model, load_student
from hf_dse.data.collators import PairCollator
from hf_dse.data.tables import check_rows, is_filled
from hf_dse.data.tokenization import lengths
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.pairs_dse import get_problem_type
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import Optimizers, StudentTrainer, check_head_learns, is_of_head, plain_rows, read_student
from hf_dse.training.losses import PairDistillationLoss


logger = logging.get_logger(__name__)

NEW_PARAMETERS = ("similarity.", "linformer.", "dse.projection.")


class DseTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] with the pair objective of DSE (see [`PairDistillationLoss`]).

    Args:
        model ([`DseForSequenceClassification`] or `str`):
            The student, or the folder or Hub id of a DSE model or of an encoder, which [`convert_encoder`] converts.
            Its new head follows from the training data: float labels are a regression, integers are classes (two
            classes have one logit, as in DSE); without labels the number of teacher scores decides.
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
            The tokenizer of the student, or its folder or Hub id. Defaults to that of `model`, if a string.
        compute_metrics, callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`].

    Example:

    ```python
    >>> from hf_dse import DataArguments, DseTrainer, DseTrainingArguments, load_pairs

    >>> # The embedded pairs have the scores of a teacher; `score` adds them to other pairs.
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

    args: DseTrainingArguments

    def __init__(
        self,
        model: DseForSequenceClassification | str | PathLike,
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

        def load(name: str) -> Any:
            if train_dataset is None:
                return load_dse_model(name)
            return load_student(name, ConvertArguments(), *infer_labels(train_dataset))

        student, tokenizer = read_student(model, processing_class, args.seed, load)
        # What loads a checkpoint reads as much of a text as the training.
        tokenizer = limit_tokens(tokenizer, student, args.max_length)
        parts = eval_dataset if isinstance(eval_dataset, Mapping) else {"": eval_dataset}
        first = next(iter(parts.values()))
        for name, part in parts.items():
            if part is not None:
                check_evaluation(part, f"{name} evaluation pairs".strip(), student.config)
        if train_dataset is not None:
            check_training(train_dataset, args.distillation_alpha, student.config)
            if args.groups_by_length:
                train_dataset = lengths(train_dataset, tokenizer, max_length=args.max_length)
        self.pair_loss = PairDistillationLoss(args.distillation_alpha, get_problem_type(student.config))
        super().__init__(
            model=student,
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
            outputs = model(**inputs)
            loss = self.pair_loss(outputs.logits, labels, teacher_logits)
        return (loss, outputs) if return_outputs else loss

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

    def own_rate(self, name: str) -> float | None:
        if self.model.similarity.kind != "mlp" and is_of_head(name, "scale", "bias"):
            return self.scale_rate()
        return self.args.head_learning_rate if any(part in name for part in NEW_PARAMETERS) else None


def infer_labels(dataset: Dataset) -> tuple[int, str]:
    """
    Number of labels and problem type of pairs: float labels or one teacher score are a regression, others classes.
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
            f"{', '.join(dataset.column_names)}: add a column 'label', or score them with `score` (`hf-dse score`)."
        )
    return len(scores[0]), "regression" if len(scores[0]) == 1 else "single_label_classification"


def read_labels(dataset: Dataset, where: str = "training pairs") -> list:
    """The labels of pairs, as far as they have any: numbers, and `None` for an unknown one."""
    advice = "a label is a number; names become numbers with `dataset.class_encode_column('label')`"
    return read_column(dataset, where, "label", int | float | None, advice)


def read_scores(dataset: Dataset, where: str = "training pairs") -> list:
    """The teacher scores of pairs, as far as they have any: lists, and `None` for unknown ones."""
    return read_column(dataset, where, "teacher_logits", list | None, "each pair needs a list of numbers, or `None`")


def read_column(dataset: Dataset, where: str, name: str, kind: Any, advice: str) -> list:
    """The values of a column, none without it. Raises a `ValueError` for a value of another kind."""
    values = dataset[name][:] if name in dataset.column_names else []
    for row, value in enumerate(values):
        if not isinstance(value, kind):
            raise ValueError(f"Row {row} of the {where}: the column {name!r} holds {value!r}, and {advice}.")
    return values


def check_labels(dataset: Dataset, where: str, config: Any) -> list:
    """The labels of pairs. Raises a `ValueError` for one that the student does not have, or what is not a text."""
    if not len(dataset):
        raise ValueError(f"There are no {where}.")
    for name in ("sentence1", "sentence2"):
        if name not in dataset.column_names:
            raise ValueError(f"The {where} have no column {name!r}, only {', '.join(dataset.column_names)}.")
        check_rows(dataset[name][:], is_filled, f"The {where}", f"{name} is {{}}, not a text")
    labels, problem_type = read_labels(dataset, where), get_problem_type(config)
    is_binary = problem_type == "multi_label_classification"
    is_class = problem_type == "single_label_classification"
    for row, label in enumerate(labels):
        if label is None or math.isnan(label):
            continue
        if math.isinf(label):
            raise ValueError(f"Row {row} of the {where} has the label {label}, which is not finite.")
        if is_class and type(label) is not int:
            raise ValueError(
                f"Row {row} of the {where} has the label {label!r}, and a class is an integer: cast the column, "
                '`dataset.cast_column("label", Value("int64"))`.'
            )
        if problem_type == "regression":
            continue
        if not (0 <= label <= 1 if is_binary else label in range(config.num_labels)):
            raise ValueError(
                f"Row {row} of the {where} has the label {label!r}, and the student has labels from 0 to "
                f"{1 if is_binary else config.num_labels - 1}: use a student with one label for each class, or with "
                '`num_labels=1` and `problem_type="regression"` for scores.'
            )
    return labels


def check_evaluation(dataset: Dataset, where: str, config: Any) -> None:
    """Checks the pairs of an evaluation, and warns if its correlations will be undefined."""
    labels = check_labels(dataset, where, config)
    unknown = [row for row, label in enumerate(labels) if label is None or math.isnan(label)]
    if unknown:
        raise ValueError(
            f"Row {unknown[0]} of the {where} has no label, and the evaluation compares with labels: remove "
            "it, or leave out the column 'label'."
        )
    is_binary = get_problem_type(config) == "multi_label_classification"
    if is_binary and not set(labels) <= {0, 1}:
        row = next(row for row, label in enumerate(labels) if label not in (0, 1))
        raise ValueError(f"Row {row} of the {where} has the label {labels[row]}, and its metrics need 0 or 1.")
    if labels and get_problem_type(config) == "regression" and min(labels) == max(labels):
        logger.warning(f"The {where} all have the label {labels[0]}, so correlations with them are undefined.")


def check_training(dataset: Dataset, alpha: float, config: Any, where: str = "training pairs") -> None:
    """Raises a `ValueError` if a training pair has nothing to learn from, or what the student does not have."""
    needed = {"label": alpha < 1, "teacher_logits": alpha > 0}
    for name, is_needed in needed.items():
        if is_needed and name not in dataset.column_names:
            columns = ", ".join(dataset.column_names)
            raise ValueError(
                f"The {where} have no column {name!r}, only {columns}: add it (`hf-dse score` adds a teacher's "
                "scores), or give it no weight by `distillation_alpha`."
            )
    labels, scores = check_labels(dataset, where, config), read_scores(dataset, where)
    for row, (label, logits) in enumerate(zip_longest(labels, scores)):
        known = [logit for logit in logits or [] if logit is not None and logit == logit]
        if any(map(math.isinf, known)) or (logits is not None and len(logits) != config.num_labels):
            raise ValueError(
                f"Row {row} of the {where} has the teacher scores {logits}, and needs one finite number for each of "
                f"{config.num_labels} logits, or `None`."
            )
        if not known and (label is None or label != label):
            raise ValueError(f"Row {row} of the {where} has neither a label nor teacher scores: remove it.")
