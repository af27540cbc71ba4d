"""
Run a model in ONNX Runtime with 32-bit and 8-bit weights (`pip install hf-dse[onnx,train]`). About a minute on 2 CPU
cores with the embedded pairs.

    python examples/07_onnx.py outputs/onnx
    python examples/07_onnx.py outputs/onnx checkpoints/dse-minilm-l6 DATA/stsb

The first command converts the default encoder and prints

    PyTorch              Spearman 71.86  40.2 s
    ONNX Runtime         Spearman 71.86  17.5 s  92 MB
    ONNX Runtime, 8 bits Spearman 71.37  8.5 s  24 MB

and the second, with version 1 of the checkpoint and the test split of a dataset,

    PyTorch              Spearman 86.69  204.8 s
    ONNX Runtime         Spearman 86.69  104.4 s  91 MB
    ONNX Runtime, 8 bits Spearman 86.67  61.0 s  23 MB

on cores shared with other programs.
"""

import sys
import time
from pathlib import Path

import numpy as np
import onnxruntime
from scipy.stats import spearmanr
from transformers import AutoModel, AutoTokenizer

from hf_dse import DataArguments, convert_encoder, default_encoder, export, load_pairs, to_sentence_transformer


output_dir = Path(sys.argv[1] if len(sys.argv) > 1 else "outputs/onnx")
source = sys.argv[2] if len(sys.argv) > 2 else default_encoder()
tokenizer = AutoTokenizer.from_pretrained(source)
model = AutoModel.from_pretrained(source, dtype="float32")
if model.config.model_type != "dse":
    model = convert_encoder(source, linformer_length=64)
data = DataArguments(dataset_name=sys.argv[3] if len(sys.argv) > 3 else "embedded", num_labels=1)
pairs = load_pairs(data, ["test"])["test"]


def embed(session: onnxruntime.InferenceSession, texts: list[str], batch_size: int = 32) -> np.ndarray:
    """Returns the sentence embeddings of the graph, which includes pooling and ignores padding."""
    order = sorted(range(len(texts)), key=lambda row: len(texts[row]))
    vectors = np.empty((len(texts), model.config.embedding_size), dtype=np.float32)
    for start in range(0, len(texts), batch_size):
        rows = order[start : start + batch_size]
        batch = tokenizer([texts[row] for row in rows], padding=True, truncation=True, return_tensors="np")
        (vectors[rows],) = session.run(["sentence_embedding"], dict(batch))
    return vectors


def report(name: str, first: np.ndarray, second: np.ndarray, seconds: float, graph: Path | None = None) -> None:
    cosines = (first * second).sum(1) / (np.linalg.norm(first, axis=1) * np.linalg.norm(second, axis=1))
    spearman = 100 * spearmanr(cosines, pairs["label"][:]).statistic
    size = "" if graph is None else f"  {graph.stat().st_size / 1e6:.0f} MB"
    print(f"{name:<20} Spearman {spearman:.2f}  {seconds:.1f} s{size}")


encoder = to_sentence_transformer(model, tokenizer)
start = time.perf_counter()
first, second = (encoder.encode(pairs[name][:], show_progress_bar=False) for name in ("sentence1", "sentence2"))
report("PyTorch", first, second, time.perf_counter() - start)
folder = export(model, output_dir, tokenizer, format="onnx", int8=True, overwrite_output_dir=True)
for name, file in (("ONNX Runtime", "model.onnx"), ("ONNX Runtime, 8 bits", "model_quantized.onnx")):
    session = onnxruntime.InferenceSession(folder / "onnx" / file)
    start = time.perf_counter()
    first, second = (embed(session, pairs[column][:]) for column in ("sentence1", "sentence2"))
    report(name, first, second, time.perf_counter() - start, folder / "onnx" / file)
