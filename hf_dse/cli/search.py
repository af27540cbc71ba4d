# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search`."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

from hf_dse.cli import parse_args
from hf_dse.cli.evaluate import ModelArguments, load_model, output_path
from hf_dse.data import READERS, read_texts, write_atomically
from hf_dse.encoding import encode
from hf_dse.search import check_ranking, rank


@dataclass
class SearchArguments:
    """What to search for, where, and where the result goes."""

    corpus: str = field(metadata={"help": f"Texts to rank: .txt, one a line, or a table: {', '.join(READERS)}."})
    queries: str | None = field(default=None, metadata={"help": "File of the queries, in the formats of the corpus."})
    query: list[str] = field(
        default_factory=list, metadata={"help": "The queries themselves, in place of a file; the result is printed."}
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in tables."})
    corpus_embeddings: str | None = field(
        default=None,
        metadata={"help": "Vectors of the corpus, .npy as `hf-dse encode` writes them, so that it is not encoded."},
    )
    top_k: int = field(default=10, metadata={"help": "Texts to return for a query."})
    pool: int = field(
        default=100,
        metadata={"help": "Nearest texts by cosine that an mlp head ranks. Other heads search the whole corpus."},
    )
    label: str | None = field(
        default=None, metadata={"help": "The logit that ranks, by name or number; for heads that have several."}
    )
    output_file: str | None = field(
        default=None,
        metadata={
            "help": "File for the results, .jsonl: a line for each query; `position` counts the rows of the corpus "
            "from 0. Without a file they are printed."
        },
    )

    def __post_init__(self) -> None:
        if (self.queries is None) != bool(self.query):
            raise ValueError("Give either `--queries FILE` or `--query` with one or more texts, and not both.")


def search(argv: list[str]) -> None:
    """Ranks the texts of a corpus for queries; prints or writes the best."""
    model_args, args = parse_args(
        argv,
        ModelArguments,
        SearchArguments,
        prog="hf-dse search",
        description="Rank the texts of a corpus for queries. Cosine and dot heads search all of it; an mlp head ranks "
        "the nearest texts by cosine.",
    )
    output = None if args.output_file is None else output_path(args.output_file, (".jsonl",))
    texts = read_texts(args.corpus, args.text_column)[args.text_column]
    queries = args.query or read_texts(args.queries, args.text_column)[args.text_column]
    for name, column in ((args.corpus, texts), (args.queries, queries)):
        if not column:
            raise ValueError(f"{name} holds no texts.")
    corpus = None if args.corpus_embeddings is None else _read_embeddings(args.corpus_embeddings, len(texts))
    model, tokenizer = load_model(model_args)
    logit = check_ranking(model, args.top_k, args.pool, args.label)
    if corpus is None:
        corpus = encode(model, tokenizer, texts, batch_size=model_args.batch_size)
    elif logit is not None and model.config.similarity != "cosine" and _are_units(corpus):
        raise ValueError(
            f"{args.corpus_embeddings} holds vectors of length 1, but the {model.config.similarity} head compares "
            "them as the model makes them: run `hf-dse encode` without `--normalize`."
        )
    positions, scores = rank(
        model,
        encode(model, tokenizer, queries, batch_size=model_args.batch_size),
        corpus,
        top_k=args.top_k,
        pool=args.pool,
        label=args.label,
    )
    results = [
        {
            "query": query,
            "results": [
                {"position": position, "score": score, "text": texts[position]}
                for position, score in zip(*row, strict=True)
            ],
        }
        for query, *row in zip(queries, positions.tolist(), scores.tolist(), strict=True)
    ]
    if args.query or output is None:
        print(format_results(results, shutil.get_terminal_size().columns))
    if output is not None:
        lines = (json.dumps(result, ensure_ascii=False) + "\n" for result in results)
        write_atomically(output, lambda file: file.writelines(line.encode() for line in lines))
        print(f"{len(results)} queries written to {output}")


def format_results(results: Iterable[Mapping[str, Any]], width: int) -> str:
    """Lays out the results of each query in columns; what a text has beyond the width is cut."""
    lines = []
    for result in results:
        lines += [_fit("query: ", result["query"], width), f"{'rank':>4}  {'score':>9}  text"]
        for number, found in enumerate(result["results"], start=1):
            lines.append(_fit(f"{number:>4}  {found['score']:>9.4f}  ", found["text"], width))
        lines.append("")
    return "\n".join(lines[:-1])


def _fit(start: str, text: str, width: int) -> str:
    """One line of output, whatever line breaks the text has."""
    line = start + " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."


def _are_units(vectors: np.ndarray) -> bool:
    return np.allclose(np.linalg.norm(vectors, axis=1), 1.0, atol=1e-3)


def _read_embeddings(name: str, num_texts: int) -> np.ndarray:
    path = Path(name).expanduser()
    if path.suffix != ".npy":
        raise ValueError(f"{name}: unsupported ending {path.suffix!r}; vectors are read from .npy.")
    if not path.is_file():
        raise FileNotFoundError(f"{name}: there is no such file.")
    try:
        with path.open("rb") as file:
            vectors = np.lib.format.read_array(file)
    except ValueError as error:
        raise ValueError(f"{name}: not a readable .npy file: {error}") from error
    if vectors.ndim != 2 or len(vectors) != num_texts:
        raise ValueError(
            f"{name} holds an array of shape {vectors.shape}, but the corpus has {num_texts} texts: encode this "
            "corpus with `hf-dse encode`."
        )
    return vectors
