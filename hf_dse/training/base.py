# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What all trainings share: they can be repeated and resumed, and stop when their loss is NaN or infinite."""

import math
import shutil
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch
from datasets import Dataset
from torch.utils.data import Sampler
from transformers import Trainer, TrainerCallback
from transformers.trainer_pt_utils import LengthGroupedSampler


class EpochLengthSampler(LengthGroupedSampler):
    """
    Batches of similar length, in an order that depends on seed and epoch alone: a run that is resumed amid an epoch
    sees what it has not seen yet, and all processes of a distributed run agree.
    """

    def __init__(self, batch_size: int, lengths: list[int], seed: int):
        super().__init__(batch_size, lengths=lengths, generator=torch.Generator())
        self.seed = seed
        self.epoch = 0

    def set_epoch(self, epoch: int) -> None:
        self.epoch = epoch

    def __iter__(self) -> Iterator[int]:
        self.generator.manual_seed((self.seed << 16) + self.epoch)
        return super().__iter__()


class ReproducibleTrainer(Trainer):
    """
    A [`~transformers.Trainer`] that goes on from any step exactly where it stopped, also where batches are grouped by
    length, and that stops at a loss that is no number.
    """

    def __init__(self, *args: Any, **kwargs: Any):
        super().__init__(*args, **kwargs)
        self.add_callback(FiniteLossCallback)

    def _get_train_sampler(self, train_dataset: Dataset | None = None) -> Sampler | None:
        sampler = super()._get_train_sampler(train_dataset)
        if isinstance(sampler, LengthGroupedSampler):
            seed = self.args.seed if self.args.data_seed is None else self.args.data_seed
            return EpochLengthSampler(sampler.batch_size, sampler.lengths, seed)
        return sampler


class FiniteLossCallback(TrainerCallback):
    """Stops a training whose loss is no longer a number."""

    def on_log(self, args, state, control, logs=None, **kwargs):
        for name, value in (logs or {}).items():
            # train_loss is all there is of a training that ends before its first log line.
            if (name == "loss" or name.endswith("_loss")) and not math.isfinite(value):
                raise ValueError(
                    f"The training diverged: {name} is {value} at step {state.global_step}. Lower `learning_rate` "
                    f"(now {args.learning_rate}), lengthen the warmup, or train in float32."
                )


def check_output_dir(output_dir: str, resume_from_checkpoint: str | bool | None, overwrite: bool) -> str | None:
    """
    Finds the checkpoint to resume from, and refuses to write over earlier work.

    Args:
        output_dir (`str`):
            The folder to train into.
        resume_from_checkpoint (`str` or `bool`, *optional*):
            A checkpoint folder, or `True` or `"last"` for the newest complete one in `output_dir`.
        overwrite (`bool`):
            Whether a folder that is not empty may be used; checkpoints in it are deleted then.

    Returns:
        `str`, *optional*: the checkpoint to resume from.

    Raises:
        `FileExistsError`: if the folder is not empty, and neither resuming nor overwriting was asked for.
        `FileNotFoundError`: if there is no checkpoint to resume from.
    """
    folder, resume = Path(output_dir), str(resume_from_checkpoint or "false")
    if resume.lower() in ("true", "last"):
        # What the Trainer writes last; a checkpoint without it was cut short by a kill.
        states = list(folder.glob("checkpoint-*/trainer_state.json"))
        if not states:
            raise FileNotFoundError(f"{output_dir} holds no checkpoint to resume from: start without resuming.")
        return str(max((state.parent for state in states), key=lambda path: int(path.name.split("-")[1])))
    if resume.lower() != "false":
        if not Path(resume).is_dir():
            raise FileNotFoundError(f"{resume}: there is no such checkpoint to resume from.")
        return resume
    if folder.is_dir() and any(folder.iterdir()):
        if not overwrite:
            raise FileExistsError(
                f"The output folder {output_dir} is not empty: choose another one, continue its training with "
                "`--resume_from_checkpoint last`, or pass `--overwrite_output_dir`."
            )
        for checkpoint in folder.glob("checkpoint-*"):
            # Each process of a distributed training comes here, and one of them is first.
            shutil.rmtree(checkpoint, ignore_errors=True)
    return None
