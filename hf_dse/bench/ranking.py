# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The cost of ranking: one query against N candidates, by a cross-encoder and by a student."""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.bench.arguments import RankArguments
from hf_dse.bench.timing import interleave
from hf_dse.common.display import markdown
from hf_dse.data.pairs import DataArguments, load_pairs
from hf_dse.data.tables import read_texts
from hf_dse.data.tasks import EMBEDDED
from hf_dse.data.tokenization import check_max_length, length_batches, pad
from hf_dse.inference.encoding import encode, evaluating
from hf_dse.inference.search import rank
from hf_dse.modeling import DseForSequenceClassification
from hf_dse.student.convert import make_pair_model


CROSS_ENCODER = "cross-encoder"
# Neighbours of a node in faiss's graph index, the value of its examples.
HNSW_LINKS = 32


def read_candidates(args: RankArguments) -> list[str]:
    """
    Reads the texts that are queries and candidates.

    Args:
        args (`RankArguments`):
            Where they are.

    Returns:
        `list[str]`: distinct texts that are not blank.

    Raises:
        `ValueError`: if there are none, or the file does not fit.
        `FileNotFoundError`: if there is no such file.
    """
    return read_sentences(args.texts, args.text_column)


def read_sentences(path: str | None, text_column: str) -> list[str]:
    """The distinct texts of a file that are not blank, or the sentences of the embedded pairs."""
    if path is None:
        pairs = load_pairs(DataArguments(dataset_name=EMBEDDED))
        texts = [text for part in pairs.values() for name in ("sentence1", "sentence2") for text in part[name][:]]
    else:
        texts = read_texts(path, text_column)[text_column]
    texts = [text for text in dict.fromkeys(texts) if text.strip()]
    if not texts:
        raise ValueError(f"{path} holds no texts.")
    return texts


def measure_ranking(
    student: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    cross_encoder: PreTrainedModel,
    cross_processing_class: PreTrainedTokenizerBase,
    texts: Sequence[str],
    args: RankArguments,
    *,
    batch_size: int = 32,
) -> list[dict[str, Any]]:
    """
    Times one query against N candidates, for several ways of ranking, in turn.

    The cross-encoder scores N pairs. The student embeds the candidates once, before any query (`offline`), and then
    the query, whose embedding is compared with theirs: by [`rank`] with the cosine, by an index of faiss, or by the
    head of DSE ([Barkan et al., 2020](https://huggingface.co/papers/1908.05161), section 3), which runs once
    for each candidate. Or the cross-encoder scores the nearest `pool` candidates of an exact search again. Texts are
    real, the vectors of the candidates are random, so that they can be many: the time of exact search does not depend
    on them. That of HNSW does, slightly; measure its recall on your own data.

    Args:
        student (`PreTrainedModel`):
            A DSE model, with or without its head. An mlp head that it lacks is made with random weights.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        cross_encoder (`PreTrainedModel`):
            A model for sequence classification.
        cross_processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        texts (`Sequence[str]`):
            Queries and candidates.
        args (`RankArguments`):
            How many, and how.
        batch_size (`int`, *optional*, defaults to 32):
            Largest number of texts or pairs in a batch.

    Returns:
        `list[dict]`: for each way and number of candidates the `offline_seconds`, the time of a query in `online_ms`
        (median, with `online_ms_min` and `online_ms_max`), whether they are extrapolated (`offline_extrapolated`,
        `online_extrapolated`), and `speedup`, the median ratio of the cross-encoder's time to this one.

    Raises:
        `ValueError`: if the student is not a DSE model.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from hf_dse import convert_encoder
    >>> from hf_dse.bench.ranking import RankArguments, measure_ranking, rank_table, read_candidates
    >>> from hf_dse import load_teacher

    >>> source = "sentence-transformers/all-MiniLM-L6-v2"
    >>> student, tokenizer = convert_encoder(source), AutoTokenizer.from_pretrained(source)
    >>> args = RankArguments(cross_encoder="teacher", candidates=[100, 10_000], max_pairs=8, rounds=1)
    >>> rows = measure_ranking(student, tokenizer, *load_teacher("teacher"), read_candidates(args), args)
    >>> print(rank_table(rows))
    | candidates | ranked by | ...
    ```
    """
    if student.config.model_type != "dse":
        raise ValueError(
            f"The student is of the type {student.config.model_type!r}: name a DSE model, such as `hf-dse convert` or "
            "`hf-dse distill` writes."
        )
    encoder: Any = student.base_model
    has_mlp = student is not encoder and student.config.similarity == "mlp"
    mlp: Any = student if has_mlp else make_pair_model(encoder, similarity="mlp", num_labels=1).to(encoder.device)
    embed = partial(encode, encoder, processing_class, batch_size=batch_size, show_progress=False)
    sample = list(texts[: args.max_pairs])
    embed(sample[:batch_size])
    start = time.perf_counter()
    embed(sample)
    seconds_per_text = (time.perf_counter() - start) / len(sample)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((max(args.candidates), encoder.config.projection_dim), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)

    rows = []
    for number in sorted(set(args.candidates)):
        corpus, measured = vectors[:number], min(number, len(sample))
        indexes, index_seconds = build_indexes(corpus, args.hnsw_from)
        part = sample[:measured]
        score = partial(score_query, cross_encoder, cross_processing_class, texts=part, batch_size=batch_size)
        tasks = {CROSS_ENCODER: _for_each_query(texts, score)}
        for name, search in make_searches(encoder, mlp, corpus, indexes, args).items():
            tasks[name] = _for_each_query(texts, partial(_embed_and_search, embed, search))
        pool = min(args.pool, number)
        # Which texts are the nearest is not known of random vectors: any cost the same.
        nearest = list(itertools.islice(itertools.cycle(texts), pool))
        find = partial(rank, corpus_embeddings=corpus, top_k=pool, device=encoder.device, show_progress=False)
        score = partial(score_query, cross_encoder, cross_processing_class, texts=nearest, batch_size=batch_size)
        tasks[f"exact search, {CROSS_ENCODER} on {args.pool}"] = _for_each_query(
            texts, partial(_search_and_score, embed, find, score)
        )
        for task in tasks.values():
            task()
        seconds = interleave(tasks, args.rounds, device=encoder.device)
        embedding_seconds = seconds_per_text * number
        rows += summarize_ranking(seconds, number, measured, embedding_seconds, index_seconds, len(sample))
    return rows


