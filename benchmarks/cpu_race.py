# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Embedding texts on a CPU, end to end: a DSE model against its source, with PyTorch, ONNX Runtime and OpenVINO, and a
static model.

    python benchmarks/cpu_race.py DATA ENCODER [--model checkpoints/dse-minilm-l6] [--static FOLDER] [--threads 2]

The texts: sentences (STS-B), abstracts (SciFact, up to 512 tokens), and documents of 2,000 and of 8,000 tokens
(Wikipedia). A DSE model reads each in one pass. The source reads documents in chunks of 512 tokens and takes their
mean. Graphs are made by `hf-dse export`, with `--max_length 512` for sentences and abstracts; those of the source
from its conversion with softmax attention. `--static` is a folder that SentenceTransformer loads, such as one of
`--make_static`, which distils the source with model2vec.

Every number is from a new process, which loads a model, embeds some texts, and then all of them, in batches of 16,384
tokens; all take turns in each round. Printed are the medians of thousand tokens per second, tokenizing and splitting
included, and the memory in MB beyond the loaded model.
"""

import argparse
import json
import subprocess
import sys
import time
from collections import defaultdict
from collections.abc import Callable
from pathlib import Path
from statistics import median
from typing import Any

import numpy as np
import pandas as pd
import torch
from sentence_transformers import SentenceTransformer
from speed import added_memory
from transformers import AutoTokenizer

from hf_dse import convert_encoder, export, split_text
from hf_dse.common.display import markdown
from hf_dse.common.provenance import describe_machine
from hf_dse.convert.student import load_dse_model
from hf_dse.retrieval.sentence_transformer import load_sentence_transformer


LIMIT, LONGEST, BATCH_TOKENS = 512, 16_384, 16_384
# Tokens of a text, at most, and how many texts.
KINDS = {"sentences": (128, 1_000), "abstracts": (LIMIT, 100), "2,000": (2_000, 12), "8,000": (8_000, 3)}
RUNTIMES = ("torch float32", "torch bfloat16", "ONNX float32", "ONNX int8", "OpenVINO float32", "OpenVINO bfloat16")

Embed = Callable[[list[str], int], Any]


def read_texts(data: Path, kind: str, tokenizer: Any) -> list[str]:
    length, number = KINDS[kind]
    if kind == "sentences":
        pairs = pd.read_parquet(data / "stsb" / "test.parquet")
        return list(dict.fromkeys([*pairs["sentence1"], *pairs["sentence2"]]))[:number]
    if kind == "abstracts":
        return pd.read_parquet(data / "scifact" / "corpus.parquet")["text"][:number].tolist()
    bodies = pd.read_parquet(data / "longwiki" / "docs.parquet")["body"]
    # An article has fewer than 8,000 tokens.
    texts = [" ".join(bodies[row * 8 : row * 8 + 8]) for row in range(number)]
    return [split_text(text, tokenizer, length)[0] for text in texts]


def load(name: str, kind: str, args: argparse.Namespace, tokenizer: Any) -> Embed:
    """A function that embeds texts in batches of a size."""
    model, _, runtime = name.partition(": ")
    longest = LIMIT if model == "source" or KINDS[kind][0] <= LIMIT else LONGEST
    if not runtime.startswith(("ONNX", "OpenVINO")):
        if model == "static":
            loaded = SentenceTransformer(args.static)
        else:
            folder = args.model if model == "ours" else args.encoder
            loaded = load_sentence_transformer(folder, dtype=runtime.split()[-1])
            loaded.max_seq_length = longest
        return lambda texts, size: loaded.encode(texts, batch_size=size, show_progress_bar=False)
    file = args.folder / f"{model}-{longest}" / "onnx" / f"model{'_quantized' if 'int8' in runtime else ''}.onnx"
    if runtime.startswith("ONNX"):
        import onnxruntime

        options = onnxruntime.SessionOptions()
        options.intra_op_num_threads = args.threads
        session = onnxruntime.InferenceSession(file, options)
        names = [entry.name for entry in session.get_inputs()]

        def run(batch: Any) -> np.ndarray:
            return session.run(["sentence_embedding"], batch)[0]
    else:
        import openvino

        hints = {"INFERENCE_PRECISION_HINT": "f32" if "float32" in runtime else "bf16"}
        hints["INFERENCE_NUM_THREADS"] = args.threads
        graph = openvino.compile_model(file, "CPU", hints)
        names = [entry.any_name for entry in graph.inputs]

        def run(batch: Any) -> np.ndarray:
            return graph(batch)["sentence_embedding"]

    def embed(texts: list[str], size: int) -> np.ndarray:
        features = tokenizer(texts, truncation=True, max_length=longest)
        order = np.argsort([-len(ids) for ids in features["input_ids"]], kind="stable")
        found = []
        for start in range(0, len(texts), size):
            rows = order[start : start + size]
            batch = {name: [features[name][row] for row in rows] for name in names}
            found.append(run({name: np.asarray(v) for name, v in tokenizer.pad(batch, return_tensors="np").items()}))
        return np.concatenate(found)[np.argsort(order)]

    return embed


def measure(name: str, kind: str, args: argparse.Namespace, with_memory: bool) -> dict[str, float]:
    """Thousand tokens per second, and the memory in MB."""
    torch.set_num_threads(args.threads)
    tokenizer = AutoTokenizer.from_pretrained(args.encoder)
    tokenizer.model_max_length = LONGEST
    texts, embed = read_texts(args.data, kind, tokenizer), load(name, kind, args, tokenizer)
    in_chunks = name.startswith("source") and KINDS[kind][0] > LIMIT
    size = max(1, BATCH_TOKENS // (LIMIT if in_chunks else KINDS[kind][0]))

    def read(texts: list[str]) -> Any:
        if not in_chunks:
            return embed(texts, size)
        parts = [split_text(text, tokenizer, LIMIT) for text in texts]
        vectors = embed([part for of in parts for part in of], size)
        starts = np.cumsum([0, *map(len, parts)])
        return np.stack([vectors[a:b].mean(axis=0) for a, b in zip(starts, starts[1:], strict=False)])

    read(texts[: max(1, len(texts) // 8)])
    start = time.perf_counter()
    read(texts)
    seconds = time.perf_counter() - start
    num_tokens = sum(min(len(ids), KINDS[kind][0]) for ids in tokenizer(texts)["input_ids"])
    found = {"speed": num_tokens / seconds / 1000}
    # The memory needs a second pass.
    return {**found, "memory": added_memory(lambda: read(texts))} if with_memory else found


def make_graphs(args: argparse.Namespace) -> None:
    """Exports what is not there yet."""
    source = convert_encoder(args.encoder, layer_types="full_attention")
    ours = load_dse_model(args.model)
    for name, model, longest in (("ours", ours, LONGEST), ("ours", ours, LIMIT), ("source", source, LIMIT)):
        folder = args.folder / f"{name}-{longest}"
        if not folder.exists():
            tokenizer = AutoTokenizer.from_pretrained(args.encoder)
            export(model, folder, tokenizer, format="onnx", int8=True, max_length=longest)


def make_static(encoder: str, folder: str) -> None:
    from model2vec.distill import distill
    from sentence_transformers.sentence_transformer.modules import StaticEmbedding

    distilled = distill(encoder, pca_dims=256)
    embeddings = StaticEmbedding(distilled.tokenizer, embedding_weights=np.ascontiguousarray(distilled.embedding))
    SentenceTransformer(modules=[embeddings]).save(folder)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("data", type=Path)
    parser.add_argument("encoder", help="The source: a folder or Hub id.")
    parser.add_argument("--model", default=str(Path(__file__).parents[1] / "checkpoints" / "dse-minilm-l6"))
    parser.add_argument("--static", help="A static model: a folder or Hub id.")
    parser.add_argument("--make_static", action="store_true", help="Write the folder of `--static`, and stop.")
    parser.add_argument("--folder", type=Path, default=Path("graphs"), help="For the graphs.")
    parser.add_argument("--kinds", nargs="+", default=list(KINDS), choices=KINDS)
    parser.add_argument("--runtimes", nargs="+", default=list(RUNTIMES), choices=RUNTIMES)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--threads", type=int, default=2)
    parser.add_argument("--one", nargs=3, help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.one:
        print(json.dumps(measure(*args.one[:2], args, args.one[2] == "0")))
        return
    if args.make_static:
        make_static(args.encoder, args.static)
        return
    make_graphs(args)
    names = [f"{model}: {runtime}" for runtime in args.runtimes for model in ("ours", "source")]
    names += ["static"] if args.static else []
    found: dict[tuple[str, str], list[dict[str, float]]] = defaultdict(list)
    for number in range(args.rounds):
        for kind in args.kinds:
            for name in names:
                command = [sys.executable, *sys.argv, "--one", name, kind, str(number)]
                done = subprocess.run(command, stdout=subprocess.PIPE, check=True, text=True)
                found[name, kind].append(json.loads(done.stdout.splitlines()[-1]))
                print(number, name, kind, found[name, kind][-1], file=sys.stderr, flush=True)

    def cell(name: str, kind: str) -> str:
        speed, memory = median(of["speed"] for of in found[name, kind]), found[name, kind][0]["memory"]
        return f"{speed:.1f} ({memory:,.0f})"

    print(f"{describe_machine()}, {args.threads} threads, {args.rounds} rounds\n")
    print(markdown(["model", *args.kinds], [[name, *(cell(name, kind) for kind in args.kinds)] for name in names], 1))


if __name__ == "__main__":
    main()
