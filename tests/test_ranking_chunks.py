# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Training of chunks that are read with their document: against inference and slow code, and on a task for it."""

import json
import shutil

import numpy as np
import pytest
import torch
from safetensors.torch import load_file
from transformers import AutoModel, AutoTokenizer

from hf_dse import evaluate_retrieval, load_rankings, make_rankings
from hf_dse.data.pairs import DataArguments
from hf_dse_cli import main


NAMES = "a b c d e f g h".split()
FACTS = "cat dog mat house old new sat ran".split()
NO_DROPOUT = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
TINY_RUN = {
    "max_length": 64,
    "per_device_train_batch_size": 8,
    "num_candidates": 4,
    "logging_steps": 1,
    "report_to": "none",
    "use_cpu": True,
    "disable_tqdm": True,
    "save_strategy": "no",
    "eval_strategy": "no",
    "load_best_model_at_end": False,
}


def make_stories(seed, num_documents=48, has_evidence=True):
    """Only the first sentence names the subject, and each of the others has a fact. Queries name both."""
    generator = np.random.default_rng(seed)
    columns = {"query": [], "documents": [], "labels": [], "evidence": []}
    corpus = []
    for row in range(num_documents):
        name = NAMES[row % len(NAMES)]
        facts = generator.choice(FACTS, 3, replace=False)
        corpus.append(f"the {name} is in the. " + " ".join(f"of {fact} and {fact}." for fact in facts))
        for fact in facts:
            columns["query"].append(f"{name} {fact}")
            columns["documents"].append([row])
            columns["labels"].append([1.0])
            columns["evidence"].append([f"of {fact} and {fact}."])
    return make_rankings(columns, {"text": corpus})


# The command


@pytest.fixture(scope="module")
def assets(tmp_path_factory, save_bert):
    folder = tmp_path_factory.mktemp("chunks")
    save_bert(folder / "encoder")
    (folder / "data").mkdir()
    stories = make_stories(0, 12)
    corpus = [{"_id": f"d{row}", "text": text} for row, text in enumerate(stories.corpus["text"][:])]
    rows = [
        {"query": row["query"], "document_ids": [f"d{row['documents'][0]}"], "labels": [1.0], "evidence": row["evidence"][0]}
        for row in stories.queries
    ]
    (folder / "corpus.jsonl").write_text("".join(json.dumps(row) + "\n" for row in corpus))
    for split, part in (("train", rows[:24]), ("validation", rows[24:30]), ("test", rows[30:])):
        (folder / f"{split}.jsonl").write_text("".join(json.dumps(row) + "\n" for row in part))
    return folder


def run(assets, output, *flags, **changed):
    options = {
        "max_length": 32, "chunk_size": 8, "num_negatives": 0, "queries_per_document": 2, "freeze_layers": 1,
        "per_device_train_batch_size": 4, "num_train_epochs": 2, "learning_rate": 1e-3, "linformer_length": 16,
        "linformer_projection": "strided", "attention_probs_dropout_prob": 0, "save_total_limit": 2, "use_cpu": True,
        "disable_tqdm": True, "report_to": "none", **changed,
    }  # fmt: skip
    argv = ["distill", "--stage", "ranking", "--model_name_or_path", str(assets / "encoder")]
    argv += ["--output_dir", str(output), "--corpus_file", str(assets / "corpus.jsonl"), *flags]
    for split in ("train", "validation", "test"):
        argv += [f"--{split}_file", str(assets / f"{split}.jsonl")]
    return main([*argv, *(text for name, value in options.items() for text in (f"--{name}", str(value)))])


def weights(folder):
    return load_file(folder / "model" / "model.safetensors")


def test_from_the_command_to_a_folder(assets, tmp_path, capsys, warnings):
    anchors = ["--bi_encoder_name_or_path", str(assets / "encoder")]
    run(assets, tmp_path / "out", *anchors, anchor_weight=1)
    out = capsys.readouterr().out
    assert "ndcg@10" in out and "Saved to" in out and not warnings
    results = json.loads((tmp_path / "out" / "results.json").read_text())
    assert results["recipe"]["chunk_size"] == 8 and results["recipe"]["anchor_weight"] == 1
    # What was measured is true of the folder, with the best of the chunks.
    folder = tmp_path / "out" / "model"
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    source = DataArguments(test_file=str(assets / "test.jsonl"), corpus_file=str(assets / "corpus.jsonl"))
    options = {"chunks": True, "chunk_size": 8, "contextual": True, "show_progress": False}
    measured = evaluate_retrieval(model, tokenizer, load_rankings(source, ["test"])["test"], **options)
    assert measured == pytest.approx(results["metrics"]["test"])
    # The evaluations during the training are of the same kind.
    state = json.loads(max(tmp_path.glob("out/checkpoint-*/trainer_state.json")).read_text())
    measured = evaluate_retrieval(model, tokenizer, load_rankings(DataArguments(
        validation_file=str(assets / "validation.jsonl"), corpus_file=str(assets / "corpus.jsonl")))["validation"],
        **options)  # fmt: skip
    assert state["best_metric"] == pytest.approx(measured["ndcg@10"])
    # Frozen layers are those of the encoder.
    start, end = load_file(assets / "encoder" / "model.safetensors"), weights(tmp_path / "out")
    for name, value in start.items():
        if "pooler" not in name:
            is_frozen = name.startswith(("embeddings.", "encoder.layer.0."))
            assert torch.equal(value, end[f"dse.{name}"]) == is_frozen, name


def test_a_stopped_training_resumes(assets, tmp_path):
    run(assets, tmp_path / "whole")
    run(assets, tmp_path / "part")
    # As if it had been killed after the first epoch.
    shutil.rmtree(tmp_path / "part" / "checkpoint-12")
    shutil.rmtree(tmp_path / "part" / "model")
    run(assets, tmp_path / "part", resume_from_checkpoint="last")
    first, second = weights(tmp_path / "whole"), weights(tmp_path / "part")
    assert all(torch.equal(first[name], second[name]) for name in first)
