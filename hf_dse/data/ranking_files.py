# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Queries with candidates of local files, folders in the layout of BEIR, and Hub data sets."""

import csv
import io
import math
from collections.abc import Sequence
from functools import partial
from pathlib import Path
from typing import Any

from datasets import get_dataset_config_names, load_dataset
from transformers.utils import logging

from hf_dse.common.files import to_path
from hf_dse.common.options import check_arguments
from hf_dse.data.pairs import SPLITS, DataArguments, concatenate_files, folder_files, wanted_splits
from hf_dse.data.ranking_rows import DOCUMENT_IDS, QUERY, QUERY_ID, is_ranking, read_rankings
from hf_dse.data.rankings import Rankings, make_corpus
from hf_dse.data.tables import (
    READERS,
    TEXT,
    find_columns,
    find_table,
    join_titles,
    parse_json,
    read_columns,
    read_schema,
    read_text,
    read_texts,
)


logger = logging.get_logger(__name__)

DOC_ID = ("doc_id", "_id", "corpus-id", "corpus_id", "id")
RELEVANCE = ("relevance", "score", "label")

# Names of the validation split.
SYNONYMS = {"validation": ("validation", "dev")}


def is_ranking_data(data_args: DataArguments) -> bool:
    """Whether the data are queries with candidates, not pairs of sentences: by the folder or the columns."""
    if data_args.task_name is not None or data_args.num_labels is not None:
        return False
    if data_args.corpus_file is not None:
        return True
    name = data_args.dataset_name
    if name is not None:
        folder = to_path(name)
        if find_table(folder, "corpus") is not None:
            return True
        if folder.is_file():
            return is_ranking(_column_names(folder))
        if folder.is_dir():
            by_split = folder_files(folder)
            paths = [path for split in (*SPLITS, *by_split) for path in by_split.get(split, []) if path.is_file()]
            return bool(paths) and is_ranking(_column_names(paths[0]))
        return _is_on_hub(name) and (
            _hub_prefix(data_args, get_dataset_config_names(name)) is not None or _is_hub(data_args)
        )
    files = [getattr(data_args, f"{split}_file") for split in SPLITS]
    named = [to_path(file) for file in files if file is not None]
    return bool(named) and named[0].is_file() and is_ranking(_column_names(named[0]))


def load_rankings(data_args: DataArguments, splits: Sequence[str] | None = None) -> dict[str, Rankings]:
    """
    Reads queries with candidates, and checks every row.

    Args:
        data_args (`DataArguments`):
            The source. `dataset_name` is a folder in the layout of BEIR (`corpus`, `queries` and `qrels/train`, ... as
            jsonl, tsv or parquet), a folder with a file for each split, or a data set of the Hub in one of these
            forms; `train_file`, `validation_file` and `test_file` are single files. Rows have a format that
            [`read_rankings`] takes. Ids in them are those of `corpus_file`, which is any corpus of [`load_corpus`];
            with it, rows may be queries alone.
        splits (`Sequence[str]`, *optional*):
            The splits to read. Defaults to those of train, validation and test that exist.

    Returns:
        `dict[str, Rankings]`: the rankings of each split. In the layout of BEIR the candidates of a query are the
        documents that were judged, and the splits share the corpus.

    Raises:
        `FileNotFoundError`: if a file, a folder or a split does not exist.
        `TypeError`: if `data_args` is something else, such as a name.
        `ValueError`: as [`read_rankings`].
    """
    check_arguments(data_args, DataArguments, 'dataset_name="folder"')
    name = data_args.dataset_name
    folder = None if name is None else to_path(name)
    corpus, texts = None, None
    if data_args.corpus_file is not None:
        corpus, texts = _read_corpus(to_path(data_args.corpus_file))
    found: dict[str, Any] = {}
    if folder is not None and find_table(folder, "corpus") is not None:
        corpus, texts = _read_corpus(folder)
        found = {split: partial(_read_qrels, path) for split, path in _qrels_files(folder).items()}
    elif folder is not None and folder.is_dir():
        found = {split: partial(concatenate_files, paths) for split, paths in folder_files(folder).items()}
    elif folder is not None and folder.is_file():
        found = {"train": partial(read_columns, folder)}
    elif name is not None and _is_on_hub(name):
        corpus, texts, found = _hub_sources(data_args)
    elif name is not None:
        raise FileNotFoundError(f"{name}: there is no such folder.")
    for split in SPLITS:
        file = getattr(data_args, f"{split}_file")
        if file is not None:
            found[split] = partial(read_columns, file)
    wanted = wanted_splits(found, splits, name or "The data")
    shared = None if corpus is None else make_corpus(corpus, data_args.corpus_file or str(name))
    result = {}
    for split in wanted:
        rankings = read_rankings(found[split](), shared, texts, f"Split {split!r}")
        limit = data_args.max_train_samples if split == "train" else data_args.max_eval_samples
        result[split] = rankings if limit is None else rankings.select(range(min(limit, len(rankings))))
    return result


