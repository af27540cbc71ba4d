# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
How good a model is at similarity and at search, on sets of both.

    python studies/generality.py DATA MODEL [MODEL ...] [--dtype bfloat16] [--output FILE.json]

DATA has the folders stsb, sick, scifact, cranfield, npl, cacm and squad_sent with parquet files. MODEL is any model
that SentenceTransformer loads. The output is Spearman correlations of the cosine (STS-B test, SICK validation) and
nDCG@10 (the queries of SciFact's test split, all of the other collections, the questions of SQuAD for their
sentences), x 100.
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


def retrieval(folder: Path, split: str = "") -> InformationRetrievalEvaluator:
    corpus = pd.read_parquet(folder / "corpus.parquet").astype({"doc_id": str})
    queries = pd.read_parquet(folder / f"queries{split}.parquet").astype({"query_id": str})
    relevant = pd.read_parquet(folder / f"qrels{split}.parquet").astype({"query_id": str, "doc_id": str})
    judged = queries[queries["query_id"].isin(relevant["query_id"])]
    return search(
        dict(zip(judged["query_id"], judged["query"], strict=True)),
        dict(zip(corpus["doc_id"], corpus["title"] + " " + corpus["text"], strict=True)),
        relevant.groupby("query_id")["doc_id"].agg(set).to_dict(),
    )


def sentences(file: Path) -> InformationRetrievalEvaluator:
    relevant = pd.read_parquet(file).groupby("question")["sentence"].agg(set).to_dict()
    texts = set().union(*relevant.values())
    return search({question: question for question in relevant}, {text: text for text in sorted(texts)}, relevant)


def search(queries: dict, corpus: dict, relevant: dict) -> InformationRetrievalEvaluator:
    return InformationRetrievalEvaluator(
        queries, corpus, relevant, ndcg_at_k=[10], score_functions={"cosine": cos_sim}, batch_size=64
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--output", type=Path, help="file for the numbers: model -> set -> metric")
    args = parser.parse_args()
    evaluators = {
        "STS-B test": (similarity(args.data / "stsb" / "test.parquet", "label"), "spearman_cosine"),
        "SICK validation": (similarity(args.data / "sick" / "validation.parquet", "relatedness"), "spearman_cosine"),
        "SciFact nDCG@10": (retrieval(args.data / "scifact", "_test"), "cosine_ndcg@10"),
    }
    for name, title in {"cranfield": "Cranfield", "npl": "NPL", "cacm": "CACM"}.items():
        evaluators[f"{title} nDCG@10"] = (retrieval(args.data / name), "cosine_ndcg@10")
    evaluators["SQuAD nDCG@10"] = (sentences(args.data / "squad_sent" / "train.parquet"), "cosine_ndcg@10")
    scores = {}
    for name in args.models:
        model = SentenceTransformer(name, trust_remote_code=True, model_kwargs={"dtype": args.dtype})
        scores[name] = {title: evaluator(model)[metric] for title, (evaluator, metric) in evaluators.items()}
    rows = [[Path(name).name, *(f"{100 * score:.2f}" for score in row.values())] for name, row in scores.items()]
    print(markdown(["model", *evaluators], rows, num_left=1))
    if args.output:
        args.output.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