def make_searches(
    encoder: PreTrainedModel,
    mlp: DseForSequenceClassification,
    corpus: np.ndarray,
    indexes: Mapping[str, Any],
    args: RankArguments,
) -> dict[str, Callable[[np.ndarray], object]]:
    """
    Lists the ways in which a student ranks candidates.

    Args:
        encoder (`PreTrainedModel`):
            The student, on the device of the search.
        mlp ([`DseForSequenceClassification`]):
            A model with the head of DSE.
        corpus (`np.ndarray` of shape `(num_texts, embedding_size)`):
            Vectors of the candidates.
        indexes (`Mapping[str, Any]`):
            The same in indexes of faiss.
        args (`RankArguments`):
            How many are returned, and how many the head ranks.

    Returns:
        `dict[str, Callable]`: by name, functions of a query's embedding of shape `(1, embedding_size)`.
    """
    find = partial(rank, corpus_embeddings=corpus, top_k=args.top_k, device=encoder.device, show_progress=False)
    find_by_head = partial(find, head=mlp, label=0 if mlp.config.num_labels > 1 else None)
    top_k = min(args.top_k, len(corpus))
    return {
        "student, exact search": find,
        **{name: partial(index.search, k=top_k) for name, index in indexes.items()},
        "student, mlp head on all": lambda query: find_by_head(query, pool=None),
        f"student, mlp head on {args.pool}": lambda query: find_by_head(query, pool=args.pool),
    }


def score_query(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    query: str,
    texts: Sequence[str],
    batch_size: int = 32,
) -> torch.Tensor:
    """
    Scores a query and each of some texts with a cross-encoder, in batches of similar length.

    Args:
        model (`PreTrainedModel`):
            A model for sequence classification.
        processing_class (`PreTrainedTokenizerBase`):
            Its tokenizer.
        query (`str`):
            The first sentence of all pairs.
        texts (`Sequence[str]`):
            The second sentences.
        batch_size (`int`, *optional*, defaults to 32):
            Largest number of pairs in a batch.

    Returns:
        `torch.Tensor` of shape `(num_texts, num_labels)`: the logits, in the order of the texts.
    """
    limit = check_max_length(None, model, processing_class)
    truncation: dict[str, Any] = {"truncation": limit is not None, "max_length": limit}
    encoded = processing_class([query] * len(texts), list(texts), **truncation, verbose=False)
    features = [dict(zip(encoded, values, strict=True)) for values in zip(*encoded.values(), strict=True)]
    logits = torch.empty(len(texts), model.config.num_labels or 1)
    with evaluating(model), torch.inference_mode():
        for positions in length_batches([len(feature["input_ids"]) for feature in features], batch_size):
            batch = pad(processing_class, [features[position] for position in positions], model.device)
            logits[positions] = model(**batch).logits.float().cpu()
    return logits


