# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidates of local files, folders in the layout of BEIR, and Hub data sets."""

import os
from collections.abc import Callable, Sequence
from contextlib import suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import TypeAlias

from datasets import Dataset, get_dataset_config_names
from huggingface_hub import metadata_load
from transformers.utils import logging
from yaml import YAMLError

from hf_dse.common.files import to_path
from hf_dse.data.arguments import DataArguments, to_arguments
from hf_dse.data.ranking_rows import DOCUMENT_IDS, QUERY, QUERY_ID, is_ranking, read_rankings
from hf_dse.data.rankings import Rankings, make_corpus
from hf_dse.data.sources import (
    SPLITS,
    Source,
    find_sources,
    is_on_hub,
    load_splits,
    read_source,
    source_columns,
    wanted_splits,
)
from hf_dse.data.tables import (
    READERS,
    Columns,
    check_rows,
    column_names,
    find_column,
    find_table,
    open_table,
    read_text,
    to_number,
)
from hf_dse.data.texts import join_titles, read_texts


logger = logging.get_logger(__name__)

DOC_ID = ("doc_id", "_id", "corpus-id", "corpus_id", "id")
RELEVANCE = ("relevance", "score", "label")
TREC = ("query-id", "iteration", "corpus-id", "score")

# Corpus, queries by their names, and a function that finds the judgements of each split, in the layout of BEIR.
Parts: TypeAlias = tuple[Source, dict[str, Source], Callable[[], dict[str, Source]]]


def is_ranking_data(data_args: DataArguments) -> bool:
    """Returns whether the data are queries with candidates, not pairs of sentences: by the folder or the columns."""
    if data_args.task_name is not None or data_args.num_labels is not None:
        return False
    if data_args.corpus_file is not None or _find_parts(data_args.dataset_name):
        return True
    found = find_sources(data_args)
    first = next((found[split] for split in (*SPLITS, *found) if split in found), None)
    return first is not None and is_ranking(source_columns(first))


def load_rankings(
    data_args: DataArguments | str | os.PathLike, splits: Sequence[str] | None = None
) -> dict[str, Rankings]:
    """
    Reads queries with candidates, and checks every row.

    Args:
        data_args (`DataArguments` or `str`):
            The source, or only its name. `dataset_name` is a folder in the layout of BEIR (`corpus`, `queries` and
            `qrels/train`, ... as jsonl, tsv or parquet), a folder with a file for each split, or a data set of the Hub
            in one of these forms; `train_file`, `validation_file` and `test_file` are single files. Their rows are
            lists (`query`, `documents` or `document_ids`, `labels`, `teacher_logits`) or have a format of
            sentence-transformers or FlagEmbedding. Ids in them are those of `corpus_file`, which is any corpus of
            [`load_corpus`]; with it, rows may be queries alone.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to those of train, validation and test that exist.

    Returns:
        `dict[str, Rankings]`: the rankings of each split. In the layout of BEIR the candidates of a query are the
        judged documents, and the splits share the corpus.
    """
    data_args = to_arguments(data_args)
    name = data_args.dataset_name
    corpus, texts = (None, None) if data_args.corpus_file is None else _read_corpus(data_args.corpus_file)
    found: dict[str, Callable[[], Columns]] = {}
    parts = _find_parts(name)
    if parts is not None:
        corpus, texts = _read_parts(str(name), parts)
        found = {split: partial(_read_judgements, part, split) for split, part in parts[2]().items()}
        if "dev" in found:
            found.setdefault("validation", found.pop("dev"))
        data_args = replace(data_args, dataset_name=None)
    found |= {split: partial(read_source, source) for split, source in find_sources(data_args).items()}
    wanted = wanted_splits(found, splits, name or "The data")
    shared = None if corpus is None else make_corpus(corpus, data_args.corpus_file or str(name))
    result = {}
    for split in wanted:
        rankings = read_rankings(found[split](), shared, texts, f"Split {split!r}")
        limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
        result[split] = rankings if limit is None else rankings.select(range(min(limit, len(rankings))))
    return result


