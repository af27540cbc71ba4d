# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The checkpoint of `make flagship` is complete and small, and reproduces the numbers of its card."""

import re
from pathlib import Path

import pytest
import torch
from sentence_transformers import SentenceTransformer
from transformers import AutoModel, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import DataArguments, evaluate, load_pairs
from hf_dse.convert.student import CODE_FILES
from hf_dse.data.arguments import EMBEDDED


ROOT = Path(__file__).parents[2]
CHECKPOINT = ROOT / "checkpoints" / "dse-minilm-l6"


def test_complete_and_small():
    files = {path.name: path for path in CHECKPOINT.iterdir()}
    assert {"README.md", "config.json", "model.safetensors", "modules.json", "tokenizer.json"} <= files.keys()
    assert files["model.safetensors"].stat().st_size <= 46e6
    # Outdated code would load, but give other results: copy it when modeling/ changes.
    for name in CODE_FILES:
        assert files[name].read_text() == (ROOT / "modeling" / name).read_text(), name


def test_similar_sentences_have_similar_embeddings():
    tokenizer = AutoTokenizer.from_pretrained(CHECKPOINT)
    model = AutoModel.from_pretrained(CHECKPOINT)
    texts = [
        "A man is playing a guitar.",
        "Someone plays the guitar.",
        "A man is playing a piano.",
        "The stock market fell sharply on Monday.",
    ]
    with torch.inference_mode():
        vectors = model(**tokenizer(texts, padding=True, return_tensors="pt")).pooler_output
    same, related, unrelated = torch.cosine_similarity(vectors[:1], vectors[1:]).tolist()
    assert same > 0.8 and same > related + 0.1 and related > unrelated + 0.1 and unrelated < 0.2
    sentences = SentenceTransformer(str(CHECKPOINT), trust_remote_code=True)
    torch.testing.assert_close(torch.from_numpy(sentences.encode(texts)), vectors, rtol=0, atol=1e-5)


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
