# Copyright 2026 The hf-dse authors.
# SPDX-License-Identifier: Apache-2.0
"""Indexes in parquet files: texts, their embeddings and the model that computed them."""

import json
from collections.abc import Mapping
from dataclasses import asdict, replace
from functools import partial
from io import BytesIO
from pathlib import Path
from typing import Any, BinaryIO

import numpy as np
import pyarrow
import pyarrow.parquet
from transformers import PreTrainedModel, PreTrainedTokenizerBase

from hf_dse.common.files import output_path, save_array, to_path, write_atomically
from hf_dse.common.hub import pin
from hf_dse.common.provenance import describe_source, fingerprint
from hf_dse.data.tables import (
    check_texts,
    find_table,
    find_texts,
    read_batches,
    read_schema,
    read_table,
    read_texts,
)
from hf_dse.inference.arguments import (
    DOCUMENT_COLUMN,
    EMBEDDING_COLUMN,
    ChunkArguments,
    EncodeArguments,
    EngineArguments,
    ModelArguments,
    SizeArguments,
)
from hf_dse.inference.chunks import encode_chunks
from hf_dse.inference.encoding import BATCHES_PER_WINDOW, encode, find_prompt
from hf_dse.inference.loading import load_model
from hf_dse.inference.quantization import QuantizedEmbeddings, check_precision
from hf_dse.inference.ray_engine import (
    SETTINGS_KEY,
    count_rows,
    local_or_hub,
    read_settings,
    refuse_with_ray,
    run_on_shards,
)


ROWS_PER_GROUP = 65_536


def encode_files(
    model_args: ModelArguments,
    args: EncodeArguments,
    chunk_args: ChunkArguments,
    engine_args: EngineArguments,
    size_args: SizeArguments | None = None,
) -> tuple[int, int | None]:
    """
    Embeds the texts of a file, or of parquet shards with Ray, and writes the vectors.

    Args:
        model_args ([`ModelArguments`]):
            The model.
        args ([`EncodeArguments`]):
            The texts, and where to write the vectors.
        chunk_args ([`ChunkArguments`]):
            Whether each text has a vector for each of its chunks. The index then has a row for each, with the columns
            of its document, the row of the document in the input (`document`), and the chunk in place of the text.
        engine_args ([`EngineArguments`]):
            Whether to run in this process or in Ray workers.
        size_args ([`SizeArguments`], *optional*):
            How large the vectors are.

    Returns:
        `tuple[int, int | None]`: the number of vectors, and their size (`None` with Ray).

    Raises:
        `ValueError`: if texts, model or options are invalid or do not match.
    """
    size_args = size_args or SizeArguments()
    has_ranges = size_args.precision.endswith("int8")
    if engine_args.engine == "ray":
        if has_ranges:
            raise ValueError(
                f"precision={size_args.precision!r} needs the ranges of all vectors, and `--engine ray` sees one "
                "shard at a time: take binary or ubinary, or `--engine local`."
            )
        if find_table(to_path(args.input), "corpus") is not None:
            raise ValueError(
                f"{args.input} is a folder in the layout of BEIR, whose queries are no documents, and whose titles "
                "`--engine ray` does not join to the texts: pass the parquet file of its corpus, or `--engine local`."
            )
        refuse_with_ray(model_args, "device")
        refuse_with_ray(chunk_args, "chunks")
        model_args.model_name_or_path = local_or_hub(model_args.model_name_or_path)
        load = partial(TextEncoder, model_args, args, size_args=size_args)
        return count_rows(run_on_shards(load, args.input, args.output, [args.text_column], engine_args)), None
    output = output_path(args.output, (".npy", ".parquet"))
    if has_ranges and output.suffix == ".npy":
        raise ValueError(
            f"{args.output} has no place for the ranges of {size_args.precision} codes: write .parquet, or take "
            "binary or ubinary."
        )
    columns = read_texts(args.input, args.text_column)
    if output.suffix == ".parquet" and EMBEDDING_COLUMN in columns:
        raise ValueError(f"{args.input} already has a column {EMBEDDING_COLUMN!r}: rename it, or write .npy.")
    if chunk_args.chunks and (output.suffix == ".npy" or DOCUMENT_COLUMN in columns):
        problem = (
            "a .npy file does not tell which document a vector is of: write .parquet"
            if output.suffix == ".npy"
            else f"{args.input} already has a column {DOCUMENT_COLUMN!r}: rename it"
        )
        raise ValueError(f"With `--chunks`, {problem}, or leave `--chunks` out.")
    model, tokenizer = load_model(model_args)
    texts = columns[args.text_column]
    options: dict[str, Any] = {
        "batch_size": model_args.batch_size,
        "max_length": model_args.max_length,
        "normalize": args.normalize,
        "prompt_name": args.prompt_name,
        **asdict(size_args),
    }
    if chunk_args.chunks:
        options |= {"chunk_size": chunk_args.chunk_size, "contextual": chunk_args.contextual}
        vectors, chunks = encode_chunks(model, tokenizer, texts, **options)
        rows = [row for row, parts in enumerate(chunks) for _ in parts]
        columns = {name: [values[row] for row in rows] for name, values in columns.items()}
        columns |= {args.text_column: [chunk for parts in chunks for chunk in parts], DOCUMENT_COLUMN: rows}
    else:
        vectors = encode(model, tokenizer, texts, truncation=args.truncation, **options)
    codes = vectors.codes if isinstance(vectors, QuantizedEmbeddings) else vectors
    if output.suffix == ".npy":
        write_atomically(output, lambda file: save_array(file, codes))
    else:
        settings = {
            "model": fingerprint(model, tokenizer),
            "model_name_or_path": describe_source(pin(model_args.model_name_or_path, model_args.model_revision)).name,
            "max_length": model_args.max_length,
            "normalize": args.normalize,
            "columns": [args.text_column],
            **prompt_setting(model, args.prompt_name),
            **size_settings(size_args, vectors),
            **(asdict(chunk_args) if chunk_args.chunks else {}),
        }
        write_atomically(output, lambda file: write_index(file, columns, vectors, settings))
    return vectors.shape[0], vectors.shape[1]


