# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The base of all trainers: reproducible and resumable trainings that stop when the loss is NaN or infinite."""

import copy
import hashlib
import json
import math
import re
import shutil
from collections.abc import Callable, Iterable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from os import PathLike
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset, IterableDataset
from torch import nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import (
    EvalPrediction,
    PreTrainedModel,
    PreTrainedTokenizerBase,
    Trainer,
    TrainingArguments,
)
from transformers.trainer import OPTIMIZER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import get_length_grouped_indices
from transformers.trainer_utils import TrainOutput
from transformers.utils import logging

from hf_dse.common.files import LOCK_FILE, locked, writing
from hf_dse.common.loading import load_tokenizer
from hf_dse.common.settings import write_settings
from hf_dse.measure.evaluate import evaluating
from hf_dse.measure.metrics import UndefinedMetricError
from hf_dse.modeling.pairs_dse import fit_similarity, measure
from hf_dse.training.arguments import StudentTrainingArguments
from hf_dse.training.losses import PairDistillationLoss


logger = logging.get_logger(__name__)

# Number of pairs to which the first scale and bias of a similarity head are fitted.
CALIBRATION_PAIRS = 1024

# Files from which a training goes on as if undisturbed: weights, optimizer, scheduler and random states.
CHECKPOINT_FILES = ("*.safetensors", OPTIMIZER_NAME, SCHEDULER_NAME, "rng_state*.pth")
# The last file that a stage of `hf-dse distill` writes.
RESULTS_FILE = "results.json"

# What a training is, beside a checkpoint that it made: a training that goes on from there has to be the same.
PLAN_FILE = "plan.json"
# The options that say what is learned, and of them those that may be others when a training goes on.
PLANNED = (
    *("num_train_epochs", "max_steps", "learning_rate", "head_learning_rate", "scale_learning_rate", "warmup_steps"),
    *("lr_scheduler_type", "lr_scheduler_kwargs", "optim", "optim_args", "optim_target_modules", "weight_decay"),
    *("adam_beta1", "adam_beta2", "adam_epsilon", "max_grad_norm", "per_device_train_batch_size", "world_size"),
    *("gradient_accumulation_steps", "dataloader_drop_last", "train_sampling_strategy", "seed", "data_seed", "bf16"),
    *("fp16", "neftune_noise_alpha", "max_length", "query_max_length", "num_candidates", "contrastive_weight"),
    *("kl_weight", "freeze_layers", "distillation_alpha", "hidden_weight", "sentence_weight"),
)
CHANGEABLE = ("num_train_epochs", "max_steps", "teacher_logits")

# Parts of the names of what a conversion adds.
NEW_PARAMETERS = ("similarity.", "linformer.", "dse.projection.")

Optimizers = tuple[torch.optim.Optimizer | None, torch.optim.lr_scheduler.LambdaLR | None]


@dataclass(eq=False)
class EpochSampler(Sampler[int]):
    """
    Rows in an order of seed and epoch alone: with `lengths` in batches of similar length, otherwise random or as they
    are, by `train_sampling_strategy`. With `shift` an index also tells the epoch, as [`RankingRows`] reads it.
    """

    trainer: "StudentTrainer"
    num_rows: int
    lengths: list[int] | None
    shift: bool = False

    def __len__(self) -> int:
        return self.num_rows

    def __iter__(self) -> Iterator[int]:
        args, epoch = self.trainer.args, int(self.trainer.state.epoch or 0)
        generator = torch.Generator().manual_seed((self.trainer.data_seed << 16) + epoch)
        rows: Iterable[int] = range(self.num_rows)
        if self.lengths is not None:
            batch_size = args.train_batch_size * args.gradient_accumulation_steps
            rows = get_length_grouped_indices(self.lengths, batch_size, generator=generator)
        elif args.train_sampling_strategy == "random":
            rows = torch.randperm(self.num_rows, generator=generator).tolist()
        start = epoch * self.num_rows if self.shift else 0
        return (start + row for row in rows)


