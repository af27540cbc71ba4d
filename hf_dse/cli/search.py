# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search`."""

import json
import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import one_line
from hf_dse.common.files import output_path, write_atomically
from hf_dse.data.tables import READERS, read_texts
from hf_dse.inference.arguments import ModelArguments


# Columns that name a text: ids first, as those of BEIR, then the paths of a folder of texts.
ID_COLUMNS = ("id", "_id", "doc_id", "file")


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
    id_column: str | None = field(
        default=None,
        metadata={
            "help": f"Column that names a text of the corpus. Default: the first of {', '.join(ID_COLUMNS)} that it "
            "has; without one, results have the `position`, the row in the corpus counted from 0."
        },
    )
    top_k: int = field(default=10, metadata={"help": "Number of texts to return per query."})
    score: str | None = field(
        default=None,
        metadata={
            "help": "cosine: of the embeddings, from -1 to 1. dot: their dot product. head: the logit of the "
            "student's pair head, on the scale that it was trained with. Default: dot for models made for it, "
            "otherwise cosine.",
            "choices": ["cosine", "dot", "head"],
        },
    )
    label: str | None = field(
        default=None,
        metadata={"help": "With `--score head`: the label whose logit ranks, by name or index; required for several."},
    )
    pool: int = field(
        default=100,
        metadata={"help": "With `--score head`: nearest texts by cosine that an mlp head ranks. Others rank all."},
    )
    output_file: str | None = field(
        default=None,
        metadata={
            "help": "File for the results: .jsonl, one line per query; each text has its score and all columns of the "
            "corpus. Default: print them."
        },
    )

    def __post_init__(self) -> None:
        if (self.queries is None) != bool(self.query):
            raise ValueError("Pass either `--queries FILE` or `--query` with one or more texts, not both.")
        if self.label is not None and self.score != "head":
            raise ValueError(f"label={self.label!r}: the cosine has no labels; add `--score head`, or leave it out.")


def search(argv: list[str]) -> None:
    """Ranks the texts of a corpus for queries; prints or writes the best."""
    model_args, args = parse_args(
        argv,
        ModelArguments,
        SearchArguments,
        prog="hf-dse search",
        description="Rank the texts of a corpus for queries, by the similarity of their embeddings or by the pair "
        "head of a student.",
    )
    from hf_dse.common.provenance import fingerprint
    from hf_dse.inference.encoding import encode_document, encode_query, find_prompt
    from hf_dse.inference.index import read_corpus
    from hf_dse.inference.loading import load_model
    from hf_dse.inference.search import check_ranking, rank, similarity_of

    output = None if args.output_file is None else output_path(args.output_file, (".jsonl",))
    columns, corpus, settings = read_corpus(args.corpus, args.text_column)
    queries = {args.text_column: args.query} if args.query else read_texts(args.queries, args.text_column)
    for name, table in ((args.corpus, columns), (args.queries, queries)):
        if not table[args.text_column]:
            raise ValueError(f"{name} holds no texts.")
    if args.id_column is not None and args.id_column not in columns:
        raise ValueError(
            f"{args.corpus}: there is no column {args.id_column!r}; the columns are {', '.join(columns)}. Choose one "
            "with `--id_column`, or leave it out."
        )
    id_column = args.id_column or next((name for name in ID_COLUMNS if name in columns), None)
    model, tokenizer = load_model(model_args)
    if type(model).__name__.endswith("ForSequenceClassification") and model.config.model_type != "dse":
        raise ValueError(
            f"{type(model).__name__} scores pairs of texts, not of embeddings: search with a student distilled from "
            "it (`hf-dse distill`), or with an encoder."
        )
    head = model if args.score == "head" else None
    logit = check_ranking(args.top_k, head, args.label, args.pool)
    similarity = args.score if args.score in ("cosine", "dot") else similarity_of(model)
    score = similarity if logit is None else f"head: {model.config.id2label[logit]}"  # type: ignore[index]
    if score in columns:
        raise ValueError(f"{args.corpus} has a column {score!r}, which is the name of the scores: rename it.")
    options: dict[str, Any] = {"batch_size": model_args.batch_size, "max_length": model_args.max_length}
    prompt = find_prompt(model, "document")
    if corpus is None:
        corpus = encode_document(model, tokenizer, columns[args.text_column], **options)
    elif settings["model"] != fingerprint(model, tokenizer):
        raise ValueError(
            f"{args.corpus} was encoded by {settings.get('model_name_or_path', 'another model')} with other weights "
            f"or `--dtype`, so its vectors do not match {model_args.model_name_or_path}: run `hf-dse encode` "
            "with this model, or search with that one."
        )
    elif settings.get("prompt", "") != prompt:
        raise ValueError(
            f"{args.corpus} was encoded with the prompt {settings.get('prompt', '')!r}, and that of the model for "
            f"documents is {prompt!r}: run `hf-dse encode` again."
        )
    elif settings["normalize"] and (similarity if head is None else model.config.similarity) != "cosine":
        kind = "dot product" if head is None else f"{model.config.similarity} head"
        raise ValueError(
            f"{args.corpus} has normalized vectors, but the {kind} needs the original ones: run `hf-dse encode` "
            "without `--normalize`, or pass `--score cosine`."
        )
    scores, positions = rank(
        encode_query(model, tokenizer, queries[args.text_column], **options),
        corpus,
        top_k=args.top_k,
        similarity=similarity,
        head=head,
        label=args.label,
        pool=args.pool,
        device=model.device,
    )
    results = []
    for number, found in enumerate(zip(scores.tolist(), positions.tolist(), strict=True)):
        query = {name: values[number] for name, values in queries.items()}
        text = query.pop(args.text_column)
        hits = [
            {score: value}
            | ({} if id_column else {"position": position})
            | {name: values[position] for name, values in columns.items()}
            for value, position in zip(*found, strict=True)
        ]
        results.append({**query, "query": text, "results": hits})
    if args.query or output is None:
        shown = [score, *([id_column] if id_column else []), args.text_column]
        print(format_results(results, shown, shutil.get_terminal_size().columns))
    if output is not None:
        # Parquet files have types that JSON lacks, such as dates.
        lines = (json.dumps(result, ensure_ascii=False, default=str) + "\n" for result in results)
        write_atomically(output, lambda file: file.writelines(line.encode() for line in lines))
        print(f"{len(results)} queries written to {output}")


def format_results(results: Iterable[Mapping[str, Any]], names: Sequence[str], width: int) -> str:
    """
    Formats the results of each query as a table.

    Args:
        results (`Iterable[Mapping]`):
            The queries with their `results`.
        names (`Sequence[str]`):
            What to show of a text: the score, the id if there is one, and the text.
        width (`int`):
            Longest line; longer ones are cut.

    Returns:
        `str`: the tables, with a blank line between them.
    """
    blocks = []
    for result in results:
        rows = [["rank", *map(one_line, names)]]
        for number, found in enumerate(result["results"], start=1):
            rows.append([str(number), f"{found[names[0]]:.4f}", *(one_line(found[name]) for name in names[1:])])
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"query: {one_line(result['query'])}"]
        for row in rows:
            # Numbers are on the right of their columns.
            cells = zip(row, sizes, (str.rjust, str.rjust, str.ljust, str.ljust), strict=False)
            lines.append("  ".join(align(cell, size) for cell, size, align in cells).rstrip())
        blocks.append("\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in lines))
    return "\n\n".join(blocks)
