# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Tiny models and data, and the commands that write: how each is given, given again, and what it has written."""

import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

import numpy as np
import pyarrow.parquet
import pytest
import torch
import yaml
from counting import (  # noqa: F401
    pytest_addoption,
    pytest_runtest_call,
    pytest_runtest_logreport,
    pytest_runtest_makereport,
    pytest_sessionfinish,
)
from harness import model_folder, run
from transformers import BertForSequenceClassification

from hf_dse import DseForSequenceClassification, DseModel, convert_encoder, export_model
from hf_dse.training.base import complete_checkpoints


WORDS = "cat dog sat ran mat house old new".split()


def resume(output):
    """What a user adds: go on, or start again where there was no checkpoint yet."""
    if complete_checkpoints(output):
        return ["--resume_from_checkpoint", "last"]
    return ["--overwrite_output_dir", "true"]


def names_in_json(path):
    """Of a report with times, which differ each time, all that is the same."""
    return sorted(json.loads(path.read_bytes())) if path.read_bytes() != b"old" else b"old"


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


@pytest.fixture(scope="session")
def assets(tmp_path_factory, save_bert, tiny_config, bert_tokenizer):
    folder = tmp_path_factory.mktemp("assets")
    save_bert(folder / "encoder")
    save_bert(folder / "teacher", BertForSequenceClassification, num_labels=1)
    save_bert(folder / "embedder", hidden_size=24)
    for seed, (name, model_class) in enumerate(
        {"student": DseModel, "second": DseModel, "old": DseForSequenceClassification}.items()
    ):
        torch.manual_seed(seed)
        config = tiny_config(bert_tokenizer, initializer_range=0.2, num_labels=1)
        export_model(model_class(config), bert_tokenizer, folder / name)

    generator = np.random.default_rng(0)
    sizes = generator.integers(2, 12, 60)
    texts = [" ".join(generator.choice(WORDS, size)) + f" {row}" for row, size in enumerate(sizes)]
    (folder / "texts.txt").write_text("\n".join(texts))

    def write(name, rows):
        path = folder / name
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_text("".join(json.dumps(row) + "\n" for row in rows))

    pairs = [{"sentence1": texts[row], "sentence2": texts[row + 20], "label": row % 6} for row in range(40)]
    write("pairs/train.jsonl", pairs[:28])
    write("pairs/validation.jsonl", pairs[28:])
    queries = [{"_id": f"q{row}", "text": " ".join(texts[row].split()[:2])} for row in range(24)]
    write("queries/queries.jsonl", queries)
    write("queries/corpus.jsonl", [{"_id": f"d{row}", "text": text} for row, text in enumerate(texts)])
    for split, rows in (("train", range(12)), ("validation", range(12, 24))):
        path = folder / "queries" / "qrels" / f"{split}.tsv"
        path.parent.mkdir(exist_ok=True)
        path.write_text("query-id\tcorpus-id\tscore\n" + "".join(f"q{row}\td{row}\t1\n" for row in rows))
    mined = [(query["text"], [row, row + 20, row + 30]) for row, query in enumerate(queries)]
    write(
        "mined.jsonl",
        [
            {"query": query, "documents": [texts[row] for row in rows], "labels": [1, 0, 0]}
            | {"document_ids": [f"d{row}" for row in rows]}
            for query, rows in mined
        ],
    )
    (folder / "shards").mkdir()
    for number in range(4):
        table = pyarrow.table({"text": texts[number::4]})
        pyarrow.parquet.write_table(table, folder / "shards" / f"part-{number}.parquet")

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
    encoder, teacher = f"--model_name_or_path {assets}/encoder", f"--teacher_name_or_path {assets}/teacher"
    train = (
        "--max_length 24 --learning_rate 1e-3 --num_train_epochs 3 --per_device_train_batch_size 4 --use_cpu "
        "--report_to none --output_dir OUT"
    )
    every = "--save_strategy steps --save_steps 3 --eval_strategy steps --eval_steps 3"
    pairs = f"--dataset_name {assets}/pairs --num_labels 1"
    distill = f"distill {encoder} {teacher} --linformer_length 8 {train}"
    fine_tune = f"teacher {encoder} {train}"
    encode = f"encode --model_name_or_path {assets}/student --max_length 24 --input {assets}/texts.txt --output OUT"
    export = f"export --model_name_or_path {assets}/student --overwrite_output_dir --output_dir OUT"
    texts = f"--encoder_name_or_path {assets}/encoder {teacher}"
    training = {"again": resume, "kept": checkpoints}
    student = {"output": "out", "result": "model", "read": model_folder, **training}
    evaluate = f"evaluate --model_name_or_path {assets}/student {pairs} --truncate_dim 12 --precision int8"
    bench = f"bench long --model_name_or_path {assets}/encoder --needles passkey --lengths 64 --ways first bm25"
    trained = {"output": "out", "result": "model.safetensors", **training}
    folder = {"output": "out", "read": model_folder}
    found = {
        "score": Command(
            f"score --model_name_or_path {assets}/teacher {pairs} --max_length 48 --batch_size 4 --output_file OUT",
            "out.jsonl",
        ),
        "score rankings": Command(
            f"score --model_name_or_path {assets}/teacher --train_file {assets}/mined.jsonl --output_file OUT",
            "out.parquet",
        ),
        "mine": Command(
            f"mine {texts} --dataset_name {assets}/queries --num_candidates 4 --output_file OUT",
            "out.jsonl",
            kept=lambda output: list(output.parent.glob(".hf-dse-*/[!.]*.npy")),
        ),
        "augment": Command(
            f"augment {texts} --files {assets}/texts.txt --max_length 24 --max_pairs 40 --output_file OUT", "out.jsonl"
        ),
        "encode npy": Command(encode, "out.npy"),
        "encode parquet": Command(encode, "out.parquet"),
        "encode chunks": Command(
            f"{encode} --chunks --contextual --chunk_size 4 --truncate_dim 12 --precision binary", "out.parquet"
        ),
        "evaluate": Command(f"{evaluate} --output_file OUT", "out.json"),
        "bench long": Command(f"{bench} --rounds 1 --output_dir OUT", "out", "results.json", read=names_in_json),
        "distill": Command(f"{distill} {pairs} {every}", **student),
        "distill accumulated": Command(
            f"{distill} {pairs} {every} --gradient_accumulation_steps 2 --train_sampling_strategy group_by_length "
            "--save_total_limit 1",
            **student,
        ),
        "distill matryoshka": Command(
            f"{distill} {pairs} {every} --matryoshka_dims 16 8 --funnel_layers 1 --linformer_projection strided",
            **student,
        ),
        "distill ranking": Command(
            f"{distill} --stage ranking --dataset_name {assets}/queries --num_negatives 6 --num_candidates 4 "
            "--save_strategy steps --save_steps 2 --eval_strategy no",
            **student,
        ),
        "distill align": Command(
            f"distill {encoder} --teacher_name_or_path {assets}/embedder --linformer_length 8 {train} --stage align "
            f"--train_file {assets}/texts.txt --validation_file {assets}/texts.txt --max_eval_samples 12 "
            "--save_strategy steps --save_steps 3 --eval_strategy steps --eval_steps 3",
            **student,
        ),
        "distill recipe": Command(
            f"distill --config {assets}/recipe.yaml --output_dir OUT",
            **{**student, "result": "2-pairs/model", "again": lambda output: ["--resume_from_checkpoint", "last"]},
        ),
        "teacher": Command(f"{fine_tune} {pairs} {every}", **trained),
        "teacher without checkpoints": Command(f"{fine_tune} {pairs} --save_strategy no", **trained),
        "teacher of rankings": Command(
            f"{fine_tune} --train_file {assets}/mined.jsonl --num_negatives 2 --save_strategy epoch", **trained
        ),
        "convert": Command(
            f"convert {encoder} --linformer_length 8 --overwrite_output_dir --output_dir OUT", **folder
        ),
        "export": Command(export, **folder),
        "export onnx": Command(f"{export} --format onnx", **folder),
        "merge": Command(
            f"merge --model_names_or_paths {assets}/student {assets}/second --overwrite_output_dir --output_dir OUT",
            **folder,
        ),
        "whiten": Command(
            f"whiten --model_name_or_path {assets}/student --train_file {assets}/texts.txt --projection_dim 8 "
            "--overwrite_output_dir --output_dir OUT",
            **folder,
        ),
    }
    return found


@dataclass
class Undisturbed:
    """What a command writes and where, its seconds, how often it changes files, and the bytes of the largest one."""

    content: object
    output: Path
    seconds: float
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
            # Not with the time in which the server of forks starts.
            run(["--version"], log)
            started = time.monotonic()
            assert run(command.line(output), log, folder=output.parent) == 0, log.read_text()
            seconds = time.monotonic() - started
            sizes = [path.stat().st_size for path in output.parent.rglob("*") if path.is_file()]
            changes = int((folder / "log.changes").read_text())
            content = command.read(command.place(output))
            known[name] = Undisturbed(content, output, seconds, changes, max(sizes))
        return known[name]

    return find


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
