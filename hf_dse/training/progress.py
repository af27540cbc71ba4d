# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What a training of a command shows: one progress bar with the loss, and a line for each evaluation."""

from datetime import timedelta
from typing import Any

from transformers import PrinterCallback, ProgressCallback, Trainer, TrainerCallback
from transformers.utils import logging
from transformers.utils.logging import tqdm


logger = logging.get_logger(__name__)

# What the Trainer adds to the metrics of an evaluation.
ADDED = ("epoch", "_runtime", "_per_second", "_time")


class TrainingProgress(TrainerCallback):
    """Shows the progress of a training, instead of the dictionaries of the Trainer."""

    def __init__(self) -> None:
        self.training: Any = None
        self.evaluation: Any = None
        self.num_steps = 0

    def on_train_begin(self, args, state, control, **kwargs):
        if state.is_world_process_zero:
            self.num_steps = state.global_step
            self.training = tqdm(
                total=state.max_steps,
                initial=self.num_steps,
                desc="Training",
                unit="step",
                disable=args.disable_tqdm,
            )

    def on_step_end(self, args, state, control, **kwargs):
        if self.training is not None:
            self.training.update(state.global_step - self.num_steps)
            self.num_steps = state.global_step

    def on_prediction_step(self, args, state, control, eval_dataloader=None, **kwargs):
        if not state.is_world_process_zero:
            return
        if self.evaluation is None:
            total = len(eval_dataloader) if hasattr(eval_dataloader, "__len__") else None
            self.evaluation = tqdm(
                total=total, desc="Evaluating", unit="batch", leave=False, disable=args.disable_tqdm
            )
        self.evaluation.update()

    def on_evaluate(self, args, state, control, metrics=None, **kwargs):
        self._end_evaluation()
        # After the training it is the command that shows them.
        if self.training is not None and metrics:
            values = {name: value for name, value in metrics.items() if not name.endswith(ADDED)}
            shown = ", ".join(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in values.items())
            logger.info(f"Step {state.global_step} of {state.max_steps}, epoch {state.epoch or 0:.3g}: {shown}")

    def on_predict(self, args, state, control, metrics=None, **kwargs):
        self._end_evaluation()

    def on_log(self, args, state, control, logs=None, **kwargs):
        if self.training is None or not logs:
            return
        if "loss" in logs:
            self.training.set_postfix(loss=f"{logs['loss']:.4g}", refresh=False)
        if "train_runtime" in logs:
            took = timedelta(seconds=round(logs["train_runtime"]))
            logger.info(f"Trained {state.global_step} steps in {took}, mean loss {logs.get('train_loss', 0):.4g}")

    def on_train_end(self, args, state, control, **kwargs):
        if self.training is not None:
            self.training.close()
            self.training = None

    def _end_evaluation(self) -> None:
        if self.evaluation is not None:
            self.evaluation.close()
            self.evaluation = None


def show_progress(trainer: Trainer) -> None:
    """Replaces what a Trainer shows in a terminal. The table of a notebook stays."""
    replaced = [trainer.pop_callback(kind) for kind in (ProgressCallback, PrinterCallback)]
    if any(callback is not None for callback in replaced):
        trainer.add_callback(TrainingProgress())
