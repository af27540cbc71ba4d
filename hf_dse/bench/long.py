# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Ways of reading long documents: what each finds, how long it takes, and how many vectors it keeps."""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import lru_cache, partial
from statistics import median
from typing import Any

import numpy as np
import torch
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.bench.arguments import LongArguments
from hf_dse.bench.needles import make_needles
from hf_dse.bench.ranking import read_sentences
from hf_dse.bench.timing import interleave
from hf_dse.common.display import markdown
from hf_dse.common.hub import pin
from hf_dse.data.rankings import Rankings
from hf_dse.data.tokenization import check_max_length, max_tokens
from hf_dse.evaluation.comparison import compare_runs
from hf_dse.evaluation.retrieval import TOP_K, find_documents, measure_run
from hf_dse.inference.arguments import ModelArguments
from hf_dse.inference.chunks import encode_corpus
from hf_dse.inference.encoding import encode_query
from hf_dse.inference.loading import load_model
from hf_dse.inference.search import similarity_of
from hf_dse.metrics import as_run
from hf_dse.mining.bm25 import bm25_index, bm25_scores, bm25_search
from hf_dse.student.convert import convert_encoder


logger = logging.get_logger(__name__)

BM25 = "BM25"
# Vectors, the row of the document of each, and its text, by what is made of one reading.
Vectors = dict[str, tuple[np.ndarray, np.ndarray, list[str]]]


@dataclass
class Way:
    """A model, and how it reads documents. What it makes of them has the names of rows of the table."""

    model: PreTrainedModel
    processing_class: PreTrainedTokenizerBase
    read: Callable[[list[str]], Vectors]


def measure_long(
    model_args: ModelArguments, args: LongArguments, rankings: Rankings, ways: Mapping[str, Way]
) -> list[dict[str, Any]]:
    """
    Evaluates ways of reading long documents on the same queries.

    Args:
        model_args ([`ModelArguments`]):
            The encoder, for the batch size.
        args ([`LongArguments`]):
            What is compared.
        rankings ([`Rankings`]):
            The queries, and the corpus.
        ways (`Mapping[str, Way]`):
            Those of [`make_ways`].

    Returns:
        `list[dict]`: for each `way` the `vectors` and the milliseconds a document (`ms`; those of reading it, of the
        documents that are timed), the means of [`ranking_metrics`], and from the second one on the `difference` in
        `args.metric` to the first, with the ends `low` and `high` of its 95 % interval, the bootstrap over the
        queries. Where BM25 is a way too, `with_bm25` is the `args.metric` of each other one with BM25 added to the
        cosine, times `args.bm25_weight`; of a chunk the mean of its own and its document's ([`bm25_scores`]).
    """
    documents, queries = rankings.corpus["text"][:], rankings.queries["query"][:]
    options: dict[str, Any] = {"batch_size": model_args.batch_size, "show_progress": False}
    runs, numbers = {}, {}
    with_bm25: dict[str, dict[str, float]] = {}
    of_queries: dict[int, np.ndarray] = {}

    # Whole documents are the texts of most ways: their words are indexed once.
    @lru_cache(maxsize=2)
    def index_words(texts: tuple[str, ...], rows: tuple[int, ...]) -> Callable[[slice], np.ndarray]:
        return bm25_scores(queries, texts, args.bm25_weight, rows)

    for name, way in ways.items():
        logger.info(f"Reading {len(documents):,} documents: {name}")
        key = id(way.model)
        if key not in of_queries:
            of_queries[key] = encode_query(way.model, way.processing_class, queries, **options)
        for row, (vectors, rows, texts) in way.read(documents).items():
            find = partial(find_documents, way.model, rankings, of_queries[key], vectors, rows, TOP_K, False)
            runs[row], numbers[row] = find(), (name, len(vectors) / len(documents))
            # A dot product has no scale to add BM25 to.
            if "bm25" in args.ways and args.bm25_weight > 0 and similarity_of(way.model) == "cosine":
                both = measure_run(find(added_scores=index_words(tuple(texts), tuple(rows.tolist()))), rankings)
                with_bm25[row] = {"with_bm25": both[args.metric]}
    if "bm25" in args.ways:
        runs[BM25] = as_run(rankings, *bm25_search(queries, documents, TOP_K + 1), TOP_K)
        numbers[BM25] = (BM25, 0.0)
    seconds = time_ways(documents, ways, args)
    compared = compare_runs(runs, rankings, args.metric)
    return [
        {"way": row, "vectors": number, "ms": 1e3 * seconds[name], **compared[row], **with_bm25.get(row, {})}
        for row, (name, number) in numbers.items()
    ]