class TextEncoder:
    """The [`~hf_dse.inference.ray_engine.ShardModel`] of `hf-dse encode --engine ray`."""

    column = EMBEDDING_COLUMN

    def __init__(
        self,
        model_args: ModelArguments,
        args: EncodeArguments,
        device: str,
        size_args: SizeArguments | None = None,
    ):
        size_args = size_args or SizeArguments()
        self.model, self.tokenizer = load_model(replace(model_args, device=device))
        self.batch_size = model_args.batch_size
        # Whole windows, so that batches and vectors are exactly those of a file that is encoded in one process.
        self.num_rows = 4 * BATCHES_PER_WINDOW * self.batch_size
        self.options: dict[str, Any] = {"max_length": model_args.max_length, "normalize": args.normalize}
        self.settings = {"model": fingerprint(self.model, self.tokenizer), **self.options}
        self.settings |= prompt_setting(self.model, args.prompt_name)
        # What does not change the vectors, or is in the settings as a text.
        self.options |= {"truncation": args.truncation, "prompt_name": args.prompt_name, "show_progress": False}
        self.options |= {"truncate_dim": size_args.truncate_dim, "precision": size_args.precision}
        none = self._encode([])
        self.settings |= size_settings(size_args, none)
        self.type = _to_lists(none).type

    def _encode(self, texts: list[str]) -> Any:
        return encode(self.model, self.tokenizer, texts, batch_size=self.batch_size, **self.options)

    def __call__(self, columns: list[list[str]]) -> pyarrow.Array:
        (texts,) = columns
        return _to_lists(self._encode(texts))


def prompt_setting(model: PreTrainedModel, name: str) -> dict[str, str]:
    """The setting of an index that says which text stood before the others; none if there was none."""
    prompt = find_prompt(model, name)
    return {"prompt": prompt} if prompt else {}


def size_settings(args: SizeArguments, vectors: Any) -> dict[str, Any]:
    """The settings of an index that say how large its vectors are; none if they are whole."""
    settings: dict[str, Any] = {} if args.truncate_dim is None else {"truncate_dim": args.truncate_dim}
    if isinstance(vectors, QuantizedEmbeddings):
        settings |= {"precision": vectors.precision, "size": vectors.size}
        settings |= {} if vectors.ranges is None else {"ranges": vectors.ranges.tolist()}
    return settings


