# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidates of files, Hub data sets and folders in the layout of BEIR; documents."""

import os
from collections.abc import Collection, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any, TypeAlias

from datasets import Dataset
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.data.options import CHUNK_SIZE, DataArguments, check_ranking_options, to_arguments
from hf_dse.data.rankings import QUERY, QUERY_ID, Rankings, is_ranking, make_corpus, read_rankings, to_ids
from hf_dse.data.report import report_corpus
from hf_dse.data.sources import SPLITS, find_sources, find_table, folder_splits, wanted_splits
from hf_dse.data.tables import (
    READERS,
    Columns,
    check_rows,
    column_names,
    find_column,
    is_filled,
    open_table,
    read_text,
    to_number,
)
from hf_dse.data.texts import is_folder_of_files, read_columns


logger = logging.get_logger(__name__)

# Loaded, or the name of a data set, a folder or a file.
Data: TypeAlias = Dataset | Rankings | DataArguments | str | os.PathLike

# The path of a file is its id in a folder.
DOC_ID = ("doc_id", "_id", "corpus-id", "corpus_id", "id", "file")
RELEVANCE = ("relevance", "score", "label")
# pytrec_eval counts the documents of each grade up to the highest.
MAX_GRADE = 10_000
TREC = ("query-id", "iteration", "corpus-id", "score")


def options_of(data: Data, **options: Any) -> DataArguments:
    """How data are read, with the options that are not `None`; loaded data have these alone."""
    data_args = to_arguments(DataArguments() if isinstance(data, Dataset | Rankings) else data, **options)
    if isinstance(data, Rankings):
        check_ranking_options(data_args)
    return data_args


def is_ranking_data(data_args: DataArguments) -> bool:
    """Returns whether the data are queries with candidates, not pairs of sentences: by the folder or the columns."""
    if data_args.task_name is not None or data_args.num_labels is not None:
        return False
    name = data_args.dataset_name
    if data_args.corpus_file is not None or (name and find_table(name, "corpus")):
        return True
    found = find_sources(data_args)
    first = next((found[split] for split in (*SPLITS, *found) if split in found), None)
    return first is not None and is_ranking(column_names(open_table(first)))


def load_rankings(
    data_args: DataArguments | str | os.PathLike, splits: Sequence[str] | None = None
) -> dict[str, Rankings]:
    """
    Reads queries with candidates, and checks every row.

    Args:
        data_args (`DataArguments` or `str`):
            The source, or only its name: a folder in the layout of BEIR (`corpus`, `queries`, `qrels/train`), or rows
            with `query`, `documents` or `document_ids`, `labels` and `teacher_logits`, or with `positive` and
            `negative` as in sentence-transformers. Ids are those of `corpus_file`, a corpus of [`load_corpus`]; with
            it, rows may be queries alone.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to those of train, validation and test that exist.

    Returns:
        `dict[str, Rankings]`: the rankings of each split. In the layout of BEIR the candidates of a query are the
        judged documents.
    """
    data_args = to_arguments(data_args)
    check_ranking_options(data_args)
    name, corpus_name = data_args.dataset_name, data_args.corpus_file
    judged: dict[str, Path] = {}
    if name and find_table(name, "corpus"):
        corpus_name, judged = name, _find_judgements(to_path(name))
        data_args = replace(data_args, dataset_name=None)
    found = find_sources(data_args)
    corpus = None if corpus_name is None else load_corpus(corpus_name)
    chunk_size = unit_of(replace(data_args, corpus_file=corpus_name))
    texts = _read_queries(to_path(corpus_name)) if corpus_name and find_table(corpus_name, "corpus") else None
    result = {}
    for split in wanted_splits(judged | found, splits, name or "The data"):
        rows = open_table(found[split]) if split in found else _read_judgements(judged[split])
        rankings = read_rankings(rows, corpus, texts, f"Split {split!r}", data_args.relevance_threshold)
        # A file of mined candidates says their unit itself.
        if rankings.chunk_size is None:
            rankings = replace(rankings, chunk_size=chunk_size)
        elif rankings.has_passages and data_args.chunk_size not in (None, rankings.chunk_size):
            raise ValueError(
                f"chunk_size={data_args.chunk_size}: the candidates of split {split!r} are passages of "
                f"{rankings.chunk_size} tokens already: leave it out, or mine them anew."
            )
        limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
        result[split] = rankings if limit is None else rankings.select(range(min(limit, len(rankings))))
        result[split].report().log(f"Split {split!r}")
    return result


