# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model on sentence pairs, or by the search in a corpus."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from os import PathLike, fspath
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from datasets import Dataset
from torch import nn
from transformers import EvalPrediction, PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.loading import choose_device, choose_dtype, load_config, load_tokenizer, loading_options, named
from hf_dse.convert.student import has_head, load_dse_model
from hf_dse.data.options import PAIR_TASKS, PairTask
from hf_dse.data.pairs import resolve_task, to_pairs
from hf_dse.data.ranking_files import Data, is_ranking_data, options_of, to_rankings
from hf_dse.data.rankings import Rankings
from hf_dse.data.report import class_names, class_order
from hf_dse.measure.metrics import (
    UndefinedMetricError,
    correlations,
    is_constant,
    level_of,
    measure_run,
    relevance,
    score_logits,
)
from hf_dse.retrieval.index import Index
from hf_dse.retrieval.sentence_transformer import embed, to_sentence_transformer


if TYPE_CHECKING:
    from sentence_transformers import SentenceTransformer

logger = logging.get_logger(__name__)

# Batch size of the student's head, in pairs of embeddings.
PAIRS_PER_BATCH = 4096


def evaluate(
    model: "SentenceTransformer | PreTrainedModel | str | PathLike",
    data: Data,
    processing_class: PreTrainedTokenizerBase | None = None,
    *,
    split: str | None = None,
    task_name: str | None = None,
    num_labels: int | None = None,
    symmetric: bool | None = None,
    chunk_size: int | None = None,
    max_length: int | None = None,
    batch_size: int = 32,
    show_progress: bool = True,
    **loading: Any,
) -> dict[str, float]:
    """
    Evaluates a model on labelled sentence pairs, or by the search in a corpus with the measures of MTEB and BEIR, like
    `hf-dse evaluate`.

    In a search, a document that has the id of a query and contains its text is the query itself, and is left out. The
    `InformationRetrievalEvaluator` of sentence-transformers takes all relevant documents as equally relevant.

    Args:
        model (`SentenceTransformer`, `PreTrainedModel` or `str`):
            A folder or a Hub id; a `SentenceTransformer`, whose head for pairs is not read; a student
            ([`DseForSequenceClassification`]); or any encoder without a head.
        data (`datasets.Dataset`, [`Rankings`], [`DataArguments`] or `str`):
            Pairs with the columns `sentence1`, `sentence2` and `label`, or judged queries with their corpus; or their
            name, as [`load_pairs`] or [`load_rankings`] reads them.
        processing_class (`PreTrainedTokenizerBase`, *optional*):
            The tokenizer of a `PreTrainedModel`.
        split (`str`, *optional*):
            The split of named data. Defaults to validation of pairs, and of a corpus to test, or else validation.
        task_name (`str`, *optional*):
            The task of pairs, if it is a known one.
        num_labels (`int`, *optional*):
            The labels of another task: 1 for a regression, 2 or more for classes.
        symmetric (`bool`, *optional*):
            Whether the order of the sentences of a pair does not matter. Defaults to that of the task.
        chunk_size (`int`, *optional*):
            For a search: split documents into passages of at most so many tokens, of which the best counts; 0: whole
            texts, of which the first tokens are read. Defaults to 128 for a folder of files and to 0 for other data.
        max_length (`int`, *optional*):
            Maximum number of tokens per text. Defaults to what the model or its tokenizer says.
        batch_size (`int`, *optional*, defaults to 32):
            Texts per batch.
        show_progress (`bool`, *optional*, defaults to `True`):
            Whether to show progress bars.
        loading (*optional*):
            `trust_remote_code`, `dtype`, `device` and `backend` of a model that is loaded, see
            [`to_sentence_transformer`]. The `dtype` defaults to `"auto"`.

    Returns:
        `dict[str, float]`: fractions of 1. For pairs the metrics of the logits, if the model has a head: `pearson` and
        `spearman`, or `accuracy` and `f1`. Also metrics of the cosine of the two embeddings: `cosine_pearson` and
        `cosine_spearman`, or, for symmetric tasks with two classes (1 means similar), the average precision
        `cosine_ap`, which needs no threshold. For a search `num_queries`, those that have a relevant document, and the
        means over them: `ndcg@10`, `mrr@10`, `map`, `recall@1`, `recall@10` and `recall@100`.

    Example:

    ```python
    >>> from hf_dse import evaluate, make_rankings

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> corpus = {"text": ["Planes fly by lift.", "Cats purr."]}
    >>> rankings = make_rankings({"query": ["How do planes fly?"], "documents": [[0]], "labels": [[1]]}, corpus)
    >>> evaluate(name, rankings, show_progress=False)["ndcg@10"]
    1.0
    >>> sorted(evaluate(name, "embedded", show_progress=False))
    ['cosine_pearson', 'cosine_spearman']
    ```
    """
    loading = loading_options("evaluate", loading, model)
    own = {"task_name": task_name, "num_labels": num_labels, "symmetric": symmetric, "chunk_size": chunk_size}
    data_args = options_of(data, **own)
    options: dict[str, Any] = {"batch_size": batch_size, "show_progress": show_progress}
    if isinstance(data, Rankings) or is_ranking_data(data_args):
        rankings = to_rankings(data, split, chunk_size)
        encoder = to_sentence_transformer(model, processing_class, max_length=max_length, **named(model, loading))
        judged = relevance(rankings)
        run = Index.of(encoder, rankings, **options).run(rankings)
        return {"num_queries": len(judged), **measure_run(run, judged, level=level_of(rankings))}
    task = resolve_task(data_args)
    pairs = to_pairs(data, data_args, split or "validation")
    loaded: Any = model
    if isinstance(model, str | PathLike):
        loaded, processing_class = load_for_pairs(model, max_length=max_length, **loading)
    return evaluate_pairs(loaded, processing_class, pairs, task, max_length=max_length, **options)


