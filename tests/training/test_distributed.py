# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""All three trainers in two processes on the CPU, started with torchrun."""

import json
import subprocess
import sys
from pathlib import Path

import pytest
import torch
from safetensors.torch import load_file

from hf_dse import DseModel


BIN = Path(sys.executable).parent

# Trains a student on pairs, on rankings with pairs, and on text, from what is in the folder.
PROGRAM = """
import json, sys
from pathlib import Path
from datasets import Dataset
from accelerate import PartialState
from transformers import AutoTokenizer
from hf_dse import (DseForSequenceClassification, DseModel, DseTrainer, DseTrainingArguments, GeneralTrainer,
    GeneralTrainingArguments, RankingTrainer, RankingTrainingArguments, convert_encoder)

start, output, batch_size = (Path(word) for word in sys.argv[1:])
sys.path[:0] = [TESTS, str(Path(TESTS).parent)]
from test_general_trainer import ALL_LOSSES, TEXTS
from test_ranking_trainer import make_lists, make_pairs
from trainings import PLAIN_SGD, TINY_RUN

tokenizer = AutoTokenizer.from_pretrained(start)
rankings = make_lists(24, 0)
run = {name: value for name, value in TINY_RUN.items() if name != "train_sampling_strategy"}
run |= {**PLAIN_SGD, "per_device_train_batch_size": int(str(batch_size)), "num_train_epochs": 2, "save_steps": 3,
    "save_strategy": "steps", "save_total_limit": None, "train_sampling_strategy": "random"}

by_length = run | {"train_sampling_strategy": "group_by_length"}

def make(kind):
    folder = str(output / kind)
    if kind == "pairs":
        student = DseForSequenceClassification.from_pretrained(start)
        args = DseTrainingArguments(folder, **by_length, distillation_alpha=0.0)
        return DseTrainer(student, args, make_pairs(), None, tokenizer)
    if kind == "rankings":
        student = DseForSequenceClassification.from_pretrained(start)
        args = RankingTrainingArguments(folder, **run, num_candidates=4, cached_gradients=3)
        return RankingTrainer(student, args, rankings, make_lists(8, 5), tokenizer, make_pairs())
    args = GeneralTrainingArguments(folder, **by_length, **ALL_LOSSES)
    student = DseModel.from_pretrained(start / "student")
    teacher = convert_encoder(str(start / "teacher"), layer_types="full_attention")
    return GeneralTrainer(student, args, Dataset.from_dict({"text": TEXTS}), None, tokenizer, teacher)

for kind in ("pairs", "rankings", "text"):
    for checkpoint in (None, output / kind / "checkpoint-3"):
        trainer = make(kind)
        trainer.train(resume_from_checkpoint=checkpoint)
        folder = output / (f"{kind} resumed" if checkpoint else kind)
        trainer.save_model(str(folder))
        if trainer.is_world_process_zero():
            losses = [entry["loss"] for entry in trainer.state.log_history if "loss" in entry]
            (folder / "losses.json").write_text(json.dumps(losses))
PartialState().wait_for_everyone()
PartialState().destroy_process_group()
"""


@pytest.mark.slow
def test_two_processes_equal_one(make_student, make_model, save_bert, bert_tokenizer, tmp_path):
    """With negatives of the other process, pairs spread unevenly, cached gradients, and resumed amid an epoch."""
    program = tmp_path / "program.py"
    program.write_text(PROGRAM.replace("TESTS", repr(__file__.rpartition("/")[0])))
    start = tmp_path / "start"
    # No dropout, because each process draws its own random numbers.
    plain = {"hidden_dropout_prob": 0.0, "attention_probs_dropout_prob": 0.0}
    first = make_student(**plain)
    make_model(DseModel, linformer_length=4, **plain).save_pretrained(start / "student")
    save_bert(start / "teacher")
    for part in (first, bert_tokenizer):
        part.save_pretrained(start)
    for name, batch_size in (("one", 8), ("two", 4)):
        line = [BIN / "python"] if name == "one" else [BIN / "torchrun", "--nproc_per_node", "2"]
        line += [program, start, tmp_path / name, batch_size]
        result = subprocess.run(list(map(str, line)), capture_output=True, text=True)
        assert result.returncode == 0, result.stderr[-3000:]
    for kind, num_steps in (("pairs", 4), ("rankings", 10), ("text", 4)):
        expected = load_file(tmp_path / "one" / kind / "model.safetensors")
        losses = json.loads((tmp_path / "one" / kind / "losses.json").read_text())
        assert len(losses) == num_steps
        for name in ("one", "two"):
            for folder in (tmp_path / name / kind, tmp_path / name / f"{kind} resumed"):
                assert json.loads((folder / "losses.json").read_text()) == pytest.approx(losses, rel=1e-4)
                for weight, value in load_file(folder / "model.safetensors").items():
                    torch.testing.assert_close(value, expected[weight], rtol=1e-4, atol=5e-5, msg=f"{folder} {weight}")
    moved = load_file(tmp_path / "one" / "rankings" / "model.safetensors")
    assert max((moved[f"dse.{name}"] - value).abs().max() for name, value in first.dse.state_dict().items()) > 0.1
