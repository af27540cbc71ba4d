# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Ways of reading long documents: what a search finds with each, how long it takes, and how many vectors it keeps.

    python benchmarks/long_documents.py ENCODER --dataset_name FOLDER [--split test] [--metric ndcg@10]
    python benchmarks/long_documents.py ENCODER --needles passkey needle [--lengths 256 1024 4096]

FOLDER holds queries and a corpus in the layout of BEIR. Needles are made here, as those of LongEmbed: one sentence of
each of 100 documents tells which is wanted. The ways:

- first: the tokens up to the limit of the encoder;
- chunks: plain chunks, each encoded alone, by their mean and by the best of them;
- softmax, linear, chunked, mixed: the encoder converted to read all at once, with softmax attention; with linear
  attention of each projected length; with all layers in chunks of its limit; with lower layers in chunks and the two
  upper ones linear, of the longest projected length;
- bm25: by words, alone and with each of the others, whose cosine it is added to; a chunk gets half of it for its own
  words and half for those of its document.

Differences are to the first way, with their 95 % interval, the bootstrap over the queries.
"""

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from statistics import median
from tempfile import TemporaryDirectory
from typing import Any

import numpy as np
from needles import NEEDLES, make_needles
from ranking_cost import read_sentences
from sentence_transformers import SentenceTransformer
from timing import interleave, make_parser, set_threads, write_results
from transformers.utils import logging

from hf_dse import (
    DataArguments,
    Index,
    Rankings,
    convert_encoder,
    export,
    load_rankings,
    split_text,
    to_sentence_transformer,
)
from hf_dse.common.display import markdown
from hf_dse.convert.student import exact_kinds
from hf_dse.measure.metrics import bootstrap_interval, measure_run, relevance
from hf_dse.retrieval.bm25 import Bm25Index


logger = logging.get_logger(__name__)

WAYS = ("first", "chunks", "softmax", "linear", "mixed", "chunked", "bm25")
BM25 = "BM25"
TOP_K = 100
# Upper layers of the way "mixed" that are linear.
LINEAR_LAYERS = 2
# Vectors, the row of each one's document, and its text, for each row of the table.
Vectors = dict[str, tuple[np.ndarray, np.ndarray, list[str]]]


@dataclass
class Way:
    """A model, and how it reads documents."""

    model: SentenceTransformer
    read: Callable[[list[str]], Vectors]


def make_ways(args: Any) -> dict[str, Way]:
    """Loads and converts the encoder for each way, in the order of `args.ways`, and loads the students."""
    model = to_sentence_transformer(args.model, dtype=args.dtype, max_length=args.max_length)
    limit, kinds = model.max_seq_length, exact_kinds(model[0].auto_model.config)
    ways: dict[str, Way] = {}

    def add_long(name: str, folder: str) -> None:
        long = to_sentence_transformer(folder, dtype=args.dtype)
        long.max_seq_length = min(args.long_length, long.max_seq_length)
        ways[name] = Way(long, partial(read_whole, long, name, args.batch_size))

    for kind in args.ways:
        if kind == "first":
            name = f"first {limit} tokens"
            ways[name] = Way(model, partial(read_whole, model, name, args.batch_size))
        elif kind == "chunks":
            for size in args.chunk_sizes:
                ways[f"chunks of {size}"] = Way(model, partial(read_chunks, model, size, args.batch_size))
        elif kind != "bm25":
            for name, fields in conversions(kind, args, kinds, limit):
                with TemporaryDirectory() as folder:
                    converted = convert_encoder(args.model, max_position_embeddings=args.long_length, **fields)
                    export(converted, Path(folder, "long"), model.tokenizer, max_length=args.long_length)
                    add_long(name, str(Path(folder, "long")))
    for name in args.students:
        add_long(name, name)
    # A way that cannot read a text is found now, not after hours of other ways.
    for way in ways.values():
        way.model.similarity_fn_name = "cosine"
        way.read(["a"])
    return ways


def conversions(kind: str, args: Any, kinds: list[str], limit: int) -> Iterator[tuple[str, dict[str, Any]]]:
    """Names and options of the conversions of a kind; `kinds` has the attention of the encoder's layers."""
    strided = {"linformer_projection": "strided"}
    chunks = {"attention_chunk_size": limit}
    if kind == "softmax":
        yield "softmax", {"layer_types": kinds}
    elif kind == "linear":
        for k in args.projected_lengths:
            yield f"linear, k = {k:,}", {**strided, "linformer_length": k}
    elif kind == "chunked":
        yield "layers in chunks", {**chunks, "layer_types": "chunked_attention"}
    else:
        k = max(args.projected_lengths)
        kinds = ["chunked_attention"] * (len(kinds) - LINEAR_LAYERS) + ["linear_attention"] * LINEAR_LAYERS
        name = f"layers in chunks, upper {LINEAR_LAYERS} linear, k = {k:,}"
        yield name, {**strided, **chunks, "layer_types": kinds, "linformer_length": k}


