# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the data, and known tasks. Modules named `options` import nothing heavy, so that help is fast."""

from dataclasses import dataclass, replace
from os import PathLike, fspath
from typing import Any

from hf_dse.common.options import HfArg, check_at_least


GLUE = "nyu-mll/glue"
EMBEDDED = "embedded"
# Options of sentence pairs alone, and of queries alone.
PAIR_OPTIONS = ("task_name", "num_labels", "symmetric", "label_column", "sentence1_column", "sentence2_column")
RANKING_OPTIONS = ("chunk_size", "relevance_threshold")
# Tokens of a passage of a file.
CHUNK_SIZE = 128


@dataclass(frozen=True)
class PairTask:
    """
    A sentence-pair task; a regression has one label. `metric_for_best_model` compares checkpoints. With `skip_empty`,
    pairs with an empty sentence are left out instead of being an error. `class_names` are those of labels without any.
    """

    name: str
    sentence1: str = "sentence1"
    sentence2: str = "sentence2"
    num_labels: int = 1
    symmetric: bool = False
    metric_for_best_model: str = "pearson"
    skip_empty: bool = False
    class_names: tuple[str, ...] = ()

    @property
    def problem_type(self) -> str:
        """`"regression"` or `"single_label_classification"`, as in `config.problem_type`."""
        return "regression" if self.num_labels == 1 else "single_label_classification"


# Named as in GLUE.
PAIR_TASKS: dict[str, PairTask] = {
    task.name: task
    for task in (
        PairTask("stsb", "sentence1", "sentence2", 1, True, "pearson"),
        PairTask("mrpc", "sentence1", "sentence2", 2, True, "f1", False, ("not_equivalent", "equivalent")),
        PairTask("qqp", "question1", "question2", 2, True, "f1", True, ("not_duplicate", "duplicate")),
        PairTask("qnli", "question", "sentence", 2, False, "accuracy", False, ("entailment", "not_entailment")),
        PairTask(
            "mnli", "premise", "hypothesis", 3, False, "accuracy", False, ("entailment", "neutral", "contradiction")
        ),
    )
}


@dataclass
class DataArguments:
    """Which data to read: sentence pairs, or queries with a corpus. Every field is a command-line option."""

    task_name: str | None = HfArg(
        default=None, help=f"A known pair task: {', '.join(PAIR_TASKS)}. Sets columns, labels and metric."
    )
    dataset_name: str | None = HfArg(
        default=None,
        help="A dataset of the Hub, a folder with `train.*`, `validation.*` and `test.*` (csv, tsv, jsonl, "
        "json, parquet), of `save_to_disk` or as those of BEIR, a file for the train split, or "
        f"`{EMBEDDED}`, the small set of the package. Default: `--task_name` of GLUE.",
    )
    dataset_config_name: str | None = HfArg(default=None, help="Configuration of the Hub dataset.")
    train_file: str | None = HfArg(default=None, help="Training pairs: a csv, tsv, jsonl, json or parquet file.")
    validation_file: str | None = HfArg(default=None, help="Validation pairs, in the same formats.")
    test_file: str | None = HfArg(default=None, help="Test pairs, in the same formats.")
    corpus_file: str | None = HfArg(
        default=None,
        help="The documents of queries and of candidates that are ids: a table with `doc_id` and `text`, a "
        "folder as those of BEIR, or one with a document per .txt or .md file.",
    )
    chunk_size: int | None = HfArg(
        default=None,
        help=f"Split documents into passages of at most so many tokens; 0: whole texts. Default: {CHUNK_SIZE} for "
        "a folder of .txt and .md files, 0 for other data.",
    )
    relevance_threshold: float | None = HfArg(
        default=None, help="The lowest grade of a relevant document. Default: all grades above 0, as in BEIR."
    )
    sentence1_column: str | None = HfArg(
        default=None, help="Column of the first sentence. Defaults to the task's, then `sentence1`."
    )
    sentence2_column: str | None = HfArg(
        default=None, help="Column of the second sentence. Defaults to the task's, then `sentence2`."
    )
    label_column: str = HfArg(default="label", help="Column of the gold label.")
    num_labels: int | None = HfArg(
        default=None, help="1 for a regression, 2 or more for classes. Default: of `--task_name`."
    )
    symmetric: bool | None = HfArg(
        default=None, help="Whether the order of the sentences does not matter. Default: the task's."
    )
    max_train_samples: int | None = HfArg(default=None, help="Keep the first training pairs, so many.")
    max_eval_samples: int | None = HfArg(default=None, help="The same for other splits.")

    def __post_init__(self) -> None:
        check_at_least(1, num_labels=self.num_labels)
        check_at_least(0, chunk_size=self.chunk_size)
        check_threshold(self.relevance_threshold)
        check_at_least(1, max_train_samples=self.max_train_samples, max_eval_samples=self.max_eval_samples)


def check_pair_options(data_args: DataArguments) -> None:
    """Raises a `ValueError` for an option of rankings."""
    _refuse(data_args, RANKING_OPTIONS, "is for the search in a corpus, and the data are sentence pairs.")


def check_ranking_options(data_args: DataArguments) -> None:
    """Raises a `ValueError` for an option of sentence pairs."""
    reason = (
        "is for sentence pairs, and the data are queries with candidates: leave it out. Their columns have fixed "
        "names, such as `query`, `documents` and `labels`, or `label` for one document."
    )
    _refuse(data_args, PAIR_OPTIONS, reason)


def _refuse(data_args: DataArguments, names: tuple[str, ...], reason: str) -> None:
    for name in names:
        if (value := getattr(data_args, name)) != getattr(DataArguments, name):
            raise ValueError(f"{name}={value} {reason}")


def check_threshold(threshold: float | None) -> None:
    """Raises a `ValueError` for a threshold at which documents of the grade 0 are relevant."""
    if threshold is not None and not threshold > 0:
        raise ValueError(f"relevance_threshold={threshold}: it has to be above 0, the grade of what is not relevant.")


def to_arguments(data: Any, **options: Any) -> DataArguments:
    """Returns arguments, or those of a data set's name, folder or file, with the options that are not `None`."""
    if isinstance(data, str | PathLike):
        data = DataArguments(dataset_name=fspath(data))
    elif not isinstance(data, DataArguments):
        raise TypeError(
            f"The data are of the type {type(data).__name__}: pass `DataArguments`, the name of a data set, a folder "
            "or a file, or one loaded split (`Rankings`, or a `Dataset` of sentence pairs, where they are taken)."
        )
    return replace(data, **{name: value for name, value in options.items() if value is not None})


@dataclass
class TextArguments:
    """Which texts to learn from."""

    train_file: str = HfArg(help="Texts without labels: .txt with one per line, csv, tsv, json, jsonl or parquet.")
    validation_file: str | None = HfArg(default=None, help="Texts to evaluate on, in the same formats.")
    text_column: str = HfArg(default="text", help="Column of the texts; several with commas: a,b.")
    max_train_samples: int | None = HfArg(default=None, help="Keep the first training texts, so many.")
    max_eval_samples: int | None = HfArg(default=None, help="The same for validation texts.")

    def __post_init__(self) -> None:
        check_at_least(1, max_train_samples=self.max_train_samples, max_eval_samples=self.max_eval_samples)