def to_arrow(values: list) -> pyarrow.Array:
    """The values of a column; as JSON if parquet cannot hold them: different types, or objects that are all empty."""
    try:
        array = pyarrow.array(values)
        with pyarrow.parquet.ParquetWriter(BytesIO(), pyarrow.schema([("values", array.type)])):
            return array
    except (pyarrow.ArrowException, OverflowError):
        dump = partial(json.dumps, ensure_ascii=False, default=str)
        return pyarrow.array([None if value is None else dump(value) for value in values])


def _to_lists(vectors: Any) -> pyarrow.FixedSizeListArray:
    """Vectors, or their codes, as lists of fixed size: vector databases read these without conversion."""
    numbers = vectors.codes if isinstance(vectors, QuantizedEmbeddings) else vectors
    return pyarrow.FixedSizeListArray.from_arrays(pyarrow.array(numbers.reshape(-1)), numbers.shape[1])


def write_index(file: BinaryIO, columns: dict[str, list], vectors: Any, settings: Mapping[str, Any]) -> None:
    values = _to_lists(vectors)
    table = pyarrow.table({name: to_arrow(column) for name, column in columns.items()} | {EMBEDDING_COLUMN: values})
    table = table.replace_schema_metadata({SETTINGS_KEY: json.dumps(settings)})
    # The writer holds a group of rows in memory once more.
    pyarrow.parquet.write_table(table, file, row_group_size=ROWS_PER_GROUP)


def is_folder_of_texts(name: str) -> bool:
    """Whether a corpus is a folder of .txt and .md files, not one of shards with vectors or in the layout of BEIR."""
    path = to_path(name)
    if not path.is_dir() or find_table(path, "corpus") is not None:
        return False
    # A table among texts is not an index, and a README.md among shards not a corpus.
    return not _find_shards(path) or (not _has_vectors(path) and bool(find_texts(path)))


def _find_shards(folder: Path) -> list[Path]:
    return sorted(file for file in folder.glob("*.parquet") if file.is_file())


def _has_vectors(folder: Path) -> bool:
    return any(EMBEDDING_COLUMN in read_schema(shard).names for shard in _find_shards(folder))


def read_corpus(
    name: str, text_column: str
) -> tuple[dict[str, list], np.ndarray | QuantizedEmbeddings | None, dict[str, Any]]:
    """
    Reads texts, or an index that `hf-dse encode` wrote: a file or a folder of shards.

    Returns:
        `tuple`: the columns, with `file` for texts of a folder; for an index also the vectors of shape
        `(num_texts, embedding_size)` and the settings they were computed with, otherwise `None` and `{}`.

    Raises:
        `ValueError`: if the vectors are not from `hf-dse encode`, they are those of another column, or the shards have
        different models or settings.
    """
    path = to_path(name)
    is_beir = find_table(path, "corpus") is not None and not _has_vectors(path)
    if is_beir or is_folder_of_texts(name):
        return read_texts(name, text_column), None, {}
    shards = sorted(path.glob("*.parquet")) if path.is_dir() else [path]
    if shards[0].suffix != ".parquet" or not shards[0].is_file():
        return read_texts(name, text_column), None, {}
    schemas = [read_schema(shard) for shard in shards]
    if EMBEDDING_COLUMN not in schemas[0].names and len(shards) == 1:
        return read_texts(shards[0], text_column), None, {}
    found = []
    for shard, schema in zip(shards, schemas, strict=True):
        settings = read_settings(shard, schema)
        settings.pop("input", None)
        has_columns = {EMBEDDING_COLUMN, text_column} <= set(schema.names)
        if not has_columns or settings.get("columns") != [text_column]:
            raise ValueError(
                f"{shard} has no vectors of column {text_column!r} from `hf-dse encode`, but vectors of "
                f"{settings.get('columns', 'unknown origin')}: encode its texts, or pass their column as "
                "`--text_column`."
            )
        found.append(settings)
    if any(settings != found[0] for settings in found):
        raise ValueError(f"{name} has shards of different models or settings: encode all of them alike.")
    if not {"model", "normalize"} <= found[0].keys():
        raise ValueError(f"{name} does not say which model its vectors are of: encode it again.")
    tables = [
        read_table(shard, [name for name in schema.names if name != EMBEDDING_COLUMN])
        for shard, schema in zip(shards, schemas, strict=True)
    ]
    vectors = _read_vectors(name, shards, schemas, sum(map(len, tables)), found[0])
    # Column by column: shards may differ in those that no model reads, and in their types.
    names = dict.fromkeys(name for table in tables for name in table.column_names)
    columns = {
        name: [
            value
            for table in tables
            for value in (table[name].to_pylist() if name in table.column_names else [None] * len(table))
        ]
        for name in names
    }
    check_texts(columns[text_column], name, text_column)
    if found[0].get("chunks"):
        rows = columns.get(DOCUMENT_COLUMN, [None])
        if len(shards) > 1 or not all(isinstance(row, int) for row in rows):
            raise ValueError(
                f"{name} has chunks, but not the rows of their documents in one file: encode it again, all texts in "
                "one file."
            )
    return columns, vectors, found[0]


