# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf_dse.score`: scores of pairs or rankings, by a reranker or a bi-encoder."""

import math
from collections.abc import Sequence
from dataclasses import replace
from os import PathLike
from typing import TYPE_CHECKING, Any

import numpy as np
from datasets import ClassLabel, Dataset
from transformers.utils import logging

from hf_dse.common.loading import loading_options, named
from hf_dse.data.options import PairTask, check_pair_options
from hf_dse.data.pairs import resolve_task, to_pairs
from hf_dse.data.ranking_files import Data, is_ranking_data, options_of, to_rankings
from hf_dse.data.rankings import FEATURES, Rankings, ranking_rows
from hf_dse.data.report import are_numbers, check_line, check_order, class_names, class_order, known_scores
from hf_dse.data.tables import check_texts
from hf_dse.retrieval.blend import blend, weights_for
from hf_dse.retrieval.rerankers import check_labels, limit_of, load_reranker, rerank, score_texts
from hf_dse.retrieval.sentence_transformer import embed, to_sentence_transformer
from hf_dse.teacher.bi_encoders import is_bi_encoder, similarities
from hf_dse.teacher.options import WINDOWS


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

    from hf_dse.retrieval.rerankers import Teacher

logger = logging.get_logger(__name__)

# Labelled pairs that tell whether a teacher contradicts them.
CHECKED_PAIRS = 500


def score(
    teacher: "Teacher | Sequence[Teacher]",
    data: Data,
    *,
    split: str = "train",
    weights: Sequence[float] | None = None,
    bm25_weight: float = 0.0,
    windows: str = "first",
    task_name: str | None = None,
    symmetric: bool | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    cache_dir: str | PathLike | None = None,
    show_progress: bool = True,
    **loading: Any,
) -> Dataset | Rankings:
    """
    Adds a teacher's scores to sentence pairs, or to the candidates of queries, as the column `teacher_logits`, like
    `hf-dse score`: raw logits, without sigmoid or softmax, or cosines plus BM25. Each distinct pair is scored once.
    The scores of several teachers, such as a reranker and the search, are put on one scale, see [`blend`]; those of
    pairs are averaged.

    A reranker always reads a query whole. A document that does not fit next to it is cut into windows of as many
    tokens as fit; the last one ends with the document, so it overlaps the one before.

    Args:
        teacher (`CrossEncoder`, `SentenceTransformer`, `str` or a list of these):
            A reranker, or its folder or Hub id; or a bi-encoder, whose score is the cosine, after its prompts for
            queries and documents. Candidates need a reranker with one logit, or two (their difference is the score).
        data (`datasets.Dataset`, [`Rankings`], [`DataArguments`] or `str`):
            Pairs with the columns `sentence1` and `sentence2`, or queries with candidates; or their name, as
            [`load_pairs`] or [`load_rankings`] reads them.
        split (`str`, *optional*, defaults to `"train"`):
            The split of named data.
        weights (`Sequence[float]`, *optional*):
            The weight of each of several teachers. Defaults to equal weights.
        bm25_weight (`float`, *optional*, defaults to 0.0):
            For candidates and a bi-encoder: the weight of BM25 on the whole corpus, see `Index.search`. 0.3 is a good
            start.
        windows (`str`, *optional*, defaults to `"first"`):
            For candidates: how longer documents are scored, by their `"first"` window, or by the `"best"` score of all
            windows.
        task_name (`str`, *optional*):
            For pairs: a known task. Defaults to one of as many labels as the teacher has logits.
        symmetric (`bool`, *optional*):
            For pairs: whether a reranker scores both orders, and their mean counts. Defaults to that of the task.
        max_length (`int`, *optional*):
            Maximum number of tokens per pair, or of a text for a named bi-encoder. Defaults to the teacher's limit.
        batch_size (`int`, *optional*, defaults to 32):
            Maximum number of pairs, or of texts for a bi-encoder, per batch; fewer for pairs longer than 512 tokens.
        cache_dir (`str` or `Path`, *optional*):
            Folder of kept scores, or vectors of a bi-encoder, from which an interrupted run continues.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show a progress bar.
        loading (*optional*):
            `trust_remote_code`, `dtype`, `device` and `backend` of teachers that are loaded, see
            [`to_sentence_transformer`]. The `dtype` defaults to `"auto"`.

    Returns:
        `datasets.Dataset` or [`Rankings`]: the data with their scores.

    Example:

    ```python
    >>> from hf_dse import DataArguments, make_rankings, score

    >>> # A reranker: a folder or a Hub id.
    >>> pairs = DataArguments(dataset_name="embedded", max_train_samples=8)
    >>> score("teacher", pairs, symmetric=True, cache_dir="scores", show_progress=False)["teacher_logits"][0]
    [...]
    >>> corpus = {"text": ["Error 4711: no paper.", "Error 4712: no ink.", "Rain again."]}
    >>> rankings = make_rankings({"query": ["What is error 4712?"], "documents": [[0, 1]]}, corpus)
    >>> encoder = "sentence-transformers/all-MiniLM-L6-v2"
    >>> scored = score(encoder, rankings, bm25_weight=0.3, show_progress=False)
    >>> [round(value, 2) for value in scored.queries["teacher_logits"][0]]
    [0.77, 0.95]
    ```
    """
    teachers: Any = teacher if isinstance(teacher, list | tuple) else [teacher]
    loading = loading_options("score", loading, *teachers)
    data_args = options_of(data, task_name=task_name, symmetric=symmetric)
    is_ranking = isinstance(data, Rankings) or is_ranking_data(data_args)
    if not is_ranking:
        check_pair_options(data_args)
    if not is_ranking and (bm25_weight or windows != "first"):
        raise ValueError("`--bm25_weight` and `--windows` are options of rankings, and the data are sentence pairs.")
    options: dict[str, Any] = {"batch_size": batch_size, "cache_dir": cache_dir, "show_progress": show_progress}
    # Before hours of scoring.
    weights_for(weights, len(teachers))
    models: list[Any] = [load_teacher(one, max_length=max_length, **named(one, loading)) for one in teachers]
    if is_ranking:
        rankings = to_rankings(data, split, data_args.chunk_size)
        rankings.check_unit()
        how: dict[str, Any] = {"weights": weights, "windows": windows, "bm25_weight": bm25_weight}
        return score_candidates(models, rankings, **how, **options)
    if data_args.task_name is None and data_args.num_labels is None:
        data_args = replace(data_args, num_labels=getattr(models[0], "num_labels", 1))
    task = resolve_task(data_args)
    for model in models:
        check_labels(model, task)
    pairs = to_pairs(data, data_args, split, require_labels=False, keep_columns=True)
    scored = [score_pairs(model, pairs, task=task, **options) for model in models]
    if len(scored) == 1:
        return scored[0]
    logits = [part["teacher_logits"][:] for part in scored]
    return with_logits(scored[0], np.average(logits, axis=0, weights=weights).tolist())


