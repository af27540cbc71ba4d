# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The align stage: a student learns the vectors of a larger bi-encoder, text by text."""

from collections.abc import Mapping
from typing import Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.data.collators import TextCollator
from hf_dse.data.tokenization import check_max_length, text_lengths
from hf_dse.inference.encoding import encode
from hf_dse.inference.loading import load_tokenizer
from hf_dse.modeling import DseModel
from hf_dse.student.checkpoint import limit_tokens, load_converted
from hf_dse.student.convert import ConvertArguments
from hf_dse.student.projection import fit_linear, set_projection
from hf_dse.training.arguments import AlignTrainingArguments
from hf_dse.training.base import StudentTrainer
from hf_dse.training.inputs import OWN_BATCHES, plain_rows
from hf_dse.training.losses import alignment_loss


logger = logging.get_logger(__name__)

# Texts that the first linear layer is fitted to.
FIT_TEXTS = 4096


class AlignTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] with the [`alignment_loss`]: the vectors of the student, through a linear layer to the
    size of the teacher's, meet the teacher's vectors, as in [LEAF](https://huggingface.co/papers/2509.12539).

    The linear layer is the `projection` of the student. It starts from a least-squares fit of the untrained student's
    vectors to the teacher's, and is trained with the student; checkpoints have it. A student whose vectors already
    have the size of the teacher's is trained as it is.

    An evaluation has `eval_loss` and `eval_teacher_cosine`, the mean cosine between student and teacher.

    Args:
        model ([`DseModel`] or `str`):
            The student. A string is the folder or Hub id of a DSE model, or of an encoder, which is converted with the
            defaults of [`convert_encoder`].
        args ([`AlignTrainingArguments`], *optional*):
            Training arguments. Defaults to `AlignTrainingArguments("tmp_trainer")`.
        train_dataset (`datasets.Dataset`):
            Texts, in the column `text`, and the vectors of the teacher for them, in the column `embeddings`.
        eval_dataset (`datasets.Dataset`, *optional*):
            The same for evaluation. With it the student is evaluated and saved after each epoch and the one with the
            best `teacher_cosine` is kept, unless `args` says otherwise.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of the student, or its folder or Hub id. Defaults to the one of `model` if that is a string.
        kwargs:
            Other arguments of [`~transformers.Trainer`].

    Raises:
        `TypeError`: for the arguments of another trainer, another model than a [`DseModel`], or a streaming dataset.
        `ValueError`: without a tokenizer or the vectors of the teacher, or for a student with a projection to another
            size, or with max pooling.

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse import AlignTrainer, AlignTrainingArguments

    >>> texts = {"text": ["A cat sleeps.", "Rain again."], "embeddings": [[1.0, 0.0, 0.0], [0.0, 0.6, 0.8]]}
    >>> trainer = AlignTrainer(
    ...     model="sentence-transformers/all-MiniLM-L6-v2",
    ...     args=AlignTrainingArguments("outputs", num_train_epochs=1, report_to="none"),
    ...     train_dataset=Dataset.from_dict(texts),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    arguments_class = AlignTrainingArguments
    refused = OWN_BATCHES
    args: AlignTrainingArguments
    model: DseModel

    def __init__(
        self,
        model: DseModel | str,
        args: AlignTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | None = None,
        processing_class: PreTrainedTokenizerBase | str | None = None,
        **kwargs: Any,
    ):
        args = self.check_args(args, kwargs)
        self._check_datasets(train_dataset, eval_dataset)
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        if isinstance(eval_dataset, Mapping):
            raise TypeError(
                f"`AlignTrainer` evaluates on one dataset, and got {', '.join(map(str, eval_dataset))}: pass one of "
                "them, and the others to `evaluate` after the training."
            )
        if isinstance(model, str):
            processing_class = processing_class or model
            model = load_converted(model, ConvertArguments())
        if not isinstance(model, DseModel):
            raise TypeError(
                f"`model` is a `{type(model).__name__}`, and `AlignTrainer` needs a `DseModel`: convert an encoder "
                "with `convert_encoder`; of a model with a head for pairs, pass `model.dse`."
            )
        if processing_class is None:
            raise ValueError(
                "`AlignTrainer` needs `processing_class`, the tokenizer of the student: pass the tokenizer, its "
                "folder or its Hub id."
            )
        processing_class = load_tokenizer(processing_class)
        check_max_length(args.max_length, model, processing_class)
        # What loads a checkpoint reads as much of a text as the training.
        processing_class = limit_tokens(processing_class, model, args.max_length)
        sizes = {name: _check_vectors(name, part) for name, part in _named(train_dataset, eval_dataset)}
        if len(set(sizes.values())) > 1:
            raise ValueError(
                f"The vectors have different sizes, {', '.join(f'{size} in {name}' for name, size in sizes.items())}: "
                "take all of them from the same teacher."
            )
        for dataset in [part for _, part in _named(train_dataset, eval_dataset)][:1]:
            fit_projection(model, processing_class, dataset, args)
        if train_dataset is not None and args.groups_by_length:
            train_dataset = text_lengths(train_dataset, processing_class, args.max_length)
        train_dataset, eval_dataset = (
            # As lists of numbers, vectors would take longer to read than to learn from.
            None if part is None else part.with_format("numpy", columns=["embeddings"], output_all_columns=True)
            for part in (train_dataset, eval_dataset)
        )
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=processing_class,
            data_collator=TextCollator(processing_class, args.max_length),
            compute_metrics=lambda result: {"teacher_cosine": float(np.mean(result.predictions))},
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
        targets = inputs.pop("embeddings")
        outputs = model(**inputs)
        loss = alignment_loss(outputs.pooler_output, targets)
        return (loss, outputs) if return_outputs else loss

    def prediction_step(
        self,
        model: nn.Module,
        inputs: dict[str, Any],
        prediction_loss_only: bool,
        ignore_keys: list[str] | None = None,
    ) -> tuple[torch.Tensor | None, torch.Tensor | None, torch.Tensor | None]:
        inputs = self._prepare_inputs(inputs)
        with torch.no_grad(), self.compute_loss_context_manager():
            loss, outputs = self.compute_loss(model, inputs, return_outputs=True)
        if prediction_loss_only:
            return loss, None, None
        cosines = nn.functional.cosine_similarity(outputs.pooler_output.float(), inputs["embeddings"].float())
        return loss, cosines, cosines

    def own_rate(self, name: str) -> float | None:
        return self.args.projection_learning_rate if name.startswith("projection.") else None


def fit_projection(
    model: DseModel, processing_class: PreTrainedTokenizerBase, dataset: Dataset, args: AlignTrainingArguments
) -> None:
    """Gives a student a linear layer to the teacher's vectors, fitted to a sample of the texts, unless it has one."""
    size = len(dataset[0]["embeddings"])
    config = model.config
    if config.projection_dim == size:
        return
    if model.projection is not None or config.pooling_mode == "max":
        what = f"a projection to {config.projection_dim} dimensions" if model.projection is not None else "max pooling"
        raise ValueError(
            f"The student has {what}, and the teacher's vectors have {size}: pass a student without `projection_dim`, "
            "with the pooling mean or cls."
        )
    rows = torch.randperm(len(dataset), generator=torch.Generator().manual_seed(args.seed))[:FIT_TEXTS]
    sample = dataset.select(sorted(rows.tolist())).with_format("numpy")
    normalizes, config.normalize_embeddings = config.normalize_embeddings, False
    try:
        # The layer comes before the scaling to length 1.
        vectors = encode(
            model, processing_class, list(sample["text"][:]), max_length=args.max_length, device=args.device,
            show_progress=False,
        )  # fmt: skip
    finally:
        config.normalize_embeddings = normalizes
    targets = np.asarray(sample["embeddings"][:], dtype=np.float32)
    set_projection(model, *fit_linear(torch.from_numpy(vectors), torch.from_numpy(targets)))
    logger.info(f"A linear layer from {vectors.shape[1]} to {size} dimensions is fitted to {len(sample)} texts.")


def _named(train_dataset: Dataset | None, eval_dataset: Dataset | None) -> list[tuple[str, Dataset]]:
    datasets = {"train_dataset": train_dataset, "eval_dataset": eval_dataset}
    return [(name, part) for name, part in datasets.items() if part is not None]


def _check_vectors(name: str, dataset: Dataset) -> int:
    missing = {"text", "embeddings"} - set(dataset.column_names)
    if missing or not len(dataset):
        what = f"no column {' or '.join(sorted(missing))}" if missing else "no rows"
        raise ValueError(
            f"`{name}` has {what}; it needs texts in the column 'text' and the vectors of a teacher for them in the "
            "column 'embeddings': `hf-dse distill --stage align` computes them."
        )
    return len(dataset[0]["embeddings"])
