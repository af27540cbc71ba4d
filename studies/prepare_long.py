# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Long documents with queries in the layout of BEIR, for `benchmarks/long_documents.py` and `hf-dse evaluate`.

    python studies/prepare_long.py DATA OUT [--split test] [--sets qmsum squality]

DATA has the folders of the sets with docs.parquet and queries.parquet. OUT gets a folder for each set. The queries are
those of the split, and each has one relevant document:

- qmsum: answers to questions about a meeting, among the meetings of the split;
- squality: the first answer to a question about a short story, among the stories of the split;
- fairytaleqa: questions about a fairy tale, among the tales of all splits;
- longwiki: paragraphs after word 600 of an article of Wikipedia, among the articles of the split.

SQuALITY and longwiki have no test split here: take validation.
"""

import argparse
from pathlib import Path

import numpy as np
import pandas as pd
from generality import Collection
from pandas.util import hash_array


# For each set the column of a document's text, the file of queries, and whether all documents are candidates.
SETS = {
    "qmsum": ("text", "queries", False),
    "squality": ("text", "queries", False),
    "fairytaleqa": ("text", "queries", True),
    "longwiki": ("body", "queries_late", False),
}


def query_of(name: str, row: dict) -> str:
    if name == "squality":
        return row["responses"][0]
    return row[{"qmsum": "answer", "fairytaleqa": "question", "longwiki": "query"}[name]]


def read_long(name: str, data: Path, split: str) -> Collection:
    """Queries and documents by their ids, and the document that is relevant for each query."""
    column, file, has_all = SETS[name]
    documents = pd.read_parquet(data / name / "docs.parquet")
    queries = pd.read_parquet(data / name / f"{file}.parquet")
    queries = queries[queries["split"] == split]
    if not len(queries):
        raise SystemExit(f"{name} has no split {split!r}: take one of {', '.join(sorted(set(documents['split'])))}.")
    if not has_all:
        documents = documents[documents["split"] == split]
    rows = queries.to_dict("records")
    return (
        {f"q{number}": query_of(name, row) for number, row in enumerate(rows)},
        {f"d{doc_id}": text for doc_id, text in zip(documents["doc_id"], documents[column], strict=True)},
        {f"q{number}": {f"d{row['doc_id']}"} for number, row in enumerate(rows)},
    )


def prepare(name: str, data: Path, out: Path, split: str) -> tuple[int, int]:
    """Writes the folder of a set; returns its numbers of documents and queries."""
    queries, corpus, relevant = read_long(name, data, split)
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    for file, texts in (("corpus", corpus), ("queries", queries)):
        table = pd.DataFrame({"_id": list(texts), "text": list(texts.values())})
        table.to_json(out / f"{file}.jsonl", orient="records", lines=True)
    ids = [doc_id for (doc_id,) in relevant.values()]
    table = pd.DataFrame({"query-id": list(relevant), "corpus-id": ids, "score": 1})
    table.to_csv(out / "qrels" / f"{split}.tsv", sep="\t", index=False)
    return len(corpus), len(queries)


def group_order(documents: pd.Series, size: int = 8) -> np.ndarray:
    """The places of questions in random order, `size` of a document together; groups with fewer come last."""
    groups = documents.astype(str) + " " + (documents.groupby(documents).cumcount() // size).astype(str)
    # Whole groups first: they do not begin in one batch and end in the next.
    return np.lexsort((hash_array(groups.to_numpy()), -groups.map(groups.value_counts())))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--split", default="test")
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=["qmsum", "fairytaleqa"])
    args = parser.parse_args()
    for name in args.sets:
        num_documents, num_queries = prepare(name, args.data, args.out / name, args.split)
        print(f"{name}: {num_documents} documents, {num_queries} queries")


if __name__ == "__main__":
    main()
