# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.report`: what `distill` and `score` would read."""

from collections.abc import Mapping
from dataclasses import replace
from os import PathLike
from typing import Any

from datasets import ClassLabel, Dataset

from hf_dse.data.options import EMBEDDED, DataArguments, to_arguments
from hf_dse.data.pairs import find_pairs, read_pairs
from hf_dse.data.ranking_files import is_ranking_data, load_rankings, to_corpus
from hf_dse.data.rankings import Rankings, is_ranking, read_rankings
from hf_dse.data.report import Report, report_corpus
from hf_dse.data.sources import SPLITS
from hf_dse.data.tables import column_names


class Reports(dict[str, Report]):
    """A [`Report`] of each split. `str` has all of them."""

    def __str__(self) -> str:
        return "\n".join(f"{split}: {report}" for split, report in self.items())


def report(
    data: Dataset | Rankings | DataArguments | Mapping[str, Dataset | Rankings] | str | PathLike, **options: Any
) -> Reports:
    """
    Tells what is read of data, before anything costly: rows, columns, classes or the range of labels, the line from a
    teacher's scores to them, grades, copies and blank texts. The commands log the same.

    Args:
        data (`datasets.Dataset`, [`Rankings`], [`DataArguments`], `str` or a `Mapping` of loaded splits):
            What [`distill`] and [`score`] take; a single data set is the train split.
        options (*optional*):
            Fields of [`DataArguments`], such as `task_name`, `num_labels` or `corpus_file`. Without the first two,
            pairs have as many labels as their `ClassLabel` has names, or scores.

    Returns:
        `dict[str, Report]`: a report for each split, with its numbers as attributes, such as `classes` and `line`.
        `str` is a few lines.

    Example:

    ```python
    >>> from hf_dse import report

    >>> print(report("embedded")["test"])
    199 pairs; columns sentence1, sentence2, label, teacher_logits; ignored: topic, register
    labels 0 to 5; teacher's scores 0.0352 to 4.889; label = 0.945 x score +0.402, correlation 0.80
    ```
    """
    parts: Any = data if isinstance(data, Mapping) else {"train": data}
    args = DataArguments()
    if isinstance(data, str | PathLike | DataArguments):
        args = to_arguments(data, **options)
        if not any((args.dataset_name, args.task_name, *(getattr(args, f"{split}_file") for split in SPLITS))):
            corpus, size = to_corpus(args)
            return Reports(corpus=report_corpus(corpus["text"][:], size))
        parts = load_rankings(args) if is_ranking_data(args) else find_pairs(args)
    elif options:
        args = replace(args, **options)
    first: Any = next(iter(parts.values()))
    if isinstance(first, Rankings) or is_ranking(column_names(first)):
        made = {name: part if isinstance(part, Rankings) else read_rankings(part) for name, part in parts.items()}
        return Reports({name: rankings.report() for name, rankings in made.items()})
    if args.task_name is None and args.num_labels is None and args.dataset_name != EMBEDDED:
        feature = first.features.get(args.label_column) if isinstance(first, Dataset) else None
        args = replace(args, num_labels=len(feature.names) if isinstance(feature, ClassLabel) else 1)
    return Reports(read_pairs(parts, args, require_labels=False)[1])