def embed(model: SentenceTransformer, texts: list[str], batch_size: int) -> np.ndarray:
    options = {"batch_size": batch_size, "normalize_embeddings": True, "show_progress_bar": False}
    return model.encode_document(texts, **options)


def read_whole(model: SentenceTransformer, name: str, batch_size: int, documents: list[str]) -> Vectors:
    return {name: (embed(model, documents, batch_size), np.arange(len(documents)), documents)}


def read_chunks(model: SentenceTransformer, size: int, batch_size: int, documents: list[str]) -> Vectors:
    parts = [split_text(text, model.tokenizer, size) or [text] for text in documents]
    rows = np.repeat(np.arange(len(parts)), [len(part) for part in parts])
    texts = [text for part in parts for text in part]
    vectors = embed(model, texts, batch_size)
    means = np.add.reduceat(vectors, np.unique(rows, return_index=True)[1])
    means /= np.linalg.norm(means, axis=1, keepdims=True)
    return {
        f"mean of chunks of {size}": (means, np.arange(len(documents)), documents),
        f"best of chunks of {size}": (vectors, rows, texts),
    }


def measure(args: Any, rankings: Rankings, ways: Mapping[str, Way]) -> list[dict[str, Any]]:
    """
    Evaluates ways of reading long documents on the same queries.

    Args:
        args (`argparse.Namespace`):
            The options of the command.
        rankings ([`Rankings`]):
            The queries, and the corpus.
        ways (`Mapping[str, Way]`):
            The ways by name, see [`make_ways`].

    Returns:
        `list[dict]`: for each `way` the `vectors` and the milliseconds of a document (`ms`), the means of the metrics,
        and from the second one on the `difference` in `args.metric` to the first, with the ends `low` and `high` of
        its interval. Where BM25 is a way too, `with_bm25` is `args.metric` of each other one together with BM25.
    """
    documents = rankings.corpus["text"][:]
    has_bm25 = "bm25" in args.ways
    runs: dict[str, Any] = {}
    numbers: dict[str, tuple[str, float]] = {}
    with_bm25: dict[str, float] = {}
    judged = relevance(rankings)
    for name, way in ways.items():
        logger.info(f"Reading {len(documents):,} documents: {name}")
        for row, (vectors, rows, texts) in way.read(documents).items():
            options = {"batch_size": args.batch_size, "show_progress": False}
            index = Index(way.model, texts, groups=rows, vectors=vectors, **options)
            # Each vector is a row of its document.
            corpus = rankings.corpus.select(rows).remove_columns("text").add_column("text", texts)
            of_vectors = replace(rankings, corpus=corpus)
            runs[row], numbers[row] = index.run(of_vectors, TOP_K), (name, len(vectors) / len(documents))
            if has_bm25:
                both = index.run(of_vectors, TOP_K, args.bm25_weight)
                with_bm25[row] = measure_run(both, judged)[args.metric]
    if has_bm25:
        runs[BM25] = Index.of(None, rankings, show_progress=False).run(rankings, TOP_K, by_words=True)
        numbers[BM25] = (BM25, 0.0)
    seconds = time_ways(documents, ways, args)
    results: list[dict[str, Any]] = []
    base: np.ndarray | None = None
    for row, (name, number) in numbers.items():
        per_query = measure_run(runs[row], judged, per_query=True)
        gains = np.array([values[args.metric] for values in per_query.values()])
        result = {"way": row, "vectors": number, "ms": 1e3 * seconds[name], **measure_run(runs[row], judged)}
        if base is None:
            base = gains
        else:
            low, high = bootstrap_interval(gains - base)
            result |= {"difference": float((gains - base).mean()), "low": low, "high": high}
        if row in with_bm25:
            result["with_bm25"] = with_bm25[row]
        results.append(result)
    return results