def load_teacher(
    teacher: "Teacher", *, max_length: int | None = None, **loading: Any
) -> "CrossEncoder | SentenceTransformer":
    """A teacher, ready to score: a bi-encoder if it is one by its files, else a reranker."""
    load: Any = to_sentence_transformer if is_bi_encoder(teacher) else load_reranker
    return load(teacher, max_length=max_length, **loading)


def score_pairs(
    teacher: "CrossEncoder | SentenceTransformer",
    dataset: Dataset,
    *,
    task: PairTask,
    max_length: int | None = None,
    **options: Any,
) -> Dataset:
    """
    Sentence pairs with the raw logits of a loaded teacher in the order of their classes, see `hf_dse.score`. `options`
    are of [`score_texts`].
    """
    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    for name, texts in (("sentence1", first), ("sentence2", second)):
        check_texts(texts, "The pairs", name)
    check: Any = check_order if task.num_labels > 1 else check_line
    if is_bi_encoder(teacher):
        # The vectors of pairs are not kept.
        options.pop("cache_dir", None)
        vectors = [embed(teacher, texts, None, normalize=True, **options) for texts in (first, second)]
        logits = np.einsum("nd,nd->n", *vectors, dtype=np.float64)[:, None].tolist()
    else:
        orders = [list(zip(first, second, strict=True))]
        if task.symmetric:
            orders.append(list(zip(second, first, strict=True)))
        limit = limit_of(teacher, max_length)
        dataset, classes = match_classes(teacher, dataset, task)
        scores: dict[tuple[str, str], list[float]] = {}

        def read(rows: Sequence[int]) -> list[list[float]]:
            pairs = [order[row] for order in orders for row in rows if order[row] not in scores]
            scores.update(score_texts(teacher, pairs, max_length=limit, **options))
            found = np.mean([[scores[order[row]] for row in rows] for order in orders], axis=0)
            return found[:, classes].tolist()

        if "label" in dataset.column_names and len(dataset) > CHECKED_PAIRS:
            # Before hours of scoring.
            rows = np.random.default_rng(0).permutation(len(dataset))[:CHECKED_PAIRS].tolist()
            check(*known_scores(with_logits(dataset.select(rows), read(rows))))
        logits = read(range(len(dataset)))
    dataset = with_logits(dataset, logits)
    if (line := check(*known_scores(dataset))) is not None:
        logger.info(f"Labels and teacher's scores: {line}.")
    return dataset


