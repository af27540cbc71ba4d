# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What a training of a command shows: one progress bar with the loss, and a line for each evaluation."""

from typing import Any

from transformers import ProgressCallback, Trainer
from transformers.utils import logging


logger = logging.get_logger(__name__)

# What the Trainer adds to the metrics of an evaluation.
ADDED = ("epoch", "_runtime", "_per_second", "_time")


class TrainingProgress(ProgressCallback):
    """Shows the loss beside the bar and the metrics in a line, not the dictionaries of the Trainer."""

    def on_log(self, args: Any, state: Any, control: Any, logs: Any = None, **kwargs: Any) -> None:
        if self.training_bar is not None and logs and "loss" in logs:
            self.training_bar.set_postfix(loss=f"{logs['loss']:.4g}", refresh=False)

    def on_evaluate(self, args: Any, state: Any, control: Any, metrics: Any = None, **kwargs: Any) -> None:
        super().on_evaluate(args, state, control, **kwargs)
        # After the training it is the command that shows them.
        if self.training_bar is not None and metrics:
            values = {name: value for name, value in metrics.items() if not name.endswith(ADDED)}
            shown = ", ".join(f"{name.removeprefix('eval_')} {value:.4f}" for name, value in values.items())
            logger.info(f"Step {state.global_step} of {state.max_steps}, epoch {state.epoch or 0:.3g}: {shown}")


def show_progress(trainer: Trainer) -> None:
    """Replaces the progress bar of a Trainer in a terminal. The table of a notebook stays."""
    if trainer.pop_callback(ProgressCallback) is not None:
        trainer.add_callback(TrainingProgress())
