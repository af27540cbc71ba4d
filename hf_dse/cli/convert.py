# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse convert`."""

import shlex
from dataclasses import dataclass, field

from hf_dse.cli.output import say_next
from hf_dse.common.files import check_target, to_path
from hf_dse.convert.options import ConvertOptions


@dataclass
class ConvertCommandArguments:
    """Which encoder to convert, and where to save it."""

    model_name_or_path: str = field(metadata={"help": "Encoder to convert: a Hub id or a folder."})
    output_dir: str = field(metadata={"help": "Folder of the new model."})
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens per text that everything that loads the folder reads. Default: "
            "`--max_position_embeddings`, else the length of the source."
        },
    )
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def convert(args: ConvertCommandArguments, convert_args: ConvertOptions) -> None:
    """
    Convert a pretrained encoder to linear attention.

    hf-dse convert --model_name_or_path sentence-transformers/all-MiniLM-L6-v2 --output_dir converted
    """
    from hf_dse.common.loading import load_tokenizer, read_max_length
    from hf_dse.publish.export import export_model

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    # The parser has completed the options.
    encoder = convert_args.convert(args.model_name_or_path)  # type: ignore[attr-defined]
    max_length = args.max_length
    if max_length is None:
        length = convert_args.max_position_embeddings or read_max_length(args.model_name_or_path)
        max_length = length and min(length, encoder.config.max_position_embeddings)
    folder = export_model(
        encoder,
        load_tokenizer(args.model_name_or_path),
        args.output_dir,
        base_model=args.model_name_or_path,
        max_length=max_length,
        overwrite=args.overwrite_output_dir,
    )
    print(f"Saved to {folder}")
    model = f"--model_name_or_path {shlex.quote(str(folder))}"
    say_next(distill=model, evaluate=model, search=model)
