# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Models that ONNX Runtime or OpenVINO computes: the values of PyTorch, kept apart, and what they refuse."""

import copy
import pickle
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import onnx
import pytest
import torch
from transformers import BertForSequenceClassification, ModernBertConfig, ModernBertModel

from hf_dse import DseModel, Index, evaluate, export, load_reranker, score, to_sentence_transformer
from hf_dse.retrieval.graph import graph_of, make_graph
from hf_dse.retrieval.rerankers import rerank
from hf_dse.retrieval.sentence_transformer import embed, fingerprint_of
from hf_dse_cli import main


TEXTS = ["the cat sat", "a dog ran " * 6, "house", "the old dog sat in a new house"]
QUIET = {"show_progress": False}
BACKENDS = ["onnx", "openvino"]


@pytest.fixture
def graphs(tmp_path, monkeypatch):
    """Where graphs are kept."""
    monkeypatch.setattr("huggingface_hub.utils._cache_assets.HF_ASSETS_CACHE", str(tmp_path / "assets"))
    return tmp_path / "assets" / "hf-dse" / "graphs"


@pytest.fixture
def encoder(save_encoder):
    return str(save_encoder({"query": "old "}))


@pytest.fixture
def cross_encoder(save_bert, tmp_path):
    return str(save_bert(tmp_path / "reranker", BertForSequenceClassification, num_labels=1))


def test_the_vectors_of_a_graph_are_those_of_torch(encoder, graphs):
    exact = to_sentence_transformer(encoder)
    found = {backend: to_sentence_transformer(encoder, backend=backend) for backend in BACKENDS}
    for model in found.values():
        for prompt_name in ("query", "document"):
            expected = embed(exact, TEXTS, prompt_name, **QUIET)
            np.testing.assert_allclose(embed(model, TEXTS, prompt_name, **QUIET), expected, atol=1e-5)
    # One graph for both runtimes; the vectors of each are kept apart.
    (path,) = graphs.rglob("*.onnx")
    made = path.stat().st_mtime_ns
    assert len({fingerprint_of(model) for model in (exact, *found.values())}) == 3
    to_sentence_transformer(encoder, backend="openvino", max_length=8)
    assert path.stat().st_mtime_ns == made
    # A copy shares the graph, also with other threads.
    copies = [to_sentence_transformer(found["openvino"]) for _ in range(2)]
    assert graph_of(copies[0]) is graph_of(found["openvino"])
    with ThreadPoolExecutor(2) as pool:
        for vectors in pool.map(lambda model: embed(model, TEXTS * 8, **QUIET), copies):
            np.testing.assert_allclose(vectors, embed(exact, TEXTS * 8, **QUIET), atol=1e-5)


@pytest.mark.slow
@pytest.mark.parametrize("backend", BACKENDS)
def test_a_student_and_a_model_with_windows_have_graphs(make_model, bert_tokenizer, backend, tmp_path, graphs):
    torch.manual_seed(0)
    config = ModernBertConfig(
        **{"vocab_size": 130, "hidden_size": 32, "intermediate_size": 48, "num_hidden_layers": 3},
        **{"num_attention_heads": 2, "local_attention": 8, "global_attn_every_n_layers": 3, "pad_token_id": 0},
    )
    windowed = tmp_path / "windowed"
    ModernBertModel(config).save_pretrained(windowed)
    bert_tokenizer.save_pretrained(windowed)
    student = export(make_model(DseModel, max_position_embeddings=256), tmp_path / "student", bert_tokenizer)
    texts = [*TEXTS, "the cat sat on the dog " * 30]
    for folder in (student, windowed):
        vectors = [embed(to_sentence_transformer(folder, backend=name), texts, **QUIET) for name in ("torch", backend)]
        np.testing.assert_allclose(vectors[1], vectors[0], atol=1e-5)


def test_the_scores_of_a_graph_are_those_of_torch(cross_encoder, graphs):
    queries, lists = ["cat", "the dog"], [TEXTS, TEXTS[::-1]]
    expected = rerank(load_reranker(cross_encoder, dtype="float32"), queries, lists, **QUIET)
    for backend in BACKENDS:
        loaded = load_reranker(cross_encoder, dtype="float32", backend=backend)
        np.testing.assert_allclose(rerank(loaded, queries, lists, **QUIET), expected, atol=1e-5)
        assert graph_of(copy.deepcopy(loaded)).backend == backend
    pairs = [score(cross_encoder, "embedded", split="validation", backend=name, **QUIET) for name in ("torch", "onnx")]
    np.testing.assert_allclose(pairs[1]["teacher_logits"][:], pairs[0]["teacher_logits"][:], atol=1e-5)


