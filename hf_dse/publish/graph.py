# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exporting an encoder as a graph for ONNX Runtime or OpenVINO."""

import os
from importlib.util import find_spec
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase

from hf_dse.common.files import check_target, folder_in_one_step
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.student.checkpoint import has_head, limit_tokens


# Graph formats, and the packages that they need.
GRAPH_FORMATS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("openvino",)}


def export_graph(
    model: DseModel | DseForSequenceClassification,
    processing_class: PreTrainedTokenizerBase,
    path: str | os.PathLike,
    *,
    format: str = "onnx",
    int8: bool = False,
    overwrite: bool = False,
) -> Path:
    """
    Exports the encoder as a graph for ONNX Runtime or OpenVINO, with its tokenizer, using the exporters of
    transformers. The graph takes `input_ids` and `attention_mask` of any batch size and length, and returns
    `last_hidden_state` and `pooler_output`, the sentence embeddings. A head for sentence pairs is not exported.

    Args:
        model ([`DseModel`] or [`DseForSequenceClassification`]):
            The model to export.
        processing_class (`PreTrainedTokenizerBase`):
            The tokenizer of the model.
        path (`str` or `os.PathLike`):
            Folder to write: `model.onnx` and `model.onnx.data`, or `openvino_model.xml` and `openvino_model.bin`.
        format (`str`, *optional*, defaults to `"onnx"`):
            `"onnx"` or `"openvino"`. On CPUs with bfloat16 instructions, OpenVINO computes in bfloat16 unless
            `INFERENCE_PRECISION_HINT` is `"f32"`.
        int8 (`bool`, *optional*, defaults to `False`):
            Whether to quantize the weights of an ONNX graph to 8 bits; activations are quantized dynamically.
        overwrite (`bool`, *optional*, defaults to `False`):
            Whether to replace an existing model folder with all its files.

    Returns:
        `pathlib.Path`: the folder.

    Raises:
        `FileExistsError`: if `path` is a file, a folder that is not empty, or, with `overwrite`, one without a model.
        `ImportError`: if the packages of the format are not installed.
        `ValueError`: if `format` is unknown, or does not support `int8`.

    Example:

    ```python
    >>> from transformers import AutoTokenizer
    >>> from transformers.exporters import ExportedModel
    >>> from hf_dse import convert_encoder, export_graph

    >>> name = "sentence-transformers/all-MiniLM-L6-v2"
    >>> tokenizer, model = AutoTokenizer.from_pretrained(name), convert_encoder(name)
    >>> folder = export_graph(model, tokenizer, "graph")
    [torch.onnx] ...
    >>> graph = ExportedModel.from_pretrained(folder, trust_remote_code=True)
    >>> graph(**tokenizer(["A cat sleeps.", "Rain again."], padding=True, return_tensors="pt")).pooler_output.shape
    torch.Size([2, 384])
    ```
    """
    if format not in GRAPH_FORMATS:
        raise ValueError(f"format={format!r} is not supported: pass {' or '.join(GRAPH_FORMATS)}.")
    if int8 and format != "onnx":
        raise ValueError(f'int8=True is not supported with format={format!r}: pass format="onnx".')
    path = Path(path).expanduser()
    target = path.resolve()
    check_target(target, overwrite)
    missing = [package for package in GRAPH_FORMATS[format] if find_spec(package) is None]
    if missing:
        raise ImportError(
            f"format={format!r} needs {', '.join(missing)}, which {'is' if len(missing) == 1 else 'are'} not "
            "installed: `pip install hf-dse[onnx]`."
        )
    from transformers.exporters import AutoExportConfig, AutoHfExporter, OnnxRuntimeDynamicConfig, OnnxRuntimeQuantizer

    options: dict[str, Any] = {"export_format": format, "dynamic": True}
    if int8:
        options["quantizer"] = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(per_channel=True))
    export_config = AutoExportConfig.from_dict(options)
    encoder = model.dse if has_head(model) else model
    # Two texts of different lengths, so that the graph does not assume a single text or no padding.
    attention_mask = torch.ones(2, min(16, model.config.max_position_embeddings), dtype=torch.long)
    attention_mask[1, 1:] = 0
    inputs: dict[str, Any] = {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    inputs = {name: tensor.to(model.device) for name, tensor in inputs.items()}
    exported = AutoHfExporter.from_config(export_config).export(encoder.eval(), inputs, export_config)
    with folder_in_one_step(target) as new:
        exported.save_pretrained(new)
        limit_tokens(processing_class, model).save_pretrained(new)
    return path
