# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny model folders and files of data, good ones to begin with."""

import json

import pytest
from transformers import BertForSequenceClassification

from hf_dse import convert_encoder, export_model


@pytest.fixture(scope="session")
def good(tmp_path_factory, save_bert, bert_tokenizer):
    """A folder with an encoder, a student and a teacher, and with texts, pairs and rankings."""
    folder = tmp_path_factory.mktemp("good")
    save_bert(folder / "bert")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    export_model(convert_encoder(str(folder / "bert"), linformer_length=8), bert_tokenizer, folder / "dse")
    (folder / "texts.txt").write_text("the cat sat\na dog ran\nold house\n")
    first = "The cat and the dog sat on the old mat in the new house of a cat. "
    (folder / "docs.txt").write_text(
        "".join(f"{number} {first}The dog number {number} ran.\n" for number in range(20))
    )
    texts = ["the cat sat", "a dog ran", "old house", "new mat"]
    pairs = [{"sentence1": texts[row % 4], "sentence2": texts[row % 3], "label": float(row % 5)} for row in range(8)]
    rankings = [{"query": text, "documents": [text + " in", "house"], "labels": [1.0, 0.0]} for text in texts]
    for name, rows in (("pairs", pairs), ("rankings", rankings), ("texts", [{"text": text} for text in texts])):
        (folder / f"{name}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    return folder
