# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse convert`, `whiten`, `export` and `push`: from one model folder to another, and to the Hub."""

import logging
import shlex
from dataclasses import dataclass
from typing import Any, Literal

from hf_dse.cli.output import say_next
from hf_dse.common.files import check_target, to_path
from hf_dse.common.options import HfArg
from hf_dse.convert.options import ConvertOptions


logger = logging.getLogger(__name__)

# Endings of the files with weights.
WEIGHTS = (".safetensors", ".onnx", ".onnx_data", ".bin")

DSE_MODEL = "A DSE model: a Hub id or a folder."


@dataclass(kw_only=True)
class FolderArguments:
    """Which model to read, and where to save the new one."""

    model_name_or_path: str = HfArg(help="The encoder to convert: a Hub id or a folder.")
    output_dir: str = HfArg(help="Folder to write.")
    model_id: str | None = HfArg(default=None, help="Name of the model in its card, such as user/name.")
    max_length: int | None = HfArg(default=None, help="Tokens per text that everything that loads the folder reads.")
    overwrite_output_dir: bool = HfArg(default=False, help="Replace a folder that is not empty.")


def convert(args: FolderArguments, convert_args: ConvertOptions) -> None:
    """
    Convert a pretrained encoder to linear attention.

    hf-dse convert --model sentence-transformers/all-MiniLM-L6-v2 --output_dir converted
    """
    from hf_dse.common.loading import LENGTHS, load_tokenizer, read_json
    from hf_dse.convert.convert import convert_with_options
    from hf_dse.publish import export as exporting

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    encoder: Any = convert_with_options(args.model_name_or_path, convert_args)
    stored = read_json(args.model_name_or_path, LENGTHS).get("max_seq_length")
    length = convert_args.max_position_embeddings or stored
    default = length and min(length, encoder.config.max_position_embeddings)
    folder = exporting.export(
        encoder,
        args.output_dir,
        load_tokenizer(args.model_name_or_path),
        model_id=args.model_id,
        base_model=args.model_name_or_path,
        max_length=default if args.max_length is None else args.max_length,
        overwrite_output_dir=args.overwrite_output_dir,
    )
    print(f"Saved to {folder}")
    model = f"--model {shlex.quote(str(folder))}"
    distill = f"{model} --teacher RERANKER --dataset DATA --output_dir student"
    say_next(distill=distill, evaluate=f"{model} --dataset DATA", search=f"{model} --corpus FOLDER --query '...'")


@dataclass(kw_only=True)
class WhitenArguments(FolderArguments):
    """Which embeddings to whiten, and the texts to fit on."""

    model_name_or_path: str = HfArg(help=DSE_MODEL)
    train_file: str = HfArg(help="Texts to fit on: .txt with one text per line, or a table.")
    projection_dim: int = HfArg(help="Dimensions of a new embedding, at most as many as now.")
    power: float = HfArg(default=0.5, help="0: PCA. 1: full whitening. Between: partial whitening.")
    text_column: str = HfArg(default="text", help="Column of the texts in a table.")


def whiten(args: WhitenArguments) -> None:
    """
    Level the spread of a student's embeddings, or make them smaller, by whitening or PCA, without training.

    hf-dse whiten --model converted --train_file texts.txt --projection_dim 256 --output_dir smaller
    """
    from hf_dse.common.loading import choose_device, load_tokenizer
    from hf_dse.common.provenance import describe_source
    from hf_dse.convert.student import has_head, load_dse_model
    from hf_dse.convert.whiten import whiten_encoder
    from hf_dse.data.texts import load_texts
    from hf_dse.publish import export as exporting

    check_target(to_path(args.output_dir), args.overwrite_output_dir)
    texts = load_texts(args.train_file, args.text_column)["text"][:]
    model: Any = load_dse_model(args.model_name_or_path)
    model.to(choose_device())
    if has_head(model):
        logger.warning(
            f"The head of {args.model_name_or_path} is left out: it was trained for the original embeddings. "
            "`hf-dse distill` adds a new head to the whitened encoder."
        )
        model = model.dse
    tokenizer, size = load_tokenizer(args.model_name_or_path), model.config.embedding_size
    whiten_encoder(model, tokenizer, texts, args.projection_dim, power=args.power, max_length=args.max_length)
    source = describe_source(args.model_name_or_path).name
    whitened = f"{source}, {size} to {args.projection_dim} dimensions, power {args.power}, {len(texts)} texts"
    options: Any = {"recipe": {"whitened": whitened}, "overwrite_output_dir": args.overwrite_output_dir}
    folder = exporting.export(model, args.output_dir, tokenizer, model_id=args.model_id, **options)
    print(f"Saved to {folder}")


@dataclass(kw_only=True)
class ExportArguments(FolderArguments):
    """Which model to export, and where to save it."""

    model_name_or_path: str = HfArg(help=DSE_MODEL)
    format: Literal["transformers", "onnx"] = HfArg(
        default="transformers", help="A complete model folder, or a graph that returns sentence embeddings."
    )
    int8: bool = HfArg(
        default=False, help="Add an ONNX graph of 8 bits, whose vectors depend on their batch (up to 0.03)."
    )


def export(args: ExportArguments) -> None:
    """
    Write a complete, documented model folder, or a graph.

    hf-dse export --model student/model --output_dir graph --format onnx
    """
    from hf_dse.publish import export as exporting

    options = dict(vars(args))
    folder = exporting.export(options.pop("model_name_or_path"), **options)
    for file in sorted(file for file in folder.rglob("*") if file.suffix in WEIGHTS):
        print(f"{file.relative_to(folder).as_posix():<30}{file.stat().st_size / 10**6:>10,.1f} MB")
    print(f"Saved to {folder}")
    if args.format == "transformers":
        say_next(push=f"--model {shlex.quote(str(folder))} --repo_id USER/NAME")


@dataclass
class PushArguments:
    """The folder to publish, and where."""

    model_name_or_path: str = HfArg(help="Folder that `hf-dse export` or `hf-dse distill` wrote.")
    repo_id: str = HfArg(help="Repository on the Hub, user/name; created if it does not exist.")
    private: bool = HfArg(default=False, help="Make a new repository private.")
    revision: str | None = HfArg(default=None, help="Branch, created if it does not exist.")
    token: str | None = HfArg(default=None, help="Token. Default: HF_TOKEN, or that of `hf auth login`.")


def push(args: PushArguments) -> None:
    """
    Publish a model folder on the Hub.

    hf-dse push --model student/model --repo_id user/name
    """
    from hf_dse.publish.export import push_model

    options: dict[str, Any] = {"private": args.private or None, "revision": args.revision, "token": args.token}
    print(f"Pushed to {push_model(args.model_name_or_path, args.repo_id, **options)}")
