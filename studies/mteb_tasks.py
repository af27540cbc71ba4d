# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What mteb measures of a model: on local sets of similarity and of search, or on a published benchmark.

    python studies/mteb_tasks.py MODEL [MODEL ...] --data DATA
    python studies/mteb_tasks.py MODEL [MODEL ...] --benchmark "MTEB(eng, v2)" --results FOLDER

DATA has the folders stsb, sick, scifact, cranfield, npl, cacm and squad_sent with parquet files: the sets of
studies/generality.py, as tasks of mteb. A benchmark is downloaded from the Hub. MODEL is a name that mteb knows, which
gets the prompts of its authors, or any other folder or Hub id that SentenceTransformer loads. The output is the main
score of each task, x 100.
"""

import argparse
import json
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import mteb
import pandas as pd
from datasets import Dataset
from generality import Collection, Pairs, read_sets
from mteb.abstasks import AbsTask, AbsTaskRetrieval, AbsTaskSTS
from mteb.abstasks.task_metadata import TaskMetadata
from mteb.models.model_implementations import MODEL_REGISTRY
from sentence_transformers import SentenceTransformer

from hf_dse.common.display import markdown


SPLIT = "test"


def describe(name: str, **fields: Any) -> TaskMetadata:
    return TaskMetadata(
        name=name,
        description=f"{name}, of local files",
        dataset={"path": "local", "revision": "local"},
        eval_splits=[SPLIT],
        eval_langs=["eng-Latn"],
        category="t2t",
        **fields,
    )


class Similarity(AbsTaskSTS):
    """Pairs of texts, by the Spearman correlation of the cosine."""

    def __init__(self, name: str, pairs: Pairs):
        self.metadata = describe(name, type="STS", main_score="cosine_spearman")
        super().__init__()
        columns = dict(zip(("sentence1", "sentence2", "score"), pairs, strict=True))
        self.dataset = {"default": {SPLIT: Dataset.from_dict(columns)}}
        self.data_loaded = True


class Search(AbsTaskRetrieval):
    """Queries that rank all documents, by nDCG@10."""

    def __init__(self, name: str, collection: Collection):
        self.metadata = describe(name, type="Retrieval", main_score="ndcg_at_10")
        super().__init__()
        queries, corpus, relevant = collection
        split = {
            "queries": Dataset.from_dict({"id": list(queries), "text": list(queries.values())}),
            "corpus": Dataset.from_dict({"id": list(corpus), "text": list(corpus.values())}),
            "relevant_docs": {query_id: dict.fromkeys(doc_ids, 1) for query_id, doc_ids in relevant.items()},
            "top_ranked": None,
        }
        self.dataset = {"default": {SPLIT: split}}
        self.data_loaded = True


def local_tasks(data: Path) -> list[AbsTask]:
    similarity, search = read_sets(data)
    return [
        *(Similarity(name, pairs) for name, pairs in similarity.items()),
        *(Search(name, collection) for name, collection in search.items()),
    ]


def load(name: str, dtype: str) -> Any:
    options = {"model_kwargs": {"dtype": dtype}}
    if name in MODEL_REGISTRY:
        return mteb.get_model(name, **options)
    return SentenceTransformer(name, trust_remote_code=True, **options)


def evaluate(model: Any, tasks: Iterable[AbsTask], results: Path | None = None) -> dict[str, float]:
    """The main score of each task; with a folder of results, of those that are not there yet."""
    # Not the usual cache: in it a folder has the name of the model that it was made from.
    cache = None if results is None else mteb.ResultCache(results)
    found = mteb.evaluate(model, tasks, cache=cache, encode_kwargs={"batch_size": 64})
    return {result.task_name: float(result.get_score()) for result in found.task_results}


def table(scores: dict[str, dict[str, float]], tasks: Sequence[AbsTask]) -> str:
    """A row for each task, and their means: over tasks, and over types of tasks as the leaderboard has it."""
    types = pd.Series({task.metadata.name: task.metadata.type for task in tasks})
    values = 100 * pd.DataFrame(scores).loc[types.index]
    means = {"mean of tasks": values.mean(), "mean of types": values.groupby(types).mean().mean()}
    rows = [(name, types[name], row) for name, row in values.iterrows()]
    rows += [(name, "", row) for name, row in means.items()]
    cells = [[name, kind, *(f"{value:.2f}" for value in row)] for name, kind, row in rows]
    return markdown(["task", "type", *(Path(name).name for name in scores)], cells, num_left=2)


def main(argv: Sequence[str] | None = None) -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="+")
    source = parser.add_mutually_exclusive_group(required=True)
    source.add_argument("--data", type=Path, help="the folder of the local sets")
    source.add_argument("--benchmark", help="a benchmark that mteb knows, such as 'MTEB(eng, v2)'")
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    parser.add_argument(
        "--results",
        type=Path,
        help="folder for mteb's results of each task, by the name of the model; what is there is not run again",
    )
    parser.add_argument("--output", type=Path, help="file for the numbers: model -> task -> main score")
    args = parser.parse_args(argv)
    tasks = local_tasks(args.data) if args.data else list(mteb.get_benchmark(args.benchmark).tasks)
    scores = {}
    for name in args.models:
        results = args.results and args.results / name.strip("/").replace("/", "--")
        scores[name] = evaluate(load(name, args.dtype), tasks, results)
    print(table(scores, tasks))
    if args.output:
        args.output.write_text(json.dumps(scores, indent=2) + "\n")


if __name__ == "__main__":
    main()
