# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Where does a teacher pay? Files for students that learn from few labels, from a teacher, or from both.

    python studies/label_budget.py captions MULTI30K FOLDER
    python studies/label_budget.py questions SQUAD_SENT FOLDER
    python studies/label_budget.py tales LONG FOLDER
    python studies/label_budget.py sections FAIRYTALEQA FOLDER
    python studies/label_budget.py claims SCIFACT FOLDER
    python studies/label_budget.py queries FOLDER OUT [--skip N] [--num_queries N]
    hf-dse mine --corpus FOLDER --train_file OUT/queries.jsonl --bm25 true --output_file OUT/mined.jsonl
    hf-dse score --model TEACHER --train_file OUT/mined.jsonl --output_file OUT/scored.jsonl
    python studies/label_budget.py budgets FOLDER OUT --budgets 50 200 [--labelled_file FILE]

FOLDER is in the layout of BEIR; `captions` makes one of images with several captions: one caption is a query, another
of the same image the document that is relevant for it; `questions` one of questions and the sentences that answer
them, in which the test questions are those of studies/generality.py; `tales` one of the pieces of fairy tales that
recipes/long/questions.py has made in LONG, for training only; `sections` one of the sections of the tales that no
reranker here has learned from, with the questions about half of the tales for training; `claims` one of abstracts and
the claims of SciFact. `queries` writes the training
queries without their labels, in a random order that is the same each time; `--skip` leaves out those that the teacher
learned from.
`budgets` writes `teacher.jsonl` (scores, no labels), and for each number of labelled queries, and for all,
`labels-N.jsonl` (these queries only, no scores) and `both-N.jsonl` (all queries, with labels of these). With
`--labelled_file`, the queries with labels that the teacher learned from, `both-first.jsonl` has these and the others
with scores.
studies/label_budget.sh runs all of it for captions, studies/squad_budget.sh for questions.
"""

import argparse
import json
import sys
from pathlib import Path

import numpy as np
import pandas as pd

from hf_dse import DataArguments, load_rankings


sys.path.insert(0, str(Path(__file__).parent))
from generality import is_held_out  # noqa: E402


def write(path: Path, rows: list[dict]) -> None:
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


def read(path: Path) -> list[dict]:
    return [json.loads(line) for line in path.read_text().split("\n") if line]


def labelled(row: dict, relevant: dict[str, str]) -> dict:
    """A query with the labels of its judgements; relevant documents that were not found are added."""
    missing = {doc_id: text for doc_id, text in relevant.items() if doc_id not in row["document_ids"]}
    found = {**row, "labels": [float(doc_id in relevant) for doc_id in row["document_ids"]] + [1.0] * len(missing)}
    found["document_ids"] = row["document_ids"] + list(missing)
    found["documents"] = row["documents"] + list(missing.values())
    found["teacher_logits"] = row["teacher_logits"] + [None] * len(missing)
    return found


def write_collection(
    folder: Path, corpus: pd.DataFrame, queries: pd.DataFrame, judged: dict[str, pd.DataFrame]
) -> None:
    """Writes texts by their ids, and for each split which `document` is relevant for which `query`."""
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    for name, texts in (("corpus", corpus), ("queries", queries)):
        write(folder / f"{name}.jsonl", texts.set_axis(["_id", "text"], axis=1).to_dict("records"))
    for split, rows in judged.items():
        relevant = {"query-id": rows["query"], "corpus-id": rows["document"], "score": 1}
        pd.DataFrame(relevant).to_csv(folder / "qrels" / f"{split}.tsv", sep="\t", index=False)


def captions(images: Path, folder: Path) -> None:
    """A corpus of 10,000 captions, 2,400 queries for training, and those of the images of the test split for tests."""
    train = pd.read_parquet(images / "train.parquet").sample(10_000, random_state=0)
    test = pd.concat(pd.read_parquet(images / f"{split}.parquet") for split in ("validation", "test"))
    # A text that describes two images would be right for one of them only.
    corpus = pd.concat([train, test]).drop_duplicates("caption2")
    judged = {}
    for split, rows in {"train": train[:2400], "test": test}.items():
        chosen = rows[rows["image"].isin(corpus["image"])].drop_duplicates("caption1")
        judged[split] = chosen.assign(query="q" + chosen["image"], document="d" + chosen["image"])
    queries = pd.concat(judged.values())[["query", "caption1"]]
    documents = corpus.assign(document="d" + corpus["image"])[["document", "caption2"]]
    write_collection(folder, documents, queries, judged)


def questions(squad_sent: Path, folder: Path) -> None:
    """All sentences as documents; questions about one sentence of four are for tests, the others for training."""
    pairs = pd.read_parquet(squad_sent / "train.parquet").drop_duplicates(["question", "sentence"])
    pairs["query"] = pairs.groupby("question", sort=False).ngroup().map("q{}".format)
    pairs["document"] = pairs.groupby("sentence").ngroup().map("d{}".format)
    is_test = pairs["sentence"].map(is_held_out)
    judged = {"train": pairs[~is_test & ~pairs["query"].isin(pairs["query"][is_test])], "test": pairs[is_test]}
    corpus, queries = (
        pairs.drop_duplicates(columns[0])[columns] for columns in (["document", "sentence"], ["query", "question"])
    )
    write_collection(folder, corpus, queries, judged)


def tales(long: Path, folder: Path) -> None:
    """The pieces of fairy tales that are asked about, and the questions that are asked about one tale only."""
    rows = [row for row in read(long / "train.jsonl") if row["document_ids"][0].startswith("fairytaleqa-")]
    asked = {doc_id for row in rows for doc_id in row["document_ids"]}
    corpus = pd.DataFrame([row for row in read(long / "corpus.jsonl") if row["_id"] in asked])
    asking = pd.DataFrame(rows).drop_duplicates("query", keep=False).reset_index(drop=True)
    asking["_id"] = asking.index.map("q{}".format)
    judged = asking[["_id", "document_ids"]].explode("document_ids").set_axis(["query", "document"], axis=1)
    write_collection(folder, corpus[["_id", "text"]], asking[["_id", "query"]], {"train": judged})


def sections(fairytaleqa: Path, folder: Path) -> None:
    """The sections of the tales of two splits, and the questions that name them: validation is for training."""
    tales = pd.read_parquet(fairytaleqa / "docs.parquet").query("split != 'train'")
    parts = tales.assign(text=tales["text"].str.split("\n\n")).explode("text", ignore_index=True)
    parts["document"] = parts["doc_id"] + "#" + (parts.groupby("doc_id").cumcount() + 1).astype(str)
    asked = pd.read_parquet(fairytaleqa / "queries.parquet").query("split != 'train'")
    # A question that is asked about two tales would be right for one of them only.
    asked = asked.drop_duplicates("question", keep=False)
    rows = asked.assign(section=asked["section"].str.split(",")).explode("section")
    rows = rows.assign(query=rows["query_id"], document=rows["doc_id"] + "#" + rows["section"].str.strip())
    judged = {"train": rows.query("split == 'validation'"), "test": rows.query("split == 'test'")}
    write_collection(folder, parts[["document", "text"]], asked[["query_id", "question"]], judged)


def claims(scifact: Path, folder: Path) -> None:
    """The abstracts, each behind its title, and the claims that they support or contradict."""
    corpus = pd.read_parquet(scifact / "corpus.parquet")
    corpus["text"] = corpus["title"] + " " + corpus["text"]
    read = {split: pd.read_parquet(scifact / f"qrels_{split}.parquet") for split in ("train", "test")}
    judged = {split: rows.set_axis(["query", "document", "score"], axis=1) for split, rows in read.items()}
    asked = pd.concat(pd.read_parquet(scifact / f"queries_{split}.parquet") for split in read)
    write_collection(folder, corpus[["doc_id", "text"]].astype(str), asked.astype(str), judged)


COLLECTIONS = {made.__name__: made for made in (captions, questions, tales, sections, claims)}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("step", choices=[*COLLECTIONS, "queries", "budgets"])
    parser.add_argument("folder")
    parser.add_argument("out", type=Path)
    parser.add_argument("--skip", type=int, default=0)
    parser.add_argument("--num_queries", type=int)
    parser.add_argument("--budgets", type=int, nargs="+", default=[50, 200])
    parser.add_argument("--labelled_file", type=Path)
    args = parser.parse_args()
    if args.step in COLLECTIONS:
        return COLLECTIONS[args.step](Path(args.folder), args.out)
    train = load_rankings(DataArguments(dataset_name=args.folder), ["train"])["train"]
    if args.step == "queries":
        order = args.skip + np.random.default_rng(0).permutation(len(train) - args.skip)
        chosen = train.queries.select(order[: args.num_queries])
        args.out.mkdir(parents=True, exist_ok=True)
        rows = zip(chosen["query_id"], chosen["query"], strict=True)
        write(args.out / "queries.jsonl", [{"query_id": query_id, "query": query} for query_id, query in rows])
        return
    ids, texts = train.corpus["doc_id"][:], train.corpus["text"][:]
    positives = dict(zip(train.queries["query_id"][:], train.positives(), strict=True))
    scored = read(args.out / "scored.jsonl")
    known = [labelled(row, {ids[n]: texts[n] for n in positives[row["query_id"]]}) for row in scored]
    # What was only mined is not known to be wrong.
    unknown = [{**row, "labels": [None] * len(row["labels"])} for row in scored]
    write(args.out / "teacher.jsonl", unknown)
    for number in [*args.budgets, len(scored)]:
        name = "all" if number == len(scored) else number
        without_scores = [{key: row[key] for key in row if key != "teacher_logits"} for row in known[:number]]
        write(args.out / f"labels-{name}.jsonl", without_scores)
        write(args.out / f"both-{name}.jsonl", known[:number] + unknown[number:])
    if args.labelled_file:
        first = read(args.labelled_file)[: args.skip]
        scores = [{**row, "teacher_logits": [None] * len(row["document_ids"])} for row in first]
        write(args.out / "both-first.jsonl", scores + unknown)


if __name__ == "__main__":
    main()
