# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse search` and `hf-dse encode`."""

import shutil
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

from hf_dse.cli.parsing import DTYPES, MODEL, LoadArguments
from hf_dse.common.display import one_line
from hf_dse.common.files import output_path, write_atomically
from hf_dse.common.options import HfArg
from hf_dse.data.options import CHUNK_SIZE
from hf_dse.retrieval.options import RERANK_WEIGHT, RERANKED, check_reranking


@dataclass
class SearchArguments:
    """Queries, the corpus, and where to write the results."""

    model_name_or_path: str = field(metadata=MODEL)
    corpus: str = HfArg(help="A folder of .txt and .md files; or texts: .txt or a table.")
    query: list[str] = HfArg(help="One or more queries.")
    text_column: str = HfArg(default="text", help="Column of the texts in tables.")
    top_k: int = HfArg(default=10, help="Texts per query; of each only the best passage.")
    bm25_weight: float | None = HfArg(
        default=None,
        help="Adds this weight times BM25 / (the best BM25 of the query) to the cosine, such as 0.3. Default: the "
        "weight that was fitted for the model and kept in its folder, else 0.",
    )
    rerank: str | None = HfArg(
        default=None, help="Hub id or folder of a reranker, which reads the best texts, up to its own limit."
    )
    rerank_top: int | None = HfArg(
        default=None,
        help=f"Texts of each query that the reranker reads, at least `--top_k`. Default: {RERANKED}.",
    )
    rerank_weight: float | None = HfArg(
        default=None,
        help="Share of the reranker's score beside the search's, from 0 to 1, the reranker's order alone. "
        f"Default: {RERANK_WEIGHT}; `hf-dse assess` fits it.",
    )
    chunk_size: int | None = HfArg(
        default=None,
        help=f"Tokens of passages. Default: of files what the model learned, or {CHUNK_SIZE}; else 0, whole texts.",
    )
    index_dir: str | None = HfArg(default=None, help="Folder of the index. Default: in the cache of Hugging Face.")
    output_file: str | None = HfArg(default=None, help=".jsonl file for the results: a line per query.")

    def __post_init__(self) -> None:
        check_reranking(self.rerank, rerank_top=self.rerank_top, rerank_weight=self.rerank_weight)


def search(args: SearchArguments, load_args: LoadArguments) -> None:
    """
    Rank the texts of a corpus for queries, by the similarity of their embeddings, alone or with BM25.

    hf-dse search --model student/model --corpus docs --query 'How do planes fly?'
    """
    from hf_dse.common.loading import LOADING
    from hf_dse.data.tables import to_json
    from hf_dse.retrieval.folder import search_corpus
    from hf_dse.retrieval.rerankers import load_reranker
    from hf_dse.retrieval.sentence_transformer import to_sentence_transformer

    output = None if args.output_file is None else output_path(args.output_file, (".jsonl",))
    names = ("text_column", "top_k", "bm25_weight", "rerank_top", "rerank_weight", "chunk_size", "index_dir")
    loading = {name: getattr(load_args, name) for name in LOADING}
    results, shown = search_corpus(
        to_sentence_transformer(args.model_name_or_path, **load_args.loading),
        args.model_name_or_path,
        args.corpus,
        args.query,
        reranker=args.rerank and load_reranker(args.rerank, **loading),
        batch_size=load_args.batch_size,
        **{name: getattr(args, name) for name in names},
    )
    print(format_results(results, shown, shutil.get_terminal_size().columns))
    if output is not None:
        write_atomically(output, lambda file: file.writelines(map(to_json, results)))
        print(f"{len(results)} queries written to {output}")


def format_results(results: Iterable[Mapping[str, Any]], names: Sequence[str], width: int) -> str:
    """The results of each query as a table of `names`: scores, a place and a text. Longer lines are cut."""
    blocks, num_scores = [], len(names) - 2
    for result in results:
        rows = [["rank", *map(one_line, names)]]
        for number, found in enumerate(result["results"], start=1):
            found = {**found, "file:line": f"{found.get('file')}:{found.get('line')}"}
            scores = [f"{found[name]:.4f}" for name in names[:num_scores]]
            rows.append([str(number), *scores, *(one_line(found[name]) for name in names[num_scores:])])
        sizes = [max(map(len, column)) for column in zip(*rows, strict=True)]
        # Numbers are on the right of their columns.
        align = [str.rjust] * (1 + num_scores) + [str.ljust] * (len(names) - num_scores)
        lines = [f"query: {one_line(result['query'])}"]
        for row in rows:
            cells = [place(cell, size) for place, cell, size in zip(align, row, sizes, strict=True)]
            lines.append("  ".join(cells).rstrip())
        blocks.append("\n".join(line if len(line) <= width else line[: width - 3] + "..." for line in lines))
    return "\n\n".join(blocks)


@dataclass
class EncodeArguments:
    """Which texts to embed, and where to write the vectors."""

    model_name_or_path: str = field(metadata=MODEL)
    input: str = HfArg(
        help="Texts: .txt with one per line, a table, or a folder. The column `text` is read after `title`."
    )
    output: str = HfArg(
        help=".parquet: the texts with their other columns and `embedding`. .npy: an array, beside it .ids.jsonl."
    )
    text_column: str = HfArg(default="text", help="Column of the texts in a table.")
    prompt_name: str = HfArg(
        default="document", help="Prompt of the model before each text: document, query or another."
    )
    normalize: bool = HfArg(default=False, help="Scale the vectors to unit length.")


@dataclass
class VectorLoadArguments(LoadArguments):
    """How to run a model whose vectors are written."""

    dtype: DTYPES = HfArg(
        default="float32",
        help="Data type of the weights; auto: bfloat16 on a GPU or CPU that computes in it, otherwise float32. "
        "bfloat16 changes a vector by up to 0.002 in a dimension.",
    )


def encode(args: EncodeArguments, load_args: VectorLoadArguments) -> None:
    """
    Compute the embeddings of texts.

    hf-dse encode --model student/model --input texts.txt --output vectors.npy
    """
    from hf_dse.retrieval.folder import encode_file
    from hf_dse.retrieval.sentence_transformer import to_sentence_transformer

    options = dict(vars(args))
    model = to_sentence_transformer(options.pop("model_name_or_path"), **load_args.loading)
    number, size = encode_file(model, options.pop("input"), batch_size=load_args.batch_size, **options)
    print(f"{number} vectors of size {size} written to {args.output}")