def load_corpus(data_args: DataArguments | str | os.PathLike) -> Dataset:
    """
    Reads documents without queries.

    Args:
        data_args (`DataArguments` or `str`):
            The source, `corpus_file` or `dataset_name`, or only its name: a .txt file with one document per line, a
            folder with one per .txt or .md file, or any corpus of [`load_rankings`].

    Returns:
        `datasets.Dataset`: the columns `doc_id`, `text` and, if there are titles, `title`.
    """
    data_args = to_arguments(data_args)
    name = data_args.corpus_file or data_args.dataset_name
    if name is None:
        raise ValueError("There are no documents: name them with `--corpus_file` or `--dataset_name`.")
    return make_corpus(_read_corpus(name)[0], name)


def _read_corpus(name: str) -> tuple[Columns, dict[str, str] | None]:
    """Returns the documents of plain text, a table or a folder, and the queries of a folder in the layout of BEIR."""
    parts = _find_parts(name)
    if parts is not None:
        return _read_parts(name, parts)
    path = to_path(name)
    if not path.exists() and not path.suffix and is_on_hub(name):
        raise ValueError(f"{name} has no corpus: name one with `corpus` and `queries`, as those of BEIR.")
    if path.is_file() and path.suffix.lower() != ".txt":
        return _corpus_columns(open_table(path), name), None
    columns = read_texts(path)
    if path.is_dir() and "file" not in columns:
        return _corpus_columns(columns, name), None
    # The number of a line is its id, also of those after blank lines.
    ids = columns.get("file", list(range(len(columns["text"]))))
    kept = [(doc_id, text) for doc_id, text in zip(ids, columns["text"], strict=True) if text.strip() or path.is_dir()]
    if len(kept) < len(ids):
        logger.warning(f"{name}: {len(ids) - len(kept)} blank lines are left out.")
    return {"doc_id": [doc_id for doc_id, _ in kept], "text": [text for _, text in kept]}, None


def _corpus_columns(columns: Columns, where: str) -> dict[str, list]:
    """Returns `doc_id`, `text`, which begins with the title where there is one, and the titles if any."""
    doc_id = find_column(columns, where, DOC_ID)
    texts, titles = join_titles(columns, where)
    return {"doc_id": columns[doc_id][:], "text": texts} | ({"title": titles} if any(titles) else {})


# The layout of BEIR


def _find_parts(name: str | None) -> Parts | None:
    """Returns the parts of a folder or a Hub data set in the layout of BEIR or MTEB; `None` for others."""
    if name is None:
        return None
    folder = to_path(name)
    table = find_table(folder, "corpus")
    if table is not None:
        files = [file for file in sorted(folder.glob("queries*")) if file.suffix.lower() in READERS]
        return [table], {str(file): [file] for file in files}, partial(_find_judgements, folder)
    configs = _config_names(name)
    if not {"corpus", "queries"} <= {*configs}:
        return None
    corpora = load_splits(name, "corpus")
    if len(corpora) > 1:
        raise ValueError(
            f"{name} has a corpus for each of the splits {', '.join(corpora)}, and here all splits share one: save "
            "one as a file, and pass it as `--corpus_file`, with files of queries."
        )
    # MTEB keeps the judgements in the same data set, BEIR in one of its own.
    own = next(((name, config) for config in ("default", "qrels") if config in configs), (f"{name}-qrels", None))
    return next(iter(corpora.values())), load_splits(name, "queries"), partial(load_splits, *own)


def _config_names(name: str) -> list[str]:
    """Returns the configurations of a Hub data set, or of a local copy, whose card lists them."""
    path = to_path(name)
    if not path.exists():
        return get_dataset_config_names(name) if is_on_hub(name) else []
    card = path / "README.md"
    configs: list = []
    with suppress(ValueError, YAMLError):
        configs = ((metadata_load(card) if card.is_file() else None) or {}).get("configs") or []
    return [config["config_name"] for config in configs if isinstance(config, dict) and "config_name" in config]