def load_corpus(data_args: DataArguments) -> Any:
    """
    Reads documents without queries.

    Args:
        data_args (`DataArguments`):
            The source, `corpus_file` or `dataset_name`: a .txt file with one document per line, a folder with one per
            .txt or .md file, or any corpus of [`load_rankings`].

    Returns:
        `datasets.Dataset`: the columns `doc_id`, `text` and, if there are titles, `title`.

    Raises:
        `FileNotFoundError`: if there is no such file, or no corpus in a folder.
        `TypeError`: if `data_args` is something else, such as a name.
        `ValueError`: without a source, for an empty corpus, or a document that is not a text.
    """
    check_arguments(data_args, DataArguments, 'corpus_file="folder"')
    name = data_args.corpus_file or data_args.dataset_name
    if name is None:
        raise ValueError("There are no documents: name them with `--corpus_file` or `--dataset_name`.")
    path = to_path(name)
    if path.exists() or data_args.corpus_file is not None or not _is_on_hub(name):
        columns, _ = _read_corpus(path)
    else:
        columns, _, _ = _hub_sources(data_args)
        if columns is None:
            raise ValueError(f"{name} has no corpus: name one with `corpus` and `queries`, as those of BEIR.")
    return make_corpus(columns, name)


def _column_names(path: Path) -> list[str]:
    if path.suffix.lower() == ".parquet":
        return read_schema(path).names
    if path.suffix.lower() == ".jsonl":
        # What is no text is an error when all of the file is read.
        with path.open(encoding="utf-8-sig", errors="replace") as file:
            first = next((line for line in file if line.strip()), "")
        return list(_first_row(first))
    return list(read_columns(path)) if path.suffix.lower() in READERS else []


def _first_row(line: str) -> dict:
    try:
        row = parse_json(line)
    except ValueError:
        return {}
    return row if isinstance(row, dict) else {}


def _read_corpus(path: Path) -> tuple[dict[str, list], dict[str, str] | None]:
    """The documents of plain text, a table or a folder with `corpus.*`; for the last also its queries by id."""
    file = find_table(path, "corpus") if path.is_dir() else path
    if file is None or file.suffix.lower() == ".txt":
        columns = read_texts(path)
        return {"doc_id": columns.get("file", list(range(len(columns["text"])))), "text": columns["text"]}, None
    columns = corpus_columns(read_columns(file), str(file))
    if not path.is_dir():
        return columns, None
    texts: dict[str, str] = {}
    for queries in sorted(path.glob("queries*")):
        if queries.suffix.lower() in READERS:
            texts |= query_texts(read_columns(queries), str(queries))
    return columns, texts


def corpus_columns(columns: dict[str, list], where: str) -> dict[str, list]:
    """Documents with `doc_id`, `text`, which begins with the title where there is one, and the titles if any."""
    doc_id, _ = find_columns(columns, where, DOC_ID, TEXT)
    documents = {"doc_id": list(columns[doc_id]), "text": join_titles(columns, where)}
    if any(columns.get("title", [])):
        documents["title"] = ["" if title is None else title for title in columns["title"]]
    return documents


def query_texts(columns: dict[str, list], where: str) -> dict[str, str]:
    """The texts of queries by their ids."""
    query_id, text = find_columns(columns, where, QUERY_ID, (*QUERY, "text"))
    return {str(key): value for key, value in zip(columns[query_id], columns[text], strict=True)}


def _qrels_files(folder: Path) -> dict[str, Path]:
    """The judgements of each split: `qrels/test.tsv`, `qrels_test.parquet`, or `qrels.tsv` for a test set."""
    endings = (".tsv", *READERS)
    files: dict[str, Path] = {}
    for split in SPLITS:
        stems = [f"{prefix}{name}" for name in SYNONYMS.get(split, (split,)) for prefix in ("qrels/", "qrels_")]
        stems += ["qrels"] if split == "test" else []
        for stem in stems:
            path = next((path for ending in endings if (path := folder / f"{stem}{ending}").is_file()), None)
            if path is not None:
                files.setdefault(split, path)
    if not files:
        raise FileNotFoundError(f"{folder} has a corpus, but no judgements: qrels/test.tsv, or jsonl or parquet.")
    return files


