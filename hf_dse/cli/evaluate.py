# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""`hf-dse evaluate` and `hf-dse encode`."""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet
import torch
from transformers import (
    AutoConfig,
    AutoModel,
    AutoModelForSequenceClassification,
    AutoTokenizer,
    PreTrainedModel,
    PreTrainedTokenizerBase,
)

from hf_dse.cli import parse_args
from hf_dse.data import READERS, DataArguments, load_pairs, read_texts, resolve_task, write_atomically
from hf_dse.encoding import BATCHES_PER_WINDOW
from hf_dse.encoding import encode as encode_texts
from hf_dse.evaluation import evaluate_model
from hf_dse.ray_engine import SETTINGS_KEY, EngineArguments, local_or_hub, refuse_options, run_on_shards
from hf_dse.teacher import fingerprint


EMBEDDING_COLUMN = "embedding"


@dataclass
class ModelArguments:
    """Which model to run, and how."""

    model_name_or_path: str = field(metadata={"help": "Folder or Hub name of the model and its tokenizer."})
    model_revision: str = field(default="main", metadata={"help": "Branch, tag or commit on the Hub."})
    trust_remote_code: bool = field(default=False, metadata={"help": "Run the code that comes with the model."})
    dtype: str = field(
        default="auto",
        metadata={
            "help": "Number format of the weights; auto takes that of the checkpoint.",
            "choices": ["auto", "float32", "bfloat16", "float16"],
        },
    )
    device: str | None = field(default=None, metadata={"help": "Such as cpu or cuda:0. Defaults to a GPU if any."})
    batch_size: int = field(default=32, metadata={"help": "Texts in a batch; fewer above 512 tokens a text."})


@dataclass
class EvaluateArguments:
    """What to measure and where to write it."""

    split: list[str] = field(default_factory=lambda: ["validation"], metadata={"help": "Splits to evaluate on."})
    output_file: str | None = field(default=None, metadata={"help": "JSON file for the results, as fractions of 1."})


@dataclass
class EncodeArguments:
    """What to embed and where to write it."""

    input: str = field(
        metadata={
            "help": f"Texts: .txt, one a line, a table: {', '.join(READERS)}, or a folder of .txt and .md files. With "
            "`--engine ray` .parquet files: one, a folder or a glob."
        }
    )
    output: str = field(
        metadata={
            "help": "Vectors: .npy, a float32 array with a row for each text, or .parquet, the columns of the input "
            f"and `{EMBEDDING_COLUMN}`, which `hf-dse search` reads. With `--engine ray` a folder of such files."
        }
    )
    text_column: str = field(default="text", metadata={"help": "Column of the texts in a table."})
    max_length: int | None = field(default=None, metadata={"help": "Tokens after which a text is cut."})
    truncation: bool = field(default=True, metadata={"help": "False: refuse longer texts instead of cutting them."})
    normalize: bool = field(default=False, metadata={"help": "Scale the vectors to length 1."})


def evaluate(argv: list[str]) -> None:
    """Scores a model on splits of a pair task; prints a table and writes JSON."""
    model_args, args, data_args = parse_args(
        argv,
        ModelArguments,
        EvaluateArguments,
        DataArguments,
        prog="hf-dse evaluate",
        description="Measure a model on a sentence-pair task.",
    )
    task = resolve_task(data_args)
    output = None if args.output_file is None else output_path(args.output_file, (".json",))
    pairs = load_pairs(data_args, args.split)
    model, tokenizer = load_model(model_args)
    results = {}
    for split in args.split:
        metrics = evaluate_model(
            model,
            tokenizer,
            pairs[split],
            task=task,
            batch_size=model_args.batch_size,
            max_seq_length=data_args.max_seq_length,
        )
        results[split] = {"num_pairs": len(pairs[split]), **metrics}
    print(format_table(results))
    if output is not None:
        report = {
            "model_name_or_path": model_args.model_name_or_path,
            "task_name": task.name,
            "dataset_name": data_args.dataset_name,
            "max_seq_length": data_args.max_seq_length,
            "results": results,
        }
        write_atomically(output, lambda file: file.write((json.dumps(report, indent=2) + "\n").encode()))
        print(f"Written to {output}")


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
        max_length=args.max_length,
        truncation=args.truncation,
        normalize=args.normalize,
    )
    if output.suffix == ".npy":
        write_atomically(output, lambda file: np.save(file, vectors))
    else:
        settings = {
            "model": fingerprint(model, tokenizer),
            "model_name_or_path": model_args.model_name_or_path,
            "max_length": args.max_length,
            "normalize": args.normalize,
            "columns": [args.text_column],
        }
        write_atomically(output, lambda file: _write_parquet(file, columns, vectors, settings))
    print(f"{vectors.shape[0]} vectors of size {vectors.shape[1]} written to {output}")


