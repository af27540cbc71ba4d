# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exporting an encoder as an ONNX graph, for ONNX Runtime, OpenVINO and others."""

import contextlib
import copy
import io
import json
from pathlib import Path
from typing import Any

import torch
from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.loading import LENGTHS, import_extra, read_json
from hf_dse.common.settings import write_settings
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.modeling.attention_dse import BLOCK_SIZE
from hf_dse.modeling.modeling_dse import find_attentions, save_pooling


logger = logging.get_logger(__name__)

PACKAGES = ("onnx", "onnxscript", "onnxruntime")

# An ONNX file holds at most 2 GB. Larger weights are written to a file beside it.
MOST_BYTES_INSIDE = 2**31 - 2**24

# The outputs that tools expect of a sentence embedding graph, by the names that they have in the model.
OUTPUTS = {"pooler_output": "sentence_embedding", "last_hidden_state": "token_embeddings"}


def write_graph(
    model: DseModel | DseForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    int8: bool = False,
) -> None:
    """Writes the encoder as a graph to an empty folder, with the files in which servers read how it embeds texts."""
    import_extra("onnx", *PACKAGES)
    from transformers.exporters import ExportFormat, OnnxRuntimeDynamicConfig, OnnxRuntimeQuantizer

    logger.info("Exporting the encoder as an ONNX graph")
    exported = _export(model, tokenizer)
    _save(exported.program, folder / "onnx" / "model.onnx")
    if int8:
        logger.info("Quantizing the weights to 8 bits")
        quantizer = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(per_channel=True))
        quantized = quantizer.quantize(exported.program, {}, ExportFormat("onnx"))
        _save(quantized, folder / "onnx" / "model_quantized.onnx")
    exported.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_pooling(model.config, folder)
    write_settings(model, folder)
    # Servers read the length here.
    settings = {"max_seq_length": tokenizer.model_max_length, "do_lower_case": False, **read_json(folder, LENGTHS)}
    (folder / LENGTHS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")


def _export(model: DseModel | DseForSequenceClassification, tokenizer: PreTrainedTokenizerBase) -> Any:
    from transformers.exporters import OnnxConfig, OnnxExporter

    # A copy in float32, the one precision that every runtime has.
    graph_model: Any = copy.deepcopy(model.base_model).float().cpu().eval()
    # Two texts and padding, and more tokens than slots, a window or a chunk hold, so that the graph assumes nothing.
    layers: Any = [module.linformer_layer for module in find_attentions(graph_model.encoder)]
    size = max(BLOCK_SIZE, *(max(layer.num_slots, layer.window) for layer in layers))
    length = min(2 * size + 1, graph_model.config.max_position_embeddings)
    # A graph of exactly so many tokens as slots would be for this length.
    length -= any(length == layer.num_slots for layer in layers)
    attention_mask = torch.ones(2, length, dtype=torch.long)
    attention_mask[1, 1:] = 0
    inputs: dict[str, Any] = {"input_ids": torch.zeros_like(attention_mask), "attention_mask": attention_mask}
    if "token_type_ids" in tokenizer.model_input_names:
        inputs["token_type_ids"] = torch.zeros_like(attention_mask)
    # torch prints its steps.
    with contextlib.redirect_stdout(io.StringIO()):
        exported = OnnxExporter().export(graph_model, inputs, OnnxConfig(dynamic=True))
    outputs = exported.program.graph.outputs
    of_model = {output.name: output for output in outputs}
    outputs[:] = [of_model[name] for name in OUTPUTS]
    for output in outputs:
        output.name = OUTPUTS[output.name]
    return exported


def _save(program: Any, path: Path) -> None:
    """Writes a graph, as one file if it is small enough: `save_pretrained` of transformers always writes two."""
    import onnx_ir

    # The metadata of a node names the line of code that it comes from, with its path on this machine.
    for node in program.graph.all_nodes():
        node.metadata_props.clear()
    num_bytes = sum(value.const_value.nbytes for value in program.graph.initializers.values())
    path.parent.mkdir(exist_ok=True)
    onnx_ir.save(program, path, external_data=f"{path.name}_data" if num_bytes > MOST_BYTES_INSIDE else None)
