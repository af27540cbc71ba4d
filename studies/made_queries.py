# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
What are made queries worth? Files of queries of several kinds, each with the text that it was made of and 5 others.

    python studies/made_queries.py CORPUS OUT --model ENCODER [--kinds KIND ...] [--num_queries N]

CORPUS is a folder of files or one in the layout of BEIR. `headings` and `first_sentences` are those of
`hf_dse.make_queries`; `titles` are those of documents; `keywords` are the 3 rarest words of a text that other texts
have too, and stay in it; `mixed` is as many headings, first sentences and keywords.
OUT gets a file for each kind, for `hf-dse distill --stage ranking --train_file`; studies/made_queries.sh runs all.
"""

import argparse
import re
from collections import Counter
from dataclasses import replace
from pathlib import Path

import numpy as np
from datasets import Dataset, concatenate_datasets

from hf_dse import DataArguments, Rankings, load_corpus, make_queries, make_rankings, mine
from hf_dse.data.rankings import write_rankings
from hf_dse.retrieval.negatives import split_corpus
from hf_dse.retrieval.options import QUERY_KINDS
from hf_dse.retrieval.sentence_transformer import to_sentence_transformer


MIXED = (*QUERY_KINDS, "keywords")
WORD = re.compile(r"[^\W\d_]{3,}")


def keywords(text: str, frequencies: Counter) -> tuple[str, str]:
    """The 3 rarest words in the order of the text, which keeps them."""
    words = [word for word in dict.fromkeys(WORD.findall(text.lower())) if frequencies[word] > 1]
    rarest = sorted(words, key=frequencies.__getitem__)[:3]
    return (" ".join(word for word in words if word in rarest), text) if len(words) > 6 else ("", "")


def make(corpus: Dataset, kind: str, number: int, seed: int) -> Rankings:
    """Queries of a kind; a document gives at most one."""
    if kind in QUERY_KINDS:
        return make_queries(corpus, kind, num_queries=number, seed=seed)
    columns = {name: corpus[name][:] for name in corpus.column_names}
    frequencies = Counter(word for text in columns["text"] for word in set(WORD.findall(text.lower())))
    rows, queries = [], []
    for row in np.random.default_rng(seed).permutation(len(corpus)).tolist():
        title = columns.get("joined_title", [""] * len(corpus))[row] or ""
        body = columns["text"][row].removeprefix(title).strip()
        if kind == "titles":
            query, rest = (title, body) if title else ("", "")
        else:
            query, rest = keywords(body, frequencies)
            rest = f"{title}\n{rest}".strip()
        if query and len(rows) < number:
            rows.append(row)
            queries.append(query)
            columns["text"][row] = rest
    ids = [f"{kind}-{columns['doc_id'][row]}" for row in rows]
    known = {"documents": [[row] for row in rows], "labels": [[1.0] for _ in rows]}
    return make_rankings({"query_id": ids, "query": queries, **known}, columns)


def join(parts: list[Rankings]) -> Rankings:
    """Queries of several kinds beside one another, each with its own candidates."""
    texts = concatenate_datasets([part.corpus for part in parts])
    ids = [f"{number}-{doc_id}" for number, part in enumerate(parts) for doc_id in part.corpus["doc_id"]]
    queries, start = [], 0
    for part in parts:
        shift = start
        queries.append(part.queries.map(lambda row, by=shift: {"documents": [x + by for x in row["documents"]]}))
        start += len(part.corpus)
    return replace(
        parts[0],
        corpus=texts.remove_columns("doc_id").add_column("doc_id", ids),
        queries=concatenate_datasets(queries),
    )


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("corpus")
    parser.add_argument("out", type=Path)
    parser.add_argument("--model", required=True)
    parser.add_argument("--kinds", nargs="+", default=[*MIXED, "mixed"])
    parser.add_argument("--num_queries", type=int, default=900)
    parser.add_argument("--chunk_size", type=int, default=0)
    parser.add_argument("--max_length", type=int, default=256)
    args = parser.parse_args()
    args.out.mkdir(parents=True, exist_ok=True)
    encoder = to_sentence_transformer(args.model, max_length=args.max_length, dtype="auto")
    corpus = split_corpus(load_corpus(DataArguments(corpus_file=args.corpus)), encoder, args.chunk_size)
    single = [kind for kind in args.kinds if kind != "mixed"]
    single += [kind for kind in MIXED if "mixed" in args.kinds and kind not in single]
    mined = {}
    for kind in single:
        made = make(corpus, kind, args.num_queries, 42)
        options = {"num_negatives": 5, "range_max": 30, "relative_margin": None, "sampling": "random", "bm25": True}
        mined[kind] = mine(made, encoder, cache_dir=args.out / "vectors", show_progress=False, **options)
    if "mixed" in args.kinds:
        number = args.num_queries // len(MIXED)
        mined["mixed"] = join(
            [
                found.select(range(min(number, len(found)))).keep_documents()
                for found in (mined[kind] for kind in MIXED)
            ]
        )
    for kind, found in mined.items():
        write_rankings(found, args.out / f"{kind}.parquet")
        print(f"{kind}: {len(found)} queries, such as", *(f"\n    {query}" for query in found.queries["query"][:4]))


if __name__ == "__main__":
    main()
