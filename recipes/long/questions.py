# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Questions about long documents, for the ranking stage.

    python recipes/long/questions.py DATA OUT [--sets fairytaleqa squality qmsum] [--words 1500] [--queries 300]

DATA has the folders of the sets with docs.parquet and queries.parquet. OUT gets

- `train.jsonl`: questions about the train split, with the ids of their documents;
- `grouped.jsonl`: the same in an order for `--train_sampling_strategy sequential`, eight questions of a document one
  after the other, so that a batch reads it once;
- `validation.jsonl`: a sample of the questions about the validation split;
- `corpus.jsonl`: the documents of both. Documents of the train split are cut into pieces of `--words` words, at the
  ends of paragraphs or turns. The pieces with the answer are relevant for a question, or all pieces of its document.
- a folder for each set in the layout of BEIR, with the queries of its last split, for `hf-dse evaluate`.

The queries are those of studies/prepare_long.py: questions about fairy tales, summaries that answer questions about
stories (here all four, cut after 100 words), and answers to questions about a part of a meeting.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd


ROOT = Path(__file__).parents[2]
sys.path.insert(0, str(ROOT / "studies"))
from prepare_long import group_order, prepare  # noqa: E402


# For each set what ends a paragraph, and the split that is not looked at in a training.
SETS = {"fairytaleqa": ("\n\n", "test"), "squality": ("\n\n", "validation"), "qmsum": ("\n", "test")}
SUMMARY_WORDS = 100


def questions(name: str, query: dict) -> Iterator[tuple[str, list[int] | None]]:
    """The texts of a query, and the paragraphs that answer it; `None` if they are unknown."""
    if name == "fairytaleqa":
        yield query["question"], [int(number) - 1 for number in query["section"].split(",")]
    elif name == "squality":
        for text in query["responses"]:
            yield " ".join(text.split()[:SUMMARY_WORDS]), None
    elif query["kind"] == "specific":
        spans = [range(int(first), int(last) + 1) for first, last in json.loads(query["spans"])]
        yield query["answer"], [number for span in spans for number in span]


def cut(paragraphs: list[str], size: int) -> list[list[int]]:
    """Numbers of the paragraphs of each piece, about equally many words, and at most `size` if no paragraph has."""
    words = [len(text.split()) for text in paragraphs]
    target = sum(words) / -(-sum(words) // size)
    pieces: list[list[int]] = [[]]
    count = 0
    for number, more in enumerate(words):
        if pieces[-1] and count + more / 2 > target * len(pieces):
            pieces.append([])
        pieces[-1].append(number)
        count += more
    return pieces


def rows_of(name: str, data: Path, split: str, size: int | None) -> tuple[list[dict], list[dict]]:
    """The documents of a split, or their pieces, and the queries."""
    end = SETS[name][0]
    documents = pd.read_parquet(data / name / "docs.parquet")
    documents = documents[documents["split"] == split]
    texts = {doc_id: text.split(end) for doc_id, text in zip(documents["doc_id"], documents["text"], strict=True)}
    pieces = {doc_id: cut(parts, size) if size else [list(range(len(parts)))] for doc_id, parts in texts.items()}
    corpus = [
        {"_id": f"{name}-{doc_id}-{place}", "text": end.join(texts[doc_id][number] for number in piece)}
        for doc_id, parts in pieces.items()
        for place, piece in enumerate(parts)
    ]
    queries = pd.read_parquet(data / name / "queries.parquet")
    rows = []
    for query in queries[queries["split"] == split].to_dict("records"):
        parts = pieces[query["doc_id"]]
        for text, numbers in questions(name, query):
            found = [set(piece) & set(numbers if numbers is not None else piece) for piece in parts]
            ids = [f"{name}-{query['doc_id']}-{place}" for place, part in enumerate(found) if part]
            if ids:
                rows.append({"query": text, "document_ids": ids, "labels": [1] * len(ids)})
    return corpus, rows


def group(rows: list[dict], size: int = 8) -> list[dict]:
    """The rows in random order, but `size` rows with the same first document together; groups with fewer come last."""
    table = pd.DataFrame(rows).sample(frac=1, random_state=0)
    return table.iloc[group_order(table["document_ids"].str[0], size)].to_dict("records")


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("--sets", nargs="+", choices=list(SETS), default=list(SETS))
    parser.add_argument("--words", type=int, default=1500)
    parser.add_argument("--queries", type=int, default=300)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    tables: dict[str, list[dict]] = {"corpus": [], "train": [], "validation": []}
    for name in args.sets:
        held_out = SETS[name][1]
        for split in ("train", "validation"):
            if split != held_out:
                corpus, rows = rows_of(name, args.data, split, args.words if split == "train" else None)
                tables["corpus"] += corpus
                tables[split] += rows
                print(f"{name}, {split}: {len(corpus)} documents or pieces, {len(rows)} queries")
        num_documents, num_queries = prepare(name, args.data, args.out / name, held_out)
        print(f"{name}, {held_out}: {num_documents} documents, {num_queries} queries")
    sample = pd.Series(tables["validation"]).sample(min(args.queries, len(tables["validation"])), random_state=0)
    tables |= {"validation": sample.tolist(), "grouped": group(tables["train"])}
    for name, rows in tables.items():
        path = args.out / f"{name}.jsonl"
        path.write_text("".join(json.dumps(row, ensure_ascii=False) + "\n" for row in rows))


if __name__ == "__main__":
    main()
