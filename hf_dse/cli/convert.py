# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse convert`."""

import shlex
from dataclasses import dataclass, field

from hf_dse.cli.output import say_next
from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import check_target, to_path
from hf_dse.student.options import ConvertOptions


@dataclass
class ConvertCommandArguments:
    """Which encoder to convert, and where to save it."""

    model_name_or_path: str = field(metadata={"help": "Encoder to convert: a Hub id or a folder."})
    output_dir: str = field(metadata={"help": "Folder of the new model."})
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a text that everything that loads the folder reads. Default: "
            "`--max_position_embeddings`, else as many as the source reads."
        },
    )
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def convert(argv: list[str]) -> None:
    """`hf-dse convert`."""
    args, convert_args = parse_args(
        argv,
        ConvertCommandArguments,
        ConvertOptions,
        prog="hf-dse convert",
        description="Convert a pretrained encoder to linear attention.",
    )
    from hf_dse.inference.loading import load_tokenizer, read_max_length
    from hf_dse.publish.export import export_model

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    encoder = convert_args.convert(args.model_name_or_path)
    tokenizer = load_tokenizer(args.model_name_or_path)
    max_length = args.max_length
    if max_length is None:
        length = convert_args.max_position_embeddings
        length = read_max_length(args.model_name_or_path) if length is None else length
        max_length = None if length is None else min(length, encoder.config.max_position_embeddings)
    folder = export_model(
        encoder,
        tokenizer,
        args.output_dir,
        base_model=args.model_name_or_path,
        max_length=max_length,
        overwrite=args.overwrite_output_dir,
    )
    print(f"Saved to {folder}")
    model = f"--model_name_or_path {shlex.quote(str(folder))}"
    say_next(distill=model, evaluate=model, search=model)
