# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""
The same weights with layers that read 16,384 tokens at once, exactly up to 512.

    python recipes/flagship/lengthen.py MODEL OUT

Four layers attend within chunks of 512 tokens, the two highest ones to 1,024 rows of keys and values. There is no
dropout, with which attention takes several times as long on a CPU.
"""

import sys

from transformers import AutoConfig, AutoModelForSequenceClassification, AutoTokenizer

from hf_dse import export
from hf_dse.convert.convert import set_dropout


LAYERS = {
    "layer_types": ["chunked_attention"] * 4 + ["linear_attention"] * 2,
    "linformer_projection": "strided",
    "linformer_init": "strided",
    "linformer_length": 1024,
    "max_position_embeddings": 16_384,
}


def main() -> None:
    source, out = sys.argv[1:]
    config = AutoConfig.from_pretrained(source, **LAYERS)
    set_dropout(config.encoder, 0.0, 0.0)
    model = AutoModelForSequenceClassification.from_pretrained(source, config=config)
    export(model, out, AutoTokenizer.from_pretrained(source), max_length=256, overwrite_output_dir=True)


if __name__ == "__main__":
    main()