def time_ways(documents: Sequence[str], ways: Mapping[str, Way], args: Any) -> dict[str, float]:
    """Seconds per document of each way, medians of rounds in which each is timed in turn, one document at a time."""
    number = min(args.timed_documents, len(documents))
    sample = [documents[place] for place in np.linspace(0, len(documents) - 1, number).astype(int)]

    def read_all(read: Callable[[list[str]], object]) -> None:
        for text in sample:
            read([text])

    tasks: dict[str, Callable[[], object]] = {name: partial(read_all, way.read) for name, way in ways.items()}
    if "bm25" in args.ways:
        tasks[BM25] = lambda: Bm25Index(sample)
    for task in tasks.values():
        task()
    device = next((way.model.device for way in ways.values()), None)
    seconds = interleave(tasks, args.rounds, device=device)
    return {name: median(values) / number for name, values in seconds.items()}


def measure_needles(args: Any, ways: Mapping[str, Way]) -> Iterator[list[dict[str, Any]]]:
    """The rows of [`measure`] for each needle task and length, the shortest first, with `task` and `length`."""
    for length in sorted(set(args.lengths)):
        for task in args.needles:
            rows = measure(args, make_needles(task, length, read_sentences()), ways)
            yield [{"task": task, "length": length, **row} for row in rows]


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
    return markdown([*header, "ms per document"], cells, num_left=1)


def needle_table(rows: Sequence[Mapping[str, Any]]) -> str:
    """The share of needles that are found, in percent, by task and length."""
    columns = sorted({(row["task"], row["length"]) for row in rows})
    found = {(row["way"], row["task"], row["length"]): f"{100 * row['recall@1']:.0f}" for row in rows}
    cells = [
        [way, *(found.get((way, *column), "-") for column in columns)]
        for way in dict.fromkeys(row["way"] for row in rows)
    ]
    return markdown(["a document is read by", *(f"{task} {length:,}" for task, length in columns)], cells, num_left=1)


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("model", help="folder or Hub name of an encoder with softmax attention")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--dataset_name", help="folder in the layout of BEIR, or a dataset of the Hub")
    source.add_argument("--needles", nargs="+", choices=NEEDLES, help="make the documents and queries")
    parser.add_argument("--split", default="test", help="split of the queries")
    parser.add_argument("--ways", nargs="+", default=list(WAYS), choices=WAYS)
    parser.add_argument("--students", nargs="+", default=[], help="folders of your own encoders of long texts")
    parser.add_argument("--metric", default="recall@1", choices=["recall@1", "ndcg@10", "mrr@10"])
    parser.add_argument("--bm25_weight", type=float, default=0.3, help="0.6 is better for chunks")
    parser.add_argument("--chunk_sizes", type=int, nargs="+", default=[128], help="tokens of a chunk, at most")
    parser.add_argument("--projected_lengths", type=int, nargs="+", default=[256, 1024], help="k of linear attention")
    parser.add_argument("--max_length", type=int, help="first tokens, and limit of a chunk; default: the encoder's")
    parser.add_argument("--long_length", type=int, default=16384, help="tokens read in one pass, at most")
    parser.add_argument("--lengths", type=int, nargs="+", default=[256, 1024, 4096], help="tokens of needle documents")
    parser.add_argument("--batch_size", type=int, default=32)
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--timed_documents", type=int, default=4, help="documents that are timed, one by one")
    parser.add_argument("--rounds", type=int, default=3, help="timings of each way; the median counts")
    args = parser.parse_args(argv)
    set_threads(args.threads)
    if args.needles:
        rows: list[dict[str, Any]] = []
        ways = make_ways(args)
        # A length may take as long as all before it.
        for found in measure_needles(args, ways):
            rows += found
            write_results(args, {"rows": rows})
        print(f"Documents found by their needle, in percent:\n\n{needle_table(rows)}")
        return
    rankings = load_rankings(DataArguments(dataset_name=args.dataset_name), [args.split])[args.split]
    rows = measure(args, rankings, make_ways(args))
    print(f"{len(rankings.queries):,} queries, {len(rankings.corpus):,} documents; metrics x 100\n")
    print(long_table(rows, args.metric))
    print("\ndifference: to the first row, with its 95 % interval (bootstrap over the queries)")
    write_results(args, {"rows": rows})


if __name__ == "__main__":
    main()