def measure_needles(
    model_args: ModelArguments, args: LongArguments, ways: Mapping[str, Way]
) -> Iterator[list[dict[str, Any]]]:
    """The rows of [`measure_long`] for each needle task and length, the shortest first, with `task` and `length`."""
    texts = read_sentences(args.texts, args.text_column) if "needle" in args.needles else []
    for length in sorted(set(args.lengths)):
        for task in args.needles:
            rankings = make_needles(task, length, texts, seed=args.seed)
            rows = measure_long(model_args, args, rankings, ways)
            yield [{"task": task, "length": length, **row} for row in rows]


def time_ways(documents: Sequence[str], ways: Mapping[str, Way], args: LongArguments) -> dict[str, float]:
    """Seconds a document of each way, the median of rounds in which each is timed in turn, one document at a time."""
    number = min(args.timed_documents, len(documents))
    sample = [documents[place] for place in np.linspace(0, len(documents) - 1, number).astype(int)]

    def read_all(read: Callable[[list[str]], object]) -> None:
        for text in sample:
            read([text])

    tasks: dict[str, Callable[[], object]] = {name: partial(read_all, way.read) for name, way in ways.items()}
    if "bm25" in args.ways:
        tasks[BM25] = partial(bm25_index, sample)
    for task in tasks.values():
        task()
    device = next((way.model.device for way in ways.values()), None)
    seconds = interleave(tasks, args.rounds, device=device)
    return {name: median(values) / number for name, values in seconds.items()}


def make_ways(model_args: ModelArguments, args: LongArguments) -> dict[str, Way]:
    """
    Loads and converts the encoder for each way.

    Args:
        model_args ([`ModelArguments`]):
            The encoder, and how it runs. Its `max_length` is that of the first tokens and of a chunk.
        args ([`LongArguments`]):
            The ways.

    Returns:
        `dict[str, Way]`: the ways by name, in the order of `args`.

    Raises:
        `ValueError`: if the encoder cannot be converted, or has no limit, or fewer layers than are to be linear, or a
            way cannot read a text.
    """
    model, tokenizer = load_model(model_args)
    limit = max_tokens(model, tokenizer)
    if limit is None:
        raise ValueError(f"{model_args.model_name_or_path} reads texts of any length: there is nothing to extend.")
    if model_args.max_length is not None:
        check_max_length(model_args.max_length, model, tokenizer)
        limit = model_args.max_length
    short: dict[str, Any] = {"batch_size": model_args.batch_size, "max_length": limit, "show_progress": False}
    depth = model.config.num_hidden_layers
    if "mixed" in args.ways and args.linear_layers >= depth:
        raise ValueError(f"linear_layers={args.linear_layers}: the model has {depth} layers, so take fewer.")

    ways: dict[str, Way] = {}

    def add_long(name: str, encoder: PreTrainedModel, processing_class: PreTrainedTokenizerBase) -> None:
        encoder = encoder.to(device=model.device, dtype=model.dtype).eval()  # type: ignore[call-arg]
        longest = min(args.long_length, max_tokens(encoder, processing_class) or args.long_length)
        options = {**short, "max_length": longest}
        read_one = partial(_read_one, encoder, processing_class, name, options)
        ways[name] = Way(encoder, processing_class, read_one)
        if args.many:
            read_many = partial(_read_many, encoder, processing_class, name, args.chunk_sizes[0], options)
            ways[f"{name}, chunks"] = Way(encoder, processing_class, read_many)

    source = pin(model_args.model_name_or_path, model_args.model_revision)
    for kind in args.ways:
        if kind == "first":
            name = f"first {limit} tokens"
            ways[name] = Way(model, tokenizer, partial(_read_one, model, tokenizer, name, short))
        elif kind == "chunks":
            for size in args.chunk_sizes:
                ways[f"chunks of {size}"] = Way(model, tokenizer, partial(_read_chunks, model, tokenizer, size, short))
        elif kind != "bm25":
            for name, fields in _conversions(kind, args, depth, limit):
                add_long(name, convert_encoder(source, **fields), tokenizer)
    for name in args.students:
        student = replace(model_args, model_name_or_path=name, model_revision="main")
        add_long(name, *load_model(student))
    # What cannot be done is found now, not after hours of other ways.
    for way in ways.values():
        way.read(["a"])
    return ways