class StudentTrainer(Trainer):
    """
    A [`~transformers.Trainer`] that resumes at any step with the same result, also with batches by length, and some of
    whose parameters have learning rates of their own.
    """

    args: Any
    model: Any
    # The loss is the mean over a batch.
    loss_is_scaled_for_ga = False

    def __init__(
        self,
        args: StudentTrainingArguments,
        eval_dataset: Any = None,
        has_eval_loss: bool = True,
        compute_metrics: Callable[[EvalPrediction], dict[str, float]] | None = None,
        **kwargs: Any,
    ):
        # A copy: the same arguments may be those of another trainer, with other data.
        args = copy.copy(args)
        # Models are compared by the loss on the first of several datasets.
        loss = f"{next(iter(eval_dataset))}_loss" if isinstance(eval_dataset, Mapping) else "loss"
        args.follow_data(eval_dataset is not None, loss if has_eval_loss else None)
        if eval_dataset is None:
            logger.info("There is no `eval_dataset`: nothing is evaluated, and the last model is kept.")
        self._compute_metrics = compute_metrics
        metrics = None if compute_metrics is None else self._metrics_or_nothing
        if kwargs.get("train_dataset") is not None:
            check_batches(args, len(kwargs["train_dataset"]))
        super().__init__(args=args, eval_dataset=eval_dataset, compute_metrics=metrics, **kwargs)

    def _metrics_or_nothing(self, prediction: EvalPrediction) -> dict[str, float]:
        """The metrics of an evaluation; none if they are undefined, which does not end a training."""
        try:
            return self._compute_metrics(prediction)  # type: ignore[misc]
        except UndefinedMetricError as error:
            logger.warning(f"The evaluation has no metrics but its loss: {error}")
            return {}

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        try:
            return super()._determine_best_metric(metrics, trial)
        except KeyError as error:
            logger.warning(f"This model is not compared with others. {error.args[0]}")
            return False

    def _get_dataloader(self, dataset: Any, *args: Any, **kwargs: Any) -> DataLoader:
        # An evaluation is one of all rows.
        drops, self.args.dataloader_drop_last = self.args.dataloader_drop_last, False
        try:
            self.args.dataloader_drop_last = drops and kwargs.get("is_training", False)
            return super()._get_dataloader(plain_rows(dataset), *args, **kwargs)
        finally:
            self.args.dataloader_drop_last = drops

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        # Predictions must be in the order of the rows, so these are not grouped by length.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    @property
    def data_seed(self) -> int:
        return self.args.seed if self.args.data_seed is None else self.args.data_seed

    def _get_train_sampler(self, train_dataset: Any = None) -> Sampler | None:
        if self.args.train_sampling_strategy != "group_by_length":
            return super()._get_train_sampler(train_dataset)
        rows: Any = self.train_dataset if train_dataset is None else train_dataset
        return EpochSampler(self, len(rows), rows["length"][:])

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        checkpoint = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        if self.args.should_save:
            # One that is written again is not complete until its last file is.
            (checkpoint / TRAINER_STATE_NAME).unlink(missing_ok=True)
        with writing(checkpoint):
            if self.args.should_save:
                checkpoint.mkdir(parents=True, exist_ok=True)
                loss = self.loss_before + self._total_loss_scalar + self._tr_loss.item()
                (checkpoint / PLAN_FILE).write_text(json.dumps({**self.plan, "loss": loss}), encoding="utf-8")
            super()._save_checkpoint(model, trial)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        if self.args.should_save:
            folder = Path(output_dir or str(self.args.output_dir))
            if isinstance(self.model, PreTrainedModel):
                write_settings(self.model, folder)
            # A pickle that holds the token of the Hub, and that nothing reads.
            (folder / TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains, from the start, from a checkpoint, or with `True` or `"last"` from the newest complete one."""
        checkpoint = find_checkpoint(str(self.args.output_dir), resume_from_checkpoint)
        self.has_begun, self.loss_before = False, 0.0
        self.plan = {**plan_of(self.args), **config_facts(self.model), **self.data_facts()}
        if checkpoint is not None:
            check_plan(checkpoint, self.plan, warn=True)
            # The sum of the losses of all steps.
            self.loss_before = read_plan(checkpoint).get("loss", math.nan)
        try:
            result = self._train(checkpoint, *args, **kwargs)
            return result._replace(training_loss=result.metrics["train_loss"])
        except Exception as error:
            if checkpoint is None or self.has_begun or isinstance(error, MemoryError | torch.OutOfMemoryError):
                raise
            # The rest of a pickle's error advises to run its code.
            reason = str(error).partition("\n")[0]
            raise ValueError(
                f"{checkpoint} cannot be resumed from ({type(error).__name__}: {reason}): pass an earlier checkpoint, "
                "or start again with `--overwrite_output_dir`."
            ) from error

    def training_step(self, *args: Any, **kwargs: Any) -> torch.Tensor:
        self.has_begun = True
        return super().training_step(*args, **kwargs)

    def log(self, logs: dict[str, float], *args: Any, **kwargs: Any) -> None:
        """Logs values, and raises a `ValueError` if a loss is NaN or infinite."""
        if "train_loss" in logs and self.loss_before:
            # That of the whole training, not of its part since a checkpoint.
            steps = self.state.global_step - self._initial_global_step
            whole = (self.loss_before + steps * logs["train_loss"]) / self.state.global_step
            logs["train_loss"] = logs["train_loss"] if math.isnan(self.loss_before) else whole
        super().log(logs, *args, **kwargs)
        for name, value in logs.items():
            # A training that ends before its first log line logs `train_loss` only.
            if (name == "loss" or name.endswith("_loss")) and not math.isfinite(value):
                raise ValueError(
                    f"The training diverged: {name} is {value} at step {self.state.global_step}. Lower "
                    f"`learning_rate` (now {self.args.learning_rate}), use a longer warmup, or train in float32."
                )

    def _train(self, checkpoint: str | None, *args: Any, **kwargs: Any) -> TrainOutput:
        """Trains from a checkpoint that exists, or from the start. Subclasses fit heads first."""
        return super().train(checkpoint, *args, **kwargs)

    def create_scheduler(self, num_training_steps: int, *args: Any, **kwargs: Any) -> Any:
        if num_training_steps <= (warmup := self.args.get_warmup_steps(num_training_steps)):
            logger.warning(
                f"The learning rate begins at 0 and does not reach `learning_rate`: {warmup} warmup steps in a "
                f"training of {num_training_steps}. Lower `warmup_steps`, to 0 for a rate from the first step."
            )
        return super().create_scheduler(num_training_steps, *args, **kwargs)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        super()._load_optimizer_and_scheduler(checkpoint)
        scheduler: Any = self.lr_scheduler
        optimizer: Any = self.optimizer
        if checkpoint is not None and isinstance(scheduler, torch.optim.lr_scheduler.LambdaLR):
            # The rates of the checkpoint are of its number of steps.
            shares = [share(scheduler.last_epoch) for share in scheduler.lr_lambdas]
            scheduler._last_lr = [rate * share for rate, share in zip(scheduler.base_lrs, shares, strict=True)]
            for group, rate in zip(optimizer.param_groups, scheduler._last_lr, strict=True):
                group["lr"] = rate

    def data_facts(self) -> dict[str, Any]:
        """What tells the training rows from others."""
        rows: Any = self.train_dataset
        scores = rows["teacher_logits"][:] if "teacher_logits" in rows.column_names else []
        names = [name for name in rows.column_names if name not in ("teacher_logits", "length")]
        return facts_of(rows.select_columns(names), scores=scores)

    def own_rate(self, name: str) -> float | None:
        """The learning rate of a parameter, if it is not that of the arguments."""
        if is_of_head(name, "scale", "bias") and self.model.similarity.kind != "mlp":
            # Adam changes a number by about the rate, whatever its size is.
            return self.args.scale_learning_rate * self.model.similarity.scale.detach().abs().mean().item()
        is_new = any(part in name for part in NEW_PARAMETERS)
        return getattr(self.args, "head_learning_rate", None) if is_new else None

    @torch.no_grad()
    def fit_line(self, pairs: Any, collate: Any, loss: PairDistillationLoss) -> tuple[torch.Tensor, torch.Tensor]:
        """Scale and bias of the similarities of some pairs, by least squares of their targets."""
        rows = torch.randperm(len(pairs), generator=torch.Generator().manual_seed(self.args.seed))
        sample = pairs.select(rows[:CALIBRATION_PAIRS].tolist())
        # Pairs of similar length together.
        sample = sample.sort("length") if "length" in sample.column_names else sample
        similarities, targets = [], []
        with evaluating(self.model):
            for batch in DataLoader(sample, self.args.eval_batch_size, collate_fn=collate):
                batch = self._prepare_inputs(batch)
                output = self.model(**{name: batch[name] for name in ("input_ids", "attention_mask")})
                similarities.append(self.model.similarity.compare(*output.embeddings.unbind(1)).cpu().double())
                known = {name: batch[name].cpu() for name in ("labels", "teacher_logits") if name in batch}
                targets.append(loss.targets(output.logits.shape[-1], **known))
        return fit_similarity(measure(torch.cat(similarities), torch.cat(targets)))

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        if self.optimizer is not None:
            return self.optimizer
        optimizer = super().create_optimizer(model)
        module: Any = self.model if model is None else model
        own = {id(weight): self.own_rate(name) for name, weight in module.named_parameters()}
        for group in list(optimizer.param_groups):
            # In an order that a resumed training has too.
            by_rate: dict[float | None, list[nn.Parameter]] = {}
            for weight in group["params"]:
                by_rate.setdefault(own.get(id(weight)), []).append(weight)
            group["params"] = by_rate.pop(None, [])
            for rate, weights in by_rate.items():
                optimizer.add_param_group({**group, "params": weights, "lr": rate})
        return optimizer


def check_batches(args: StudentTrainingArguments, num_rows: int) -> None:
    """Raises a `ValueError` if the training rows do not fill the one batch that `dataloader_drop_last` asks for."""
    loading: Any = args.accelerator_config
    size = args.train_batch_size * (1 if loading.split_batches else args.world_size)
    if args.dataloader_drop_last and num_rows < size:
        raise ValueError(
            f"{num_rows} training rows give no batch of {size}, and with `dataloader_drop_last` a smaller one is left "
            "out: lower `per_device_train_batch_size`, or leave `dataloader_drop_last` out."
        )


def plan_of(args: StudentTrainingArguments) -> dict[str, Any]:
    """The options of a training that say what is learned."""
    return json.loads(json.dumps({name: getattr(args, name) for name in PLANNED if hasattr(args, name)}))


def config_facts(model: Any) -> dict[str, Any]:
    """The fields of a student and of its encoder, without what a training or a version changes."""
    config = json.loads(json.dumps(model.config.to_dict(), default=str))
    encoder = {f"encoder.{name}": value for name, value in config.pop("encoder", {}).items()}
    passing = re.compile(r"(encoder\.)?(_.*|.*_token_id|dtype|transformers_version|architectures|use_cache)")
    return {name: value for name, value in {**config, **encoder}.items() if not passing.fullmatch(name)}


def facts_of(*rows: Dataset, scores: list[list[float]] | None = None) -> dict[str, Any]:
    """Number and content of rows, and the mean of the teacher's scores of them."""
    digest = hashlib.sha256()
    for part in rows:
        for batch in part.iter(1000):
            digest.update(repr(batch).encode())
    known = [score for part in scores or [] for score in part or [] if score is not None and math.isfinite(score)]
    mean = round(sum(known) / len(known), 2) if known else None
    return {"training rows": len(rows[0]), "content of the rows": digest.hexdigest()[:8], "teacher_logits": mean}


def read_plan(checkpoint: str | PathLike) -> dict[str, Any]:
    """The plan of the training that made a checkpoint; empty for one of an earlier version."""
    file = Path(checkpoint, PLAN_FILE)
    return json.loads(file.read_text(encoding="utf-8")) if file.is_file() else {}


def check_plan(checkpoint: str | PathLike, plan: dict[str, Any], warn: bool = False) -> None:
    """
    Raises a `ValueError` if a training is another than the one that made a checkpoint. What may change is said with
    `warn`.
    """
    made = read_plan(checkpoint)
    changes = {
        name: f"{name}={plan[name]} (the checkpoint was made with {made[name]})"
        for name in plan
        if name in made and plan[name] != made[name]
    }
    if wrong := [change for name, change in changes.items() if name not in CHANGEABLE]:
        raise ValueError(
            f"{checkpoint} is of another training: {', '.join(wrong)}. Pass what it was made with, or start again: in "
            "another folder or with `--overwrite_output_dir`, and with `--model` from the model that there is."
        )
    if not made:
        return
    told = ", ".join(changes.values())
    state = json.loads(Path(checkpoint, TRAINER_STATE_NAME).read_text(encoding="utf-8"))
    done, end = state["epoch"], plan["num_train_epochs"]
    if plan["max_steps"] > 0:
        done, end = state["global_step"], plan["max_steps"]
    if changes and done > end:
        raise ValueError(f"{checkpoint} is beyond the end: {told}. Pass more, or start again.")
    if warn and told:
        logger.warning(f"{checkpoint} goes on with {told}: this holds from here on.")
    if warn and done >= end:
        logger.warning(f"{checkpoint} is the end of its training: nothing is left to train.")


def is_of_head(name: str, *parts: str) -> bool:
    """Whether a parameter of this name is one of these parts of a similarity head, which an adapter may wrap."""
    return "similarity." in name and name.rpartition(".")[2] in parts


def plain_rows(dataset: Any) -> Any:
    """A dataset, or each of several, without the format of `with_format`: its rows are numbers, texts and lists."""
    if isinstance(dataset, list | IterableDataset):
        raise TypeError(
            f"The rows are of the type {type(dataset).__name__}, and have to be a `datasets.Dataset`, as "
            "`Dataset.from_list(rows)` makes it of a list and `load_dataset` without streaming."
        )
    if isinstance(dataset, Mapping):
        return {name: plain_rows(part) for name, part in dataset.items()}
    # What a transform makes of the rows is not in the data.
    is_formatted = isinstance(dataset, Dataset) and dataset.format["type"] not in (None, "custom")
    return dataset.with_format(None) if is_formatted else dataset


def check_head_learns(model: Any) -> None:
    """Raises a `ValueError` if the head of a student is frozen or not in its adapter, which is saved without it."""
    named = [(name, weight) for name, weight in model.named_parameters() if is_of_head(name, "scale", "bias")]
    is_saved = not hasattr(model, "peft_config") or any("modules_to_save" in name for name, _ in named)
    if not is_saved or not all(weight.requires_grad for name, weight in named if "original_module" not in name):
        raise ValueError(
            "The similarity head of the student is frozen, and its scale and bias are fitted to the targets: let them "
            'learn, with PEFT by `modules_to_save=["similarity"]`, so that the adapter is saved with them.'
        )


def read_tokenizer(model: Any, processing_class: Any) -> PreTrainedTokenizerBase:
    """The tokenizer of a student. Raises a `TypeError` if one of the two is not given."""
    if isinstance(model, str | PathLike) or processing_class is None:
        raise TypeError(
            "A trainer needs a loaded student, such as `make_pair_model(convert_encoder(name), num_labels=1)`, and "
            "its tokenizer as `processing_class`. `distill` takes names."
        )
    return load_tokenizer(processing_class)


def complete_checkpoints(folder: Path) -> list[Path]:
    """The checkpoints of a training that were written to their end, the newest last."""
    found = []
    for state in folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}"):
        # The Trainer writes this file last, and deletes all in any order. A process that was killed leaves a part.
        try:
            json.loads(state.read_text(encoding="utf-8"))
        except ValueError:
            continue
        if all(any(state.parent.glob(name)) for name in CHECKPOINT_FILES):
            found.append(state.parent)
    return sorted(found, key=lambda path: int(path.name.split("-")[1]))