def _find_judgements(folder: Path) -> dict[str, Source]:
    """Returns the judgements of each split: `qrels/test.tsv`, `qrels_test.parquet`, or `qrels.tsv` for a test set."""
    files: dict[str, Source] = {}
    for split in ("train", "validation", "dev", "test"):
        stems = [f"qrels/{split}", f"qrels_{split}", *(["qrels"] if split == "test" else [])]
        paths = (folder / f"{stem}{ending}" for stem in stems for ending in (".tsv", ".txt", *READERS))
        found = next((path for path in paths if path.is_file()), None)
        if found is not None:
            files[split] = [found]
    if not files:
        raise FileNotFoundError(f"{folder} has a corpus, but no judgements: qrels/test.tsv, or jsonl or parquet.")
    return files


def _read_parts(name: str, parts: Parts) -> tuple[Columns, dict[str, str]]:
    """Returns the corpus and the texts of the queries by their ids."""
    corpus, queries, _ = parts
    texts: dict[str, str] = {}
    for where, source in queries.items():
        columns = read_source(source)
        names = column_names(columns)
        if where.endswith(".tsv") and len(names) == 2 and names[0] not in QUERY_ID:
            # The queries of MS MARCO have no header.
            columns = {key: [name, *columns[name]] for key, name in zip(("query_id", "query"), names, strict=True)}
        query_id, text = find_column(columns, where, QUERY_ID), find_column(columns, where, (*QUERY, "text"))
        for key, value in zip(map(str, columns[query_id][:]), columns[text][:], strict=True):
            if texts.setdefault(key, value) != value:
                files = " and ".join(queries)
                raise ValueError(f"{files}: the query {key!r} is there twice, with two texts: remove one of the two.")
    where = str(corpus[0]) if isinstance(corpus, list) else f"{name}, corpus"
    return _corpus_columns(read_source(corpus), where), texts


def _read_judgements(source: Source, split: str) -> Columns:
    """Returns judgements as lists: the documents of each query and their grades."""
    where = f"Judgements of split {split!r}" if isinstance(source, Dataset) else str(source[0])
    columns: Columns | None = None
    if isinstance(source, list) and source[0].suffix in (".tsv", ".txt"):
        rows = [line.split() for line in read_text(source[0]).split("\n") if line.strip()]
        # The format of TREC has no header.
        if rows and all(len(row) == len(TREC) and to_number(row[3]) is not None for row in rows):
            columns = {name: list(cells) for name, cells in zip(TREC, zip(*rows, strict=True), strict=True)}
    if columns is None:
        columns = read_source(source)
    if any(name in column_names(columns) for name in DOCUMENT_IDS):
        return columns
    # The fifth name of a document's id may be a judgement's own.
    wanted = [find_column(columns, where, names) for names in (QUERY_ID, DOC_ID[:4], RELEVANCE)]
    queries, documents, grades = (columns[name][:] for name in wanted)
    problem = "the relevance {} is not a whole number: judgements are grades such as 0, 1 and 2"
    check_rows(grades, lambda grade: (number := to_number(grade)) is not None and number % 1 == 0, where, problem)
    if not queries:
        raise ValueError(f"{where} has no judgements.")
    lists: dict[str, dict[str, float]] = {}
    for query, document, grade in zip(queries, documents, grades, strict=True):
        # A grade below 0 is not relevant. The last of two judgements counts, as in BEIR.
        lists.setdefault(str(query), {})[str(document)] = max(0.0, float(grade))
    return {
        "query_id": list(lists),
        "document_ids": [list(judged) for judged in lists.values()],
        "labels": [list(judged.values()) for judged in lists.values()],
    }
