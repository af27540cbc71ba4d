# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""What was read of a split, and whether labels and a teacher's scores contradict each other."""

import math
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from itertools import permutations
from typing import Any

import numpy as np
from datasets import ClassLabel, Dataset
from transformers.utils import logging

from hf_dse.data.tables import is_filled


logger = logging.get_logger(__name__)

# Labelled pairs that tell the scale of a teacher.
FEWEST_PAIRS = 4
# More orders of classes are not tried.
MOST_CLASSES = 7


@dataclass(frozen=True)
class Line:
    """The least-squares line from a teacher's scores to the labels of the same pairs."""

    slope: float
    intercept: float
    correlation: float
    fits: bool

    def __str__(self) -> str:
        return f"label = {self.slope:.3g} x score {self.intercept:+.3g}, correlation {self.correlation:.2f}"


@dataclass(frozen=True)
class Report:
    """
    What was read of a split. `str` is a few lines of it.

    Args:
        rows (`dict[str, int]`):
            Numbers of `pairs`, or of `queries`, `candidates` and `documents`.
        columns (`dict[str, str]`):
            The columns that are used, with their names in the source.
        ignored (`list[str]`):
            The columns that are not read.
        classes (`dict[str, int]`, *optional*):
            The classes in their order, with their numbers of pairs.
        grades (`dict[float, int]`, *optional*):
            The labels of candidates with their counts; NaN is unknown.
        relevant (`str`):
            The grades that count as relevant.
        labels, scores (`tuple[float, float]`, *optional*):
            The lowest and the highest label of a regression, and teacher's score.
        line (`Line`, *optional*):
            The line from the scores to the labels: `slope`, `intercept`, `correlation`, and whether the scales fit
            without it.
        unlabelled, copies, blank (`int`):
            Numbers of rows without a label, of texts or pairs that occur again, and of blank texts.
        unit (`str`):
            What a search ranks: `"whole texts"`, or passages.
        warnings (`list[str]`):
            What is unusual.
    """

    rows: dict[str, int]
    columns: dict[str, str] = field(default_factory=dict)
    ignored: list[str] = field(default_factory=list)
    classes: dict[str, int] | None = None
    grades: dict[float, int] | None = None
    relevant: str = ""
    labels: tuple[float, float] | None = None
    scores: tuple[float, float] | None = None
    line: Line | None = None
    unlabelled: int = 0
    copies: int = 0
    blank: int = 0
    unit: str = ""
    warnings: list[str] = field(default_factory=list)

    def __str__(self) -> str:
        lines = [", ".join(f"{number:,} {name}" for name, number in self.rows.items())]
        if self.columns:
            used = [name if name == source else f"{name} (`{source}`)" for name, source in self.columns.items()]
            lines[0] += f"; columns {', '.join(used)}" + (f"; ignored: {', '.join(self.ignored)}" * bool(self.ignored))
        known = []
        if self.classes is not None:
            known.append("classes " + ", ".join(f"{name}: {count:,}" for name, count in self.classes.items()))
        if self.grades is not None:
            counts = [(f"{grade:g}".replace("nan", "unknown"), count) for grade, count in self.grades.items()]
            known.append("grades " + ", ".join(f"{grade}: {count:,}" for grade, count in counts))
            known[-1] += f" (relevant: {self.relevant})" * bool(self.relevant)
        for name, span in (("labels", self.labels), ("teacher's scores", self.scores)):
            known += [] if span is None else [f"{name} {span[0]:.4g} to {span[1]:.4g}"]
        if self.line is not None:
            known.append(str(self.line))
        rest = [f"{number:,} {name}" for name in ("unlabelled", "copies", "blank") if (number := getattr(self, name))]
        rest += [f"ranked as {self.unit}"] if self.unit else []
        return "\n".join([*lines, *("; ".join(part) for part in (known, rest) if part)])

    def log(self, where: str) -> None:
        """Logs the report, and a warning for each of its `warnings`."""
        logger.info(f"{where}: {self}")
        for warning in self.warnings:
            logger.warning(f"{where}: {warning}")


def class_names(dataset: Any, default: Sequence[str] = ()) -> list[str] | None:
    """The names of the classes of labels, which have names of their own or the default; `None` for numbers."""
    feature = dataset.features.get("label") if isinstance(dataset, Dataset) else None
    own = feature.names if isinstance(feature, ClassLabel) else ()
    return next((list(names) for names in (own, default) if names and not are_numbers(names)), None)


