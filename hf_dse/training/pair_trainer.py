# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a cross-encoder's pair scores into a sentence embedding model."""

from collections.abc import Mapping
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, set_seed
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.data.collators import PairCollator
from hf_dse.data.tokenization import lengths
from hf_dse.inference.encoding import evaluating
from hf_dse.inference.loading import load_tokenizer
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.modeling.pairs_dse import fit_similarity, measure
from hf_dse.student.checkpoint import limit_tokens, load_dse_model, load_student
from hf_dse.student.convert import ConvertArguments
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import StudentTrainer
from hf_dse.training.inputs import plain_rows
from hf_dse.training.losses import PairDistillationLoss, match_teacher_logits, similarity_loss
from hf_dse.training.matryoshka import check_sizes, matryoshka_loss


logger = logging.get_logger(__name__)

# Number of pairs to which the first scale and bias of a similarity head are fitted.
CALIBRATION_PAIRS = 1024

SCALE_PARAMETERS = ("similarity.scale", "similarity.bias")

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
            the label `None` is trained on its teacher scores only, and a column `weight` weighs the pairs; see
            [`mix_pairs`]. With a `similarity_weight` also the column `embeddings` of [`embed_pairs`].
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation; its teacher scores are not used. With it the student is evaluated and saved after
            each epoch and the best one, by the loss on the first of several datasets, is kept, unless `args` says
            otherwise. Without labels, for predictions, the last model is kept.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. It may differ from the teacher's. Defaults to the
            one of `model` if that is a string.
        kwargs:
            Other arguments of [`~transformers.Trainer`].

    Raises:
        `TypeError`: for the arguments of another trainer, a model without a head, or a streaming dataset.
        `ValueError`: if labels or teacher scores are missing, or the teacher has other labels than the student.

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
        model: DseForSequenceClassification | str,
        args: DseTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | None = None,
        **kwargs: Any,
    ):
        args = self.check_args(args, kwargs)
        self._check_datasets(train_dataset, eval_dataset)
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        if isinstance(model, str):
            name, model = model, self._load_model(model, args, train_dataset)
            if processing_class is None:
                processing_class = load_tokenizer(name)
        if isinstance(processing_class, str):
            processing_class = load_tokenizer(processing_class)
        if not hasattr(model, "similarity"):
            raise TypeError(
                f"`model` is a `{type(model).__name__}`, and `DseTrainer` needs a `DseForSequenceClassification`: put "
                "a head on an encoder with `hf_dse.make_pair_model(model, num_labels=...)`, or pass the folder or Hub "
                "id of the encoder."
            )
        if kwargs.get("data_collator") is None:
            if processing_class is None:
                raise ValueError(
                    "`DseTrainer` needs `processing_class`, the tokenizer of the student: pass the tokenizer, or the "
                    "folder or Hub id of the student as `model`."
                )
            check_student_length(args.max_length, model)
            # What loads a checkpoint reads as much of a text as the training.
            processing_class = limit_tokens(processing_class, model, args.max_length)
            kwargs["data_collator"] = PairCollator(processing_class, args.max_length)
        check_sizes(args, model)
        default_problem = "regression" if model.config.num_labels == 1 else "single_label_classification"
        self.pair_loss = PairDistillationLoss(
            args.distillation_alpha,
            model.config.problem_type or default_problem,
            args.ranking_weight,
            args.ranking_scale,
        )
        unknown = [row for row, label in enumerate(_labels(eval_dataset)) if label is None]
        if unknown:
            raise ValueError(
                f"Evaluation pair {unknown[0]} has no label, and the evaluation compares with labels: remove it, or "
                "leave out the column 'label' of `eval_dataset`."
            )
        if train_dataset is not None:
            _check_targets(train_dataset, args.distillation_alpha, model.config.num_labels)
            if args.similarity_weight and "embeddings" not in train_dataset.column_names:
                raise ValueError(
                    "`similarity_weight` needs the embeddings of a bi-encoder, and the training pairs have no column "
                    "'embeddings': add it with `embed_pairs`, or name the bi-encoder with `--bi_encoder_name_or_path`."
                )
            if args.groups_by_length and processing_class is not None and "length" not in train_dataset.column_names:
                train_dataset = lengths(train_dataset, processing_class, max_length=args.max_length)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
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
        if dataset is None:
            model = load_dse_model(name_or_path)
            if isinstance(model, DseForSequenceClassification):
                return model
            raise ValueError(
                f"{name_or_path} has no head for pairs, and without a `train_dataset` its labels are unknown: pass "
                "the training pairs, or a model with a head."
            )
        num_labels, problem_type = infer_labels(dataset)
        return load_student(name_or_path, ConvertArguments(), num_labels, problem_type)

    def compute_loss(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        return_outputs: bool = False,
        num_items_in_batch: torch.Tensor | int | None = None,
    ) -> torch.Tensor | tuple[torch.Tensor, Any]:
        inputs = dict(inputs)
        targets = {name: inputs.pop(name, None) for name in ("teacher_logits", "weights")}
        embeddings = inputs.pop("embeddings", None)
        # Evaluation compares with the labels only, with any `distillation_alpha`.
        if not model.training and "labels" in inputs:
            outputs = model(**inputs)
            loss = outputs.loss
        else:
            labels = inputs.pop("labels", None)
            outputs = model(**inputs)

            def loss_of(vectors: torch.Tensor) -> torch.Tensor:
                # The logits of whole vectors are there already, and those of an mlp head always.
                is_whole = vectors is outputs.embeddings
                logits = outputs.logits if is_whole else self.model.similarity(*vectors.unbind(1))
                loss = self.pair_loss(logits, labels, **targets)
                if self.args.similarity_weight and embeddings is not None:
                    loss = loss + self.args.similarity_weight * similarity_loss(vectors, embeddings)
                return loss

            sizes = self.args.matryoshka_dims, self.args.matryoshka_weights
            loss = matryoshka_loss(loss_of, [outputs.embeddings], self.model, *sizes)
        return (loss, outputs) if return_outputs else loss

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        if not resume_from_checkpoint and self.args.calibrate_similarity:
            self.calibrate_similarity()
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def calibrate_similarity(self) -> None:
        """
        Fits scale and bias of an untrained cosine or dot head to the training targets by least squares. If the
        similarities hardly correlate with the targets yet, the scale of a single logit is larger than that, and always
        above 0: a scale of 0 blocks the gradient of the embeddings, and a negative scale reverses it.
        """
        head = self.model.similarity
        # A trained head has a bias, which a ranking stage without a teacher leaves at 0.
        if head.kind == "mlp" or bool((head.bias != 0).any()):
            return
        if not isinstance(self.train_dataset, Dataset):
            return
        rows = torch.randperm(len(self.train_dataset), generator=torch.Generator().manual_seed(self.args.seed))
        sample = self.train_dataset.select(rows[:CALIBRATION_PAIRS].tolist())
        if "length" in sample.column_names:
            sample = sample.sort("length")
        similarities, targets = [], []
        loader = torch.utils.data.DataLoader(sample, self.args.eval_batch_size, collate_fn=self.data_collator)
        with evaluating(self.model), torch.no_grad():
            for batch in map(self._prepare_inputs, loader):
                inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
                # The last logit without a bias is the similarity times the scale.
                similarities.append((self.model(**inputs).logits[:, -1:] / head.scale[-1]).cpu().double())
                known = {name: batch[name].cpu() for name in ("labels", "teacher_logits") if name in batch}
                targets.append(self.pair_loss.targets(self.model.config.num_labels, **known))
        similarity = torch.cat(similarities)
        if not torch.isfinite(similarity).all():
            raise ValueError(
                "The similarities of the untrained student are not finite, so the student cannot be trained: its "
                "weights are damaged, or its precision is too low."
            )
        moments = measure(similarity[:, 0], torch.cat(targets))
        scale, bias = fit_similarity(moments, "regression", head.scale.detach().cpu().to(moments))
        with torch.no_grad():
            head.scale.copy_(scale)
            head.bias.copy_(bias)
        start = [", ".join(f"{value:.4g}" for value in values.tolist()) for values in (scale, bias)]
        logger.info(f"The head starts with the scale {start[0]} and the bias {start[1]}.")

    def own_rate(self, name: str) -> float | None:
        if self.model.config.similarity == "cosine" and name.endswith(SCALE_PARAMETERS):
            return self.args.scale_learning_rate
        return self.args.head_learning_rate if any(part in name for part in NEW_PARAMETERS) else None


