# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""A model as an ONNX graph, which ONNX Runtime or OpenVINO computes in the place of PyTorch."""

import contextlib
import copy
import io
import shutil
import threading
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch
from huggingface_hub import cached_assets_path
from transformers import PreTrainedModel, PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.files import wait_for_lock, writing
from hf_dse.common.loading import choose_device, choose_dtype, import_extra
from hf_dse.common.provenance import fingerprint
from hf_dse.data.tokenization import count_token_types, max_tokens
from hf_dse.modeling.attention_dse import BLOCK_SIZE
from hf_dse.modeling.modeling_dse import find_attentions


if TYPE_CHECKING:
    from sentence_transformers import CrossEncoder, SentenceTransformer

logger = logging.get_logger(__name__)

# What computes a model, and the packages that it needs.
EXPORTER = ("transformers.exporters", "onnx", "onnxscript")
RUNTIMES = {"torch": (), "onnx": (*EXPORTER, "onnxruntime"), "openvino": (*EXPORTER, "openvino")}
# The outputs of a model that sentence-transformers reads.
OUTPUTS = ("last_hidden_state", "pooler_output", "logits")
# An ONNX file holds at most 2 GB. Larger weights are written to a file beside it.
MOST_BYTES_INSIDE = 2**31 - 2**24

# Texts on which a graph has to agree with its model, up to longer than the windows of most.
PROBES = ["a", "The cat sleeps.", " ".join(f"{number} cats sleep," for number in range(80))]
# The norm of their difference, as a part of that of the output.
MOST_ROUNDING = {"float32": 1e-3, "bfloat16": 0.05}


def choose_runtime(
    backend: str, dtype: str | torch.dtype, device: str | torch.device | None
) -> tuple[torch.device, str | torch.dtype]:
    """
    The device and the data type in which a backend computes. A `ValueError` says what it cannot do, an `ImportError`
    what it lacks, before a model is loaded.
    """
    if backend not in RUNTIMES:
        raise ValueError(f"backend={backend!r}: it has to be {', '.join(RUNTIMES)}.")
    if backend == "torch":
        chosen = choose_device(device)
        return chosen, choose_dtype(dtype, chosen)
    import_extra("onnx", *RUNTIMES[backend])
    cpu = torch.device("cpu")
    if device is not None and torch.device(device).type != "cpu":
        raise ValueError(f"device={str(device)!r}: {backend} computes on the CPU here, so leave the device out.")
    kind = str(dtype).removeprefix("torch.")
    if backend == "onnx" and kind == "auto":
        kind = "float32"
    kinds = ("float32",) if backend == "onnx" else tuple(MOST_ROUNDING)
    chosen_kind = str(choose_dtype(kind, cpu))
    if chosen_kind not in kinds:
        raise ValueError(f"dtype={kind}: {backend} computes in {' or '.join(kinds)}; torch in others too.")
    return cpu, chosen_kind


class Graph:
    """The forward pass of a model in another runtime. Copies of the model share it, also in several threads."""

    def __init__(self, path: Path, backend: str, dtype: str, model: PreTrainedModel | None = None):
        self.path, self.backend, self.dtype = path, backend, dtype
        self._weights = [] if model is None else [weight for weight in model.parameters() if not weight.is_inference()]
        self._versions = [weight._version for weight in self._weights]
        self._lock = threading.Lock()
        # Many threads that wait for each other are slow, so there are as many as torch has.
        threads = torch.get_num_threads()
        if backend == "onnx":
            import onnxruntime

            options = onnxruntime.SessionOptions()
            options.intra_op_num_threads = threads
            session = onnxruntime.InferenceSession(path, options, providers=["CPUExecutionProvider"])
            self.inputs = [entry.name for entry in session.get_inputs()]
            names = [entry.name for entry in session.get_outputs()]
            self._run = lambda batch: dict(zip(names, session.run(None, batch), strict=True))
        else:
            import openvino

            precision = {"float32": "f32", "bfloat16": "bf16"}[dtype]
            hints = {"INFERENCE_PRECISION_HINT": precision, "INFERENCE_NUM_THREADS": threads}
            compiled = openvino.compile_model(path, "CPU", hints)
            self.inputs = [entry.any_name for entry in compiled.inputs]
            self._run = lambda batch: {port.any_name: values for port, values in compiled(batch).items()}

    def __call__(self, **inputs: Any) -> dict[str, torch.Tensor]:
        if [weight._version for weight in self._weights] != self._versions:
            raise RuntimeError("The weights of the model have changed since its graph was made: load it anew.")
        with self._lock:
            found = self._run({name: inputs[name].numpy() for name in self.inputs})
        return {name: torch.from_numpy(values) for name, values in found.items()}

    def __deepcopy__(self, memo: Any) -> "Graph":
        return self

    def __reduce__(self) -> Any:
        # Other processes read the file.
        return Graph, (self.path, self.backend, self.dtype)

    def __str__(self) -> str:
        return f"{self.backend}, {self.dtype}"


def graph_of(model: Any) -> Graph | None:
    """The graph that computes a `SentenceTransformer` or `CrossEncoder`; `None` if PyTorch does."""
    forward = model.transformers_model.forward
    return forward if isinstance(forward, Graph) else None


