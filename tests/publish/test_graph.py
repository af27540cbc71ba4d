# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Graphs for ONNX Runtime and OpenVINO: the embeddings of the model for texts of every length, in linear memory."""

import json
import subprocess
import sys
from functools import cache
from pathlib import Path

import numpy as np
import onnx
import onnxruntime
import openvino
import pytest
import torch
from instructions import all_instructions
from transformers import AutoTokenizer

from hf_dse import DseModel, export
from hf_dse.common.settings import TextSettings, set_settings


# These are about words that a tiny vocabulary lacks.
SPECIAL = {"pad_token_id": 0, "bos_token_id": 1, "eos_token_id": 2, "cls_token_id": 1, "mask_token_id": 4}
GROUPS = {"num_key_value_heads": 1, **SPECIAL}
MODERNBERT = {"model_type": "modernbert", "local_attention": 8, "global_attn_every_n_layers": 2, **SPECIAL}
CHUNKS = {"layer_types": ["chunked_attention", "sliding_linear_attention"], "attention_chunk_size": 20}

# Below, at and above k = 8, a window of 4, 20 tokens of a chunk and 64 of a block.
SHAPES = [(1, 1), (2, 3), (1, 8), (3, 17), (1, 64), (4, 65), (2, 200)]


@pytest.fixture
def make(make_model):
    return lambda **fields: make_model(DseModel, **{"max_position_embeddings": 256, **fields})


def token_batch(batch_size, num_tokens):
    """Random tokens; all rows but the first are padded."""
    ids = torch.randint(5, 123, (batch_size, num_tokens), generator=torch.Generator().manual_seed(num_tokens))
    lengths = torch.linspace(num_tokens, 1, batch_size).long()
    mask = (torch.arange(num_tokens) < lengths[:, None]).long()
    return {"input_ids": ids * mask, "attention_mask": mask, "token_type_ids": torch.zeros_like(mask)}


def run_onnx(folder, batch, name="model.onnx"):
    session = onnxruntime.InferenceSession(folder / "onnx" / name, providers=["CPUExecutionProvider"])
    assert [output.name for output in session.get_outputs()] == ["sentence_embedding", "token_embeddings"]
    return session.run(None, {name: tensor.numpy() for name, tensor in batch.items()})


@cache
def compile_openvino(folder, precision):
    path = folder / "onnx" / "model.onnx"
    with all_instructions():
        return openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": precision})


def run_openvino(folder, batch, precision="f32"):
    # One graph for all lengths: after a wrong one it would return what it returned before.
    graph = compile_openvino(folder, precision)
    return tuple(graph({name: tensor.numpy() for name, tensor in batch.items()}).values())


@pytest.mark.slow
@pytest.mark.parametrize(
    "fields",
    [
        {"linformer_projection": "learned"},
        {"linformer_projection": "learned", "linformer_init": "strided", "linformer_sharing": "none"},
        {"linformer_projection": "mean", "table": 16},
        {"linformer_length": 100, "projection_dim": 6, **CHUNKS},
        {"model_type": "roberta", "linformer_projection": "mean", "table": 18},
        {"model_type": "mpnet", "max_position_embeddings": 258},
        {"model_type": "gte", "linformer_projection": "mean", "layer_types": ["linear_attention"] * 2},
        {"model_type": "nomic_bert", "pooling_mode": "cls"},
        {"model_type": "eurobert", "layer_types": ["full_attention", "linear_attention"], **GROUPS},
        {"model_type": "embedding_gemma2_text", "head_dim": 8, "sliding_window": 8, **GROUPS},
        MODERNBERT,
        CHUNKS,
    ],
)
def test_graph_gives_the_embeddings_for_every_shape(make, bert_tokenizer, tmp_path, fields):
    model = make(**fields)
    folder = export(model, tmp_path / "graph", bert_tokenizer, format="onnx")
    with torch.inference_mode():
        for shape in SHAPES:
            batch = token_batch(*shape)
            outputs = model(**batch)
            real = batch["attention_mask"].numpy() > 0
            for run in (run_onnx, run_openvino):
                embeddings, tokens = run(folder, batch)
                np.testing.assert_allclose(embeddings, outputs.pooler_output, rtol=0, atol=1e-4)
                np.testing.assert_allclose(tokens[real], outputs.last_hidden_state.numpy()[real], rtol=0, atol=1e-4)


def test_a_model_with_a_slot_for_each_position_has_no_fixed_length(make, bert_tokenizer, tmp_path):
    model = make(max_position_embeddings=32, linformer_length=32)
    folder = export(model, tmp_path / "graph", bert_tokenizer, format="onnx")
    with torch.inference_mode():
        for num_tokens in (3, 31, 32):
            batch = token_batch(2, num_tokens)
            vectors, _ = run_onnx(folder, batch)
            np.testing.assert_allclose(vectors, model(**batch).pooler_output, rtol=0, atol=1e-4)