def _read_qrels(path: Path) -> dict[str, list]:
    """Judgements as rows of ids: one for each query."""
    if path.suffix == ".tsv":
        file = io.StringIO(read_text(path, newline=""), newline="")
        rows = [row for row in csv.reader(file, delimiter="\t", quoting=csv.QUOTE_NONE) if row]
        if not rows:
            raise ValueError(f"{path} is empty.")
        if len(rows[0]) == 4:
            # The format of TREC has no header: query, iteration, document, relevance.
            rows = [["query-id", "iteration", "corpus-id", "score"], *rows]
        wrong = next((number for number, row in enumerate(rows) if len(row) != len(rows[0])), None)
        if wrong is not None:
            raise ValueError(f"{path}, line {wrong + 1}: {len(rows[wrong])} cells, and {len(rows[0])} in the header.")
        return group_judgements(dict(zip(rows[0], map(list, zip(*rows[1:], strict=True)), strict=False)), str(path))
    return group_judgements(read_columns(path), str(path))


def group_judgements(columns: dict[str, list], where: str) -> dict[str, list]:
    """Judgements, one a row, as lists: the documents of each query and how relevant they are."""
    if any(name in columns for name in DOCUMENT_IDS):
        return columns
    if not columns or not next(iter(columns.values())):
        raise ValueError(f"{where} has no judgements.")
    names = find_columns(columns, where, QUERY_ID, DOC_ID[:4], RELEVANCE)
    lists: dict[str, dict[str, float]] = {}
    for number, (query_id, doc_id, value) in enumerate(zip(*(columns[name] for name in names), strict=True)):
        try:
            relevance = float(value)
        except (TypeError, ValueError):
            raise ValueError(f"{where}, row {number}: the relevance {value!r} is not a number.") from None
        if not math.isfinite(relevance):
            raise ValueError(f"{where}, row {number}: the relevance {value!r} is not a finite number.")
        # A document that was judged as worse than not relevant is not relevant. Of two judgements the last counts, as
        # in BEIR.
        lists.setdefault(str(query_id), {})[str(doc_id)] = max(0.0, relevance)
    return {
        "query_id": list(lists),
        "document_ids": [list(judged) for judged in lists.values()],
        "labels": [list(judged.values()) for judged in lists.values()],
    }


def _is_on_hub(name: str) -> bool:
    return not (Path(name).is_absolute() or name.startswith((".", "~"))) and name != "embedded"


def _is_hub(data_args: DataArguments) -> bool:
    hub = load_dataset(data_args.dataset_name, data_args.dataset_config_name)
    return is_ranking(next(iter(hub.values())).column_names)


def _hub_prefix(data_args: DataArguments, configs: Sequence[str]) -> str | None:
    """What stands before `corpus` and `queries` in the configurations of a Hub data set: a language, or nothing."""
    own = f"{data_args.dataset_config_name}-"
    return next((prefix for prefix in (own, "") if {f"{prefix}corpus", f"{prefix}queries"} <= {*configs}), None)


def _hub_sources(data_args: DataArguments) -> tuple[Any, Any, dict[str, Any]]:
    """Corpus, texts of queries and rows by split of a Hub data set, in the layout of BEIR and MTEB or as rows."""
    name = data_args.dataset_name
    configs = get_dataset_config_names(name)
    prefix = _hub_prefix(data_args, configs)
    if prefix is None:
        hub = load_dataset(name, data_args.dataset_config_name)
        return None, None, {str(split): partial(_columns, hub[split]) for split in hub}
    parts, queries = (load_dataset(name, f"{prefix}{part}") for part in ("corpus", "queries"))
    if len(parts) > 1:
        raise ValueError(
            f"{name} has a corpus for each of the splits {', '.join(parts)}, and here all splits share one: save the "
            "one that you want as a file, and pass it as `--corpus_file`, with files of queries."
        )
    corpus = _columns(next(iter(parts.values())))
    # MTEB keeps the judgements in the same data set, BEIR in one of its own.
    wanted = [f"{prefix}qrels"] if prefix else ["default", "qrels"]
    config = next((config for config in wanted if config in configs), None)
    qrels = load_dataset(name, config) if config is not None else load_dataset(f"{name}-qrels")
    found = {str(split): partial(_grouped, qrels[split], str(split)) for split in qrels}
    if "dev" in found:
        found.setdefault("validation", found.pop("dev"))
    texts = [query_texts(_columns(part), f"{name}, queries of {split}") for split, part in queries.items()]
    return (
        corpus_columns(corpus, f"{name}, corpus"),
        {key: text for part in texts for key, text in part.items()},
        found,
    )


def _columns(dataset: Any) -> dict[str, list]:
    return {column: dataset[column][:] for column in dataset.column_names}


def _grouped(dataset: Any, split: str) -> dict[str, list]:
    return group_judgements(_columns(dataset), split)
