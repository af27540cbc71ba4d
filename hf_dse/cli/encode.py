# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse encode`."""

from dataclasses import dataclass, field

from hf_dse.cli.options import MODEL, LoadArguments
from hf_dse.common.options import HfArg


@dataclass
class EncodeArguments:
    """Which texts to embed, and where to write the vectors."""

    model_name_or_path: str = field(metadata=MODEL)
    input: str = HfArg(help="Texts: .txt with one per line, a table, or a folder.")
    output: str = HfArg(
        help=".parquet: the texts with their other columns and `embedding`. .npy: an array, beside it .ids.jsonl."
    )
    text_column: str = HfArg(default="text", help="Column of the texts in a table.")
    prompt_name: str = HfArg(
        default="document", help="Prompt of the model before each text: document, query or another."
    )
    normalize: bool = HfArg(default=False, help="Scale the vectors to unit length.")


def encode(args: EncodeArguments, load_args: LoadArguments) -> None:
    """
    Compute the embeddings of texts.

    hf-dse encode --model student/model --input texts.txt --output vectors.npy
    """
    from hf_dse.retrieval.folder import encode_file
    from hf_dse.retrieval.sentence_transformer import to_sentence_transformer

    options = dict(vars(args))
    model = to_sentence_transformer(options.pop("model_name_or_path"), **load_args.loading)
    number, size = encode_file(model, options.pop("input"), batch_size=load_args.batch_size, **options)
    print(f"{number} vectors of size {size} written to {args.output}")
