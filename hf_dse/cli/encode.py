# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse encode`."""

from functools import partial

import numpy as np

from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import output_path, write_atomically
from hf_dse.common.provenance import fingerprint
from hf_dse.data.tables import read_texts
from hf_dse.inference.encoding import encode as encode_texts
from hf_dse.inference.index import EMBEDDING_COLUMN, EncodeArguments, TextEncoder, write_index
from hf_dse.inference.loading import ModelArguments, load_model
from hf_dse.inference.ray_engine import EngineArguments, local_or_hub, refuse_options, run_on_shards


def encode(argv: list[str]) -> None:
    """Embeds the texts of a file and writes the vectors."""
    model_args, args, engine_args = parse_args(
        argv,
        ModelArguments,
        EncodeArguments,
        EngineArguments,
        prog="hf-dse encode",
        description="Turn texts into embeddings.",
    )
    if engine_args.engine == "ray":
        refuse_options(model_args, "device")
        model_args.model_name_or_path = local_or_hub(model_args.model_name_or_path)
        load = partial(TextEncoder, model_args, args)
        num_rows = run_on_shards(load, args.input, args.output, [args.text_column], engine_args)
        print(f"{num_rows} vectors written to {args.output}")
        return
    output = output_path(args.output, (".npy", ".parquet"))
    columns = read_texts(args.input, args.text_column)
    if output.suffix == ".parquet" and EMBEDDING_COLUMN in columns:
        raise ValueError(f"{args.input} already has a column {EMBEDDING_COLUMN!r}: rename it, or write .npy.")
    model, tokenizer = load_model(model_args)
    vectors = encode_texts(
        model,
        tokenizer,
        columns[args.text_column],
        batch_size=model_args.batch_size,
        max_length=model_args.max_length,
        truncation=args.truncation,
        normalize=args.normalize,
    )
    if output.suffix == ".npy":
        write_atomically(output, lambda file: np.save(file, vectors))
    else:
        settings = {
            "model": fingerprint(model, tokenizer),
            "model_name_or_path": model_args.model_name_or_path,
            "max_length": model_args.max_length,
            "normalize": args.normalize,
            "columns": [args.text_column],
        }
        write_atomically(output, lambda file: write_index(file, columns, vectors, settings))
    print(f"{vectors.shape[0]} vectors of size {vectors.shape[1]} written to {output}")
