# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny models and data, and the commands that write: how each is given, given again, and what it has written."""

import json
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pytest
import torch
import yaml
from harness import model_folder, run
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, DseModel, export
from hf_dse.training.base import complete_checkpoints


WORDS = "cat dog sat ran mat house old new".split()


def resume(output):
    """The options that a user adds: go on, or start again where there was no checkpoint yet."""
    if complete_checkpoints(output):
        return ["--resume_from_checkpoint", "last"]
    return ["--overwrite_output_dir", "true"]


def checkpoints(output):
    """The weights of complete checkpoints, of one stage or of several."""
    stages = [output, *output.glob("*/")]
    return [path / "model.safetensors" for stage in stages for path in complete_checkpoints(stage)]


@dataclass
class Command:
    """
    A command line that writes to `OUT`, a file or folder of the name `output`. To go on after a kill, `again` is
    appended to it. `kept` finds the files that are then not written again, and `read` returns what `place` is.
    """

    words: str
    output: str
    result: str = ""
    read: Callable = lambda path: path.read_bytes()
    again: Callable = lambda output: []
    kept: Callable = lambda output: []

    def line(self, output):
        return self.words.replace("OUT", str(output)).split()

    def place(self, output):
        return output / self.result if self.result else output


def write_rows(path, rows):
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text("".join(json.dumps(row) + "\n" for row in rows))


@pytest.fixture(scope="session")
def assets(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    for seed, (name, model_class) in enumerate({"student": DseModel, "old": DseForSequenceClassification}.items()):
        torch.manual_seed(seed)
        config = tiny_config(bert_tokenizer, initializer_range=0.2, num_labels=1)
        export(model_class(config), folder / name, bert_tokenizer)

    generator = np.random.default_rng(0)
    sizes = generator.integers(2, 12, 60)
    texts = [" ".join(generator.choice(WORDS, size)) + f" {row}" for row, size in enumerate(sizes)]
    (folder / "texts.txt").write_text("\n".join(texts))
    pairs = [{"sentence1": texts[row], "sentence2": texts[row + 20], "label": row % 6} for row in range(40)]
    write_rows(folder / "pairs/train.jsonl", pairs[:28])
    write_rows(folder / "pairs/validation.jsonl", pairs[28:])
    queries = [{"_id": f"q{row}", "text": " ".join(texts[row].split()[:2])} for row in range(24)]
    write_rows(folder / "queries/queries.jsonl", queries)
    write_rows(folder / "queries/corpus.jsonl", [{"_id": f"d{row}", "text": text} for row, text in enumerate(texts)])
    (folder / "queries/qrels").mkdir()
    for split, rows in (("train", range(12)), ("validation", range(12, 24))):
        lines = ["query-id\tcorpus-id\tscore", *(f"q{row}\td{row}\t1" for row in rows)]
        (folder / "queries/qrels" / f"{split}.tsv").write_text("\n".join(lines) + "\n")
    mined = [(query["text"], [texts[row], texts[row + 20], texts[row + 30]]) for row, query in enumerate(queries)]
    rows = [{"query": query, "documents": documents, "labels": [1, 0, 0]} for query, documents in mined]
    write_rows(folder / "mined.jsonl", rows)

    general = {"stage": "general", "train_file": str(folder / "texts.txt"), "save_strategy": "epoch"}
    second = {"stage": "pairs", "dataset_name": str(folder / "pairs"), "num_labels": 1}
    recipe = {
        "model_name_or_path": str(folder / "encoder"),
        "linformer_length": 8,
        "max_length": 24,
        "learning_rate": 1e-3,
        "num_train_epochs": 2,
        "per_device_train_batch_size": 4,
        "use_cpu": True,
        "report_to": "none",
        "stages": [general, {**second, "teacher_name_or_path": str(folder / "teacher")}],
    }
    (folder / "recipe.yaml").write_text(yaml.safe_dump(recipe))
    return folder


@pytest.fixture(scope="session")
def commands(assets):
    encoder, student = f"--model {assets}/encoder", f"--model {assets}/student"
    pairs = f"--dataset {assets}/pairs --num_labels 1"
    score = f"score --model {assets}/teacher --output_file OUT"
    distill = (
        f"distill {encoder} --teacher {assets}/teacher --linformer_length 8 --max_length 24 "
        "--learning_rate 1e-3 --num_train_epochs 3 --per_device_train_batch_size 4 --use_cpu --report_to none "
        "--output_dir OUT --save_strategy steps --save_steps 3 --eval_strategy steps --eval_steps 3"
    )
    encode = f"encode {student} --max_length 24 --input {assets}/texts.txt --output OUT"
    replace = "--overwrite_output_dir --output_dir OUT"
    trained = {"output": "out", "result": "model", "read": model_folder, "again": resume, "kept": checkpoints}
    folder = {"output": "out", "read": model_folder}
    return {
        "score": Command(f"{score} {pairs} --max_length 48 --batch_size 4", "out.jsonl"),
        "score rankings": Command(f"{score} --train_file {assets}/mined.jsonl", "out.parquet"),
        "mine": Command(
            f"mine --model {assets}/encoder --dataset {assets}/queries --num_negatives 4 --output_file OUT",
            "out.jsonl",
        ),
        "encode npy": Command(encode, "out.npy"),
        "encode parquet": Command(encode, "out.parquet"),
        "distill": Command(f"{distill} {pairs}", **trained),
        "distill accumulated": Command(
            f"{distill} {pairs} --gradient_accumulation_steps 2 --train_sampling_strategy group_by_length "
            "--save_total_limit 1",
            **trained,
        ),
        "distill ranking": Command(
            f"{distill} --stage ranking --dataset {assets}/queries --train_file {assets}/mined.jsonl "
            "--num_candidates 4 --save_steps 2 --eval_strategy no",
            **trained,
        ),
        "distill recipe": Command(
            f"distill --config {assets}/recipe.yaml --output_dir OUT",
            **{**trained, "result": "2-pairs/model", "again": lambda output: ["--resume_from_checkpoint", "last"]},
        ),
        "convert": Command(f"convert {encoder} --linformer_length 8 {replace}", **folder),
        "export": Command(f"export {student} {replace}", **folder),
        "whiten": Command(f"whiten {student} --train_file {assets}/texts.txt --projection_dim 8 {replace}", **folder),
    }


@dataclass
class Undisturbed:
    """The files that a command writes, how often it changes files, and the bytes of the largest one."""

    content: object
    output: Path
    changes: int
    size: int


@pytest.fixture(scope="session")
def undisturbed(commands, tmp_path_factory):
    """Runs a command of this name, once."""
    known = {}

    def find(name):
        if name not in known:
            command, folder = commands[name], tmp_path_factory.mktemp("undisturbed")
            output, log = folder / "files" / command.output, folder / "log"
            output.parent.mkdir()
            assert run(command.line(output), log, folder=output.parent) == 0, log.read_text()
            sizes = [path.stat().st_size for path in output.parent.rglob("*") if path.is_file()]
            changes = int((folder / "log.changes").read_text())
            content = command.read(command.place(output))
            known[name] = Undisturbed(content, output, changes, max(sizes))
        return known[name]

    return find
