# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Similarity and search: how good a model is at both.

    python studies/generality.py DATA [MODEL ...] [--bm25] [--dtype bfloat16] [--sets SciFact ...] [--output FILE.json]

DATA has the folders stsb, sick, scifact, cranfield, npl, cacm and squad_sent with parquet files. MODEL is any model
that SentenceTransformer loads. The output is Spearman correlations of the cosine (STS-B test, SICK validation) and
nDCG@10 (the queries of SciFact's test split, all of the other collections, questions of SQuAD for their sentences,
those about one sentence of four, which is in no training of recipes/flagship), x 100; with `--bm25` also
those of BM25, and of each model with BM25 beside the cosine, as a search with an [`Index`] adds it.
studies/mteb_tasks.py measures the same with mteb.
"""

import argparse
import json
import zlib
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pandas as pd
from sentence_transformers import SentenceTransformer
from sentence_transformers.sentence_transformer.evaluation import (
    EmbeddingSimilarityEvaluator,
    InformationRetrievalEvaluator,
)
from sentence_transformers.util import cos_sim

from hf_dse import Index, Rankings, make_rankings
from hf_dse.common.display import markdown
from hf_dse.measure.metrics import measure_run, relevance
from hf_dse.retrieval.options import BM25_WEIGHT


# First texts, second texts and their similarity.
Pairs = tuple[list[str], list[str], list[float]]
# Queries and documents by their ids, and the documents that are relevant for each query.
Collection = tuple[dict[str, str], dict[str, str], dict[str, set[str]]]


def read_sets(data: Path) -> tuple[dict[str, Pairs], dict[str, Collection]]:
    """The sets of similarity and those of search, by what is measured."""
    similarity = {
        "STS-B test": read_pairs(data / "stsb" / "test.parquet", "label"),
        "SICK validation": read_pairs(data / "sick" / "validation.parquet", "relatedness"),
    }
    search = {
        "SciFact nDCG@10": read_collection(data / "scifact", "_test"),
        "Cranfield nDCG@10": read_collection(data / "cranfield"),
        "NPL nDCG@10": read_collection(data / "npl"),
        "CACM nDCG@10": read_collection(data / "cacm"),
        "SQuAD nDCG@10": read_sentences(data / "squad_sent" / "train.parquet"),
    }
    return similarity, search


def read_pairs(file: Path, label: str) -> Pairs:
    pairs = pd.read_parquet(file)
    return pairs["sentence1"].tolist(), pairs["sentence2"].tolist(), pairs[label].tolist()


def read_collection(folder: Path, split: str = "") -> Collection:
    corpus = pd.read_parquet(folder / "corpus.parquet").astype({"doc_id": str})
    queries = pd.read_parquet(folder / f"queries{split}.parquet").astype({"query_id": str})
    relevant = pd.read_parquet(folder / f"qrels{split}.parquet").astype({"query_id": str, "doc_id": str})
    judged = queries[queries["query_id"].isin(relevant["query_id"])]
    return (
        dict(zip(judged["query_id"], judged["query"], strict=True)),
        dict(zip(corpus["doc_id"], corpus["title"] + " " + corpus["text"], strict=True)),
        relevant.groupby("query_id")["doc_id"].agg(set).to_dict(),
    )


def keep_documents(collection: Collection, number: int | None) -> Collection:
    """So many documents, those first that are relevant for a query. Queries without one are left out."""
    queries, corpus, relevant = collection
    wanted = [doc_id for doc_ids in relevant.values() for doc_id in sorted(doc_ids)]
    corpus = {doc_id: corpus[doc_id] for doc_id in list(dict.fromkeys([*wanted, *corpus]))[:number]}
    relevant = {query_id: found for query_id, doc_ids in relevant.items() if (found := doc_ids & corpus.keys())}
    return {query_id: queries[query_id] for query_id in relevant}, corpus, relevant


def is_held_out(sentence: str) -> bool:
    """Whether the questions about a sentence are for tests: a quarter, by a hash."""
    return zlib.crc32(sentence.encode()) % 4 == 0


def read_sentences(file: Path) -> Collection:
    pairs = pd.read_parquet(file)
    held_out = pairs[pairs["sentence"].map(is_held_out)]
    relevant = held_out.groupby("question")["sentence"].agg(set).to_dict()
    texts = sorted(set(pairs["sentence"]))
    return {question: question for question in relevant}, {text: text for text in texts}, relevant


def as_rankings(queries: dict[str, str], corpus: dict[str, str], relevant: dict[str, set[str]]) -> Rankings:
    row_of = {doc_id: row for row, doc_id in enumerate(corpus)}
    documents = [[row_of[doc_id] for doc_id in relevant[query_id]] for query_id in queries]
    columns = {"query_id": list(queries), "query": list(queries.values()), "documents": documents}
    columns["labels"] = [[1.0] * len(rows) for rows in documents]
    return make_rankings(columns, {"doc_id": list(corpus), "text": list(corpus.values())})


def measure_bm25(collection: Collection, model: SentenceTransformer | None = None, **options: Any) -> float:
    """nDCG@10 of BM25, or of BM25 beside the cosine of a model; the options are those of an [`Index`]."""
    rankings = as_rankings(*collection)
    index = Index.of(model, rankings, show_progress=False, **options)
    how: dict[str, Any] = {"by_words": True} if model is None else {"bm25_weight": BM25_WEIGHT}
    return measure_run(index.run(rankings, 10, **how), relevance(rankings))["ndcg@10"]


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("models", nargs="*")
    parser.add_argument("--bm25", action="store_true", help="a row for BM25, and for each model with it")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument("--sets", nargs="+", help="names of some of the sets, as in the table")
    parser.add_argument("--output", type=Path, help="file for the numbers: model -> set -> metric")
    args = parser.parse_args(argv)
    similarity, search = (
        {title: part for title, part in parts.items() if args.sets is None or title.split()[0] in args.sets}
        for parts in read_sets(args.data)
    )
    correlations = {
        title: EmbeddingSimilarityEvaluator(*pairs, main_similarity="cosine") for title, pairs in similarity.items()
    }
    searches = {
        title: InformationRetrievalEvaluator(
            *collection, ndcg_at_k=[10], score_functions={"cosine": cos_sim}, batch_size=64
        )
        for title, collection in search.items()
    }
    scores: dict[str, dict[str, float]] = {}
    for name in args.models:
        options = {"model_kwargs": {"dtype": args.dtype}, "similarity_fn_name": "cosine"}
        model = SentenceTransformer(name, trust_remote_code=True, **options)
        scores[name] = {title: evaluator(model)["spearman_cosine"] for title, evaluator in correlations.items()}
        if args.bm25:
            scores[f"{name} + BM25"] = {}
        for title, evaluator in searches.items():
            texts = list(search[title][1].values())
            documents = model.encode_document(texts, batch_size=64, convert_to_tensor=True)
            scores[name][title] = evaluator(model, corpus_embeddings=documents)["cosine_ndcg@10"]
            if args.bm25:
                options = {"vectors": documents.float(), "batch_size": 64}
                scores[f"{name} + BM25"][title] = measure_bm25(search[title], model, **options)
    if args.bm25:
        scores["BM25"] = {title: measure_bm25(collection) for title, collection in search.items()}
    titles = [*similarity, *search]
    rows = [
        [Path(name).name, *(f"{100 * row[title]:.2f}" if title in row else "" for title in titles)]
        for name, row in scores.items()
    ]
    print(markdown(["model", *titles], rows, num_left=1))
    if args.output:
        args.output.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
