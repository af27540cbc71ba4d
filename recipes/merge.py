# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The mean of the weights of models that were trained from one encoder. A head is averaged over the models that have one.

    python recipes/merge.py MODEL MODEL... --output_dir OUT [--weights 0.85 0.15]
"""

import argparse

import torch
from transformers import AutoTokenizer

from hf_dse import export
from hf_dse.convert.student import load_dse_model


parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
parser.add_argument("models", nargs="+", help="folders; head, tokenizer and configuration are those of the first")
parser.add_argument("--weights", type=float, nargs="+", help="one weight per model; default: equal")
parser.add_argument("--output_dir", required=True)
args = parser.parse_args()
models = [load_dse_model(name, dtype=torch.float32) for name in args.models]
states = [{name.removeprefix("dse."): part for name, part in model.named_parameters()} for model in models]
weights = args.weights or [1.0] * len(models)
with torch.no_grad():
    for name, parameter in models[0].named_parameters():
        name = name.removeprefix("dse.")
        parts = [(weight, state[name]) for weight, state in zip(weights, states, strict=True) if name in state]
        total = sum(weight for weight, _ in parts)
        parameter.copy_(sum(weight / total * part.double() for weight, part in parts))
folder = export(models[0], args.output_dir, AutoTokenizer.from_pretrained(args.models[0]))
print(f"Saved to {folder}")
