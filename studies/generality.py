# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
How much of its source's general quality a student keeps: SICK relatedness and SciFact retrieval, next to STS-B.

    python studies/generality.py DATA MODEL [MODEL ...] [--output FILE.json]

DATA has the folders stsb, sick and scifact with parquet files. MODEL is any model that SentenceTransformer loads. The
output is Spearman correlations of the cosine (STS-B test, SICK validation) and nDCG@10 (SciFact test, 300 queries),
x 100.
"""

import argparse
import json
from pathlib import Path

import pandas as pd
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
)
from sentence_transformers.util import cos_sim

from hf_dse.common.display import markdown


def similarity(file: Path, label: str) -> EmbeddingSimilarityEvaluator:
    pairs = pd.read_parquet(file)
    return EmbeddingSimilarityEvaluator(
        pairs["sentence1"].tolist(), pairs["sentence2"].tolist(), pairs[label].tolist(), main_similarity="cosine"
    )


def retrieval(folder: Path) -> InformationRetrievalEvaluator:
    corpus = pd.read_parquet(folder / "corpus.parquet").astype({"doc_id": str})
    queries = pd.read_parquet(folder / "queries_test.parquet").astype({"query_id": str})
    relevant = pd.read_parquet(folder / "qrels_test.parquet").astype({"query_id": str, "doc_id": str})
    return InformationRetrievalEvaluator(
        queries=dict(zip(queries["query_id"], queries["query"], strict=True)),
        corpus=dict(zip(corpus["doc_id"], corpus["title"] + " " + corpus["text"], strict=True)),
        relevant_docs=relevant.groupby("query_id")["doc_id"].agg(set).to_dict(),
        ndcg_at_k=[10],
        score_functions={"cosine": cos_sim},
        name="scifact",
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--output", type=Path, help="file for the numbers: model -> set -> metric")
    args = parser.parse_args()
    evaluators = {
        "STS-B test": (similarity(args.data / "stsb" / "test.parquet", "label"), "spearman_cosine"),
        "SICK validation": (similarity(args.data / "sick" / "validation.parquet", "relatedness"), "spearman_cosine"),
        "SciFact nDCG@10": (retrieval(args.data / "scifact"), "scifact_cosine_ndcg@10"),
    }
    scores = {}
    for name in args.models:
        model = SentenceTransformer(name, trust_remote_code=True)
        scores[name] = {title: evaluator(model)[metric] for title, (evaluator, metric) in evaluators.items()}
    rows = [[Path(name).name, *(f"{100 * score:.2f}" for score in row.values())] for name, row in scores.items()]
    print(markdown(["model", *evaluators], rows, num_left=1))
    if args.output:
        args.output.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