def test_an_index_is_loaded_with_its_backend(encoder, graphs, tmp_path):
    index = Index(to_sentence_transformer(encoder, backend="onnx"), TEXTS, **QUIET)
    index.save(tmp_path / "index")
    loaded = Index.load(tmp_path / "index", encoder, **QUIET)
    assert graph_of(loaded.model).backend == "onnx"
    np.testing.assert_array_equal(loaded.vectors, index.vectors)
    with pytest.raises(ValueError, match=r"another prompt, length, backend or data type \(onnx, float32\)"):
        Index.load(tmp_path / "index", to_sentence_transformer(encoder), **QUIET)


def test_a_command_computes_by_a_graph(encoder, graphs, tmp_path, capsys):
    (tmp_path / "texts.txt").write_text("\n".join(TEXTS))
    vectors = {}
    for backend in ("torch", "onnx"):
        output = tmp_path / f"{backend}.npy"
        options = ["--backend", backend, "--input", str(tmp_path / "texts.txt"), "--output", str(output)]
        assert main(["encode", "--model", encoder, *options]) == 0
        vectors[backend] = np.load(output)
    np.testing.assert_allclose(vectors["onnx"], vectors["torch"], atol=1e-5)
    assert list(graphs.rglob("*.onnx"))


def test_a_damaged_graph_is_made_anew(encoder, graphs, warnings):
    expected = embed(to_sentence_transformer(encoder), TEXTS, **QUIET)
    to_sentence_transformer(encoder, backend="onnx")
    (path,) = graphs.rglob("*.onnx")
    whole, graph = path.read_bytes(), onnx.load(path)
    weight = max(graph.graph.initializer, key=lambda tensor: len(tensor.raw_data))
    weight.raw_data = bytes(len(weight.raw_data))
    damages = [("openvino", whole[:1000], "cannot be read"), ("onnx", graph.SerializeToString(), "is another by onnx")]
    for backend, damaged, message in damages:
        path.write_bytes(damaged)
        vectors = embed(to_sentence_transformer(encoder, backend=backend), TEXTS, **QUIET)
        np.testing.assert_allclose(vectors, expected, atol=1e-5)
        assert message in warnings.pop()


def test_a_graph_that_gives_other_values_is_refused(encoder, graphs, monkeypatch):
    def other(model, tokenizer):
        changed = copy.deepcopy(model)
        torch.nn.init.normal_(changed.get_input_embeddings().weight)
        return make_graph(changed, tokenizer)

    monkeypatch.setattr("hf_dse.retrieval.graph.make_graph", other)
    with pytest.raises(ValueError, match="The graph of this BertModel gives other values by onnx than the model"):
        to_sentence_transformer(encoder, backend="onnx")


def test_a_graph_that_is_there_needs_no_lock_and_is_read_by_other_processes(encoder, graphs, monkeypatch):
    expected = embed(to_sentence_transformer(encoder, backend="onnx"), TEXTS, **QUIET)
    # As in a folder that is only read.
    monkeypatch.setattr("hf_dse.retrieval.graph.wait_for_lock", None)
    model = pickle.loads(pickle.dumps(to_sentence_transformer(encoder, backend="onnx")))
    assert graph_of(model).backend == "onnx"
    np.testing.assert_array_equal(embed(model, TEXTS, **QUIET), expected)


def test_a_model_that_has_learned_is_not_computed_by_its_old_graph(encoder, graphs):
    model = to_sentence_transformer(encoder, backend="onnx")
    model.transformers_model.load_state_dict(
        {name: tensor * 1.5 for name, tensor in model.transformers_model.state_dict().items()}
    )
    with pytest.raises(RuntimeError, match="weights of the model have changed since its graph was made"):
        model.encode(TEXTS)


def test_a_failure_leaves_no_half_graph(encoder, graphs, monkeypatch):
    monkeypatch.setattr("hf_dse.retrieval.graph.make_graph", lambda *inputs: 1 / 0)
    with pytest.raises(ValueError, match="No graph can be made of this BertModel .*: use the backend torch"):
        to_sentence_transformer(encoder, backend="openvino")
    assert not list(graphs.rglob("*.onnx"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"backend": "tensorrt"}, "backend='tensorrt': it has to be torch, onnx, openvino"),
        ({"backend": "onnx", "dtype": "bfloat16"}, "dtype=bfloat16: onnx computes in float32; torch in others too"),
        ({"backend": "openvino", "dtype": torch.float16}, "dtype=float16: openvino computes in float32 or bfloat16"),
        ({"backend": "openvino", "device": "cuda"}, "device='cuda': openvino computes on the CPU here"),
    ],
)
def test_what_a_backend_cannot_do_is_refused(encoder, options, message):
    for load in (to_sentence_transformer, load_reranker):
        with pytest.raises(ValueError, match=message):
            load(encoder, **options)


def test_the_head_of_a_student_is_computed_by_torch(make_model, bert_tokenizer, tmp_path):
    student = export(make_model(), tmp_path / "student", bert_tokenizer)
    with pytest.raises(ValueError, match="backend='onnx': the head for pairs of .* is computed by torch"):
        evaluate(student, "embedded", backend="onnx", **QUIET)