def dtype_of(model: Any) -> str:
    """The data type in which a `SentenceTransformer` or `CrossEncoder` computes."""
    graph = graph_of(model)
    return str(model.dtype).removeprefix("torch.") if graph is None else graph.dtype


def compute_by(model: "SentenceTransformer | CrossEncoder", backend: str, dtype: str | torch.dtype) -> None:
    """
    Lets a backend compute a loaded model in a data type. Its graph is made once and kept in the cache of Hugging Face,
    and made anew if it is damaged. Raises a `ValueError` if no graph can be made of the model, or if its outputs are
    others.
    """
    if backend == "torch":
        return
    transformer: Any = model.transformers_model
    folder = cached_assets_path("hf-dse", "graphs", fingerprint(transformer, model.tokenizer)[:16])
    path = folder / "onnx" / "model.onnx"

    def load() -> Graph | None:
        if not path.exists():
            return None
        try:
            graph = Graph(path, backend, str(dtype), transformer)
            return graph if _agrees(transformer, model.tokenizer, graph) else None
        # Each runtime has its own errors of damaged files.
        except Exception as error:
            logger.warning(f"{path} cannot be read: {str(error).splitlines()[0]}")
            return None

    graph = load()
    if graph is None:
        with wait_for_lock(folder):
            # Another process may have made it meanwhile.
            graph = load()
            if graph is None:
                logger.info(f"Making a graph of the model for {backend}, once: {path}")
                _write(transformer, model.tokenizer, path)
                graph = load()
    if graph is None:
        raise ValueError(
            f"The graph of this {type(transformer).__name__} gives other values by {backend} than the model: use the "
            "backend torch."
        )
    transformer.forward = graph


def _write(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, path: Path) -> None:
    try:
        program = make_graph(model, tokenizer).program
    except Exception as error:
        raise ValueError(
            f"No graph can be made of this {type(model).__name__} ({str(error).splitlines()[0]}): use the backend "
            "torch."
        ) from error
    outputs = program.graph.outputs
    outputs[:] = [output for output in outputs if output.name in OUTPUTS]
    new = path.parents[1] / "new"
    for folder in (new, path.parent):
        shutil.rmtree(folder, ignore_errors=True)
    with writing(path):
        save_graph(program, new / path.name)
        new.rename(path.parent)


@torch.inference_mode()
def _agrees(model: PreTrainedModel, tokenizer: PreTrainedTokenizerBase, graph: Graph) -> bool:
    """Whether a graph gives the outputs of the model."""
    length = max_tokens(model, tokenizer)
    options: dict[str, Any] = {"truncation": length is not None, "max_length": length, "return_token_type_ids": True}
    batch = tokenizer(PROBES, padding=True, return_tensors="pt", return_attention_mask=True, **options)
    expected = model(**{name: batch[name] for name in graph.inputs})
    for name, values in graph(**batch).items():
        wanted = expected[name].float()
        if name == "last_hidden_state":
            # Not of padding.
            real = batch["attention_mask"].bool()
            values, wanted = values[real], wanted[real]
        if not (values - wanted).norm() <= MOST_ROUNDING[graph.dtype] * wanted.norm():
            logger.warning(f"The {name} of the graph is another by {graph.backend}.")
            return False
    return True


def make_graph(model: Any, tokenizer: PreTrainedTokenizerBase) -> Any:
    """The graph of a model for every number of texts and tokens, with its own outputs, and its configuration."""
    from transformers.exporters import OnnxConfig, OnnxExporter

    # A copy in float32, the one precision that every runtime has.
    copied: Any = copy.deepcopy(model).float().cpu().eval()
    is_dse, config = copied.config.model_type == "dse", copied.config
    layers: Any = [module.linformer_layer for module in find_attentions(copied.encoder)] if is_dse else []
    sizes = [max(layer.num_slots, layer.window) for layer in layers]
    sizes += [getattr(config, name, None) or 0 for name in ("local_attention", "sliding_window")]
    # Two texts and padding, and more tokens than slots, a window or a chunk hold, so that the graph assumes nothing.
    length = min(2 * max(BLOCK_SIZE, *sizes) + 1, max_tokens(copied, tokenizer) or 10**9)
    # A graph of exactly so many tokens as slots would be for this length.
    length -= any(length == layer.num_slots for layer in layers)
    attention_mask = torch.ones(2, length, dtype=torch.long)
    attention_mask[1, 1:] = 0
    inputs: dict[str, Any] = {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    if "token_type_ids" in tokenizer.model_input_names and (is_dse or count_token_types(config) > 1):
        inputs["token_type_ids"] = torch.zeros_like(attention_mask)
    # torch prints its steps.
    with contextlib.redirect_stdout(io.StringIO()):
        return OnnxExporter().export(copied, inputs, OnnxConfig(dynamic=True))


def save_graph(program: Any, path: Path) -> None:
    """Writes a graph, as one file if it is small enough: `save_pretrained` of transformers always writes two."""
    import onnx_ir

    # The metadata of a node names the line of code that it comes from, with its path on this machine.
    for node in program.graph.all_nodes():
        node.metadata_props.clear()
    num_bytes = sum(value.const_value.nbytes for value in program.graph.initializers.values())
    path.parent.mkdir(exist_ok=True)
    onnx_ir.save(program, path, external_data=f"{path.name}_data" if num_bytes > MOST_BYTES_INSIDE else None)
