# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Values of the options of an export."""

# format -> the packages that it needs
GRAPH_FORMATS = {"onnx": ("onnx", "onnxscript", "onnxruntime"), "openvino": ("openvino",)}
