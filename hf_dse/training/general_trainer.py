# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The Trainer that distils the layers of an encoder into a student, on text without labels."""

import copy
from collections.abc import Mapping
from os import PathLike
from typing import Any

import torch
from datasets import Dataset
from torch import nn
from transformers import PreTrainedTokenizerBase, TrainerCallback

from hf_dse.convert.student import limit_tokens
from hf_dse.data.collators import TextCollator
from hf_dse.data.tokenization import check_max_length, lengths
from hf_dse.modeling import DseModel
from hf_dse.training.arguments import GeneralTrainingArguments
from hf_dse.training.base import Optimizers, StudentTrainer, plain_rows, read_tokenizer
from hf_dse.training.losses import hidden_loss, to_full_precision


class GeneralTrainer(StudentTrainer):
    """
    [`~transformers.Trainer`] for a student that learns from its source on text without labels. The parts of the loss
    are the hidden states of all layers and the sentence embeddings. Student layer m of M learns from layer m * N / M,
    rounded down, of N. Relations of queries, keys and values (MiniLM) taught nothing beside them (docs/studies.md).

    Args:
        model ([`DseModel`]):
            The student.
        args ([`GeneralTrainingArguments`], *optional*):
            Training arguments. Defaults to `GeneralTrainingArguments()`.
        train_dataset (`datasets.Dataset`, *optional*):
            Texts, in the column `text`.
        eval_dataset (`datasets.Dataset` or `dict[str, datasets.Dataset]`, *optional*):
            The same for evaluation. Of several datasets the first one tells the best student.
        processing_class (`PreTrainedTokenizerBase` or `str`, *optional*):
            The tokenizer of student and teacher, or its folder or Hub id. It is required.
        teacher ([`DseModel`], *optional*):
            The source with its own attention, such as `convert_encoder("bert-base-uncased",
            layer_types="full_attention")`. It is required.
        callbacks, optimizers (*optional*):
            As for [`~transformers.Trainer`].

    Example:

    ```python
    >>> from datasets import Dataset
    >>> from hf_dse import GeneralTrainer, GeneralTrainingArguments, convert_encoder

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> trainer = GeneralTrainer(
    ...     model=convert_encoder(name),
    ...     args=GeneralTrainingArguments("outputs", num_train_epochs=1, report_to="none"),
    ...     train_dataset=Dataset.from_dict({"text": ["A cat sleeps.", "Rain again."]}),
    ...     processing_class=name,
    ...     teacher=convert_encoder(name, layer_types="full_attention"),
    ... )
    >>> trainer.train().global_step
    {'train_runtime': ...}
    1
    ```
    """

    args: GeneralTrainingArguments
    model: DseModel

    def __init__(
        self,
        model: DseModel,
        args: GeneralTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        processing_class: PreTrainedTokenizerBase | str | PathLike | None = None,
        teacher: DseModel | None = None,
        callbacks: list[TrainerCallback] | None = None,
        optimizers: Optimizers = (None, None),
    ):
        args = args or GeneralTrainingArguments()
        train_dataset, eval_dataset = plain_rows(train_dataset), plain_rows(eval_dataset)
        tokenizer = read_tokenizer(model, processing_class)
        if args.n_gpu > 1:
            raise ValueError(
                "`GeneralTrainer` reads the layers of one model: start one process for each device with torchrun."
            )
        if not isinstance(teacher, nn.Module):
            raise TypeError("`GeneralTrainer` needs a loaded `teacher`, the source of the student.")
        if model.config.vocab_size != teacher.config.vocab_size:
            raise ValueError(
                f"The student has a `vocab_size` of {model.config.vocab_size} and the teacher one of "
                f"{teacher.config.vocab_size}: the teacher has to be the encoder that the student was converted from."
            )
        check_max_length(args.max_length, teacher, tokenizer)
        # What loads a checkpoint reads as much of a text as the training.
        tokenizer = limit_tokens(tokenizer, model, args.max_length)
        if train_dataset is not None and args.groups_by_length:
            train_dataset = lengths(train_dataset, tokenizer, max_length=args.max_length)
        super().__init__(
            model=model,
            args=args,
            train_dataset=train_dataset,
            eval_dataset=eval_dataset,
            processing_class=tokenizer,
            data_collator=TextCollator(tokenizer, args.max_length),
            callbacks=callbacks,
            optimizers=optimizers,
        )
        # Only decoders have the setting that the Trainer adds.
        vars(model.config).pop("use_cache", None)
        # An evaluation has a loss, although its rows have no labels.
        self.can_return_loss = True
        self.teacher: DseModel = teacher.eval().requires_grad_(False).to(args.device)
        # The initial projection of the student also projects the targets, unless the teacher has its own.
        self.target_projection: nn.Module = nn.Identity()
        if model.projection is not None and teacher.projection is None:
            self.target_projection = copy.deepcopy(model.projection).requires_grad_(False)

    def compute_loss(self, model: Any, inputs: Any, return_outputs: bool = False, *args: Any, **kwargs: Any) -> Any:
        with self.accelerator.autocast():
            losses = self.layer_losses(model, inputs)
        weights = {name: getattr(self.args, name.replace("loss", "weight")) for name in losses}
        loss = torch.stack([weights[name] * value for name, value in losses.items()]).sum()
        return (loss, losses) if return_outputs else loss

    def layer_losses(self, model: nn.Module, inputs: Mapping[str, torch.Tensor]) -> dict[str, torch.Tensor]:
        """The parts of the loss whose weight is above 0, without their weights."""
        args, mask = self.args, inputs["attention_mask"]
        with torch.no_grad():
            target = self.teacher(**inputs, output_hidden_states=True)
            embeddings = self.target_projection(target.pooler_output)
        output = model(**inputs, output_hidden_states=True)
        # The output of the embeddings comes first, then that of each layer.
        ours, theirs = output.hidden_states, target.hidden_states
        num_layers = len(ours) - 1
        layers = [(layer, max(1, layer * (len(theirs) - 1) // num_layers)) for layer in range(1, num_layers + 1)]
        losses = {}
        if args.hidden_weight:
            of_layers = [hidden_loss(ours[layer], theirs[mapped], mask) for layer, mapped in layers]
            losses["hidden_loss"] = torch.stack(of_layers).mean()
        if args.sentence_weight:
            pair = to_full_precision(output.pooler_output), to_full_precision(embeddings)
            losses["sentence_loss"] = 1 - nn.functional.cosine_similarity(*pair).mean()
        return losses