class TextEncoder:
    """What embeds the shards of `hf-dse encode --engine ray`, see [`~hf_dse.ray_engine.ShardModel`]."""

    column = EMBEDDING_COLUMN

    def __init__(self, model_args: ModelArguments, args: EncodeArguments, device: str):
        self.model, self.tokenizer = load_model(replace(model_args, device=device))
        self.batch_size = model_args.batch_size
        # Whole windows: the batches, and so the vectors to the last bit, are those of a file that is encoded at once.
        self.num_rows = 4 * BATCHES_PER_WINDOW * self.batch_size
        self.options: dict[str, Any] = {"max_length": args.max_length, "normalize": args.normalize}
        self.truncation = args.truncation
        self.settings = {"model": fingerprint(self.model, self.tokenizer), **self.options}
        self.type = pyarrow.list_(pyarrow.float32(), self._encode([]).shape[1])

    def _encode(self, texts: list[str]) -> np.ndarray:
        options = {"truncation": self.truncation, "show_progress": False, **self.options}
        return encode_texts(self.model, self.tokenizer, texts, batch_size=self.batch_size, **options)

    def __call__(self, columns: list[list[str]]) -> pyarrow.Array:
        (texts,) = columns
        return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(self._encode(texts).reshape(-1)), type=self.type)


def load_model(args: ModelArguments) -> tuple[PreTrainedModel, PreTrainedTokenizerBase]:
    """
    Loads a model and its tokenizer, with the classification head if the checkpoint has one.

    Args:
        args (`ModelArguments`):
            Where it is and how to run it.

    Returns:
        `tuple[PreTrainedModel, PreTrainedTokenizerBase]`: the model, on its device, and the tokenizer.

    Raises:
        ValueError: the checkpoint names a classification head but holds no weights for it.
    """
    source: dict[str, Any] = {"revision": args.model_revision, "trust_remote_code": args.trust_remote_code}
    config = AutoConfig.from_pretrained(args.model_name_or_path, **source)
    has_head = any(name.endswith("ForSequenceClassification") for name in config.architectures or [])
    auto_class = AutoModelForSequenceClassification if has_head else AutoModel
    model, info = auto_class.from_pretrained(
        args.model_name_or_path, dtype=args.dtype, output_loading_info=True, **source
    )
    # A head that is not in the checkpoint is random, and its scores are noise.
    if has_head and info["missing_keys"]:
        raise ValueError(
            f"The checkpoint {args.model_name_or_path} lacks {', '.join(sorted(info['missing_keys']))}: train it "
            "first, or take the head out of `architectures` in its config.json."
        )
    device = args.device or ("cuda" if torch.cuda.is_available() else "cpu")
    return model.to(device), AutoTokenizer.from_pretrained(args.model_name_or_path, **source)


def format_table(results: Mapping[str, Mapping[str, float]]) -> str:
    """Lays out the metrics of each split in columns, times 100 as the literature has them."""
    names = list(next(iter(results.values())))
    rows = [["split", *names]]
    for split, metrics in results.items():
        cells = [f"{metrics[name]:d}" if name == "num_pairs" else f"{100 * metrics[name]:.2f}" for name in names]
        rows.append([split, *cells])
    widths = [max(map(len, column)) for column in zip(*rows, strict=True)]
    return "\n".join(
        "  ".join(
            [row[0].ljust(widths[0]), *(cell.rjust(width) for cell, width in zip(row[1:], widths[1:], strict=True))]
        )
        for row in rows
    )


def output_path(name: str, endings: tuple[str, ...]) -> Path:
    """Checks an output file before the work begins, not after."""
    path = Path(name).expanduser()
    if path.suffix not in endings:
        raise ValueError(f"{name}: unsupported ending {path.suffix!r}; the output is {' or '.join(endings)}.")
    if path.is_dir():
        raise ValueError(f"{name} is a folder: name a file in it.")
    return path


def _write_parquet(file: BinaryIO, columns: dict[str, list], vectors: np.ndarray, settings: Mapping[str, Any]) -> None:
    # Lists of fixed size are what vector databases read without a conversion.
    values = pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(vectors.reshape(-1)), vectors.shape[1])
    table = pyarrow.table({**columns, EMBEDDING_COLUMN: values})
    pyarrow.parquet.write_table(table.replace_schema_metadata({SETTINGS_KEY: json.dumps(settings)}), file)
