# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Sentence pairs and queries of a few words, and tiny models for them."""

import json

import numpy as np
from datasets import Dataset
from transformers import BertForSequenceClassification


WORDS = "cat dog sat ran mat house old new".split()


def make_rows(number, seed):
    generator = np.random.default_rng(seed)
    rows = []
    for _ in range(number):
        first, second = (generator.choice(WORDS, 3).tolist() for _ in range(2))
        overlap = float(len(set(first) & set(second)))
        rows.append({"sentence1": " ".join(first), "sentence2": " ".join(second), "label": overlap})
    return rows


def write_beir(folder):
    """A corpus of three words a text, and queries of two of the words of the document that is relevant."""
    folder.mkdir()
    generator = np.random.default_rng(0)
    texts = [" ".join(generator.choice(WORDS, 3, replace=False)) + " ." * row for row in range(30)]
    corpus = [{"_id": f"d{row}", "title": "", "text": text} for row, text in enumerate(texts)]
    queries = [{"_id": f"q{row}", "text": " ".join(text.split()[:2])} for row, text in enumerate(texts[:24])]
    for name, rows in (("corpus", corpus), ("queries", queries)):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    (folder / "qrels").mkdir()
    for split, rows in (("train", range(12)), ("validation", range(12, 18)), ("test", range(18, 24))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in rows)]
        (folder / "qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")


def write_assets(folder, save_bert):
    """An encoder, a reranker, pairs and queries."""
    save_bert(folder / "encoder")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    (folder / "data").mkdir()
    for seed, (split, number) in enumerate({"train": 32, "validation": 12, "test": 12}.items()):
        Dataset.from_list(make_rows(number, seed)).to_parquet(folder / "data" / f"{split}.parquet")
    write_beir(folder / "queries")
    return folder