def load_for_pairs(
    name_or_path: str | PathLike, *, dtype: str | torch.dtype = "auto", **loading: Any
) -> tuple[Any, PreTrainedTokenizerBase | None]:
    """A DSE model with its head for pairs and its tokenizer, or another model as a `SentenceTransformer`."""
    name = fspath(name_or_path)
    if load_config(name, trust_remote_code=loading.get("trust_remote_code", False)).model_type != "dse":
        return to_sentence_transformer(name, dtype=dtype, **loading), None
    if loading.get("backend", "torch") != "torch":
        raise ValueError(f"backend={loading['backend']!r}: the head for pairs of {name} is computed by torch.")
    device = choose_device(loading.get("device"))
    model: Any = load_dse_model(name, dtype=choose_dtype(dtype, device))
    return model.to(device), load_tokenizer(name)


def evaluate_pairs(
    model: "PreTrainedModel | SentenceTransformer",
    processing_class: PreTrainedTokenizerBase | None,
    dataset: Dataset,
    task: PairTask | str,
    *,
    batch_size: int = 32,
    max_length: int | None = None,
    show_progress: bool = True,
) -> dict[str, float]:
    """The metrics of sentence pairs, see [`evaluate`]. A `SentenceTransformer` needs no `processing_class`."""
    if isinstance(task, str):
        task = PAIR_TASKS[task]
    labels = np.asarray(dataset["label"])
    first, second = dataset["sentence1"][:], dataset["sentence2"][:]
    cosine_fits = task.num_labels == 1 or (task.num_labels == 2 and task.symmetric)
    if not (has_head(model) or cosine_fits):
        raise ValueError(
            f"Cosine similarity cannot score task {task.name!r}: pass a model with a classification head "
            "(`DseForSequenceClassification`), or `symmetric=True` if class 1 means similar."
        )
    # Each distinct sentence is embedded once.
    row_of = {text: row for row, text in enumerate(dict.fromkeys([*first, *second]))}
    encoder = to_sentence_transformer(model, processing_class, max_length=max_length)
    vectors = embed(encoder, list(row_of), None, batch_size=batch_size, show_progress=show_progress)
    sides = [vectors[[row_of[text] for text in side]] for side in (first, second)]

    metrics: dict[str, float] = {}
    if has_head(model):
        config: Any = model.config
        own = list(config.id2label.values())
        order = class_order(own, class_names(dataset, task.class_names)) or range(len(own))
        prediction = EvalPrediction(_compare(model, *sides)[:, list(order)], labels)
        metrics |= score_logits(prediction, task.problem_type, task.num_labels)
    if not cosine_fits:
        return metrics
    try:
        metrics |= _cosine_metrics(sides, labels, task)
    except UndefinedMetricError as error:
        if not metrics:
            raise
        logger.warning(f"There are no metrics of the cosine: {error}")
    return metrics


def _cosine_metrics(sides: Sequence[np.ndarray], labels: np.ndarray, task: PairTask) -> dict[str, float]:
    """The metrics of the cosine of the two embeddings."""
    u, v = map(torch.from_numpy, sides)
    cosines = torch.nn.functional.cosine_similarity(u, v, dim=1).numpy()
    if task.num_labels == 1:
        return {f"cosine_{name}": score for name, score in correlations(cosines, labels).items()}
    if is_constant(cosines) or not (labels == 1).any():
        raise UndefinedMetricError(
            "The average precision is undefined: all cosines are the same, or no pair has the label 1."
        )
    from sklearn.metrics import average_precision_score

    return {"cosine_ap": float(average_precision_score(labels == 1, cosines))}


def _compare(model: Any, first: np.ndarray, second: np.ndarray) -> np.ndarray:
    """The logits `(num_pairs, num_labels)` of the head for embeddings `(num_pairs, embedding_size)`."""
    head = next(model.similarity.parameters())
    batches = zip(*(torch.from_numpy(side).split(PAIRS_PER_BATCH) for side in (first, second)), strict=True)
    with evaluating(model), torch.inference_mode():
        logits = [model.similarity(*(part.to(head) for part in pair)).float().cpu() for pair in batches]
    return torch.cat(logits).numpy()


@contextmanager
def evaluating(model: nn.Module) -> Iterator[None]:
    """Puts a model in evaluation mode, and restores the mode of every module at the end."""
    training = [module for module in model.modules() if module.training]
    model.eval()
    try:
        yield
    finally:
        for module in training:
            module.training = True
