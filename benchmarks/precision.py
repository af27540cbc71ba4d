# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
How much an embedding depends on how it is computed: the largest difference in a dimension of an embedding to float32,
one text at a time, and the Spearman correlation with the labels of sentence pairs. Then the same for one text of
65,536 tokens, and for weights that are far larger and smaller than usual, to float64. Embeddings have the length 1.

    python benchmarks/precision.py [MODEL] [--encoder ENCODER] [--dataset_name FOLDER] [--max_eval_samples N]

MODEL is a DSE model, by default the checkpoint of this repository; the pairs are by default those that come with it.
ENCODER is converted for the long text.
"""

import argparse
import copy
import tempfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime
import openvino
import torch
from scipy.stats import spearmanr
from torch import nn
from transformers import AutoModel, AutoTokenizer, PreTrainedModel, PreTrainedTokenizerBase

from hf_dse import DataArguments, convert_encoder, export, load_pairs, to_sentence_transformer
from hf_dse.common.display import markdown
from hf_dse.convert.student import limit_tokens
from hf_dse.retrieval.sentence_transformer import embed as embed_checked


CHECKPOINT = Path(__file__).parents[1] / "checkpoints" / "dse-minilm-l6"
LONG = 65_536

Embed = Callable[[list[str]], np.ndarray]


def unit(vectors: np.ndarray) -> np.ndarray:
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def ways(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, folder: Path) -> dict[str, Embed]:
    """Ways to compute embeddings."""

    def plain(model: PreTrainedModel, tokenizer: Any = tokenizer, is_compiled: bool = False, **options: Any) -> Embed:
        encoder = to_sentence_transformer(model, tokenizer)
        if is_compiled:
            encoder.transformers_model.compile(dynamic=True)
        return lambda texts: embed_checked(encoder, texts, None, show_progress=False, **options)

    def with_threads(number: int) -> Embed:
        def embed(texts: list[str]) -> np.ndarray:
            before = torch.get_num_threads()
            torch.set_num_threads(number)
            try:
                return plain(model)(texts)
            finally:
                torch.set_num_threads(before)

        return embed

    def autocast(texts: list[str]) -> np.ndarray:
        with torch.autocast("cpu", torch.bfloat16):
            return plain(model)(texts)

    def batched(names: list[str], run: Callable[[dict[str, np.ndarray]], np.ndarray]) -> Embed:
        def embed(texts: list[str]) -> np.ndarray:
            found = []
            for start in range(0, len(texts), 32):
                batch = tokenizer(texts[start : start + 32], padding=True, truncation=True, return_tensors="np")
                found.append(run({name: batch[name].astype(np.int64) for name in names}))
            return np.concatenate(found)

        return embed

    def onnx(name: str) -> Embed:
        session = onnxruntime.InferenceSession(folder / "onnx" / "onnx" / name)
        names = [entry.name for entry in session.get_inputs()]
        return batched(names, lambda inputs: session.run(["sentence_embedding"], inputs)[0])

    def open_vino(precision: str) -> Embed:
        path = folder / "onnx" / "onnx" / "model.onnx"
        graph = openvino.compile_model(path, "CPU", {"INFERENCE_PRECISION_HINT": precision})
        names = [entry.any_name for entry in graph.inputs]
        return batched(names, lambda inputs: graph(inputs)["sentence_embedding"])

    left = copy.deepcopy(tokenizer)
    left.padding_side = "left"
    export(model, folder / "saved", tokenizer)
    export(model, folder / "onnx", tokenizer, format="onnx", int8=True)
    dynamic = torch.ao.quantization.quantize_dynamic(copy.deepcopy(model), {nn.Linear}, dtype=torch.qint8)
    return {
        "float32, one text at a time": plain(model, batch_size=1),
        "in batches of 32, padded right": plain(model),
        "in batches of 32, padded left": plain(model, left),
        "1 thread": with_threads(1),
        "2 threads": with_threads(2),
        "saved and loaded": plain(AutoModel.from_pretrained(folder / "saved")),
        "torch.compile": plain(model, is_compiled=True),
        "ONNX Runtime": onnx("model.onnx"),
        "ONNX Runtime, 8 bits": onnx("model_quantized.onnx"),
        "OpenVINO, float32": open_vino("f32"),
        "OpenVINO, bfloat16": open_vino("bf16"),
        "torch, 8 bits (`quantize_dynamic`)": plain(dynamic),
        "bfloat16 autocast": autocast,
        "bfloat16 weights": plain(copy.deepcopy(model).bfloat16()),
        "float16 weights": plain(copy.deepcopy(model).half()),
    }


def compare(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, text: str) -> list[str]:
    """The largest differences of float32, bfloat16 autocast and float16 weights to float64, or their errors."""

    def embed(model: PreTrainedModel, dtype: torch.dtype, is_autocast: bool = False) -> np.ndarray:
        encoder = to_sentence_transformer(copy.deepcopy(model).to(dtype), tokenizer)
        with torch.autocast("cpu", torch.bfloat16, enabled=is_autocast):
            return unit(embed_checked(encoder, [text], None, show_progress=False).astype(np.float64))

    reference = embed(model, torch.float64)
    cells = []
    for dtype, is_autocast in ((torch.float32, False), (torch.float32, True), (torch.float16, False)):
        try:
            cells.append(f"{np.abs(embed(model, dtype, is_autocast) - reference).max():.1e}")
        except ValueError:
            cells.append("error: not finite")
    return cells


def extreme(model: PreTrainedModel, factor: float) -> PreTrainedModel:
    """All weights of the layers times a factor."""
    model = copy.deepcopy(model)
    with torch.no_grad():
        for name, parameter in model.named_parameters():
            if ".layer" in name and name.endswith("weight"):
                parameter.mul_(factor)
    return model


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", nargs="?", default=str(CHECKPOINT))
    parser.add_argument("--encoder", default="sentence-transformers/all-MiniLM-L6-v2")
    parser.add_argument("--dataset_name", default="embedded")
    parser.add_argument("--max_eval_samples", type=int, default=500)
    args = parser.parse_args()
    tokenizer = AutoTokenizer.from_pretrained(args.model)
    model = AutoModel.from_pretrained(args.model).eval()
    source = DataArguments(dataset_name=args.dataset_name, num_labels=1, max_eval_samples=args.max_eval_samples)
    pairs = load_pairs(source, ["test"])["test"]
    texts = list(dict.fromkeys([*pairs["sentence1"], *pairs["sentence2"]]))
    row_of = {text: row for row, text in enumerate(texts)}
    first, second = ([row_of[text] for text in pairs[name]] for name in ("sentence1", "sentence2"))
    rows = []
    with tempfile.TemporaryDirectory() as folder:
        reference = None
        for name, embed in ways(model, tokenizer, Path(folder)).items():
            vectors = unit(embed(texts).astype(np.float64))
            reference = vectors if reference is None else reference
            spearman = spearmanr((vectors[first] * vectors[second]).sum(axis=1), pairs["label"][:]).statistic
            cosine = (vectors * reference).sum(axis=1).min()
            rows.append([name, f"{np.abs(vectors - reference).max():.1e}", f"{cosine:.6f}", f"{100 * spearman:.2f}"])
            print(*rows[-1], flush=True)
    header = ["how it is computed", "largest difference", "smallest cosine", "Spearman"]
    print(markdown(header, rows, 1))

    words = " ".join(texts)
    size = len(tokenizer(words, verbose=False)["input_ids"])
    long_text = " ".join([words] * (LONG // size + 1))
    rows = []
    for name, long_model in (
        ("k = 128 in all layers", convert_encoder(args.encoder, max_position_embeddings=LONG)),
        (
            "lower four layers in chunks of 512, k = 1,024 above",
            convert_encoder(
                args.encoder,
                max_position_embeddings=LONG,
                linformer_length=1024,
                layer_types=["chunked_attention"] * 4 + ["linear_attention"] * 2,
            ),
        ),
    ):
        reader = limit_tokens(AutoTokenizer.from_pretrained(args.encoder), long_model, LONG)
        rows.append([f"{LONG:,} tokens, {name}", *compare(long_model, reader, long_text)])
    rows += [
        [f"weights times {factor:g}", *compare(extreme(model, factor), tokenizer, texts[0])]
        for factor in (1e-6, 1e-3, 1e3, 1e6)
    ]
    print(markdown(["", "float32", "bfloat16 autocast", "float16 weights"], rows, 1))


if __name__ == "__main__":
    main()