def find_checkpoint(output_dir: str, resume_from_checkpoint: str | bool | None) -> str | None:
    """The checkpoint to resume from: a folder, or for `True` and `"last"` the newest complete one in `output_dir`."""
    resume = str(resume_from_checkpoint or "false")
    if resume.lower() == "false":
        return None
    if resume.lower() not in ("true", "last"):
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"There is no checkpoint {resume} to resume from.")
        return resume
    checkpoints = complete_checkpoints(Path(output_dir))
    if not checkpoints:
        raise FileNotFoundError(
            f"{output_dir} holds no checkpoint to resume from: start without `resume_from_checkpoint`, and with "
            "`--overwrite_output_dir` if the folder is not empty."
        )
    return str(checkpoints[-1])


@contextmanager
def lock_output_dir(training_args: TrainingArguments) -> Iterator[None]:
    """Keeps other processes from training into the same folder; the first of several processes has it for all."""
    is_first = training_args.process_index == 0
    with locked(Path(str(training_args.output_dir))) if is_first else nullcontext():
        yield


def check_output_dir(output_dir: str, resume_from_checkpoint: str | bool | None, overwrite: bool) -> str | None:
    """The checkpoint to resume from, if any. `overwrite` deletes the checkpoints of an earlier training."""
    folder, checkpoint = Path(output_dir), find_checkpoint(output_dir, resume_from_checkpoint)
    if checkpoint is not None:
        return checkpoint
    if folder.is_dir() and any(path.name != LOCK_FILE for path in folder.iterdir()):
        if not overwrite:
            raise FileExistsError(
                f"The output folder {output_dir} is not empty: choose another one, continue its training with "
                "`--resume_from_checkpoint last`, or pass `--overwrite_output_dir`."
            )
        # First what tells that something is complete, so that a kill leaves nothing that looks so. Several processes
        # of a distributed training may delete the same files.
        for file in (folder / RESULTS_FILE, *folder.glob(f"checkpoint-*/{TRAINER_STATE_NAME}")):
            file.unlink(missing_ok=True)
        for leftover in folder.glob("checkpoint-*"):
            shutil.rmtree(leftover, ignore_errors=True)
    return None