def _read_vectors(
    name: str, shards: list[Path], schemas: list[pyarrow.Schema], num_rows: int, settings: Mapping[str, Any]
) -> np.ndarray | QuantizedEmbeddings:
    """The vectors of an index, which anybody may have written: part by part, so that they are in memory once."""
    precision = settings.get("precision", "float32")
    try:
        check_precision(precision)
    except ValueError as error:
        raise ValueError(f"{name} is damaged: {error}") from error
    number = {"int8": "int8", "binary": "int8", "float32": "float32"}.get(precision, "uint8")
    kinds = [schema.field(EMBEDDING_COLUMN).type for schema in schemas]
    for shard, kind in zip(shards, kinds, strict=True):
        if not pyarrow.types.is_fixed_size_list(kind) or kind.value_type != getattr(pyarrow, number)():
            raise ValueError(f"{shard}: {EMBEDDING_COLUMN!r} is {kind}, not vectors of {number}: encode it again.")
        if kind.list_size != kinds[0].list_size:
            raise ValueError(f"{name} has shards with vectors of different sizes: encode all of them alike.")
    vectors = np.empty((num_rows, kinds[0].list_size), dtype=number)
    start = 0
    for shard in shards:
        for batch in read_batches(shard, [EMBEDDING_COLUMN]):
            # Without the values of vectors that are missing.
            part = batch.column(0).flatten().to_numpy(zero_copy_only=False).reshape(-1, vectors.shape[1])
            if len(part) != len(batch) or not np.isfinite(part).all():
                raise ValueError(f"{shard} has vectors that are missing, NaN or infinite: encode it again.")
            vectors[start : start + len(part)] = part
            start += len(part)
    if precision == "float32":
        return vectors
    try:
        return QuantizedEmbeddings(vectors, precision, settings.get("size", 0), settings.get("ranges"))
    except (TypeError, ValueError) as error:
        raise ValueError(f"{name} is damaged: {error}") from error


def check_index(
    name: str,
    settings: Mapping[str, Any],
    model: PreTrainedModel,
    processing_class: PreTrainedTokenizerBase,
    model_name: str,
    similarity: str,
    head: PreTrainedModel | None,
) -> None:
    """Raises a `ValueError` if the vectors of `hf-dse encode` are not those that the model would compute."""
    prompt = find_prompt(model, "document")
    if settings["model"] != fingerprint(model, processing_class):
        raise ValueError(
            f"{name} was encoded by {settings.get('model_name_or_path', 'another model')} with other weights or "
            f"`--dtype`, so its vectors do not match {model_name}: run `hf-dse encode` with this model, or search "
            "with that one."
        )
    if settings.get("prompt", "") != prompt:
        raise ValueError(
            f"{name} was encoded with the prompt {settings.get('prompt', '')!r}, and that of the model for documents "
            f"is {prompt!r}: run `hf-dse encode` again."
        )
    if head is not None and settings.get("truncate_dim") is not None:
        raise ValueError(
            f"{name} has the first {settings['truncate_dim']} numbers of each vector, but the head needs all: run "
            "`hf-dse encode` without `--truncate_dim`, or leave out `--score head`."
        )
    if settings["normalize"] and (similarity if head is None else model.config.similarity) != "cosine":
        kind = "dot product" if head is None else f"{model.config.similarity} head"
        raise ValueError(
            f"{name} has normalized vectors, but the {kind} needs the original ones: run `hf-dse encode` without "
            "`--normalize`, or pass `--score cosine`."
        )
