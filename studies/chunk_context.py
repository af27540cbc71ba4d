# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Chunks that know their document without a pass over it: what `hf_dse.add_context` gives a search by the cosine.

    python recipes/long/questions.py DATA OUT
    python studies/chunk_context.py DATA OUT MODEL [MODEL ...] [--weights 0.1 0.2 0.3] [--split test]

Documents of QMSum and FairytaleQA, and with `--split test` those of SQuALITY's validation split, are found by the best
of their chunks of 128 tokens. Among the paragraphs of all fairy tales, a question has to find the one that answers it.
`--split validation` is for choosing the weight. Prints nDCG@10, R@1, and the difference in
nDCG@10 to plain chunks with its 95 % interval.
"""

import argparse
import json
import sys
from collections.abc import Iterator
from pathlib import Path

import pandas as pd


sys.path.insert(0, str(Path(__file__).parent))
from prepare_long import prepare, query_of  # noqa: E402

from hf_dse import DataArguments, ModelArguments, add_context, load_model, load_rankings  # noqa: E402
from hf_dse.common.display import markdown  # noqa: E402
from hf_dse.data.rankings import Rankings  # noqa: E402
from hf_dse.evaluation.comparison import compare_runs  # noqa: E402
from hf_dse.evaluation.retrieval import TOP_K, find_documents  # noqa: E402
from hf_dse.inference.chunks import encode_corpus  # noqa: E402
from hf_dse.inference.encoding import encode_query  # noqa: E402


def write_paragraphs(data: Path, out: Path, split: str) -> None:
    """The paragraphs of all fairy tales, whose ids begin with their tale's, and the questions about one of them."""
    documents = pd.read_parquet(data / "fairytaleqa" / "docs.parquet")
    tales = {row.doc_id: row.text.split("\n\n") for row in documents.itertuples()}
    queries = pd.read_parquet(data / "fairytaleqa" / "queries.parquet")
    queries = queries[(queries["split"] == split) & queries["section"].str.fullmatch(r"\d+")]
    kept = [row for row in queries.to_dict("records") if int(row["section"]) <= len(tales[row["doc_id"]])]
    corpus = [(f"{tale}#{place}", text) for tale, texts in tales.items() for place, text in enumerate(texts, start=1)]
    (out / "qrels").mkdir(parents=True, exist_ok=True)
    pd.DataFrame(corpus, columns=["_id", "text"]).to_json(out / "corpus.jsonl", orient="records", lines=True)
    rows = [(f"q{number}", query_of("fairytaleqa", row)) for number, row in enumerate(kept)]
    pd.DataFrame(rows, columns=["_id", "text"]).to_json(out / "queries.jsonl", orient="records", lines=True)
    judged = [(f"q{number}", f"{row['doc_id']}#{row['section']}", 1) for number, row in enumerate(kept)]
    columns = ["query-id", "corpus-id", "score"]
    pd.DataFrame(judged, columns=columns).to_csv(out / "qrels" / f"{split}.tsv", sep="\t", index=False)


def read_sets(data: Path, out: Path, split: str) -> Iterator[tuple[str, Rankings, bool]]:
    """Name and rankings of each set, and whether its documents are read in chunks, or are paragraphs."""
    splits = {"qmsum": split, "fairytaleqa": split} | ({"squality": "validation"} if split == "test" else {})
    for name, part in splits.items():
        folder = out / "context" / f"{name}-{part}"
        prepare(name, data, folder, part)
        yield name, load_rankings(DataArguments(dataset_name=str(folder)), [part])[part], True
    folder = out / "context" / f"paragraphs-{split}"
    write_paragraphs(data, folder, split)
    yield "paragraphs", load_rankings(DataArguments(dataset_name=str(folder)), [split])[split], False


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("out", type=Path)
    parser.add_argument("models", nargs="+")
    parser.add_argument("--weights", type=float, nargs="+", default=[0.2])
    parser.add_argument("--split", default="test", choices=["validation", "test"])
    parser.add_argument("--dtype", default="float32", choices=["float32", "bfloat16"])
    args = parser.parse_args()
    rows = []
    for name in args.models:
        model, tokenizer = load_model(ModelArguments(name, dtype=args.dtype))
        for set_name, rankings, is_long in read_sets(args.data, args.out, args.split):
            queries = encode_query(model, tokenizer, rankings.queries["query"][:], show_progress=False)
            vectors, documents, _ = encode_corpus(model, tokenizer, rankings.corpus["text"][:], chunks=is_long)
            groups = documents if is_long else [doc_id.rpartition("#")[0] for doc_id in rankings.corpus["doc_id"]]
            found = {0.0: vectors} | {weight: add_context(vectors, groups, weight) for weight in args.weights}
            runs = {
                str(weight): find_documents(model, rankings, queries, parts, documents, TOP_K, show_progress=False)
                for weight, parts in found.items()
            }
            for weight, metrics in compare_runs(runs, rankings).items():
                numbers = [f"{100 * metrics[metric]:.2f}" for metric in ("ndcg@10", "recall@1")]
                change = "-"
                if "low" in metrics:
                    change, low, high = (f"{100 * metrics[part]:+.2f}" for part in ("difference", "low", "high"))
                    change = f"{change} [{low}, {high}]"
                rows.append([Path(name).name, set_name, weight, *numbers, change])
                print(json.dumps(rows[-1]), flush=True)
    print(markdown(["model", "set", "weight", "nDCG@10", "R@1", "difference"], rows, num_left=2))


if __name__ == "__main__":
    main()
