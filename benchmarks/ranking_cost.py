# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The cost of ranking: one query against N candidates, by a cross-encoder and by a student.

    python benchmarks/ranking_cost.py STUDENT CROSS_ENCODER [--candidates 100 1000 10000] [--dtype bfloat16]

The cross-encoder scores N pairs. The student embeds the candidates once, before any query (offline), then the query,
whose embedding is compared with all of them: by an exact search with torch, and by a flat index of faiss
if it is installed. Texts are the sentences that come with hf-dse. The vectors of the candidates are random, so that
there can be many: the time of an exact search does not depend on them. `~` marks a time that is extrapolated from
`--max_pairs` texts.
"""

import itertools
import time
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from importlib.util import find_spec
from statistics import median
from typing import Any

import numpy as np
import torch
from sentence_transformers import CrossEncoder, SentenceTransformer
from timing import interleave, make_parser, set_threads, write_results

from hf_dse import DataArguments, load_pairs
from hf_dse.common.display import markdown
from hf_dse.common.loading import choose_device
from hf_dse.retrieval.search import nearest
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


CROSS_ENCODER = "cross-encoder"
TOP_K = 10
BATCH_SIZE = 32


def read_sentences() -> list[str]:
    """The different sentences of the embedded pairs."""
    pairs = load_pairs(DataArguments(dataset_name="embedded"))
    return list(
        dict.fromkeys(text for part in pairs.values() for name in ("sentence1", "sentence2") for text in part[name])
    )


def measure(
    student: SentenceTransformer,
    cross_encoder: CrossEncoder,
    texts: Sequence[str],
    candidates: Sequence[int],
    max_pairs: int,
    rounds: int,
) -> list[dict[str, Any]]:
    """The rows of [`summarize`] for each number of candidates."""
    sample = list(texts[:max_pairs])
    embed = partial(student.encode, batch_size=BATCH_SIZE, show_progress_bar=False, normalize_embeddings=True)
    embed(sample[:BATCH_SIZE])
    start = time.perf_counter()
    embed(sample)
    seconds_per_text = (time.perf_counter() - start) / len(sample)
    rng = np.random.default_rng(0)
    vectors = rng.standard_normal((max(candidates), student.get_embedding_dimension()), dtype=np.float32)
    vectors /= np.linalg.norm(vectors, axis=1, keepdims=True)
    rows = []
    for number in sorted(set(candidates)):
        part = sample[:number]
        tasks = {CROSS_ENCODER: for_each_query(texts, partial(score, cross_encoder, part))}
        index_seconds = {}
        for name, (search, seconds) in make_searches(vectors[:number], student.device).items():
            tasks[name] = for_each_query(texts, lambda query, search=search: search(embed([query])))
            index_seconds[name] = seconds
        for task in tasks.values():
            task()
        timings = interleave(tasks, rounds, device=student.device)
        rows += summarize(timings, number, len(part), seconds_per_text * number, index_seconds, len(sample))
    return rows


def score(cross_encoder: CrossEncoder, texts: Sequence[str], query: str) -> np.ndarray:
    return cross_encoder.predict([(query, text) for text in texts], batch_size=BATCH_SIZE, show_progress_bar=False)


def make_searches(
    vectors: np.ndarray, device: torch.device
) -> dict[str, tuple[Callable[[np.ndarray], object], float]]:
    """The searches of a student: functions of a query's embedding `(1, size)`, and the seconds to build the index."""
    exact = partial(nearest, documents=torch.from_numpy(vectors).to(device), top_k=TOP_K, device=device)
    searches: dict[str, tuple[Callable[[np.ndarray], object], float]] = {"student, exact search": (exact, 0.0)}
    if find_spec("faiss") is not None:
        import faiss

        faiss.omp_set_num_threads(torch.get_num_threads())
        index, start = faiss.IndexFlatIP(vectors.shape[1]), time.perf_counter()
        index.add(vectors)
        flat = partial(index.search, k=min(TOP_K, len(vectors)))
        searches["student, faiss flat"] = (flat, time.perf_counter() - start)
    return searches


def for_each_query(texts: Sequence[str], run: Callable[[str], object]) -> Callable[[], object]:
    """A function that runs with the next query each time."""
    queries = itertools.cycle(texts)
    return lambda: run(next(queries))


def summarize(
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
        `list[dict]`: for each way the `offline_seconds`, the median time of a query in `online_ms`, whether they are
        extrapolated (`offline_extrapolated`, `online_extrapolated`), and `speedup`, the median ratio of the
        cross-encoder's time to this one.
    """
    factors = {name: number / measured if name == CROSS_ENCODER else 1.0 for name in seconds}
    cross = [factors[CROSS_ENCODER] * value for value in seconds[CROSS_ENCODER]]
    rows = []
    for name, timings in seconds.items():
        online = [factors[name] * value for value in timings]
        is_student = name != CROSS_ENCODER
        rows.append(
            {
                "way": name,
                "candidates": number,
                "offline_seconds": embedding_seconds + index_seconds.get(name, 0.0) if is_student else 0.0,
                "offline_extrapolated": is_student and number > embedded,
                "online_ms": 1e3 * median(online),
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


def main(argv: Sequence[str] | None = None) -> None:
    parser = make_parser(__doc__)
    parser.add_argument("student", help="folder or Hub name of a model that sentence-transformers loads")
    parser.add_argument("cross_encoder", help="folder or Hub name of a cross-encoder")
    parser.add_argument(
        "--candidates", type=int, nargs="+", default=[100, 1000, 10_000, 100_000], help="a million need 4 GB"
    )
    parser.add_argument("--max_pairs", type=int, default=1000, help="texts and pairs that go through a model")
    parser.add_argument("--rounds", type=int, default=5, help="queries that are timed; the median counts")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = parser.parse_args(argv)
    set_threads(args.threads)
    device = choose_device(None)
    student = load_sentence_transformer(args.student, dtype=args.dtype, device=device)
    cross_encoder = CrossEncoder(args.cross_encoder, device=str(device), model_kwargs={"dtype": args.dtype})
    rows = measure(student, cross_encoder, read_sentences(), args.candidates, args.max_pairs, args.rounds)
    print(rank_table(rows))
    write_results(args, {"rows": rows})


if __name__ == "__main__":
    main()
