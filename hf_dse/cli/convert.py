# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse convert`."""

from dataclasses import dataclass, field

from transformers import AutoTokenizer

from hf_dse.cli.parsing import parse_args
from hf_dse.publish.export import export_model
from hf_dse.student.convert import ConvertArguments
from hf_dse.training.base import check_output_dir


@dataclass
class ConvertCommandArguments:
    """Which encoder to convert, and where to save it."""

    model_name_or_path: str = field(metadata={"help": "Encoder to convert: a Hub id or a folder."})
    output_dir: str = field(metadata={"help": "Folder of the new model."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def convert(argv: list[str]) -> None:
    """`hf-dse convert`."""
    args, convert_args = parse_args(
        argv,
        ConvertCommandArguments,
        ConvertArguments,
        prog="hf-dse convert",
        description="Convert a pretrained encoder to linear attention.",
    )
    check_output_dir(args.output_dir, None, args.overwrite_output_dir)
    encoder = convert_args.convert(args.model_name_or_path)
    tokenizer = AutoTokenizer.from_pretrained(args.model_name_or_path)
    folder = export_model(
        encoder, tokenizer, args.output_dir, base_model=args.model_name_or_path, overwrite=args.overwrite_output_dir
    )
    print(f"Saved to {folder}")
