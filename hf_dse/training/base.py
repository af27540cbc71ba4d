# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What all trainers share: reproducible and resumable trainings that stop when the loss is NaN or infinite."""

import json
import math
import shutil
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager, nullcontext
from fnmatch import fnmatch
from functools import partial, wraps
from pathlib import Path
from typing import Any, ParamSpec, TypeVar

import torch
from datasets import Dataset
from huggingface_hub import HfApi
from torch import nn
from torch.utils.data import DataLoader, Sampler, SequentialSampler
from transformers import PreTrainedModel, Trainer, TrainerCallback, TrainerState, TrainingArguments
from transformers.trainer import OPTIMIZER_NAME, SCALER_NAME, SCHEDULER_NAME, TRAINER_STATE_NAME, TRAINING_ARGS_NAME
from transformers.trainer_pt_utils import LengthGroupedSampler
from transformers.trainer_utils import HubStrategy, SaveStrategy, TrainOutput
from transformers.utils import PushInProgress, logging

from hf_dse.common.files import LOCK_FILE, locked, writing
from hf_dse.data.tables import table_remedy
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.student.checkpoint import TRAINING_STATE
from hf_dse.training.arguments import PairTrainingArguments
from hf_dse.training.inputs import OWN_LOSS, plain_rows, refuse_arguments


logger = logging.get_logger(__name__)

# Where a Trainer without arguments writes.
DEFAULT_OUTPUT_DIR = "tmp_trainer"

# Tokens above which attention with dropout needs too much on a CPU.
LONG_TEXT = 512
# What a training needs to go on as if undisturbed: weights, optimizer, scheduler and random states.
CHECKPOINT_FILES = ("*.safetensors", OPTIMIZER_NAME, SCHEDULER_NAME, "rng_state*.pth")
# The last file that a stage of `hf-dse distill` writes.
RESULTS_FILE = "results.json"

P = ParamSpec("P")
R = TypeVar("R")


