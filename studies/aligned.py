# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What a student has learned from the vectors of a larger bi-encoder (`hf-dse distill --stage align --keep_projection`).

    python studies/aligned.py DATA SOURCE STUDENT [--teacher TEACHER] --output FILE.json

DATA has the folders stsb, sick, cranfield, cacm, npl and scifact with parquet files. The rows are SOURCE, STUDENT
without and with its linear layer, TEACHER, and the student's queries (first sentences) with the teacher's documents
(second sentences). The numbers are Spearman correlations of the cosine, and nDCG@10 of the search in a corpus, x 100.
What is in FILE.json is not measured again.
"""

import argparse
import json
from pathlib import Path
from typing import Any

import numpy as np
import pandas as pd
from scipy.stats import spearmanr

from hf_dse import ModelArguments, encode, load_model, rank, ranking_metrics
from hf_dse.common.display import markdown
from hf_dse.common.files import write_atomically
from hf_dse.mining.embeddings import encode_blocks
from hf_dse.student.projection import drop_projection


PAIRS = {
    "STS-B validation": ("stsb/validation", "label"),
    "STS-B test": ("stsb/test", "label"),
    "SICK validation": ("sick/validation", "relatedness"),
}
CORPORA = {"Cranfield": "cranfield", "CACM": "cacm", "SciFact": "scifact", "NPL": "npl"}
ROWS = ("source", "student", "student with its linear layer", "teacher", "student asks teacher")


def read(data: Path, name: str) -> tuple[list[str], list[str], Any]:
    """The two sides of a set, and their labels or known relevance."""
    if name in PAIRS:
        file, label = PAIRS[name]
        pairs = pd.read_parquet(data / f"{file}.parquet")
        return pairs["sentence1"].tolist(), pairs["sentence2"].tolist(), pairs[label].tolist()
    folder = data / CORPORA[name]
    split = "_test" if name == "SciFact" else ""
    corpus = pd.read_parquet(folder / "corpus.parquet").astype({"doc_id": str})
    queries = pd.read_parquet(folder / f"queries{split}.parquet").astype({"query_id": str})
    labels = pd.read_parquet(folder / f"qrels{split}.parquet").astype({"query_id": str, "doc_id": str})
    relevant = {
        query: dict(zip(rows["doc_id"], rows["relevance"].astype(float), strict=True))
        for query, rows in labels.groupby("query_id")
    }
    texts = (corpus["title"] + " " + corpus["text"]).str.strip().tolist()
    return queries["query"].tolist(), texts, (queries["query_id"].tolist(), corpus["doc_id"].tolist(), relevant)


def score(first: np.ndarray, second: np.ndarray, labels: Any) -> float:
    """Of unit vectors."""
    if isinstance(labels, list):
        return float(spearmanr((first * second).sum(axis=1), labels).statistic)
    query_ids, doc_ids, relevant = labels
    scores, found = rank(first, second, top_k=100, show_progress=False)
    run = {
        query: {doc_ids[row]: float(value) for row, value in zip(rows, values, strict=True)}
        for query, rows, values in zip(query_ids, found, scores, strict=True)
        if query in relevant
    }
    return ranking_metrics(run, relevant)["ndcg@10"]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("source")
    parser.add_argument("student")
    parser.add_argument("--teacher")
    parser.add_argument("--teacher_sets", nargs="*", default=[*PAIRS, "SciFact"], help="sets that the teacher reads")
    parser.add_argument("--max_length", type=int, default=256, help="tokens of a text")
    parser.add_argument("--dtype", default="float32")
    parser.add_argument("--cache_dir", type=Path, help="folder of the teacher's vectors")
    parser.add_argument("--output", type=Path, required=True)
    args = parser.parse_args()
    results = json.loads(args.output.read_text()) if args.output.is_file() else {}
    names = [args.source, args.student, *([args.teacher] if args.teacher else [])]
    source, student, *teacher = (load_model(ModelArguments(name, dtype=args.dtype)) for name in names)
    weight, bias = (part.detach().float().numpy() for part in student[0].projection.parameters())
    # What the linear layer gets.
    drop_projection(student[0]).config.normalize_embeddings = False
    options = {"batch_size": 64, "max_length": args.max_length, "show_progress": False}
    for name in [*PAIRS, *CORPORA]:
        sides = read(args.data, name)
        row = results.setdefault(name, {})
        if "source" not in row:
            row["source"] = score(*(encode(*source, side, normalize=True, **options) for side in sides[:2]), sides[2])
        if "student" not in row:
            plain = [encode(*student, side, **options) for side in sides[:2]]
            row["student"] = score(*map(unit, plain), sides[2])
            row["student with its linear layer"] = score(*(unit(side @ weight.T + bias) for side in plain), sides[2])
        if teacher and name in args.teacher_sets and "student asks teacher" not in row:
            first, second = (
                encode_blocks(*teacher[0], side, None, args.cache_dir, max_length=args.max_length, batch_size=64)
                for side in sides[:2]
            )
            row["teacher"] = score(first, second, sides[2])
            asked = encode(*student, sides[0], **options) @ weight.T + bias
            row["student asks teacher"] = score(unit(asked), second, sides[2])
        print(name, {key: round(100 * value, 2) for key, value in row.items()}, flush=True)
        write_atomically(args.output, lambda file: file.write((json.dumps(results, indent=2) + "\n").encode()))
    table = [[key, *(f"{100 * row[key]:.2f}" if key in row else "" for row in results.values())] for key in ROWS]
    print(markdown(["", *results], table, num_left=1))


if __name__ == "__main__":
    main()