def check_student_length(max_length: int, model: DseForSequenceClassification) -> None:
    """Raises a `ValueError` if texts of `max_length` tokens are too long for the student."""
    limit = model.config.max_position_embeddings
    if max_length > limit:
        raise ValueError(
            f"`max_length` is {max_length}, but the student takes at most {limit} tokens: lower it, or convert an "
            "encoder with a larger `max_position_embeddings`."
        )


def infer_labels(dataset: Dataset) -> tuple[int, str]:
    """
    Number of labels and problem type of training pairs: float labels are a regression, integer labels classes.
    Without labels, one teacher score is a regression and several are classes.

    Args:
        dataset (`datasets.Dataset`):
            Pairs with the column `label`, `teacher_logits` or both.

    Returns:
        `tuple[int, str]`: the number of labels, 1 for a regression, and `"regression"` or
        `"single_label_classification"`.

    Raises:
        `ValueError`: if there is neither a label nor a score, or a column has no numbers.
    """
    dataset = plain_rows(dataset)
    columns = dataset.column_names
    labels = [label for label in _labels(dataset) if label is not None]
    if labels:
        if all(isinstance(label, int) for label in labels):
            # A `ClassLabel` also counts classes that do not occur.
            num_labels = getattr(dataset.features["label"], "num_classes", None) or max(labels) + 1
            return max(2, num_labels), "single_label_classification"
        return 1, "regression"
    scores = [score for score in _teacher_logits(dataset) if score is not None]
    if not scores:
        raise ValueError(
            f"The training pairs have neither labels nor teacher scores, only the columns {', '.join(columns)}: add a "
            "column 'label', or score them with `score_pairs`."
        )
    return len(scores[0]), "regression" if len(scores[0]) == 1 else "single_label_classification"


