# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse encode`."""

import shlex

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args
from hf_dse.inference.arguments import ChunkArguments, EncodeArguments, EngineArguments, ModelArguments, SizeArguments


def encode(argv: list[str]) -> None:
    """Embeds the texts of a file and writes the vectors."""
    model_args, args, chunk_args, engine_args, size_args = parse_args(
        argv,
        ModelArguments,
        EncodeArguments,
        ChunkArguments,
        EngineArguments,
        SizeArguments,
        prog="hf-dse encode",
        description="Compute the embeddings of texts.",
    )
    from hf_dse.inference.index import encode_files

    num_vectors, size = encode_files(model_args, args, chunk_args, engine_args, size_args)
    print(f"{num_vectors} vectors{'' if size is None else f' of size {size}'} written to {args.output}")
    if not args.output.endswith(".npy"):
        model = shlex.quote(model_args.model_name_or_path)
        say_next(search=f"--model_name_or_path {model} --corpus {shlex.quote(args.output)} --query TEXT")
