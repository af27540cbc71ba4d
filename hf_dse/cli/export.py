# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse export`."""

import shlex
from dataclasses import dataclass, field

from hf_dse.cli.output import say_next
from hf_dse.publish.arguments import GRAPH_FORMATS


# Endings of the files with weights.
WEIGHTS = (".safetensors", ".onnx", ".onnx_data", ".bin")


@dataclass
class ExportArguments:
    """Which model to export, and where to save it."""

    model_name_or_path: str = field(metadata={"help": "A DSE model: a Hub id, a folder or a Trainer checkpoint."})
    output_dir: str = field(metadata={"help": "Folder to write."})
    model_id: str | None = field(
        default=None,
        metadata={"help": "Name under which the examples of the model card load the model, such as user/name."},
    )
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens per text that everything that loads the folder reads. Default: the `model_max_length` of "
            "the model's tokenizer."
        },
    )
    format: str = field(
        default="transformers",
        metadata={
            "help": "transformers: a complete model folder. onnx, openvino: a graph that returns sentence embeddings.",
            "choices": ["transformers", *GRAPH_FORMATS],
        },
    )
    int8: bool = field(default=False, metadata={"help": "Add an ONNX graph with weights of 8 bits."})
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})

    def __post_init__(self) -> None:
        if self.format == "transformers" and self.int8:
            raise ValueError("`--int8` quantizes a graph: add `--format onnx`.")
        if self.format != "transformers" and self.model_id is not None:
            raise ValueError(f"`--format {self.format}` writes no model card: leave `--model_id` out.")


def export(args: ExportArguments) -> None:
    """
    Write a complete, documented model folder, or a graph.

    hf-dse export --model_name_or_path student/model --output_dir graph --format onnx
    """
    from hf_dse.common.display import format_size
    from hf_dse.common.loading import load_tokenizer, read_file
    from hf_dse.convert.student import load_dse_model, stored_dtype
    from hf_dse.publish.export import export_model
    from hf_dse.publish.graph import export_graph

    model, tokenizer = load_dse_model(args.model_name_or_path), load_tokenizer(args.model_name_or_path)
    if args.format == "transformers":
        folder = export_model(
            model,
            tokenizer,
            args.output_dir,
            max_length=args.max_length,
            model_id=args.model_id,
            card=read_file(args.model_name_or_path, "README.md") or None,
            dtype=stored_dtype(args.model_name_or_path),
            overwrite=args.overwrite_output_dir,
        )
    else:
        folder = export_graph(
            model,
            tokenizer,
            args.output_dir,
            max_length=args.max_length,
            format=args.format,
            int8=args.int8,
            overwrite=args.overwrite_output_dir,
        )
    for file in sorted(file for file in folder.rglob("*") if file.suffix in WEIGHTS):
        print(f"{file.relative_to(folder).as_posix():<30}{format_size(file.stat().st_size):>10}")
    print(f"Saved to {folder}")
    if args.format == "transformers":
        say_next(push=f"--model_name_or_path {shlex.quote(str(folder))} --repo_id USER/NAME")