def match_classes(teacher: "CrossEncoder", dataset: Dataset, task: PairTask) -> tuple[Dataset, list[int]]:
    """
    Pairs, whose classes have the teacher's names if they have none, and the teacher's logit of each class, by the
    names if both have the same.
    """
    config: Any = teacher.config
    own, names = [config.id2label[row] for row in range(teacher.num_labels)], class_names(dataset, task.class_names)
    order = class_order(own, names)
    if names is None and len(own) == task.num_labels > 1 and not are_numbers(own) and "label" in dataset.column_names:
        logger.warning(f"The classes of the data have no names: they are taken to be {', '.join(own)}, in this order.")
        dataset = dataset.cast_column("label", ClassLabel(names=own))
    return dataset, order or list(range(len(own)))


def score_candidates(
    teachers: "Sequence[CrossEncoder | SentenceTransformer]",
    rankings: Rankings,
    *,
    weights: Sequence[float] | None = None,
    max_length: int | None = None,
    windows: str = "first",
    bm25_weight: float = 0.0,
    **options: Any,
) -> Rankings:
    """Queries with loaded teachers' scores of their candidates. `options` are of [`score_texts`]."""
    if windows not in WINDOWS:
        raise ValueError(f"windows={windows!r}: it has to be {' or '.join(map(repr, WINDOWS))}.")
    if not any(rankings.queries["documents"][:]):
        raise ValueError("The queries have no candidates to score: mine them with `mine` or `hf-dse mine`.")
    options["windows"] = windows
    if bm25_weight and not any(map(is_bi_encoder, teachers)):
        raise ValueError(
            f"bm25_weight={bm25_weight} is an option of bi-encoders, and there is none among the teachers: add one, "
            "or leave it out."
        )
    parts = []
    for teacher in teachers:
        if is_bi_encoder(teacher):
            parts.append(similarities(teacher, rankings, bm25_weight=bm25_weight, **options))
        else:
            rows = ranking_rows(rankings)
            parts.append(rerank(teacher, rows["query"], rows["documents"], max_length=max_length, **options))
    scored = replace(rankings, queries=with_logits(rankings.queries, blend(parts, weights)))
    return judge_best_passages(scored)


def judge_best_passages(rankings: Rankings) -> Rankings:
    """Labels only the passage of a relevant document that the teacher ranks first, where there are scores."""
    if not rankings.has_passages or not rankings.has_scores:
        return rankings
    documents, lists = rankings.document_ids, []
    columns = (rankings.queries[name][:] for name in ("documents", "labels", "teacher_logits"))
    for rows, labels, scores in zip(*columns, strict=True):
        labels = list(labels)
        passages: dict[str, list[int]] = {}
        for place, row in enumerate(rows):
            # A passage that is judged irrelevant stays so.
            if labels[place] != 0:
                passages.setdefault(documents[row], []).append(place)
        for places in passages.values():
            label = max((labels[place] for place in places if labels[place] > 0), default=math.nan)
            best = max(places, key=lambda place: -math.inf if math.isnan(scores[place]) else scores[place])
            for place in places:
                labels[place] = label if place == best else math.nan
        lists.append(labels)
    queries = rankings.queries.remove_columns("labels").add_column("labels", lists, feature=FEATURES["labels"])
    return replace(rankings, queries=queries)


def with_logits(dataset: Dataset, logits: list[list[float]]) -> Dataset:
    """A dataset with the column `teacher_logits`, which replaces an earlier one."""
    if "teacher_logits" in dataset.column_names:
        dataset = dataset.remove_columns("teacher_logits")
    return dataset.add_column("teacher_logits", logits, feature=FEATURES["teacher_logits"])


def check_scores(rankings: Rankings, name: str, *, are_raw: bool) -> None:
    """Raises a `ValueError` if all scores are equal; warns of wrong signs, and of sigmoids if not raw."""
    scores = np.concatenate(rankings.queries["teacher_logits"][:])
    known = scores[~np.isnan(scores)]
    if not known.size or np.ptp(known) == 0:
        raise ValueError(f"{name}: all {known.size} scores are equal, so there is nothing to learn from them.")
    if not are_raw and known.min() >= 0 and known.max() <= 1:
        logger.warning(
            f"{name}: all scores lie between {known.min():.3g} and {known.max():.3g}, as after a sigmoid: distil raw "
            "logits, which `hf-dse score` writes. Cosines are fine."
        )
    shares = []
    for row in zip(rankings.queries["teacher_logits"][:], rankings.queries["labels"][:], strict=True):
        scores, labels = map(np.array, row)
        good = rankings.is_relevant(labels)
        relevant, rest = (scores[part & ~np.isnan(scores)] for part in (good, ~good))
        if relevant.size and rest.size:
            differences = relevant[:, None] - rest
            shares.append(np.mean((differences > 0) + 0.5 * (differences == 0)))
    if shares and np.mean(shares) < 0.5:
        logger.warning(
            f"{name}: over {len(shares)} queries, a relevant document scores higher than another candidate in only "
            f"{100 * np.mean(shares):.0f} % of the cases: is this a teacher for this task, and the sign right?"
        )