class EpochLengthSampler(LengthGroupedSampler):
    """
    Batches of similar length, in an order that depends only on seed and epoch: a training that is resumed in the
    middle of an epoch continues with the rest of that epoch, and all processes of a distributed training agree.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int):
        # A slice, for a column of a data set takes a millisecond to read a single number.
        super().__init__(batch_size, lengths=lengths[:], generator=torch.Generator())
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed((self.seed << 16) + self.epoch)
        return super().__iter__()


class ReproducibleTrainer(Trainer):
    """
    A [`~transformers.Trainer`] that resumes at any step with the same result, also with batches grouped by length, and
    that stops when the loss is NaN or infinite. It evaluates and saves as [`PairTrainingArguments`] describes.
    """

    arguments_class: type[PairTrainingArguments] = PairTrainingArguments
    # Arguments of `Trainer` that this one does not take, and why.
    refused: Mapping[str, str] = {}

    def __init__(
        self,
        model: Any = None,
        args: PairTrainingArguments | None = None,
        train_dataset: Dataset | None = None,
        eval_dataset: Dataset | Mapping[str, Dataset] | None = None,
        **kwargs: Any,
    ):
        args = self.check_args(args)
        self._check_datasets(train_dataset, eval_dataset)
        args.fill_open_fields(eval_dataset is not None, self._eval_loss(eval_dataset))
        if eval_dataset is None:
            logger.info("There is no `eval_dataset`: nothing is evaluated, and the last model is kept.")
        self._check_batches(args, train_dataset, args.train_batch_size)
        self._check_batches(args, eval_dataset, args.eval_batch_size)
        super().__init__(model=model, args=args, train_dataset=train_dataset, eval_dataset=eval_dataset, **kwargs)
        # `Trainer` may leave that for the training, as with `bf16_full_eval`; heads are fitted before.
        self._move_model_to_device(self.model, args.device)  # type: ignore[arg-type]
        self.add_callback(FiniteLossCallback)
        self.add_callback(EpochCallback)

    @classmethod
    def check_args(cls, args: Any, others: dict[str, Any] | None = None) -> Any:
        """Returns the arguments, or default ones for `None`; a `TypeError` for those of another trainer."""
        wanted = cls.arguments_class
        refuse_arguments(cls.__name__, cls.refused, {} if others is None else others)
        if args is None:
            return wanted(DEFAULT_OUTPUT_DIR)
        if not isinstance(args, wanted):
            raise TypeError(
                f"`args` is a `{type(args).__name__}`, and `{cls.__name__}` needs `{wanted.__name__}`: pass "
                f"`hf_dse.{wanted.__name__}(...)`, which has the fields of `TrainingArguments` and its own."
            )
        return args

    @classmethod
    def _check_datasets(cls, train_dataset: Any = None, eval_dataset: Any = None, test_dataset: Any = None) -> None:
        datasets = {"train_dataset": train_dataset, "eval_dataset": eval_dataset, "test_dataset": test_dataset}
        if isinstance(eval_dataset, Mapping):
            datasets |= {f"eval_dataset[{name!r}]": part for name, part in eval_dataset.items()}
            del datasets["eval_dataset"]
        for name, dataset in datasets.items():
            if dataset is None or isinstance(dataset, Dataset):
                continue
            kind = f"{type(dataset).__module__.partition('.')[0]}.{type(dataset).__name__}"
            raise TypeError(
                f"`{name}` is a `{kind}`, and `{cls.__name__}` needs a `datasets.Dataset`, whose rows it checks and "
                f"groups by length before the training: {table_remedy(dataset)}."
            )

    @classmethod
    def _eval_loss(cls, eval_dataset: Any) -> str | None:
        """The name of the loss by which models are compared: of several datasets that of the first; `None` without."""
        return f"{next(iter(eval_dataset))}_loss" if isinstance(eval_dataset, Mapping) and eval_dataset else "loss"

    @staticmethod
    def _check_batches(args: PairTrainingArguments, dataset: Any, batch_size: int) -> None:
        size = batch_size * args.world_size
        if args.dataloader_drop_last and isinstance(dataset, Dataset) and len(dataset) < size:
            raise ValueError(
                f"`dataloader_drop_last` leaves nothing of {len(dataset)} rows, for a batch has {size}: use smaller "
                "batches, or leave it out."
            )

    def _determine_best_metric(self, metrics: dict[str, float], trial: Any) -> bool:
        try:
            return super()._determine_best_metric(metrics, trial)
        except KeyError as error:
            raise ValueError(error.args[0]) from error

    def get_eval_dataloader(self, eval_dataset: Any = None) -> DataLoader:
        if not isinstance(eval_dataset, str):
            self._check_datasets(eval_dataset=eval_dataset)
            eval_dataset = plain_rows(eval_dataset)
        return super().get_eval_dataloader(eval_dataset)

    def get_test_dataloader(self, test_dataset: Any) -> DataLoader:
        self._check_datasets(test_dataset=test_dataset)
        return super().get_test_dataloader(plain_rows(test_dataset))

    def report(self, values: Mapping[str, float], prefix: str) -> dict[str, float]:
        """Logs the metrics of an evaluation and tells the callbacks, as `Trainer.evaluate` does."""
        metrics = {f"{prefix}_{name}": value for name, value in values.items()}
        self.log(metrics)
        self.control = self.callback_handler.on_evaluate(self.args, self.state, self.control, metrics)
        return metrics

    def _get_eval_sampler(self, eval_dataset: Dataset) -> Sampler | None:
        # Predictions must be in the order of the rows, so these are not grouped by length.
        return SequentialSampler(eval_dataset) if self.args.world_size <= 1 else None

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            return EpochLengthSampler(sampler.batch_size, sampler.lengths, seed)
        return sampler

    def _save_checkpoint(self, model: nn.Module, trial: Any) -> None:
        checkpoint = Path(self._get_output_dir(trial), f"checkpoint-{self.state.global_step}")
        if self.args.should_save:
            # One that is written again is not complete until its last file is.
            (checkpoint / TRAINER_STATE_NAME).unlink(missing_ok=True)
        with writing(checkpoint):
            super()._save_checkpoint(model, trial)

    def _save(self, output_dir: str | None = None, state_dict: dict | None = None) -> None:
        super()._save(output_dir, state_dict)
        # A pickle that holds the token of the Hub, and that nothing reads.
        if self.args.should_save:
            Path(output_dir or str(self.args.output_dir), TRAINING_ARGS_NAME).unlink(missing_ok=True)

    def train(self, resume_from_checkpoint: str | bool | None = None, *args: Any, **kwargs: Any) -> TrainOutput:
        if isinstance(resume_from_checkpoint, str):
            read_state(resume_from_checkpoint)
        self._advise_dropout()
        if self.args.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.args.device)
        return super().train(resume_from_checkpoint, *args, **kwargs)

    def _advise_dropout(self) -> None:
        """Warns of what makes trainings on long texts slow on a CPU."""
        model: Any = self.model
        config = next((part.config for part in model.modules() if isinstance(part, PreTrainedModel)), None)
        dropout = getattr(config, "attention_probs_dropout_prob", None) or 0.0
        length = getattr(self.args, "max_length", None) or 0
        if self.args.device.type == "cpu" and dropout > 0 and length > LONG_TEXT:
            logger.warning(
                f"attention_probs_dropout_prob is {dropout}, and texts may have {length:,} tokens: on a CPU torch's "
                "fast attention runs without dropout only, and the other one needs far more memory and time. Set it "
                "to 0 in the model's config, for a student with `--attention_probs_dropout_prob 0`."
            )

    def _load_from_checkpoint(self, resume_from_checkpoint: str, model: nn.Module | None = None) -> None:
        with resuming(resume_from_checkpoint, "weights"):
            super()._load_from_checkpoint(resume_from_checkpoint, model)

    def _load_optimizer_and_scheduler(self, checkpoint: str | None) -> None:
        with resuming(checkpoint, f"{OPTIMIZER_NAME} or {SCHEDULER_NAME}"):
            super()._load_optimizer_and_scheduler(checkpoint)
            if checkpoint is not None:
                check_optimizer(self.optimizer)

    def _load_scaler(self, checkpoint: str | None) -> None:
        with resuming(checkpoint, SCALER_NAME):
            super()._load_scaler(checkpoint)

    def _load_rng_state(self, checkpoint: str | None) -> None:
        with resuming(checkpoint, "rng_state.pth"):
            super()._load_rng_state(checkpoint)

    def _push_from_checkpoint(self, checkpoint_folder: str) -> None:
        """Pushes the model of a checkpoint with all its files. The Trainer would push whatever is in `output_dir`."""
        args: Any = self.args
        running: Any = self.push_in_progress
        is_busy = running is not None and not running.is_done()
        if not self.is_world_process_zero() or args.hub_strategy == HubStrategy.END:
            return
        if is_busy and not args.hub_always_push:
            return
        self.callback_handler.on_push_begin(args, self.state, self.control)
        checkpoint, folder = Path(checkpoint_folder), Path(str(args.output_dir))
        names = [
            file.relative_to(checkpoint).as_posix()
            for file in checkpoint.rglob("*")
            if file.is_file() and not any(fnmatch(file.name, pattern) for pattern in TRAINING_STATE)
        ]
        for name in names:
            # A checkpoint may be deleted while it is uploaded.
            (folder / name).parent.mkdir(parents=True, exist_ok=True)
            shutil.copy(checkpoint / name, folder / name)
        is_by_step = args.save_strategy == SaveStrategy.STEPS
        done = f"step {self.state.global_step}" if is_by_step else f"epoch {int(self.state.epoch or 0)}"
        message = f"Training in progress, {done}"
        upload = partial(
            HfApi(token=args.hub_token).upload_folder,
            repo_id=self.hub_model_id,
            revision=args.hub_revision,
            run_as_future=True,
        )
        jobs = [upload(folder_path=folder, allow_patterns=names, commit_message=message)]
        if args.hub_strategy in (HubStrategy.CHECKPOINT, HubStrategy.ALL_CHECKPOINTS):
            name = "last-checkpoint" if args.hub_strategy == HubStrategy.CHECKPOINT else checkpoint.name
            message += ", checkpoint"
            jobs.append(upload(folder_path=checkpoint, path_in_repo=name, commit_message=message))
        if is_busy:
            running.jobs.extend(jobs)
        else:
            self.push_in_progress = PushInProgress(jobs)  # type: ignore[arg-type, assignment]


class FiniteLossCallback(TrainerCallback):
    """Stops a training whose loss is NaN or infinite."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        for name, value in (logs or {}).items():
            # A training that ends before its first log line logs `train_loss` only.
            if (name == "loss" or name.endswith("_loss")) and not math.isfinite(value):
                raise ValueError(
                    f"The training diverged: {name} is {value} at step {state.global_step}. Lower `learning_rate` "
                    f"(now {args.learning_rate}), use a longer warmup, or train in float32."
                )