@pytest.mark.slow
@pytest.mark.parametrize("fields", [{**CHUNKS, "attention_chunk_size": 512}, MODERNBERT, {"table": 16}])
def test_bfloat16_rounds_no_length_and_no_position(make, bert_tokenizer, tmp_path, fields):
    model = make(max_position_embeddings=1024, **fields)
    folder = export(model, tmp_path / "graph", bert_tokenizer, format="onnx")
    for num_tokens in (7, 255, 257, 509, 511, 1001):
        batch = token_batch(2, num_tokens)
        with torch.inference_mode():
            expected = model(**batch).pooler_output
        embeddings, tokens = run_openvino(folder, batch, "bf16")
        assert tokens.shape[:2] == (2, num_tokens)
        similarity = torch.cosine_similarity(torch.from_numpy(embeddings), expected)
        assert similarity.min() > 0.999, (num_tokens, similarity)


# The largest memory of a process, in MiB, before and after a text.
MEMORY = """
import re, sys
from pathlib import Path
import numpy as np, onnxruntime

def peak():
    return int(re.search(r"VmHWM:\\s+(\\d+) kB", Path("/proc/self/status").read_text())[1]) / 1024

session = onnxruntime.InferenceSession(sys.argv[1], providers=["CPUExecutionProvider"])
ids = np.random.default_rng(0).integers(5, 99, (1, int(sys.argv[2])))
before = peak()
session.run(None, {"input_ids": ids, "attention_mask": np.ones_like(ids), "token_type_ids": np.zeros_like(ids)})
print(peak() - before)
"""


@pytest.mark.slow
@pytest.mark.skipif(not Path("/proc/self/status").exists(), reason="only Linux tells the memory of a process")
@pytest.mark.parametrize("fields", [{}, MODERNBERT], ids=["bert", "modernbert"])
def test_memory_grows_with_the_length(make, bert_tokenizer, tmp_path, fields):
    model = make(num_hidden_layers=4, max_position_embeddings=16_384, linformer_length=64, **fields)
    folder = export(model, tmp_path / "graph", bert_tokenizer, format="onnx")

    def measure(num_tokens):
        command = [sys.executable, "-c", MEMORY, str(folder / "onnx" / "model.onnx"), str(num_tokens)]
        return float(subprocess.run(command, capture_output=True, text=True, check=True).stdout)

    short, long = measure(4096), measure(16_384)
    # A matrix of 16,384 x 16,384 floats takes 1,024 MiB.
    assert long < min(5 * short, 256), (short, long)


@pytest.mark.slow
def test_graph_folder(make_model, bert_tokenizer, tmp_path):
    prompts = {"query": "the ", "document": ""}
    model = make_model(DseModel, projection_dim=6)
    set_settings(model, TextSettings({"query": "the "}, {"query_length": 4}))
    folder = export(model, tmp_path / "graph", bert_tokenizer, format="onnx", int8=True, max_length=10)
    names = {path.relative_to(folder).as_posix() for path in folder.rglob("*") if path.is_file()}
    assert names == {
        *("onnx/model.onnx", "onnx/model_quantized.onnx", "config.json", "configuration_dse.py"),
        *("tokenizer.json", "tokenizer_config.json", "modules.json", "1_Pooling/config.json"),
        *("sentence_bert_config.json", "config_sentence_transformers.json"),
    }
    lengths = json.loads((folder / "sentence_bert_config.json").read_text())
    tokenizer = AutoTokenizer.from_pretrained(folder)
    assert (lengths["max_seq_length"], lengths["query_length"], tokenizer.model_max_length) == (10, 4, 10)
    assert json.loads((folder / "config_sentence_transformers.json").read_text())["prompts"] == prompts
    operators = {node.op_type for node in onnx.load(folder / "onnx" / "model_quantized.onnx").graph.node}
    assert {"MatMulInteger", "DynamicQuantizeLinear"} <= operators
    texts = ["cat", "a dog ran on the mat", "the cat and a dog " * 9]
    batch = tokenizer(texts, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        expected = model(**batch).pooler_output
    embeddings = torch.from_numpy(run_onnx(folder, batch, "model_quantized.onnx")[0])
    assert torch.cosine_similarity(embeddings, expected).min() > 0.99


@pytest.mark.slow
def test_graph_takes_what_the_tokenizer_returns(make, tmp_path, bert_tokenizer, roberta_tokenizer):
    # ModernBERT has no use for the token types of the first tokenizer.
    for tokenizer, fields in ((bert_tokenizer, MODERNBERT), (roberta_tokenizer, {"vocab_size": 300})):
        model = make(**fields)
        folder = export(model, tmp_path / type(tokenizer).__name__, tokenizer, format="onnx")
        batch = tokenizer(["cat", "the cat and a dog " * 9], padding=True, return_tensors="pt")
        with torch.inference_mode():
            np.testing.assert_allclose(run_onnx(folder, batch)[0], model(**batch).pooler_output, rtol=0, atol=1e-4)