def _conversions(kind: str, args: LongArguments, depth: int, limit: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and fields of the students of a kind."""
    fields: dict[str, Any] = {"max_position_embeddings": args.long_length, "linformer_projection": "strided"}
    chunks = {"position_extension": "tile", "attention_chunk_size": limit}
    if kind == "softmax":
        yield "softmax", {**fields, "layer_types": ["full_attention"]}
    elif kind == "linear":
        for k in args.projected_lengths:
            yield f"linear, k = {k:,}", {**fields, "linformer_length": k}
    elif kind == "chunked":
        yield "layers in chunks", {**fields, **chunks, "layer_types": ["chunked_attention"]}
    else:
        k, upper = max(args.projected_lengths), args.linear_layers
        kinds = ["chunked_attention"] * (depth - upper) + ["linear_attention"] * upper
        name = f"layers in chunks, upper {upper} linear, k = {k:,}"
        yield name, {**fields, **chunks, "layer_types": kinds, "linformer_length": k}


def _read_one(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    name: str,
    options: Mapping[str, Any],
    documents: list[str],
) -> Vectors:
    return {name: encode_corpus(model, processing_class, documents, **options)}


def _read_many(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    name: str,
    size: int,
    options: Mapping[str, Any],
    documents: list[str],
) -> Vectors:
    options = {**options, "chunks": True, "chunk_size": size, "contextual": True}
    return {f"{name}: best of its chunks of {size}": encode_corpus(model, processing_class, documents, **options)}


def _read_chunks(
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    size: int,
    options: Mapping[str, Any],
    documents: list[str],
) -> Vectors:
    # Only cosines are those of a mean of directions.
    is_cosine = similarity_of(model) == "cosine"
    options = {**options, "chunks": True, "chunk_size": size, "normalize": is_cosine}
    vectors, rows, texts = encode_corpus(model, processing_class, documents, **options)
    kept, first, counts = np.unique(rows, return_index=True, return_counts=True)
    means = np.add.reduceat(vectors, first) / counts[:, None] if len(kept) else vectors
    if is_cosine:
        means = torch.nn.functional.normalize(torch.from_numpy(means), dim=-1).numpy()
    return {
        f"mean of chunks of {size}": (means, kept, [documents[row] for row in kept]),
        f"best of chunks of {size}": (vectors, rows, texts),
    }


def long_table(rows: Sequence[Mapping[str, Any]], metric: str) -> str:
    """The rows as a Markdown table, metrics times 100."""
    metrics = list(dict.fromkeys([metric, "ndcg@10"]))
    cells = []
    for row in rows:
        difference = "-"
        if "difference" in row:
            difference, low, high = (f"{100 * row[name]:+.1f}" for name in ("difference", "low", "high"))
            difference = f"{difference} [{low}, {high}]"
        number = row["vectors"]
        cells.append(
            [
                row["way"],
                "-" if not number else "1" if number == 1 else f"{number:,.0f}",
                *(f"{100 * row[name]:.1f}" for name in metrics),
                difference,
                f"{100 * row['with_bm25']:.1f}" if "with_bm25" in row else "-",
                f"{row['ms']:,.1f}",
            ]
        )
    header = ["a document is read by", "vectors", *metrics, f"difference in {metric}", f"{metric} with BM25"]
    return markdown([*header, "ms a document"], cells, num_left=1)


def needle_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of needles that are found, in percent, by task and length."""
    columns = sorted({(row["task"], row["length"]) for row in rows})
    found = {(row["way"], row["task"], row["length"]): f"{100 * row['recall@1']:.0f}" for row in rows}
    cells = [
        [way, *(found.get((way, *column), "-") for column in columns)]
        for way in dict.fromkeys(row["way"] for row in rows)
    ]
    return markdown(["a document is read by", *(f"{task} {length:,}" for task, length in columns)], cells, num_left=1)