class EpochCallback(TrainerCallback):
    """Tells sampler and collator their epoch. In a resumed training of several processes nothing else reaches them."""

    def on_epoch_begin(self, args, state, control, train_dataloader=None, **kwargs):
        sampler: Any = train_dataloader
        while hasattr(sampler, "batch_sampler"):
            sampler = sampler.batch_sampler
        parts: list[Any] = [getattr(sampler, "sampler", None), getattr(train_dataloader, "collate_fn", None)]
        for part in parts:
            if hasattr(part, "set_epoch"):
                part.set_epoch(int(state.epoch or 0))


class StudentTrainer(ReproducibleTrainer):
    """A trainer of a [`DseForSequenceClassification`], some of whose parameters have learning rates of their own."""

    # The loss is the mean over a batch.
    loss_is_scaled_for_ga = False
    refused = OWN_LOSS
    model: DseForSequenceClassification

    def own_rate(self, name: str) -> float | None:
        """The learning rate of a parameter, if it is not that of the arguments."""
        raise NotImplementedError

    def create_optimizer(self, model: nn.Module | None = None) -> torch.optim.Optimizer:
        exists = self.optimizer is not None
        optimizer = super().create_optimizer(model)
        if exists:
            return optimizer
        module = self.model if model is None else model
        own = {id(weight): self.own_rate(name) for name, weight in module.named_parameters()}
        rates = {weight: rate for weight, rate in own.items() if rate is not None}
        for group in list(optimizer.param_groups):
            for rate in dict.fromkeys(rates[id(weight)] for weight in group["params"] if id(weight) in rates):
                moved = [weight for weight in group["params"] if rates.get(id(weight)) == rate]
                group["params"] = [weight for weight in group["params"] if rates.get(id(weight)) != rate]
                optimizer.add_param_group({**group, "params": moved, "lr": rate})
        return optimizer