def build_indexes(corpus: np.ndarray, hnsw_from: int) -> tuple[dict[str, Any], dict[str, float]]:
    """
    Builds the indexes of faiss, if it is installed, with as many threads as torch has.

    Args:
        corpus (`np.ndarray` of shape `(num_texts, embedding_size)`):
            Vectors of length 1.
        hnsw_from (`int`):
            Number of vectors from which there is a graph index too.

    Returns:
        `tuple[dict, dict]`: the indexes by name, and the seconds that each took to build.
    """
    if find_spec("faiss") is None:
        return {}, {}
    import faiss

    faiss.omp_set_num_threads(torch.get_num_threads())
    indexes: dict[str, Any] = {"student, faiss flat": faiss.IndexFlatIP(corpus.shape[1])}
    if len(corpus) >= hnsw_from:
        metric = faiss.METRIC_INNER_PRODUCT
        indexes["student, faiss HNSW"] = faiss.IndexHNSWFlat(corpus.shape[1], HNSW_LINKS, metric)
    seconds = {}
    for name, index in indexes.items():
        start = time.perf_counter()
        index.add(corpus)
        seconds[name] = time.perf_counter() - start
    return indexes, seconds


def summarize_ranking(
    seconds: Mapping[str, Sequence[float]],
    number: int,
    measured: int,
    embedding_seconds: float,
    index_seconds: Mapping[str, float],
    embedded: int,
) -> list[dict[str, Any]]:
    """
    Turns timings into rows.

    Args:
        seconds (`Mapping[str, Sequence[float]]`):
            Seconds of a query in each round, by way of ranking.
        number (`int`):
            Candidates.
        measured (`int`):
            Pairs that the cross-encoder scored; it needs the same time for every other one.
        embedding_seconds (`float`):
            Time of embedding the candidates.
        index_seconds (`Mapping[str, float]`):
            Time of building an index, by way of ranking.
        embedded (`int`):
            Texts whose embedding was timed.

    Returns:
        `list[dict]`: what [`measure_ranking`] returns, for one number of candidates.
    """
    factors = {name: number / measured if name == CROSS_ENCODER else 1.0 for name in seconds}
    rows = []
    for name, timings in seconds.items():
        online = [factors[name] * value for value in timings]
        is_student = name != CROSS_ENCODER
        cross = [factors[CROSS_ENCODER] * value for value in seconds[CROSS_ENCODER]]
        rows.append(
            {
                "way": name,
                "candidates": number,
                "offline_seconds": embedding_seconds + index_seconds.get(name, 0.0) if is_student else 0.0,
                "offline_extrapolated": is_student and number > embedded,
                "online_ms": 1e3 * median(online),
                "online_ms_min": 1e3 * min(online),
                "online_ms_max": 1e3 * max(online),
                "online_extrapolated": factors[name] > 1.0,
                "speedup": median(base / own for base, own in zip(cross, online, strict=True)),
            }
        )
    return rows


def rank_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The rows as a Markdown table; `~` marks what is extrapolated."""
    cells = [
        [
            f"{row['candidates']:,}",
            row["way"],
            f"{'~' * row['offline_extrapolated']}{row['offline_seconds']:,.2f}",
            f"{'~' * row['online_extrapolated']}{row['online_ms']:,.2f}",
            f"{row['speedup']:,.1f}",
        ]
        for row in rows
    ]
    return markdown(["candidates", "ranked by", "offline s", "query ms", f"x {CROSS_ENCODER}"], cells, num_left=2)


def _for_each_query(texts: Sequence[str], run: Callable[[str], object]) -> Callable[[], object]:
    """A function that runs with the next query each time."""
    queries = itertools.cycle(texts)
    return lambda: run(next(queries))


def _embed_and_search(
    embed: Callable[[list[str]], np.ndarray], search: Callable[[np.ndarray], object], query: str
) -> object:
    return search(embed([query]))


def _search_and_score(
    embed: Callable[[list[str]], np.ndarray],
    search: Callable[[np.ndarray], object],
    score: Callable[[str], object],
    query: str,
) -> object:
    return search(embed([query])), score(query)
