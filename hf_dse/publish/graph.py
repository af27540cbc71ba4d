# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Exporting an encoder as an ONNX graph, for ONNX Runtime, OpenVINO and others."""

import json
from pathlib import Path

from transformers import PreTrainedTokenizerBase
from transformers.utils import logging

from hf_dse.common.loading import LENGTHS, import_extra, read_json
from hf_dse.common.settings import write_settings
from hf_dse.modeling import DseForSequenceClassification, DseModel
from hf_dse.modeling.modeling_dse import save_pooling
from hf_dse.retrieval.graph import RUNTIMES, make_graph, save_graph


logger = logging.get_logger(__name__)

# The outputs that tools expect of a sentence embedding graph, by the names that they have in the model.
OUTPUTS = {"pooler_output": "sentence_embedding", "last_hidden_state": "token_embeddings"}


def write_graph(
    model: DseModel | DseForSequenceClassification,
    tokenizer: PreTrainedTokenizerBase,
    folder: Path,
    int8: bool = False,
) -> None:
    """Writes the encoder as a graph to an empty folder, with the files in which servers read how it embeds texts."""
    import_extra("onnx", *RUNTIMES["onnx"])
    from transformers.exporters import ExportFormat, OnnxRuntimeDynamicConfig, OnnxRuntimeQuantizer

    logger.info("Exporting the encoder as an ONNX graph")
    exported = make_graph(model.base_model, tokenizer)
    outputs = exported.program.graph.outputs
    of_model = {output.name: output for output in outputs}
    outputs[:] = [of_model[name] for name in OUTPUTS]
    for output in outputs:
        output.name = OUTPUTS[output.name]
    save_graph(exported.program, folder / "onnx" / "model.onnx")
    if int8:
        logger.info("Quantizing the weights to 8 bits")
        quantizer = OnnxRuntimeQuantizer(OnnxRuntimeDynamicConfig(per_channel=True))
        quantized = quantizer.quantize(exported.program, {}, ExportFormat("onnx"))
        save_graph(quantized, folder / "onnx" / "model_quantized.onnx")
    exported.config.save_pretrained(folder)
    tokenizer.save_pretrained(folder)
    save_pooling(model.config, folder)
    write_settings(model, folder)
    # Servers read the length here.
    settings = {"max_seq_length": tokenizer.model_max_length, "do_lower_case": False, **read_json(folder, LENGTHS)}
    (folder / LENGTHS).write_text(json.dumps(settings, indent=2) + "\n", encoding="utf-8")
