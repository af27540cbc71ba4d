# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search`."""

import json
import math
import shutil
import sys
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.parsing import parse_args
from hf_dse.common.display import one_line
from hf_dse.common.files import output_path, to_path, write_atomically
from hf_dse.common.options import check_at_least, refuse_options
from hf_dse.data.tables import READERS, check_texts, find_table, missing_column, read_columns, read_texts
from hf_dse.inference.arguments import DOCUMENT_COLUMN, FolderArguments, ModelArguments


# Columns that name a text: ids first, as those of BEIR, then the paths of a folder of texts.
ID_COLUMNS = ("id", "_id", "doc_id", "file")
# The heading of the places of passages.
PLACE = "file:line"


@dataclass
class SearchArguments:
    """What to search for, in which corpus, and where to write the results."""

    corpus: str = field(
        metadata={
            "help": "A folder of .txt and .md files, whose passages are ranked; their index is made and updated as "
            f"needed. Or texts to rank whole: .txt with one text per line, a table ({', '.join(READERS)}), or a "
            "folder with such a table named corpus, as those of BEIR. Or an index: the .parquet file or folder that "
            "`hf-dse encode` writes; of chunks, the best of a document."
        }
    )
    queries: str | None = field(
        default=None,
        metadata={
            "help": "File of queries, in the same formats as the corpus, or a folder in the layout of BEIR, whose "
            "queries are read."
        },
    )
    query: list[str] = field(
        default_factory=list, metadata={"help": "Queries, instead of a file; the results are printed."}
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in tables."})
    query_column: str | None = field(
        default=None,
        metadata={
            "help": "Column of the queries in a table. Default: the first of query, the `--text_column` and text that "
            "it has."
        },
    )
    id_column: str | None = field(
        default=None,
        metadata={
            "help": f"Column that names a text of the corpus. Default: the first of {', '.join(ID_COLUMNS)} that it "
            "has; without one, results have the `position`, the row in the corpus counted from 0."
        },
    )
    top_k: int = field(
        default=10, metadata={"help": "Number of texts to return per query; of a file only the best passage."}
    )
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
    bm25_weight: float = field(
        default=0.0,
        metadata={
            "help": "Rank by words too: adds so many times BM25 / (the best BM25 of the query) to the cosine of each "
            "text; of a passage the mean of its own and its document's. 0.3 is a good start, 0.6 for passages of long "
            "documents; 0: the cosine alone."
        },
    )
    rerank: str | None = field(
        default=None,
        metadata={
            "help": "Hub id or folder of a cross-encoder that reads the best texts, of a file or a document in chunks "
            "the best passage, and orders them anew."
        },
    )
    rerank_top: int = field(default=50, metadata={"help": "With `--rerank`: how many texts of each query it reads."})
    output_file: str | None = field(
        default=None,
        metadata={
            "help": "File for the results: .jsonl, one line per query; each text has its scores and all columns of "
            "the corpus. Default: print them."
        },
    )
    format: str = field(
        default="text",
        metadata={
            "help": "What is printed. text: a table. json: the lines of `--output_file`.",
            "choices": ["text", "json"],
        },
    )

    def __post_init__(self) -> None:
        if (self.queries is None) != bool(self.query):
            raise ValueError("Pass either `--queries FILE` or `--query` with one or more texts, not both.")
        if self.label is not None and self.score != "head":
            raise ValueError(f"label={self.label!r}: the cosine has no labels; add `--score head`, or leave it out.")
        advice = "add `{}`, or leave it out."
        if self.score != "head":
            refuse_options(self, "is an option of a pair head", "pool", advice=advice.format("--score head"))
        if self.rerank is None:
            refuse_options(self, "is an option of reranking", "rerank_top", advice=advice.format("--rerank MODEL"))
        check_at_least(0, bm25_weight=self.bm25_weight)
        self.check_bm25(self.score)
        if self.rerank is not None and self.rerank_top < self.top_k:
            raise ValueError(f"rerank_top={self.rerank_top} is below top_k={self.top_k}: raise it to at least top_k.")

    def check_bm25(self, score: str | None) -> None:
        """Raises a `ValueError` if BM25 is to be added to scores that have another scale for each model."""
        if self.bm25_weight > 0 and score in ("dot", "head"):
            name = "dot product" if score == "dot" else "head"
            raise ValueError(
                f"bm25_weight={self.bm25_weight}: BM25 is added to the cosine, and this search ranks by the {name}: "
                "pass `--score cosine`, or leave it out."
            )


def search(argv: list[str]) -> None:
    """Ranks the texts of a corpus for queries; prints or writes the best."""
    model_args, args, folder_args = parse_args(
        argv,
        ModelArguments,
        SearchArguments,
        FolderArguments,
        prog="hf-dse search",
        description="Rank the texts of a corpus for queries, by the similarity of their embeddings, alone or with "
        "BM25, or by the pair head of a student.",
    )
    from hf_dse.inference.encoding import encode_document, encode_query
    from hf_dse.inference.folder_index import read_passages
    from hf_dse.inference.index import check_index, is_folder_of_texts, read_corpus
    from hf_dse.inference.loading import load_model
    from hf_dse.inference.search import check_ranking, rank_groups, similarity_of
    from hf_dse.mining.bm25 import bm25_scores, import_bm25
    from hf_dse.teacher.rerankers import load_reranker
    from hf_dse.teacher.score_candidates import rerank

    if args.bm25_weight:
        import_bm25()
    output = None if args.output_file is None else output_path(args.output_file, (".jsonl",))
    is_folder = is_folder_of_texts(args.corpus)
    if not is_folder and folder_args != FolderArguments():
        raise ValueError(f"{args.corpus} is no folder of files: leave out `--chunk_size` and `--index_dir`.")
    # Of a folder these are whole files, its passages come from the index.
    columns, corpus, settings = read_corpus(args.corpus, args.text_column)
    asked, queries = (args.query, {}) if args.query else _read_queries(args)
    for name, texts in ((args.corpus, columns[args.text_column]), (args.queries or "--query", asked)):
        if not any(text.strip() for text in texts) if is_folder else not texts:
            raise ValueError(f"{name} holds no texts.")
    blank = next((row for row, text in enumerate(asked) if not text.strip()), None)
    if args.rerank is not None and blank is not None:
        raise ValueError(
            f"{args.queries or '--query'}: query {blank} is empty, and a reranker has nothing to compare: remove it, "
            "or leave out `--rerank`."
        )
    if args.id_column is not None and args.id_column not in columns:
        raise missing_column(args.corpus, args.id_column, columns, "Choose one with `--id_column`, or leave it out.")
    # Of an index of chunks.
    documents = columns[DOCUMENT_COLUMN] if settings.get("chunks") else None
    known = ID_COLUMNS if documents is None else (*ID_COLUMNS, DOCUMENT_COLUMN)
    id_column = args.id_column or next((name for name in known if name in columns), None)
    model, tokenizer = load_model(model_args)
    if type(model).__name__.endswith("ForSequenceClassification") and model.config.model_type != "dse":
        raise ValueError(
            f"{type(model).__name__} scores pairs of texts, not of embeddings: search with a student distilled from "
            "it (`hf-dse distill`), or with an encoder. It can order what they find: `--rerank`."
        )
    head = model if args.score == "head" else None
    logit = check_ranking(args.top_k, head, args.label, args.pool)
    is_pooled = head is not None and model.config.similarity == "mlp"
    if is_pooled and args.rerank is not None and args.pool < args.rerank_top:
        raise ValueError(f"pool={args.pool} is below rerank_top={args.rerank_top}: raise it to at least rerank_top.")
    similarity = args.score if args.score in ("cosine", "dot") else similarity_of(model)
    args.check_bm25(similarity)
    score = similarity if logit is None else f"head: {model.config.id2label[logit]}"  # type: ignore[index]
    score += " + BM25" if args.bm25_weight else ""
    for name in (score, *(["rerank"] if args.rerank else []), *([] if id_column else ["position"])):
        if name in columns:
            what = "rows" if name == "position" else "scores"
            raise ValueError(f"{args.corpus} has a column {name!r}, which is the name of the {what}: rename it.")
    for name in {"query", "results"} & queries.keys():
        raise ValueError(f"{args.queries} has a column {name!r}, which is a name in the output: rename it.")
    reranker = None
    if args.rerank is not None:
        source = {"dtype": model_args.dtype, "trust_remote_code": model_args.trust_remote_code}
        reranker = load_reranker(args.rerank, device=model_args.device, **source)

    options: dict[str, Any] = {"batch_size": model_args.batch_size, "max_length": model_args.max_length}
    if is_folder:
        files = dict(zip(columns["file"], columns[args.text_column], strict=True))
        columns, corpus = read_passages(args.corpus, files, model, tokenizer, model_args, folder_args)
        columns[args.text_column] = columns.pop("text")
    elif corpus is None:
        corpus = encode_document(model, tokenizer, columns[args.text_column], **options)
    else:
        check_index(args.corpus, settings, model, tokenizer, model_args.model_name_or_path, similarity, head)
    groups = columns["file"] if is_folder else documents
    added_scores = None
    if args.bm25_weight:
        added_scores = bm25_scores(asked, columns[args.text_column], args.bm25_weight, groups)
    found = rank_groups(
        encode_query(model, tokenizer, asked, truncate_dim=settings.get("truncate_dim"), **options),
        corpus,
        range(len(corpus)) if groups is None else groups,
        top_k=args.top_k if reranker is None else args.rerank_top,
        similarity=similarity,
        head=head,
        label=args.label,
        pool=args.pool,
        added_scores=added_scores,
        device=model.device,
    )
    hits = [[({score: value}, position) for value, position in texts] for texts in found]
    if reranker is not None:
        hits = rerank(reranker, asked, columns[args.text_column], hits, model_args.batch_size)
    results = []
    for number, (text, best) in enumerate(zip(asked, hits, strict=True)):
        query = {name: values[number] for name, values in queries.items()}
        shown = [
            scores
            | ({} if id_column else {"position": position})
            | {name: values[position] for name, values in columns.items()}
            for scores, position in best[: args.top_k]
        ]
        results.append({**query, "query": text, "results": shown})

    # Parquet files have types that JSON lacks, such as dates. Names of files may have bytes that are no characters.
    lines = [
        json.dumps(_finite(result), ensure_ascii=False, default=str, allow_nan=False).encode(errors="backslashreplace")
        + b"\n"
        for result in results
    ]
    is_json = args.format == "json"
    if args.query or output is None:
        if is_json:
            print(b"".join(lines).decode(), end="")
        else:
            names = [score] if reranker is None else ["rerank", score]
            place = PLACE if is_folder and id_column == "file" else id_column or "position"
            width = shutil.get_terminal_size().columns
            print(format_results(results, [*names, place, args.text_column], width, num_scores=len(names)))
    if output is not None:
        write_atomically(output, lambda file: file.writelines(lines))
        print(f"{len(results)} queries written to {output}", file=sys.stderr if is_json else sys.stdout)


def _read_queries(args: SearchArguments) -> tuple[list[str], dict[str, list]]:
    """The queries of a file, and its other columns."""
    path = to_path(str(args.queries))
    path = find_table(path, "queries") or path
    if path.suffix.lower() not in READERS or path.is_dir():
        columns = read_texts(path, "query")
        return columns.pop("query"), columns
    columns = read_columns(path)
    wanted = ["query", args.text_column] if args.query_column is None else [args.query_column]
    # A .txt has no columns: of those two files, the one with a `--text_column` is this one.
    if args.query_column is None and to_path(args.corpus).suffix.lower() != ".txt":
        wanted.append("text")
    name = next((name for name in wanted if name in columns), None)
    if name is None:
        raise missing_column(path, wanted[-1], columns, "Choose the one of the queries with `--query_column`.")
    check_texts(columns[name], path, name)
    return columns.pop(name), columns


def _finite(value: Any) -> Any:
    """The same without numbers that JSON has not, such as those of empty cells."""
    if isinstance(value, float) and not math.isfinite(value):
        return None
    if isinstance(value, dict):
        return {name: _finite(part) for name, part in value.items()}
    return [_finite(part) for part in value] if isinstance(value, list | tuple) else value


def format_results(results: Iterable[Mapping[str, Any]], names: Sequence[str], width: int, num_scores: int = 1) -> str:
    """
    Formats the results of each query as a table.

    Args:
        results (`Iterable[Mapping]`):
            The queries with their `results`.
        names (`Sequence[str]`):
            What to show of a text: the scores, the id or else the position, and the text.
        width (`int`):
            Longest line; longer ones are cut.
        num_scores (`int`, *optional*, defaults to 1):
            How many of the names are scores.

    Returns:
        `str`: the tables, with a blank line between them.
    """
    # Numbers are on the right of their columns.
    aligns = [str.rjust] * (1 + num_scores)
    aligns += [str.rjust if name == "position" else str.ljust for name in names[num_scores:]]
    blocks = []
    for result in results:
        rows = [["rank", *map(one_line, names)]]
        for number, found in enumerate(result["results"], start=1):
            scores = [f"{found[name]:.4f}" for name in names[:num_scores]]
            others = [
                f"{found['file']}:{found['line']}" if name == PLACE and name not in found else found[name]
                for name in names[num_scores:]
            ]
            rows.append([str(number), *scores, *map(one_line, others)])
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        lines = [f"query: {one_line(result['query'])}"]
        for row in rows:
            cells = zip(row, sizes, aligns, strict=True)
            lines.append("  ".join(align(cell, size) for cell, size, align in cells).rstrip())
        blocks.append("\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in lines))
    return "\n\n".join(blocks)