@contextmanager
def resuming(checkpoint: str | Path | None, what: str) -> Iterator[None]:
    """Names the part of a checkpoint that cannot be read: a damaged file raises an error of any kind."""
    try:
        yield
    except Exception as error:
        # Such as a file that is missing or must not be read.
        if isinstance(error, MemoryError | torch.OutOfMemoryError) or getattr(error, "filename", None):
            raise
        # The error of a pickle advises to run its code.
        raise ValueError(
            f"{checkpoint} cannot be resumed from: its {what} is damaged, or that of another training "
            f"({type(error).__name__}). Pass an earlier checkpoint, or start again with `--overwrite_output_dir`."
        ) from error


def read_state(checkpoint: str | Path) -> TrainerState:
    """
    Reads how far the training of a checkpoint was.

    Raises:
        `ValueError`: if the file is damaged.
    """
    with resuming(checkpoint, TRAINER_STATE_NAME):
        state = TrainerState.load_from_json(str(Path(checkpoint) / TRAINER_STATE_NAME))
        # Without this a training would begin again, with other weights than a new one.
        if not isinstance(state.global_step, int) or state.global_step < 1:
            raise ValueError(f"its step is {state.global_step}")
    return state


def check_optimizer(optimizer: Any) -> None:
    """Refuses a state with tensors of other sizes than their parameters: a fused step would write beyond them."""
    if not any("fused" in group for group in optimizer.param_groups):
        return
    for parameter, state in optimizer.state.items():
        for name, value in state.items():
            is_right = value.shape == parameter.shape and value.stride() == parameter.stride()
            if not (value.numel() == 1 if name == "step" else is_right):
                raise ValueError(f"{name} has the shape {tuple(value.shape)}")


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


@contextmanager
def lock_output_dir(training_args: TrainingArguments) -> Iterator[None]:
    """Keeps other processes from training into the same folder; the first of several processes has it for all."""
    is_first = training_args.process_index == 0
    with locked(Path(str(training_args.output_dir))) if is_first else nullcontext():
        yield


def locks_output_dir(train: Callable[P, R]) -> Callable[P, R]:
    """While the function runs, no other process may train into the `output_dir` of its training arguments."""

    @wraps(train)
    def train_locked(*args: P.args, **kwargs: P.kwargs) -> R:
        with lock_output_dir(
            next(value for value in (*args, *kwargs.values()) if isinstance(value, TrainingArguments))
        ):
            return train(*args, **kwargs)

    return train_locked


def check_output_dir(output_dir: str, resume_from_checkpoint: str | bool | None, overwrite: bool) -> str | None:
    """
    Finds the checkpoint to resume from, and refuses to overwrite an earlier training.

    Args:
        output_dir (`str`):
            The folder to train into.
        resume_from_checkpoint (`str` or `bool`, *optional*):
            A checkpoint folder, or `True` or `"last"` for the newest complete one in `output_dir`.
        overwrite (`bool`):
            Whether a folder that is not empty may be used; its checkpoints are then deleted.

    Returns:
        `str`, *optional*: the checkpoint to resume from.

    Raises:
        `FileExistsError`: if the folder is not empty, and neither resuming nor overwriting was asked for.
        `FileNotFoundError`: if there is no checkpoint to resume from.
    """
    folder, resume = Path(output_dir), str(resume_from_checkpoint or "false")
    if resume.lower() in ("true", "last"):
        checkpoints = complete_checkpoints(folder)
        if not checkpoints:
            raise FileNotFoundError(
                f"{output_dir} holds no checkpoint to resume from: start without `resume_from_checkpoint`, and with "
                "`--overwrite_output_dir` if the folder is not empty."
            )
        return str(checkpoints[-1])
    if resume.lower() != "false":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"There is no checkpoint {resume} to resume from.")
        return resume
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
        for checkpoint in folder.glob("checkpoint-*"):
            shutil.rmtree(checkpoint, ignore_errors=True)
    return None
