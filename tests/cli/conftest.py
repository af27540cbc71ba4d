# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Models and data, and the commands with options that work on them."""

import json

import pytest
import torch
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, export
from hf_dse.studies.runs import append_row, load_study


WORDS = "cat dog sat ran mat house old new".split()


def write(path, rows):
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def good(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    """Models and data."""
    folder = tmp_path_factory.mktemp("good")
    save_bert(folder / "bert")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    torch.manual_seed(0)
    model = DseForSequenceClassification(tiny_config(bert_tokenizer, initializer_range=0.2, num_labels=1))
    export(model, folder / "dse", bert_tokenizer)
    texts = [f"{' '.join(WORDS[number % 8 :])} {number}" for number in range(12)]
    (folder / "texts.txt").write_text("\n".join(texts))
    (folder / "docs").mkdir()
    for number, text in enumerate(texts):
        (folder / "docs" / f"{number}.txt").write_text(f"The {text}. A {text} ran on the mat.")
    pairs = [
        {"sentence1": text, "sentence2": texts[-number], "label": number % 6} for number, text in enumerate(texts)
    ]
    write(folder / "pairs.jsonl", pairs)
    write(
        folder / "rankings.jsonl",
        [{"query": text.split()[0], "documents": [text, texts[0]], "labels": [1, 0]} for text in texts[1:]],
    )
    (folder / "study.yaml").write_text(
        f"options: {{model_name_or_path: {folder / 'dse'}, train_file: {folder / 'pairs.jsonl'}, num_labels: 1}}\n"
        "factors: {seed: [1, 2]}\n"
    )
    for run in load_study(folder / "study.yaml"):
        append_row(folder / "results.parquet", {"run": run.key, "test.pearson": 0.5})
    return folder


@pytest.fixture
def commands(good, tmp_path):
    """Each command that needs no network, with options that work. Everything is written to `out`."""
    out = tmp_path / "out"
    model, pairs = ["--model", good / "dse"], ["--train_file", good / "pairs.jsonl", "--num_labels", "1"]
    pairs += ["--validation_file", good / "pairs.jsonl"]
    training = ["--max_steps", "1", "--max_length", "32", "--report_to", "none", "--use_cpu"]
    training += ["--output_dir", out / "run"]
    return {
        "encode": [*model, "--input", good / "texts.txt", "--output", out / "o.parquet"],
        "search": [*model, "--corpus", good / "docs", "--query", "a", "--index_dir", out / "index"],
        "convert": ["--model", good / "bert", "--output_dir", out / "converted"],
        "assess": [*model, "--test_file", good / "rankings.jsonl", "--rerank", good / "teacher", "--rerank_top", "3"],
        "evaluate": [*model, *pairs],
        "score": ["--model", good / "teacher", *pairs, "--output_file", out / "s.jsonl"],
        "mine": [
            *["--corpus", good / "docs", "--queries_from", "first_sentences", "--bm25"],
            *["--model", good / "dse", "--output_file", out / "m.jsonl"],
        ],
        "export": [*model, "--output_dir", out / "exported"],
        "whiten": [*model, "--train_file", good / "texts.txt", "--projection_dim", "2", "--output_dir", out / "white"],
        "distill": [*model, *pairs, *training, "--distillation_alpha", "0"],
        "study": [good / "study.yaml", "--output_dir", out / "study"],
        "bench": [*model, "--lengths", "16", "64"],
    }
