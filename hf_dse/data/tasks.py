# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence-pair tasks."""

from dataclasses import dataclass


GLUE = "nyu-mll/glue"

EMBEDDED = "embedded"


@dataclass(frozen=True)
class PairTask:
    """
    A sentence-pair task: its two columns, 1 label for a regression or the number of classes, whether the order of the
    sentences does not matter, the metric that compares checkpoints, and its configuration in GLUE.
    """

    name: str
    sentence1: str = "sentence1"
    sentence2: str = "sentence2"
    num_labels: int = 1
    symmetric: bool = False
    metric_for_best_model: str = "pearson"
    glue_name: str | None = None

    @property
    def problem_type(self) -> str:
        """`"regression"` or `"single_label_classification"`, as in `config.problem_type`."""
        return "regression" if self.num_labels == 1 else "single_label_classification"


PAIR_TASKS: dict[str, PairTask] = {
    task.name: task
    for task in (
        PairTask("stsb", "sentence1", "sentence2", 1, True, "pearson", "stsb"),
        PairTask("mrpc", "sentence1", "sentence2", 2, True, "f1", "mrpc"),
        PairTask("qqp", "question1", "question2", 2, True, "f1", "qqp"),
        PairTask("qnli", "question", "sentence", 2, False, "accuracy", "qnli"),
        PairTask("mnli", "premise", "hypothesis", 3, False, "accuracy", "mnli"),
    )
}
