# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse encode`."""

from hf_dse.cli.parsing import parse_args
from hf_dse.inference.arguments import EncodeArguments, EngineArguments, ModelArguments


def encode(argv: list[str]) -> None:
    """Embeds the texts of a file and writes the vectors."""
    model_args, args, engine_args = parse_args(
        argv,
        ModelArguments,
        EncodeArguments,
        EngineArguments,
        prog="hf-dse encode",
        description="Compute the embeddings of texts.",
    )
    from hf_dse.inference.index import encode_files

    num_vectors, size = encode_files(model_args, args, engine_args)
    print(f"{num_vectors} vectors{'' if size is None else f' of size {size}'} written to {args.output}")