def unit_of(data_args: DataArguments) -> int | None:
    """
    The tokens of the passages by which a corpus is searched, by default those of files; 0 is whole texts, as `None`,
    the default of other data.
    """
    if data_args.chunk_size is not None:
        return data_args.chunk_size
    name = data_args.corpus_file or data_args.dataset_name
    if name is None or not is_folder_of_files(name):
        return None
    # A text beside the tables of a data set is none of its documents.
    return None if data_args.corpus_file is None and folder_splits(to_path(name)) else CHUNK_SIZE


def load_corpus(data_args: DataArguments | str | os.PathLike) -> Dataset:
    """
    Reads documents without queries.

    Args:
        data_args (`DataArguments` or `str`):
            The source, `corpus_file` or `dataset_name`, or only its name: a .txt file with one document per line, a
            folder with one per .txt or .md file, a table, or a folder in the layout of BEIR.

    Returns:
        `datasets.Dataset`: the columns `doc_id`, `text`, after its title if there is one, and then `joined_title`.
    """
    data_args = to_arguments(data_args)
    name = data_args.corpus_file or data_args.dataset_name
    if name is None:
        raise ValueError("There are no documents: name them with `--corpus` or `--dataset`.")
    columns = read_columns(name)
    names = column_names(columns)
    found: dict[str, list] = {key: columns[key][:] for key in ("text", "title") if key in names}
    if to_path(name).suffix.lower() == ".txt":
        # The number of a line is its id, also of those after blank lines.
        found["doc_id"] = [row for row, text in enumerate(found["text"]) if is_filled(text)]
        if num_blank := len(found["text"]) - len(found["doc_id"]):
            logger.warning(f"{name}: {num_blank} blank lines are left out.")
        found["text"] = [found["text"][row] for row in found["doc_id"]]
    elif find_table(name, "corpus") or any(key in DOC_ID for key in names):
        found["doc_id"] = columns[find_column(columns, name, DOC_ID)][:]
    return make_corpus(found, name)


def choose_split(splits: Collection[str]) -> str:
    """The split of judged queries that is searched, if none is named."""
    return next((name for name in ("test", "validation") if name in splits), next(iter(splits)))


def to_rankings(data: Data, split: str | None = None, chunk_size: int | None = None) -> Rankings:
    """
    Rankings themselves, or a split of those that a name stands for, by default that of [`choose_split`]. `chunk_size`
    replaces that of their documents.
    """
    if not isinstance(data, Rankings):
        splits = load_rankings(to_arguments(data, chunk_size=chunk_size), None if split is None else [split])
        return splits[split or choose_split(splits)]
    if chunk_size is None or chunk_size == data.chunk_size:
        return data
    if data.has_passages:
        raise ValueError(f"chunk_size={chunk_size}: the documents are passages already, of {data.chunk_size}.")
    return replace(data, chunk_size=chunk_size)


def to_corpus(data: Data, chunk_size: int | None = None) -> tuple[Dataset, int | None]:
    """Documents without queries, loaded or by their name, and the tokens of the passages that they are searched by."""
    if isinstance(data, Dataset):
        return make_corpus(data, "The documents"), chunk_size
    args = to_arguments(data, chunk_size=chunk_size)
    if args.relevance_threshold is not None:
        raise ValueError(
            f"relevance_threshold={args.relevance_threshold} is for judged queries, and these are documents alone."
        )
    corpus, size = load_corpus(args), unit_of(args)
    report_corpus(corpus["text"][:], size).log("The corpus")
    return corpus, size