def are_numbers(names: Sequence[str]) -> bool:
    """Whether the names of classes are only their numbers, as `LABEL_0`."""
    return [fold_name(name).removeprefix("label") for name in names] == list(map(str, range(len(names))))


def fold_name(name: Any) -> str:
    """The name of a class without case, spaces and punctuation."""
    return "".join(filter(str.isalnum, str(name).lower()))


def class_order(own: Sequence[str], names: Sequence[str] | None) -> list[int] | None:
    """
    The logit of each of the named classes in a model with its `own` names; `None` where these do not tell, with a
    warning. One logit is that of the second of two classes, and it is an error if it has the name of the first.
    """
    mine, wanted = list(map(fold_name, own)), list(map(fold_name, names or ()))
    if len(mine) == 1 and len(wanted) == 2 and mine[0] == wanted[0]:
        raise ValueError(
            f"The one logit of the model is that of class {own[0]!r}, and the classes of the data are "
            f"{', '.join(names or ())}: a high logit has to mean {(names or ())[1]!r}. Exchange the labels 0 and 1."
        )
    if len(set(mine)) < len(mine) or sorted(mine) != sorted(wanted):
        if len(mine) == len(wanted) > 1:
            logger.warning(
                f"The model's classes are {', '.join(own)}, and those of the data {', '.join(names or ())}: they are "
                "taken to be in the same order. If they are not, correct the `id2label` of its config.json."
            )
        return None
    return [mine.index(name) for name in wanted]


def known_scores(dataset: Dataset) -> tuple[np.ndarray, np.ndarray]:
    """The labels and the scores `(num_pairs, num_logits)` of the pairs that have both."""
    if not {"label", "teacher_logits"} <= set(dataset.column_names):
        return np.empty(0), np.empty((0, 1))
    both = zip(dataset["label"][:], dataset["teacher_logits"][:], strict=True)
    rows = [(label, scores) for label, scores in both if label is not None and scores is not None]
    labels = np.array([label for label, _ in rows], dtype=float)
    scores = np.array([scores for _, scores in rows], dtype=float).reshape(len(rows), -1)
    is_known = np.isfinite(labels) & np.isfinite(scores).all(axis=1)
    return labels[is_known], scores[is_known]


def find_line(labels: np.ndarray, scores: np.ndarray) -> Line | None:
    """The line between labels and single scores; `None` if there are too few, or all are equal."""
    scores = scores[:, 0]
    if len(labels) < FEWEST_PAIRS or not np.ptp(labels) or not np.ptp(scores):
        return None
    correlation = float(np.corrcoef(scores, labels)[0, 1])
    spread = labels.std() / scores.std()
    slope = correlation * spread
    # Where mean and spread are about those of the labels, errors of a teacher are not a scale.
    fits = bool(0.5 <= spread <= 2 and abs(scores.mean() - labels.mean()) <= labels.std() / 2)
    return Line(slope, float(labels.mean() - slope * scores.mean()), correlation, fits)


def check_line(labels: np.ndarray, scores: np.ndarray) -> Line | None:
    """
    The line between labels and single scores; `None` if there are too few, or all labels are equal. A `ValueError` if
    all scores are equal, or they fall where labels rise.
    """
    if len(labels) < FEWEST_PAIRS or not np.ptp(labels):
        return None
    line, found = find_line(labels, scores), _describe_ranges(labels, scores)
    if line is None:
        raise ValueError(
            f"All scores are equal, so there is nothing to learn from them: {found}. Learn from the labels alone "
            "(`--distillation_alpha 0`), or from another teacher."
        )
    # The second part is chance.
    if line.correlation < -0.3 - 2 / math.sqrt(len(labels)):
        raise ValueError(f"The teacher's scores fall where the labels rise ({line}): {found}. Is its sign right?")
    return line


def match_scale(labels: np.ndarray, scores: np.ndarray) -> Line | None:
    """The line of [`check_line`] if it has to put the scores on the scale of the labels, with a warning."""
    line = check_line(labels, scores)
    if line is None or line.fits:
        return None
    found = _describe_ranges(labels, scores)
    logger.warning(f"The scales differ, so the scores are put on that of the labels: {found}; {line}.")
    return line


def _describe_ranges(labels: np.ndarray, scores: np.ndarray) -> str:
    spans = (f"from {values.min():.4g} to {values.max():.4g}" for values in (labels, scores))
    return "labels {}, teacher's scores {}".format(*spans)


