# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils a cross-encoder's pair scores into a sentence embedding model."""

from pathlib import Path
from shutil import copy
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from torch.utils.data import Sampler, SequentialSampler
from transformers import PreTrainedTokenizerBase
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.data.collators import PairCollator
from hf_dse.data.tokenization import lengths
from hf_dse.inference.encoding import evaluating
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.student.checkpoint import CODE_FILES
from hf_dse.training.arguments import DseTrainingArguments
from hf_dse.training.base import ReproducibleTrainer
from hf_dse.training.losses import PairDistillationLoss, match_teacher_logits, similarity_loss


logger = logging.get_logger(__name__)

# Pairs that the first scale and bias of a similarity head are fitted to.
CALIBRATION_PAIRS = 1024

# The first scale is at least that of similarities that have this correlation with the targets.
MIN_CORRELATION = 0.25

SCALE_PARAMETERS = ("similarity.scale", "similarity.bias")

NEW_PARAMETERS = ("similarity.", "linformer.", "dse.projection.")


class DseTrainer(ReproducibleTrainer):
    """
    [`~transformers.Trainer`] with the pair objective of DSE (see [`~hf_dse.training.losses.PairDistillationLoss`]).

    Args:
        model ([`DseForSequenceClassification`]):
            The student.
        args ([`DseTrainingArguments`]):
            Training arguments; `distillation_alpha` weighs labels against teacher scores.
        train_dataset (`datasets.Dataset`):
            Pairs with the columns `sentence1`, `sentence2`, `label` (not needed if `distillation_alpha` is 1) and
            `teacher_logits` (not needed if it is 0), as [`load_pairs`] and [`score_pairs`] make them. A pair whose
            label is `None` learns from the teacher alone; a column `weight` weighs pairs. [`mix_pairs`] makes both.
            With a `similarity_weight` also `embeddings`, those of a bi-encoder, as [`embed_pairs`] makes them.
        eval_dataset (`datasets.Dataset`, *optional*):
            The same for evaluation; its teacher scores are not used.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the student. It may differ from the teacher's.
        kwargs:
            Anything else that [`~transformers.Trainer`] takes.

    Raises:
        `ValueError`: if labels or teacher scores are missing, or the teacher has other labels than the student.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import DataArguments, DseTrainer, DseTrainingArguments, convert_encoder, load_pairs
    >>> from hf_dse.student.convert import make_pair_model

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> student = make_pair_model(convert_encoder(source, linformer_length=64, verbose=False), num_labels=1)
    >>> # The embedded pairs have the scores of a teacher; `score_pairs` adds them to other pairs.
    >>> pairs = load_pairs(DataArguments(dataset_name="embedded", max_train_samples=16))
    >>> trainer = DseTrainer(
    ...     model=student,
    ...     args=DseTrainingArguments("outputs", distillation_alpha=0.5, num_train_epochs=1, report_to="none"),
    ...     train_dataset=pairs["train"],
    ...     processing_class=AutoTokenizer.from_pretrained(source),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    # `compute_loss` returns the mean over its batch.
    loss_is_scaled_for_ga = False
    args: DseTrainingArguments
    model: DseForSequenceClassification

    def __init__(
        self,
        model: DseForSequenceClassification,
        args: DseTrainingArguments,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | dict[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | None = None,
        **kwargs: Any,
    ):
        if kwargs.get("data_collator") is None:
            if processing_class is None:
                raise ValueError("`DseTrainer` needs `processing_class`, the tokenizer of the student.")
            kwargs["data_collator"] = PairCollator(processing_class, args.max_length)
        default_problem = "regression" if model.config.num_labels == 1 else "single_label_classification"
        self.pair_loss = PairDistillationLoss(
            args.distillation_alpha,
            model.config.problem_type or default_problem,
            args.ranking_weight,
            args.ranking_scale,
        )
        if train_dataset is not None:
            _check_targets(train_dataset, args.distillation_alpha, model.config.num_labels)
            if args.similarity_weight and "embeddings" not in train_dataset.column_names:
                raise ValueError(
                    "`similarity_weight` needs the embeddings of a bi-encoder, and the training pairs have no column "
                    "'embeddings': add it with `embed_pairs`, or name the bi-encoder with `--bi_encoder_name_or_path`."
                )
            by_length = args.train_sampling_strategy in ("group_by_length", "batch_rebalance")
            if by_length and processing_class is not None and "length" not in train_dataset.column_names:
                train_dataset = lengths(train_dataset, processing_class, max_length=args.max_length)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            **kwargs,
        )

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
        # Evaluation asks how well the labels are met, whatever the student learns from.
        if not model.training and "labels" in inputs:
            outputs = model(**inputs)
            loss = outputs.loss
        else:
            labels = inputs.pop("labels", None)
            outputs = model(**inputs)
            loss = self.pair_loss(outputs.logits, labels, **targets)
            if self.args.similarity_weight and embeddings is not None:
                loss = loss + self.args.similarity_weight * similarity_loss(outputs.embeddings, embeddings)
        return (loss, outputs) if return_outputs else loss

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        # Grouped by length, predictions would come in another order than the rows.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        if not resume_from_checkpoint and self.args.calibrate_similarity:
            self.calibrate_similarity()
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def calibrate_similarity(self) -> None:
        """
        Fits scale and bias of an untrained cosine or dot head to the training targets by least squares. Where the
        similarities tell next to nothing yet, the scale of a single logit is larger than that, and above 0: a scale of
        0 hands no gradient to the embeddings, and one below 0 teaches them the contrary.
        """
        head = self.model.similarity
        # A head that was trained has a bias.
        if head.kind == "mlp" or bool((head.bias != 0).any()) or bool(head.scale[-1] != 1.0):
            return
        if not isinstance(self.train_dataset, Dataset):
            return
        rows = torch.randperm(len(self.train_dataset), generator=torch.Generator().manual_seed(self.args.seed))
        sample = self.train_dataset.select(rows[:CALIBRATION_PAIRS].tolist())
        if "length" in sample.column_names:
            sample = sample.sort("length")  # less padding
        similarities, targets = [], []
        loader = torch.utils.data.DataLoader(sample, self.args.eval_batch_size, collate_fn=self.data_collator)
        with evaluating(self.model), torch.no_grad():
            for batch in map(self._prepare_inputs, loader):
                inputs = {name: batch[name] for name in ("input_ids", "attention_mask")}
                # The last logit of an untouched head is the similarity itself.
                similarities.append(self.model(**inputs).logits[:, -1:].double().cpu())
                known = {name: batch[name].cpu() for name in ("labels", "teacher_logits") if name in batch}
                targets.append(self.pair_loss.targets(self.model.config.num_labels, **known))
        similarity, target = torch.cat(similarities), torch.cat(targets)
        if not torch.isfinite(similarity).all():
            raise ValueError(
                "The similarities of the untrained student are not finite, so nothing can be learned from them: its "
                "weights are damaged, or its precision is too low."
            )
        design = torch.cat([similarity, torch.ones_like(similarity)], dim=1)
        scale, bias = torch.linalg.lstsq(design, target).solution  # [num_labels] each
        spread = similarity.std()
        if len(scale) == 1 and spread > 1e-3:  # not of similarities that only rounding tells apart
            scale = scale.clamp(min=MIN_CORRELATION * (target.std() / spread).item())
            bias = target.mean(dim=0) - scale * similarity.mean()
        with torch.no_grad():
            head.scale.copy_(scale)
            head.bias.copy_(bias)
        logger.info(f"Similarity head starts from scale {scale.tolist()} and bias {bias.tolist()}.")

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        # Trainer takes weights and configuration from the checkpoint, but not the code that they need.
        if self.is_world_process_zero():
            for name in CODE_FILES:
                copy(Path(checkpoint_folder) / name, str(self.args.output_dir))
        super()._push_from_checkpoint(checkpoint_folder)

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        is_made = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        if is_made:
            return optimizer
        module = self.model if model is None else model
        rates: dict[int, float] = {}
        for name, weight in module.named_parameters():
            if self.model.config.similarity == "cosine" and name.endswith(SCALE_PARAMETERS):
                rates[id(weight)] = self.args.scale_learning_rate
            elif self.args.head_learning_rate is not None and any(part in name for part in NEW_PARAMETERS):
                rates[id(weight)] = self.args.head_learning_rate
        for group in list(optimizer.param_groups):
            for rate in dict.fromkeys(rates[id(weight)] for weight in group["params"] if id(weight) in rates):
                moved = [weight for weight in group["params"] if rates.get(id(weight)) == rate]
                group["params"] = [weight for weight in group["params"] if rates.get(id(weight)) != rate]
                optimizer.add_param_group({**group, "params": moved, "lr": rate})
        return optimizer


def _check_targets(dataset: Dataset, alpha: float, num_labels: int) -> None:
    columns = dataset.column_names
    if alpha < 1.0 and "label" not in columns:
        raise ValueError(
            f"The training pairs have no column 'label', only {', '.join(columns)}: label them, or learn from a "
            "teacher alone with `distillation_alpha=1`."
        )
    if alpha > 0.0 and "teacher_logits" not in columns:
        raise ValueError(
            f"The training pairs have no column 'teacher_logits', only {', '.join(columns)}: add it with "
            "`score_pairs` (or `hf-dse score`), or learn from labels alone with `distillation_alpha=0`."
        )
    labels = dataset["label"][:] if "label" in columns else [None] * len(dataset)
    if num_labels > 1:
        wrong = [row for row, label in enumerate(labels) if label is not None and label not in range(num_labels)]
        if wrong:
            raise ValueError(
                f"The label of training pair {wrong[0]} is {labels[wrong[0]]!r}, and the student has the classes 0 to "
                f"{num_labels - 1}: make it with `num_labels=1` for scores, or with a label for each class."
            )
    if "teacher_logits" not in columns:
        return
    logits = dataset["teacher_logits"][:]
    for row, (label, scores) in enumerate(zip(labels, logits, strict=True)):
        if scores is None and (alpha > 0.0 or label is None):
            raise ValueError(
                f"Training pair {row} has no `teacher_logits`: score it, or learn labelled pairs from their labels "
                "alone with `distillation_alpha=0`."
            )
    known = [scores for scores in logits if scores is not None]
    if known and (alpha > 0.0 or None in labels):
        match_teacher_logits(torch.tensor(known[:1]), num_labels)