def _labels(dataset: Any) -> list:
    """The labels of pairs, as far as they have any."""
    labels = dataset["label"][:] if isinstance(dataset, Dataset) and "label" in dataset.column_names else []
    wrong = next((label for label in labels if isinstance(label, str | list)), None)
    if wrong is not None:
        raise ValueError(
            f"The column 'label' holds {wrong!r}, and a label is a number: a float is a score, an integer from 0 a "
            "class. Names become classes with `dataset.class_encode_column('label')`."
        )
    return labels


def _teacher_logits(dataset: Dataset) -> list:
    """The teacher scores of pairs, as far as they have any."""
    logits = dataset["teacher_logits"][:] if "teacher_logits" in dataset.column_names else []
    wrong = next((scores for scores in logits if not isinstance(scores, list | None)), None)
    if wrong is not None:
        raise ValueError(
            f"The column 'teacher_logits' holds {wrong!r}, and it needs a list of numbers for each pair, also of one "
            f"number, or `None`: write `[{wrong!r}]`, or make it with `score_pairs`."
        )
    return logits


def _check_targets(dataset: Dataset, alpha: float, num_labels: int) -> None:
    columns = dataset.column_names
    if alpha < 1.0 and "label" not in columns:
        raise ValueError(
            f"The training pairs have no column 'label', only {', '.join(columns)}: add it, or train on teacher "
            "scores only with `distillation_alpha=1`."
        )
    if alpha > 0.0 and "teacher_logits" not in columns:
        raise ValueError(
            f"The training pairs have no column 'teacher_logits', only {', '.join(columns)}: add it with "
            "`score_pairs` (or `hf-dse score`), or train on labels only with `distillation_alpha=0`."
        )
    labels = _labels(dataset) or [None] * len(dataset)
    if num_labels > 1:
        wrong = [row for row, label in enumerate(labels) if label is not None and label not in range(num_labels)]
        if wrong:
            raise ValueError(
                f"The label of training pair {wrong[0]} is {labels[wrong[0]]!r}, and the student has the classes 0 to "
                f"{num_labels - 1}: use a student with `num_labels=1` for scores, or with one label for each class."
            )
    if "teacher_logits" not in columns:
        return
    logits = _teacher_logits(dataset)
    for row, (label, scores) in enumerate(zip(labels, logits, strict=True)):
        if scores is None and (alpha > 0.0 or label is None):
            raise ValueError(
                f"Training pair {row} has no `teacher_logits`: score it, or train labelled pairs on their labels only "
                "with `distillation_alpha=0`."
            )
    known = [scores for scores in logits if scores is not None]
    if known and (alpha > 0.0 or None in labels):
        match_teacher_logits(torch.tensor(known[:1]), num_labels)