def check_order(labels: np.ndarray, scores: np.ndarray) -> None:
    """Raises a `ValueError` if the classes of a teacher agree far better with the labels in another order."""
    is_class = labels == np.floor(labels)
    labels, scores = labels[is_class].astype(int), scores[is_class]
    if scores.shape[1] == 1:
        scores = np.hstack([-scores, scores])
    number = scores.shape[1]
    if not len(labels) or number > MOST_CLASSES or labels.min() < 0 or labels.max() >= number:
        return
    counts = np.zeros((number, number))
    np.add.at(counts, (labels, (scores - scores.mean(axis=0)).argmax(axis=1)), 1)
    present = np.flatnonzero(counts.sum(axis=1))
    shares = counts[present] / counts[present].sum(axis=1, keepdims=True)

    def agreement(order: Sequence[int]) -> float:
        return float(shares[range(len(present)), np.array(order)[present]].mean())

    best = max(permutations(range(number)), key=agreement)
    now = agreement(range(number))
    # The second part is chance.
    if agreement(best) - now > 0.3 + math.sqrt(number / len(labels)):
        order = ", ".join(f"label {label} is logit {logit}" for label, logit in enumerate(best))
        raise ValueError(
            f"The teacher's classes seem to have another order than the labels: over {len(labels)} pairs they agree "
            f"in {100 * now:.0f} % of the cases, and in {100 * agreement(best):.0f} % if {order}. Give the labels the "
            "names (`ClassLabel`) of the teacher's `id2label`, or exchange them."
        )


def span_of(values: np.ndarray) -> tuple[float, float] | None:
    """The lowest and the highest value that is known."""
    known = values[np.isfinite(values)]
    return (float(known.min()), float(known.max())) if known.size else None


def report_pairs(pairs: Dataset, num_labels: int, columns: Mapping[str, str], ignored: Sequence[str]) -> Report:
    """What was read of checked pairs."""
    names = pairs.column_names
    labels = pairs["label"][:] if "label" in names else []
    known = [label for label in labels if label is not None]
    seen: dict[tuple[str, str], Any] = {}
    copies = contrary = 0
    for row, pair in enumerate(zip(pairs["sentence1"][:], pairs["sentence2"][:], strict=True)):
        label = labels[row] if labels else None
        if pair in seen:
            copies += 1
            contrary += label != seen[pair]
        seen.setdefault(pair, label)
    found: dict[str, Any] = {"unlabelled": len(labels) - len(known), "copies": copies}
    warnings = [f"{contrary:,} pairs occur again with another label."] if contrary else []
    if num_labels == 1:
        found["labels"] = span_of(np.array(known, dtype=float))
        found["line"] = find_line(*known_scores(pairs))
    elif known:
        called, counts = class_names(pairs) or list(map(str, range(num_labels))), Counter(known)
        found["classes"] = {name: counts[row] for row, name in enumerate(called)}
        if empty := [name for name, count in found["classes"].items() if not count]:
            warnings.append(f"no pair has the class {' or '.join(empty)}.")
    if "teacher_logits" in names:
        scores = np.array(pairs["teacher_logits"][:], dtype=float)
        found["scores"] = span_of(scores)
        if num_labels > 1 and scores.min() >= 0 and scores.max() <= 1:
            warnings.append(
                f"the scores are from {scores.min():.3g} to {scores.max():.3g}, as probabilities: distil raw logits."
            )
    return Report({"pairs": len(pairs)}, dict(columns), list(ignored), warnings=warnings, **found)


def report_corpus(texts: Sequence[str], chunk_size: int | None) -> Report:
    """What was read of documents without queries."""
    unit = f"passages of at most {chunk_size} tokens" if chunk_size else "whole texts"
    blank = sum(not is_filled(text) for text in texts)
    return Report({"documents": len(texts)}, copies=len(texts) - len(set(texts)), blank=blank, unit=unit)


def report_rankings(
    queries: Dataset, texts: Sequence[str], chunk_size: int | None, grades: Mapping[float, int], relevant: str
) -> Report:
    """What was read of queries with candidates, of which `grades` counts those with a known label."""
    corpus = report_corpus(texts, chunk_size)
    num_candidates = sum(map(len, queries["documents"][:]))
    unknown = num_candidates - sum(grades.values())
    grades = {**grades, **({math.nan: unknown} if unknown else {})}
    scores = None
    if "teacher_logits" in queries.column_names:
        scores = span_of(np.array([score for row in queries["teacher_logits"][:] for score in row], dtype=float))
    rows = {"queries": len(queries), "candidates": num_candidates, **corpus.rows}
    unit: dict[str, Any] = {"copies": corpus.copies, "blank": corpus.blank, "unit": corpus.unit}
    return Report(rows, grades=grades or None, relevant=relevant, scores=scores, **unit)
