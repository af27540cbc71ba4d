# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The checkpoint of `make flagship` is complete and small, and reproduces the numbers of its card."""

import re
from pathlib import Path

import pytest
import torch
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import DataArguments, evaluate, load_pairs
from hf_dse.convert.student import CODE_FILES
from hf_dse.data.options import EMBEDDED


ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "checkpoints" / "dse-minilm-l6"


def test_complete_and_small():
    files = {path.name: path for path in CHECKPOINT.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "modules.json", "tokenizer.json"} <= files.keys()
    assert files["model.safetensors"].stat().st_size <= 46e6
    # Outdated code would load, but give other results: copy it when modeling/ changes.
    for name in CODE_FILES:
        assert files[name].read_text() == (ROOT / "modeling" / name).read_text(), name


@torch.inference_mode()
def test_reads_long_texts_whole():
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    model = AutoModel.from_pretrained(CHECKPOINT)
    assert tokenizer.model_max_length == model.config.max_position_embeddings == 16_384
    filler = "Nothing of interest happened on that day either. " * 200
    texts = [f"{filler}The violin was stolen from the museum.", f"{filler}The goalkeeper saved the penalty."]
    batch = tokenizer(texts, padding=True, return_tensors="pt")
    assert batch["input_ids"].shape[1] > 1_024
    first, second = model(**batch).pooler_output
    (query,) = model(**tokenizer(["Which theft happened in a museum?"], return_tensors="pt")).pooler_output
    assert query @ first > query @ second


def test_reproduces_the_numbers_of_the_card():
    card = (CHECKPOINT / "README.md").read_text()
    model = AutoModelForSequenceClassification.from_pretrained(CHECKPOINT)
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    pairs = load_pairs(DataArguments(dataset_name=EMBEDDED))["test"]
    scores = evaluate(model, pairs, tokenizer, task_name="stsb", max_length=256, show_progress=False)
    for name in ("Pearson", "Spearman"):
        (number,) = re.findall(rf"\| Embedded pairs of hf-dse, test, {name} \| ([\d.]+) \|", card)
        assert 100 * scores[name.lower()] == pytest.approx(float(number), abs=0.05)
