# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search`."""

import json
import shutil
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path, write_atomically
from hf_dse.common.provenance import fingerprint
from hf_dse.data.tables import READERS, read_texts
from hf_dse.inference.encoding import encode
from hf_dse.inference.index import read_corpus
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.inference.search import check_ranking, rank


@dataclass
class SearchArguments:
    """What to search for, in which corpus, and where to write the results."""

    corpus: str = field(
        metadata={
            "help": f"Texts to rank: .txt with one text per line, a table ({', '.join(READERS)}), or a folder of .txt "
            "and .md files. Or an index: the .parquet file or folder that `hf-dse encode` writes."
        }
    )
    queries: str | None = field(default=None, metadata={"help": "File of queries, in the same formats as the corpus."})
    query: list[str] = field(
        default_factory=list, metadata={"help": "Queries, instead of a file; the results are printed."}
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in tables."})
    top_k: int = field(default=10, metadata={"help": "Number of texts to return per query."})
    pool: int = field(
        default=100,
        metadata={"help": "Nearest texts by cosine that an mlp head ranks. Other heads rank the whole corpus."},
    )
    label: str | None = field(
        default=None, metadata={"help": "Label whose logit ranks, by name or index; required if there are several."}
    )
    output_file: str | None = field(
        default=None,
        metadata={
            "help": "File for the results: .jsonl, one line per query; `position` is the row in the corpus, counted "
            "from 0. Default: print them."
        },
    )

    def __post_init__(self) -> None:
        if (self.queries is None) != bool(self.query):
            raise ValueError("Pass either `--queries FILE` or `--query` with one or more texts, not both.")


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
    columns, corpus, settings = read_corpus(args.corpus, args.text_column)
    texts, files = columns[args.text_column], columns.get("file")
    queries = args.query or read_texts(args.queries, args.text_column)[args.text_column]
    for name, column in ((args.corpus, texts), (args.queries, queries)):
        if not column:
            raise ValueError(f"{name} holds no texts.")
    model, tokenizer = load_model(model_args)
    logit = check_ranking(model, args.top_k, args.pool, args.label)
    if corpus is None:
        corpus = encode(model, tokenizer, texts, batch_size=model_args.batch_size, max_length=model_args.max_length)
    elif settings["model"] != fingerprint(model, tokenizer):
        raise ValueError(
            f"{args.corpus} was encoded by {settings.get('model_name_or_path', 'another model')} with other weights "
            f"or `--dtype`, so its vectors do not match {model_args.model_name_or_path}: run `hf-dse encode` "
            "with this model, or search with that one."
        )
    elif settings["normalize"] and logit is not None and model.config.similarity != "cosine":
        raise ValueError(
            f"{args.corpus} has normalized vectors, but the {model.config.similarity} head needs the original ones: "
            "run `hf-dse encode` without `--normalize`."
        )
    scores, positions = rank(
        model,
        encode(model, tokenizer, queries, batch_size=model_args.batch_size, max_length=model_args.max_length),
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
                | ({} if files is None else {"file": files[position]})
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
    """Formats the results of each query in columns; texts are cut at the width."""
    lines = []
    for result in results:
        lines += [_fit("query: ", result["query"], width), f"{'rank':>4}  {'score':>9}  text"]
        for number, found in enumerate(result["results"], start=1):
            text = f"{found['file']}: {found['text']}" if "file" in found else found["text"]
            lines.append(_fit(f"{number:>4}  {found['score']:>9.4f}  ", text, width))
        lines.append("")
    return "\n".join(lines[:-1])


def _fit(start: str, text: str, width: int) -> str:
    """Formats one line of output, without the line breaks of the text."""
    line = start + " ".join(text.split())
    return line if len(line) <= width else line[: width - 3] + "..."
