# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The queries and documents that the flagship learns to search from, in the layout of BEIR.

    python recipes/flagship/queries.py DATA OUT

OUT/search has the training queries of all sets with one corpus: claims of SciFact's train split, questions of SQuAD
for their sentences (three of four sentences, by a hash), of QNLI, of fairy tales for their section, of PubMedQA's
train split for abstracts, and titles of RFCs for abstracts. The other questions of SQuAD are a test set of
studies/generality.py.
"""

import sys
from pathlib import Path

import pandas as pd


sys.path.insert(0, str(Path(__file__).parents[2] / "studies"))
from generality import is_held_out  # noqa: E402


SEED = 0
# Questions of each set, at most.
NUMBERS = {"squad": 6000, "qnli": 2000, "fairytaleqa": 1200, "rfc": 1500}
# Pairs of a query and a relevant document.
COLUMNS = ["query", "document"]


def scifact(data: Path) -> tuple[pd.DataFrame, pd.Series]:
    """The labelled claims of the train split, and the whole corpus, in which they have to find their abstracts."""
    corpus = pd.read_parquet(data / "scifact" / "corpus.parquet").set_index("doc_id")
    texts = corpus["title"] + " " + corpus["text"]
    queries = pd.read_parquet(data / "scifact" / "queries_train.parquet").set_index("query_id")["query"]
    judged = pd.read_parquet(data / "scifact" / "qrels_train.parquet")
    return pd.DataFrame({"query": judged["query_id"].map(queries), "document": judged["doc_id"].map(texts)}), texts


def fairytaleqa(data: Path) -> pd.DataFrame:
    documents = pd.read_parquet(data / "fairytaleqa" / "docs.parquet").set_index("doc_id")["text"].str.split("\n\n")
    questions = pd.read_parquet(data / "fairytaleqa" / "queries.parquet")
    # Others need several sections.
    is_local = questions["section"].str.fullmatch(r"\d+") & (questions["split"] == "train")
    rows = questions[is_local].to_dict("records")
    found = []
    for row in rows:
        sections = documents[row["doc_id"]]
        place = int(row["section"]) - 1
        if place < len(sections):
            found.append((row["question"], sections[place]))
    return pd.DataFrame(found, columns=COLUMNS)


def read(data: Path) -> dict[str, pd.DataFrame]:
    qnli = pd.read_parquet(data / "qnli" / "validation.parquet")
    pubmed = pd.read_parquet(data / "pubmedqa" / "pairs.parquet")
    rfc = pd.read_parquet(data / "rfc" / "docs.parquet")
    squad = pd.read_parquet(data / "squad_sent" / "train.parquet").drop_duplicates(["question", "sentence"])
    squad = squad[~squad["sentence"].map(is_held_out)]
    sets = {
        "squad": squad.rename(columns={"question": "query", "sentence": "document"}),
        "qnli": qnli[qnli["label"] == 0].rename(columns={"question": "query", "sentence": "document"}),
        "fairytaleqa": fairytaleqa(data),
        "pubmedqa": pubmed[pubmed["split"] == "train"].rename(columns={"question": "query", "abstract": "document"}),
        "rfc": rfc[rfc["split"] == "train"].rename(columns={"title": "query", "abstract": "document"}),
    }
    return {
        name: rows[COLUMNS].sample(min(NUMBERS.get(name, len(rows)), len(rows)), random_state=SEED)
        for name, rows in sets.items()
    }


def write(folder: Path, rows: pd.DataFrame, texts: list[str]) -> None:
    (folder / "qrels").mkdir(parents=True, exist_ok=True)
    documents = {text: f"d{number}" for number, text in enumerate(dict.fromkeys([*rows["document"], *texts]))}
    queries = {text: f"q{number}" for number, text in enumerate(dict.fromkeys(rows["query"]))}
    for name, known in (("corpus", documents), ("queries", queries)):
        table = pd.DataFrame({"_id": known.values(), "text": known.keys()})
        table.to_json(folder / f"{name}.jsonl", orient="records", lines=True)
    relevant = {"query-id": rows["query"].map(queries), "corpus-id": rows["document"].map(documents), "score": 1}
    pd.DataFrame(relevant).drop_duplicates().to_csv(folder / "qrels" / "train.tsv", sep="\t", index=False)
    print(f"{folder.name}: {len(queries):,} queries, {len(documents):,} documents")


def main() -> None:
    data, out = map(Path, sys.argv[1:])
    sets = read(data)
    claims, abstracts = scifact(data)
    for name, rows in {"scifact": claims, **sets}.items():
        print(f"{name}: {len(rows):,} pairs of a query and a document")
    # Claims first: of the others `--max_train_samples` takes a part.
    others = pd.concat(sets.values()).sample(frac=1, random_state=SEED)
    write(out / "search", pd.concat([claims, others]), abstracts.tolist())


if __name__ == "__main__":
    main()
