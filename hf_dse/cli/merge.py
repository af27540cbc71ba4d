# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse merge`."""

from dataclasses import dataclass, field

from hf_dse.cli.parsing import parse_args
from hf_dse.common.files import check_target, to_path


@dataclass
class MergeArguments:
    """Which models to merge, and where to save the result."""

    model_names_or_paths: list[str] = field(
        metadata={
            "help": "DSE models with a common start: Hub ids or folders. Tokenizer and head are those of the first."
        }
    )
    output_dir: str = field(metadata={"help": "Folder to write."})
    weights: list[float] | None = field(
        default=None, metadata={"help": "One weight per model; they are divided by their sum. Default: equal."}
    )
    max_length: int | None = field(
        default=None,
        metadata={
            "help": "Tokens of a text that everything that loads the folder reads. Default: the `model_max_length` "
            "of the first model's tokenizer."
        },
    )
    overwrite_output_dir: bool = field(default=False, metadata={"help": "Replace a folder that is not empty."})


def merge(argv: list[str]) -> None:
    """`hf-dse merge`."""
    (args,) = parse_args(
        argv,
        MergeArguments,
        prog="hf-dse merge",
        description="Average the weights of students that started from the same encoder.",
    )
    from hf_dse.common.provenance import describe_command, describe_source
    from hf_dse.inference.loading import load_tokenizer
    from hf_dse.publish.export import export_model
    from hf_dse.student.checkpoint import load_dse_model
    from hf_dse.student.merge import merge_models

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    models = [load_dse_model(name) for name in args.model_names_or_paths]
    weights = args.weights or [1.0] * len(models)
    model = merge_models(models, weights)
    tokenizer, *others = (load_tokenizer(name) for name in args.model_names_or_paths)
    for name, other in zip(args.model_names_or_paths[1:], others, strict=True):
        if other.get_vocab() != tokenizer.get_vocab():
            raise ValueError(
                f"{name} has another vocabulary than {args.model_names_or_paths[0]}, so they have no common start: "
                "merge students of the same encoder."
            )
    names = [describe_source(name).name for name in args.model_names_or_paths]
    recipe = {
        "Mean of the weights of": ", ".join(
            f"{name} ({weight / sum(weights):.3g})" for name, weight in zip(names, weights, strict=True)
        ),
        "command": describe_command(),
    }
    folder = export_model(
        model,
        tokenizer,
        args.output_dir,
        recipe=recipe,
        max_length=args.max_length,
        overwrite=args.overwrite_output_dir,
    )
    print(f"Saved to {folder}")