# The layout of BEIR


def _find_judgements(folder: Path) -> dict[str, Path]:
    """Returns the judgements of each split: `qrels/test.tsv`, `qrels_test.parquet`, or `qrels.tsv` for a test set."""
    files = {}
    for split in ("train", "validation", "dev", "test"):
        stems = [f"qrels/{split}", f"qrels_{split}", *(["qrels"] if split == "test" else [])]
        paths = (folder / f"{stem}{ending}" for stem in stems for ending in (".tsv", ".txt", *READERS))
        found = next((path for path in paths if path.is_file()), None)
        if found is not None:
            files["validation" if split == "dev" else split] = found
    if not files:
        raise FileNotFoundError(f"{folder} has a corpus, but no judgements: qrels/test.tsv, or jsonl or parquet.")
    return files


def _read_queries(folder: Path) -> dict[str, str]:
    """Returns the texts of the queries by their ids."""
    texts: dict[str, str] = {}
    files = [path for path in sorted(folder.glob("queries*")) if path.suffix.lower() in READERS]
    files = files or list(filter(None, [find_table(folder, "queries")]))
    for path in files:
        columns = open_table(path)
        names = column_names(columns)
        # The queries of MS MARCO, ids and texts, have no header.
        if path.suffix.lower() == ".tsv" and len(names) == 2 and names[0] not in (*QUERY_ID, *QUERY):
            columns = {key: [name, *columns[name]] for key, name in zip(("query_id", "query"), names, strict=True)}
        query_id, text = find_column(columns, path, QUERY_ID), find_column(columns, path, (*QUERY, "text"))
        ids = to_ids(columns[query_id][:], f"{path}: the query id")
        check_rows(columns[text][:], is_filled, f"{path}, query", "the text is {}, not a text", ids)
        for key, value in zip(ids, columns[text][:], strict=True):
            if texts.setdefault(key, value) != value:
                where = " and ".join(map(str, files))
                raise ValueError(f"{where}: the query {key!r} is there twice, with two texts: remove one of the two.")
    return texts


def _read_judgements(path: Path) -> Columns:
    """Returns judgements as rows of one document each."""
    lines = read_text(path).splitlines() if path.suffix.lower() in (".tsv", ".txt") else []
    rows = [row for line in lines if (row := line.split()) and not row[0].startswith("#")]
    # The format of TREC has no header.
    is_trec = bool(rows) and all(len(row) == len(TREC) and to_number(row[3]) is not None for row in rows)
    if rows and not is_trec and to_number(rows[0][-1]) is not None:
        raise ValueError(
            f"{path}: judgements have a header, such as `query-id corpus-id score` with tabs between, or the four "
            f"columns of TREC, query, iteration, document and grade, in each line; the first line is {lines[0]!r}."
        )
    columns = dict(zip(TREC, map(list, zip(*rows, strict=True)), strict=True)) if is_trec else open_table(path)
    # The fifth name of a document's id may be a judgement's own.
    wanted = [find_column(columns, path, names) for names in (QUERY_ID, DOC_ID[:4], RELEVANCE)]
    queries, documents, grades = (columns[name][:] for name in wanted)
    queries, documents = to_ids(queries, f"{path}: the query id"), to_ids(documents, f"{path}: the document id")
    problem = f"the relevance {{}} is not a whole number up to {MAX_GRADE:,}"
    check_rows(grades, lambda grade: to_number(grade) in range(-MAX_GRADE, MAX_GRADE + 1), str(path), problem)
    if not queries:
        raise ValueError(f"{path} has no judgements.")
    judged = dict(zip(zip(queries, documents, strict=True), grades, strict=True))
    if len(judged) < len(grades):
        logger.warning(f"{path}: {len(grades) - len(judged)} judgements are repeated: the last counts, as in BEIR.")
    return {
        "query_id": [query for query, _ in judged],
        "document_id": [document for _, document in judged],
        # A grade below 0 is not relevant.
        "label": [max(0, float(grade)) for grade in judged.values()],
    }
