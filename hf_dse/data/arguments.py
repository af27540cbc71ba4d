# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Options of the data. Like all modules named `arguments` it imports nothing heavy, so that help is fast."""

from dataclasses import dataclass, field
from os import PathLike, fspath

from hf_dse.common.options import check_positive
from hf_dse.data.tasks import EMBEDDED, PAIR_TASKS


@dataclass
class DataArguments:
    """Which data to read: sentence pairs, or queries with a corpus. Every field is a command-line option."""

    task_name: str | None = field(
        default=None,
        metadata={"help": f"A known pair task: {', '.join(PAIR_TASKS)}. Sets columns, labels and metric."},
    )
    dataset_name: str | None = field(
        default=None,
        metadata={
            "help": "A dataset of the Hub, a local folder with `train.*`, `validation.*`, `test.*` (csv, tsv, jsonl, "
            "json, parquet), one such file for the train split, a folder of `save_to_disk`, one as those of BEIR "
            f"(`corpus.jsonl`, `queries.jsonl`, `qrels/`), or `{EMBEDDED}`, the small set shipped with the package. "
            "Default: `--task_name` of GLUE."
        },
    )
    dataset_config_name: str | None = field(default=None, metadata={"help": "Configuration of the Hub dataset."})
    train_file: str | None = field(
        default=None, metadata={"help": "Training pairs: a csv, tsv, jsonl, json or parquet file."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Validation pairs, in the same formats."})
    test_file: str | None = field(default=None, metadata={"help": "Test pairs, in the same formats."})
    corpus_file: str | None = field(
        default=None,
        metadata={
            "help": "The documents that queries search, or that candidates name by ids: a table with `doc_id` and "
            "`text`, a folder with `corpus.jsonl` and `queries.jsonl`, as those of BEIR, or one with a document per "
            ".txt or .md file."
        },
    )
    sentence1_column: str | None = field(
        default=None, metadata={"help": "Column of the first sentence. Defaults to the task's, then `sentence1`."}
    )
    sentence2_column: str | None = field(
        default=None, metadata={"help": "Column of the second sentence. Defaults to the task's, then `sentence2`."}
    )
    label_column: str = field(default="label", metadata={"help": "Column of the gold label."})
    num_labels: int | None = field(
        default=None,
        metadata={"help": "1 for a regression, 2 or more for classes, if there is no `--task_name`."},
    )
    symmetric: bool | None = field(
        default=None,
        metadata={"help": "Whether the order of the two sentences does not matter. Defaults to the task's value."},
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "Keep only so many training pairs, the first."}
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "The same for other splits."})
    drop_empty_sentences: bool = field(
        default=False,
        metadata={"help": "Drop pairs with an empty sentence instead of raising an error (QQP has some)."},
    )

    def __post_init__(self) -> None:
        if self.num_labels is not None and self.num_labels < 1:
            raise ValueError(f"num_labels={self.num_labels}: it must be 1 (regression) or the number of classes.")
        check_positive(self, "max_train_samples", "max_eval_samples")


def to_arguments(data: DataArguments | str | PathLike) -> DataArguments:
    """Returns the arguments themselves, or those of a data set's name, folder or file."""
    return data if isinstance(data, DataArguments) else DataArguments(dataset_name=fspath(data))


@dataclass
class TextArguments:
    """Which texts to learn from."""

    train_file: str = field(
        metadata={"help": "Texts without labels: .txt with one per line, or a csv, tsv, json, jsonl or parquet file."}
    )
    validation_file: str | None = field(default=None, metadata={"help": "Texts to evaluate on, in the same formats."})
    text_column: str = field(
        default="text", metadata={"help": "Column of the texts in a table; several with commas: a,b."}
    )
    max_train_samples: int | None = field(
        default=None, metadata={"help": "Keep only so many training texts, the first."}
    )
    max_eval_samples: int | None = field(default=None, metadata={"help": "The same for validation texts."})

    def __post_init__(self) -> None:
        check_positive(self, "max_train_samples", "max_eval_samples")
